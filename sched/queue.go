package sched

import (
	"slices"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/prefetch"
	"github.com/wheelworkhq/wheelwork/job"
)

// ready is the queue of an app's runs that may be dispatched. Higher priorities come
// first. Within a priority the jobs take turns, so that very many runs of one job do not
// delay those of another; the runs of a job keep their order. Runs of quick jobs are in a
// lane of their own, because a host may take them when it takes no slow ones. Entries may
// be stale: the reader checks the state of the run.
type ready struct {
	levels []*level // by falling priority; few, and not removed when empty
	n      int      // entries
	armed  int      // entries of runs that were armed when they were pushed
}

type level struct {
	priority int32
	lanes    [2]lane // by quickLane and slowLane
}

const (
	quickLane = iota
	slowLane
)

// turnOf is the number of runs of a job that leave the queue in one turn of the job, by
// lane.
var turnOf = [2]int{quickLane: 16, slowLane: 1}

func (q *ready) push(r *job.Run, quick bool) {
	q.n++
	if r.State == job.Armed {
		q.armed++
	}
	at := slowLane
	if quick {
		at = quickLane
	}
	lanes := &q.level(r.Policy.Priority).lanes
	if lanes[at].n == 0 {
		lanes[at].usage.join(lanes[1-at].usage.used)
	}
	lanes[at].push(r)
}

// lane returns the lane of runs of that pace and of the priority of r.
func (q *ready) lane(r *job.Run, pace uint8) *lane {
	lv := q.level(r.Policy.Priority)
	if isQuick(pace) {
		return &lv.lanes[quickLane]
	}
	return &lv.lanes[slowLane]
}

// slowIsNext reports whether the slow runs of the highest priority in the queue have used
// no more time than the quick runs of that priority. It is false if that priority has no
// slow runs.
func (q *ready) slowIsNext() bool {
	for _, lv := range q.levels {
		if lv.lanes[slowLane].n > 0 {
			return lv.lanes[slowLane].usage.used <= lv.lanes[quickLane].usage.used
		}
		if lv.lanes[quickLane].n > 0 {
			return false
		}
	}
	return false
}

