package store

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
)

// auditOf returns an entry of n events.
func auditOf(first uint64, n int, names ...string) AuditEntry {
	return AuditEntry{First: first, AtMs: int64(1000 + first), Value: fmt.Appendf(nil, "%d+%d", first, n), Names: names}
}

// found returns the first sequences of the entries with names.
func found(t *testing.T, s *Store, before uint64, names ...string) (all []uint64) {
	t.Helper()
	for e, err := range s.Audit(names, FromEnd, before, math.MinInt64, math.MaxInt64) {
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("%d+", e.First); string(e.Value[:len(want)]) != want || e.AtMs != int64(1000+e.First) {
			t.Errorf("entry %d is %q at %d", e.First, e.Value, e.AtMs)
		}
		all = append(all, e.First)
	}
	return all
}

func fromStart(t testing.TB, s *Store) (all []uint64) {
	t.Helper()
	for e, err := range s.AuditFromStart() {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e.First)
	}
	return all
}

// TestAudit finds audit entries by name, by time and by sequence, also after a restart, and returns an
// entry once whose commit was repeated.
func TestAudit(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir()})
	if got := found(t, s, 0); got != nil {
		t.Errorf("an empty log has %v", got)
	}
	commit(t, s, &Batch{Applied: 1, Audit: []AuditEntry{auditOf(1, 2, "app/a", "actor/x"), auditOf(3, 1, "app/b", "actor/x")}})
	again := []AuditEntry{auditOf(4, 3, "app/a", "app/b", "actor/y")}
	if _, err := s.audit.Append(auditBlocks(again)...); err != nil { // of a commit that failed behind the audit log
		t.Fatal(err)
	}
	commit(t, s, &Batch{Applied: 2, Audit: again})
	commit(t, s, &Batch{Applied: 3, Audit: []AuditEntry{auditOf(7, 1, "app/a")}})
	for range 2 {
		for _, tt := range []struct {
			before uint64
			names  []string
			want   []uint64
		}{
			{0, nil, []uint64{7, 4, 3, 1}},
			{4, nil, []uint64{3, 1}},
			{0, []string{"app/a"}, []uint64{7, 4, 1}},
			{7, []string{"app/a"}, []uint64{4, 1}},
			{0, []string{"actor/x", "app/a"}, []uint64{1}},
			{0, []string{"app/c"}, nil},
		} {
			if got := found(t, s, tt.before, tt.names...); !slices.Equal(got, tt.want) {
				t.Errorf("before %d with %v: %v, want %v", tt.before, tt.names, got, tt.want)
			}
		}
		if got := fromStart(t, s); !slices.Equal(got, []uint64{1, 3, 4, 7}) {
			t.Errorf("from the start: %v", got)
		}
		n := 0
		for e, err := range s.Audit(nil, FromEnd, 0, 1003, 1004) {
			if n++; err != nil || e.First != 3 && e.First != 4 {
				t.Errorf("between two times: %v, %v", e, err)
			}
		}
		if n != 2 {
			t.Errorf("between two times: %d entries", n)
		}
		all := []uint64{}
		for e, err := range s.Audit(nil, FromEnd, 0, math.MinInt64, math.MaxInt64) {
			if err != nil {
				t.Fatal(err)
			}
			if len(all) == 0 || e.First == 3 { // a reader that begins again where it was
				for again, err := range s.Audit(nil, e.Pos, 0, math.MinInt64, math.MaxInt64) {
					if err != nil || again.First != e.First {
						t.Errorf("at the position of %d: %v, %v", e.First, again, err)
					}
					break
				}
			}
			all = append(all, e.First)
		}
		s = reopen(t, s)
	}
}

// after returns the first sequences of the entries behind a sequence.
func after(t *testing.T, s *Store, sequence uint64, near int64) (all []uint64) {
	t.Helper()
	for e, err := range s.AuditAfter(sequence, near) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e.First)
	}
	return all
}

