package files

import (
	"os"
	"strconv"
	"time"
)

// chtimes sets the times of an open file, also if it has another name by now. A zero time
// does not change.
func chtimes(root *os.Root, path string, file *os.File, atim, mtim time.Time) error {
	err := control(file, func(fd int) error {
		return os.Chtimes("/proc/self/fd/"+strconv.Itoa(fd), atim, mtim)
	})
	if os.IsNotExist(err) { // /proc is not mounted
		return chtimesByPath(root, path, file, atim, mtim)
	}
	return err
}
