//go:build !linux

package files

import (
	"os"
	"time"
)

// chtimes sets the times of an open file. A zero time does not change.
func chtimes(root *os.Root, path string, file *os.File, atim, mtim time.Time) error {
	return chtimesByPath(root, path, file, atim, mtim)
}
