package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/memconn"
	"github.com/wheelworkhq/wheelwork/journal/local"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/mq"
	"github.com/wheelworkhq/wheelwork/sched"
	"github.com/wheelworkhq/wheelwork/sched/api"
	"github.com/wheelworkhq/wheelwork/sdk/worker"
	"github.com/wheelworkhq/wheelwork/store"
)

// world is a real server on real files in a bubble of fake time, joined to workers by
// in-memory connections.
type world struct {
	t    *testing.T
	dir  string
	opts []grpc.ServerOption

	mu     sync.Mutex
	listen *memconn.Listener // nil: the server is down, or the network is cut
	conns  []net.Conn        // connections of workers
	cut    bool

	stopServer func()
	conn       *grpc.ClientConn
	jobs       apiv1.JobsClient
	runs       apiv1.RunsClient
}

// inWorld runs f with a server.
func inWorld(t *testing.T, f func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, dir: t.TempDir()}
		w.start()
		defer func() { w.stop() }()
		f(t, w)
	})
}

func (w *world) start() {
	w.t.Helper()
	log, err := mq.Open(mq.Config{Dir: filepath.Join(w.dir, "journal"), SegmentBytes: 16 << 20, ReserveBytes: -1})
	if err != nil {
		w.t.Fatal(err)
	}
	j := local.New(log)
	st, err := store.Open(store.Config{Dir: filepath.Join(w.dir, "store"), SegmentBytes: 1 << 20})
	if err != nil {
		w.t.Fatal(err)
	}
	mods, err := modules.Open(filepath.Join(w.dir, "modules"))
	if err != nil {
		w.t.Fatal(err)
	}
	srv, err := sched.New(sched.Config{
		ID: "srv", Journal: j, Store: st, Modules: mods,
		Inspect: func(context.Context, *modules.Upload, string) (api.ModuleInfo, error) {
			return api.ModuleInfo{}, errors.New("there are no modules here")
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	g := grpc.NewServer(w.opts...)
	srv.Register(g)
	lis := memconn.Listen(1 << 20)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := srv.Run(ctx); err != nil {
			w.t.Errorf("the server failed: %v", err)
		}
	})
	wg.Go(func() { g.Serve(lis) }) //nolint:errcheck // ends with Stop
	w.mu.Lock()
	w.listen = lis
	w.mu.Unlock()
	w.conn, err = grpc.NewClient("passthrough:srv", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	if err != nil {
		w.t.Fatal(err)
	}
	w.jobs, w.runs = apiv1.NewJobsClient(w.conn), apiv1.NewRunsClient(w.conn)
	w.stopServer = func() {
		w.mu.Lock()
		w.listen = nil
		w.mu.Unlock()
		w.conn.Close() //nolint:errcheck // a test's connection
		cancel()
		g.Stop()
		wg.Wait()
		if err := errors.Join(st.Close(), j.Close()); err != nil {
			w.t.Error(err)
		}
	}
}

func (w *world) stop() {
	if w.stopServer != nil {
		w.stopServer()
		w.stopServer = nil
	}
}

// dial connects a worker to the server.
func (w *world) dial(ctx context.Context, address string) (net.Conn, error) {
	w.mu.Lock()
	lis, cut := w.listen, w.cut
	w.mu.Unlock()
	if lis == nil || cut || address != "127.0.0.1:1" {
		return nil, errors.New("nobody is there")
	}
	conn, err := lis.DialContext(ctx)
	if err == nil {
		w.mu.Lock()
		w.conns = append(w.conns, conn)
		w.mu.Unlock()
	}
	return conn, err
}

// sever cuts workers off until heal is called.
func (w *world) sever() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = true
	for _, c := range w.conns {
		c.Close() //nolint:errcheck // it is to break
	}
	w.conns = nil
}

func (w *world) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = false
}

// work runs a worker; stop ends it and waits.
func (w *world) work(opt worker.Options, handlers ...worker.Handler) (stop func()) {
	opt.Address, opt.Dialer = "http://127.0.0.1:1", w.dial
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := worker.Run(ctx, opt, handlers...); err != nil {
			w.t.Errorf("worker: %v", err)
		}
	}()
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); <-done }) }
	return stop
}

