package projection

import (
	"time"

	"github.com/wheelworkhq/wheelwork/job"
)

// deferredStats holds the jobs with runs that have ended since the job's stats were
// written: at most one entry per run. A late write loses nothing, because a restart
// counts from the history what the stats lack. So the loop writes the stats when it
// is idle, or when a restart would have too much to count.
type deferredStats struct {
	groups []statsGroup
	n      int   // jobs in groups
	from   int64 // the value of groups[0].from in the store
}

// statsGroup holds the jobs of one projection batch. A job without the mark isCounted
// has been written since.
type statsGroup struct {
	jobs []*job.Job
	from int64 // length of the history before the first of their runs, in bytes
}

const (
	// maxUncounted is the length of history after the first run that the stats lack, in
	// bytes, up to which a busy server writes no stats. It bounds what a restart after a
	// crash reads, apart from the history that grows while overdue stats are written.
	maxUncounted = 1 << 30
	// overdueRate is the number of overdue stats per second that a busy server writes:
	// few enough that a server under load hardly slows down.
	overdueRate = 10_000
)

// overdue returns the number of stats that even a busy server must write now. length is the
// length of the history in bytes, and since the time since the last projection batch.
func (d *deferredStats) overdue(length int64, since time.Duration) int {
	if length-d.groups[0].from <= maxUncounted {
		return 0
	}
	return int(overdueRate * since.Seconds())
}

// write passes up to left jobs to fn, the oldest first. It returns the length of the
// history up to which the stats have counted all runs.
func (d *deferredStats) write(left int, fn func(*job.Job)) (from int64) {
	for left > 0 && d.n > 0 {
		g := &d.groups[0]
		n := min(left, len(g.jobs))
		for _, j := range job.EachJob(g.jobs[:n]) {
			if j.Mark&isCounted != 0 && j.Current() {
				fn(j)
			}
		}
		g.jobs = g.jobs[n:]
		left, d.n = left-n, d.n-n
		if len(g.jobs) > 0 {
			break
		}
		d.groups = d.groups[1:]
		if len(d.groups) == 0 { // the group is empty: the next one begins where it ended
			d.groups = append(d.groups, statsGroup{from: g.from})
			break
		}
	}
	return d.groups[0].from
}

// begin starts a group for runs after the first length bytes of the history.
func (d *deferredStats) begin(length int64) {
	if last := &d.groups[len(d.groups)-1]; len(last.jobs) == 0 {
		last.from = length
		return
	}
	d.groups = append(d.groups, statsGroup{from: length})
}
