package core

import (
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/sched/projection"
)

// bare returns a loop without apps, journal and store, at the time now.
func bare(t *testing.T, now time.Time) *Loop {
	t.Helper()
	l, err := newLoop(Config{Now: func() time.Time { return now }, View: projection.New(projection.Config{})})
	if err != nil {
		t.Fatal(err)
	}
	return l
}
