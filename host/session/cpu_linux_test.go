package session

import (
	"os/exec"
	"testing"
	"time"
)

func TestReadCPU(t *testing.T) {
	busy, all := parseStat([]byte("cpu  10 1 20 500 30 2 3 4 0 0\ncpu0 5 0 10 250 15 1 1 2 0 0\n"))
	if busy != 40 || all != 570 {
		t.Errorf("stat: %d of %d", busy, all)
	}
	for _, damaged := range []string{"", "cpu", "cpu 1 2 3", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 x 4 5 6 7 8"} {
		if busy, all := parseStat([]byte(damaged)); busy != 0 || all != 0 {
			t.Errorf("stat %q: %d of %d", damaged, busy, all)
		}
	}
	if got := groupOf([]byte("12:cpu:/a\n0::/system.slice/x.service\n")); got != "/system.slice/x.service" {
		t.Errorf("group %q", got)
	}
	for text, want := range map[string]float64{"200000 100000\n": 2, "50000 100000": 0.5, "max 100000": 0, "": 0, "1": 0, "-1 100000": 0, "1 0": 0} {
		if got := parseLimit([]byte(text)); got != want {
			t.Errorf("limit %q: %v", text, got)
		}
	}
	if got := parseUsage([]byte("usage_usec 2500000\nuser_usec 1\n")); got != 2500*time.Millisecond {
		t.Errorf("usage: %v", got)
	}
	if got := parseUsage([]byte("usage_usec x")); got != 0 {
		t.Errorf("damaged usage: %v", got)
	}
}

// TestChildrenCount: the processor time of a child process counts for the machine.
func TestChildrenCount(t *testing.T) {
	was := readCPU(time.Now())
	if was.all == 0 {
		t.Skip("this system does not tell the processor time of the machine in /proc/stat")
	}
	child := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done")
	if err := child.Start(); err != nil {
		t.Skip("there is no sh")
	}
	for begin := time.Now(); ; {
		if is := readCPU(time.Now()); is.busy > was.busy+10 { // in units of 10 ms on Linux
			break
		}
		if time.Since(begin) > time.Minute {
			t.Error("a minute of a busy child is not counted")
			break
		}
	}
	child.Process.Kill() //nolint:errcheck // it ends with the test at the latest
	child.Wait()         //nolint:errcheck // a signal ends it
}
