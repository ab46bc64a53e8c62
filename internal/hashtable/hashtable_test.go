package hashtable

import (
	"math/rand/v2"
	"testing"
)

type entry struct {
	key    uint32
	number uint32
}

// hash gives few different hashes, so that several entries share one and cells wrap around.
func hash(key uint32) uint32 { return key / 3 * 0x9e3779b1 }

func get(t *Table[entry], key uint32) int {
	i := t.First(hash(key))
	for i >= 0 && t.At(i).key != key {
		i = t.Next(i, hash(key))
	}
	return i
}

// TestTable compares a table with a map while entries are added and removed.
func TestTable(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		var got Table[entry]
		want := map[uint32]*entry{}
		keys := 1 + r.Uint32N(500)
		for range 5000 {
			key := r.Uint32N(keys)
			switch i := get(&got, key); {
			case i < 0 && r.IntN(3) > 0:
				e := &entry{key: key}
				e.number = got.Add(e, hash(key))
				want[key] = e
			case r.IntN(2) == 0:
				got.Remove(i)
				delete(want, key)
			}
			if e := got.At(get(&got, key)); e != want[key] || got.Len() != len(want) {
				t.Fatalf("seed %d: entry %d is %v of %d, want %v of %d", seed, key, e, got.Len(), want[key], len(want))
			}
		}
		seen := 0
		for e := range got.All() {
			if seen++; want[e.key] != e || got.Entry(e.number) != e || got.At(got.Find(hash(e.key), e.number)) != e {
				t.Fatalf("seed %d: the table has %v, want %v", seed, e, want[e.key])
			}
		}
		if got.Find(hash(1), got.Numbers()) != -1 {
			t.Errorf("seed %d: the table has an entry with the number %d", seed, got.Numbers())
		}
		if seen != len(want) || got.Entry(got.Numbers()) != nil {
			t.Errorf("seed %d: %d entries were yielded, want %d", seed, seen, len(want))
		}
		if n := got.Cells(); n&(n-1) != 0 || 5*got.Len() > 4*n {
			t.Errorf("seed %d: %d entries in %d cells", seed, got.Len(), n)
		}
	}
}

// TestIndexClear checks that a cleared index is empty, has the wanted number of cells and
// grows again.
func TestIndexClear(t *testing.T) {
	var x Index
	for cells := range 3 {
		for n := range uint32(1000) {
			x.Add(hash(n), n)
		}
		if x.Len() != 1000 {
			t.Fatalf("%d numbers, want 1000", x.Len())
		}
		want := []int{0, x.Cells(), 64}[cells]
		x.Clear(want)
		if x.Len() != 0 || x.Cells() != want || x.First(hash(3)) != -1 || x.Load(hash(3)) != 0 {
			t.Errorf("after Clear(%d) the index has %d numbers in %d cells", want, x.Len(), x.Cells())
		}
	}
}

// BenchmarkTable looks up, removes and adds entries of a table of 100 000 at random, and
// does the same with a Go map.
func BenchmarkTable(b *testing.B) {
	const n = 100_000
	entries := make([]entry, n)
	random := func(key uint32) uint32 { return key * 0x9e3779b1 }
	b.Run("table", func(b *testing.B) {
		var t Table[entry]
		for i := range entries {
			entries[i].key = uint32(i)
			t.Add(&entries[i], random(uint32(i)))
		}
		r := rand.New(rand.NewPCG(1, 2))
		b.ReportAllocs()
		for b.Loop() {
			key := r.Uint32N(n)
			i := t.First(random(key))
			for t.At(i).key != key {
				i = t.Next(i, random(key))
			}
			e := t.At(i)
			t.Remove(i)
			t.Add(e, random(key))
		}
	})
	b.Run("map", func(b *testing.B) {
		m := map[uint32]*entry{}
		for i := range entries {
			entries[i].key = uint32(i)
			m[uint32(i)] = &entries[i]
		}
		r := rand.New(rand.NewPCG(1, 2))
		b.ReportAllocs()
		for b.Loop() {
			key := r.Uint32N(n)
			e := m[key]
			delete(m, key)
			m[key] = e
		}
	})
}
