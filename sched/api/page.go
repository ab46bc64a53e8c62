package api

import "google.golang.org/protobuf/proto"

// pageBytes bounds a page of a list. A page with one element too many, of up to 1 MiB, is
// still below the 4 MiB that gRPC clients accept by default.
const pageBytes = 3 << 20

// Page counts the bytes of the elements of one page of a list. The zero value is an empty
// page.
type Page struct {
	bytes int
	begun bool
}

// Fits reports whether the page has room for an element, and counts the element if it
// has. The first element always fits, so that a list makes progress with elements of any
// size.
func (p *Page) Fits(m proto.Message) bool {
	n := proto.Size(m)
	if p.begun && p.bytes+n > pageBytes {
		return false
	}
	p.begun = true
	p.bytes += n
	return true
}
