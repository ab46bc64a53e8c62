// Package sandbox limits what a program can reach on this machine: files, the network, and
// calls of the kernel that few programs need.
//
// [Box.Enter] encloses the calling thread. A process that the thread starts is enclosed
// from its first instruction, and so are all processes that it starts, until they end. No
// privilege is needed. On Linux the kernel provides these walls, see [Probe]:
//
//   - Landlock: files below the paths of the box, TCP ports, signals and the memory of
//     processes outside of the box;
//   - seccomp: sockets, namespaces, mounts, tracing, keys, io_uring and kernel modules;
//   - capabilities: a program that runs as root has only those that concern files and users.
//
// Other systems have no such walls.
package sandbox

import (
	"errors"
	"fmt"
	"strings"
)

// Box is what an enclosed program may reach beside the [SystemPaths]. The zero value has
// no network and no further file.
type Box struct {
	Read  []string // files and folders that it reads and executes
	Write []string // files and folders that it also changes
	// Network gives it sockets of the Internet protocols, and connections to Unix sockets.
	Network bool
	// Ports limits its TCP connections to these ports, and binds no port. Empty: with
	// Network, all. Landlock does not limit UDP, with which names are resolved.
	Ports []uint16
	// Listens lets it listen on Unix sockets also without Network.
	Listens bool
	// Namespaces lets the thread start a process in namespaces. The process can make more.
	Namespaces bool
	// Clone3 leaves the call clone3 allowed, with which a process is made in a control group.
	// A filter cannot read its flags, so the program can also make namespaces with it. In
	// them it has no further files, mounts or kinds of sockets.
	Clone3 bool
}

// Mode is what a process does when the system lacks a wall.
type Mode string

const (
	Auto    Mode = "auto"    // it goes on with the others, and reports which are missing
	Require Mode = "require" // it does not start
	Off     Mode = "off"     // it uses none
)

// ParseMode reads the text of a setting.
func ParseMode(text string) (Mode, error) {
	switch m := Mode(text); m {
	case Auto, Require, Off:
		return m, nil
	}
	return "", fmt.Errorf("%q: want auto, require or off", text)
}

// Walls are what this system has for a box. The zero value is none.
type Walls struct {
	Landlock int // the version of its interface; 0: none
	Seccomp  bool
}

// portsVersion is the version of Landlock that limits TCP ports.
const portsVersion = 4

// Missing returns an error that names the walls that the system lacks; nil if it has all.
func (w Walls) Missing() error {
	var lacks []string
	if w.Landlock == 0 {
		lacks = append(lacks, "Landlock (Linux 5.13, enabled with lsm=landlock)")
	}
	if !w.Seccomp {
		lacks = append(lacks, "seccomp filters (Linux on amd64 or arm64)")
	}
	if lacks == nil {
		return nil
	}
	return errors.New("this system lacks " + strings.Join(lacks, " and "))
}

// Ports reports whether the system can limit TCP ports.
func (w Walls) Ports() bool { return w.Landlock >= portsVersion }

// SystemPaths returns the files and folders of the system that every enclosed program
// reads and executes. A path that does not exist is skipped. /proc is not among them: it
// shows the arguments of other processes.
func SystemPaths() []string {
	return []string{
		"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store",
		"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld-musl-x86_64.path", "/etc/ld-musl-aarch64.path", "/etc/alternatives",
		"/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts", "/etc/host.conf", "/etc/resolv.conf", "/etc/gai.conf", "/etc/services", "/etc/protocols",
		"/etc/localtime", "/etc/timezone", "/etc/locale.conf", "/etc/locale.alias", "/etc/os-release", "/etc/mime.types", "/etc/magic", "/etc/inputrc",
		"/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/openssl.cnf", "/etc/ca-certificates", "/etc/ca-certificates.conf", "/etc/pki/tls/certs", "/etc/pki/tls/openssl.cnf", "/etc/pki/ca-trust/extracted", "/etc/crypto-policies",
		"/etc/fonts", "/etc/java", "/etc/perl", "/etc/php", "/etc/python3",
		"/proc/cpuinfo", "/proc/filesystems", "/proc/loadavg", "/proc/meminfo", "/proc/stat", "/proc/uptime", "/proc/version", "/proc/sys/kernel", "/proc/sys/vm",
		"/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/kernel/mm/transparent_hugepage",
	}
}
