package conform

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/sdk/worker"
)

var theirs = flag.String("worker", "", "`command` of a worker to test instead of ours; its words are separated by spaces")

// asWorker makes the test binary itself the worker under test.
const asWorker = "WHEELWORK_CONFORM_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(asWorker) != "" {
		if err := ours(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	os.Exit(m.Run())
}

// ours is a worker with the handlers that the test calls.
func ours() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	slots, err := strconv.Atoi(os.Getenv("WHEELWORK_SLOTS"))
	if err != nil {
		return err
	}
	opt := worker.Options{Address: os.Getenv("WHEELWORK_URL"), Token: os.Getenv("WHEELWORK_TOKEN"), Concurrency: slots}
	type failure struct {
		Outcome, Error, Code string
		RetryAfterMs         int64 `json:"retry_after_ms"`
	}
	return worker.Run(
		ctx, opt,
		worker.Handle("echo", func(_ context.Context, t *worker.Task) ([]byte, error) { return t.Input, nil }),
		worker.Handle("talk", func(_ context.Context, t *worker.Task) ([]byte, error) {
			t.Logf("one")
			t.Log().Warn("two")
			t.Progress(1, 2, "half")
			return []byte("done"), nil
		}),
		worker.Handle("chatter", func(_ context.Context, t *worker.Task) ([]byte, error) {
			n, err := strconv.Atoi(string(t.Input))
			if err != nil {
				return nil, worker.Permanent(err)
			}
			for i := range n {
				t.Logf("line %d", i)
			}
			return nil, nil
		}),
		worker.HandleJSON("fail", func(_ context.Context, _ *worker.Task, f failure) (string, error) {
			err := worker.WithCode(errors.New(f.Error), f.Code)
			if f.Outcome == "permanent" {
				return "", worker.Permanent(err)
			}
			return "", worker.RetryAfter(err, time.Duration(f.RetryAfterMs)*time.Millisecond)
		}),
		worker.Handle("crash", func(context.Context, *worker.Task) ([]byte, error) {
			var nothing *worker.Task
			return nothing.Input, nil
		}),
		worker.Handle("wait", func(ctx context.Context, t *worker.Task) ([]byte, error) {
			t.Logf("begun")
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}),
		worker.Handle("nap", func(_ context.Context, t *worker.Task) ([]byte, error) {
			t.Logf("begun")
			ms, err := strconv.Atoi(string(t.Input))
			if err != nil {
				return nil, worker.Permanent(err)
			}
			time.Sleep(time.Duration(ms) * time.Millisecond)
			return []byte("rested"), nil
		}),
	)
}

func TestWorker(t *testing.T) {
	if *theirs != "" {
		all(t, func(t *testing.T) *program { return start(t, strings.Fields(*theirs)) })
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	all(t, func(t *testing.T) *program { return start(t, []string{self}, asWorker+"=1") })
}

// TestNode tests the worker of examples/worker-node, which shares no code with ours.
func TestNode(t *testing.T) {
	if *theirs != "" {
		t.Skip("another worker is tested")
	}
	node, err := exec.LookPath("node")
	if err != nil {
		testkit.Lacks(t, "node is missing")
	}
	dir, err := filepath.Abs("../../../examples/worker-node")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "@grpc", "grpc-js")); err != nil {
		testkit.Lacks(t, "the packages of examples/worker-node are missing: run `npm ci` there")
	}
	all(t, func(t *testing.T) *program { return start(t, []string{node, filepath.Join(dir, "main.js")}) })
}

// all checks the rules of docs/work-protocol.md, with a new program for each.
func all(t *testing.T, start func(t *testing.T) *program) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, p *program)
	}{
		{"hello", hello},
		{"results", results},
		{"log and progress", talks},
		{"failures", failures},
		{"unknown handler", unknown},
		{"cancel", cancels},
		{"timeout", timeout},
		{"credits", credits},
		{"lower epoch", lowerEpoch},
		{"the same task twice", twice},
		{"unacknowledged results", unacknowledged},
		{"running over a cut", adopted},
		{"heartbeat", heartbeat},
		{"drain", drain},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.test(t, start(t))
		})
	}
}

