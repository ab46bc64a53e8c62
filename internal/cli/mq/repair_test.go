package mq

import (
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/mq"
)

// TestFits checks that a journal must end after the last record that its store has
// applied, and must be complete from there on.
func TestFits(t *testing.T) {
	lost := func(first, end uint64) mq.Report { return mq.Report{Damage: []mq.Damage{{First: first, End: end}}} }
	for _, tt := range []struct {
		name    string
		r       mq.Repaired
		applied uint64
		want    string // part of the refusal; "": it fits
	}{
		{"cut behind the store", mq.Repaired{Choice: mq.CutBehind, Found: lost(7, 8), Next: 7}, 6, ""},
		{"cut away what the store has", mq.Repaired{Choice: mq.CutBehind, Found: lost(7, 8), Next: 7}, 7, "choose skip"},
		{"skip what the store has", mq.Repaired{Choice: mq.SkipDamaged, Found: lost(7, 9), Next: 20}, 8, ""},
		{"skip what the store lacks", mq.Repaired{Choice: mq.SkipDamaged, Found: lost(7, 9), Next: 20}, 7, "choose cut"},
		{"nothing is lost", mq.Repaired{Choice: mq.SkipDamaged, Found: lost(9, 9), Next: 20}, 3, ""},
	} {
		err := fits(tt.r, tt.applied)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}
