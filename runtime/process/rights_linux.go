package process

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// become lets a program run as another user, without further groups.
func (a *account) become(cmd *exec.Cmd) {
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
}

// enter makes a program start in the group.
func (g *group) enter(cmd *exec.Cmd) {
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(g.open.Fd())
}

// mayChangeUser returns an error unless this process may start programs as other users,
// give them their private folders, remove what is in these, and end the programs.
func mayChangeUser() error {
	var lacks []string
	for _, c := range []struct {
		bit  uint
		name string
	}{{unix.CAP_CHOWN, "CAP_CHOWN"}, {unix.CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE"}, {unix.CAP_KILL, "CAP_KILL"}, {unix.CAP_SETGID, "CAP_SETGID"}, {unix.CAP_SETUID, "CAP_SETUID"}} {
		if !capable(c.bit) {
			lacks = append(lacks, c.name)
		}
	}
	if lacks != nil {
		return fmt.Errorf("this process lacks %s: start the host as root, or give it these capabilities (AmbientCapabilities= of systemd)", strings.Join(lacks, ", "))
	}
	return nil
}

// mayLimitOthers reports whether this process may set the limits of another user's process.
func mayLimitOthers() bool { return capable(unix.CAP_SYS_RESOURCE) }

// capable reports whether this process has a capability.
func capable(bit uint) bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	err := unix.Capget(&header, &data[0])
	return err == nil && data[bit/32].Effective&(1<<(bit%32)) != 0
}

// limit sets the limit of a process that has just started, and so of those that it starts.
// The data of a process is the memory that it can write to.
func limit(pid int, memory int64) error {
	l := unix.Rlimit{Cur: uint64(memory), Max: uint64(memory)}
	return unix.Prlimit(pid, unix.RLIMIT_DATA, &l, nil)
}
