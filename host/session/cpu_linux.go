package session

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// readCPU reads the processor time of the machine and of this process's control group
// (version 2).
func readCPU(now time.Time) cpuTimes {
	t := cpuTimes{at: now}
	if stat, err := os.ReadFile("/proc/stat"); err == nil {
		t.busy, t.all = parseStat(stat)
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return t
	}
	dir := filepath.Join("/sys/fs/cgroup", groupOf(groups))
	limit, err := os.ReadFile(filepath.Join(dir, "cpu.max"))
	if err != nil {
		return t
	}
	if stat, err := os.ReadFile(filepath.Join(dir, "cpu.stat")); err == nil {
		t.limit, t.used = parseLimit(limit), parseUsage(stat)
	}
	return t
}

// parseStat parses the first line of /proc/stat: cpu user nice system idle iowait irq
// softirq steal … Steal is time that the hypervisor gave to other machines. This machine
// cannot use it, so it counts as busy.
func parseStat(stat []byte) (busy, all uint64) {
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	fields := strings.Fields(string(line))
	const counted, idle, iowait = 8, 3, 4
	if len(fields) < 1+counted || fields[0] != "cpu" {
		return 0, 0
	}
	for i, f := range fields[1 : 1+counted] {
		n, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			return 0, 0
		}
		all += n
		if i != idle && i != iowait {
			busy += n
		}
	}
	return busy, all
}

// groupOf returns the path of the version 2 hierarchy in /proc/self/cgroup.
func groupOf(groups []byte) string {
	for lines := bufio.NewScanner(bytes.NewReader(groups)); lines.Scan(); {
		if path, ok := strings.CutPrefix(lines.Text(), "0::"); ok {
			return path
		}
	}
	return ""
}

// parseLimit parses cpu.max, the time that the group may use in a period ("max": no
// limit), and returns the limit in processors; 0: none.
func parseLimit(text []byte) float64 {
	fields := strings.Fields(string(text))
	if len(fields) != 2 {
		return 0
	}
	quota, err := strconv.ParseFloat(fields[0], 64)
	period, perr := strconv.ParseFloat(fields[1], 64)
	if err != nil || perr != nil || quota <= 0 || period <= 0 {
		return 0
	}
	return quota / period
}

// parseUsage parses usage_usec of cpu.stat.
func parseUsage(stat []byte) time.Duration {
	for lines := bufio.NewScanner(bytes.NewReader(stat)); lines.Scan(); {
		if n, ok := strings.CutPrefix(lines.Text(), "usage_usec "); ok {
			us, err := strconv.ParseInt(strings.TrimSpace(n), 10, 64)
			if err != nil {
				return 0
			}
			return time.Duration(us) * time.Microsecond
		}
	}
	return 0
}
