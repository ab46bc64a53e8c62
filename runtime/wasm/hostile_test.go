package wasm

import (
	"context"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/runtime"
	wasmbinary "github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/guest"
)

// Bounds of the cost of an attack. A limit that does not work exceeds them by far more than
// the slack.
const (
	attackTime = 60 * time.Millisecond  // deadline given to attacks without end
	slack      = 150 * time.Millisecond // of processor time, which passes no faster than real time
)

// TestEndlessGuestsMeetTheirDeadline runs guests that never return.
func TestEndlessGuestsMeetTheirDeadline(t *testing.T) {
	e := newEngine(t, Config{})
	tests := []struct {
		fixture, handler string
		args             []string
	}{
		{fixture: "loop"},
		{fixture: "exponential"},
		{fixture: "memory", handler: "fill"},
		{fixture: "random", handler: "wasi"},
		{fixture: "random", handler: "own"},
		{fixture: "flood", args: []string{"a", "b"}},
		{fixture: "sleep"},
	}
	for _, tt := range tests {
		code := fixture(t, tt.fixture)
		switch tt.fixture {
		case "memory":
			code = withHandlers(code, "grow", "fill")
		case "random":
			code = withHandlers(code, "wasi", "own")
		}
		digest := load(t, e, code)
		punctual(t, tt.fixture+" "+tt.handler, attackTime, slack, func() time.Duration {
			start := time.Now()
			r := e.Run(context.Background(), runtime.Task{
				Digest: digest, Handler: tt.handler, Args: tt.args, Deadline: start.Add(attackTime),
			}, &recorder{})
			took := time.Since(start)
			t.Logf("%s %s: %v over its deadline, %v until the guest had ended", tt.fixture, tt.handler, took-attackTime, r.Duration-attackTime)
			if r.Outcome != runtime.TimedOut || r.Code != "deadline" || r.Error == "" {
				t.Errorf("%s %s: %+v", tt.fixture, tt.handler, r)
			}
			return took
		})
	}
}

func TestContextDeadlineCountsToo(t *testing.T) {
	e := newEngine(t, Config{})
	digest := load(t, e, fixture(t, "loop"))
	ctx, cancel := context.WithTimeout(context.Background(), attackTime)
	defer cancel()
	if r := e.Run(ctx, runtime.Task{Digest: digest}, &recorder{}); r.Outcome != runtime.TimedOut {
		t.Errorf("result = %+v", r)
	}
}

// TestCancel cancels guests that do not poll for cancellation, and one that does.
func TestCancel(t *testing.T) {
	e := newEngine(t, Config{})
	host := withHandlers(fixture(t, "host"), hostHandlers...)
	for _, tt := range []struct {
		name, handler string
		code          []byte
	}{
		{"loop", "", fixture(t, "loop")},
		{"sleep", "", fixture(t, "sleep")},
		{"asking", "wait", host},
	} {
		digest := load(t, e, tt.code)
		punctual(t, tt.name, 30*time.Millisecond, slack, func() time.Duration {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			start := time.Now()
			defer time.AfterFunc(30*time.Millisecond, cancel).Stop()
			r := e.Run(ctx, runtime.Task{Digest: digest, Handler: tt.handler}, &recorder{})
			if r.Outcome != runtime.Stopped || r.Code != "stopped" {
				t.Errorf("%s: %+v", tt.name, r)
			}
			return time.Since(start)
		})
	}
	if n := e.pool.len(); n != 1 {
		t.Errorf("%d idle instances, want only the one whose handler stopped by itself", n)
	}
}

