//go:build linux && (amd64 || arm64)

package sandbox

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

func hasSeccomp() bool {
	action := uint32(unix.SECCOMP_RET_KILL_PROCESS)
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	return errno == 0
}

// refused are the calls that a box never has. Each of them reaches beyond the process, or
// has often been a way around the walls; no program that jobs run needs one.
var refused = append([]uint32{
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP, // other processes
	unix.SYS_UNSHARE, unix.SYS_SETNS, // see also the flags of clone
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_MOUNT_SETATTR, unix.SYS_MOVE_MOUNT,
	unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK,
	unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_FANOTIFY_INIT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_LOOKUP_DCOOKIE,
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, // its requests pass no filter
	unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
	unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_SYSLOG, unix.SYS_VHANGUP,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
}, refusedHere...)

// namespaces are the flags of clone that make namespaces.
const namespaces = unix.CLONE_NEWCGROUP | unix.CLONE_NEWIPC | unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUSER | unix.CLONE_NEWUTS

// Offsets in struct seccomp_data. Both architectures are little-endian: the low half of an
// argument comes first.
const (
	offNumber = 0
	offArch   = 4
	offArg0   = 16
	offArg1   = 24
	offArg2   = 32
	offArg3   = 40
)

// program is a filter in the making.
type program []unix.SockFilter

func (p *program) add(code uint16, jt, jf uint8, k uint32) {
	*p = append(*p, unix.SockFilter{Code: code, Jt: jt, Jf: jf, K: k})
}

func (p *program) load(offset uint32) { p.add(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, 0, 0, offset) }
func (p *program) answer(with uint32) { p.add(unix.BPF_RET|unix.BPF_K, 0, 0, with) }

// skipUnless skips n instructions unless the loaded value is k.
func (p *program) skipUnless(k uint32, n int) {
	p.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 0, uint8(n), k)
}

func fails(errno uint32) uint32 { return unix.SECCOMP_RET_ERRNO | errno }

// on answers a call with the result of body, which must end with an answer on every path.
func (p *program) on(number uint32, body program) {
	p.skipUnless(number, len(body))
	*p = append(*p, body...)
}

func answering(with uint32) (p program) {
	p.answer(with)
	return p
}

// filter returns the seccomp filter of a box.
func (b *Box) filter() program {
	var p program
	p.load(offArch)
	p.skipUnless(arch, 1)
	p.add(unix.BPF_JMP|unix.BPF_JA, 0, 0, 1)
	p.answer(unix.SECCOMP_RET_KILL_PROCESS) // a program for 32 bits has other numbers for the same calls
	p.load(offNumber)
	p.add(unix.BPF_JMP|unix.BPF_JGE|unix.BPF_K, 0, 1, x32)
	p.answer(fails(uint32(unix.ENOSYS)))
	for _, number := range refused {
		p.on(number, answering(fails(uint32(unix.EPERM))))
	}
	if !b.Namespaces {
		var clone program
		clone.load(offArg0)
		clone.add(unix.BPF_JMP|unix.BPF_JSET|unix.BPF_K, 0, 1, namespaces)
		clone.answer(fails(uint32(unix.EPERM)))
		clone.answer(unix.SECCOMP_RET_ALLOW)
		p.on(unix.SYS_CLONE, clone)
	}
	if !b.Clone3 { // programs that get ENOSYS use clone
		p.on(unix.SYS_CLONE3, answering(fails(uint32(unix.ENOSYS))))
	}
	p.on(unix.SYS_SOCKET, b.sockets())
	if !b.Network {
		p.on(unix.SYS_CONNECT, answering(fails(uint32(unix.EACCES)))) // to a Unix socket
	}
	if len(b.Ports) > 0 { // such a call connects, and Landlock does not see it
		for number, flags := range map[uint32]uint32{unix.SYS_SENDTO: offArg3, unix.SYS_SENDMSG: offArg2, unix.SYS_SENDMMSG: offArg3} {
			var send program
			send.load(flags)
			send.add(unix.BPF_JMP|unix.BPF_JSET|unix.BPF_K, 0, 1, unix.MSG_FASTOPEN)
			send.answer(fails(uint32(unix.EOPNOTSUPP)))
			send.answer(unix.SECCOMP_RET_ALLOW)
			p.on(number, send)
		}
	}
	p.answer(unix.SECCOMP_RET_ALLOW)
	return p
}

// sockets decides about calls of socket.
func (b *Box) sockets() (p program) {
	none := fails(uint32(unix.EACCES))
	oneOf := func(values ...uint32) (q program) {
		for _, v := range values {
			q.on(v, answering(unix.SECCOMP_RET_ALLOW))
		}
		return q
	}
	var stream program // a datagram socket could send without connect
	stream.load(offArg1)
	stream.add(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, 0, 0, 0xf) // the type without its flags
	stream = append(stream, oneOf(unix.SOCK_STREAM)...)
	stream.answer(none)
	p.load(offArg0)
	switch {
	case b.Network:
		p = append(p, oneOf(unix.AF_UNIX)...)
		// Landlock knows the ports of TCP, and not those of MPTCP and SCTP.
		var inet program
		inet.load(offArg1)
		inet.add(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, 0, 0, 0xf)
		inet.add(unix.BPF_JMP|unix.BPF_JGT|unix.BPF_K, 0, 1, unix.SOCK_DGRAM)
		inet.answer(none) // raw, packet and SCTP's sockets
		inet.load(offArg2)
		inet = append(inet, oneOf(0, unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6)...)
		inet.answer(fails(uint32(unix.EPROTONOSUPPORT)))
		p.on(unix.AF_INET, inet)
		p.on(unix.AF_INET6, inet)
		// The C library reads the addresses of the machine before it resolves a name.
		var netlink program
		netlink.load(offArg2)
		netlink = append(netlink, oneOf(unix.NETLINK_ROUTE)...)
		netlink.answer(none)
		p.on(unix.AF_NETLINK, netlink)
	case b.Listens:
		p.on(unix.AF_UNIX, stream)
	}
	p.answer(none)
	return p
}

// setFilter puts a filter on the calling thread.
func setFilter(p program) error {
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog))); errno != 0 {
		return errno
	}
	return nil
}
