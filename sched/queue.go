package sched

import (
	"slices"
	"time"

	"github.com/wheelworkhq/wheelwork/job"
)

// ready holds the runs of an app that may be sent. Higher priorities come first.
// Within one, jobs take turns, so that very many runs of one job do not keep those of
// another waiting; the runs of a job keep their order. Runs of quick jobs are in a
// lane of their own: they may be sent when slow ones may not. An entry may be stale;
// the state of its run says what holds.
type ready struct {
	levels []*level // by falling priority; few, and kept when empty
	n      int
	armed  int // entries of runs that were armed when they came
}

type level struct {
	priority int32
	lanes    [2]lane // of quick runs, and of all others
}

const (
	quickLane = iota
	slowLane
)

// turnOf is how many runs of a job go in one turn, by lane.
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

// slowIsNext reports whether slow runs had less time than quick ones of their priority:
// of the highest priority of which there are slow ones.
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

// pop takes the next run of a lane, which is one of q's and not empty.
func (q *ready) pop(ln *lane, turn int) *job.Run {
	q.n--
	w := ln.pop(turn)
	if w.armed {
		q.armed--
	}
	return w.run
}

// peek returns a run that is near the front, or nil when there is none.
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

// lane is the turns of jobs. A job with one run in it is in turns with that run; only a
// job with more has a line. The zero lane is empty.
type lane struct {
	usage usage  // of the runs of the lane, as far as they were sent
	turns []turn // a ring: n from head on
	head  int
	n     int
	lines map[*job.Job]*jobLine
	taken int // runs that went in the turn at the front
}

// turn is the place of a job.
type turn struct {
	waiting          // when line is nil
	line    *jobLine // nil: there is one run
}

type waiting struct {
	run   *job.Run
	armed bool // when it was put in line
}

// jobLine is the runs of one job, in the order in which they came.
type jobLine struct {
	job  *job.Job
	runs []waiting
	head int
}

// isInLine is a mark of jobs: some lane may have a turn of it.
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
	// Its first run has a turn, here or in another lane: the job gets another one.
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

// pass takes the turn at the front out.
func (ln *lane) pass() turn {
	t := ln.turns[ln.head]
	ln.turns[ln.head] = turn{}
	ln.head = (ln.head + 1) & (len(ln.turns) - 1)
	ln.taken = 0
	if ln.n--; ln.n == 0 && len(ln.turns) > 1<<12 { // what a burst needed
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

// pop takes the next run. A job whose turn has that many goes behind the others.
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

// fetch fetches what starting the next n runs, at most fetchAtOnce, will read: they
// were accepted a while ago.
func (ln *lane) fetch(n int) {
	var near [fetchAtOnce]*job.Run
	var wanted [fetchAtOnce]job.WantedRun
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
	job.FetchRuns(near[:i])
	for k, r := range near[:i] {
		wanted[k] = job.WantedRun{Slot: r.Slot(), ID: r.ID}
	}
	job.FetchByID(wanted[:i])
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
