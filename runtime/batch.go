package runtime

import (
	"context"
	"time"
)

// Item is one task of a batch.
type Item struct {
	Ctx     context.Context // cancels only this task, like the context of Run
	Task    Task
	Timeout time.Duration // of the task; Begin derives Deadline from it. 0: Deadline holds
	Sink    Sink
	Result  Result // set when RunBatch returns
}

// Begin sets the deadline of a task that starts now. An executor calls it for each task
// of a batch, so that the time of one task is not charged to the tasks behind it.
func (i *Item) Begin(now time.Time) {
	if i.Timeout > 0 {
		i.Task.Deadline = now.Add(i.Timeout)
	}
}

// BatchExecutor is an Executor that can run several tasks in one call of the guest.
type BatchExecutor interface {
	Executor
	// Batches reports whether the handler of a loaded module takes several tasks in one
	// call. The caller runs tasks of other handlers one by one.
	Batches(digest, handler string) bool
	// RunBatch runs the items in their order and sets the Result of each. All tasks must
	// have the same app, module, handler, grants and limits. RunBatch calls the sinks
	// from the goroutine of its caller.
	RunBatch(items []*Item)
}