// TestAuditAfter reads a log of many segments from each sequence on, with the position of the event, with
// wrong ones and with none: no entry behind it is missing, and with its position none is read in vain.
func TestAuditAfter(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir(), AuditBytes: 64 << 10})
	if got := after(t, s, 0, 0); got != nil {
		t.Errorf("an empty log has %v", got)
	}
	for n := range 30 {
		var entries []AuditEntry
		for k := range 10 {
			e := auditOf(uint64(20*n+2*k+1), 2)
			e.Value = append(e.Value, make([]byte, 100)...)
			entries = append(entries, e)
		}
		if n == 20 {
			if _, err := s.audit.Append(auditBlocks(entries)...); err != nil { // of a commit that failed behind the audit log
				t.Fatal(err)
			}
		}
		commit(t, s, &Batch{Applied: uint64(n + 1), Audit: entries})
	}
	if n := len(s.audit.Segments()); n < 5 {
		t.Fatalf("%d segments", n)
	}
	positions := map[uint64]int64{}
	for e, err := range s.AuditFromStart() {
		if err != nil {
			t.Fatal(err)
		}
		positions[e.First] = e.Pos
	}
	for sequence := uint64(1); sequence <= 600; sequence++ {
		first := sequence - (sequence-1)%2 // of its entry
		var want []uint64
		for x := sequence + 1; x <= 600; x++ {
			if x%2 == 1 {
				want = append(want, x)
			}
		}
		for _, near := range []int64{positions[first], 0, positions[1] + 1, positions[599], positions[301] + 7, 1 << 40} {
			got := after(t, s, sequence, near)
			at := slices.IndexFunc(got, func(x uint64) bool { return x > sequence })
			if at < 0 {
				at = len(got)
			}
			if !slices.Equal(got[at:], want) {
				t.Fatalf("behind %d near %d: %v", sequence, near, got)
			}
			if near == positions[first] && got[0] != first {
				t.Fatalf("behind %d: the read begins at %d", sequence, got[0])
			}
		}
	}
}

// TestAuditTrim checks that the oldest events are removed above the limit, but not those that the next
// start needs.
func TestAuditTrim(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir(), AuditBytes: 64 << 10})
	first := uint64(1)
	for n := range 40 {
		var entries []AuditEntry
		for range 40 {
			e := auditOf(first, 1, "app/a")
			e.Value = append(e.Value, make([]byte, 200)...)
			entries = append(entries, e)
			first++
		}
		commit(t, s, &Batch{Applied: uint64(n + 1), Audit: entries})
		if _, err := s.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s = reopen(t, s)
	all := fromStart(t, s)
	if bytes := s.Stats().Audit; bytes > 80<<10 || len(all) < 100 || all[len(all)-1] != first-1 || all[0] == 1 {
		t.Errorf("%d bytes, %d events up to %d", bytes, len(all), all[len(all)-1])
	}
	for i, n := range all {
		if n != all[0]+uint64(i) {
			t.Fatalf("the event after %d is missing", all[i-1])
		}
	}
	for _, removed := range []uint64{0, 1, all[0] - 2, all[0] - 1} { // a reader that was behind events that are gone
		for _, near := range []int64{0, 33, 1 << 40} {
			if got := after(t, s, removed, near); !slices.Equal(got, all) {
				t.Errorf("behind %d near %d there are %d events, want %d", removed, near, len(got), len(all))
			}
		}
	}
}

// TestAuditDamage flips a byte. The readers report the damage, and go on behind it.
func TestAuditDamage(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir()})
	for n := range 9 {
		commit(t, s, &Batch{Applied: uint64(n + 1), Audit: []AuditEntry{auditOf(uint64(n+1), 1, "app/a")}})
	}
	file := mustGlob(t, s.path("audit/*.seg"))[0]
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)/2] ^= 1
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	count := func(seq func(func(AuditEntry, error) bool)) (whole, damaged int) {
		for _, err := range seq {
			if err == nil {
				whole++
			} else if errors.Is(err, ErrCorrupt) {
				damaged++
			} else {
				t.Error(err)
			}
		}
		return whole, damaged
	}
	for what, seq := range map[string]func(func(AuditEntry, error) bool){"newest first": s.Audit([]string{"app/a"}, FromEnd, 0, math.MinInt64, math.MaxInt64), "from the start": s.AuditFromStart()} {
		if whole, damaged := count(seq); whole < 7 || damaged == 0 {
			t.Errorf("%s: %d entries and %d damages", what, whole, damaged)
		}
	}
}
