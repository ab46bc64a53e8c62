//go:build amd64 || arm64

package wheel

// prefetch makes the processor load a chunk with values of 8 bytes into its cache, and
// does not wait for it. first points at the first deadline of the chunk, 8 bytes behind
// its start. prefetch has no other effect and cannot fail.
//
//go:noescape
func prefetch(first *int64)
