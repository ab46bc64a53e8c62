package modules

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestTrimKeepsWhatWasUsedLast(t *testing.T) {
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var digests []string
	for i := range 5 {
		d, err := s.Put(bytes.Repeat([]byte{byte(i)}, 100))
		if err != nil {
			t.Fatal(err)
		}
		path, _ := s.path(d)
		at := time.Now().Add(time.Duration(i-10) * time.Hour)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		digests = append(digests, d)
	}
	s.Touch(digests[0])
	s.Touch("sha256:no digest") // an invalid digest is ignored
	dir := filepath.Join(s.dir, "sha256", "00")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, age := range map[string]time.Duration{".put-old": 2 * time.Hour, ".put-new": 0} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, make([]byte, 50), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, time.Now(), time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	// The store has 600 bytes. Trim removes the interrupted write of two hours ago in any
	// case, and then the oldest blob that keep does not protect.
	freed, err := s.Trim(360, func(d string) bool { return d == digests[1] })
	if err != nil || freed != 250 {
		t.Errorf("freed %d, %v, want 250", freed, err)
	}
	var left []int
	for i, d := range digests {
		if s.Has(d) {
			left = append(left, i)
		}
	}
	if !slices.Equal(left, []int{0, 1, 4}) {
		t.Errorf("left: %v, want 0 (used last), 1 (kept) and 4 (the youngest)", left)
	}
	if _, err := os.Stat(filepath.Join(dir, ".put-new")); err != nil {
		t.Errorf("a write that goes on was removed: %v", err)
	}
	all, err := s.List()
	if err != nil || len(all) != 4 {
		t.Errorf("listed %d, %v", len(all), err)
	}
	if freed, err := s.Trim(1<<30, nil); err != nil || freed != 0 {
		t.Errorf("with room for all: freed %d, %v", freed, err)
	}
	if _, err := s.Trim(0, nil); err != nil {
		t.Fatal(err)
	}
	if all, _ := s.List(); len(all) != 1 || all[0].Digest != "" {
		t.Errorf("with room for none: %v", all)
	}
}
