package job

import (
	"testing"
	"unsafe"
)

// TestJobIsSmall: there may be a million of them, and 96 is a size class of
// Go's allocator: one more field costs each of them 16 bytes.
func TestJobIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(Job{}); size > 96 {
		t.Errorf("a job is %d bytes, want at most 96: what only some jobs need belongs to its stats", size)
	}
}
