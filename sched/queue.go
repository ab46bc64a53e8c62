package sched

import (
	"slices"
	"time"

	"github.com/wheelworkhq/wheelwork/job"
)

// ready holds the runs of an app that may be sent, the higher priorities first,
// within one in the order in which they came.
type ready struct {
	levels []*level // by falling priority; few, and kept when empty
	n      int
}

type level struct {
	priority int32
	fifo
}

func (q *ready) push(r *job.Run) {
	q.n++
	p := r.Policy.Priority
	i := 0
	for ; i < len(q.levels) && q.levels[i].priority >= p; i++ {
		if q.levels[i].priority == p {
			q.levels[i].push(r)
			return
		}
	}
	lv := &level{priority: p}
	lv.push(r)
	q.levels = slices.Insert(q.levels, i, lv)
}

func (q *ready) len() int { return q.n }

// pop takes the next run; there must be one.
func (q *ready) pop() *job.Run {
	for _, lv := range q.levels {
		if lv.len() > 0 {
			q.n--
			return lv.pop()
		}
	}
	panic("sched: pop of an empty queue")
}

// peek returns what pop will take, or nil.
func (q *ready) peek() *job.Run {
	for _, lv := range q.levels {
		if lv.len() > 0 {
			return lv.runs[lv.head].run
		}
	}
	return nil
}

// fetch fetches what starting the next n runs, at most fetchAtOnce, will read: they
// were accepted a while ago.
func (q *ready) fetch(n int) {
	var near [fetchAtOnce]*job.Run
	var wanted [fetchAtOnce]job.WantedRun
	i := 0
	for _, lv := range q.levels {
		for _, w := range lv.runs[lv.head:min(lv.head+n-i, len(lv.runs))] {
			near[i] = w.run
			i++
		}
	}
	job.FetchRuns(near[:i])
	for i, r := range near[:i] {
		wanted[i] = job.WantedRun{Slot: r.Slot(), ID: r.ID}
	}
	job.FetchByID(wanted[:i])
}

// armed returns how many entries are of runs that were armed when they came.
func (q *ready) armed() int {
	n := 0
	for _, lv := range q.levels {
		n += lv.armed
	}
	return n
}

// fifo is a queue of runs. Entries may be stale; who takes one asks the state.
type fifo struct {
	runs  []waiting
	head  int
	armed int // entries of armed runs
}

type waiting struct {
	run   *job.Run
	armed bool // when it was put in line
}

func (q *fifo) push(r *job.Run) {
	w := waiting{r, r.State == job.Armed}
	if w.armed {
		q.armed++
	}
	q.runs = append(q.runs, w)
}

func (q *fifo) len() int { return len(q.runs) - q.head }

func (q *fifo) pop() *job.Run {
	w := q.runs[q.head]
	if w.armed {
		q.armed--
	}
	q.runs[q.head] = waiting{}
	q.head++
	switch {
	case q.head == len(q.runs):
		q.runs, q.head = q.runs[:0], 0
	case q.head > 4096 && q.head > len(q.runs)/2:
		n := copy(q.runs, q.runs[q.head:])
		clear(q.runs[n:])
		q.runs, q.head = q.runs[:n], 0
	}
	return w.run
}

// acceptance remembers runs in the order in which they were accepted, so that
// the newest live ones are found without looking at all. Ended runs drop out
// when half of it is ended.
type acceptance struct {
	entries []accepted
	next    uint64
}

type accepted struct {
	serial uint64 // Invariant: rises
	run    *job.Run
}

func (a *acceptance) push(r *job.Run) {
	if len(a.entries) >= 64 && len(a.entries) == cap(a.entries) {
		a.entries = slices.DeleteFunc(a.entries, func(e accepted) bool { return gone(e.run) })
	}
	a.next++
	a.entries = append(a.entries, accepted{a.next, r})
}

// gone reports whether a run has left its slot.
func gone(r *job.Run) bool { return r.State.Terminal() }

// maxWalk bounds the live runs that one page looks at.
const maxWalk = 100_000

// newest returns up to limit live runs that keep wants, newest first, that were
// accepted before the serial before (0: any). more tells where to go on; 0 is
// the end.
func (a *acceptance) newest(before uint64, limit int, keep func(*job.Run) bool) (runs []*job.Run, more uint64) {
	end := len(a.entries)
	if before > 0 {
		end, _ = slices.BinarySearchFunc(a.entries, before, func(e accepted, s uint64) int {
			switch {
			case e.serial < s:
				return -1
			case e.serial > s:
				return 1
			}
			return 0
		})
	}
	for i, walked := end-1, 0; i >= 0; i, walked = i-1, walked+1 {
		e := a.entries[i]
		if len(runs) == limit || walked == maxWalk {
			return runs, a.entries[i+1].serial
		}
		if !gone(e.run) && keep(e.run) {
			runs = append(runs, e.run)
		}
	}
	return runs, 0
}

// lateness keeps how late the last scheduled runs were dispatched.
type lateness struct {
	last [1024]time.Duration
	n    int
}

func (l *lateness) add(d time.Duration) {
	l.last[l.n%len(l.last)] = d
	l.n++
}

// quantiles returns the 50th and the 99th percentile, 0 when there is nothing.
func (l *lateness) quantiles() (p50, p99 time.Duration) {
	n := min(l.n, len(l.last))
	if n == 0 {
		return 0, 0
	}
	sorted := slices.Sorted(slices.Values(l.last[:n]))
	return sorted[n/2], sorted[n*99/100]
}

func byID(a, b *job.Run) int { return slices.Compare(a.ID[:], b.ID[:]) }

// sortByID puts what was loaded in the order of its planned times.
func (a *acceptance) sortByID() {
	slices.SortFunc(a.entries, func(x, y accepted) int { return byID(x.run, y.run) })
	for i := range a.entries {
		a.entries[i].serial = uint64(i) + 1
	}
}
