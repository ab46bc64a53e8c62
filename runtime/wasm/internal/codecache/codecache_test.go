package codecache

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestWhatIsPutComesBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Get("name"); ok {
		t.Error("something is there before it was put")
	}
	for _, want := range [][]byte{[]byte("first"), {}, bytes.Repeat([]byte("second"), 100_000)} {
		if err := s.Put("name", want); err != nil {
			t.Fatal(err)
		}
		if have, ok := s.Get("name"); !ok || !bytes.Equal(have, want) {
			t.Errorf("%d bytes came back as %d, %t", len(want), len(have), ok)
		}
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("%d files are left, want 1", len(files))
	}
}

// TestDamageIsAbsence flips each bit of a file and cuts it everywhere.
func TestDamageIsAbsence(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put("name", []byte("some data")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "name")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		for bit := range 8 {
			bad := bytes.Clone(whole)
			bad[i] ^= 1 << bit
			if _, ok := decode(bad); ok {
				t.Errorf("bit %d of byte %d flipped: still there", bit, i)
			}
		}
		if _, ok := decode(whole[:i]); ok {
			t.Errorf("cut to %d bytes: still there", i)
		}
	}
	if err := os.WriteFile(file, whole[:len(whole)-1], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Get("name"); ok {
		t.Error("a file that was cut is still there")
	}
}

func TestTheZeroDirStoresNothing(t *testing.T) {
	var s Dir
	if err := s.Put("name", []byte("data")); err != nil {
		t.Error(err)
	}
	if _, ok := s.Get("name"); ok {
		t.Error("it kept something")
	}
}

func TestADirThatCannotBeWrittenSaysSo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(filepath.Join(file, "below")); err == nil {
		t.Error("a directory below a file was opened")
	}
	if err := (Dir{file}).Put("name", nil); err == nil {
		t.Error("a file below a file was written")
	}
}
