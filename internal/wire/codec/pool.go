package codec

import (
	"sync"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// A server or a host makes or reads one of these messages for each attempt, so the
// process reuses them.
var (
	tasks   pool[apiv1.Task]
	results pool[apiv1.TaskResult]
)

// NewTask returns an empty task, which may be one that was freed.
func NewTask() *apiv1.Task { return tasks.take() }

// FreeTasks clears tasks that were sent and returns them to the pool. The caller must
// not use them afterwards.
func FreeTasks(sent []*apiv1.Task) {
	for _, t := range sent {
		*t = apiv1.Task{} // Reset would also write the type of the message, from memory that is not in the cache
	}
	tasks.give(sent...)
}

// FreeTask clears a task and returns it to the pool. The caller must not use it
// afterwards; the values that its fields refer to remain valid.
func FreeTask(t *apiv1.Task) {
	*t = apiv1.Task{}
	tasks.give(t)
}

// NewResult returns an empty result, which may be one that was freed.
func NewResult() *apiv1.TaskResult { return results.take() }

// FreeResults clears results and returns them to the pool. The caller must not use them
// afterwards; the values that their fields refer to remain valid.
func FreeResults(received []*apiv1.TaskResult) {
	for _, r := range received {
		*r = apiv1.TaskResult{}
	}
	results.give(received...)
}

// A freeList holds unused messages for one processor.
type freeList[T any] struct {
	n    int
	each [64]*T
}

// A pool holds unused messages until the garbage collector runs. One goroutine takes
// most messages and another one returns them, so a [sync.Pool] of messages would move
// each message between processors; a pool moves whole free lists. Its methods may be
// called concurrently.
type pool[T any] struct {
	open sync.Pool // of *freeList[T]: the one that a processor takes from and returns to
	full sync.Pool // of *freeList[T], each with as many messages as it can hold
}

func (s *pool[T]) take() *T {
	r, _ := s.open.Get().(*freeList[T])
	if r == nil || r.n == 0 {
		if r, _ = s.full.Get().(*freeList[T]); r == nil {
			return new(T)
		}
	}
	r.n--
	m := r.each[r.n]
	r.each[r.n] = nil
	s.open.Put(r)
	return m
}

func (s *pool[T]) give(spare ...*T) {
	r, _ := s.open.Get().(*freeList[T])
	if r == nil {
		r = &freeList[T]{}
	}
	for _, m := range spare {
		if r.n == len(r.each) {
			s.full.Put(r)
			r = &freeList[T]{}
		}
		r.each[r.n] = m
		r.n++
	}
	s.open.Put(r)
}
