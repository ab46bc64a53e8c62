package job

import (
	"math/rand/v2"
	"testing"
)

// TestRunIDText compares the text of ids with the base32 encoding that ParseRunID uses.
func TestRunIDText(t *testing.T) {
	ids := []RunID{{}, {0: 0xff}, {15: 1}, {15: 0xff}, {7: 1}, {8: 0x80}}
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		var id RunID
		for i := range id {
			id[i] = byte(r.Uint32())
		}
		ids = append(ids, id)
	}
	for _, id := range ids {
		if got, want := id.String(), crockford.EncodeToString(id[:]); got != want {
			t.Errorf("%x: %q, want %q", id[:], got, want)
		}
		if back, err := ParseRunID(id.String()); back != id || err != nil {
			t.Errorf("%s is read as %x, %v; want %x", id, back[:], err, id[:])
		}
	}
}
