package fair

import (
	"maps"
	"slices"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/prefetch"
	"github.com/wheelworkhq/wheelwork/job"
)

// Queue is the queue of an app's runs that may be dispatched. Higher priorities come
// first. Within a priority, runs that different hosts can execute have levels of their own, so
// that none waits behind a run whose hosts are full. The levels of a priority share the hosts that
// can execute both. Within a level the jobs take turns, so that very many runs of one job do not
// delay those of another; the runs of a job keep their order. Runs of quick jobs are in a
// lane of their own, because a host may take them when it takes no slow ones. Entries may
// be stale: the reader checks the state of the run.
type Queue struct {
	levels []*Level // by falling priority; the empty ones are removed when there are many
	n      int      // entries
	Armed  int      // entries of runs that were armed when they were pushed
}

// Level has the runs of one priority that need the same of a host.
type Level struct {
	priority int32
	needs    string  // see [job.Shape]
	usage    Usage   // of the runs of the level that were dispatched
	Lanes    [2]Lane // by QuickLane and slowLane
}

func (lv *Level) empty() bool { return lv.Lanes[QuickLane].n+lv.Lanes[slowLane].n == 0 }

// The lanes of a level.
const (
	QuickLane = iota // of runs of quick jobs, see [IsQuick]
	slowLane
)

// TurnOf is the number of runs of a job that leave the queue in one turn of the job, by
// lane.
var TurnOf = [2]int{QuickLane: 16, slowLane: 1}

// Push adds a run, to the lane of quick or of slow runs of its priority.
func (q *Queue) Push(r *job.Run, quick bool) {
	q.n++
	if r.State == job.Armed {
		q.Armed++
	}
	at := slowLane
	if quick {
		at = QuickLane
	}
	lv := q.level(r)
	if lv.empty() {
		q.join(lv)
	}
	lanes := &lv.Lanes
	if lanes[at].n == 0 {
		lanes[at].Usage.Join(lanes[1-at].Usage.Used)
	}
	lanes[at].push(r)
}

// Charge charges the level and the lane of a run of that pace when it is dispatched.
func (q *Queue) Charge(r *job.Run, pace uint8) {
	lv := q.level(r)
	lv.usage.Charge(pace, 1)
	lv.lane(pace).Usage.Charge(pace, 1)
}

// Correct replaces the expected cost of a run of that pace by its real cost when it has ended.
func (q *Queue) Correct(r *job.Run, pace uint8, took time.Duration) {
	lv := q.level(r)
	lv.usage.Correct(pace, took, 1)
	lv.lane(pace).Usage.Correct(pace, took, 1)
}

func (lv *Level) lane(pace uint8) *Lane {
	if IsQuick(pace) {
		return &lv.Lanes[QuickLane]
	}
	return &lv.Lanes[slowLane]
}

// SlowIsNext reports whether the slow runs of a level of the highest priority in the queue have
// used no more time than its quick runs. It is false if that priority has no slow runs.
func (q *Queue) SlowIsNext() bool {
	top := (*Level)(nil)
	for _, lv := range q.levels {
		switch {
		case lv.empty():
		case top != nil && lv.priority < top.priority:
			return false
		case lv.Lanes[slowLane].n > 0:
			return lv.Lanes[slowLane].Usage.Used <= lv.Lanes[QuickLane].Usage.Used
		default:
			top = lv
		}
	}
	return false
}

// Levels returns the levels in the order in which they are served: by falling priority, and within
// a priority the one that has used the least time first. The result is valid until the queue changes.
func (q *Queue) Levels() []*Level {
	for i := 1; i < len(q.levels); i++ { // they are nearly sorted
		for k := i; k > 0 && q.levels[k].priority == q.levels[k-1].priority && q.levels[k].usage.Used < q.levels[k-1].usage.Used; k-- {
			q.levels[k], q.levels[k-1] = q.levels[k-1], q.levels[k]
		}
	}
	return q.levels
}

// maxEmpty is the number of levels from which on a new one takes the place of those that are empty.
const maxEmpty = 32

// level returns the level of a run, and makes it if it is missing.
func (q *Queue) level(r *job.Run) *Level {
	priority, needs := r.Policy.Priority, r.Shape().Needs
	i := 0
	for ; i < len(q.levels) && q.levels[i].priority >= priority; i++ {
		if q.levels[i].priority == priority && q.levels[i].needs == needs {
			return q.levels[i]
		}
	}
	lv := &Level{priority: priority, needs: needs}
	all := make([]*Level, 0, len(q.levels)+1) // a reader may go through the old ones
	all = append(append(append(all, q.levels[:i]...), lv), q.levels[i:]...)
	if len(all) > maxEmpty {
		all = slices.DeleteFunc(all, func(old *Level) bool { return old != lv && old.empty() })
	}
	q.levels = all
	return lv
}

// join lets a level that was empty begin with no less time than the levels of its priority that
// have runs: it gets no credit for its idle time.
func (q *Queue) join(lv *Level) {
	least := time.Duration(-1)
	for _, other := range q.levels {
		if other.priority == lv.priority && !other.empty() && (least < 0 || other.usage.Used < least) {
			least = other.usage.Used
		}
	}
	if least >= 0 {
		lv.usage.Join(least)
	}
}

// Len returns the number of entries.
func (q *Queue) Len() int { return q.n }

// Pop removes and returns the next run of a lane of q that is not empty. turn is the
// number of runs of a job in one turn.
func (q *Queue) Pop(ln *Lane, turn int) *job.Run {
	q.n--
	w := ln.pop(turn)
	if w.armed {
		q.Armed--
	}
	return w.run
}

