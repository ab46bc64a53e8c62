package host

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// batchEngine runs several tasks of the handler "many" in one call.
type batchEngine struct {
	*fakeEngine
	mu      sync.Mutex
	batches [][]byte // the inputs of each call
}

func (e *batchEngine) Batches(_, handler string) bool { return handler == "many" }

func (e *batchEngine) RunBatch(items []*runtime.Item) {
	var inputs []byte
	for _, i := range items {
		i.Begin(time.Now())
		inputs = append(inputs, i.Task.Input...)
		if left := time.Until(i.Task.Deadline); left != time.Minute {
			i.Result = runtime.Result{Outcome: runtime.Permanent, Error: fmt.Sprint("its deadline is in ", left)}
			continue
		}
		if i.Task.Input[0] == 4 { // each task has its own context
			<-i.Ctx.Done()
			i.Result = runtime.Result{Outcome: runtime.Stopped, Error: context.Cause(i.Ctx).Error()}
			continue
		}
		i.Sink.Log(runtime.LevelInfo, i.Task.Input)
		time.Sleep(time.Second) // the time of one task does not count for the others
		i.Result = runtime.Result{Outcome: runtime.Succeeded, Output: i.Task.Input, Duration: time.Microsecond}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.batches = append(e.batches, inputs)
}

// TestTasksOfOneHandlerGoInOneCall queues tasks behind a task that holds the only slot.
// Neighbouring tasks of a handler that takes batches run in one call, other tasks alone,
// and each task has its own result.
func TestTasksOfOneHandlerGoInOneCall(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		e := &batchEngine{fakeEngine: b.engine}
		var alone []byte
		hold := make(chan struct{})
		b.engine.run = func(_ context.Context, x runtime.Task, _ runtime.Sink) runtime.Result {
			if x.Input[0] == 1 {
				<-hold
			}
			alone = append(alone, x.Input...)
			return runtime.Result{Outcome: runtime.Succeeded, Output: x.Input, Duration: time.Microsecond}
		}
		stop := b.start(func(c *Config) { c.Engine, c.Slots, c.Credits = e, 1, 20 })
		defer stop()
		<-b.server.hello
		<-b.server.up
		task := func(n byte, handler string) *apiv1.Task {
			m := aTask(n)
			m.Handler, m.TimeoutMs = handler, time.Minute.Milliseconds()
			return m
		}
		b.server.down <- &apiv1.WorkDown{Tasks: []*apiv1.Task{
			task(1, "one"), task(2, "many"), task(3, "many"), task(4, "many"), task(5, "one"), task(6, "many"), task(7, "many"),
		}}
		<-b.engine.loaded
		close(hold)
		outcomes := map[byte]apiv1.Outcome{}
		cancelled := false
		for len(outcomes) < 7 {
			m := <-b.server.up
			for _, r := range m.Results {
				outcomes[r.Run[15]] = r.Outcome
				if r.Run[15] != 4 && (r.Outcome != apiv1.Outcome_OUTCOME_SUCCEEDED || len(r.Output) != 1 || r.Output[0] != r.Run[15]) {
					t.Errorf("task %d: %v", r.Run[15], r)
				}
			}
			b.server.down <- &apiv1.WorkDown{Acked: m.Batch}
			if !cancelled && outcomes[1] != 0 {
				cancelled = true
				synctest.Wait() // the next call has started with the task
				b.server.down <- &apiv1.WorkDown{Cancels: []*apiv1.TaskCancel{{Run: task(4, "").Run, Attempt: 1}}}
			}
		}
		if outcomes[4] != apiv1.Outcome_OUTCOME_STOPPED {
			t.Errorf("the cancelled task: %v", outcomes[4])
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		if got := fmt.Sprint(e.batches); got != "[[2 3 4] [6 7]]" || !slices.Equal(alone, []byte{1, 5}) {
			t.Errorf("calls with several %s, and alone %v", got, alone)
		}
	})
}
