package session

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// A bench is a Worker without a server. Its handlers are functions by the name of the job
// ("" for all other jobs), and the test takes the outgoing messages from its link.
type bench struct {
	*Worker
	end  context.CancelFunc
	done chan error

	mu      sync.Mutex
	now     int // handlers that hold a slot
	most    int
	started []string
}

// handler is the handler of a task. bench calls enter and leave around it; sleeps calls
// them around a sleep without a slot.
type handler func(ctx context.Context, a *Attempt, b *bench)

func (b *bench) enter() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now++
	b.most = max(b.most, b.now)
}

func (b *bench) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now--
}

func works(d time.Duration) handler {
	return func(ctx context.Context, _ *Attempt, _ *bench) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
}

// sleeps returns a handler that works for 1 s, sleeps for d, and works for another
// second.
func sleeps(d time.Duration) handler {
	return func(ctx context.Context, a *Attempt, b *bench) {
		works(time.Second)(ctx, a, b)
		gave := a.Sleep()
		if gave {
			b.leave()
		}
		works(d)(ctx, a, b)
		if gave {
			a.Wake(ctx)
			b.enter()
		}
		works(time.Second)(ctx, a, b)
	}
}

func newBench(t *testing.T, cfg Config, handlers map[string]handler) *bench {
	t.Helper()
	b := &bench{done: make(chan error, 1)}
	cfg.ID = "h"
	cfg.Connect = func(ctx context.Context) (grpc.ClientConnInterface, io.Closer, error) {
		<-ctx.Done()
		return nil, nil, ctx.Err()
	}
	cfg.Run = func(ctx context.Context, a *Attempt) *apiv1.TaskResult {
		begin := time.Now()
		b.mu.Lock()
		b.started = append(b.started, a.Task.Job)
		b.mu.Unlock()
		b.enter()
		h := handlers[a.Task.Job]
		if h == nil {
			h = handlers[""]
		}
		h(ctx, a, b)
		b.leave()
		r := &apiv1.TaskResult{Outcome: apiv1.Outcome_OUTCOME_SUCCEEDED, DurationUs: time.Since(begin).Microseconds()}
		if ctx.Err() != nil {
			r.Outcome = apiv1.Outcome_OUTCOME_STOPPED
		}
		return r
	}
	var err error
	if b.Worker, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, b.end = context.WithCancel(t.Context())
	go func() { b.done <- b.Run(ctx) }()
	synctest.Wait()
	return b
}

// close ends the Worker and its handlers.
func (b *bench) close() {
	b.end()
	<-b.done
}

func (b *bench) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (b *bench) give(tasks ...*apiv1.Task) {
	b.links[0].accept(tasks)
	synctest.Wait()
}

// says returns the message that the Worker would send now.
func (b *bench) says() *apiv1.WorkUp {
	synctest.Wait()
	m, _ := b.links[0].out.next(0, false)
	return m
}

var numbers byte

func slowTask(app, name string) *apiv1.Task {
	numbers++
	m := taskOf(app, numbers, 1)
	m.Job, m.Pace = name, apiv1.Pace_PACE_SLOW
	return m
}

func quickTask(app, name string) *apiv1.Task {
	m := slowTask(app, name)
	m.Pace = apiv1.Pace_PACE_UNSPECIFIED
	return m
}

// TestSleepingHandlersFreeTheirSlots: while handlers sleep, other handlers use their
// slots, and never do more handlers run than there are slots. The server gets a report of
// each step.
func TestSleepingHandlersFreeTheirSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{Slots: 2}, map[string]handler{"sleeps": sleeps(10 * time.Second), "works": works(5 * time.Second)})
		defer b.close()
		for range 6 {
			b.give(slowTask("a", "sleeps"))
		}
		b.wait(500 * time.Millisecond)
		if m := b.says(); len(m.States) != 2 || m.States[0].Sleeping || m.States[0].WaitedUs != 0 {
			t.Errorf("after half a second: %v", m.States)
		}
		b.wait(3 * time.Second) // three pairs, one second each
		m := b.says()
		if load := b.loadNow(); load.Sleeping != 6 || load.Running != 0 || load.Queued != 0 {
			t.Errorf("all sleep: %v", load)
		}
		if n := len(m.States); n != 6 || slices.ContainsFunc(m.States, func(s *apiv1.TaskState) bool { return !s.Sleeping }) {
			t.Errorf("the server is told of %d sleeping handlers: %v", n, m.States)
		}
		if n := b.links[0].spareLocked() + b.links[0].granted; n != b.wantedLocked() {
			t.Errorf("%d credits while nothing uses a slot, of %d", n, b.wantedLocked())
		}
		b.give(slowTask("b", "works"), slowTask("b", "works"))
		b.wait(8 * time.Second)
		b.give(slowTask("b", "works"), slowTask("b", "works")) // when the first sleepers wake up
		b.wait(time.Minute)
		ended := map[string]int{}
		for _, r := range b.says().Results {
			ended[r.App]++
			if r.App == "a" && (r.SleptUs < 10e6 || r.DurationUs-r.SleptUs != 2e6) {
				t.Errorf("it slept for %d us of %d us, and held a slot for the rest", r.SleptUs, r.DurationUs)
			}
		}
		if ended["a"] != 6 || ended["b"] != 4 || b.most != 2 || b.now != 0 {
			t.Errorf("ended: %v; at most %d ran on 2 slots, %d run", ended, b.most, b.now)
		}
		if b.slots.used != 0 || b.slots.slow != 0 || b.slots.asleep != 0 {
			t.Errorf("slots: %+v", b.slots)
		}
	})
}

