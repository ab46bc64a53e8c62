package process

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxProgram bounds the size of a program that is copied, in bytes.
const maxProgram = 1 << 30

// Copy is a copy of a program in a folder that only this user can write. A host that checks
// and starts the copy runs the bytes that it has checked, even if the original changes in
// between. The caller must call Publish or Discard.
type Copy struct {
	Digest     string // SHA-256, in hex
	from       string
	temp, path string
}

// CopyProgram copies a program into dir, which it makes.
func CopyProgram(from, dir, name string) (_ *Copy, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, err
	}
	program, err := os.Open(from)
	if err != nil {
		return nil, err
	}
	defer program.Close()
	temp, err := os.CreateTemp(dir, name+".")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temp.Name())
		}
	}()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(temp, sum), io.LimitReader(program, maxProgram+1))
	if err == nil && n > maxProgram {
		err = fmt.Errorf("%s is larger than %d bytes", from, maxProgram)
	}
	if err == nil {
		err = temp.Chmod(0o555) // the mode of dir keeps other users out, but for a file that Hold has opened
	}
	if err = errors.Join(err, temp.Close()); err != nil {
		return nil, err
	}
	// The copy has the same suffix: some systems need it to recognise a program.
	return &Copy{Digest: hex.EncodeToString(sum.Sum(nil)), from: from, temp: temp.Name(), path: filepath.Join(dir, name+filepath.Ext(from))}, nil
}

// Allow returns an error unless the digest of the copy is in a list of the operator.
func (c *Copy) Allow(digests []string) error {
	if slices.ContainsFunc(digests, func(want string) bool {
		return strings.EqualFold(strings.TrimPrefix(want, "sha256:"), c.Digest)
	}) {
		return nil
	}
	return fmt.Errorf("%s is not allowed: its sha256 is %s; add it to sha256 in the operator's file if this is the program you mean", c.from, c.Digest)
}

// CheckDigests returns an error for a digest that is malformed.
func CheckDigests(digests []string) error {
	for _, d := range digests {
		if b, err := hex.DecodeString(strings.TrimPrefix(d, "sha256:")); err != nil || len(b) != sha256.Size {
			return fmt.Errorf("sha256 %q is not 64 hex digits", d)
		}
	}
	return nil
}

// Publish gives the copy its name, in place of an earlier copy, and returns its path.
func (c *Copy) Publish() (string, error) {
	if err := os.Rename(c.temp, c.path); err != nil {
		return "", errors.Join(err, c.Discard())
	}
	return c.path, nil
}

// Discard removes a copy that was not published.
func (c *Copy) Discard() error { return os.Remove(c.temp) }