func (w *world) apply(j *apiv1.Job) {
	w.t.Helper()
	if _, err := w.jobs.ApplyJob(w.t.Context(), &apiv1.ApplyJobRequest{Job: j}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) trigger(name string) string {
	w.t.Helper()
	r, err := w.jobs.TriggerJob(w.t.Context(), &apiv1.TriggerJobRequest{Name: name})
	if err != nil {
		w.t.Fatal(err)
	}
	return r.Id
}

func (w *world) get(id string) *apiv1.Run {
	w.t.Helper()
	r, err := w.runs.GetRun(w.t.Context(), &apiv1.GetRunRequest{Id: id})
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// wait waits until a run has ended.
func (w *world) wait(id string) *apiv1.Run {
	w.t.Helper()
	s, err := w.runs.WatchRun(w.t.Context(), &apiv1.WatchRunRequest{Id: id})
	if err != nil {
		w.t.Fatal(err)
	}
	var last *apiv1.Run
	for {
		r, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return last
		}
		if err != nil {
			w.t.Fatal(err)
		}
		last = r
	}
}

func (w *world) log(id string) (lines []string) {
	w.t.Helper()
	s, err := w.runs.ReadLog(w.t.Context(), &apiv1.ReadLogRequest{Id: id})
	if err != nil {
		w.t.Fatal(err)
	}
	for {
		l, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return lines
		}
		if err != nil {
			w.t.Fatal(err)
		}
		lines = append(lines, l.Level+" "+l.Text)
	}
}

func native(name string) *apiv1.Handler { return &apiv1.Handler{Name: "native:" + name} }

func TestFunctionsAreHandlers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		type order struct{ Amount, Rate int }
		got := make(chan *worker.Task, 1)
		stop := w.work(
			worker.Options{Name: "accounts", Labels: map[string]string{"zone": "a"}, Version: "7", Concurrency: 3},
			worker.Handle("echo", func(_ context.Context, t *worker.Task) ([]byte, error) {
				got <- t
				t.Logf("one\ntwo %d\n", 2)
				t.Log().With("who", "me").WithGroup("g").Warn("careful", "msg", "x", "n", 3)
				t.Log().Debug("small")
				t.Progress(1, 2, "half")
				return bytes.ToUpper(t.Input), nil
			}),
			worker.HandleJSON("price", func(_ context.Context, _ *worker.Task, o order) (map[string]int, error) {
				return map[string]int{"total": o.Amount * o.Rate}, nil
			}),
		)
		defer stop()
		w.apply(&apiv1.Job{Name: "echo", Handler: &apiv1.Handler{Name: "native:echo", Args: []string{"a"}, Env: map[string]string{"K": "v"}}, Input: "hello", Timeout: "1m"})
		w.apply(&apiv1.Job{Name: "price", Handler: native("price"), Input: `{"amount": 6, "rate": 7}`})
		w.apply(&apiv1.Job{Name: "empty", Handler: native("price")})
		w.apply(&apiv1.Job{Name: "bad", Handler: native("price"), Input: `{"amount": "six"}`, Retry: &apiv1.Retry{Max: 3}})

		id := w.trigger("echo")
		r := w.wait(id)
		if r.State != "succeeded" || r.Output != "HELLO" || r.Handler != "native:echo" {
			t.Fatalf("run: %v", r)
		}
		task := <-got
		if task.Run != id || task.App != "default" || task.Job != "echo" || task.Handler != "echo" || task.Attempt != 1 || task.MaxAttempts != 1 ||
			len(task.Args) != 1 || task.Env["K"] != "v" || time.Until(task.Deadline) > time.Minute || task.PlannedAt.IsZero() {
			t.Errorf("task: %+v", task)
		}
		want := []string{"info one", "info two 2", "warn careful who=me g.msg=x g.n=3", "debug small"}
		if lines := w.log(id); strings.Join(lines, "|") != strings.Join(want, "|") {
			t.Errorf("log: %q, want %q", lines, want)
		}
		task.Logf("too late")
		task.Progress(2, 2, "too late")

		if r := w.wait(w.trigger("price")); r.Output != `{"total":42}` {
			t.Errorf("a function of JSON: %v", r)
		}
		if r := w.wait(w.trigger("empty")); r.Output != `{"total":0}` {
			t.Errorf("a function of JSON without input: %v", r)
		}
		if r := w.wait(w.trigger("bad")); r.State != "failed" || r.Code != "bad_input" || r.Attempt != 1 {
			t.Errorf("an input that does not fit: %v", r)
		}
		if lines := w.log(id); len(lines) != len(want) {
			t.Errorf("a line after the end came through: %q", lines)
		}

		hosts, err := apiv1.NewClusterClient(w.conn).ListHosts(t.Context(), &apiv1.ListHostsRequest{})
		if err != nil || len(hosts.Hosts) != 1 {
			t.Fatalf("hosts: %v, %v", hosts, err)
		}
		if h := hosts.Hosts[0]; h.Name != "accounts" || h.State != "up" || h.Slots != 3 || h.Version != "7" || h.Labels["zone"] != "a" ||
			strings.Join(h.Abi, " ") != "native:echo native:price" {
			t.Errorf("the worker is listed as %v", h)
		}
	})
}

