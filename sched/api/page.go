package api

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

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

const (
	defaultPage = 50
	maxPage     = 1000
)

func pageSize(n int32) int {
	if n <= 0 {
		return defaultPage
	}
	return int(min(n, maxPage))
}

func badToken() error {
	return status.Error(codes.InvalidArgument, "page_token is not one that this list returned")
}

// brief clears the fields that a list does not show, and returns r.
func brief(r *apiv1.Run) *apiv1.Run {
	r.Input, r.InputBytes, r.Output, r.OutputBytes, r.Trace, r.Nodes = "", nil, "", nil, "", nil
	return r
}
