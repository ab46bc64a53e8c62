package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/wheelworkhq/wheelwork/store/segment"
)

// ofBefore returns a block in the older format: runs share no beginnings, and each key is
// a hash of its own.
func ofBefore(runs []Finished) segment.Block {
	b := segment.Block{Min: runs[0].FinishedMs, Max: runs[0].FinishedMs}
	add := func(l lookup) { b.Keys = append(b.Keys, l.hash()) }
	for _, r := range runs {
		add(lookup{byRun, r.App, string(r.ID[:]), ""})
		add(lookup{byApp, r.App, "", ""})
		add(lookup{byJob, r.App, r.Job, ""})
		add(lookup{byState, r.State, "", ""})
		add(lookup{byHost, r.Host, "", ""})
		add(lookup{byAppState, r.App, r.State, ""})
		add(lookup{byAppHost, r.App, r.Host, ""})
		add(lookup{byJobState, r.App, r.Job, r.State})
		b.Min, b.Max = min(b.Min, r.FinishedMs), max(b.Max, r.FinishedMs)
	}
	slices.Sort(b.Keys)
	b.Keys = slices.Compact(b.Keys)
	le := binary.LittleEndian
	b.Payload = le.AppendUint32(nil, uint32(len(runs)))
	for _, r := range runs {
		b.Payload = append(b.Payload, r.ID[:]...)
	}
	for _, r := range runs {
		for _, l := range []lookup{{byApp, r.App, "", ""}, {byJob, r.App, r.Job, ""}, {byState, r.State, "", ""}, {byHost, r.Host, "", ""}} {
			n, _ := slices.BinarySearch(b.Keys, l.hash())
			b.Payload = le.AppendUint16(b.Payload, uint16(n))
		}
	}
	var values []byte
	for _, r := range runs {
		values = append(values, whole(r)...)
		b.Payload = le.AppendUint32(b.Payload, uint32(len(values)))
	}
	b.Payload = append(b.Payload, values...)
	return b
}

// TestSharedBeginnings: a block stores a common beginning of values once, and every value
// is read whole.
func TestSharedBeginnings(t *testing.T) {
	long := func(c byte) []byte { return bytes.Repeat([]byte{c}, 1000) }
	a, b, alike := long('a'), long('b'), long('a')
	var runs []Finished
	for n := range 256 {
		f := many(n, fmt.Append(nil, n))
		f.Shared = [][]byte{a, b, a, alike, nil}[n%5]
		runs = append(runs, f)
	}
	blocks, err := new(encoder).encode(runs)
	if err != nil || len(blocks) != 1 {
		t.Fatal(len(blocks), err)
	}
	payload := bytes.Join(append([][]byte{blocks[0].Payload}, blocks[0].Rest...), nil)
	if most := 3*1000 + 256*(rowHead+3) + 4 + 4 + 4*4; len(payload) > most {
		t.Errorf("%d bytes, want %d at most", len(payload), most)
	}
	r, err := parseRuns(segment.Block{Keys: blocks[0].Keys, Payload: payload})
	if err != nil {
		t.Fatal(err)
	}
	for i := range runs {
		if got := string(r.copyValue(i)); got != whole(runs[i]) {
			t.Fatalf("run %d: %.20q…, want %.20q…", i, got, whole(runs[i]))
		}
	}
	for n := range payload { // every prefix is an error or has no rows that reach behind its end
		r, err := parseRuns(segment.Block{Keys: blocks[0].Keys, Payload: payload[:n]})
		if err == nil {
			t.Fatalf("cut at %d it has %d rows", n, r.n)
		}
	}
}

// TestBlocksOfBefore: blocks of the older format, with up to 1000 runs that share
// nothing, are read together with current ones.
func TestBlocksOfBefore(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, Config{Dir: dir, SegmentBytes: 1 << 20})
	fillHistory(t, s, 0, 3000, 1000)
	for from := 3000; from < 6000; from += 1000 {
		var runs []Finished
		for n := from; n < from+1000; n++ {
			runs = append(runs, many(n, fmt.Append(nil, n)))
		}
		if _, err := s.history.Append(ofBefore(runs)); err != nil {
			t.Fatal(err)
		}
	}
	commit(t, s, &Batch{Applied: 6000}) // the view now includes them
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
		for _, q := range []RunQuery{{App: "default", Job: "job-77"}, {Host: "host-42"}, {App: "default", Host: "host-7"}, {State: "failed"}, {App: "default", Job: "job-77", State: "succeeded"}, {App: "default", State: "failed"}} {
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

// TestEncoderIsUsedAgain: blocks do not depend on earlier ones, and the encoder keeps no
// reference to earlier runs.
func TestEncoderIsUsedAgain(t *testing.T) {
	var used encoder
	for _, n := range []int{700, 3, 256, 257, 1, 2000, 0, 512} {
		runs := make([]Finished, n)
		for i := range runs {
			runs[i] = many(n+i, fmt.Appendf(nil, "value %d", i))
			runs[i].Shared = beginnings[i/300%4]
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
		for _, text := range used.shared.texts[:cap(used.shared.texts)] {
			if text != nil {
				t.Fatalf("%d runs: a shared beginning is kept", n)
			}
		}
	}
}

// TestSortedKeys: keys are sorted, each once, including keys with the same first byte.
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
