package store

import (
	"bufio"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ReleasePages lets go of the memory in which the tables of this process's stores
// are shown. Badger writes and reads a table through its mapping, and what it has
// touched stays resident though nobody reads it for hours: beside a million jobs
// that is a seventh of the process. What is read again comes from its file. It is
// for a time at which there is little to do, and does nothing where the system
// cannot.
func ReleasePages() {
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer maps.Close() //nolint:errcheck // it was read
	for _, m := range tableMappings(maps) {
		// PAGEOUT keeps what is in memory, whatever lies there by now: a table may be
		// removed, and its place given to another mapping, at any moment.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.start, m.length, unix.MADV_PAGEOUT)
	}
}

// mapping is a piece of the address space.
type mapping struct{ start, length uintptr }

// tableMappings reads which pieces show tables, from the text of /proc/PID/maps.
func tableMappings(maps io.Reader) (found []mapping) {
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		line := lines.Text() // 7f0c1a000000-7f0c1a200000 r--s 00000000 08:01 1234   /data/000001.sst
		if !strings.HasSuffix(line, ".sst") {
			continue
		}
		where, _, _ := strings.Cut(line, " ")
		from, to, _ := strings.Cut(where, "-")
		start, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		if err1 == nil && err2 == nil && start < end {
			found = append(found, mapping{uintptr(start), uintptr(end - start)})
		}
	}
	return found
}
