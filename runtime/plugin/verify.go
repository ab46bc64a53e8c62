package plugin

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxProgram bounds the file of a plugin.
const maxProgram = 1 << 30

// prepare copies a plugin's program into dir, which only this user can write,
// and returns the path of the copy if its bytes are allowed. What was checked is
// what is started: the original may change in between.
func prepare(s *Spec, dir string) (path, digest string, err error) {
	from, err := os.Open(s.Path)
	if err != nil {
		return "", "", err
	}
	defer from.Close()
	// The suffix stays: it is how some systems know a program.
	path = filepath.Join(dir, s.Name+filepath.Ext(s.Path))
	temp, err := os.CreateTemp(dir, s.Name+".")
	if err != nil {
		return "", "", err
	}
	defer os.Remove(temp.Name()) // there is none after the rename
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(temp, sum), io.LimitReader(from, maxProgram+1))
	if err == nil && n > maxProgram {
		err = fmt.Errorf("%s is larger than %d bytes", s.Path, maxProgram)
	}
	if err == nil {
		err = temp.Chmod(0o500)
	}
	if err = errors.Join(err, temp.Close()); err != nil {
		return "", "", err
	}
	digest = hex.EncodeToString(sum.Sum(nil))
	if err := s.allow(digest); err != nil {
		return "", "", err
	}
	return path, digest, os.Rename(temp.Name(), path)
}

// allow refuses a program that the operator did not name and nobody he trusts
// has signed.
func (s *Spec) allow(digest string) error {
	if slices.ContainsFunc(s.SHA256, func(want string) bool {
		return strings.EqualFold(strings.TrimPrefix(want, "sha256:"), digest)
	}) {
		return nil
	}
	if len(s.Keys) == 0 {
		return fmt.Errorf("%s is not allowed: its sha256 is %s; add it to the plugin's sha256 if this is the program you mean", s.Path, digest)
	}
	file := s.Signature
	if file == "" {
		file = s.Path + ".sig"
	}
	text, err := readSmall(file)
	if err != nil {
		return fmt.Errorf("%s (sha256 %s) is neither in the plugin's sha256 nor signed: %w", s.Path, digest, err)
	}
	signature, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(text)))
	if err != nil || len(signature) != ed25519.SignatureSize {
		return fmt.Errorf("%s is no signature: want 64 bytes in base64", file)
	}
	for _, key := range s.Keys {
		if len(key) == ed25519.PublicKeySize && ed25519.Verify(key, signed(digest), signature) {
			return nil
		}
	}
	return fmt.Errorf("%s (sha256 %s): no key of the plugin's keys has made the signature in %s", s.Path, digest, file)
}

// readSmall reads a file of which a few bytes are wanted.
func readSmall(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 4<<10))
}

// signed is what a signature is of. It begins with what it is for, so that a
// signature of something else is none of a plugin.
func signed(digest string) []byte { return []byte("wheelwork plugin\nsha256:" + digest + "\n") }

// Sign returns the text for the signature file of a plugin's program.
func Sign(program io.Reader, key ed25519.PrivateKey) ([]byte, error) {
	sum := sha256.New()
	if _, err := io.Copy(sum, program); err != nil {
		return nil, err
	}
	signature := ed25519.Sign(key, signed(hex.EncodeToString(sum.Sum(nil))))
	return append(base64.StdEncoding.AppendEncode(nil, signature), '\n'), nil
}
