package session

import (
	"slices"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// queue holds the tasks that wait for an execution slot, including tasks that have slept
// and need a slot again. Tasks of higher priority go first. Within a priority, tasks of
// quick jobs pass tasks of slow jobs for at most [maxPassed], and apps take turns, so that
// many tasks of one app do not delay those of another. Tasks with the same app, priority
// and lane keep their order. The zero queue is empty.
type queue struct {
	n      int
	wakers int      // tasks in n that have slept
	levels []*level // by descending priority; few, and retained when empty
}

type level struct {
	priority int32
	lanes    [2]turns
}

const (
	quickLane = iota
	slowLane
)

// maxPassed is how long tasks of quick jobs may pass a task of a slow job. It is the
// amount of work that a server prefetches to a host.
const maxPassed = 100 * time.Millisecond

// isSlow reports whether the job of a task is slow or has no measured duration.
func (t *task) isSlow() bool { return t.pace != apiv1.Pace_PACE_UNSPECIFIED }

func (t *task) lane() int {
	if t.isSlow() {
		return slowLane
	}
	return quickLane
}

func (q *queue) len() int { return q.n }

// timed reports whether the result of take depends on its argument age now.
func (q *queue) timed() bool {
	return slices.ContainsFunc(q.levels, func(lv *level) bool { return len(lv.lanes[slowLane].apps) > 0 })
}

func (q *queue) level(priority int32) *level {
	i := 0
	for ; i < len(q.levels) && q.levels[i].priority >= priority; i++ {
		if q.levels[i].priority == priority {
			return q.levels[i]
		}
	}
	lv := &level{priority: priority}
	q.levels = slices.Insert(q.levels, i, lv)
	return lv
}

// push adds a task. Its tenant must be set.
func (q *queue) push(t *task) {
	q.level(t.priority).lanes[t.lane()].push(t)
	q.n++
	if t.sleep == waking {
		q.wakers++
	}
}

// take appends tasks that may start now to batch: up to n tasks of quick jobs, or one task
// of a slow job that the slots admit, or one task that has slept.
func (q *queue) take(batch []*task, n int, age time.Duration, s *slots) []*task {
	if q.n == 0 {
		return batch
	}
	from := len(batch)
	for _, lv := range q.levels {
		quick, slow := &lv.lanes[quickLane], &lv.lanes[slowLane]
		var first *task
		if len(slow.apps) > 0 {
			first = slow.first(s, age)
		}
		if first == nil || len(quick.apps) > 0 && age-first.arrived < maxPassed {
			batch = quick.take(batch, n, q.wakers > 0)
		}
		if first != nil && len(batch) == from {
			slow.remove(first)
			slow.pass(first.tenant)
			batch = append(batch, first)
		}
		if len(batch) > from {
			break
		}
	}
	q.n -= len(batch) - from
	if len(batch) == from+1 && batch[from].sleep == waking {
		q.wakers--
	}
	return batch
}

// remove removes a task, if it is in the queue.
func (q *queue) remove(t *task) {
	if q.level(t.priority).lanes[t.lane()].remove(t) {
		q.n--
		if t.sleep == waking {
			q.wakers--
		}
	}
}

// fresh removes and returns all tasks whose handlers have not started.
func (q *queue) fresh() (all []*task) {
	for _, lv := range q.levels {
		for i := range lv.lanes {
			all = lv.lanes[i].take(all, q.n, false)
		}
	}
	*q = queue{levels: q.levels}
	return slices.DeleteFunc(all, func(t *task) bool {
		if t.sleep == waking {
			q.push(t)
		}
		return t.sleep == waking
	})
}

// turns is a round-robin queue of apps and their tasks. The zero value is empty.
type turns struct {
	apps []*appQueue           // of apps with tasks; the first is served next
	of   map[*tenant]*appQueue // the entries of apps by tenant
}

// appQueue has the tasks of one app, in the order of their arrival.
type appQueue struct {
	tenant *tenant
	tasks  []*task
}

func (q *turns) push(t *task) {
	l := q.of[t.tenant]
	if l == nil {
		l = &appQueue{tenant: t.tenant}
		if q.of == nil {
			q.of = map[*tenant]*appQueue{}
		}
		q.of[l.tenant] = l
		q.apps = append(q.apps, l)
	}
	l.tasks = append(l.tasks, t)
}

// take appends up to n tasks to batch, first those of the app whose turn it is, then those
// of the following apps. With sleptAlone, a task that has slept is the only one it appends.
func (q *turns) take(batch []*task, n int, sleptAlone bool) []*task {
	from := len(batch)
	for n > 0 && len(q.apps) > 0 {
		l := q.apps[0]
		k := min(n, len(l.tasks))
		if sleptAlone {
			switch i := slices.IndexFunc(l.tasks[:k], func(t *task) bool { return t.sleep == waking }); {
			case i > 0:
				n, k = i, i
			case i == 0 && len(batch) > from:
				return batch
			case i == 0:
				n, k = 1, 1
			}
		}
		batch = append(batch, l.tasks[:k]...)
		l.tasks = l.tasks[k:]
		n -= k
		q.next()
	}
	return batch
}

// first returns the first task of an app that the slots admit, in the order of turns; nil: none.
func (q *turns) first(s *slots, age time.Duration) *task {
	for _, l := range q.apps {
		if s.admits(l.tasks[0], age) {
			return l.tasks[0]
		}
	}
	return nil
}

// next moves the first app behind the others, or removes it if it has no tasks.
func (q *turns) next() {
	l := q.apps[0]
	q.apps = append(q.apps[:0], q.apps[1:]...) // apps are few
	if len(l.tasks) > 0 {
		q.apps = append(q.apps, l)
	} else {
		delete(q.of, l.tenant)
	}
}

// pass moves an app behind the others, if it has tasks.
func (q *turns) pass(t *tenant) {
	if l := q.of[t]; l != nil {
		i := slices.Index(q.apps, l)
		q.apps = append(slices.Delete(q.apps, i, i+1), l)
	}
}

// remove removes a task, and reports whether it was queued.
func (q *turns) remove(t *task) bool {
	l := q.of[t.tenant]
	if l == nil {
		return false
	}
	i := slices.Index(l.tasks, t)
	if i < 0 {
		return false
	}
	l.tasks = slices.Delete(l.tasks, i, i+1)
	if len(l.tasks) == 0 {
		delete(q.of, l.tenant)
		q.apps = slices.DeleteFunc(q.apps, func(x *appQueue) bool { return x == l })
	}
	return true
}