// TestSleepingIsBounded: beyond the bound, a sleeping handler keeps its slot.
func TestSleepingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{Slots: 2, MaxSleeping: 3}, map[string]handler{"sleeps": sleeps(time.Minute)})
		defer b.close()
		for range 6 {
			b.give(slowTask("a", "sleeps"))
		}
		b.wait(30 * time.Second)
		if load := b.loadNow(); load.Sleeping != 3 || load.Running != 2 || load.Queued != 1 {
			t.Errorf("6 handlers that sleep, 3 of them may without a slot: %v", load)
		}
	})
}

// TestSleepingHandlersEnd: a handler that sleeps, or waits for a slot after a sleep, ends
// when it is cancelled, and the Worker ends when all handlers have ended.
func TestSleepingHandlersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{Slots: 1, DrainTimeout: time.Second}, map[string]handler{"sleeps": sleeps(10 * time.Second), "works": works(time.Hour)})
		first := slowTask("a", "sleeps")
		b.give(first)
		b.wait(2 * time.Second)
		b.give(slowTask("b", "works"))
		b.wait(time.Minute)
		if load := b.loadNow(); load.Queued != 1 || load.Running != 1 {
			t.Errorf("a sleeper waits for the only slot: %v", load)
		}
		b.stop(&apiv1.TaskCancel{Run: first.Run, Attempt: 1})
		if r := b.says().Results; len(r) != 1 || r[0].Outcome != apiv1.Outcome_OUTCOME_STOPPED {
			t.Errorf("it was cancelled: %v", r)
		}
		b.give(slowTask("c", "sleeps"))
		begin := time.Now()
		b.end()
		if err := <-b.done; err != nil || time.Since(begin) > 5*time.Second {
			t.Errorf("the worker ended after %v: %v", time.Since(begin), err)
		}
	})
}

// TestDrainWaitsForSleepers: the Worker ends when the sleeping handlers have ended.
func TestDrainWaitsForSleepers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{Slots: 1, DrainTimeout: time.Hour}, map[string]handler{"sleeps": sleeps(10 * time.Second)})
		b.give(slowTask("a", "sleeps"), slowTask("a", "sleeps"), slowTask("a", "sleeps"))
		b.wait(5 * time.Second)
		b.end()
		if err := <-b.done; err != nil {
			t.Error(err)
		}
		if r := b.says().Results; len(r) != 3 || slices.ContainsFunc(r, func(r *apiv1.TaskResult) bool { return r.Outcome != apiv1.Outcome_OUTCOME_SUCCEEDED }) {
			t.Errorf("the results: %v", r)
		}
	})
}

// TestRecall: a recall gives back the tasks that have not started; the others continue.
func TestRecall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{Slots: 1}, map[string]handler{"works": works(time.Minute)})
		defer b.close()
		runs, waits, other := quickTask("a", "works"), quickTask("a", "works"), quickTask("a", "works")
		b.give(runs, waits, other)
		b.recall([]*apiv1.TaskCancel{{Run: runs.Run, Attempt: 1}, {Run: waits.Run, Attempt: 1}, {Run: other.Run, Attempt: 2}})
		r := b.says().Results
		if len(r) != 1 || r[0].Run[15] != waits.Run[15] || r[0].Code != "recalled" || r[0].Outcome != apiv1.Outcome_OUTCOME_STOPPED || r[0].StartedMs != 0 {
			t.Errorf("given back: %v", r)
		}
		b.wait(time.Hour)
		if r := b.says().Results; len(r) != 2 {
			t.Errorf("%d of the others ended", len(r))
		}
	})
}

