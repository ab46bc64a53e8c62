package mq

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestLostFiles removes files of an open log. The log soon fails by itself and returns
// the error to callers that append afterwards.
func TestLostFiles(t *testing.T) {
	for name, c := range map[string]struct {
		lose func(t *testing.T, d *simDisk)
		want string
	}{
		"the active segment is deleted": {func(_ *testing.T, d *simDisk) { delete(d.files, lastOf(d)) }, "deleted or renamed"},
		"a sealed segment is deleted":   {func(_ *testing.T, d *simDisk) { delete(d.files, segmentName(1)) }, "deleted or renamed"},
		"the active segment is replaced": {func(_ *testing.T, d *simDisk) {
			d.files[lastOf(d)] = &inode{mem: make([]byte, minSegmentBytes), platter: make([]byte, minSegmentBytes)}
		}, "replaced by another file"},
		"nothing is lost": {lose: func(*testing.T, *simDisk) {}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newSimDisk()
				told := make(chan error, 2)
				cfg := Config{Dir: "sim", SegmentBytes: minSegmentBytes, ScrubBytesPerSecond: -1, OnFail: func(err error) { told <- err }}
				if err := cfg.validate(); err != nil {
					t.Fatal(err)
				}
				l, err := open(cfg, d, func() error { return nil })
				if err != nil {
					t.Fatal(err)
				}
				for range 5 {
					if _, err := l.Write([]Record{{Body: make([]byte, 20<<10)}}); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(3 * watchPause) // with all files in place it continues
				if err := l.Err(); err != nil {
					t.Fatal(err)
				}
				d.mu.Lock()
				c.lose(t, d)
				d.mu.Unlock()
				time.Sleep(2 * watchPause)
				synctest.Wait()
				_, err = l.Write([]Record{{Body: []byte("x")}})
				if c.want == "" {
					if err != nil || len(told) != 0 {
						t.Errorf("got %v", err)
					}
					if err := l.Close(); err != nil {
						t.Error(err)
					}
					return
				}
				if !errors.Is(err, ErrReadOnly) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("an append got %v, want %q", err, c.want)
				}
				if len(told) != 1 || !strings.Contains((<-told).Error(), c.want) {
					t.Errorf("the owner was not told, or twice")
				}
				if err := l.Close(); err == nil {
					t.Error("a log whose files are lost closes without an error")
				}
			})
		})
	}
}

// lastOf returns the name of the last segment.
func lastOf(d *simDisk) (last string) {
	for name := range d.files {
		if strings.HasSuffix(name, segmentSuffix) {
			last = max(last, name)
		}
	}
	return last
}

// TestHolds: holds distinguishes a file from another one that took its name, with each
// writer.
func TestHolds(t *testing.T) {
	for _, writer := range allWriters() {
		t.Run(writer, func(t *testing.T) {
			path := t.TempDir()
			d, how := dir(path), writers[writer]
			if err := d.fill("a", minSegmentBytes, how, nil); err != nil {
				t.Fatal(err)
			}
			f, err := d.open("a", how)
			if err != nil {
				t.Skip(err) // no direct writes on this file system
			}
			defer f.Close() //nolint:errcheck // a test's
			if err := d.holds("a", f); err != nil {
				t.Error(err)
			}
			if err := os.Rename(filepath.Join(path, "a"), filepath.Join(path, "b")); err != nil {
				t.Fatal(err)
			}
			if err := d.holds("a", f); !isLoss(err) {
				t.Errorf("a renamed file: %v", err)
			}
			if err := os.WriteFile(filepath.Join(path, "a"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := d.holds("a", f); !errors.Is(err, errOtherFile) {
				t.Errorf("a replaced file: %v", err)
			}
		})
	}
}

// TestEmptySpare: a spare holds no records, so one of any size must not prevent a log
// from opening.
func TestEmptySpare(t *testing.T) {
	for _, writer := range allWriters() {
		for _, size := range []int64{0, 100, 4096, 2 * minSegmentBytes} {
			cfg := Config{Dir: t.TempDir(), SegmentBytes: minSegmentBytes, Writer: writer, ReserveBytes: -1}
			if err := os.WriteFile(filepath.Join(cfg.Dir, spareName(7)), make([]byte, size), 0o600); err != nil {
				t.Fatal(err)
			}
			l, err := Open(cfg)
			if err != nil {
				t.Errorf("%s, a spare of %d bytes: %v", writer, size, err)
				continue
			}
			if _, err := l.Write([]Record{{Body: []byte("x")}}); err != nil {
				t.Error(err)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
