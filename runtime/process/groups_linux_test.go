package process

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/runtime/sandbox"
)

func TestOwnGroup(t *testing.T) {
	const v2 = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"
	for _, tt := range []struct{ mounts, own, want, err string }{
		{v2, "0::/system.slice/wheelwork-host.service\n", "/sys/fs/cgroup/system.slice/wheelwork-host.service", ""},
		{v2, "0::/system.slice/wheelwork-host.service/host\n", "/sys/fs/cgroup/system.slice/wheelwork-host.service", ""},
		{"tmpfs / tmpfs rw\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n", "8:pids:/x\n0::/a\n", "/sys/fs/cgroup/unified/a", ""},
		{v2, "0::/\n", "", "root control group"},
		{v2, "8:pids:/x\n", "", "root control group"},
		{"cgroup /sys/fs/cgroup/pids cgroup rw 0 0\n", "0::/a\n", "", "not mounted"},
		{"", "", "", "not mounted"},
	} {
		got, err := ownGroup(tt.mounts, tt.own)
		if got != tt.want || tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%q in %q: %q, %v", tt.own, tt.mounts, got, err)
		}
	}
}

// TestOpenGroups prepares a folder with the files of a control group.
func TestOpenGroups(t *testing.T) {
	dir := t.TempDir()
	set := func(file, text string) {
		t.Helper()
		if err := write(dir, file, text); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := openGroups(dir, 7); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no control group: %v", err)
	}
	set("cgroup.controllers", "cpu memory\n")
	if _, err := openGroups(dir, 7); err == nil || !strings.Contains(err.Error(), "no controller pids") {
		t.Errorf("a controller is missing: %v", err)
	}
	set("cgroup.controllers", "cpu memory pids\n")
	if _, err := openGroups(dir, 7); err == nil || !strings.Contains(err.Error(), "Linux 5.14") {
		t.Errorf("an old kernel: %v", err)
	}
	set("host/cgroup.kill", "")
	if err := os.Mkdir(filepath.Join(dir, "run-3"), 0o700); err != nil {
		t.Fatal(err)
	}
	g, err := openGroups(dir, 7)
	if err != nil {
		t.Fatal(err)
	}
	read := func(file string) string {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
	if read("host/cgroup.procs") != "7" || read("cgroup.subtree_control") != "+memory +pids" {
		t.Errorf("the host: %s, controllers %s", read("host/cgroup.procs"), read("cgroup.subtree_control"))
	}
	p, err := g.group(1<<20, 20)
	if err != nil {
		t.Fatal(err)
	}
	defer p.open.Close()
	if read("run-1/memory.max") != "1048576" || read("run-1/pids.max") != "20" || read("run-1/memory.swap.max") != "0" {
		t.Error("the limits of a program are not in its group")
	}
	if p, err = g.group(0, 0); err != nil || filepath.Base(p.dir) != "run-2" {
		t.Fatalf("a second group: %v, %v", p, err)
	}
	defer p.open.Close()
	if _, err := os.Stat(filepath.Join(p.dir, "memory.max")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a limit of 0: %v", err)
	}
}

// groups returns real control groups, with or without limits.
func groups(t *testing.T, limits bool) *Groups {
	t.Helper()
	mounts, _ := os.ReadFile("/proc/self/mounts")
	root := ""
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			root = f[1]
		}
	}
	if root == "" {
		testkit.Lacks(t, "cgroup v2 is not mounted")
	}
	dir, err := os.MkdirTemp(root, "wheelwork-test-")
	if err != nil {
		testkit.Lacks(t, "no control group can be made here: %v", err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	if limits {
		has, _ := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
		if !strings.Contains(string(has), "memory") || !strings.Contains(string(has), "pids") {
			t.Skip("cgroup v2 of this machine has no controllers of memory and processes: its kernel decides that")
		}
		if err := write(dir, "cgroup.subtree_control", "+memory +pids"); err != nil {
			t.Skipf("the controllers of this machine are not delegated: %v", err)
		}
	}
	return &Groups{dir: dir}
}

// A process that leaves the process group and the session is still in the control group.
func TestGroupEndsAll(t *testing.T) {
	g := groups(t, false)
	for _, mode := range []sandbox.Mode{sandbox.Off, sandbox.Auto} {
		k := NewKeeper(Policy{Mode: mode, Groups: g, Temp: "wheelwork-test-groups-"})
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		rules, err := k.Rules(Rights{Read: []string{exe}})
		if err != nil {
			t.Fatal(err)
		}
		out, w := output(t)
		cmd := program("flee")
		cmd.Stdout = w
		c, err := k.Start(cmd, rules)
		if err != nil {
			t.Fatal(mode, err)
		}
		w.Close()
		awaitHere(t, out)
		c.Kill()
		<-c.Done()
		awaitEOF(t, out)
		left, err := filepath.Glob(filepath.Join(g.dir, groupPrefix+"*"))
		if err != nil || len(left) > 0 {
			t.Errorf("%s: %v is left, %v", mode, left, err)
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestGroupLimits(t *testing.T) {
	g := groups(t, true)
	k := NewKeeper(Policy{Groups: g})
	defer k.Close()
	for name, tt := range map[string]struct {
		rights Rights
		script string
	}{
		"memory":    {Rights{Memory: 64 << 20}, `x=$(head -c 200000000 /dev/zero | tr '\0' x); echo ${#x}`},
		"processes": {Rights{Processes: 4}, `for i in 1 2 3 4 5 6 7 8; do sleep 100 & done`},
	} {
		rules, err := k.Rules(tt.rights)
		if err != nil {
			t.Fatal(err)
		}
		cmd := shell(tt.script)
		c, err := k.Start(cmd, rules)
		if err != nil {
			t.Fatal(err)
		}
		<-c.Done()
		if c.State().Success() {
			t.Errorf("%s: the limit did not hold: %s", name, c.State())
		}
	}
}

func TestLimitOfAnEndedProcess(t *testing.T) {
	cmd := shell("exit 0")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if err := limit(cmd.Process.Pid, 1<<30); err == nil {
		t.Error("process " + strconv.Itoa(cmd.Process.Pid) + " has ended and was limited")
	}
}
