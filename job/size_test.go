package job

import (
	"testing"
	"unsafe"
)

// TestJobIsSmall checks the size of a job. There may be a million jobs, and 112 bytes is
// a size class of Go's allocator: one more field costs 16 bytes per job.
func TestJobIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(Job{}); size > 112 {
		t.Errorf("a job is %d bytes, want at most 112: what only some jobs need belongs to what it has extra", size)
	}
	if last := unsafe.Offsetof(Job{}.extra); last != 24 {
		t.Errorf("the last pointer is at %d: the collector looks at all that is in front of it", last)
	}
}