// TestACancelEndsAHandlerSoon checks that after a cancel, a guest that does not poll gets
// at most 5 ms of processor time. The loss of a lease is such a cancel.
func TestACancelEndsAHandlerSoon(t *testing.T) {
	e := newEngine(t, Config{})
	for name, digest := range map[string]string{
		"loop": load(t, e, fixture(t, "loop")), "grow": load(t, e, withHandlers(fixture(t, "memory"), "main", "grow")),
	} {
		var spent []time.Duration
		for range 9 {
			spent = append(spent, spentFrom(func(mark func()) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				defer time.AfterFunc(5*time.Millisecond, func() { mark(); cancel() }).Stop()
				task := runtime.Task{Digest: digest, Handler: map[string]string{"grow": "grow"}[name], Limits: runtime.Limits{MemoryBytes: 32 << 20}}
				if r := e.Run(ctx, task, &recorder{}); r.Outcome != runtime.Stopped {
					t.Errorf("%s: %+v", name, r)
				}
			}))
		}
		slices.Sort(spent)
		t.Logf("%s: it went on for %v of a processor", name, spent)
		if spent[len(spent)/2] > 5*time.Millisecond { // the median, because the measurement is interrupted too
			t.Errorf("%s went on for %v of a processor", name, spent)
		}
	}
}

// TestGuestsDoNotStallTheProcess measures garbage collections and a short sleep
// while guests that never call anything occupy every processor.
func TestGuestsDoNotStallTheProcess(t *testing.T) {
	e := newEngine(t, Config{})
	digests := []string{load(t, e, fixture(t, "loop")), load(t, e, withHandlers(fixture(t, "memory"), "main", "grow"))}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan runtime.Result)
	guests := 2 * goruntime.GOMAXPROCS(0)
	for i := range guests {
		go func() {
			handler := ""
			if i%2 == 1 {
				handler = "grow"
			}
			ended <- e.Run(ctx, runtime.Task{Digest: digests[i%2], Handler: handler, Deadline: within(time.Minute), Limits: runtime.Limits{MemoryBytes: 32 << 20}}, &recorder{})
		}()
	}
	var collections, timers []time.Duration
	for range 20 {
		start := time.Now()
		goruntime.GC()
		collections = append(collections, time.Since(start))
		start = time.Now()
		<-time.After(time.Millisecond)
		timers = append(timers, time.Since(start)-time.Millisecond)
	}
	cancel()
	for range guests {
		if r := <-ended; r.Outcome != runtime.Stopped {
			t.Errorf("guest: %+v", r)
		}
	}
	slices.Sort(collections)
	slices.Sort(timers)
	t.Logf("garbage collections %v, delays of a timer %v", collections, timers)
	// The medians: a busy machine delays some, a guest that cannot be interrupted delays
	// all.
	if collections[10] > time.Second || timers[10] > time.Second {
		t.Errorf("garbage collections took %v, timers were %v late", collections, timers)
	}
}

func TestMemoryStaysWithinTheLimit(t *testing.T) {
	e := newEngine(t, Config{MaxMemoryBytes: 8 << 20})
	digest := load(t, e, withHandlers(fixture(t, "memory"), "main", "fill"))
	for limit, want := range map[int64]uint32{1 << 20: 16, 3 << 20: 48, 64 << 20: 128, 0: 128} {
		r := e.Run(context.Background(), runtime.Task{Digest: digest, Limits: runtime.Limits{MemoryBytes: limit}}, &recorder{})
		if r.Outcome != runtime.Succeeded || u32(t, r.Output) != want {
			t.Errorf("limit %d: %+v, want %d pages", limit, r, want)
		}
	}
	random := load(t, e, fixture(t, "host"))
	r := e.Run(context.Background(), runtime.Task{Module: "host", Digest: random, Limits: runtime.Limits{MemoryBytes: 64 << 10}}, &recorder{})
	if r.Outcome != runtime.Permanent || r.Code != "memory_limit" || !strings.Contains(r.Error, "131072") {
		t.Errorf("module larger than its limit: %+v", r)
	}
}

func TestTableStaysWithinTheLimit(t *testing.T) {
	e := newEngine(t, Config{})
	digest := load(t, e, fixture(t, "tablegrow"))
	if r := e.Run(context.Background(), runtime.Task{Digest: digest}, &recorder{}); int32(u32(t, r.Output)) != -1 {
		t.Errorf("table.grow of a hundred million = %d, want -1", int32(u32(t, r.Output)))
	}
}

