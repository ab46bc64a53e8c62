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

	"github.com/wheelworkhq/wheelwork/runtime/process"
)

// prepare copies the program of a plugin into dir, which only this user can write, and
// verifies the copy. It returns the path of the copy. The host starts the copy, so it
// runs the bytes that it verified even if the original changes in between.
func prepare(s *Spec, dir string) (path, digest string, err error) {
	copied, err := process.CopyProgram(s.Path, dir, s.Name)
	if err != nil {
		return "", "", err
	}
	if err := s.allow(copied); err != nil {
		return "", "", errors.Join(err, copied.Discard())
	}
	path, err = copied.Publish()
	return path, copied.Digest, err
}

// allow returns an error unless the operator lists the digest, or one of the operator's
// keys has signed it.
func (s *Spec) allow(c *process.Copy) error {
	err := c.Allow(s.SHA256)
	if err == nil || len(s.Keys) == 0 {
		return err
	}
	digest := c.Digest
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
