//go:build !unix

package files

import "os"

// nonblock is 0 on systems whose directories contain no pipes.
const nonblock = 0

// inode returns 0, which means that the inode of a directory's entry is not known.
func inode(*os.File, string) uint64 { return 0 }

func rename(root *os.Root, from, to string) error { return root.Rename(from, to) }
