package modules

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
)

// Upload receives a module in pieces. It stores the bytes on disk, not in memory, in a
// file without a name, so a crash leaves no file behind. An Upload must be used by one
// goroutine at a time.
type Upload struct {
	f    *os.File
	size int64
	most int64
}

// NewUpload begins an upload. The caller must close it.
func (s *Store) NewUpload() (*Upload, error) {
	f, err := os.CreateTemp(s.dir, ".upload-*")
	if err != nil {
		return nil, fmt.Errorf("begin an upload: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close() //nolint:errcheck // it is being thrown away
		return nil, fmt.Errorf("begin an upload: %w", err)
	}
	return &Upload{f: f, most: DefaultUploadBytes}, nil
}

// Limit sets the number of bytes that the upload may have, at most MaxBytes; 0 means
// DefaultUploadBytes.
func (u *Upload) Limit(bytes int64) { u.most = min(cmp.Or(bytes, DefaultUploadBytes), MaxBytes) }

// Write appends to the upload. It refuses bytes beyond the limit with ErrTooLarge.
func (u *Upload) Write(p []byte) (int, error) {
	if u.size+int64(len(p)) > u.most {
		return 0, fmt.Errorf("%w: larger than %d MiB, the limit of this server: make it smaller, or raise the server's --upload-size", ErrTooLarge, u.most>>20)
	}
	n, err := u.f.WriteAt(p, u.size)
	u.size += int64(n)
	if err != nil {
		return n, fmt.Errorf("store the upload: %w", err)
	}
	return n, nil
}

// Size returns the number of bytes received.
func (u *Upload) Size() int64 { return u.size }

// Reader returns a reader of the bytes received, from the first one.
func (u *Upload) Reader() io.Reader { return io.NewSectionReader(u.f, 0, u.size) }

// Bytes returns the bytes received, in memory.
func (u *Upload) Bytes() ([]byte, error) {
	b := make([]byte, u.size)
	if _, err := io.ReadFull(u.Reader(), b); err != nil {
		return nil, fmt.Errorf("read the upload: %w", err)
	}
	return b, nil
}

// Digest returns the digest of the bytes received.
func (u *Upload) Digest() (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, u.Reader()); err != nil {
		return "", fmt.Errorf("read the upload: %w", err)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}

// Close discards the upload. A blob that PutUpload has stored from it remains.
func (u *Upload) Close() error { return u.f.Close() }
