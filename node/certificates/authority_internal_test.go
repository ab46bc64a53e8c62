package certificates

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/internal/datadir"
	"github.com/wheelworkhq/wheelwork/internal/keyring"
)

// row is the row of etcd with the authority.
type row struct{ value string }

func (r *row) shared(keys *keyring.Ring) Shared {
	return Shared{
		Keys: keys,
		First: func(_ context.Context, value string) (string, error) {
			if r.value == "" {
				r.value = value
			}
			return r.value, nil
		},
		Replace: func(_ context.Context, value string) error {
			r.value = value
			return nil
		},
	}
}

func ring(t *testing.T, keys ...string) *keyring.Ring {
	t.Helper()
	parsed, err := keyring.Parse(strings.Join(keys, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return keyring.NewRing(parsed)
}

func directory(t *testing.T) *datadir.Dir {
	t.Helper()
	d, err := datadir.Open(t.TempDir(), datadir.ServerForm)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() }) //nolint:errcheck // a test's
	return d
}

// TestShared gives servers of a cluster one authority, which is sealed again when all of them have another key.
func TestShared(t *testing.T) {
	first, second := newKey(), newKey()
	r := &row{}
	d := directory(t)
	a, err := r.shared(ring(t, first)).Authority(t.Context(), d, false)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(r.value, "PRIVATE") {
		t.Error("the key of the authority is in etcd as it is")
	}
	if text, err := os.ReadFile(d.Join(datadir.AuthorityFile)); err != nil || string(text) != string(a.PEM()) {
		t.Errorf("%s, %v", text, err)
	}
	b, err := r.shared(ring(t, first, second)).Authority(t.Context(), directory(t), false)
	if err != nil || b.Pin() != a.Pin() {
		t.Fatal("another server has another authority", err)
	}
	if _, err := r.shared(ring(t, second)).Authority(t.Context(), directory(t), false); err == nil || !strings.Contains(err.Error(), "--secret-key-file") {
		t.Errorf("a server with another key: %v", err)
	}

	// One of the servers has one key still.
	both := ring(t, first, second)
	both.Lacking = func(string) []string { return []string{"srv-x"} }
	before := r.value
	if err := r.shared(both).reseal(t.Context(), a); err != nil || r.value != before {
		t.Errorf("it is sealed with a key that a server lacks: %v", err)
	}
	if err := r.shared(ring(t, first, second)).reseal(t.Context(), a); err != nil || r.value == before {
		t.Errorf("it is not sealed again: %v", err)
	}
	before = r.value
	if c, err := r.shared(ring(t, second)).Authority(t.Context(), directory(t), false); err != nil || c.Pin() != a.Pin() || r.value != before {
		t.Errorf("without the first key: %v", err)
	}
	if err := r.shared(ring(t, first, second)).reseal(t.Context(), a); err != nil || r.value != before {
		t.Errorf("it is sealed twice: %v", err)
	}

	// The key is lost.
	lost := ring(t, newKey())
	if _, err := r.shared(lost).Authority(t.Context(), directory(t), false); err == nil || !strings.Contains(err.Error(), "--new-secret-key") {
		t.Errorf("without the keys: %v", err)
	}
	c, err := r.shared(lost).Authority(t.Context(), directory(t), true)
	if err != nil || c.Pin() == a.Pin() {
		t.Errorf("another authority: %v", err)
	}
	if again, err := r.shared(lost).Authority(t.Context(), directory(t), true); err != nil || again.Pin() != c.Pin() {
		t.Errorf("the next server has a third authority: %v", err)
	}
}

// TestOwn uses an authority that an operator has put into the data directory, and keeps the one that was made.
func TestOwn(t *testing.T) {
	d := directory(t)
	made, err := OpenAuthority(d)
	if err != nil {
		t.Fatal(err)
	}
	again, err := OpenAuthority(d)
	if err != nil || again.Pin() != made.Pin() {
		t.Errorf("another authority at the next start: %v", err)
	}
	other := directory(t)
	for _, name := range []string{datadir.AuthorityFile, datadir.AuthorityKeyFile} {
		text, err := os.ReadFile(d.Join(name))
		if err == nil {
			err = os.WriteFile(other.Join(name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if own, err := OpenAuthority(other); err != nil || own.Pin() != made.Pin() {
		t.Errorf("the authority of an operator: %v", err)
	}
	if err := os.Chmod(other.Join(datadir.AuthorityKeyFile), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenAuthority(other); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key that others may read: %v", err)
	}
	if err := os.WriteFile(other.Join(datadir.AuthorityFile), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(other.Join(datadir.AuthorityKeyFile), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenAuthority(other); err == nil || !strings.Contains(err.Error(), "ca.crt") {
		t.Errorf("a file that is no certificate: %v", err)
	}
}

func newKey() string { text, _ := keyring.New(); return strings.TrimSpace(text) }
