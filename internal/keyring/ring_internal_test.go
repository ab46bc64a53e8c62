package api

import (
	"bytes"
	"errors"
	"testing"
)

func newTestSealer(t testing.TB, fill byte) sealer {
	s, err := newSealer(bytes.Repeat([]byte{fill}, keyBytes))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSeal checks that open returns the sealed value, and fails if a bit differs or the
// bytes were sealed for another app or name.
func TestSeal(t *testing.T) {
	s := newTestSealer(t, 1)
	value := []byte("the value")
	sealed, err := s.seal("app", "name", value)
	if err != nil || bytes.Contains(sealed, value) {
		t.Fatalf("sealed %q, %v", sealed, err)
	}
	if again, err := s.seal("app", "name", value); err != nil || bytes.Equal(again, sealed) {
		t.Errorf("sealed again it is the same: %v", err)
	}
	if got, err := s.open("app", "name", sealed); err != nil || !bytes.Equal(got, value) {
		t.Errorf("opened %q, %v", got, err)
	}
	for _, place := range [][2]string{{"app", "other"}, {"other", "name"}, {"ap", "pname"}, {"", ""}} {
		if got, err := s.open(place[0], place[1], sealed); err == nil {
			t.Errorf("opened %q in the place of %q", got, place)
		}
	}
	for i := range len(sealed) * 8 {
		broken := bytes.Clone(sealed)
		broken[i/8] ^= 1 << (i % 8)
		if got, err := s.open("app", "name", broken); err == nil {
			t.Errorf("opened %q with bit %d turned", got, i)
		}
	}
	for n := range len(sealed) {
		if got, err := s.open("app", "name", sealed[:n]); err == nil {
			t.Errorf("opened %q of %d bytes", got, n)
		}
	}
	if _, err := newTestSealer(t, 2).open("app", "name", sealed); !errors.Is(err, errOtherKey) {
		t.Errorf("with another key: %v", err)
	}
	if _, err := (sealer{}).open("app", "name", sealed); !errors.Is(err, errNoKey) {
		t.Errorf("without a key: %v", err)
	}
	if _, err := (sealer{}).seal("app", "name", value); !errors.Is(err, errNoKey) {
		t.Errorf("sealed without a key: %v", err)
	}
	if err := CheckKey(make([]byte, 16)); err == nil {
		t.Error("a short key is taken")
	}
}

func FuzzOpenSecret(f *testing.F) {
	s := newTestSealer(f, 1)
	sealed, err := s.seal("app", "name", []byte("v"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sealed)
	f.Add(sealed[:21])
	f.Add([]byte{sealForm})
	f.Fuzz(func(t *testing.T, b []byte) {
		// The seeds are sealed by another process with the same key and other nonces.
		if got, err := s.open("app", "name", b); err == nil && string(got) != "v" {
			t.Errorf("opened %q of bytes that nobody sealed", got)
		}
	})
}