func TestFailures(t *testing.T) {
	boom := errors.New("boom")
	for name, tt := range map[string]struct {
		fn      worker.Func
		outcome string // of the first attempt
		code    string
		text    string
		after   time.Duration // until the second attempt; 0: there is none
	}{
		"plain":     {func(context.Context, *worker.Task) ([]byte, error) { return nil, boom }, "retryable", "", "boom", time.Second},
		"permanent": {func(context.Context, *worker.Task) ([]byte, error) { return nil, worker.Permanent(boom) }, "permanent", "", "boom", 0},
		"wrapped": {func(context.Context, *worker.Task) ([]byte, error) {
			return nil, fmt.Errorf("settle: %w", worker.WithCode(worker.Permanent(boom), "declined"))
		}, "permanent", "declined", "settle: boom", 0},
		"later": {func(context.Context, *worker.Task) ([]byte, error) {
			return nil, worker.WithCode(worker.RetryAfter(boom, time.Hour), "busy")
		}, "retryable", "busy", "boom", time.Hour},
		"panic":  {func(context.Context, *worker.Task) ([]byte, error) { panic(boom) }, "retryable", "panic", "panic: boom", time.Second},
		"goexit": {func(context.Context, *worker.Task) ([]byte, error) { runtime.Goexit(); return nil, nil }, "retryable", "goexit", "Goexit", time.Second},
		"output": {func(context.Context, *worker.Task) ([]byte, error) { return make([]byte, 1<<20+1), nil }, "permanent", "output_limit", "1048577", 0},
		"text": {func(context.Context, *worker.Task) ([]byte, error) {
			return nil, errors.New("\xff" + strings.Repeat("x", 1<<20))
		}, "retryable", "", "xxx", time.Second},
		"json": {func(ctx context.Context, t *worker.Task) ([]byte, error) {
			return nil, fmt.Errorf("%w", &worker.Error{Code: "only_code"})
		}, "retryable", "only_code", "only_code", time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				var calls atomic.Int32
				defer w.work(worker.Options{}, worker.Handle("f", func(ctx context.Context, task *worker.Task) ([]byte, error) {
					if calls.Add(1) > 1 {
						return nil, nil
					}
					return tt.fn(ctx, task)
				}))()
				w.apply(&apiv1.Job{Name: "j", Handler: native("f"), Retry: &apiv1.Retry{Max: 1, First: "1s"}})
				r := w.wait(w.trigger("j"))
				first := r.Attempts[0]
				if first.Outcome != tt.outcome || first.Code != tt.code || !strings.Contains(first.Error, tt.text) {
					t.Errorf("first attempt: %s, code %q, %.200q", first.Outcome, first.Code, first.Error)
				}
				if len(first.Error) > 17<<10 {
					t.Errorf("an error of %d bytes", len(first.Error))
				}
				if tt.after == 0 {
					if r.State != "failed" || len(r.Attempts) != 1 {
						t.Errorf("%s after %d attempts", r.State, len(r.Attempts))
					}
					return
				}
				if r.State != "succeeded" || len(r.Attempts) != 2 {
					t.Fatalf("%s after %d attempts", r.State, len(r.Attempts))
				}
				if wait := r.Attempts[1].StartedAt.AsTime().Sub(first.FinishedAt.AsTime()); wait < tt.after || wait > tt.after+time.Second {
					t.Errorf("tried again after %s, want %s", wait, tt.after)
				}
			})
		})
	}
}

