package job

import (
	"testing"
	"unsafe"
)

// TestReads checks that each cache line of a job or a run, wherever the object begins in
// a line, has one of the fields that read reads.
func TestReads(t *testing.T) {
	var j Job
	var r Run
	const (
		line   = 64
		length = unsafe.Sizeof(uintptr(0)) // offset of the length of a string or a slice
	)
	for name, of := range map[string]struct {
		size          uintptr
		begins, reads []uintptr
	}{
		// The allocator places jobs 112 bytes apart.
		"job": {
			unsafe.Sizeof(j),
			[]uintptr{0, 16, 32, 48},
			[]uintptr{unsafe.Offsetof(j.text) + length, unsafe.Offsetof(j.Planned), unsafe.Offsetof(j.etag)},
		},
		// The allocator places runs 576 bytes apart, perhaps after a header of 8 bytes.
		"run": {unsafe.Sizeof(r), []uintptr{0, 8}, []uintptr{
			unsafe.Offsetof(r.ID), unsafe.Offsetof(r.PlannedMs), unsafe.Offsetof(r.Attempt), unsafe.Offsetof(r.Output) + length,
			unsafe.Offsetof(r.Error) + length, unsafe.Offsetof(r.Revision), unsafe.Offsetof(r.Mark),
			unsafe.Offsetof(r.first) + unsafe.Offsetof(r.first[0].FinishedMs), unsafe.Offsetof(r.spec) + unsafe.Offsetof(r.spec.own) + length,
		}},
	} {
		for _, begin := range of.begins {
			read := map[uintptr]bool{}
			for _, at := range of.reads {
				read[(begin+at)/line] = true
			}
			for l := begin / line; l <= (begin+of.size-1)/line; l++ {
				if !read[l] {
					t.Errorf("%s that begins at byte %d: nothing is read of line %d", name, begin, l)
				}
			}
		}
	}
}
