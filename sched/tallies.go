package sched

import (
	"slices"
	"time"

	"github.com/wheelworkhq/wheelwork/job"
)

// tallies are the jobs whose runs have ended since their stats were written.
// There may be as many as runs, and none of them is lost when they are written
// late: what the stats have not counted is counted from the history after a
// restart. So they are written when there is nothing better to do, or when that
// would be too much to count.
type tallies struct {
	groups []tallyGroup
	n      int   // jobs in groups
	from   int64 // what the store says of groups[0].from
}

// tallyGroup are the jobs of one capture. Some may have been written meanwhile,
// with the mark isCounted taken off.
type tallyGroup struct {
	jobs []*job.Job
	from int64 // the length of the history before the first of their runs
}

const (
	// maxUncounted is how much history there may be behind the first run that is missing
	// in the stats, bytes, while there is something better to do: after a crash so much is
	// read, and what came while stats that were overdue were written.
	maxUncounted = 1 << 30
	// overdueRate is how many of those are written then in a second: few enough that a
	// server under load hardly notices.
	overdueRate = 10_000
)

// overdue returns how many stats are to be written although there is something better
// to do, when the history has that length and the last ones were written so long ago.
func (t *tallies) overdue(length int64, since time.Duration) int {
	if length-t.groups[0].from <= maxUncounted {
		return 0
	}
	return int(overdueRate * since.Seconds())
}

// write hands up to left stats that wait to fn, the oldest first, and returns up to
// which length of the history no run is missing in any.
func (t *tallies) write(left int, fn func(*job.Job)) (from int64) {
	for left > 0 && t.n > 0 {
		g := &t.groups[0]
		n := min(left, len(g.jobs))
		for near := range slices.Chunk(g.jobs[:n], fetchAtOnce) {
			job.Fetch(near)
			for _, j := range near {
				if j.Mark&isCounted != 0 && j.Current() {
					fn(j)
				}
			}
		}
		g.jobs = g.jobs[n:]
		left, t.n = left-n, t.n-n
		if len(g.jobs) > 0 {
			break
		}
		t.groups = t.groups[1:]
		if len(t.groups) == 0 { // of this capture are none left: the next one begins behind it
			t.groups = append(t.groups, tallyGroup{from: g.from})
			break
		}
	}
	return t.groups[0].from
}

// begin begins a group: the history is length bytes long before its runs.
func (t *tallies) begin(length int64) {
	if last := &t.groups[len(t.groups)-1]; len(last.jobs) == 0 {
		last.from = length
		return
	}
	t.groups = append(t.groups, tallyGroup{from: length})
}
