//go:build amd64 || arm64

package wheel

// prefetch makes the processor load a chunk with values of 8 bytes into its cache, and
// does not wait for it. first points at the first deadline of the chunk, 8 bytes behind
// its start. prefetch has no other effect and cannot fail.
//
// Gain: with it a timer takes 0.5 to 0.7 of the time of a sweep (BenchmarkSweep). A read
// instead would wait for the memory and hold up the instructions behind it.
//
//go:noescape
func prefetch(first *int64)
