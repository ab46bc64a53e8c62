package sched

import (
	"time"

	"github.com/wheelworkhq/wheelwork/job"
)

// usage is the time of hosts that an app has used, for weighted fair queueing: the
// scheduler serves the app with the least usage for its weight first. The zero value has
// used nothing.
type usage struct {
	used time.Duration // of execution slots, divided by the weight
}

// leastCharge is the minimum cost of a run: its way to a host and back.
const leastCharge = 50 * time.Microsecond

// weight returns the weight of an app, which is at least 1.
func (a *app) weight() time.Duration {
	return time.Duration(max(a.slots[job.ModuleSlot].Settings.GetWeight(), 1))
}

// join starts to count an app that had no runs to dispatch. The app gets no credit for its
// idle time, so its usage becomes at least served, the usage of the app that was served last.
func (u *usage) join(served time.Duration) { u.used = max(u.used, served) }

// charge adds the expected cost of a run when it is dispatched. A job without a measured
// duration costs slowAfter.
func (u *usage) charge(pace uint8, weight time.Duration) { u.used += cost(pace) / weight }

// correct replaces the expected cost of a run by its real cost when the run has ended.
func (u *usage) correct(pace uint8, took, weight time.Duration) {
	u.used += (max(took, leastCharge) - cost(pace)) / weight
}

func cost(pace uint8) time.Duration {
	if pace == 0 {
		return slowAfter
	}
	return max(paceTimes[pace], leastCharge)
}

// byUsage is a heap of apps, the app with the least usage first.
type byUsage []*app

func (s byUsage) Len() int           { return len(s) }
func (s byUsage) Less(i, j int) bool { return s[i].usage.used < s[j].usage.used }
func (s byUsage) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *byUsage) Push(x any)        { *s = append(*s, x.(*app)) }

func (s *byUsage) Pop() any {
	last := len(*s) - 1
	a := (*s)[last]
	*s = (*s)[:last]
	return a
}
