package modules

import (
	"bytes"
	"errors"
	"os"
	"testing"
)

func TestPutGet(t *testing.T) {
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	code := []byte("some module")
	d, err := s.Put(code)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := s.Put(code); err != nil || again != d {
		t.Fatalf("putting twice: %q, %v", again, err)
	}
	got, err := s.Get(d)
	if err != nil || !bytes.Equal(got, code) {
		t.Fatalf("got %q, %v", got, err)
	}
	if _, err := s.Get(Digest([]byte("other"))); !errors.Is(err, ErrNotFound) {
		t.Fatalf("missing blob: %v", err)
	}
	if err := s.Remove(d); err != nil || s.Has(d) {
		t.Fatalf("removed: %v, still there: %v", err, s.Has(d))
	}
}

func TestChangedBytesAreRefused(t *testing.T) {
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.Put([]byte("some module"))
	if err != nil {
		t.Fatal(err)
	}
	path, err := s.path(d)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("some moduIe"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(d); err == nil {
		t.Fatal("changed bytes were handed out")
	}
}

func TestDigestsAreChecked(t *testing.T) {
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"", "sha256:", "sha256:../../etc/passwd", "md5:" + Digest(nil)[7:], Digest(nil)[7:], "sha256:" + string(bytes.Repeat([]byte("A"), 64))} {
		if _, err := s.Get(d); err == nil || errors.Is(err, ErrNotFound) {
			t.Errorf("digest %q: %v", d, err)
		}
	}
}
