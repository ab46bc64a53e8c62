package wasm

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wheelworkhq/wheelwork/runtime"
)

var hostHandlers = []string{
	"echo", "param", "failing", "status", "pointer", "memory", "grow", "trap",
	"quit", "wait", "clock", "logs", "steps", "streams", "spin",
}

// hostModule loads the fixture that has one handler for each host function.
func hostModule(t testing.TB, e *Engine) (run func(handler, input string, change ...func(*runtime.Task)) (runtime.Result, *recorder)) {
	digest := load(t, e, withHandlers(fixture(t, "host"), hostHandlers...))
	return func(handler, input string, change ...func(*runtime.Task)) (runtime.Result, *recorder) {
		task := runtime.Task{Module: "host", Digest: digest, Handler: handler, Input: []byte(input), Deadline: within(20 * time.Second)}
		for _, c := range change {
			c(&task)
		}
		sink := &recorder{}
		return e.Run(context.Background(), task, sink), sink
	}
}

func TestReactorEchoesInput(t *testing.T) {
	run := hostModule(t, newEngine(t, Config{}))
	for _, input := range []string{"", "x", strings.Repeat("ab", 2048)} {
		r, _ := run("echo", input)
		if r.Outcome != runtime.Succeeded || string(r.Output) != input || r.Error != "" || r.Code != "" {
			t.Errorf("echo of %d bytes = %+v", len(input), r)
		}
	}
}

func TestParams(t *testing.T) {
	run := hostModule(t, newEngine(t, Config{}))
	fill := func(task *runtime.Task) {
		task.RunID, task.App, task.Job = "r1", "shop", "settle"
		task.Attempt, task.MaxAttempt = 2, 4
		task.PlannedAt = time.UnixMilli(1_700_000_000_123)
		task.TraceParent = "00-aa-bb-01"
		task.Env = map[string]string{"REGION": "eu", "job": "not this one"}
	}
	for key, want := range map[string]string{
		"run_id": "r1", "app": "shop", "job": "settle", "attempt": "2", "max_attempts": "4",
		"planned_at_ms": "1700000000123", "module": "host", "handler": "param",
		"trace_parent": "00-aa-bb-01", "REGION": "eu",
	} {
		r, _ := run("param", key, fill)
		if r.Outcome != runtime.Succeeded || string(r.Output[4:]) != want || u32(t, r.Output) != uint32(len(want)) {
			t.Errorf("param %s = %q (%+v), want %q", key, r.Output, r, want)
		}
	}
	if r, _ := run("param", "nothing", fill); int32(u32(t, r.Output)) != -44 {
		t.Errorf("missing param returned %d, want -44", int32(u32(t, r.Output)))
	}
	long := func(task *runtime.Task) { task.Env = map[string]string{"LONG": strings.Repeat("v", 2000)} }
	if r, _ := run("param", "LONG", long, func(task *runtime.Task) { task.Limits.OutputBytes = 4000 }); u32(t, r.Output) != 2000 || string(r.Output[4:1004]) != strings.Repeat("v", 1000) {
		t.Errorf("param longer than the buffer: length %d, want 2000 and 1000 bytes of it", u32(t, r.Output))
	}
}

