package state

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/wheelworkhq/wheelwork/alert/channel"
)

// TestMarks: marks are rows that a loaded state has too, and one that has ended is not listed.
func TestMarks(t *testing.T) {
	h := newHarness(t, channel.KindWebhook)
	for _, m := range []Mark{
		{Fingerprint: "a", State: Acknowledged, Note: "ann looks", Job: "totals", By: "ann", AtMs: 1000},
		{Fingerprint: "b", State: Ignored, By: "bob", AtMs: 2000, UntilMs: 5000},
		{Fingerprint: "c", State: Ignored, By: "bob", AtMs: 3000},
		{Fingerprint: "a", State: Acknowledged, Note: "bob looks", By: "bob", AtMs: 4000},
	} {
		if err := h.st.SetMark(m, m.AtMs); err != nil {
			t.Fatal(err)
		}
	}
	h.store(t)
	h.load(t, 4000)
	if got := h.st.Marks(4999); len(got) != 3 || got[0] != (Mark{Fingerprint: "a", State: Acknowledged, Note: "bob looks", By: "bob", AtMs: 4000}) || got[1].Fingerprint != "c" || got[2].UntilMs != 5000 {
		t.Errorf("marks %+v", got)
	}
	if got := h.st.Marks(5000); len(got) != 2 {
		t.Errorf("after the end: %+v", got)
	}
	if err := h.st.ClearMark("b", 5000); !errors.Is(err, ErrNoMark) {
		t.Errorf("a mark that has ended is cleared: %v", err)
	}
	if err := h.st.ClearMark("c", 5000); err != nil {
		t.Error(err)
	}
	h.store(t)
	h.load(t, 5000)
	if got := h.st.Marks(5000); len(got) != 1 || got[0].Fingerprint != "a" {
		t.Errorf("after clearing: %+v", got)
	}
}

// TestMarksAreBounded: marks whose time has passed make room first, then the oldest
// acknowledgement. A mark that ignores a kind stays.
func TestMarksAreBounded(t *testing.T) {
	st := New("default", nil)
	set := func(m Mark) error { return st.SetMark(m, m.AtMs) }
	for i := range MaxMarks {
		m := Mark{Fingerprint: fmt.Sprintf("%04d", i), State: Ignored, AtMs: int64(i)}
		switch i {
		case 5:
			m.UntilMs = 1500
		case 6:
			m.UntilMs = 1400
		case 7, 8:
			m.State = Acknowledged
		}
		if err := set(m); err != nil {
			t.Fatal(err)
		}
	}
	had := func(i int) bool {
		return slices.ContainsFunc(st.Marks(0), func(m Mark) bool { return m.Fingerprint == fmt.Sprintf("%04d", i) })
	}
	for i, gone := range []int{6, 5, 7, 8} {
		if !had(gone) {
			t.Errorf("mark %d went too early", gone)
		}
		if err := set(Mark{Fingerprint: fmt.Sprint("x", i), State: Ignored, AtMs: 2000}); err != nil || had(gone) {
			t.Errorf("mark %d is there: %v; %v", gone, had(gone), err)
		}
	}
	if err := set(Mark{Fingerprint: "y", State: Ignored, AtMs: 2000}); !errors.Is(err, ErrTooManyMarks) {
		t.Errorf("beyond the bound: %v", err)
	}
	if err := set(Mark{Fingerprint: "0001", State: Acknowledged, AtMs: 2000}); err != nil {
		t.Errorf("a mark is not replaced: %v", err)
	}
	if n := len(st.Marks(0)); n != MaxMarks {
		t.Errorf("%d marks", n)
	}
}
