package store

import (
	"bufio"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ReleasePages releases the resident memory of the mapped tables of all stores in the
// process. Badger writes and reads a table through its mapping, and touched pages stay
// resident even if no read follows for hours. With a million jobs that is a seventh of
// the process's memory. A later read loads the page from its file. Call it when the
// server is idle. It does nothing if the system does not support it.
func ReleasePages() {
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer maps.Close() //nolint:errcheck // it was read
	for _, m := range tableMappings(maps) {
		// PAGEOUT loses no data, whatever is mapped at the address by now. A table may be
		// removed and its address range reused at any moment.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.start, m.length, unix.MADV_PAGEOUT)
	}
}

// mapping is an address range.
type mapping struct{ start, length uintptr }

// tableMappings returns the ranges that map tables, from the text of /proc/PID/maps.
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
