package verifier

import (
	"math"
	"syscall"
)

// rlimit returns a resource limit whose soft and hard value are n. They are signed on FreeBSD.
func rlimit(n uint64) *syscall.Rlimit {
	limit := int64(min(n, math.MaxInt64))
	return &syscall.Rlimit{Cur: limit, Max: limit}
}
