package node

import (
	"os"
	"testing"

	"github.com/wheelworkhq/wheelwork/internal/datadir"
)

// TestAcceptsLegacy decides about the administrator's token of new and of older data directories, and
// remembers it.
func TestAcceptsLegacy(t *testing.T) {
	const here, there = "127.0.0.1:7700", "10.0.0.5:7700"
	type step struct {
		how    LegacyTokens
		listen string
		want   bool
	}
	for name, tt := range map[string]struct {
		older bool // the directory has a token
		steps []step
	}{
		"new, on this machine":  {false, []step{{LegacyAuto, here, true}, {LegacyAuto, there, true}}},
		"new, beyond":           {false, []step{{LegacyAuto, there, false}, {LegacyAuto, there, false}, {LegacyAuto, here, false}, {LegacyOn, there, true}, {LegacyAuto, there, true}}},
		"older, beyond":         {true, []step{{LegacyAuto, there, true}, {LegacyOff, there, false}, {LegacyAuto, there, false}, {legacyAlways, here, true}, {LegacyAuto, there, false}}},
		"new, beyond, accepted": {false, []step{{LegacyOn, there, true}, {LegacyAuto, there, true}}},
		"new, here, refused":    {false, []step{{LegacyOff, here, false}, {LegacyAuto, here, false}}},
	} {
		d, err := datadir.Open(t.TempDir(), datadir.ServerForm)
		if err != nil {
			t.Fatal(err)
		}
		token := func() {
			if err := os.WriteFile(d.Join("token"), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if tt.older {
			token()
		}
		for i, s := range tt.steps {
			if got, err := acceptsLegacy(d, s.how, s.listen); got != s.want || err != nil {
				t.Errorf("%s, step %d: %t, %v, want %t", name, i, got, err, s.want)
			}
			token() // the server makes it
		}
		if _, err := acceptsLegacy(d, "maybe", here); err == nil {
			t.Error("an unknown value is taken")
		}
		d.Close() //nolint:errcheck // a test's
	}
}
