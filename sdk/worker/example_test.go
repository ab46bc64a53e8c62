package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/wheelworkhq/wheelwork/journal/local"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/mq"
	"github.com/wheelworkhq/wheelwork/sched"
	"github.com/wheelworkhq/wheelwork/sched/api"
	"github.com/wheelworkhq/wheelwork/sdk"
	"github.com/wheelworkhq/wheelwork/sdk/worker"
	"github.com/wheelworkhq/wheelwork/store"
)

// serve starts the scheduler for an example. Your program gives the address that
// `wheelwork dev` prints, and the token of the file host-token.
func serve() (address string, stop func()) {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	records, err := mq.Open(mq.Config{Dir: filepath.Join(dir, "journal"), SegmentBytes: 16 << 20, ReserveBytes: -1})
	if err != nil {
		log.Fatal(err)
	}
	journal := local.New(records)
	view, err := store.Open(store.Config{Dir: filepath.Join(dir, "store"), SegmentBytes: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	blobs, err := modules.Open(filepath.Join(dir, "modules"))
	if err != nil {
		log.Fatal(err)
	}
	scheduler, err := sched.New(sched.Config{
		ID: "example", Journal: journal, Store: view, Modules: blobs,
		Inspect: func(context.Context, *modules.Upload, string) (api.ModuleInfo, error) {
			return api.ModuleInfo{}, errors.New("this server takes no modules")
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	g := grpc.NewServer()
	scheduler.Register(g)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := scheduler.Run(ctx); err != nil {
			log.Print(err)
		}
	})
	running.Go(func() { g.Serve(l) }) //nolint:errcheck // ends with Stop
	return "http://" + l.Addr().String(), func() {
		cancel()
		g.Stop()
		running.Wait()
		if err := errors.Join(view.Close(), journal.Close(), os.RemoveAll(dir)); err != nil {
			log.Print(err)
		}
	}
}

// execute runs a worker with one handler, triggers one run of it, and returns
// that run, when it has ended, and its log.
func execute(handler worker.Handler, job *sdk.Job, input string) (*sdk.Run, []*sdk.LogLine) {
	address, stop := serve()
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	var working sync.WaitGroup
	working.Go(func() {
		opt := worker.Options{Address: address, Logger: slog.New(slog.DiscardHandler)}
		if err := worker.Run(ctx, opt, handler); err != nil {
			log.Print(err)
		}
	})
	defer working.Wait()
	defer cancel()

	client, err := sdk.Dial(ctx, address, sdk.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Apply(ctx, job); err != nil {
		log.Fatal(err)
	}
	run, err := client.TriggerAndWait(ctx, sdk.Trigger{Job: job.GetName(), Input: []byte(input)})
	if err != nil {
		log.Fatal(err)
	}
	var lines []*sdk.LogLine
	for line, err := range client.Logs(ctx, sdk.LogQuery{Run: run.GetId(), Follow: true}) {
		if err != nil {
			log.Fatal(err)
		}
		lines = append(lines, line)
	}
	return run, lines
}

// A program is a worker: it serves a Go function as the handler native:greet
// until its context ends.
func ExampleRun() {
	address, stop := serve()
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())

	greet := worker.Handle("greet", func(_ context.Context, t *worker.Task) ([]byte, error) {
		return []byte("hello " + string(t.Input)), nil
	})
	ended := make(chan error, 1)
	go func() {
		ended <- worker.Run(ctx, worker.Options{Address: address, Logger: slog.New(slog.DiscardHandler)}, greet)
	}()

	client, err := sdk.Dial(ctx, address, sdk.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Apply(ctx, &sdk.Job{Name: "welcome", Handler: &sdk.Handler{Name: "native:greet"}}); err != nil {
		log.Fatal(err)
	}
	run, err := client.TriggerAndWait(ctx, sdk.Trigger{Job: "welcome", Input: []byte("Ada")})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(run.GetState(), run.GetOutput())

	cancel() // the worker finishes what it has and returns
	fmt.Println(<-ended)
	// Output:
	// succeeded hello Ada
	// <nil>
}

// The input and the output of a handler are Go types, written as JSON.
func ExampleHandleJSON() {
	type order struct{ Price, Pieces int }
	type bill struct {
		Total int `json:"total"`
	}
	handler := worker.HandleJSON("bill", func(_ context.Context, _ *worker.Task, o order) (bill, error) {
		return bill{Total: o.Price * o.Pieces}, nil
	})

	run, _ := execute(handler, &sdk.Job{Name: "bill", Handler: &sdk.Handler{Name: "native:bill"}}, `{"Price": 7, "Pieces": 6}`)
	fmt.Println(run.GetOutput())
	// Output: {"total":42}
}

// An error that another attempt would meet again ends the run at once, although
// the job allows five more attempts.
func ExamplePermanent() {
	handler := worker.Handle("charge", func(context.Context, *worker.Task) ([]byte, error) {
		return nil, worker.Permanent(worker.WithCode(errors.New("the card has expired"), "card_expired"))
	})

	job := &sdk.Job{Name: "charge", Handler: &sdk.Handler{Name: "native:charge"}, Retry: &sdk.Retry{Max: 5}}
	run, _ := execute(handler, job, "")
	fmt.Println(run.GetState(), "after attempt", run.GetAttempt())
	fmt.Println(run.GetCode(), "-", run.GetError())
	// Output:
	// failed after attempt 1
	// card_expired - the card has expired
}

// A run is retried after an error that may be temporary; RetryAfter sets the delay.
func ExampleRetryAfter() {
	handler := worker.Handle("fetch", func(_ context.Context, t *worker.Task) ([]byte, error) {
		if t.Attempt == 1 {
			return nil, worker.RetryAfter(errors.New("busy"), time.Millisecond)
		}
		return fmt.Appendf(nil, "fetched in attempt %d of %d", t.Attempt, t.MaxAttempts), nil
	})

	job := &sdk.Job{Name: "fetch", Handler: &sdk.Handler{Name: "native:fetch"}, Retry: &sdk.Retry{Max: 2}}
	run, _ := execute(handler, job, "")
	fmt.Println(run.GetOutput())
	// Output: fetched in attempt 2 of 3
}

// The log lines of a handler are in the log of its run, with their level.
func ExampleTask_Logf() {
	handler := worker.Handle("copy", func(_ context.Context, t *worker.Task) ([]byte, error) {
		for _, file := range strings.Fields(string(t.Input)) {
			t.Logf("copied %s", file)
		}
		t.Log().Warn("skipped", "file", "c.txt")
		return nil, nil
	})

	_, lines := execute(handler, &sdk.Job{Name: "copy", Handler: &sdk.Handler{Name: "native:copy"}}, "a.txt b.txt")
	for _, line := range lines {
		fmt.Println(line.GetLevel(), line.GetText())
	}
	// Output:
	// info copied a.txt
	// info copied b.txt
	// warn skipped file=c.txt
}
