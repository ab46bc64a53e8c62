package session

import (
	"slices"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// queue holds the tasks that wait for a slot, those included that sleep no longer and
// need one again. Higher priorities go first. Within one, tasks of quick jobs go before
// all others, which have a bound on their wait, see [maxPassed]; and apps take turns, so
// that very many tasks of one do not keep those of another waiting. Of one app, priority
// and lane the tasks keep their order. The zero queue is empty.
type queue struct {
	n      int
	wakers int      // of n: tasks that have slept
	levels []*level // by falling priority; few, and kept when empty
}

type level struct {
	priority int32
	lanes    [2]turns
}

const (
	quickLane = iota
	slowLane
)

// maxPassed is how long tasks of slow jobs wait while those of quick ones pass them. It is
// as much work as a server sends ahead.
const maxPassed = 100 * time.Millisecond

// isSlow reports whether a task is of a job that is slow, or was not measured.
func (t *task) isSlow() bool { return t.pace != apiv1.Pace_PACE_UNSPECIFIED }

func (t *task) lane() int {
	if t.isSlow() {
		return slowLane
	}
	return quickLane
}

func (q *queue) len() int { return q.n }

// timed reports whether take looks at the time.
func (q *queue) timed() bool {
	return slices.ContainsFunc(q.levels, func(lv *level) bool { return len(lv.lanes[slowLane].lines) > 0 })
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

// push adds a task, whose tenant is set.
func (q *queue) push(t *task) {
	q.level(t.priority).lanes[t.lane()].push(t)
	q.n++
	if t.sleep == waking {
		q.wakers++
	}
}

// take appends tasks that may start now to batch: up to n of quick jobs, or one of a slow
// job that the slots admit, or one that has slept, which is alone.
func (q *queue) take(batch []*task, n int, age time.Duration, s *slots) []*task {
	if q.n == 0 {
		return batch
	}
	from := len(batch)
	for _, lv := range q.levels {
		quick, slow := &lv.lanes[quickLane], &lv.lanes[slowLane]
		var first *task
		if len(slow.lines) > 0 {
			first = slow.first(s, age)
		}
		if first == nil || len(quick.lines) > 0 && age-first.arrived < maxPassed {
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

// remove takes out a task, if it is there.
func (q *queue) remove(t *task) {
	if q.level(t.priority).lanes[t.lane()].remove(t) {
		q.n--
		if t.sleep == waking {
			q.wakers--
		}
	}
}

// fresh takes out all tasks whose handlers have not started, and returns them.
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

// turns gives out tasks an app at a time, in turn. The zero turns are empty.
type turns struct {
	lines []*line           // of apps with tasks; the first is next
	of    map[*tenant]*line // those in lines
}

// line is the tasks of an app.
type line struct {
	tenant *tenant
	tasks  []*task
}

func (q *turns) push(t *task) {
	l := q.of[t.tenant]
	if l == nil {
		l = &line{tenant: t.tenant}
		if q.of == nil {
			q.of = map[*tenant]*line{}
		}
		q.of[l.tenant] = l
		q.lines = append(q.lines, l)
	}
	l.tasks = append(l.tasks, t)
}

// take appends up to n tasks to batch: those of the app whose turn it is, and as long
// as there are fewer, those of the next one. With apart, a task that has slept comes
// alone.
func (q *turns) take(batch []*task, n int, apart bool) []*task {
	from := len(batch)
	for n > 0 && len(q.lines) > 0 {
		l := q.lines[0]
		k := min(n, len(l.tasks))
		if apart {
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

// first returns the first task that the slots admit, by the turns of apps; nil: none.
func (q *turns) first(s *slots, age time.Duration) *task {
	for _, l := range q.lines {
		if s.admits(l.tasks[0], age) {
			return l.tasks[0]
		}
	}
	return nil
}

// next puts the app that was first behind the others, or takes it out if it has no tasks.
func (q *turns) next() {
	l := q.lines[0]
	q.lines = append(q.lines[:0], q.lines[1:]...) // apps are few
	if len(l.tasks) > 0 {
		q.lines = append(q.lines, l)
	} else {
		delete(q.of, l.tenant)
	}
}

// pass puts an app behind the others, if it has tasks.
func (q *turns) pass(t *tenant) {
	if l := q.of[t]; l != nil {
		i := slices.Index(q.lines, l)
		q.lines = append(slices.Delete(q.lines, i, i+1), l)
	}
}

// remove takes out a task, and reports whether it was there.
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
		q.lines = slices.DeleteFunc(q.lines, func(x *line) bool { return x == l })
	}
	return true
}