func TestReactorOutcomes(t *testing.T) {
	run := hostModule(t, newEngine(t, Config{}))
	tests := []struct {
		handler, input string
		want           runtime.Result
	}{
		{"status", "\x00", runtime.Result{Outcome: runtime.Succeeded}},
		{"status", "\x01", runtime.Result{Outcome: runtime.Retryable, Code: "status", Error: "the handler returned status 1"}},
		{"status", "\x02", runtime.Result{Outcome: runtime.Permanent, Code: "status", Error: "the handler returned status 2"}},
		{"status", "\x03", runtime.Result{Outcome: runtime.Retryable, Code: "status", Error: "the handler returned status 3"}},
		{"status", "\x2a", runtime.Result{Outcome: runtime.Retryable, Code: "status", Error: "the handler returned status 42"}},
		{"failing", "\x01", runtime.Result{Outcome: runtime.Retryable, Code: "E_CODE", Error: "it went wrong", RetryAfter: 1500 * time.Millisecond}},
		{"failing", "\x02", runtime.Result{Outcome: runtime.Permanent, Code: "E_CODE", Error: "it went wrong", RetryAfter: 1500 * time.Millisecond}},
		{"failing", "\x07", runtime.Result{Outcome: runtime.Retryable, Code: "status", Error: "the handler returned status 1"}},
		{"quit", "", runtime.Result{Outcome: runtime.Retryable, Code: "exit", Error: "exit code 3", ExitCode: 3}},
		{"trap", "", runtime.Result{Outcome: runtime.Retryable, Code: "trap", Error: "trap: unreachable"}},
		{"pointer", "", runtime.Result{Outcome: runtime.Retryable, Code: "host_call", Error: "trap: output_write: range 131071+2 is outside the memory"}},
		{"nobody", "", runtime.Result{Outcome: runtime.Permanent, Code: "no_handler", Error: "module host has no handler \"nobody\"; it has: " + strings.Join(hostHandlers, ", ")}},
	}
	for _, tt := range tests {
		r, _ := run(tt.handler, tt.input)
		traced := r.Trace != ""
		if want := tt.handler == "trap" || tt.handler == "pointer"; traced != want {
			t.Errorf("%s: trace %q", tt.handler, r.Trace)
		}
		r.Duration, r.Trace = 0, ""
		if diff := cmp.Diff(tt.want, r); diff != "" {
			t.Errorf("%s %q (-want +got):\n%s", tt.handler, tt.input, diff)
		}
	}
}

func TestClockAndRandom(t *testing.T) {
	run := hostModule(t, newEngine(t, Config{}))
	before := time.Now().UnixMilli()
	first, _ := run("clock", "")
	second, _ := run("clock", "")
	if now := int64(binary.LittleEndian.Uint64(first.Output)); now < before || now > time.Now().UnixMilli() {
		t.Errorf("now_ms = %d, called at %d", now, before)
	}
	if string(first.Output[8:]) == string(second.Output[8:]) {
		t.Error("random gave the same bytes twice, although the instance was reset between")
	}
}

