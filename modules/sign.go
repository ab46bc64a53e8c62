package modules

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrNotSigned reports that none of the signatures is valid and by a trusted key.
var ErrNotSigned = errors.New("the module is not signed by a key that is trusted here")

// keyPrefix is the prefix of a public key in text form.
const keyPrefix = "ed25519:"

// MaxSignatures bounds the signatures of one version, and MaxKeys the keys that an app
// trusts. Each host checks them all.
const (
	MaxSignatures = 16
	MaxKeys       = 64
)

// Signature is the statement of a key's owner that the module may be trusted.
type Signature struct {
	Key       string // of the signer, in the form of [KeyText]
	Signature []byte
}

// statement returns the signed bytes. The prefix prevents the use of the signature as one
// for another purpose.
func statement(digest string) []byte { return []byte("wheelwork module v1\n" + digest) }

// KeyText returns a public key in the form that users copy: "ed25519:" and base64.
func KeyText(key ed25519.PublicKey) string {
	return keyPrefix + base64.StdEncoding.EncodeToString(key)
}

// ParseKey parses the form that [KeyText] writes.
func ParseKey(text string) (ed25519.PublicKey, error) {
	raw, ok := strings.CutPrefix(text, keyPrefix)
	key, err := base64.StdEncoding.Strict().DecodeString(raw)
	// Each key has exactly one text, because lists of keys are compared as texts.
	if !ok || err != nil || len(key) != ed25519.PublicKeySize || KeyText(key) != text {
		return nil, fmt.Errorf("%.80q is not a public key: want %s and 44 characters of base64, as `wheelwork module keygen` prints", text, keyPrefix)
	}
	return key, nil
}

// EncodePrivateKey encodes a private key as PEM (PKCS #8), which other tools can read.
func EncodePrivateKey(key ed25519.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// ParsePrivateKey parses the form that [EncodePrivateKey] writes.
func ParsePrivateKey(text []byte) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, errors.New("it holds no private key in PEM form: make one with `wheelwork module keygen`")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("it is not a private key: %w", err)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("it is a private key of another kind (%T): want ed25519", parsed)
	}
	return key, nil
}

// Sign signs the digest of a module.
func Sign(key ed25519.PrivateKey, digest string) (Signature, error) {
	if err := checkDigest(digest); err != nil {
		return Signature{}, err
	}
	return Signature{KeyText(key.Public().(ed25519.PublicKey)), ed25519.Sign(key, statement(digest))}, nil
}

// Verify checks the signature of a digest with the key that it names. It does not check
// whether that key is trusted.
func (s Signature) Verify(digest string) error {
	key, err := ParseKey(s.Key)
	if err != nil {
		return err
	}
	if len(s.Signature) != ed25519.SignatureSize || !ed25519.Verify(key, statement(digest), s.Signature) {
		return fmt.Errorf("the signature of %.40s is not one of these bytes (%.19s…): sign the module again as it is pushed, with its manifest", s.Key, digest)
	}
	return nil
}

// Trusted returns nil if at least one signature is valid and by a key of keys, and
// ErrNotSigned otherwise.
func Trusted(digest string, signatures []Signature, keys []string) error {
	for _, s := range signatures {
		if slices.Contains(keys, s.Key) && s.Verify(digest) == nil {
			return nil
		}
	}
	return ErrNotSigned
}

// TrustID returns the identity of a set of trusted keys, which does not depend on their
// order. It is never empty.
func TrustID(keys []string) string {
	keys = slices.Clone(keys)
	slices.Sort(keys)
	sum := sha256.Sum256([]byte(strings.Join(slices.Compact(keys), "\n")))
	return hex.EncodeToString(sum[:8])
}