func hello(t *testing.T, p *program) {
	h := p.hellos[0]
	if h == nil || h.Host == "" || h.Session == "" || h.Slots != slots || len(h.Running) != 0 {
		t.Fatalf("hello: %v", h)
	}
	for _, name := range []string{"native:echo", "native:talk", "native:chatter", "native:fail", "native:crash", "native:wait", "native:nap"} {
		if !slices.Contains(h.Abi, name) {
			t.Errorf("hello.abi has no %s: %q", name, h.Abi)
		}
	}
	again := p.cut()
	if again.Host != h.Host || again.Session != h.Session {
		t.Errorf("the next stream is of host %s, session %s: it was %s, %s", again.Host, again.Session, h.Host, h.Session)
	}
	p.await("credits on the next stream", func() bool { return p.session != nil && p.session.credits > 0 })
}

func results(t *testing.T, p *program) {
	input := "\x00\xff" + strings.Repeat("é", 30_000) // 60 kB that are not UTF-8
	begin := time.Now()
	p.send(p.task("big", "echo", input), p.task("empty", "echo", ""))
	r := p.result("big")
	if r.Outcome != apiv1.Outcome_OUTCOME_SUCCEEDED || string(r.Output) != input || r.Error != "" || r.Code != "" {
		t.Errorf("result: %s, %d bytes, %q, %q", r.Outcome, len(r.Output), r.Error, r.Code)
	}
	if at := time.UnixMilli(r.StartedMs); at.Before(begin.Add(-time.Second)) || at.After(time.Now().Add(time.Second)) || r.DurationUs < 0 || r.DurationUs > time.Since(begin).Microseconds() {
		t.Errorf("it started at %s and took %d µs", at, r.DurationUs)
	}
	if r := p.result("empty"); r.Outcome != apiv1.Outcome_OUTCOME_SUCCEEDED || len(r.Output) != 0 {
		t.Errorf("without input: %v", r)
	}
}

func talks(t *testing.T, p *program) {
	p.send(p.task("talk", "talk", ""))
	if r := p.result("talk"); string(r.Output) != "done" {
		t.Errorf("result: %v", r)
	}
	const n = 5000
	p.send(p.task("chatter", "chatter", fmt.Sprint(n)))
	p.result("chatter")
	p.mu.Lock()
	defer p.mu.Unlock()
	if before := p.before["chatter"]; before != n || p.lines["chatter"][n-1] != fmt.Sprint("1 line ", n-1) {
		t.Errorf("%d of %d lines came before the result", before, n)
	}
	if p.before["talk"] != 2 || !slices.Equal(p.lines["talk"], []string{"1 one", "2 two"}) {
		t.Errorf("log: %q, before the result: %d lines", p.lines["talk"], p.before["talk"])
	}
	if got := p.latest["talk"]; got.GetDone() != 1 || got.GetTotal() != 2 || got.GetMessage() != "half" || got.GetAttempt() != 3 || got.GetApp() != app {
		t.Errorf("progress: %v", got)
	}
}

