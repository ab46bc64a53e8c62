package guest

import (
	"math"
	"testing"
	"time"
)

func TestMoments(t *testing.T) {
	seen := Now()
	for _, tt := range []struct {
		name string
		time time.Time
		want Moment
	}{
		{"none", time.Time{}, never},
		{"of the steady clock", time.Now().Add(time.Hour), seen + Moment(time.Hour)},
		{"of the wall clock", time.Now().Add(time.Hour).Round(0), seen + Moment(time.Hour)},
		{"past", time.Now().Add(-time.Hour).Round(0), seen - Moment(time.Hour)},
		{"past, of the steady clock", time.Now().Add(-time.Hour), seen - Moment(time.Hour)},
		{"very far", time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), never},
		{"very long ago", time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC), math.MinInt64 + seen},
	} {
		got := momentOf(tt.time, seen)
		if off := time.Duration(got/2 - tt.want/2).Abs(); off > 5*time.Second { // halves, because a difference may overflow
			t.Errorf("%s: %v, want %v", tt.name, time.Duration(got), time.Duration(tt.want))
		}
	}
	if !never.time().IsZero() {
		t.Errorf("never is at %v", never.time())
	}
	if left := time.Until((Now() + Moment(time.Hour)).time()); left < 59*time.Minute || left > time.Hour {
		t.Errorf("an hour from now is in %v", left)
	}
}