func TestLogLevelsAndLines(t *testing.T) {
	run := hostModule(t, newEngine(t, Config{}))
	_, sink := run("logs", "one\ntwo\r\n\nthree")
	want := []string{"one", "two", "", "three", "it went wrong"}
	if diff := cmp.Diff(want, sink.lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if sink.levels[0] != runtime.LevelDebug || sink.levels[4] != runtime.LevelError {
		t.Errorf("levels = %v, want debug for 0 and error for what is above the highest", sink.levels)
	}
}

func TestProgressKeepsTheLatest(t *testing.T) {
	run := hostModule(t, newEngine(t, Config{}))
	_, sink := run("steps", "")
	n := len(sink.progress)
	if n < 2 || n > 50 {
		t.Fatalf("1001 reports in a row gave %d to the sink, want few", n)
	}
	if first, last := sink.progress[0], sink.progress[n-1]; first != (step{0, 1000, "it"}) || last != (step{1000, 1000, "it"}) {
		t.Errorf("first %v and last %v, want 0 and 1000 of 1000", first, last)
	}
}

// TestNothingIsLeftBehind runs tasks that leave a secret in memory and in a global, in one
// instance.
func TestNothingIsLeftBehind(t *testing.T) {
	e := newEngine(t, Config{})
	run := hostModule(t, e)
	for range 3 {
		r, _ := run("memory", "S")
		if string(r.Output) != strings.Repeat("\x00", 9) {
			t.Fatalf("a task found %q in memory and global, want zeros", r.Output)
		}
	}
	if n := e.pool.len(); n != 1 {
		t.Errorf("%d idle instances, want the one that all tasks shared", n)
	}
	run("trap", "")
	run("memory", "S")
	run("quit", "")
	if r, _ := run("memory", "S"); string(r.Output) != strings.Repeat("\x00", 9) {
		t.Errorf("after a trap and an exit a task found %q", r.Output)
	}
}

func TestGrownInstanceIsNotUsedAgain(t *testing.T) {
	e := newEngine(t, Config{})
	run := hostModule(t, e)
	for range 2 {
		if r, _ := run("grow", ""); u32(t, r.Output) != 3 {
			t.Fatalf("memory has %d pages after growing by one, want 3", u32(t, r.Output))
		}
	}
	if n := e.pool.len(); n != 0 {
		t.Errorf("%d idle instances, want none", n)
	}
}

func TestChangedTableIsNotSeenAgain(t *testing.T) {
	e := newEngine(t, Config{})
	digest := load(t, e, fixture(t, "tableset"))
	for range 2 {
		r := e.Run(context.Background(), runtime.Task{Digest: digest}, &recorder{})
		if string(r.Output) != "\x01" {
			t.Fatalf("result = %+v, want the table's first function", r)
		}
	}
}

func TestClosedStreamIsOpenAgain(t *testing.T) {
	run := hostModule(t, newEngine(t, Config{}))
	for i := range 2 {
		if _, sink := run("streams", ""); len(sink.lines) != 1 || sink.lines[0] != "it went wrong" {
			t.Errorf("task %d: log is %q", i, sink.lines)
		}
	}
}

// TestStateAfterInitialize compares instances that ran _initialize with instances that
// received an image.
func TestStateAfterInitialize(t *testing.T) {
	e := newEngine(t, Config{MaxPoolBytes: 1}) // nothing stays in the pool
	digest := load(t, e, fixture(t, "init"))
	for range 3 {
		r := e.Run(context.Background(), runtime.Task{Digest: digest}, &recorder{})
		if want := "\x01\x01\x01\x09"; string(r.Output) != want {
			t.Fatalf("start, init, calls, mark = %q (%+v), want %q", r.Output, r, want)
		}
	}
	if e.pool.len() != 0 || e.pool.bytes != 0 {
		t.Errorf("pool holds %d instances and %d bytes, want none", e.pool.len(), e.pool.bytes)
	}
}

func TestInitializeHasNoTask(t *testing.T) {
	e := newEngine(t, Config{})
	digest := load(t, e, fixture(t, "eager"))
	r := e.Run(context.Background(), runtime.Task{Digest: digest}, &recorder{})
	if r.Code != "host_call" || !strings.Contains(r.Error, "input_len was called in _initialize") {
		t.Errorf("result = %+v", r)
	}
}

func TestPoolKeepsToItsBytes(t *testing.T) {
	const instanceBytes = 2*64<<10 + instanceOverhead
	e := newEngine(t, Config{MaxPoolBytes: 3 * instanceBytes, Slots: 8})
	digest := load(t, e, withHandlers(fixture(t, "host"), hostHandlers...))
	started := make(chan struct{}, 8)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			sink := &recorder{onLog: func(string) { started <- struct{}{} }}
			r := e.Run(ctx, runtime.Task{RunID: fmt.Sprint(i), Digest: digest, Handler: "wait", Deadline: within(20 * time.Second)}, sink)
			if r.Outcome != runtime.Stopped {
				t.Errorf("result = %+v", r)
			}
		})
	}
	for range 8 {
		<-started
	}
	cancel()
	wg.Wait()
	if e.pool.bytes > 3*instanceBytes || e.pool.bytes != int64(e.pool.len())*instanceBytes {
		t.Errorf("pool holds %d instances and says %d bytes, limit %d", e.pool.len(), e.pool.bytes, 3*instanceBytes)
	}
}

func TestManyTasksAtOnce(t *testing.T) {
	e := newEngine(t, Config{})
	run := hostModule(t, e)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for j := range 50 {
				input := fmt.Sprintf("%d/%d", i, j)
				if r, _ := run("echo", input); string(r.Output) != input {
					t.Errorf("echo of %q = %+v", input, r)
				}
			}
		})
	}
	wg.Wait()
}

// TestTrappingStartLeaksNothing checks the size of this process.
func TestTrappingStartLeaksNothing(t *testing.T) {
	if _, err := os.Stat("/proc/self/statm"); err != nil {
		t.Skip("needs /proc/self/statm, which this system does not have")
	}
	e := newEngine(t, Config{})
	digest := load(t, e, fixture(t, "badstart"))
	run := func() {
		r := e.Run(context.Background(), runtime.Task{Digest: digest}, &recorder{})
		if r.Outcome != runtime.Retryable || r.Code != "trap" {
			t.Fatalf("result = %+v", r)
		}
	}
	run()
	before := addressSpace(t)
	const runs = 40
	for range runs {
		run()
	}
	if grown := addressSpace(t) - before; grown > runs*defaultMemoryBytes/4 {
		t.Errorf("%d tasks left %d MiB of address space behind", runs, grown>>20)
	}
}

func addressSpace(t *testing.T) int64 {
	t.Helper()
	var pages int64
	if _, err := fmt.Sscan(read(t, "/proc/self/statm"), &pages); err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}
