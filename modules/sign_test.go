package modules

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"
	"testing"
)

func newKey(t testing.TB) (ed25519.PrivateKey, string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return private, KeyText(public)
}

func TestSignatures(t *testing.T) {
	ours, ourKey := newKey(t)
	theirs, theirKey := newKey(t)
	d, other := Digest([]byte("a")), Digest([]byte("b"))
	sign := func(key ed25519.PrivateKey, digest string) Signature {
		t.Helper()
		s, err := Sign(key, digest)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	good := sign(ours, d)
	if err := good.Verify(d); err != nil || good.Key != ourKey {
		t.Fatalf("%v, %s", err, good.Key)
	}
	if err := good.Verify(other); err == nil {
		t.Error("a signature holds for other bytes")
	}
	for name, bad := range map[string]Signature{
		"nothing":         {},
		"no signature":    {Key: ourKey},
		"cut off":         {ourKey, good.Signature[:63]},
		"another's key":   {theirKey, good.Signature},
		"a key of zeros":  {"ed25519:" + strings.Repeat("A", 43) + "=", make([]byte, 64)},
		"the bare digest": {ourKey, ed25519.Sign(ours, []byte(d))}, // a signature without the prefix of a module's statement
	} {
		if bad.Verify(d) == nil {
			t.Errorf("%s: taken", name)
		}
	}
	for _, tt := range []struct {
		name string
		all  []Signature
		keys []string
		ok   bool
	}{
		{"ours", []Signature{good}, []string{ourKey}, true},
		{"ours behind theirs", []Signature{sign(theirs, d), good}, []string{ourKey}, true},
		{"none", nil, []string{ourKey}, false},
		{"theirs", []Signature{sign(theirs, d)}, []string{ourKey}, false},
		{"of other bytes", []Signature{sign(ours, other)}, []string{ourKey}, false},
		{"nobody is trusted", []Signature{good}, nil, false},
		{"theirs with our name", []Signature{{ourKey, sign(theirs, d).Signature}}, []string{ourKey}, false},
	} {
		if err := Trusted(d, tt.all, tt.keys); (err == nil) != tt.ok || err != nil && !errors.Is(err, ErrNotSigned) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if _, err := Sign(ours, "md5:x"); err == nil {
		t.Error("something that is no digest was signed")
	}
}

func TestKeys(t *testing.T) {
	private, text := newKey(t)
	encoded, err := EncodePrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	back, err := ParsePrivateKey(encoded)
	if err != nil || !back.Equal(private) {
		t.Fatalf("read back: %v", err)
	}
	if key, err := ParseKey(text); err != nil || !key.Equal(private.Public()) {
		t.Fatalf("read back: %v", err)
	}
	for _, bad := range []string{"", "ed25519:", text[8:], strings.ToUpper(text[:8]) + text[8:], text + "=", text + "\n", "ed25519:AAAA", "rsa:" + text[8:]} {
		if _, err := ParseKey(bad); err == nil {
			t.Errorf("%q is taken for a key", bad)
		}
	}
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(curve)
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string][]byte{
		"nothing":          nil,
		"a text":           []byte(text),
		"another kind":     pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
		"damaged":          pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der[:10]}),
		"a public key":     pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}),
		"cut in the armor": encoded[:len(encoded)/2],
	} {
		if _, err := ParsePrivateKey(bad); err == nil {
			t.Errorf("%s is taken for a private key", name)
		}
	}
	if a, b := TrustID([]string{"x", "y"}), TrustID([]string{"y", "x", "y"}); a != b || a == "" || a == TrustID([]string{"x"}) || TrustID(nil) == "" {
		t.Errorf("names of sets of keys: %s, %s, %s, %s", a, b, TrustID([]string{"x"}), TrustID(nil))
	}
}

// FuzzKeys checks that any text is parsed as a key or a signature, or refused, without a
// panic.
func FuzzKeys(f *testing.F) {
	private, text := newKey(f)
	encoded, err := EncodePrivateKey(private)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text, encoded, make([]byte, 64))
	f.Add("ed25519:AAAA", []byte("-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"), []byte{})
	f.Fuzz(func(t *testing.T, key string, pem, signature []byte) {
		if k, err := ParseKey(key); err == nil && KeyText(k) != key {
			t.Errorf("%q has two forms", key)
		}
		if k, err := ParsePrivateKey(pem); err == nil {
			if s, err := Sign(k, Digest(pem)); err != nil || s.Verify(Digest(pem)) != nil {
				t.Error("a key that was read does not sign")
			}
		}
		_ = Signature{key, signature}.Verify(Digest(nil))
	})
}