func TestDeepRecursionEnds(t *testing.T) {
	e := newEngine(t, Config{})
	digest := load(t, e, withHandlers(fixture(t, "recursion"), "main", "wide"))
	for _, handler := range []string{"main", "wide"} {
		r := e.Run(context.Background(), runtime.Task{Digest: digest, Handler: handler, Deadline: within(10 * time.Second)}, &recorder{})
		if r.Outcome != runtime.Retryable || r.Code != "call_depth" || r.Trace == "" || len(r.Trace) > guest.MaxTrace {
			t.Errorf("%s: %+v", handler, r)
		}
	}
}

func TestOutputFlood(t *testing.T) {
	e := newEngine(t, Config{})
	digest := load(t, e, fixture(t, "flood"))
	r := e.Run(context.Background(), runtime.Task{Digest: digest, Args: []string{"a"}, Deadline: within(10 * time.Second)}, &recorder{})
	if r.Outcome != runtime.Permanent || r.Code != "output_limit" || !strings.Contains(r.Error, "1048576") {
		t.Errorf("result = %+v", r)
	}
	run := hostModule(t, e)
	r, _ = run("echo", "12345", func(task *runtime.Task) { task.Limits.OutputBytes = 4 })
	if r.Outcome != runtime.Permanent || r.Code != "output_limit" {
		t.Errorf("reactor: %+v", r)
	}
	if r, _ = run("echo", "1234", func(task *runtime.Task) { task.Limits.OutputBytes = 4 }); r.Outcome != runtime.Succeeded {
		t.Errorf("output as long as its limit: %+v", r)
	}
}

func TestLogFlood(t *testing.T) {
	e := newEngine(t, Config{})
	digest := load(t, e, fixture(t, "flood"))
	sink := &recorder{}
	r := e.Run(context.Background(), runtime.Task{
		Digest: digest, Args: []string{"a", "b"}, Deadline: within(attackTime), Limits: runtime.Limits{LogBytes: 1000},
	}, sink)
	if r.Outcome != runtime.TimedOut {
		t.Errorf("result = %+v", r)
	}
	const line = "flood, flood and no end of it"
	want := 1000 / (len(line) + 1)
	if len(sink.lines) != want+1 || sink.lines[0] != line || sink.lines[want] != "log limit of 1000 bytes reached: the rest is dropped" {
		t.Errorf("%d lines, the last %q; want %d and a marker", len(sink.lines), sink.lines[len(sink.lines)-1], want)
	}
}

// nest returns a module whose handler has n nested blocks.
func nest(n int, op byte) []byte {
	var body []byte
	body = append(body, 1, 1, 0x7e) // one i64 local
	for range n {
		if op == 0x04 {
			body = append(body, 0x20, 0)
		}
		body = append(body, op, 0x40, 0x20, 1, 0x42, 1, 0x7c, 0x21, 1)
	}
	for range n {
		body = append(body, 0x0b)
	}
	body = append(body, 0x41, 0, 0x0b)
	return assemble(body)
}

// assemble returns a reactor whose handler has the given body.
func assemble(body []byte) []byte {
	m := []byte("\x00asm\x01\x00\x00\x00")
	m = wasmbinary.AppendSection(m, wasmbinary.SectionType, []byte("\x01\x60\x01\x7f\x01\x7f"))
	m = wasmbinary.AppendSection(m, wasmbinary.SectionFunction, []byte{1, 0})
	m = wasmbinary.AppendSection(m, wasmbinary.SectionMemory, []byte{1, 0, 1})
	exports := append(wasmbinary.AppendName([]byte{2}, "memory"), 2, 0)
	exports = append(wasmbinary.AppendName(exports, "wheelwork_handle"), 0, 0)
	m = wasmbinary.AppendSection(m, wasmbinary.SectionExport, exports)
	code := append(wasmbinary.AppendU32([]byte{1}, uint32(len(body))), body...)
	return wasmbinary.AppendSection(m, wasmbinary.SectionCode, code)
}

