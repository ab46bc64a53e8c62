package keyring

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"
	"sync/atomic"
)

// The layout of a sealed secret, with sizes in bytes; see docs/formats/secrets.md:
//
//	| format version (1) | id of the key (8) | nonce (12) | AES-256-GCM of the value |
//
// The app and the name are authenticated with it, so that a sealed secret cannot be
// opened under another name.
const (
	sealForm  = 1
	nonceSize = 12
	sealHead  = 1 + keyID + nonceSize
)

var (
	errNoKey    = errors.New("this server has no key for secrets")
	errOtherKey = errors.New("it was sealed with a key that the server's key file does not have: add that key to the file, or set the secret again")
)

// Ring seals and opens secrets with keys that can be replaced while it is in use. A nil
// Ring has no keys. Its methods are safe for concurrent use.
type Ring struct {
	keys atomic.Pointer[Keys]
	// Lacking returns the servers that do not have a key yet; nil: there are no others. It
	// is set before the ring is used.
	Lacking func(id string) []string
}

// NewRing returns a ring with keys.
func NewRing(keys Keys) *Ring {
	r := &Ring{}
	r.Set(keys)
	return r
}

// Set replaces the keys.
func (r *Ring) Set(keys Keys) { r.keys.Store(&keys) }

// Keys returns the keys.
func (r *Ring) Keys() Keys {
	if r == nil {
		return Keys{}
	}
	return *r.keys.Load()
}

// Newest returns the id of the newest key, and the servers that do not have it yet; ""
// without a key.
func (r *Ring) Newest() (id string, lacking []string) {
	keys := r.Keys().all
	if len(keys) == 0 {
		return "", nil
	}
	id = keys[len(keys)-1].text()
	return id, r.lacking(id)
}

func (r *Ring) lacking(id string) []string {
	if r.Lacking == nil {
		return nil
	}
	return r.Lacking(id)
}

// sealing returns the key that seals: the newest that all servers have, so that each of
// them can become the owner of the app. If they have none in common, it is the oldest,
// which servers had that read one key only.
func (r *Ring) sealing() (key, bool) {
	keys := r.Keys().all
	if len(keys) == 0 {
		return key{}, false
	}
	for _, k := range slices.Backward(keys) {
		if len(r.lacking(k.text())) == 0 {
			return k, true
		}
	}
	return keys[0], true
}

// place returns the additional data that binds a sealed secret to its app and its name.
// It is unambiguous, because names contain no zero byte.
func place(app, name string) []byte { return []byte("wheelwork secret\x00" + app + "\x00" + name) }

// Seal seals the value of a secret.
func (r *Ring) Seal(app, name string, value []byte) ([]byte, error) {
	k, ok := r.sealing()
	if !ok {
		return nil, errNoKey
	}
	sealed := make([]byte, 0, sealHead+len(value)+k.aead.Overhead())
	sealed = append(append(sealed, sealForm), k.id[:]...)
	var nonce [nonceSize]byte
	rand.Read(nonce[:]) //nolint:errcheck // it never fails
	sealed = append(sealed, nonce[:]...)
	return k.aead.Seal(sealed, nonce[:], value, place(app, name)), nil
}

// Open returns the value of a sealed secret.
func (r *Ring) Open(app, name string, sealed []byte) ([]byte, error) {
	keys := r.Keys().all
	if len(keys) == 0 {
		return nil, errNoKey
	}
	if len(sealed) < sealHead || sealed[0] != sealForm {
		return nil, errors.New("it is in a form that this version does not read")
	}
	i := slices.IndexFunc(keys, func(k key) bool { return string(k.id[:]) == string(sealed[1:1+keyID]) })
	if i < 0 {
		return nil, errOtherKey
	}
	value, err := keys[i].aead.Open(nil, sealed[1+keyID:sealHead], sealed[sealHead:], place(app, name))
	if err != nil {
		return nil, errors.New("it is damaged, or that of another name: set it again")
	}
	return value, nil
}

// SealedBy returns the id of the key with which a secret was sealed; "" if the form is
// unknown.
func SealedBy(sealed []byte) string {
	if len(sealed) < sealHead || sealed[0] != sealForm {
		return ""
	}
	return hex.EncodeToString(sealed[1 : 1+keyID])
}
