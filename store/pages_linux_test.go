package store

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestTableMappings(t *testing.T) {
	const maps = `00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/wheelwork
7f0c1a000000-7f0c1a200000 r--s 00000000 08:01 1234       /data/store/000001.sst
7f0c1b000000-7f0c1b200000 rw-s 00000000 08:01 1235       /data/store/00001.mem
7f0c1c000000-7f0c1c000000 r--s 00000000 08:01 1236       /data/store/000002.sst
nothing                                                  /data/store/000003.sst
7f0c1d000000-7f0c1d001000 rw-s 00000000 08:01 1237       /data/a name with blanks/000004.sst
7ffd0000-7ffd1000 rw-p 00000000 00:00 0                  [stack]
`
	want := []mapping{{0x7f0c1a000000, 0x200000}, {0x7f0c1d000000, 0x1000}}
	if got := tableMappings(strings.NewReader(maps)); !slices.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}

// TestPagesAreReleased: a table is not resident after the call and its contents are
// unchanged. Mappings of other files stay resident.
func TestPagesAreReleased(t *testing.T) {
	const size = 1 << 20
	dir := t.TempDir()
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	if fs.Type == unix.TMPFS_MAGIC {
		t.Skip("the directory for temporary files is in memory: a page there has nowhere to go")
	}
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(page) //nolint:errcheck // the process ends
	if err := unix.Madvise(page, unix.MADV_PAGEOUT); err != nil {
		t.Skipf("this system takes no pages out on request: %v", err)
	}
	text := bytes.Repeat([]byte("wheelwork"), size/9+1)[:size]
	shown := func(name string) (data []byte, resident func() int) {
		path := filepath.Join(dir, name)
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close() //nolint:errcheck // it is mapped
		if _, err := f.Write(text); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		data, err = unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Munmap(data) }) //nolint:errcheck // the process ends
		return data, func() int {
			smaps, err := os.ReadFile("/proc/self/smaps")
			if err != nil {
				t.Fatal(err)
			}
			_, after, ok := strings.Cut(string(smaps), path)
			_, after, ok2 := strings.Cut(after, "\nRss:")
			var kib int
			if _, err := fmt.Sscanf(after, "%d kB", &kib); err != nil || !ok || !ok2 {
				t.Fatalf("%s is not mapped: %v", path, err)
			}
			return kib << 10
		}
	}
	table, inTable := shown("000001.sst")
	other, inOther := shown("00001.mem")
	if !bytes.Equal(table, text) || !bytes.Equal(other, text) || inTable() != size || inOther() != size {
		t.Fatalf("%d and %d bytes of %d are resident: the test tests nothing", inTable(), inOther(), size)
	}
	ReleasePages()
	if n := inTable(); n > size/8 {
		t.Errorf("%d bytes of a table are still resident", n)
	}
	if n := inOther(); n != size {
		t.Errorf("%d bytes of another file are left", n)
	}
	if !bytes.Equal(table, text) {
		t.Error("the table says something else now")
	}
}
