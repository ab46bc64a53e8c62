package node

import "testing"

func TestMemoryOf(t *testing.T) {
	const info = "MemTotal:       24657712 kB\nMemFree:        1 kB"
	const all = 24657712 << 10
	for name, tt := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"nothing is known":    {nil, 0},
		"a machine":           {map[string]string{"/proc/meminfo": info}, all},
		"a container":         {map[string]string{"/proc/meminfo": info, "/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.max": "1073741824"}, 1 << 30},
		"no limit":            {map[string]string{"/proc/meminfo": info, "/proc/self/cgroup": "0::/a", "/sys/fs/cgroup/a/memory.max": "max"}, all},
		"a group":             {map[string]string{"/proc/meminfo": info, "/proc/self/cgroup": "1:x:/y\n0::/a/b", "/sys/fs/cgroup/a/b/memory.max": "4096"}, 4096},
		"the group above":     {map[string]string{"/proc/meminfo": info, "/proc/self/cgroup": "0::/a/b", "/sys/fs/cgroup/a/memory.max": "8192", "/sys/fs/cgroup/a/b/memory.max": "max"}, 8192},
		"more than there is":  {map[string]string{"/proc/meminfo": info, "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712"}, all},
		"of version 1":        {map[string]string{"/proc/meminfo": info, "/sys/fs/cgroup/memory/memory.limit_in_bytes": "4096"}, 4096},
		"what is no number":   {map[string]string{"/proc/meminfo": "MemTotal: many kB", "/proc/self/cgroup": "0::/", "/sys/fs/cgroup/memory.max": "-5"}, 0},
		"a group without end": {map[string]string{"/proc/self/cgroup": "0::a"}, 0},
	} {
		if got := memoryOf(func(path string) string { return tt.files[path] }); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
	if systemMemory() < 64<<20 {
		t.Errorf("this machine has %d bytes", systemMemory())
	}
}
