package sandbox

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Probe returns the walls of this system.
func Probe() Walls {
	w := Walls{Seccomp: hasSeccomp()}
	if n, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION); errno == 0 {
		w.Landlock = int(n)
	}
	return w
}

// Enter encloses the calling thread for the rest of its life, with all walls that the
// system has. The caller must have locked its goroutine to the thread, and must not unlock
// it: the thread ends with the goroutine.
func (b *Box) Enter() error {
	if err := dropCapabilities(); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	// Without it the kernel takes neither a Landlock domain nor a filter from a process
	// without privileges. It also takes the effect from set-user-ID programs.
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	w := Probe()
	if w.Landlock > 0 {
		if err := b.landlock(w.Landlock); err != nil {
			return fmt.Errorf("landlock: %w", err)
		}
	}
	if w.Seccomp {
		if err := setFilter(b.filter()); err != nil {
			return fmt.Errorf("seccomp: %w", err)
		}
	}
	return nil
}

// rootKeeps are the capabilities that a program which runs as root retains. They concern
// files and users; the box bounds the files.
var rootKeeps = map[uintptr]bool{
	unix.CAP_CHOWN: true, unix.CAP_DAC_OVERRIDE: true, unix.CAP_FOWNER: true, unix.CAP_FSETID: true,
	unix.CAP_KILL: true, unix.CAP_SETUID: true, unix.CAP_SETGID: true, unix.CAP_NET_BIND_SERVICE: true,
}

// dropCapabilities bounds the capabilities of the programs that the thread starts. The
// thread itself retains its own, which it needs to start a program as another user.
func dropCapabilities() error {
	err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	if err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: a kernel without ambient capabilities
		return err
	}
	for c := uintptr(0); c < 64; c++ {
		if rootKeeps[c] {
			continue
		}
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if err != nil {
			return nil // c is beyond the last capability of this kernel
		}
		// A process without CAP_SETPCAP is not root, or root without most of its
		// capabilities; no_new_privs keeps its programs from new ones.
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); has == 1 && err != nil && !errors.Is(err, unix.EPERM) {
			return err
		}
	}
	return nil
}

// systemDevices are the devices that every enclosed program uses.
var systemDevices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

// Rights of Landlock.
const (
	readFile  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE
	readDir   = readFile | unix.LANDLOCK_ACCESS_FS_READ_DIR
	writeFile = readFile | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	// The box never gives the right to make devices.
	writeDir = readDir | writeFile | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER
	allFiles = writeDir | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK
	allTCP   = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
)

// signalFix is the erratum of Landlock after whose fix an enclosed thread may send signals
// to the other threads of its own process, which Go's runtime does.
const signalFix = 1 << 1

// ruleset returns what a version of Landlock decides about.
func (b *Box) ruleset(version int) unix.LandlockRulesetAttr {
	a := unix.LandlockRulesetAttr{Handled_access_fs: allFiles}
	if version < 2 {
		a.Handled_access_fs &^= unix.LANDLOCK_ACCESS_FS_REFER // then always refused
	}
	if version < 3 {
		a.Handled_access_fs &^= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if version >= portsVersion && (!b.Network || len(b.Ports) > 0) {
		a.Handled_access_net = allTCP
	}
	if version >= 6 {
		a.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
		if fixed, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_ERRATA); errno == 0 && fixed&signalFix != 0 {
			a.Scoped |= unix.LANDLOCK_SCOPE_SIGNAL
		}
	}
	return a
}

func (b *Box) landlock(version int) error {
	attr := b.ruleset(version)
	n, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return errno
	}
	set := int(n)
	defer unix.Close(set) //nolint:errcheck // only held
	for _, path := range SystemPaths() {
		if err := allow(set, path, readDir, attr.Handled_access_fs); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EACCES) {
			return err
		}
	}
	for _, path := range systemDevices {
		if err := allow(set, path, writeFile, attr.Handled_access_fs); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	for _, path := range b.Read {
		if err := allow(set, path, readDir, attr.Handled_access_fs); err != nil {
			return err
		}
	}
	for _, path := range b.Write {
		if err := allow(set, path, writeDir, attr.Handled_access_fs); err != nil {
			return err
		}
	}
	if b.Network && attr.Handled_access_net != 0 {
		for _, port := range b.Ports {
			rule := portRule{allowed: unix.LANDLOCK_ACCESS_NET_CONNECT_TCP, port: uint64(port)}
			if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(set), rulePort, uintptr(unsafe.Pointer(&rule)), 0, 0, 0); errno != 0 {
				return fmt.Errorf("port %d: %w", port, errno)
			}
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(set), 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// portRule is struct landlock_net_port_attr, the rule of the type rulePort.
type portRule struct{ allowed, port uint64 }

const rulePort = 2 // LANDLOCK_RULE_NET_PORT

// allow adds the rights to a path that the ruleset handles. A file takes only the rights
// that concern files.
func allow(set int, path string, rights, handled uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer unix.Close(fd) //nolint:errcheck // only held
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= writeFile
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights & handled, Parent_fd: int32(fd)}
	if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(set), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0); errno != 0 {
		return fmt.Errorf("%s: %w", path, errno)
	}
	return nil
}
