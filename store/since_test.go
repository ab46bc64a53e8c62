package store

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

// TestSince reads the history from each of its former lengths, over several segments and
// a reopening.
func TestSince(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, Config{Dir: dir, SegmentBytes: 4 << 10})
	lengths := []int64{s.HistoryLength()}
	var want []string
	for n := range 60 {
		runs := []Finished{finished(2 * n), finished(2*n + 1)}
		commit(t, s, &Batch{Applied: uint64(n + 1), Finished: runs})
		for _, r := range runs {
			want = append(want, whole(r))
		}
		lengths = append(lengths, s.HistoryLength())
	}
	check := func() {
		t.Helper()
		for n, length := range lengths {
			var got []string
			err := s.Since(length, func(value []byte) error {
				got = append(got, string(value))
				return nil
			})
			if err != nil || !slices.Equal(got, want[2*n:]) {
				t.Fatalf("since %d: %q, %v; want %q", length, got, err, want[2*n:])
			}
		}
	}
	check()
	closeStore(t, s)
	s = openStore(t, Config{Dir: dir, SegmentBytes: 4 << 10})
	check()
	stop := errors.New("stop")
	if err := s.Since(0, func([]byte) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the error of fn came back as %v", err)
	}
}

func TestStatsRows(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir()})
	commit(t, s, &Batch{Applied: 1, Jobs: []JobRow{{"a", "x", []byte("job")}, {"a", "y", []byte("job")}}, Stats: []JobRow{{"a", "x", []byte("one")}, {"b", "y", []byte("two")}}})
	commit(t, s, &Batch{Applied: 2, Stats: []JobRow{{"a", "x", []byte("three")}, {"b", "y", nil}}})
	var got []string
	see := func(kind string) func(app, name string, value []byte) error {
		return func(app, name string, value []byte) error {
			got = append(got, fmt.Sprintf("%s %s/%s %s", kind, app, name, value))
			return nil
		}
	}
	if err := s.Load(Loader{Job: see("job"), Stats: see("stats")}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"job a/x job", "job a/y job", "stats a/x three"}; !slices.Equal(got, want) {
		t.Errorf("loaded %q, want %q", got, want)
	}
	if names, more, err := s.Jobs("a", "", "", 10); !slices.Equal(names, []string{"x", "y"}) || more || err != nil {
		t.Errorf("jobs %q, %v, %v", names, more, err)
	}
}
