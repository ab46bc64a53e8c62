//go:build unix && !freebsd

package verifier

import "syscall"

// rlimit returns a resource limit whose soft and hard value are n.
func rlimit(n uint64) *syscall.Rlimit { return &syscall.Rlimit{Cur: n, Max: n} }
