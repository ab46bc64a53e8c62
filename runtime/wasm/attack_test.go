package wasm

import (
	"context"
	"fmt"
	"io"
	"os"
	goruntime "runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/local"
)

// late is how much longer than it may an attack may run. One that no limit holds goes
// on for a second at least.
const late = 500 * time.Millisecond

// endless are the handlers of attack.wat that never return.
var endless = []string{
	"log", "blank", "progress", "cancelled", "now", "nap", "nothing", "drip", "kv", "checkpoint", "secret", "enqueue", "map", "send",
	"metric", "param", "fail", "random", "next", "yield", "clock", "iovec", "huge", "poll", "pollin", "overrun", "some", "readv", "copy", "grow", "return",
}

// ending are those that end badly by themselves, with what they end as.
var ending = []struct {
	handler string
	outcome runtime.Outcome
	code    string
	says    string
}{
	{"unreachable", runtime.Retryable, "trap", "unreachable"},
	{"divide", runtime.Retryable, "trap", "divide by zero"},
	{"overflow", runtime.Retryable, "trap", "overflow"},
	{"outside", runtime.Retryable, "trap", "out of bounds memory"},
	{"type", runtime.Retryable, "trap", "indirect call type mismatch"},
	{"empty", runtime.Retryable, "trap", "invalid table access"},
	{"exit", runtime.Permanent, "exit", "exit code 70"},
	{"bomb", runtime.Succeeded, "", ""}, // it gets what it may have, and no more
}

// besieged is an engine that has the attackers and one who wants to work.
type besieged struct {
	engine           *Engine
	attacker, victim string
	grants           *runtime.Grants
}

func newBesieged(t *testing.T) *besieged {
	services := &local.Services{Sender: func(context.Context, *runtime.Task, runtime.Request) (*runtime.Response, error) {
		return &runtime.Response{Status: 200, Body: io.NopCloser(strings.NewReader("answer"))}, nil
	}}
	services.SetSecret("evil", "x", []byte("s"))
	e := newEngine(t, Config{MaxPoolBytes: 16 << 20, MaxMemoryBytes: 64 << 20, Services: services})
	var names []string
	names = append(names, endless...)
	for _, a := range ending {
		names = append(names, a.handler)
	}
	return &besieged{
		engine: e, attacker: load(t, e, withHandlers(fixture(t, "attack"), names...)), victim: load(t, e, withHandlers(fixture(t, "host"), hostHandlers...)),
		grants: &runtime.Grants{
			HTTP: []runtime.HTTPGrant{{Host: "a"}}, KV: []runtime.Bucket{{Name: "x", Write: true}}, Secrets: []string{"x"}, Enqueue: []string{"*"},
		},
	}
}

// attack runs one attacker, which is at work for so long.
func (b *besieged) attack(ctx context.Context, handler string, deadline time.Duration) (r runtime.Result, work time.Duration) {
	work = spent(func() {
		r = b.engine.Run(ctx, runtime.Task{
			App: "evil", RunID: handler, Digest: b.attacker, Handler: handler, Deadline: within(deadline), Grants: b.grants,
			Limits: runtime.Limits{MemoryBytes: 32 << 20},
		}, &counter{})
	})
	return r, work
}

// counter is a sink that keeps nothing.
type counter struct{ lines, progress int }

func (c *counter) Log(runtime.Level, []byte)     { c.lines++ }
func (c *counter) Progress(int64, int64, string) { c.progress++ }

// work runs the victim's tasks until ctx ends. Each has to come out right.
func (b *besieged) work(t *testing.T, ctx context.Context) (runs int, worst time.Duration) {
	for ctx.Err() == nil {
		input := fmt.Sprint("task ", runs)
		start := time.Now()
		r := b.engine.Run(context.Background(), runtime.Task{App: "good", Digest: b.victim, Handler: "echo", Input: []byte(input), Deadline: within(20 * time.Second)}, &counter{})
		worst = max(worst, time.Since(start))
		if r.Outcome != runtime.Succeeded || string(r.Output) != input {
			t.Errorf("the work of another app: %+v", r)
			return runs, worst
		}
		runs++
	}
	return runs, worst
}

// TestAttacks runs every attack once with a deadline, two at a time, while
// another app works. Each ends as it should, at its time, the work goes on, and
// in the end the process is no larger than before.
func TestAttacks(t *testing.T) {
	b := newBesieged(t)
	b.attack(t.Context(), "grow", time.Millisecond) // compiled code is there from now on
	before := resident(t)
	ctx, stop := context.WithCancel(t.Context())
	type report struct {
		runs  int
		worst time.Duration
	}
	worked := make(chan report)
	go func() {
		runs, worst := b.work(t, ctx)
		worked <- report{runs, worst}
	}()
	handlers := make(chan string)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for h := range handlers {
				start := time.Now()
				r, work := b.attack(ctx, h, attackTime)
				if r.Outcome != runtime.TimedOut || r.Code != "deadline" {
					t.Errorf("%s: %+v", h, r)
				}
				if took := time.Since(start); took < attackTime || work > attackTime+late {
					t.Errorf("%s ended after %v, of which it ran for %v; deadline %v", h, took, work, attackTime)
				}
			}
		})
	}
	for _, h := range endless {
		if h == "drip" {
			continue // ends by its output
		}
		handlers <- h
	}
	close(handlers)
	wg.Wait()
	if r, _ := b.attack(ctx, "drip", 20*time.Second); r.Outcome != runtime.Permanent || r.Code != "output_limit" {
		t.Errorf("drip: %+v", r)
	}
	for _, a := range ending {
		r, _ := b.attack(ctx, a.handler, 20*time.Second)
		if r.Outcome != a.outcome || r.Code != a.code || !strings.Contains(r.Error, a.says) {
			t.Errorf("%s: %+v", a.handler, r)
		}
	}
	stop()
	w := <-worked
	t.Logf("the other app ran %d tasks, the slowest took %v", w.runs, w.worst)
	if w.runs < 100 {
		t.Errorf("beside the attacks another app ran %d tasks, the slowest took %v", w.runs, w.worst)
	}
	after := resident(t)
	t.Logf("resident before %d MiB, after %d MiB", before>>20, after>>20)
	if after > before+64<<20 {
		t.Errorf("the process has grown from %d to %d MiB", before>>20, after>>20)
	}
}

// TestAttacksAreCancelled cancels every attack that would not end.
func TestAttacksAreCancelled(t *testing.T) {
	b := newBesieged(t)
	for _, h := range endless {
		if h == "drip" || h == "copy" && testing.Short() {
			continue
		}
		ctx, cancel := context.WithCancel(t.Context())
		timer := time.AfterFunc(5*time.Millisecond, cancel)
		r, work := b.attack(ctx, h, time.Minute)
		if r.Outcome != runtime.Stopped || work > late {
			t.Errorf("%s: %+v after running for %v", h, r, work)
		}
		timer.Stop()
		cancel()
	}
}

// TestManyTraps ends a thousand instances badly.
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
	if after := resident(t); after > before+32<<20 {
		t.Errorf("the process has grown from %d to %d MiB", before>>20, after>>20)
	}
}

// resident is the memory of this process that the system backs, after what can
// be given back was. Where the system does not tell it, it is what Go holds.
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
