package runtime

import (
	"context"
	"time"
)

// Item is one task of a batch.
type Item struct {
	Ctx     context.Context // ends this task alone, as Run's does
	Task    Task
	Timeout time.Duration // of the task, from its own start: sets its Deadline then; 0: Deadline holds
	Sink    Sink
	Result  Result // set when RunBatch returns
}

// Begin sets the deadline of a task that begins now. An executor calls it for
// each task of a batch: what one takes is not taken from those behind it.
func (i *Item) Begin(now time.Time) {
	if i.Timeout > 0 {
		i.Task.Deadline = now.Add(i.Timeout)
	}
}

// BatchExecutor is an executor that can run tasks in one call of the guest.
type BatchExecutor interface {
	Executor
	// Batches says whether a handler of a loaded module takes several tasks in
	// one call; others are run one after another.
	Batches(digest, handler string) bool
	// RunBatch runs tasks of one app, module and handler, with the same grants
	// and limits, in their order, and sets the result of each. Sinks are called
	// from the goroutine that called it.
	RunBatch(items []*Item)
}
