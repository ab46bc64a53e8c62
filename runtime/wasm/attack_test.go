package wasm

import (
	"context"
	"fmt"
	"io"
	"os"
	goruntime "runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/local"
)

// late is the tolerated delay of the end of an attack on a busy machine. Without a limit an
// attack would run for at least a second, each time.
const late = 500 * time.Millisecond

// punctual repeats an operation until it ends at most slack after long. A busy machine
// delays some of the tries; a limit that does not work delays all of them.
func punctual(t *testing.T, what string, long, slack time.Duration, do func() time.Duration) {
	t.Helper()
	var took []time.Duration
	for range 8 {
		d := do()
		if d < long {
			t.Errorf("%s ended after %v, which is before %v", what, d, long)
			return
		}
		if d <= long+slack || t.Failed() {
			return
		}
		took = append(took, d)
	}
	t.Errorf("%s ended after %v, want no more than %v after %v", what, took, slack, long)
}

// endless holds the handlers of attack.wat that never return, and endless2 the handlers of
// attack2.wat that never do.
var endless = []string{
	"log", "blank", "progress", "cancelled", "now", "nap", "nothing", "drip", "kv", "checkpoint", "secret", "enqueue", "map", "send",
	"metric", "param", "fail", "random", "next", "yield", "clock", "iovec", "huge", "poll", "pollin", "overrun", "some", "readv", "copy", "grow", "return",
}

var endless2 = []string{"tgrow", "tfill", "tcopy", "tinit", "minit", "mfill", "brtable", "double", "garbage", "spill", "close", "open", "select"}

// An ended attack ends by itself, mostly with an error.
type ended struct {
	handler string
	outcome runtime.Outcome
	code    string
	says    string
}

// ending holds the attacks of attack.wat that end by themselves, and ending2 the attacks of
// attack2.wat that do.
var ending = []ended{
	{"unreachable", runtime.Retryable, "trap", "unreachable"},
	{"divide", runtime.Retryable, "trap", "divide by zero"},
	{"overflow", runtime.Retryable, "trap", "overflow"},
	{"outside", runtime.Retryable, "trap", "out of bounds memory"},
	{"type", runtime.Retryable, "trap", "indirect call type mismatch"},
	{"empty", runtime.Retryable, "trap", "invalid table access"},
	{"exit", runtime.Permanent, "exit", "exit code 70"},
	{"bomb", runtime.Succeeded, "", ""}, // it gets the memory of its limit, and no more
}

var ending2 = []ended{
	{"deep", runtime.Retryable, "call_depth", "nested too deep"},
	{"drop", runtime.Retryable, "trap", "out of bounds memory"},
	{"tset", runtime.Retryable, "trap", "invalid table access"},
	{"null", runtime.Retryable, "trap", "invalid table access"},
	{"unfit", runtime.Retryable, "trap", "unreachable"}, // its call of fail passed text that is not UTF-8
}

// besieged is an engine with attackers and a victim, another app that runs tasks.
type besieged struct {
	engine    *Engine
	attackers map[string]string // digests by handler
	victim    string
	grants    *runtime.Grants
}

func newBesieged(t *testing.T) *besieged {
	services := &local.Services{Sender: func(context.Context, *runtime.Task, runtime.Request) (*runtime.Response, error) {
		return &runtime.Response{Status: 200, Body: io.NopCloser(strings.NewReader("answer"))}, nil
	}}
	services.SetSecret("evil", "x", []byte("s"))
	e := newEngine(t, Config{MaxPoolBytes: 16 << 20, MaxMemoryBytes: 64 << 20, Services: services})
	b := &besieged{
		engine: e, attackers: map[string]string{}, victim: load(t, e, withHandlers(fixture(t, "host"), hostHandlers...)),
		grants: &runtime.Grants{
			HTTP: []runtime.HTTPGrant{{Host: "a"}}, KV: []runtime.Bucket{{Name: "x", Write: true}}, Secrets: []string{"x"}, Enqueue: []string{"*"},
		},
	}
	for name, handlers := range map[string][]string{"attack": handlersOf(endless, ending), "attack2": handlersOf(endless2, ending2)} {
		digest := load(t, e, withHandlers(fixture(t, name), handlers...))
		for _, h := range handlers {
			b.attackers[h] = digest
		}
	}
	return b
}

// handlersOf returns the handlers of an attacker in the order of its table.
func handlersOf(endless []string, ending []ended) []string {
	names := slices.Clone(endless)
	for _, a := range ending {
		names = append(names, a.handler)
	}
	return names
}

// besiegers returns all handlers that never return.
func besiegers() []string { return slices.Concat(endless, endless2) }

// attack runs one attacker.
func (b *besieged) attack(ctx context.Context, handler string, deadline time.Duration) (runtime.Result, time.Duration) {
	start := time.Now()
	r := b.engine.Run(ctx, runtime.Task{
		App: "evil", RunID: handler, Digest: b.attackers[handler], Handler: handler, Deadline: start.Add(deadline), Grants: b.grants,
		Limits: runtime.Limits{MemoryBytes: 32 << 20},
	}, &counter{})
	return r, time.Since(start)
}

// counter is a sink that only counts.
type counter struct{ lines, progress int }

func (c *counter) Log(runtime.Level, []byte)     { c.lines++ }
func (c *counter) Progress(int64, int64, string) { c.progress++ }

// slowWork is the duration above which a task of the victim counts as delayed.
const slowWork = 100 * time.Millisecond

