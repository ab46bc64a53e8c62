//go:build unix

package memory

import (
	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/sys/unix"
)

// newLinearMemory reserves address space for the whole size, and the system provides pages
// when they are touched. So growing copies nothing, a new instance zeroes nothing, and
// closing it frees everything at once instead of leaving it to the garbage collector.
func newLinearMemory(size uint64) experimental.LinearMemory {
	if size == 0 {
		return &mappedMemory{}
	}
	space, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return &mappedMemory{} // out of address space: instantiation will fail
	}
	return &mappedMemory{space: space}
}

type mappedMemory struct{ space []byte }

// Reallocate returns nil when the size is exceeded; memory.grow then returns -1.
func (m *mappedMemory) Reallocate(size uint64) []byte {
	if size > uint64(len(m.space)) {
		return nil
	}
	return m.space[:size:size]
}

// Free may be called twice.
func (m *mappedMemory) Free() {
	if m.space != nil {
		_ = unix.Munmap(m.space) // fails only for a mapping that does not exist
		m.space = nil
	}
}
