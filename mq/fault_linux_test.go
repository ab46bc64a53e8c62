package mq

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/testkit"

	"golang.org/x/sys/unix"
)

// smallDisk mounts a file system of 16 MiB.
func smallDisk(t *testing.T, kind string) (path string) {
	t.Helper()
	path = t.TempDir()
	mount := func() error { return unix.Mount("tmpfs", path, "tmpfs", 0, "size=16m") }
	if kind == "ext4" {
		image := filepath.Join(t.TempDir(), "image")
		out, err := exec.Command("mkfs.ext4", "-q", "-F", image, "16m").CombinedOutput()
		if err != nil {
			testkit.Lacks(t, "needs mkfs.ext4: %v\n%s", err, out)
		}
		mount = func() error {
			out, err := exec.Command("mount", "-o", "loop", image, path).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w\n%s", err, out)
			}
			return nil
		}
	}
	if err := mount(); err != nil {
		testkit.Lacks(t, "needs a small disk, and a %s cannot be mounted: %v", kind, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return path
}

// TestFullDisk fills a real file system to the last byte, with each writer. An append is
// refused and never faults. The log keeps its contents, also over a restart, and
// continues when there is room again.
func TestFullDisk(t *testing.T) {
	for _, kind := range []string{"tmpfs", "ext4"} {
		t.Run(kind, func(t *testing.T) {
			path := smallDisk(t, kind)
			for _, writer := range allWriters() {
				t.Run(writer, func(t *testing.T) {
					cfg := small(filepath.Join(path, writer))
					cfg.Writer, cfg.SegmentBytes = writer, 256<<10
					if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
						t.Fatal(err)
					}
					if _, err := openDirectly(path); err != nil && writer == "direct" {
						testkit.Lacks(t, "needs direct writes, which this %s has not: %v", kind, err)
					}
					fullDisk(t, cfg, filepath.Join(path, "filler"))
					if err := os.RemoveAll(cfg.Dir); err != nil {
						t.Fatal(err)
					}
				})
			}
		})
	}
}

// openDirectly reports whether a file system has direct writes.
func openDirectly(path string) (bool, error) {
	name := filepath.Join(path, "probe")
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_DIRECT, 0o600)
	if err != nil {
		return false, err
	}
	_, err = f.WriteAt(alignedBytes(pageSize)[:pageSize], 0)
	return err == nil, errors.Join(err, f.Close(), os.Remove(name))
}

func fullDisk(t *testing.T, cfg Config, filler string) {
	size := func(uint64) int { return 20000 }
	l := mustOpen(t, cfg)
	acked := uint64(1)
	var refused error
	appendUntilFull := func() {
		t.Helper()
		for {
			seq := l.Next()
			if _, refused = write(l, Record{Body: bodyFor(seq, size(seq))}); refused != nil {
				break
			}
			acked = seq + 1
		}
		if !errors.Is(refused, ErrFull) || l.Err() != nil {
			t.Fatalf("refused with %v, the log says %v", refused, l.Err())
		}
	}
	for l.Stats().Segments < 4 {
		mustWrite(t, l, Record{Body: bodyFor(l.Next(), size(l.Next()))})
		acked = l.Next()
	}
	fill(t, filler)
	appendUntilFull()
	if err := checkUnits(l, size, nil, acked); err != nil {
		t.Fatal(err)
	}
	mustClose(t, l)
	l = mustOpen(t, cfg) // on the full disk
	if l.Next() != acked {
		t.Fatalf("next is %d after a restart, want %d", l.Next(), acked)
	}
	appendUntilFull()
	if err := l.Trim(l.Next()); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, l, Record{Body: bodyFor(acked, size(acked))})
	fill(t, filler)
	appendUntilFull()
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	l.preparer.failed = time.Time{} // otherwise it would look again a second later
	l.mu.Unlock()
	for errors.Is(refused, ErrFull) { // the first append requests a segment
		seq := l.Next()
		if _, refused = write(l, Record{Body: bodyFor(seq, size(seq))}); refused == nil {
			acked = seq + 1
		}
	}
	if refused != nil {
		t.Fatal(refused)
	}
	if err := checkUnits(l, size, nil, acked); err != nil {
		t.Fatal(err)
	}
	mustClose(t, l)
}

// fill writes to a file until the disk is full.
func fill(t *testing.T, name string) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for block := make([]byte, 256<<10); ; {
		n, err := f.Write(block)
		if errors.Is(err, io.ErrShortWrite) || err == nil && n < len(block) {
			continue
		}
		if errors.Is(err, syscall.ENOSPC) {
			if block = block[:len(block)/2]; len(block) > 0 {
				continue
			}
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

// TestMappingFaultIsAnError truncates the file under the mapping. The store faults, and
// the program survives.
func TestMappingFaultIsAnError(t *testing.T) {
	cfg := small(t.TempDir())
	cfg.Writer = "mmap"
	l := mustOpen(t, cfg)
	mustWrite(t, l, Record{Body: []byte("safe")})
	if err := os.Truncate(filepath.Join(cfg.Dir, segmentName(1)), headerSize); err != nil {
		t.Fatal(err)
	}
	if _, err := write(l, Record{Body: make([]byte, 8000)}); !errors.Is(err, ErrReadOnly) || !strings.Contains(err.Error(), "mapping") {
		t.Fatalf("a store into the truncated file: %v", err)
	}
	if _, err := write(l, Record{}); !errors.Is(err, ErrReadOnly) {
		t.Fatalf("Append afterwards: %v", err)
	}
	if err := l.Close(); err == nil {
		t.Fatal("Close says nothing of the failure")
	}
	var rot *CorruptError
	if _, err := Open(cfg); !errors.As(err, &rot) || rot.Segment != segmentName(1) {
		t.Fatalf("Open of the truncated file: %v", err)
	}
}

// TestDeviceBytes counts the bytes that small appends send to the device, as the kernel
// charges them to this process: one page each and now and then a second one. A large
// folio that is dirtied as a whole would show here.
func TestDeviceBytes(t *testing.T) {
	const appends, body = 400, 280
	for _, writer := range allWriters() {
		t.Run(writer, func(t *testing.T) {
			cfg := Config{Dir: t.TempDir(), Writer: writer, SegmentBytes: 1 << 20, ReserveBytes: -1}
			var st unix.Statfs_t
			if err := unix.Statfs(cfg.Dir, &st); err != nil {
				t.Fatal(err)
			}
			if st.Type == unix.TMPFS_MAGIC {
				testkit.Lacks(t, "needs a temporary directory on a device (TMPDIR), this one is in memory")
			}
			l := mustOpen(t, cfg)
			for l.Stats().Spares == 0 { // so that no segment is filled meanwhile
				mustWrite(t, l, Record{Body: make([]byte, body)})
			}
			before := writtenBytes(t)
			for range appends {
				mustWrite(t, l, Record{Body: make([]byte, body)})
			}
			pages := float64(writtenBytes(t)-before) / appends / pageSize
			t.Logf("%.2f pages per append", pages)
			if pages < 0.9 || pages > 1.25 {
				t.Fatalf("%.2f pages per append, want 1 to 1.25", pages)
			}
			mustClose(t, l)
		})
	}
}

// writtenBytes returns the bytes that this process has made the kernel send to devices.
func writtenBytes(t *testing.T) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/io")
	if err != nil {
		testkit.Lacks(t, "needs a kernel that counts the bytes of a process: %v", err)
	}
	for line := range strings.Lines(string(b)) {
		if n, ok := strings.CutPrefix(line, "write_bytes: "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(n), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("/proc/self/io has no write_bytes")
	return 0
}
