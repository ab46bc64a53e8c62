package api

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
)

// The layout of a sealed secret, with sizes in bytes; see docs/formats/secrets.md:
//
//	| format version (1) | id of the key (8) | nonce (12) | AES-256-GCM of the value |
//
// The app and the name are authenticated with it, so that a sealed secret cannot be
// opened under another name.
const (
	sealForm  = 1
	keyBytes  = 32
	keyID     = 8
	nonceSize = 12
)

var (
	errNoKey    = errors.New("this server has no key for secrets")
	errOtherKey = errors.New("it was sealed with another key than the one in the server's data directory: bring that key back, or set the secret again")
)

// CheckKey fails if a key for secrets has the wrong length. No key is allowed.
func CheckKey(key []byte) error {
	if n := len(key); n != 0 && n != keyBytes {
		return fmt.Errorf("the key of the secrets has %d bytes, it must have %d", n, keyBytes)
	}
	return nil
}

// sealer seals and opens secrets. The zero value has no key and returns errNoKey.
type sealer struct {
	aead cipher.AEAD
	id   [keyID]byte
}

func newSealer(key []byte) (sealer, error) {
	if len(key) == 0 {
		return sealer{}, nil
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return sealer{}, err
	}
	s := sealer{}
	if s.aead, err = cipher.NewGCM(block); err != nil {
		return sealer{}, err
	}
	sum := sha256.Sum256(append([]byte("wheelwork secret key\x00"), key...))
	copy(s.id[:], sum[:])
	return s, nil
}

// place returns the additional data that binds a sealed secret to its app and its name.
// It is unambiguous, because names contain no zero byte.
func place(app, name string) []byte { return []byte("wheelwork secret\x00" + app + "\x00" + name) }

func (s sealer) seal(app, name string, value []byte) ([]byte, error) {
	if s.aead == nil {
		return nil, errNoKey
	}
	sealed := make([]byte, 0, 1+keyID+nonceSize+len(value)+s.aead.Overhead())
	sealed = append(append(sealed, sealForm), s.id[:]...)
	var nonce [nonceSize]byte
	rand.Read(nonce[:]) //nolint:errcheck // it never fails
	sealed = append(sealed, nonce[:]...)
	return s.aead.Seal(sealed, nonce[:], value, place(app, name)), nil
}

func (s sealer) open(app, name string, sealed []byte) ([]byte, error) {
	const head = 1 + keyID + nonceSize
	switch {
	case s.aead == nil:
		return nil, errNoKey
	case len(sealed) < head || sealed[0] != sealForm:
		return nil, errors.New("it is in a form that this version does not read")
	case subtle.ConstantTimeCompare(sealed[1:1+keyID], s.id[:]) != 1:
		return nil, errOtherKey
	}
	value, err := s.aead.Open(nil, sealed[1+keyID:head], sealed[head:], place(app, name))
	if err != nil {
		return nil, errors.New("it is damaged, or that of another name: set it again")
	}
	return value, nil
}
