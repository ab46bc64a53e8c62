package fair

import (
	"time"
)

// App is what fair queueing knows of an app. The loop owns it.
type App struct {
	Name   string
	Queue  Queue // queued runs; entries may be stale
	Usage  Usage
	Coming Coming
	Listed bool // the app is among those with runs to dispatch

	AtHosts int // its runs that hosts have
}

// Usage is the time of hosts that an app has used, for weighted fair queueing: the
// scheduler serves the app with the least usage for its weight first. The zero value has
// used nothing.
type Usage struct {
	Used time.Duration // of execution slots, divided by the weight
}

// leastCharge is the minimum cost of a run: its way to a host and back.
const leastCharge = 50 * time.Microsecond

// Join starts to count an app that had no runs to dispatch. The app gets no credit for its
// idle time, so its usage becomes at least served, the usage of the app that was served last.
func (u *Usage) Join(served time.Duration) { u.Used = max(u.Used, served) }

// Charge adds the expected cost of a run when it is dispatched. A job without a measured
// duration costs slowAfter.
func (u *Usage) Charge(pace uint8, weight time.Duration) { u.Used += cost(pace) / weight }

// Correct replaces the expected cost of a run by its real cost when the run has ended.
func (u *Usage) Correct(pace uint8, took, weight time.Duration) {
	u.Used += (max(took, leastCharge) - cost(pace)) / weight
}

func cost(pace uint8) time.Duration {
	if pace == 0 {
		return slowAfter
	}
	return max(Times[pace], leastCharge)
}

// ByUsage is a heap of apps, the app with the least usage first.
type ByUsage []*App

func (s ByUsage) Len() int           { return len(s) }
func (s ByUsage) Less(i, j int) bool { return s[i].Usage.Used < s[j].Usage.Used }
func (s ByUsage) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *ByUsage) Push(x any)        { *s = append(*s, x.(*App)) }

func (s *ByUsage) Pop() any {
	last := len(*s) - 1
	a := (*s)[last]
	*s = (*s)[:last]
	return a
}
