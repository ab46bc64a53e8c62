//go:build !unix

package memory

import "github.com/tetratelabs/wazero/experimental"

// newLinearMemory allocates from Go's heap, at most size bytes.
func newLinearMemory(size uint64) experimental.LinearMemory { return &heapMemory{limit: size} }

type heapMemory struct {
	buf   []byte
	limit uint64
}

// Reallocate returns nil when the limit is exceeded; memory.grow then returns -1.
func (m *heapMemory) Reallocate(size uint64) []byte {
	if size > m.limit {
		return nil
	}
	if size > uint64(len(m.buf)) {
		m.buf = append(m.buf, make([]byte, size-uint64(len(m.buf)))...)
	}
	return m.buf[:size:size]
}

func (m *heapMemory) Free() { m.buf = nil }
