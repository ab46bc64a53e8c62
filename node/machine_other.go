//go:build !linux

package node

// systemMemory is how many bytes this process may have at most. 0: nobody knows.
func systemMemory() int64 { return 0 }