// work runs the victim's tasks until ctx ends. Each must succeed with the right output.
func (b *besieged) work(t *testing.T, ctx context.Context) (runs, slow int) {
	for ctx.Err() == nil {
		input := fmt.Sprint("task ", runs)
		start := time.Now()
		r := b.engine.Run(context.Background(), runtime.Task{App: "good", Digest: b.victim, Handler: "echo", Input: []byte(input), Deadline: within(20 * time.Second)}, &counter{})
		if time.Since(start) > slowWork {
			slow++
		}
		if r.Outcome != runtime.Succeeded || string(r.Output) != input {
			t.Errorf("the work of another app: %+v", r)
			return runs, slow
		}
		runs++
	}
	return runs, slow
}

// TestAttacks runs every attack once with a deadline, two at a time, while another app runs
// tasks. Each attack must end with the expected result and in time, the other app must make
// progress, and the process must not have grown at the end.
func TestAttacks(t *testing.T) {
	b := newBesieged(t)
	b.attack(t.Context(), "grow", time.Millisecond) // the compiled code is in memory from now on
	before := resident(t)
	ctx, stop := context.WithCancel(t.Context())
	type report struct{ runs, slow int }
	worked := make(chan report)
	go func() {
		runs, slow := b.work(t, ctx)
		worked <- report{runs, slow}
	}()
	handlers := make(chan string)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for h := range handlers {
				punctual(t, h, attackTime, late, func() time.Duration {
					r, took := b.attack(ctx, h, attackTime)
					if r.Outcome != runtime.TimedOut || r.Code != "deadline" {
						t.Errorf("%s: %+v", h, r)
					}
					return took
				})
			}
		})
	}
	for _, h := range besiegers() {
		if h == "drip" {
			continue // ends at its output limit
		}
		handlers <- h
	}
	close(handlers)
	wg.Wait()
	if r, _ := b.attack(ctx, "drip", 20*time.Second); r.Outcome != runtime.Permanent || r.Code != "output_limit" {
		t.Errorf("drip: %+v", r)
	}
	for _, a := range slices.Concat(ending, ending2) {
		r, _ := b.attack(ctx, a.handler, 20*time.Second)
		if r.Outcome != a.outcome || r.Code != a.code || !strings.Contains(r.Error, a.says) {
			t.Errorf("%s: %+v", a.handler, r)
		}
	}
	stop()
	w := <-worked
	t.Logf("the other app ran %d tasks, %d of them took more than %v", w.runs, w.slow, slowWork)
	if w.runs < 100 || w.slow > w.runs/50 {
		t.Errorf("beside the attacks another app ran %d tasks, %d of which took more than %v", w.runs, w.slow, slowWork)
	}
	after := resident(t)
	t.Logf("resident before %d MiB, after %d MiB", before>>20, after>>20)
	if after > before+tolerated {
		t.Errorf("the process has grown from %d to %d MiB", before>>20, after>>20)
	}
	b.accounted(t)
}

// tolerated is the allowed growth of the process, in bytes. It includes the race detector,
// which retains some bytes for each byte that was ever touched.
const tolerated = 192 << 20

// accounted checks that only idle instances have guest memory.
func (b *besieged) accounted(t *testing.T) {
	t.Helper()
	p := b.engine.pool
	p.mu.Lock()
	waiting, n := p.bytes, int64(0)
	for inst := p.oldest; inst != nil; inst = inst.younger {
		n++
	}
	p.mu.Unlock()
	if used := b.engine.host.Memory.Used(); used != waiting-n*instanceOverhead {
		t.Errorf("guests have %d bytes, those that wait %d", used, waiting-n*instanceOverhead)
	}
}

// TestBombsGiveTheirMemoryBack repeatedly runs a guest that takes all memory that it may
// have.
func TestBombsGiveTheirMemoryBack(t *testing.T) {
	b := newBesieged(t)
	b.attack(t.Context(), "bomb", time.Minute)
	before := resident(t)
	for range 20 {
		if r, _ := b.attack(t.Context(), "bomb", time.Minute); r.Outcome != runtime.Succeeded {
			t.Fatalf("%+v", r)
		}
	}
	if after := resident(t); after > before+tolerated { // the bombs take 640 MiB in total
		t.Errorf("the process has grown from %d to %d MiB", before>>20, after>>20)
	}
	b.accounted(t)
}

// TestAttacksAreCancelled cancels every attack that would not end.
func TestAttacksAreCancelled(t *testing.T) {
	b := newBesieged(t)
	for _, h := range besiegers() {
		if h == "drip" || h == "copy" && testing.Short() {
			continue
		}
		punctual(t, h, 0, late, func() time.Duration {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			defer time.AfterFunc(5*time.Millisecond, cancel).Stop()
			r, took := b.attack(ctx, h, time.Minute)
			if r.Outcome != runtime.Stopped {
				t.Errorf("%s: %+v after %v", h, r, took)
			}
			return took
		})
	}
}

// TestManyTraps runs a thousand attacks that do not succeed.
func TestManyTraps(t *testing.T) {
	b := newBesieged(t)
	for range 20 {
		b.attack(t.Context(), "outside", time.Minute)
	}
	before := resident(t)
	for i := range 1000 {
		if r, _ := b.attack(t.Context(), ending[i%7].handler, time.Minute); r.Outcome == runtime.Succeeded {
			t.Fatalf("%s: %+v", ending[i%7].handler, r)
		}
	}
	if after := resident(t); after > before+tolerated {
		t.Errorf("the process has grown from %d to %d MiB", before>>20, after>>20)
	}
	b.accounted(t)
}

// resident returns the resident memory of this process, after it has returned what it can
// to the system. Where the system does not report it, resident returns the memory that Go
// holds.
func resident(t *testing.T) int64 {
	t.Helper()
	goruntime.GC()
	debug.FreeOSMemory()
	var size, pages int64
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
			t.Fatal(err)
		}
		return pages * int64(os.Getpagesize())
	}
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}