func failures(t *testing.T, p *program) {
	input := func(m map[string]any) string {
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	p.send(
		p.task("later", "fail", input(map[string]any{"outcome": "retryable", "error": "no luck", "code": "luck", "retry_after_ms": 1500})),
		p.task("never", "fail", input(map[string]any{"outcome": "permanent", "error": "no way", "code": "way"})),
		p.task("crash", "crash", ""),
		p.task("after", "echo", "still here"),
	)
	if r := p.result("later"); r.Outcome != apiv1.Outcome_OUTCOME_RETRYABLE || r.Error != "no luck" || r.Code != "luck" || r.RetryAfterMs != 1500 {
		t.Errorf("a retryable failure: %v", r)
	}
	if r := p.result("never"); r.Outcome != apiv1.Outcome_OUTCOME_PERMANENT || r.Error != "no way" || r.Code != "way" {
		t.Errorf("a permanent failure: %v", r)
	}
	if r := p.result("crash"); r.Outcome != apiv1.Outcome_OUTCOME_RETRYABLE || r.Error == "" || len(r.Output) != 0 {
		t.Errorf("a crash: %v", r)
	}
	if r := p.result("after"); string(r.Output) != "still here" {
		t.Errorf("after a crash: %v", r)
	}
}

func unknown(t *testing.T, p *program) {
	module := p.task("module", "echo", "x")
	module.Module, module.Digest, module.Handler = "m@1", "sha256:00", "main"
	named := p.task("named", "echo", "x") // a module's entry may have such a name
	named.Module, named.Digest = "m@1", "sha256:00"
	p.send(p.task("none", "none", ""), p.task("proto", "constructor", ""), module, named)
	for _, name := range []string{"none", "proto", "module", "named"} {
		if r := p.result(name); r.Outcome != apiv1.Outcome_OUTCOME_HOST_ERROR || r.Error == "" {
			t.Errorf("%s: %v", name, r)
		}
	}
}

func cancels(t *testing.T, p *program) {
	first, second, queued := p.task("first", "wait", ""), p.task("second", "wait", ""), p.task("queued", "wait", "")
	p.send(first, second)
	p.begun("first")
	p.begun("second")
	p.send(queued)
	other := p.task("other", "wait", "")
	other.Run = queued.Run // another attempt of the same run: the cancel does not apply to it
	p.down(&apiv1.WorkDown{Cancels: []*apiv1.TaskCancel{{Run: first.Run, Attempt: first.Attempt + 1}, {Run: make([]byte, 16), Attempt: 1}, {}}})
	p.cancel(queued)
	if r := p.result("queued"); r.Outcome != apiv1.Outcome_OUTCOME_STOPPED {
		t.Errorf("one that waits: %v", r)
	}
	p.cancel(second)
	if r := p.result("second"); r.Outcome != apiv1.Outcome_OUTCOME_STOPPED {
		t.Errorf("one that runs: %v", r)
	}
	p.send(p.task("next", "echo", "x"))
	p.result("next")
	p.mu.Lock()
	if p.results["first"] != nil {
		t.Errorf("one that nobody cancelled has ended: %v", p.results["first"])
	}
	if len(p.lines["queued"]) > 0 {
		t.Error("one that was cancelled before it started was started")
	}
	p.mu.Unlock()
	p.cancel(first)
	p.result("first")
}

func timeout(t *testing.T, p *program) {
	quick, none := p.task("quick", "wait", ""), p.task("none", "nap", "300")
	quick.TimeoutMs, none.TimeoutMs = 100, 0
	p.send(quick, none)
	if r := p.result("quick"); r.Outcome != apiv1.Outcome_OUTCOME_TIMED_OUT || r.DurationUs < 90_000 {
		t.Errorf("after its timeout: %v", r)
	}
	if r := p.result("none"); r.Outcome != apiv1.Outcome_OUTCOME_SUCCEEDED {
		t.Errorf("without a timeout: %v", r)
	}
}

// credits sends many tasks as fast as the credits allow, and waits for all results.
func credits(t *testing.T, p *program) {
	const n = 500
	for i := range n {
		p.send(p.task(fmt.Sprint("echo-", i), "echo", fmt.Sprint(i)))
	}
	for i := range n {
		if r := p.result(fmt.Sprint("echo-", i)); string(r.Output) != fmt.Sprint(i) {
			t.Fatalf("result %d: %v", i, r)
		}
	}
	// After all results, the program has granted a credit for every slot again.
	p.await("credits for every slot", func() bool { return p.session != nil && p.session.credits >= slots })
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, times := range p.times {
		if times != 1 {
			t.Errorf("the result of %s came %d times", name, times)
		}
	}
}

func lowerEpoch(t *testing.T, p *program) {
	p.send(p.task("now", "echo", "x"))
	p.result("now")
	stale, other := p.task("stale", "echo", "x"), p.task("other", "echo", "x")
	stale.Epoch--
	other.App, other.Epoch = "another", 1 // each app has its own epochs
	higher := p.task("higher", "echo", "x")
	higher.Epoch++
	p.send(stale, other, higher)
	p.result("other")
	p.result("higher")
	p.send(p.task("then", "nap", "1")) // the former epoch is now too low
	p.await("room for every slot: a task that is refused uses no room", func() bool { return p.session != nil && p.session.credits >= slots })
	// The stream may end before the acknowledgement of another result reaches the program,
	// which then holds that result: only the refused tasks must not be there.
	held := running(p.cut())
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range []string{"stale", "then"} {
		if slices.Contains(held, name) {
			t.Errorf("a task of a lower epoch is held: %q", held)
		}
		if r := p.results[name]; r != nil {
			t.Errorf("a task of a lower epoch has a result: %v", r)
		}
	}
}

func twice(t *testing.T, p *program) {
	task := p.task("task", "wait", "")
	p.send(task)
	p.begun("task")
	p.send(task, task)
	p.cancel(task)
	p.result("task")
	p.send(p.task("next", "echo", "x"))
	p.result("next")
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.lines["task"]) != 1 || p.times["task"] != 1 {
		t.Errorf("a task that was sent three times was started %d times and has %d results", len(p.lines["task"]), p.times["task"])
	}
}

