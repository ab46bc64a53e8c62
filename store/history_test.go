package store

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestBlocksOfBefore: blocks used to hold up to 1000 runs, and are read as ever,
// beside those of today.
func TestBlocksOfBefore(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, Config{Dir: dir, SegmentBytes: 1 << 20})
	fillHistory(t, s, 0, 3000, 1000)
	var e encoder
	for from := 3000; from < 6000; from += 1000 {
		var runs []Finished
		for n := from; n < from+1000; n++ {
			runs = append(runs, many(n, fmt.Append(nil, n)))
		}
		if _, err := s.history.Append(e.block(runs)); err != nil {
			t.Fatal(err)
		}
		e.forget()
	}
	commit(t, s, &Batch{Applied: 6000}) // takes them in
	fillHistory(t, s, 6000, 8000, 500)
	for again := range 2 {
		if again == 1 {
			s = reopen(t, s)
		}
		for n := 0; n < 8000; n += 7 {
			value, ok, err := s.Run("default", id(n))
			if err != nil || !ok || n >= 3000 && n < 6000 && string(value) != fmt.Sprint(n) {
				t.Fatalf("run %d: %q, %t, %v", n, value, ok, err)
			}
		}
		for _, q := range []RunQuery{{App: "default", Job: "job-77"}, {Host: "host-42"}, {App: "default", Host: "host-7"}, {State: "failed"}} {
			want := 0
			for n := range 8000 {
				if f := many(n, nil); (q.Job == "" || f.Job == q.Job) && (q.Host == "" || f.Host == q.Host) && (q.State == "" || f.State == q.State) {
					want++
				}
			}
			if got := len(pages(t, s, q)); got != want || want == 0 {
				t.Fatalf("%+v: %d runs, want %d", q, got, want)
			}
		}
	}
}

// TestEncoderIsUsedAgain: blocks are the same whatever was encoded before, and
// nothing of it is kept.
func TestEncoderIsUsedAgain(t *testing.T) {
	var used encoder
	for _, n := range []int{700, 3, 256, 257, 1, 2000, 0, 512} {
		runs := make([]Finished, n)
		for i := range runs {
			runs[i] = many(n+i, fmt.Appendf(nil, "value %d", i))
		}
		got, err := used.encode(runs)
		if err != nil {
			t.Fatal(err)
		}
		want, err := new(encoder).encode(runs)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(want) || len(got) != (n+blockRuns-1)/blockRuns {
			t.Fatalf("%d runs: %d blocks, want %d", n, len(got), len(want))
		}
		for i := range got {
			if !slices.Equal(got[i].Keys, want[i].Keys) || !bytes.Equal(got[i].Payload, want[i].Payload) ||
				!slices.EqualFunc(got[i].Rest, want[i].Rest, bytes.Equal) || got[i].Min != want[i].Min || got[i].Max != want[i].Max {
				t.Fatalf("%d runs: block %d differs", n, i)
			}
		}
		used.forget()
		for _, v := range used.values[:cap(used.values)] {
			if v != nil {
				t.Fatalf("%d runs: a value is kept", n)
			}
		}
	}
}

// TestSortedKeys: keys of any kind come in order, each once, also those that have
// their first byte in common.
func TestSortedKeys(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	var set keySet
	for _, n := range []int{0, 1, 2, 1000, 5} {
		for shift := range 9 {
			set.keys = set.keys[:0]
			for range n {
				set.keys = append(set.keys, r.Uint64()>>(8*shift))
			}
			for i := range n / 2 {
				set.keys = append(set.keys, set.keys[i])
			}
			want := slices.Clone(set.keys)
			slices.Sort(want)
			if got := set.sorted(); !slices.Equal(got, slices.Compact(want)) {
				t.Fatalf("%d keys without %d bytes: %x", n, shift, got)
			}
		}
	}
}
