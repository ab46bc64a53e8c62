package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Groups makes a control group (cgroup v2) for each program. A group bounds the memory and
// the processes of the program together with all that it starts, and ends all of them, also
// those that have left the process group.
type Groups struct {
	dir string
	n   atomic.Uint64 // of the groups made
}

// groupPrefix is the prefix of the folder of a program's group.
const groupPrefix = "run-"

// hostGroup is the group into which this process moves: a group with processes cannot have
// groups with limits in it.
const hostGroup = "host"

// OpenGroups prepares the control group of this process for groups of programs. It fails if
// the system has no cgroup v2, or has not delegated the group to this user with the
// controllers of memory and processes (Delegate=memory pids of systemd).
func OpenGroups() (*Groups, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	dir, err := ownGroup(string(mounts), string(own))
	if err != nil {
		return nil, err
	}
	return openGroups(dir, os.Getpid())
}

// ownGroup returns the folder of the control group that this process is in, from the
// contents of /proc/self/mounts and /proc/self/cgroup.
func ownGroup(mounts, own string) (string, error) {
	root, path := "", ""
	for line := range strings.Lines(mounts) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			root = f[1]
		}
	}
	for line := range strings.Lines(own) {
		if p, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			path = p
		}
	}
	switch {
	case root == "":
		return "", errors.New("cgroup v2 is not mounted")
	case path == "" || path == "/":
		return "", errors.New("this process is in the root control group, which belongs to the system")
	}
	// systemd (DelegateSubgroup=) or an earlier start has made the group of this process.
	return filepath.Join(root, strings.TrimSuffix(path, "/"+hostGroup)), nil
}

// openGroups is OpenGroups for the group in dir and the process with a PID.
func openGroups(dir string, pid int) (*Groups, error) {
	has, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return nil, err
	}
	for _, need := range []string{"memory", "pids"} {
		if !slices.Contains(strings.Fields(string(has)), need) {
			return nil, fmt.Errorf("control group %s has no controller %s: delegate it (Delegate=memory pids of systemd)", dir, need)
		}
	}
	host := filepath.Join(dir, hostGroup)
	if err := os.Mkdir(host, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(host, "cgroup.kill")); err != nil {
		return nil, fmt.Errorf("control groups of programs take Linux 5.14: %w", err)
	}
	if err := write(host, "cgroup.procs", strconv.Itoa(pid)); err != nil {
		return nil, err
	}
	if err := write(dir, "cgroup.subtree_control", "+memory +pids"); err != nil {
		return nil, err
	}
	left, err := filepath.Glob(filepath.Join(dir, groupPrefix+"*"))
	if err != nil {
		return nil, err
	}
	for _, g := range left { // of a host that was killed
		(&group{dir: g}).end()
	}
	return &Groups{dir: dir}, nil
}

func write(dir, file, text string) error {
	return os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644)
}

// group is the control group of one program.
type group struct {
	dir  string
	open *os.File // the folder, until the program has started in it
}

// group makes a group with limits; 0: none.
func (g *Groups) group(memory, processes int64) (_ *group, err error) {
	p := &group{dir: filepath.Join(g.dir, groupPrefix+strconv.FormatUint(g.n.Add(1), 10))}
	if err := os.Mkdir(p.dir, 0o755); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.end()
		}
	}()
	for _, set := range []struct {
		file  string
		limit int64
	}{{"memory.max", memory}, {"pids.max", processes}} {
		if set.limit == 0 {
			continue
		}
		if err := write(p.dir, set.file, strconv.FormatInt(set.limit, 10)); err != nil {
			return nil, err
		}
	}
	// The processes of a program end together when one of them gets no memory. Without a
	// limit of its swap, a program would get the memory of others through it.
	_ = write(p.dir, "memory.oom.group", "1")
	_ = write(p.dir, "memory.swap.max", "0")
	p.open, err = os.Open(p.dir)
	return p, err
}

const (
	groupEnds  = 2 * time.Second // how long the kernel gets to end the processes of a group
	groupCheck = 5 * time.Millisecond
)

// end kills all processes of the group and removes it. A group whose processes do not end
// stays until the next start.
func (g *group) end() {
	if g.open != nil {
		g.open.Close()
	}
	if f, err := os.OpenFile(filepath.Join(g.dir, "cgroup.kill"), os.O_WRONLY, 0); err == nil {
		_, _ = f.WriteString("1") // then the group cannot be removed either
		f.Close()
	}
	for end := time.Now().Add(groupEnds); ; time.Sleep(groupCheck) {
		if err := os.Remove(g.dir); err == nil || errors.Is(err, fs.ErrNotExist) || time.Now().After(end) {
			return
		}
	}
}