func explode() { panic("in explode") }

func TestPanicHasItsStack(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		defer w.work(worker.Options{}, worker.Handle("f", func(context.Context, *worker.Task) ([]byte, error) { explode(); return nil, nil }))()
		w.apply(&apiv1.Job{Name: "j", Handler: native("f")})
		r := w.wait(w.trigger("j"))
		if r.State != "failed" || r.Code != "panic" || !strings.Contains(r.Trace, "explode") || len(r.Trace) > 16<<10 {
			t.Errorf("run: %v", r)
		}
	})
}

func TestLogIsBounded(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		defer w.work(worker.Options{}, worker.Handle("f", func(_ context.Context, t *worker.Task) ([]byte, error) {
			t.Logf("%s", strings.Repeat("x", 40<<10)) // three lines
			for range 100 {
				t.Logf("%s", strings.Repeat("y", 16<<10))
			}
			return nil, nil
		}))()
		w.apply(&apiv1.Job{Name: "j", Handler: native("f")})
		id := w.trigger("j")
		w.wait(id)
		lines, size := w.log(id), 0
		for _, l := range lines {
			size += len(l)
		}
		if n := len(lines); n < 60 || size > 1<<20+1<<10 || lines[n-1] != "warn log limit of 1048576 bytes reached: the rest is dropped" ||
			len(lines[0]) != len("info ")+16<<10 || len(lines[2]) != len("info ")+8<<10 {
			t.Errorf("%d lines of %d bytes, the last is %.80q", n, size, lines[n-1])
		}
	})
}

func TestCancelAndTimeout(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		causes := make(chan error, 2)
		defer w.work(worker.Options{}, worker.Handle("f", func(ctx context.Context, _ *worker.Task) ([]byte, error) {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return nil, ctx.Err()
		}))()
		w.apply(&apiv1.Job{Name: "j", Handler: native("f"), Timeout: "1m"})
		id := w.trigger("j")
		synctest.Wait()
		time.Sleep(200 * time.Millisecond) // the start is reported after half of that time
		synctest.Wait()
		if s := w.get(id).State; s != "running" {
			t.Fatalf("the run is %s", s)
		}
		start := time.Now()
		if _, err := w.runs.CancelRun(t.Context(), &apiv1.CancelRunRequest{Id: id}); err != nil {
			t.Fatal(err)
		}
		if r := w.wait(id); r.State != "stopped" || time.Since(start) > 100*time.Millisecond || r.Code != "cancelled" {
			t.Errorf("after %s: %v", time.Since(start), r)
		}
		if err := <-causes; err == nil || err.Error() != "cancelled" {
			t.Errorf("cause: %v", err)
		}
		if r := w.wait(w.trigger("j")); r.State != "timed_out" || r.Code != "deadline" || r.FinishedAt.AsTime().Sub(r.StartedAt.AsTime()) < time.Minute {
			t.Errorf("after its timeout: %v", r)
		}
		if err := <-causes; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("cause: %v", err)
		}
	})
}