// TestStartDeadline: a handler does not start after its start deadline.
func TestStartDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{Slots: 1}, map[string]handler{"works": works(time.Second)})
		defer b.close()
		first, inTime, late := quickTask("a", "works"), quickTask("a", "works"), quickTask("a", "works")
		first.StartWithinMs, inTime.StartWithinMs, late.StartWithinMs = 1, 1000, 1999
		b.give(first, inTime, late)
		b.wait(time.Minute)
		for _, r := range b.says().Results {
			if isLate := r.Run[15] == late.Run[15]; isLate != (r.Code == "start_deadline") || isLate != (r.StartedMs == 0) {
				t.Errorf("run %d: %v", r.Run[15], r)
			}
		}
		if len(b.started) != 2 {
			t.Errorf("%d started", len(b.started))
		}
	})
}

// TestStartsAreTold: the start of a handler that runs for 100 ms is reported once, and
// again on a new stream. The start of a shorter one is reported with its result.
func TestStartsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{Slots: 1}, map[string]handler{"short": works(90 * time.Millisecond), "long": works(time.Second)})
		defer b.close()
		b.give(quickTask("a", "short"), quickTask("a", "long"))
		b.wait(95 * time.Millisecond)
		if m := b.says(); len(m.Results) != 1 || len(m.States) != 0 || m.Results[0].WaitedUs != 0 {
			t.Errorf("of the short one: %v", m)
		}
		b.wait(160 * time.Millisecond)
		if m := b.says(); len(m.States) != 1 || m.States[0].WaitedUs != 90_000 {
			t.Errorf("of the long one: %v", m)
		}
		if m := b.says(); m != nil {
			t.Errorf("told again: %v", m)
		}
		b.links[0].begin(nil, "s")
		if m := b.says(); len(m.States) != 1 || m.States[0].WaitedUs != 90_000 {
			t.Errorf("on a new stream: %v", m)
		}
		b.wait(time.Minute)
		if m := b.says(); len(m.Results) != 1 || len(m.States) != 0 {
			t.Errorf("at the end: %v", m)
		}
	})
}

// TestSlowTasksLeaveSlots: tasks of slow jobs leave the last slot to another app, and use
// it when there is no other app.
func TestSlowTasksLeaveSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{Slots: 4}, map[string]handler{"slow": works(time.Hour), "quick": works(time.Millisecond)})
		defer b.close()
		b.give(quickTask("b", "quick"))
		b.wait(10 * time.Millisecond)
		for range 8 {
			b.give(slowTask("a", "slow"))
		}
		if load := b.loadNow(); load.Running != 3 || load.Queued != 5 {
			t.Errorf("beside another app: %v", load)
		}
		b.started = nil
		b.give(quickTask("b", "quick"))
		unmeasured := slowTask("c", "quick")
		unmeasured.Pace = apiv1.Pace_PACE_UNMEASURED
		b.give(unmeasured)
		b.wait(10 * time.Millisecond)
		if !slices.Equal(b.started, []string{"quick", "quick"}) {
			t.Errorf("started beside the flood: %v", b.started)
		}
		b.wait(2 * time.Minute)
		b.loadNow() // as the heartbeat does
		synctest.Wait()
		if load := b.loadNow(); load.Running != 4 || load.Queued != 4 {
			t.Errorf("alone: %v", load)
		}
	})
}

// TestOrderOfWaitingTasks: the order is by priority, then quick jobs before slow ones,
// which they pass for at most 100 ms.
func TestOrderOfWaitingTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handlers := map[string]handler{"first": works(time.Second), "": works(20 * time.Millisecond)}
		b := newBench(t, Config{Slots: 1}, handlers)
		defer b.close()
		b.give(quickTask("a", "first"))
		b.wait(time.Millisecond)
		low, high := quickTask("a", "low"), slowTask("a", "high")
		low.Priority, high.Priority = -1, 1
		b.give(low, slowTask("a", "slow"))
		for i := range 3 {
			b.give(quickTask("a", fmt.Sprint("quick", i)))
		}
		b.give(high)
		b.wait(time.Minute)
		if want := []string{"first", "high", "slow", "quick0", "quick1", "quick2", "low"}; !slices.Equal(b.started, want) {
			t.Errorf("after a second, in which the slow one has been passed for long enough: %v", b.started)
		}
		b.started = nil
		handlers["first"] = works(time.Millisecond)
		b.give(quickTask("a", "first"), slowTask("a", "slow"))
		for i := range 9 {
			b.give(quickTask("a", fmt.Sprint("quick", i)))
		}
		b.wait(time.Minute)
		if i := slices.Index(b.started, "slow"); i < 5 || i > 7 {
			t.Errorf("a slow one is passed for 100 ms: %v", b.started)
		}
	})
}
