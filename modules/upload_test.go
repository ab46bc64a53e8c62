package modules_test

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/modules"
)

// TestUpload stores an upload that arrives in pieces, and checks that an abandoned one
// leaves no file behind.
func TestUpload(t *testing.T) {
	dir := t.TempDir()
	s, err := modules.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	u, err := s.NewUpload()
	if err != nil {
		t.Fatal(err)
	}
	var want []byte
	for i := range 5 {
		piece := bytes.Repeat([]byte{byte(i)}, 100_000)
		if _, err := u.Write(piece); err != nil {
			t.Fatal(err)
		}
		want = append(want, piece...)
	}
	digest, err := u.Digest()
	if err != nil || digest != modules.Digest(want) || u.Size() != int64(len(want)) {
		t.Errorf("the upload is %s with %d bytes, %v", digest, u.Size(), err)
	}
	if b, err := u.Bytes(); err != nil || !bytes.Equal(b, want) {
		t.Errorf("the bytes that came are others than those that are read: %v", err)
	}
	for range 2 { // the second time, the blob exists already
		if err := s.PutUpload(u, digest); err != nil {
			t.Fatal(err)
		}
	}
	if err := u.Close(); err != nil {
		t.Error(err)
	}
	if b, err := s.Get(digest); err != nil || !bytes.Equal(b, want) {
		t.Errorf("what was put is not there: %v", err)
	}
	large, err := s.NewUpload()
	if err != nil {
		t.Fatal(err)
	}
	defer large.Close() //nolint:errcheck // a test's
	if err := s.PutUpload(large, digest[:len(digest)-1]); err == nil {
		t.Error("an upload was put under what is no digest")
	}
	for range 64 {
		if _, err := large.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := large.Write([]byte{1}); err == nil || !strings.Contains(err.Error(), "larger than 64 MiB") {
		t.Errorf("an upload of 64 MiB and a byte: %v", err)
	}
	large.Limit(65 << 20)
	if _, err := large.Write(make([]byte, 1<<20)); err != nil {
		t.Errorf("an upload within a limit of 65 MiB: %v", err)
	}
	if _, err := large.Write([]byte{1}); !errors.Is(err, modules.ErrTooLarge) || !strings.Contains(err.Error(), "larger than 65 MiB") {
		t.Errorf("an upload of 65 MiB and a byte: %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("the directory holds %v, want the blobs alone", left)
	}
}
