package session

import (
	"math"
	"testing"
	"time"
)

// TestCPUMeter: the share is the higher one of the machine and of a limited control
// group, and it is between 0 and 1 whatever the system reports.
func TestCPUMeter(t *testing.T) {
	start := time.Now()
	at := func(s float64, c cpuTimes) cpuTimes {
		c.at = start.Add(time.Duration(s * float64(time.Second)))
		return c
	}
	for name, x := range map[string]struct {
		was, is cpuTimes
		want    float64
	}{
		"an idle machine":       {at(0, cpuTimes{busy: 10, all: 1000}), at(2, cpuTimes{busy: 10, all: 1400}), 0},
		"half of the machine":   {at(0, cpuTimes{busy: 10, all: 1000}), at(2, cpuTimes{busy: 210, all: 1400}), 0.5},
		"a group at its limit":  {at(0, cpuTimes{busy: 10, all: 1000, limit: 0.5}), at(2, cpuTimes{busy: 50, all: 1400, limit: 0.5, used: time.Second}), 1},
		"a group over it":       {at(0, cpuTimes{limit: 0.5}), at(2, cpuTimes{limit: 0.5, used: 3 * time.Second}), 1},
		"a busy neighbour":      {at(0, cpuTimes{all: 1000, limit: 1}), at(2, cpuTimes{busy: 360, all: 1400, limit: 1, used: time.Millisecond}), 0.9},
		"no limit":              {at(0, cpuTimes{all: 1000}), at(2, cpuTimes{busy: 40, all: 1400, used: 9 * time.Second}), 0.1},
		"nothing is told":       {at(0, cpuTimes{}), at(2, cpuTimes{}), 0},
		"counters that go back": {at(0, cpuTimes{busy: 500, all: 1000, used: time.Hour, limit: 1}), at(2, cpuTimes{busy: 10, all: 20, limit: 1}), 0},
		"no time has passed":    {at(0, cpuTimes{busy: 1, all: 2, limit: 1}), at(0, cpuTimes{busy: 1, all: 2, limit: 1, used: time.Second}), 0},
	} {
		m := &cpuMeter{last: x.was, read: func(time.Time) cpuTimes { return x.is }}
		if got := m.share(x.is.at); math.Abs(got-x.want) > 0.001 {
			t.Errorf("%s: %v, want %v", name, got, x.want)
		}
		if got := m.share(x.is.at); got != 0 {
			t.Errorf("%s: %v when nothing has changed since", name, got)
		}
	}
}
