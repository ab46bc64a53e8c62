//go:build amd64 || arm64

package wheel

// prefetch has the processor fetch a chunk with values of 8 bytes, of which first is the
// first deadline, 8 bytes behind its start, and does not wait for it, as whoever read
// it would. It changes nothing but when the chunk comes, and cannot fail.
//
//go:noescape
func prefetch(first *int64)
