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

// ErrNotSigned says that no signature of a trusted key was found.
var ErrNotSigned = errors.New("the module is not signed by a key that is trusted here")

// keyPrefix begins the text of a public key.
const keyPrefix = "ed25519:"

// MaxSignatures bounds the signatures of one version, and MaxKeys the keys that
// an app trusts: each is checked on every host.
const (
	MaxSignatures = 16
	MaxKeys       = 64
)

// Signature says that the owner of a key stands for a module.
type Signature struct {
	Key       string // of the signer, as [KeyText] writes it
	Signature []byte
}

// statement is what is signed. The words in front keep a signature of a digest
// from being taken for one of something else.
func statement(digest string) []byte { return []byte("wheelwork module v1\n" + digest) }

// KeyText writes a public key as people copy it: "ed25519:" and base64.
func KeyText(key ed25519.PublicKey) string {
	return keyPrefix + base64.StdEncoding.EncodeToString(key)
}

// ParseKey reads what [KeyText] writes.
func ParseKey(text string) (ed25519.PublicKey, error) {
	raw, ok := strings.CutPrefix(text, keyPrefix)
	key, err := base64.StdEncoding.Strict().DecodeString(raw)
	// One key has one text: lists of keys are compared as texts.
	if !ok || err != nil || len(key) != ed25519.PublicKeySize || KeyText(key) != text {
		return nil, fmt.Errorf("%.80q is not a public key: want %s and 44 characters of base64, as `wheelwork module keygen` prints", text, keyPrefix)
	}
	return key, nil
}

// EncodePrivateKey writes a private key as PEM (PKCS #8), which other tools read too.
func EncodePrivateKey(key ed25519.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// ParsePrivateKey reads what [EncodePrivateKey] writes.
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

// Sign signs a module's digest.
func Sign(key ed25519.PrivateKey, digest string) (Signature, error) {
	if err := checkDigest(digest); err != nil {
		return Signature{}, err
	}
	return Signature{KeyText(key.Public().(ed25519.PublicKey)), ed25519.Sign(key, statement(digest))}, nil
}

// Verify checks one signature of a digest against its own key.
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

// Trusted checks that one of the signatures is of a trusted key and right.
func Trusted(digest string, signatures []Signature, keys []string) error {
	for _, s := range signatures {
		if slices.Contains(keys, s.Key) && s.Verify(digest) == nil {
			return nil
		}
	}
	return ErrNotSigned
}

// TrustID names a set of trusted keys: the same keys have the same name. It is
// never empty.
func TrustID(keys []string) string {
	keys = slices.Clone(keys)
	slices.Sort(keys)
	sum := sha256.Sum256([]byte(strings.Join(slices.Compact(keys), "\n")))
	return hex.EncodeToString(sum[:8])
}
