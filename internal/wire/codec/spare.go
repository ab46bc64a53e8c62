package codec

import (
	"sync"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// The messages of which a server or a host makes or reads one for each attempt:
// they are used again.
var (
	tasks   stock[apiv1.Task]
	results stock[apiv1.TaskResult]
)

// NewTask returns an empty task, which may be one that was freed.
func NewTask() *apiv1.Task { return tasks.take() }

// FreeTasks takes back tasks that were sent. Nobody uses them any more.
func FreeTasks(sent []*apiv1.Task) {
	for _, t := range sent {
		*t = apiv1.Task{} // Reset would also note its type, and wait for all memory on the way
	}
	tasks.give(sent...)
}

// FreeTask takes back a task that nobody uses any more. What its fields refer to
// stays.
func FreeTask(t *apiv1.Task) {
	*t = apiv1.Task{}
	tasks.give(t)
}

// NewResult returns an empty result, which may be one that was freed.
func NewResult() *apiv1.TaskResult { return results.take() }

// FreeResults takes back results. Nobody uses them any more; what their fields refer
// to stays.
func FreeResults(received []*apiv1.TaskResult) {
	for _, r := range received {
		*r = apiv1.TaskResult{}
	}
	results.give(received...)
}

// A rack holds spare messages.
type rack[T any] struct {
	n    int
	each [64]*T
}

// A stock keeps spare messages until the collector runs. Those who take are seldom
// those who give, so a [sync.Pool] of messages would hand each from processor to
// processor by itself; here whole racks go. Its methods may be called at once.
type stock[T any] struct {
	open sync.Pool // of *rack[T]: the one that a processor takes from and gives to
	full sync.Pool // of *rack[T]
}

func (s *stock[T]) take() *T {
	r, _ := s.open.Get().(*rack[T])
	if r == nil || r.n == 0 {
		if r, _ = s.full.Get().(*rack[T]); r == nil {
			return new(T)
		}
	}
	r.n--
	m := r.each[r.n]
	r.each[r.n] = nil
	s.open.Put(r)
	return m
}

func (s *stock[T]) give(spare ...*T) {
	r, _ := s.open.Get().(*rack[T])
	if r == nil {
		r = &rack[T]{}
	}
	for _, m := range spare {
		if r.n == len(r.each) {
			s.full.Put(r)
			r = &rack[T]{}
		}
		r.each[r.n] = m
		r.n++
	}
	s.open.Put(r)
}
