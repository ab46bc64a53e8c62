package wasm

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/guest"
)

// TestADeadlineOfTheWallClockHolds uses a deadline without a monotonic reading, as from the
// network.
func TestADeadlineOfTheWallClockHolds(t *testing.T) {
	e := newEngine(t, Config{})
	digest := load(t, e, fixture(t, "loop"))
	start := time.Now()
	r := e.Run(context.Background(), runtime.Task{Digest: digest, Deadline: within(20 * time.Millisecond).Round(0)}, &recorder{})
	if took := time.Since(start); r.Code != guest.CodeDeadline || took < 15*time.Millisecond {
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
