package session

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestOutage checks when an outage with an attempt every second is logged.
func TestOutage(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	var down outage
	began := time.Unix(1000, 0)
	var at []int
	for second := range 3600 {
		before := out.Len()
		down.log(log, began.Add(time.Duration(second)*time.Second), "u1", errors.New("the cable is out"))
		if out.Len() > before {
			at = append(at, second)
		}
	}
	if want := []int{0, 5, 15, 35, 75, 155, 315, 615, 915}; !slices.Equal(at[:len(want)], want) || at[len(at)-1] != 3315 {
		t.Errorf("logged after %v seconds", at)
	}
	lines := strings.Split(out.String(), "\n")
	if !strings.Contains(lines[0], "the cable is out") || !strings.Contains(lines[0], "unit=u1") || !strings.Contains(lines[2], "for=15s") {
		t.Errorf("lines:\n%s\n%s", lines[0], lines[2])
	}
}