// TestFunctionThatDoesNotReturnIsGivenUp checks that the worker gives up a function that
// ignores its context. The function keeps its execution slot until it returns, so that
// such functions cannot pile up.
func TestFunctionThatDoesNotReturnIsGivenUp(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		release := make(chan struct{})
		var running, most atomic.Int32
		stop := w.work(
			worker.Options{Concurrency: 2, Patience: 5 * time.Second},
			worker.Handle("deaf", func(context.Context, *worker.Task) ([]byte, error) {
				n := running.Add(1)
				defer running.Add(-1)
				if n > most.Load() {
					most.Store(n)
				}
				<-release
				return []byte("late"), nil
			}),
			worker.Handle("quick", func(context.Context, *worker.Task) ([]byte, error) { return nil, nil }),
		)
		defer stop()
		w.apply(&apiv1.Job{Name: "deaf", Handler: native("deaf"), Timeout: "1s"})
		w.apply(&apiv1.Job{Name: "quick", Handler: native("quick"), Timeout: "10s"})
		start := time.Now()
		r := w.wait(w.trigger("deaf"))
		if took := time.Since(start); r.State != "timed_out" || r.Code != "deadline" || !strings.Contains(r.Error, "given up") || took < 6*time.Second || took > 7*time.Second {
			t.Fatalf("after %s: %v", took, r)
		}
		if r := w.wait(w.trigger("quick")); r.State != "succeeded" {
			t.Fatalf("the other place: %v", r)
		}
		// With every slot taken, the worker holds no further run: other workers get them.
		if r := w.wait(w.trigger("deaf")); r.State != "timed_out" {
			t.Fatalf("the second: %v", r)
		}
		id := w.trigger("quick")
		time.Sleep(time.Minute)
		if s := w.get(id).State; s != "queued" {
			t.Fatalf("with no place free a run is %s", s)
		}
		other := w.work(worker.Options{Concurrency: 1}, worker.Handle("quick", func(context.Context, *worker.Task) ([]byte, error) { return []byte("other"), nil }))
		if r := w.wait(id); r.Output != "other" {
			t.Errorf("it was executed by %v", r)
		}
		other()
		close(release)
		synctest.Wait()
		if r := w.wait(w.trigger("quick")); r.State != "succeeded" {
			t.Errorf("after they returned: %v", r)
		}
		if most.Load() > 2 {
			t.Errorf("%d at once", most.Load())
		}
	})
}

func TestDrain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		causes := make(chan error, 3)
		slow := worker.Handle("slow", func(ctx context.Context, task *worker.Task) ([]byte, error) {
			d, err := time.ParseDuration(string(task.Input))
			if err != nil {
				return nil, worker.Permanent(err)
			}
			select {
			case <-time.After(d):
				return []byte("done"), nil
			case <-ctx.Done():
				causes <- context.Cause(ctx)
				return nil, ctx.Err()
			}
		})
		stop := w.work(worker.Options{Name: "first", Concurrency: 2, DrainTimeout: 20 * time.Second}, slow)
		for name, d := range map[string]string{"short": "10s", "long": "1h", "waits": "1s"} {
			w.apply(&apiv1.Job{Name: name, Handler: native("slow"), Input: d})
		}
		short, long := w.trigger("short"), w.trigger("long")
		synctest.Wait()
		waits := w.trigger("waits")
		synctest.Wait()
		start := time.Now()
		stop()
		if took := time.Since(start); took < 20*time.Second || took > 21*time.Second {
			t.Errorf("it ended after %s", took)
		}
		if err := <-causes; err == nil || err.Error() != "the host is shutting down" {
			t.Errorf("cause: %v", err)
		}
		if r := w.get(short); r.State != "succeeded" || r.Output != "done" || r.Attempt != 1 {
			t.Errorf("what could finish: %v", r)
		}
		if r := w.get(long); r.State != "queued" || r.Attempts[0].Code != "drained" {
			t.Errorf("what was given back: %v", r)
		}
		if r := w.get(waits); r.State != "queued" || len(r.Attempts) > 0 {
			t.Errorf("what had no place, and waits at the server: %v", r)
		}
		defer w.work(worker.Options{Name: "second", Concurrency: 2}, slow)()
		for _, id := range []string{long, waits} {
			if r := w.wait(id); r.State != "succeeded" || r.Output != "done" {
				t.Errorf("with the next worker: %v", r)
			}
		}
	})
}

