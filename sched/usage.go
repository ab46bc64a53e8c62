package sched

import (
	"time"

	"github.com/wheelworkhq/wheelwork/job"
)

// usage is what an app had of the hosts' time, for weighted fair queueing: the app
// that had least for its weight is served first. The zero value has had nothing.
type usage struct {
	used time.Duration // of slots, divided by the weight
}

// leastCharge is what a run costs at least: its way to a host and back.
const leastCharge = 50 * time.Microsecond

// weight is an app's share beside others. It is 1 or more.
func (a *app) weight() time.Duration {
	return time.Duration(max(a.slots[job.ModuleSlot].Settings.GetWeight(), 1))
}

// join has an app begin that had no runs to dispatch: it does not catch up on the time
// in which it wanted nothing. served is what the app that is served now has used.
func (u *usage) join(served time.Duration) { u.used = max(u.used, served) }

// charge counts a run of that pace when it is sent. A job that was not measured counts
// as one that is just slow.
func (u *usage) charge(pace uint8, weight time.Duration) { u.used += cost(pace) / weight }

// settle corrects what a run was charged when it has ended.
func (u *usage) settle(pace uint8, took, weight time.Duration) {
	u.used += (max(took, leastCharge) - cost(pace)) / weight
}

func cost(pace uint8) time.Duration {
	if pace == 0 {
		return slowAfter
	}
	return max(paceTimes[pace], leastCharge)
}

// byUsage is a heap of apps, the one that had least first.
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