// deepest returns the maximum nesting of each kind of block. The function itself counts as
// a block.
func deepest() map[byte]int {
	limits := wasmbinary.DefaultLimits()
	return map[byte]int{0x02: limits.Nesting - 1, 0x03: limits.BranchNesting, 0x04: limits.BranchNesting}
}

func TestCompileBombsAreRefused(t *testing.T) {
	limits := wasmbinary.DefaultLimits()
	for op, deepest := range deepest() {
		_, err := Inspect(nest(deepest+1, op))
		if err == nil || !strings.Contains(err.Error(), "nested") {
			t.Errorf("blocks 0x%x nested too deep: %v", op, err)
		}
	}
	if _, err := Inspect(assemble(make([]byte, limits.BodyBytes+1))); err == nil || !strings.Contains(err.Error(), "function body") {
		t.Errorf("body over its limit: %v", err)
	}
	// Blocks in a row, with many locals that are live in all of them.
	row := append(wasmbinary.AppendU32([]byte{1}, 5000), 0x7e)
	for range limits.ControlWork/5000 + 1 {
		row = append(row, 0x02, 0x40, 0x0b)
	}
	if _, err := Inspect(assemble(append(row, 0x41, 0, 0x0b))); err == nil || !strings.Contains(err.Error(), "blocks times locals") {
		t.Errorf("many blocks and many locals: %v", err)
	}
	manyLocals := wasmbinary.AppendU32([]byte{1}, 1<<31)
	if _, err := Inspect(assemble(append(manyLocals, 0x7f, 0x41, 0, 0x0b))); err == nil || !strings.Contains(err.Error(), "locals") {
		t.Errorf("two billion locals: %v", err)
	}
}

// TestDeepestNestingCompiles checks that the limit of nesting bounds the compile time.
func TestDeepestNestingCompiles(t *testing.T) {
	e := newEngine(t, Config{})
	for op, deepest := range deepest() {
		code := nest(deepest, op)
		start := time.Now()
		if _, err := Inspect(code); err != nil {
			t.Fatal(err)
		}
		inspected := time.Since(start)
		load(t, e, code)
		t.Logf("0x%02x: inspected in %v, compiled in %v", op, inspected, time.Since(start)-inspected)
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("compiling took %v", took)
		}
	}
}

func TestFewSlotsServeSleepers(t *testing.T) {
	e := newEngine(t, Config{Slots: 1})
	sleeper := load(t, e, fixture(t, "sleep"))
	run := hostModule(t, e)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan runtime.Result)
	go func() { ended <- e.Run(ctx, runtime.Task{Digest: sleeper}, &recorder{}) }()
	for range 20 {
		if r, _ := run("echo", "x"); r.Outcome != runtime.Succeeded {
			t.Fatalf("beside a sleeping guest: %+v", r)
		}
	}
	cancel()
	if r := <-ended; r.Outcome != runtime.Stopped {
		t.Errorf("sleeper: %+v", r)
	}
}

func TestWaitingForASlotEnds(t *testing.T) {
	e := newEngine(t, Config{Slots: 1})
	digest := load(t, e, fixture(t, "loop"))
	run := hostModule(t, e)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan runtime.Result)
	e.host.Slots <- struct{}{} // as a running guest does
	if r, _ := run("echo", "x", func(task *runtime.Task) { task.Deadline = within(10 * time.Millisecond) }); r.Outcome != runtime.TimedOut {
		t.Errorf("deadline while waiting: %+v", r)
	}
	go func() { ended <- e.Run(ctx, runtime.Task{Digest: digest}, &recorder{}) }()
	cancel()
	if r := <-ended; r.Outcome != runtime.Stopped {
		t.Errorf("cancelled while waiting: %+v", r)
	}
	<-e.host.Slots
}
