package wasm

import (
	"bytes"
	"context"
	"fmt"
	"math"
	goruntime "runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/runtime"
)

func TestMoments(t *testing.T) {
	seen := now()
	for _, tt := range []struct {
		name string
		time time.Time
		want moment
	}{
		{"none", time.Time{}, never},
		{"of the steady clock", time.Now().Add(time.Hour), seen + moment(time.Hour)},
		{"of the wall clock", time.Now().Add(time.Hour).Round(0), seen + moment(time.Hour)},
		{"past", time.Now().Add(-time.Hour).Round(0), seen - moment(time.Hour)},
		{"past, of the steady clock", time.Now().Add(-time.Hour), seen - moment(time.Hour)},
		{"very far", time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), never},
		{"very long ago", time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC), math.MinInt64 + seen},
	} {
		got := momentOf(tt.time, seen)
		if off := time.Duration(got/2 - tt.want/2).Abs(); off > 5*time.Second { // halves, because a difference may overflow
			t.Errorf("%s: %v, want %v", tt.name, time.Duration(got), time.Duration(tt.want))
		}
	}
	if !never.time().IsZero() {
		t.Errorf("never is at %v", never.time())
	}
	if left := time.Until((now() + moment(time.Hour)).time()); left < 59*time.Minute || left > time.Hour {
		t.Errorf("an hour from now is in %v", left)
	}
}

// TestADeadlineOfTheWallClockHolds uses a deadline without a monotonic reading, as from the
// network.
func TestADeadlineOfTheWallClockHolds(t *testing.T) {
	e := newEngine(t, Config{})
	digest := load(t, e, fixture(t, "loop"))
	start := time.Now()
	r := e.Run(context.Background(), runtime.Task{Digest: digest, Deadline: within(20 * time.Millisecond).Round(0)}, &recorder{})
	if took := time.Since(start); r.Code != codeDeadline || took < 15*time.Millisecond {
		t.Errorf("%+v after %v", r, took)
	}
}

// echoes returns a batch of tasks with the given inputs.
func echoes(t *testing.T, inputs ...string) (run func(), items []*runtime.Item) {
	return batchOf(t, "echoes", inputs...)
}

func batchOf(t *testing.T, file string, inputs ...string) (run func(), items []*runtime.Item) {
	e := newEngine(t, Config{})
	digest := load(t, e, withSection(fixture(t, file), "wheelwork.manifest", `{"handlers":[{"name":"main","batch":true}]}`))
	for _, in := range inputs {
		items = append(items, &runtime.Item{Ctx: context.Background(), Sink: &recorder{}, Task: runtime.Task{Digest: digest, Input: []byte(in)}})
	}
	return func() { e.RunBatch(items) }, items
}

// TestOutputsOfABatchAreApart appends to each output, as its owner may.
func TestOutputsOfABatchAreApart(t *testing.T) {
	var inputs []string
	for i := range 40 {
		inputs = append(inputs, fmt.Sprint(i), "", fmt.Sprint("two parts of ", i), strings.Repeat("x", 13*i+1))
	}
	run, items := echoes(t, inputs...)
	run()
	for _, it := range items {
		it.Result.Output = append(it.Result.Output, bytes.Repeat([]byte("!"), 64)...)
	}
	for i, it := range items {
		if got, want := string(it.Result.Output), inputs[i]+strings.Repeat("!", 64); got != want || it.Result.Outcome != runtime.Succeeded {
			t.Errorf("task %d answered %q (%+v), want %q", i, got, it.Result, want)
		}
	}
}

// TestTimeOfABatch runs one long task among many short ones, for which the engine does not
// read the clock.
func TestTimeOfABatch(t *testing.T) {
	run, items := echoes(t, "a", "a", "a", "a", "busy", "a", "a", "a")
	run() // creates the instance
	for tries := 0; ; tries++ {
		start := time.Now()
		run()
		took := time.Since(start)
		var sum, busy time.Duration
		for _, it := range items {
			sum += it.Result.Duration
			if it.Task.Input[0] == 'b' {
				busy = it.Result.Duration
			}
		}
		if sum > took || busy < time.Millisecond {
			t.Fatalf("all took %v, the tasks say %v, of which the long one %v", took, sum, busy)
		}
		if busy >= took/2 {
			break
		}
		if tries == 50 { // a busy machine may interrupt some tries, but not all
			t.Fatalf("all took %v, of which the long one says %v", took, busy)
		}
	}
}

// TestTimeOfShortTasks runs tasks that end long before their slice. In one of the guests a
// local holds the budget when the host reads it.
func TestTimeOfShortTasks(t *testing.T) {
	for _, file := range []string{"echoes", "inlined"} {
		run, items := batchOf(t, file, "c", "c", "c", "c")
		run()
		for i, it := range items {
			if it.Result.Outcome != runtime.Succeeded || it.Result.Duration <= 0 {
				t.Errorf("%s: task %d took %v (%+v)", file, i, it.Result.Duration, it.Result)
			}
		}
	}
}

