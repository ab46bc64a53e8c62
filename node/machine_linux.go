package node

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// systemMemory returns how many bytes of memory this process may have: those of the
// machine, or fewer if its control group has a limit; 0: unknown.
func systemMemory() int64 {
	return memoryOf(func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			return ""
		}
		return string(bytes.TrimSpace(text))
	})
}

// memoryOf is systemMemory with the contents of files as read returns them.
func memoryOf(read func(path string) string) int64 {
	var size int64
	if _, after, ok := strings.Cut(read("/proc/meminfo"), "MemTotal:"); ok {
		var kib int64
		if _, err := fmt.Sscanf(after, "%d kB", &kib); err == nil && kib > 0 {
			size = kib << 10
		}
	}
	group := ""
	for line := range strings.Lines(read("/proc/self/cgroup")) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			group = path
		}
	}
	limit := func(path string) {
		if n, err := strconv.ParseInt(read(path), 10, 64); err == nil && n > 0 && (size == 0 || n < size) {
			size = n
		}
	}
	// The limits of the parent groups hold as well.
	for {
		limit("/sys/fs/cgroup" + strings.TrimSuffix(group, "/") + "/memory.max")
		i := strings.LastIndexByte(group, '/')
		if i < 0 {
			break
		}
		group = group[:i]
	}
	limit("/sys/fs/cgroup/memory/memory.limit_in_bytes") // of control groups version 1
	return size
}
