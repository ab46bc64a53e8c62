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

// maxProgram bounds the size of a plugin's program, in bytes.
const maxProgram = 1 << 30

// prepare copies the program of a plugin into dir, which only this user can write, and
// verifies the copy. It returns the path of the copy. The host starts the copy, so it
// runs the bytes that it verified even if the original changes in between.
func prepare(s *Spec, dir string) (path, digest string, err error) {
	from, err := os.Open(s.Path)
	if err != nil {
		return "", "", err
	}
	defer from.Close()
	// The copy has the same suffix: some systems need it to recognise a program.
	path = filepath.Join(dir, s.Name+filepath.Ext(s.Path))
	temp, err := os.CreateTemp(dir, s.Name+".")
	if err != nil {
		return "", "", err
	}
	defer os.Remove(temp.Name()) // no file has this name after the rename
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

// allow returns an error unless the operator lists the digest, or one of the operator's
// keys has signed it.
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
		return fmt.Errorf("%s is not a signature: want 64 bytes in base64", file)
	}
	for _, key := range s.Keys {
		if len(key) == ed25519.PublicKeySize && ed25519.Verify(key, signed(digest), signature) {
			return nil
		}
	}
	return fmt.Errorf("%s (sha256 %s): none of the plugin's keys made the signature in %s", s.Path, digest, file)
}

// readSmall reads a file that must be small.
func readSmall(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 4<<10))
}

// signed returns the bytes that are signed. The prefix names the purpose, so that a
// signature for another purpose is not valid for a plugin.
func signed(digest string) []byte { return []byte("wheelwork plugin\nsha256:" + digest + "\n") }

// Sign returns the content of the signature file of a plugin's program.
func Sign(program io.Reader, key ed25519.PrivateKey) ([]byte, error) {
	sum := sha256.New()
	if _, err := io.Copy(sum, program); err != nil {
		return nil, err
	}
	signature := ed25519.Sign(key, signed(hex.EncodeToString(sum.Sum(nil))))
	return append(base64.StdEncoding.AppendEncode(nil, signature), '\n'), nil
}
