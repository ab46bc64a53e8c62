package report

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// Machine describes the machine on which the numbers of a report were measured.
type Machine struct {
	CPUs     int    `json:"cpus"` // available to the process
	CPUModel string `json:"cpu_model"`
	Memory   int64  `json:"memory"` // bytes
	Kernel   string `json:"kernel"` // release
	Go       string `json:"go"`
	DiskFS   string `json:"disk_fs"` // type of the file system that holds the data
}

// ReadMachine describes this machine and the file system of dir. It reads /proc, so it
// needs Linux.
func ReadMachine(dir string) (Machine, error) {
	m := Machine{CPUs: runtime.NumCPU(), Go: runtime.Version()}
	cpu, cpuErr := os.ReadFile("/proc/cpuinfo")
	memory, memErr := os.ReadFile("/proc/meminfo")
	kernel, kernelErr := os.ReadFile("/proc/sys/kernel/osrelease")
	mounts, mountErr := os.ReadFile("/proc/self/mounts")
	for _, err := range []error{cpuErr, memErr, kernelErr, mountErr} {
		if err != nil {
			return m, fmt.Errorf("describe the machine: %w", err)
		}
	}
	m.CPUModel = Field(cpu, "model name")
	if m.CPUModel == "" { // some processor families have no such line
		m.CPUModel = runtime.GOARCH
	}
	m.Memory = Kilobytes(memory, "MemTotal")
	m.Kernel = strings.TrimSpace(string(kernel))
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return m, fmt.Errorf("describe the machine: %w", err)
	}
	m.DiskFS = fileSystem(mounts, dir)
	return m, nil
}

// Field returns the value of the first line "name : value" of a file of /proc, or "" if
// there is no such line.
func Field(file []byte, name string) string {
	lines := bufio.NewScanner(bytes.NewReader(file))
	for lines.Scan() {
		if k, v, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// Kilobytes returns the bytes of a line "name: 123 kB" of a file of /proc, or 0 if there
// is no such line.
func Kilobytes(file []byte, name string) int64 {
	n, err := strconv.ParseInt(strings.TrimSuffix(Field(file, name), " kB"), 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}

// fileSystem returns the type of the mount with the longest path above dir. Of mounts
// with the same path it returns the last one, which hides the others.
func fileSystem(mounts []byte, dir string) string {
	longest, kind := -1, "unknown"
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) < 3 {
			continue
		}
		at := strings.TrimSuffix(f[1], "/")
		if (dir == at || strings.HasPrefix(dir, at+"/")) && len(at) >= longest {
			longest, kind = len(at), f[2]
		}
	}
	return kind
}
