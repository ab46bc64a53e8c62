// Package modules stores the bytes of modules by their digest.
//
//	<dir>/sha256/<first two hex digits>/<all 64>
//
// The store writes a blob to a temporary file, syncs it and renames it, so a file with
// its final name is complete. Each read compares the bytes with the digest in the name.
//
// The package also makes and checks signatures of digests, and lists the sections of
// WebAssembly files for display. The server's state maps names and versions to digests,
// and hosts run the code; both are outside this package.
package modules

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	// MaxBytes is the size of the largest module that hosts, backups and registries handle.
	MaxBytes = 256 << 20
	// DefaultUploadBytes is the size of the largest upload of a server that is not configured.
	DefaultUploadBytes = 64 << 20
)

// ErrTooLarge reports a module that is larger than a limit.
var ErrTooLarge = errors.New("the module is too large")

// CheckSize returns ErrTooLarge if n bytes are too many for a module.
func CheckSize(n int64) error {
	if n > MaxBytes {
		return fmt.Errorf("%w: larger than %d MiB", ErrTooLarge, MaxBytes>>20)
	}
	return nil
}

// ErrNotFound reports that the store has no blob with the digest.
var ErrNotFound = errors.New("no module of that digest")

// Digest returns the identity of a module's bytes: "sha256:<hex>".
func Digest(code []byte) string {
	sum := sha256.Sum256(code)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Store is a directory of blobs. It is safe for concurrent use by goroutines and by
// processes.
type Store struct{ dir string }

// Open returns the store in dir. It creates the directory if it does not exist.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(filepath.Join(dir, "sha256"), 0o755); err != nil {
		return nil, fmt.Errorf("open module store: %w", err)
	}
	return &Store{dir: dir}, nil
}

func checkDigest(digest string) error {
	name, ok := strings.CutPrefix(digest, "sha256:")
	if _, err := hex.DecodeString(name); !ok || err != nil || len(name) != 2*sha256.Size || strings.ToLower(name) != name {
		return fmt.Errorf("%.80q is not a digest: want sha256: and 64 hex digits", digest)
	}
	return nil
}

func (s *Store) path(digest string) (string, error) {
	if err := checkDigest(digest); err != nil {
		return "", err
	}
	name := strings.TrimPrefix(digest, "sha256:")
	return filepath.Join(s.dir, "sha256", name[:2], name), nil
}

// Has reports whether the store has the blob.
func (s *Store) Has(digest string) bool {
	path, err := s.path(digest)
	if err != nil {
		return false
	}
	_, err = os.Stat(path)
	return err == nil
}

// Put stores code and returns its digest. The blob is durable when Put returns.
func (s *Store) Put(code []byte) (digest string, err error) {
	if err := CheckSize(int64(len(code))); err != nil {
		return "", err
	}
	digest = Digest(code)
	return digest, s.put(digest, bytes.NewReader(code))
}

// PutUpload stores an upload under its digest. The blob is durable when PutUpload
// returns.
func (s *Store) PutUpload(u *Upload, digest string) error { return s.put(digest, u.Reader()) }

func (s *Store) put(digest string, code io.Reader) error {
	path, err := s.path(digest)
	if err != nil {
		return err
	}
	if s.Has(digest) {
		return nil
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("put module: %w", err)
	}
	f, err := os.CreateTemp(dir, ".put-*")
	if err != nil {
		return fmt.Errorf("put module: %w", err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // gone when the rename worked
	_, err = io.Copy(f, code)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err == nil {
		err = errors.Join(syncDir(dir), syncDir(filepath.Dir(dir)))
	}
	if err != nil {
		return fmt.Errorf("put module: %w", err)
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Get returns the bytes of a digest. It returns an error, and no bytes, when the file no
// longer matches its digest.
func (s *Store) Get(digest string) ([]byte, error) {
	path, err := s.path(digest)
	if err != nil {
		return nil, err
	}
	code, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: %s", ErrNotFound, digest)
	case err != nil:
		return nil, fmt.Errorf("get module: %w", err)
	case Digest(code) != digest:
		return nil, fmt.Errorf("get module: the file of %s was changed on disk: push the module again", digest)
	}
	return code, nil
}

// Remove deletes a blob. It is no error if the blob does not exist.
func (s *Store) Remove(digest string) error {
	path, err := s.path(digest)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove module: %w", err)
	}
	return nil
}
