package session

import "time"

// cpuMeter measures the load of the processors that this process may use: those of the
// machine, whichever programs use them, and those of its control group if the group has a
// limit. The load includes commands, plugins and other programs, because a run on this
// host shares the processors with them.
type cpuMeter struct {
	read func(now time.Time) cpuTimes
	last cpuTimes
}

// cpuTimes are counters, read at one time. A counter that the system does not provide is
// zero.
type cpuTimes struct {
	at        time.Time
	busy, all uint64        // of all processors of the machine together, in a unit of the operating system
	used      time.Duration // by the control group
	limit     float64       // processors that the control group may use; 0: no limit
}

func newCPUMeter(now time.Time) *cpuMeter {
	return &cpuMeter{read: readCPU, last: readCPU(now)}
}

// share returns the used share of the processors since the last call, 0 to 1.
func (m *cpuMeter) share(now time.Time) float64 {
	was, is := m.last, m.read(now)
	m.last = is
	share := 0.0
	if is.all > was.all && is.busy > was.busy {
		share = float64(is.busy-was.busy) / float64(is.all-was.all)
	}
	if wall := is.at.Sub(was.at); is.limit > 0 && wall > 0 && is.used > was.used {
		share = max(share, (is.used-was.used).Seconds()/wall.Seconds()/is.limit)
	}
	return min(share, 1)
}
