package session

import (
	goruntime "runtime"
	"time"
)

// cpuMeter tells how much of the machine's processors this process uses.
type cpuMeter struct {
	at   time.Time
	used time.Duration
}

func newCPUMeter(now time.Time) *cpuMeter { return &cpuMeter{now, cpuTime()} }

// share returns the share of all processors, 0 to 1, that the process used since
// the last call.
func (m *cpuMeter) share(now time.Time) float64 {
	used := cpuTime()
	wall := now.Sub(m.at)
	spent := used - m.used
	m.at, m.used = now, used
	if wall <= 0 || spent <= 0 {
		return 0
	}
	return min(spent.Seconds()/wall.Seconds()/float64(goruntime.NumCPU()), 1)
}
