package keyring

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

const (
	keyBytes = 32
	keyID    = 8 // bytes of an id
	// maxKeys bounds the keys of a file. Each is needed only until all secrets are sealed
	// with the newest.
	maxKeys = 16
	// MaxFile is the size of the largest key file that is read, in bytes.
	MaxFile = 16 << 10
)

// Keys are the keys of a file, the oldest first. The zero value has none.
type Keys struct{ all []key }

// key is one key.
type key struct {
	id     [keyID]byte
	aead   cipher.AEAD
	secret []byte
}

func newKey(secret []byte) (k key, err error) {
	if len(secret) != keyBytes {
		return k, fmt.Errorf("a key has %d bytes, it must have %d", len(secret), keyBytes)
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return k, err
	}
	if k.aead, err = cipher.NewGCM(block); err != nil {
		return k, err
	}
	sum := sha256.Sum256(append([]byte("wheelwork secret key\x00"), secret...))
	copy(k.id[:], sum[:])
	k.secret = secret
	return k, nil
}

func (k key) text() string { return hex.EncodeToString(k.id[:]) }

// parseLine reads a line of a key file. ok is false for an empty line and a comment. The
// error does not contain the line.
func parseLine(line string) (k key, ok bool, err error) {
	line = strings.TrimSpace(line)
	if line == "" || strings.HasPrefix(line, "#") {
		return k, false, nil
	}
	secret, err := base64.StdEncoding.DecodeString(line)
	if err != nil {
		return k, false, errors.New("it is not base64")
	}
	k, err = newKey(secret)
	return k, err == nil, err
}

// Parse reads a key file: one key in base64 a line, the oldest first, empty lines, and
// comments that begin with #.
func Parse(text string) (Keys, error) {
	var keys Keys
	for i, line := range strings.Split(text, "\n") {
		k, ok, err := parseLine(line)
		switch {
		case err != nil:
			return Keys{}, fmt.Errorf("line %d is no key: %w", i+1, err)
		case !ok:
		case keys.Has(k.text()):
			return Keys{}, fmt.Errorf("line %d has the key %s again", i+1, k.text())
		case len(keys.all) == maxKeys:
			return Keys{}, fmt.Errorf("it has more than %d keys: remove those that seal no secret", maxKeys)
		default:
			keys.all = append(keys.all, k)
		}
	}
	if len(keys.all) == 0 {
		return Keys{}, errors.New("it has no key")
	}
	return keys, nil
}

// Text returns the keys as a file has them.
func (k Keys) Text() string {
	var b strings.Builder
	for _, x := range k.all {
		b.WriteString(base64.StdEncoding.EncodeToString(x.secret) + "\n")
	}
	return b.String()
}

// IDs returns the ids of the keys, the oldest first. An id does not reveal its key.
func (k Keys) IDs() (ids []string) {
	for _, x := range k.all {
		ids = append(ids, x.text())
	}
	return ids
}

// Has reports whether there is a key with the id.
func (k Keys) Has(id string) bool {
	return slices.ContainsFunc(k.all, func(x key) bool { return x.text() == id })
}

// New returns the text of a file with one new key. Programs of versions that read one key
// only can read it.
func New() (text, id string) {
	secret := make([]byte, keyBytes)
	rand.Read(secret) //nolint:errcheck // it never fails
	k, err := newKey(secret)
	if err != nil {
		panic(err) // the length is right
	}
	return base64.StdEncoding.EncodeToString(secret) + "\n", k.text()
}

// Add returns the text of a key file with a new key at its end, which becomes the newest.
func Add(text string) (_, id string, err error) {
	keys, err := Parse(text)
	if err != nil {
		return "", "", err
	}
	if len(keys.all) == maxKeys {
		return "", "", fmt.Errorf("it has %d keys already: remove those that seal no secret", maxKeys)
	}
	line, id := New()
	return strings.TrimRight(text, "\n") + "\n" + line, id, nil
}

// Remove returns the text of a key file without a key. It refuses to remove the newest key.
func Remove(text, id string) (string, error) {
	keys, err := Parse(text)
	if err != nil {
		return "", err
	}
	switch ids := keys.IDs(); {
	case !keys.Has(id):
		return "", fmt.Errorf("it has no key %s: it has %s", id, strings.Join(ids, ", "))
	case ids[len(ids)-1] == id:
		return "", fmt.Errorf("%s is the newest key, which seals secrets: add another one before", id)
	}
	var kept []string
	for _, line := range strings.Split(text, "\n") {
		if k, ok, _ := parseLine(line); !ok || k.text() != id { //nolint:errcheck // it was read before
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n"), nil
}