// TestServerRestart checks that a function continues while its server is down, and is not
// called again.
func TestServerRestart(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var calls atomic.Int32
		defer w.work(worker.Options{}, worker.Handle("f", func(context.Context, *worker.Task) ([]byte, error) {
			calls.Add(1)
			time.Sleep(5 * time.Second)
			return []byte("once"), nil
		}))()
		w.apply(&apiv1.Job{Name: "j", Handler: native("f")})
		for _, away := range []time.Duration{time.Second, 8 * time.Second} { // the function ends after the restart, and before it
			calls.Store(0)
			id := w.trigger("j")
			time.Sleep(time.Second)
			w.stop()
			time.Sleep(away)
			w.start()
			if r := w.wait(id); r.State != "succeeded" || r.Output != "once" || r.Attempt != 1 || calls.Load() != 1 {
				t.Errorf("away for %s: called %d times: %v", away, calls.Load(), r)
			}
		}
	})
}

// TestResultSurvives checks that an undelivered result is sent in the next session, and
// with Dir also after a restart of the worker.
func TestResultSurvives(t *testing.T) {
	for _, tt := range []struct {
		name    string
		dir     bool
		restart bool
		calls   int32
	}{{"cut", false, false, 1}, {"cut with Dir", true, false, 1}, {"restart", true, true, 1}, {"restart without Dir", false, true, 2}} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				var calls atomic.Int32
				opt := worker.Options{}
				if tt.dir {
					opt.Dir = filepath.Join(w.dir, "worker")
				}
				f := worker.Handle("f", func(context.Context, *worker.Task) ([]byte, error) {
					calls.Add(1)
					time.Sleep(time.Second)
					return []byte("done"), nil
				})
				stop := w.work(opt, f)
				w.apply(&apiv1.Job{Name: "j", Handler: native("f")})
				id := w.trigger("j")
				synctest.Wait()
				w.sever()
				time.Sleep(2 * time.Second)
				if s := w.get(id).State; s != "dispatched" { // the stream was cut before it reported the start
					t.Fatalf("the run is %s", s)
				}
				if tt.dir {
					if kept, err := filepath.Glob(filepath.Join(opt.Dir, "results", "*")); err != nil || len(kept) != 1 {
						t.Errorf("kept in the spool: %q, %v", kept, err)
					}
				}
				if tt.restart {
					stop()
				}
				w.heal()
				if tt.restart {
					stop = w.work(opt, f)
				}
				defer func() { stop() }()
				if r := w.wait(id); r.State != "succeeded" || r.Output != "done" || calls.Load() != tt.calls {
					t.Errorf("called %d times: %v", calls.Load(), r)
				}
				if tt.dir {
					synctest.Wait()
					stop()
					if left, err := filepath.Glob(filepath.Join(opt.Dir, "results", "*")); err != nil || len(left) != 0 {
						t.Errorf("left in the spool: %q, %v", left, err)
					}
				}
			})
		})
	}
}

func TestDirIsForOneWorker(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		f := worker.Handle("f", func(context.Context, *worker.Task) ([]byte, error) { return nil, nil })
		opt := worker.Options{Dir: filepath.Join(w.dir, "worker")}
		stop := w.work(opt, f)
		synctest.Wait()
		opt.Address, opt.Dialer = "http://127.0.0.1:1", w.dial
		if err := worker.Run(t.Context(), opt, f); err == nil || !strings.Contains(err.Error(), "another worker uses it") {
			t.Errorf("a second worker in the same Dir: %v", err)
		}
		first := w.host()
		stop()
		stop = w.work(opt, f)
		defer stop()
		synctest.Wait()
		if again := w.host(); again != first {
			t.Errorf("it was %s, and is %s after a restart", first, again)
		}
	})
}

// host returns the id of the only connected host.
func (w *world) host() string {
	w.t.Helper()
	list, err := apiv1.NewClusterClient(w.conn).ListHosts(w.t.Context(), &apiv1.ListHostsRequest{})
	if err != nil {
		w.t.Fatal(err)
	}
	var up []string
	for _, h := range list.Hosts {
		if h.State == "up" {
			up = append(up, h.Id)
		}
	}
	if len(up) != 1 {
		w.t.Fatalf("hosts: %v", list.Hosts)
	}
	return up[0]
}

