//go:build !linux

package node

// systemMemory returns 0: it is unknown how many bytes of memory this process may have.
func systemMemory() int64 { return 0 }
