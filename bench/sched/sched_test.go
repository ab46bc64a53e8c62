package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/bench/internal/report"
)

// tiny is the whole benchmark over next to nothing.
var tiny = sizes{timers: 1000, rounds: 1, window: 20 * time.Millisecond, fires: 2000}

func TestMeasure(t *testing.T) {
	r, err := measure(t.Context(), tiny, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := r.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	var got report.Report
	d := json.NewDecoder(strings.NewReader(strings.ReplaceAll(out.String(), `"goal":"`, `"x":"`))) // a goal is not read back
	if err := d.Decode(&got); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, row := range got.Rows {
		names = append(names, row.Name)
		if row.Value <= 0 && row.Name != "early" && row.Name != "timer/idle" {
			t.Errorf("%s: %g", row.Name, row.Value)
		}
	}
	for _, want := range []string{
		"timer/insert/1e6", "timer/cancel/1e6", "timer/bytes", "timer/gc", "timer/idle",
		"late/5k/p99", "late/5k/p99/absolute", "late/5k/p99/floor", "late/5k/p99/timingwheel", "late/100k/p99", "early",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("there is no row %s in %q", want, names)
		}
	}
	if last := got.Rows[len(got.Rows)-1]; last.Name != "early" || last.Value != 0 || !strings.HasPrefix(last.Note, "of ") {
		t.Errorf("%+v", last)
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"-o", "xml"}, {"--nothing"}} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%q was taken", args)
		}
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := measure(ctx, full, io.Discard); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
}

// Each party does what it is measured for: of the timers of a round, all go off.
func TestParties(t *testing.T) {
	due := deadlines(10_000, 10*time.Millisecond, 1)
	for _, r := range []racer{raceFloor(100), raceOurs(100), raceAfterFunc(100)} {
		for i, late := range r.race(due) {
			if late < 0 {
				t.Errorf("%s: timer %d was %v early", r.name, i, -late)
			}
		}
		r.close()
	}
	o := &ours{}
	o.reserve(1000)
	for i := range 1000 {
		o.add(i, time.Second)
	}
	for i := range 999 {
		o.cancel(i)
	}
	if n := o.w.Len(); n > 3 {
		t.Errorf("%d entries are held for one timer", n)
	}
	left := 0
	o.w.Advance(1000, func(due int64, v timer) {
		if o.holds(due, v) {
			left++
		}
	})
	if left != 1 {
		t.Errorf("%d timers are left, want 1", left)
	}
}
