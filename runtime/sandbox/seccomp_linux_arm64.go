package sandbox

import "golang.org/x/sys/unix"

const (
	arch = unix.AUDIT_ARCH_AARCH64
	x32  = 1 << 30 // no call has such a number
)

// refusedHere are the refused calls that only this architecture has.
var refusedHere []uint32