func (q *ready) level(priority int32) *level {
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

func (q *ready) len() int { return q.n }

// pop removes and returns the next run of a lane of q that is not empty. turn is the
// number of runs of a job in one turn.
func (q *ready) pop(ln *lane, turn int) *job.Run {
	q.n--
	w := ln.pop(turn)
	if w.armed {
		q.armed--
	}
	return w.run
}

// peek returns a run at the front of a lane of the highest priority; nil: q is empty.
func (q *ready) peek() *job.Run {
	for _, lv := range q.levels {
		for i := range lv.lanes {
			if r := lv.lanes[i].peek(); r != nil {
				return r
			}
		}
	}
	return nil
}

// lane is a ring of the turns of jobs. The turn of a job with one run has that run
// itself; only a job with more runs needs a jobLine. The zero value is empty.
type lane struct {
	usage usage  // of the runs of the lane that were dispatched
	turns []turn // a ring with n turns from head on; its length is a power of two
	head  int
	n     int
	lines map[*job.Job]*jobLine
	taken int // runs that have left the queue in the turn at the front
}

// turn is an entry of a lane: one run, or the queue of one job.
type turn struct {
	waiting          // the run, if line is nil
	line    *jobLine // nil: there is only one run
}

type waiting struct {
	run   *job.Run
	armed bool // state of the run when it was pushed
}

// jobLine is the queue of the runs of one job in a lane, from head on.
type jobLine struct {
	job  *job.Job
	runs []waiting
	head int
}

// isInLine is a mark of jobs: a lane may have a turn of the job.
const isInLine = 1 << 6

func (ln *lane) len() int { return ln.n }

func (ln *lane) push(r *job.Run) {
	w, j := waiting{r, r.State == job.Armed}, r.Owner()
	if j.Mark&isInLine == 0 {
		j.Mark |= isInLine
		ln.add(turn{waiting: w})
		return
	}
	if line := ln.lines[j]; line != nil {
		line.runs = append(line.runs, w)
		return
	}
	// The job may have a turn with its first run, here or in another lane. It gets a
	// second turn for its further runs.
	line := &jobLine{job: j, runs: []waiting{w}}
	if ln.lines == nil {
		ln.lines = map[*job.Job]*jobLine{}
	}
	ln.lines[j] = line
	ln.add(turn{line: line})
}

func (ln *lane) add(t turn) {
	if ln.n == len(ln.turns) {
		turns := make([]turn, max(16, 2*ln.n))
		k := copy(turns, ln.turns[ln.head:])
		copy(turns[k:], ln.turns[:ln.head])
		ln.turns, ln.head = turns, 0
	}
	ln.turns[(ln.head+ln.n)&(len(ln.turns)-1)] = t
	ln.n++
}

// pass removes and returns the turn at the front.
func (ln *lane) pass() turn {
	t := ln.turns[ln.head]
	ln.turns[ln.head] = turn{}
	ln.head = (ln.head + 1) & (len(ln.turns) - 1)
	ln.taken = 0
	if ln.n--; ln.n == 0 && len(ln.turns) > 1<<12 { // free the memory that a burst needed
		ln.turns, ln.head = nil, 0
	}
	return t
}

func (ln *lane) peek() *job.Run {
	if ln.n == 0 {
		return nil
	}
	if t := &ln.turns[ln.head]; t.line == nil {
		return t.run
	} else {
		return t.line.runs[t.line.head].run
	}
}

// pop removes and returns the next run. After turn runs of a job, the job goes to the end
// of the ring.
func (ln *lane) pop(turn int) waiting {
	line := ln.turns[ln.head].line
	if line == nil {
		t := ln.pass()
		if ln.lines[t.run.Owner()] == nil {
			t.run.Owner().Mark &^= isInLine
		}
		return t.waiting
	}
	w := line.runs[line.head]
	line.runs[line.head] = waiting{}
	if line.head++; line.head > 1024 && line.head > len(line.runs)/2 {
		n := copy(line.runs, line.runs[line.head:])
		clear(line.runs[n:])
		line.runs, line.head = line.runs[:n], 0
	}
	switch ln.taken++; {
	case line.head == len(line.runs):
		ln.pass()
		delete(ln.lines, line.job)
		line.job.Mark &^= isInLine
	case ln.taken >= turn:
		ln.add(ln.pass())
	}
	return w
}

// prefetch prefetches the next n runs, at most [prefetch.Group], before they are
// dispatched: they were accepted a while ago.
func (ln *lane) prefetch(n int) {
	var near [prefetch.Group]*job.Run
	i := 0
	for k := 0; k < ln.n && i < n; k++ {
		t := &ln.turns[(ln.head+k)&(len(ln.turns)-1)]
		if t.line == nil {
			near[i] = t.run
			i++
			continue
		}
		for _, w := range t.line.runs[t.line.head:min(t.line.head+min(n-i, turnOf[quickLane]), len(t.line.runs))] {
			near[i] = w.run
			i++
		}
	}
	job.PrefetchRuns(near[:i])
}

// acceptance has live runs in the order in which they were accepted, so that a list finds
// the newest ones without reading all. When the slice is full, push drops the runs that
// have ended before it grows the slice.
type acceptance struct {
	entries []accepted
	next    uint64
}

type accepted struct {
	serial uint64 // Invariant: rises from entry to entry
	run    *job.Run
}

func (a *acceptance) push(r *job.Run) {
	if len(a.entries) >= 64 && len(a.entries) == cap(a.entries) {
		a.entries = slices.DeleteFunc(a.entries, func(e accepted) bool { return gone(e.run) })
	}
	a.next++
	a.entries = append(a.entries, accepted{a.next, r})
}

// gone reports whether a run has ended and left its slot.
func gone(r *job.Run) bool { return r.State.Terminal() }

// maxWalk bounds the entries that one page of a list examines.
const maxWalk = 100_000

// newest returns up to limit live runs for which keep returns true, newest first. If
// before is not 0, it returns only runs with a lower serial. more is the argument before
// for the next page; 0: there is none.
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

// lateness has the lateness of the last scheduled runs: the time from the planned time to
// the start of the handler.
type lateness struct {
	last [1024]time.Duration
	n    int
}

func (l *lateness) add(d time.Duration) {
	l.last[l.n%len(l.last)] = d
	l.n++
}

// quantiles returns the 50th and the 99th percentile; 0: no run was measured.
func (l *lateness) quantiles() (p50, p99 time.Duration) {
	n := min(l.n, len(l.last))
	if n == 0 {
		return 0, 0
	}
	sorted := slices.Sorted(slices.Values(l.last[:n]))
	return sorted[n/2], sorted[n*99/100]
}

func byID(a, b *job.Run) int { return slices.Compare(a.ID[:], b.ID[:]) }

// sortByID sorts the runs that were loaded by their planned times, with which their ids
// begin.
func (a *acceptance) sortByID() {
	slices.SortFunc(a.entries, func(x, y accepted) int { return byID(x.run, y.run) })
	for i := range a.entries {
		a.entries[i].serial = uint64(i) + 1
	}
}
