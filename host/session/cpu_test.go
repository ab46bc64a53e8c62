package session

import (
	goruntime "runtime"
	"testing"
	"time"
)

func TestCPUMeter(t *testing.T) {
	if cpuTime() == 0 {
		t.Skip("this system does not tell a process its processor time")
	}
	start := time.Now()
	m := newCPUMeter(start)
	for cpuTime()-m.used < 20*time.Millisecond { // uses it up, however busy the machine is
	}
	// As if a second had passed: 20 ms and a little of it on one processor.
	got := m.share(start.Add(time.Second))
	if low := 0.02 / float64(goruntime.NumCPU()); got < low || got > 1 {
		t.Fatalf("share %v, want at least %v", got, low)
	}
	if got := m.share(m.at.Add(time.Hour)); got > 0.001 {
		t.Fatalf("share of an idle hour: %v", got)
	}
}