func TestOptions(t *testing.T) {
	f := func(context.Context, *worker.Task) ([]byte, error) { return nil, nil }
	ok := worker.Handle("f", f)
	for _, tt := range []struct {
		opt      worker.Options
		handlers []worker.Handler
		want     string
	}{
		{worker.Options{Address: "http://127.0.0.1:1"}, nil, "no handler is given"},
		{worker.Options{Address: "http://127.0.0.1:1"}, []worker.Handler{worker.Handle("a b", f)}, "is not the name"},
		{worker.Options{Address: "http://127.0.0.1:1"}, []worker.Handler{worker.Handle("native:f", f)}, "is not the name"},
		{worker.Options{Address: "http://127.0.0.1:1"}, []worker.Handler{worker.Handle("a", nil)}, "has no function"},
		{worker.Options{Address: "http://127.0.0.1:1"}, []worker.Handler{worker.HandleJSON[int, int]("a", nil)}, "has no function"},
		{worker.Options{Address: "http://127.0.0.1:1"}, []worker.Handler{ok, ok}, "given twice"},
		{worker.Options{Address: "http://127.0.0.1:1", Concurrency: -1}, []worker.Handler{ok}, "Concurrency"},
		{worker.Options{Address: "http://127.0.0.1:1", DrainTimeout: -1}, []worker.Handler{ok}, "DrainTimeout"},
		{worker.Options{Address: "http://127.0.0.1:1", Patience: -1}, []worker.Handler{ok}, "Patience"},
		{worker.Options{}, []worker.Handler{ok}, "is not the address of a server"},
		{worker.Options{Address: "http://127.0.0.1:1", Token: "two\nlines"}, []worker.Handler{ok}, "the token has a line break in it"},
		{worker.Options{Address: "http://127.0.0.1:1,ftp://x"}, []worker.Handler{ok}, `begins with "ftp"`},
	} {
		if err := worker.Run(t.Context(), tt.opt, tt.handlers...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q in it", tt.opt, err, tt.want)
		}
	}
	if worker.Permanent(nil) != nil || worker.RetryAfter(nil, 1) != nil || worker.WithCode(nil, "x") != nil {
		t.Error("no error became one")
	}
}

// TestRefused checks that a refused worker returns an error instead of retrying. A worker
// that reaches no server keeps trying.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, dir: t.TempDir(), opts: []grpc.ServerOption{grpc.StreamInterceptor(
			func(any, grpc.ServerStream, *grpc.StreamServerInfo, grpc.StreamHandler) error {
				return status.Error(codes.Unauthenticated, "who are you")
			})}}
		w.start()
		defer w.stop()
		opt := worker.Options{Address: "http://127.0.0.1:1", Dialer: w.dial, Logger: slog.New(slog.DiscardHandler)}
		f := worker.Handle("f", func(context.Context, *worker.Task) ([]byte, error) { return nil, nil })
		if err := worker.Run(t.Context(), opt, f); err == nil || err.Error() != "worker: http://127.0.0.1:1: who are you" && err.Error() != "worker: join: who are you" {
			t.Errorf("refused: %v", err)
		}
		w.sever()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var log strings.Builder
		opt.Logger = slog.New(slog.NewTextHandler(&log, nil))
		if err := worker.Run(ctx, opt, f); err != nil || ctx.Err() == nil {
			t.Errorf("nobody is there: %v", err)
		}
		if first, _, _ := strings.Cut(log.String(), "\n"); !strings.Contains(first, "level=WARN") || !strings.Contains(first, "no server answers") || !strings.Contains(first, "nobody is there") {
			t.Errorf("a worker without a server logs first: %s", first)
		}
		if n := strings.Count(log.String(), "no server answers"); n < 10 || n > 30 {
			t.Errorf("it says so %d times in an hour", n)
		}
	})
}
