package state

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// MaxMarks bounds the marks of an app.
const MaxMarks = 1_000

// The states of a mark.
const (
	Acknowledged = "acknowledged"
	Ignored      = "ignored"
)

// Mark says what people do about a kind of error.
type Mark struct {
	Fingerprint string `json:"-"` // the key of its row has it
	State       string `json:"state"`
	Note        string `json:"note,omitempty"`
	Job         string `json:"job,omitempty"`
	By          string `json:"by"`
	AtMs        int64  `json:"at_ms"`
	UntilMs     int64  `json:"until_ms,omitempty"` // of an ignored kind; 0: until the mark is cleared
}

// ended reports whether the time of a mark has passed.
func (m *Mark) ended(nowMs int64) bool { return m.UntilMs != 0 && m.UntilMs <= nowMs }

// Errors of calls about marks.
var (
	ErrNoMark       = errors.New("there is no such mark of an error")
	ErrTooManyMarks = fmt.Errorf("the app ignores %d kinds of errors, which is the limit: clear some of them with `wheelwork error clear`", MaxMarks)
)

// SetMark marks a kind of error, and replaces the mark that it has. Without room, an ignored kind whose time has
// passed makes room, or the oldest acknowledgement.
func (st *State) SetMark(m Mark, nowMs int64) error {
	if _, replaced := st.marks[m.Fingerprint]; !replaced && len(st.marks) >= MaxMarks {
		old := st.replaceable(nowMs)
		if old == "" {
			return ErrTooManyMarks
		}
		st.dropMark(old)
	}
	st.marks[m.Fingerprint] = m
	st.changed[kindMark+"/"+m.Fingerprint] = true
	return nil
}

// replaceable returns the fingerprint of the mark that makes room for another; "": none does.
func (st *State) replaceable(nowMs int64) (found string) {
	var first Mark
	for _, m := range st.marks {
		if m.State != Acknowledged && !m.ended(nowMs) {
			continue
		}
		if found == "" || compareReplaceable(&m, &first, nowMs) < 0 {
			found, first = m.Fingerprint, m
		}
	}
	return found
}

// compareReplaceable orders marks that may be replaced: those that have ended come first, the oldest end first.
func compareReplaceable(a, b *Mark, nowMs int64) int {
	if x, y := a.ended(nowMs), b.ended(nowMs); x != y {
		if x {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(cmp.Or(a.UntilMs, a.AtMs), cmp.Or(b.UntilMs, b.AtMs)), strings.Compare(a.Fingerprint, b.Fingerprint))
}

// ClearMark removes the mark of a kind of error.
func (st *State) ClearMark(fingerprint string, nowMs int64) error {
	m, found := st.marks[fingerprint]
	if !found || m.ended(nowMs) {
		return ErrNoMark
	}
	st.dropMark(fingerprint)
	return nil
}

func (st *State) dropMark(fingerprint string) {
	delete(st.marks, fingerprint)
	st.changed[kindMark+"/"+fingerprint] = true
}

// Marks returns the marks whose time has not passed, the newest first.
func (st *State) Marks(nowMs int64) []Mark {
	all := slices.DeleteFunc(slices.Collect(maps.Values(st.marks)), func(m Mark) bool { return m.ended(nowMs) })
	slices.SortFunc(all, func(a, b Mark) int {
		return cmp.Or(cmp.Compare(b.AtMs, a.AtMs), strings.Compare(a.Fingerprint, b.Fingerprint))
	})
	return all
}