func unacknowledged(t *testing.T, p *program) {
	p.change(func() { p.hold = true })
	p.send(p.task("a", "echo", "a"), p.task("b", "echo", "b"))
	p.result("a")
	p.result("b")
	for n := range 2 {
		h := p.cut()
		if names := running(h); !slices.Equal(names, []string{"a", "b"}) {
			t.Fatalf("the next hello has %q", names)
		}
		for _, r := range h.Running {
			if r.App != app || r.Attempt != 3 || r.Epoch != epoch+1 {
				t.Errorf("it has %v", r)
			}
		}
		p.await("both results on the next stream", func() bool { return p.times["a"] == n+2 && p.times["b"] == n+2 })
	}
	var x *session
	p.await("a session", func() bool { x = p.session; return x != nil })
	p.change(func() { p.hold = false })
	x.send(&apiv1.WorkDown{Acked: x.batch})
	p.send(p.task("c", "echo", "c")) // its acknowledgement follows that of the task before
	p.result("c")
	p.send(p.task("d", "echo", "d"))
	p.result("d")
	for _, name := range running(p.cut()) {
		if name == "a" || name == "b" {
			t.Errorf("an acknowledged result is still held: %s", name)
		}
	}
}

func adopted(t *testing.T, p *program) {
	task := p.task("task", "wait", "")
	p.send(task)
	p.begun("task")
	h := p.cut()
	if names := running(h); !slices.Equal(names, []string{"task"}) || h.Running[0].Attempt != task.Attempt || h.Running[0].Epoch != task.Epoch {
		t.Fatalf("the next hello has %v", h.Running)
	}
	p.cancel(task)
	if r := p.result("task"); r.Outcome != apiv1.Outcome_OUTCOME_STOPPED {
		t.Errorf("result: %v", r)
	}
	if lines := p.lines["task"]; len(lines) != 1 {
		t.Errorf("it was started %d times", len(lines))
	}
}

func heartbeat(t *testing.T, p *program) {
	p.await("two reports of load", func() bool { return p.loads >= 2 })
}

func drain(t *testing.T, p *program) {
	p.send(p.task("one", "nap", "400"), p.task("two", "nap", "400"))
	p.begun("one")
	p.begun("two")
	p.send(p.task("queued", "nap", "1"))
	p.terminate()
	if r := p.result("queued"); r.Outcome != apiv1.Outcome_OUTCOME_STOPPED && r.Outcome != apiv1.Outcome_OUTCOME_SUCCEEDED {
		t.Errorf("what had not begun: %v", r)
	}
	for _, name := range []string{"one", "two"} {
		if r := p.result(name); r.Outcome != apiv1.Outcome_OUTCOME_SUCCEEDED || string(r.Output) != "rested" {
			t.Errorf("what was under way: %v", r)
		}
	}
	p.ended()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.drains {
		t.Error("it did not say that it is draining")
	}
}
