package sched

import "google.golang.org/protobuf/proto"

// pageBytes bounds a page of a list. With one element more, which may take 1 MiB,
// it is below the 4 MiB that clients of gRPC take by default.
const pageBytes = 3 << 20

// Page counts what a page of a list holds. Its zero value is an empty one.
type Page struct {
	bytes int
	begun bool
}

// Fits reports whether an element has room on the page, and counts it. The first
// always has: a list goes on whatever its elements are.
func (p *Page) Fits(m proto.Message) bool {
	n := proto.Size(m)
	if p.begun && p.bytes+n > pageBytes {
		return false
	}
	p.begun = true
	p.bytes += n
	return true
}