// TestLogBeginsAnew reuses one writer for several tasks, as a call does.
func TestLogBeginsAnew(t *testing.T) {
	var l logWriter
	for i, limits := range []runtime.Limits{{LogLines: 2}, {LogLines: 2}, {LogLines: 3}, {LogLines: 2}, {LogLines: 2, LogBytes: 9}} {
		sink := &recorder{}
		if i == 2 {
			l.begin(sink, &runtime.Limits{LogLines: 99}) // a task that logs nothing
		}
		l.begin(sink, &limits)
		for range limits.LogLines {
			l.Write(runtime.LevelInfo, []byte("line\n"))
		}
		l.Write(runtime.LevelInfo, []byte("held"))
		want := int(limits.LogLines)
		if limits.LogBytes > 0 {
			want = 2 // a line, and the message that the rest is dropped
		}
		l.Write(runtime.LevelInfo, []byte(" back\n"))
		if limits.LogBytes == 0 {
			want++ // the message about the limit of lines
		}
		if len(sink.lines) != want || sink.lines[0] != "line" || !strings.HasPrefix(sink.lines[want-1], "log limit of") {
			t.Errorf("task %d with %+v logged %q, want %d lines", i, limits, sink.lines, want)
		}
	}
}

// TestProgressBeginsAnew checks that a task's first progress is passed on at once.
func TestProgressBeginsAnew(t *testing.T) {
	var p progress
	for range 3 {
		sink := &recorder{}
		p.begin(sink)
		p.flush(now(), true) // nothing is pending
		p.set(1, 2, []byte("first"))
		p.set(2, 2, []byte("held back"))
		if len(sink.progress) != 1 || sink.progress[0] != (step{1, 2, "first"}) {
			t.Errorf("told %v", sink.progress)
		}
	}
}

// TestAForgottenPlaceIsKnownAgain makes the pool remove the stack of an instance, in each
// of the possible ways, while the instance runs.
func TestAForgottenPlaceIsKnownAgain(t *testing.T) {
	ctx := context.Background()
	for _, forget := range []string{"sweep", "evict"} {
		e := newEngine(t, Config{})
		task := runtime.Task{Digest: load(t, e, fixture(t, "echoes")), Input: []byte("x")}
		if r := e.Run(ctx, task, &recorder{}); r.Outcome != runtime.Succeeded {
			t.Fatalf("%+v", r)
		}
		at := e.module(task.Digest).last.Load()
		if forget == "sweep" {
			inst := e.pool.get(at)
			e.pool.sweep()
			e.pool.put(ctx, inst)
		} else {
			if err := e.pool.evict().close(ctx); err != nil {
				t.Fatal(err)
			}
			if r := e.Run(ctx, task, &recorder{}); r.Outcome != runtime.Succeeded {
				t.Fatalf("%+v", r)
			}
		}
		if n := e.pool.len(); n != 1 {
			t.Errorf("%s: %d idle instances, want 1", forget, n)
		}
		if err := e.Unload(ctx, task.Digest); err != nil || e.pool.bytes != 0 {
			t.Errorf("%s: %d bytes are left in the pool (%v)", forget, e.pool.bytes, err)
		}
	}
}

// TestYieldIsMoreThanOneTurn yields to a goroutine that works in small turns, as the
// garbage collector does when it sweeps.
func TestYieldIsMoreThanOneTurn(t *testing.T) {
	defer goruntime.GOMAXPROCS(goruntime.GOMAXPROCS(1))
	var turns atomic.Int64
	var done atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for !done.Load() {
			for turn := now(); now() < turn+2*nobody; {
			}
			turns.Add(1)
			goruntime.Gosched()
		}
	}()
	best := int64(0)
	for range 100 { // a busy machine may interrupt some tries
		before := turns.Load()
		yield(now())
		best = max(best, turns.Load()-before)
	}
	done.Store(true)
	<-ended
	if best < 2 { // up to maxTurns on an idle machine: see TestGiveTurns
		t.Errorf("a neighbour got %d turns, want some", best)
	}
}

// TestGiveTurns checks that other goroutines get turns until none wants one, a slice has
// passed, or maxTurns were given.
func TestGiveTurns(t *testing.T) {
	const begin, small = moment(time.Hour), nobody
	for _, c := range []struct {
		what   string
		takes  []moment // duration of each turn; further turns take as long as the last one
		turns  int
		others bool
	}{
		{"nobody is there", []moment{nobody - 1}, 1, false},
		{"small turns without end", []moment{small}, maxTurns, true},
		{"three small turns", []moment{small, small, small, nobody - 1}, 4, true},
		{"one long turn", []moment{moment(sliceTime)}, 1, true},
		{"turns of a quarter of a slice", []moment{moment(sliceTime) / 4}, 4, true},
	} {
		now, turns := begin, 0
		at, others := giveTurns(begin, func() moment {
			now += c.takes[min(turns, len(c.takes)-1)]
			turns++
			return now
		})
		if turns != c.turns || others != c.others || at != now {
			t.Errorf("%s: %d turns, others %v, ended %v after it began; want %d, %v, %v", c.what, turns, others, time.Duration(at-begin), c.turns, c.others, time.Duration(now-begin))
		}
	}
}

// TestOnlyWhatIsSetBackMakesMarks checks which modules have dirty bits.
func TestOnlyWhatIsSetBackMakesMarks(t *testing.T) {
	e := newEngine(t, Config{})
	for reuse, want := range map[string]bool{"reset": true, "fresh": false, "shared": false} {
		digest := load(t, e, withSection(fixture(t, "count"), "wheelwork.manifest", `{"handlers":[{"name":"main"}],"reuse":"`+reuse+`"}`))
		if got := e.module(digest).marks != nil; got != want {
			t.Errorf("%s: marks %v, want %v", reuse, got, want)
		}
	}
}