// Fronts yields a run at the front of each level that has runs, those of the highest priority first.
func (q *Queue) Fronts(yield func(*job.Run) bool) {
	for _, lv := range q.levels {
		r := lv.Lanes[QuickLane].Peek()
		if r == nil {
			r = lv.Lanes[slowLane].Peek()
		}
		if r != nil && !yield(r) {
			return
		}
	}
}

// Lane is a ring of the turns of jobs. The turn of a job with one run has that run
// itself; only a job with more runs needs a jobQueue. The zero value is empty.
type Lane struct {
	Usage  Usage  // of the runs of the lane that were dispatched
	turns  []turn // a ring with n turns from head on; its length is a power of two
	head   int
	n      int
	queues map[*job.Job]*jobQueue
	taken  int // runs that have left the queue in the turn at the front
}

// turn is an entry of a lane: one run, or the queue of one job.
type turn struct {
	waiting           // the run, if queue is nil
	queue   *jobQueue // nil: there is only one run
}

type waiting struct {
	run   *job.Run
	armed bool // state of the run when it was pushed
}

// jobQueue is the queue of the runs of one job in a lane, from head on.
type jobQueue struct {
	job  *job.Job
	runs []waiting
	head int
}

// hasTurn is the bit of [job.Job.Mark] that is set while a lane may have a turn of the job.
const hasTurn = 1 << 7

// Len returns the number of turns; 0: the lane is empty.
func (ln *Lane) Len() int { return ln.n }

func (ln *Lane) push(r *job.Run) {
	w, j := waiting{r, r.State == job.Armed}, r.Owner()
	if j.Mark&hasTurn == 0 {
		j.Mark |= hasTurn
		ln.add(turn{waiting: w})
		return
	}
	if queue := ln.queues[j]; queue != nil {
		queue.runs = append(queue.runs, w)
		return
	}
	// The job may have a turn with its first run, here or in another lane. It gets a
	// second turn for its further runs.
	queue := &jobQueue{job: j, runs: []waiting{w}}
	if ln.queues == nil {
		ln.queues = map[*job.Job]*jobQueue{}
	}
	ln.queues[j] = queue
	ln.add(turn{queue: queue})
}

func (ln *Lane) add(t turn) {
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
func (ln *Lane) pass() turn {
	t := ln.turns[ln.head]
	ln.turns[ln.head] = turn{}
	ln.head = (ln.head + 1) & (len(ln.turns) - 1)
	ln.taken = 0
	if ln.n--; ln.n == 0 && len(ln.turns) > 1<<12 { // free the memory that a burst needed
		ln.turns, ln.head = nil, 0
	}
	return t
}

// Peek returns the run at the front; nil: the lane is empty.
func (ln *Lane) Peek() *job.Run {
	if ln.n == 0 {
		return nil
	}
	if t := &ln.turns[ln.head]; t.queue == nil {
		return t.run
	} else {
		return t.queue.runs[t.queue.head].run
	}
}

// pop removes and returns the next run. After turn runs of a job, the job goes to the end
// of the ring.
func (ln *Lane) pop(turn int) waiting {
	queue := ln.turns[ln.head].queue
	if queue == nil {
		t := ln.pass()
		if ln.queues[t.run.Owner()] == nil {
			t.run.Owner().Mark &^= hasTurn
		}
		return t.waiting
	}
	w := queue.runs[queue.head]
	queue.runs[queue.head] = waiting{}
	if queue.head++; queue.head > 1024 && queue.head > len(queue.runs)/2 {
		n := copy(queue.runs, queue.runs[queue.head:])
		clear(queue.runs[n:])
		queue.runs, queue.head = queue.runs[:n], 0
	}
	switch ln.taken++; {
	case queue.head == len(queue.runs):
		ln.pass()
		delete(ln.queues, queue.job)
		queue.job.Mark &^= hasTurn
	case ln.taken >= turn:
		ln.add(ln.pass())
	}
	return w
}

// Prefetch prefetches the next n runs, at most [prefetch.Group], before they are
// dispatched: they were accepted a while ago.
func (ln *Lane) Prefetch(n int) {
	var near [prefetch.Group]*job.Run
	i := 0
	for k := 0; k < ln.n && i < n; k++ {
		t := &ln.turns[(ln.head+k)&(len(ln.turns)-1)]
		if t.queue == nil {
			near[i] = t.run
			i++
			continue
		}
		for _, w := range t.queue.runs[t.queue.head:min(t.queue.head+min(n-i, TurnOf[QuickLane]), len(t.queue.runs))] {
			near[i] = w.run
			i++
		}
	}
	job.PrefetchRuns(near[:i])
}

// Coming has the minutes, since 1970, in which jobs of an app are planned. It may contain
// planned times that were given up since.
type Coming map[int64]struct{}

func minuteOf(ms int64) int64 { return ms / time.Minute.Milliseconds() }

// Add records a planned time.
func (c *Coming) Add(ms int64) {
	if *c == nil {
		*c = Coming{}
	}
	(*c)[minuteOf(ms)] = struct{}{}
}

// Forget drops the minutes before the given one.
func (c Coming) Forget(before int64) {
	maps.DeleteFunc(c, func(m int64, _ struct{}) bool { return m < before })
}

// Within reports whether a time in the current minute or in the next one is planned.
func (c Coming) Within(nowMs int64) bool {
	at := minuteOf(nowMs)
	_, now := c[at]
	_, next := c[at+1]
	return now || next
}
