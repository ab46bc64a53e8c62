package datadir

import (
	"os"
	"testing"
	"time"
)

// TestRecovery stores a token, which ends, and refuses files that are none.
func TestRecovery(t *testing.T) {
	d, err := Open(t.TempDir(), ServerForm)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close() //nolint:errcheck // a test's
	now := time.Now()
	if r, err := d.Recovery(now); r != nil || err != nil {
		t.Errorf("%v, %v of no file", r, err)
	}
	want := Recovery{Digest: [32]byte{1, 2, 31: 9}, Until: now.Add(time.Hour)}
	if err := d.WriteRecovery(want); err != nil {
		t.Fatal(err)
	}
	if r, err := d.Recovery(now.Add(59 * time.Minute)); err != nil || r.Digest != want.Digest || !r.Until.Equal(want.Until) {
		t.Errorf("%v, %v", r, err)
	}
	if r, err := d.Recovery(now.Add(time.Hour)); r != nil || err != nil {
		t.Errorf("%v, %v after its time", r, err)
	}
	if _, err := os.Stat(d.Join("recovery")); !os.IsNotExist(err) {
		t.Error("the file stays after its time")
	}
	for _, text := range []string{"", "{", "{}", `{"sha256":"00","until":"2030-01-01T00:00:00Z"}`, `{"sha256":"zz"}`} {
		if err := os.WriteFile(d.Join("recovery"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := d.Recovery(now); err == nil {
			t.Errorf("%q is %v", text, r)
		}
	}
}
