package modules

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
)

// Upload is a module that comes in pieces. It lies on disk and not in memory, in
// a file without a name: one that is left by a crash takes no room. It is for one
// goroutine.
type Upload struct {
	f    *os.File
	size int64
}

// NewUpload begins an upload. The caller closes it.
func (s *Store) NewUpload() (*Upload, error) {
	f, err := os.CreateTemp(s.dir, ".upload-*")
	if err != nil {
		return nil, fmt.Errorf("begin an upload: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close() //nolint:errcheck // it is being thrown away
		return nil, fmt.Errorf("begin an upload: %w", err)
	}
	return &Upload{f: f}, nil
}

// Write appends to the upload. It refuses what is larger than a module may be.
func (u *Upload) Write(p []byte) (int, error) {
	if u.size+int64(len(p)) > MaxBytes {
		return 0, fmt.Errorf("the module is larger than %d MiB, which is the limit", MaxBytes>>20)
	}
	n, err := u.f.WriteAt(p, u.size)
	u.size += int64(n)
	if err != nil {
		return n, fmt.Errorf("keep the upload: %w", err)
	}
	return n, nil
}

// Size is how many bytes came.
func (u *Upload) Size() int64 { return u.size }

// Reader reads the upload from its beginning.
func (u *Upload) Reader() io.Reader { return io.NewSectionReader(u.f, 0, u.size) }

// Bytes returns the upload as a whole, in memory.
func (u *Upload) Bytes() ([]byte, error) {
	b := make([]byte, u.size)
	if _, err := io.ReadFull(u.Reader(), b); err != nil {
		return nil, fmt.Errorf("read the upload: %w", err)
	}
	return b, nil
}

// Digest returns the identity of the bytes that came.
func (u *Upload) Digest() (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, u.Reader()); err != nil {
		return "", fmt.Errorf("read the upload: %w", err)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}

// Close throws the upload away. What was put of it stays.
func (u *Upload) Close() error { return u.f.Close() }
