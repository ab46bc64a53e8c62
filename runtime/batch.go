package runtime

import "context"

// Item is one task of a batch.
type Item struct {
	Ctx    context.Context // ends this task alone, as Run's does
	Task   Task
	Sink   Sink
	Result Result // set when RunBatch returns
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
