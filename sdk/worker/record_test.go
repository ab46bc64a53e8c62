package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/sdk/worker"
)

// ExampleRecord tests a handler without a server: the task is made by hand, and the
// recording has what the handler reported.
func ExampleRecord() {
	copyFiles := worker.Handle("copy", func(_ context.Context, t *worker.Task) ([]byte, error) {
		files := strings.Fields(string(t.Input))
		for i, file := range files {
			t.Logf("copied %s", file)
			t.Progress(int64(i+1), int64(len(files)), file)
		}
		t.Log().Warn("no room for more", "files", len(files))
		return []byte("done"), nil
	})

	task := &worker.Task{Input: []byte("a.txt b.txt"), Attempt: 1}
	said := worker.Record(task)
	out, err := copyFiles.Call(context.Background(), task)
	fmt.Println(string(out), err)
	fmt.Print(said)
	fmt.Println(said.LastProgress())
	// Output:
	// done <nil>
	// INFO copied a.txt
	// INFO copied b.txt
	// WARN no room for more files=2
	// 2 2 b.txt
}

// TestTaskMadeByHand checks that a task without a worker and without a recording has
// working methods.
func TestTaskMadeByHand(t *testing.T) {
	task := &worker.Task{}
	task.Logf("x")
	task.Log().With("a", 1).WithGroup("g").Error("y", "b", 2)
	task.Progress(1, 2, "z")
	said := worker.Record(task)
	task.Log().Debug("d")
	task.Log().Error("e\nf")
	want := []worker.Line{{slog.LevelDebug, "d"}, {slog.LevelError, "e"}, {slog.LevelError, "f"}}
	if got := said.Lines(); !slices.Equal(got, want) {
		t.Errorf("recorded %v, want %v", got, want)
	}
	if _, err := worker.Handle("a b", nil).Call(t.Context(), task); err == nil {
		t.Error("a handler with a bad name was called")
	}
}

// TestMiddleware checks the order of middleware, and that it sees input, output and errors.
func TestMiddleware(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		tag := func(tag string) func(worker.Handler) worker.Handler {
			return func(next worker.Handler) worker.Handler {
				return worker.Handle(next.Name(), func(ctx context.Context, t *worker.Task) ([]byte, error) {
					t.Logf("%s before %s", tag, next.Name())
					out, err := next.Call(ctx, t)
					return append(out, tag...), err
				})
			}
		}
		streams := make(chan string, 100)
		opt := worker.Options{
			Middleware: []func(worker.Handler) worker.Handler{tag("outer"), tag("inner")},
			DialOptions: []grpc.DialOption{grpc.WithStreamInterceptor(
				func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
					streams <- method
					return next(ctx, desc, cc, method, opts...)
				})},
		}
		defer w.work(opt, worker.Handle("f", func(context.Context, *worker.Task) ([]byte, error) { return []byte("f,"), nil }))()
		w.apply(&apiv1.Job{Name: "j", Handler: native("f")})
		id := w.trigger("j")
		if r := w.wait(id); r.Output != "f,innerouter" {
			t.Errorf("output %q of %v", r.Output, r)
		}
		if lines := w.log(id); !slices.Equal(lines, []string{"info outer before f", "info inner before f"}) {
			t.Errorf("log: %q", lines)
		}
		if len(streams) == 0 {
			t.Error("the interceptor saw no stream")
		}
	})
	renames := func(worker.Handler) worker.Handler {
		return worker.Handle("other", func(context.Context, *worker.Task) ([]byte, error) { return nil, errors.New("unused") })
	}
	opt := worker.Options{Address: "http://127.0.0.1:1", Middleware: []func(worker.Handler) worker.Handler{renames}}
	f := worker.Handle("f", func(context.Context, *worker.Task) ([]byte, error) { return nil, nil })
	if err := worker.Run(t.Context(), opt, f); err == nil || !strings.Contains(err.Error(), "must keep the name") {
		t.Errorf("a middleware that renames: %v", err)
	}
}
