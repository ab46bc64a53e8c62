package segment

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestIndexEqualsScan compares searches in an index with a scan. It includes small and
// large blocks, and values of the index from before later additions.
func TestIndexEqualsScan(t *testing.T) {
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 3))
		keys := make([]uint64, 3000)
		for i := range keys {
			keys[i] = r.Uint64() >> (8 * r.IntN(8)) // some share their high bytes
		}
		type value struct {
			idx    *memory
			blocks [][]uint64
		}
		idx, values := &memory{}, []value{}
		var blocks [][]uint64
		for i := range 200 {
			of := slices.Clone(keys[:3]) // keys of many blocks
			for range r.IntN([]int{4, 4, 300, 1500}[r.IntN(4)] + 1) {
				of = append(of, keys[r.IntN(len(keys))])
			}
			of = of[r.IntN(4):]
			slices.Sort(of)
			of = slices.Compact(of)
			blocks = append(blocks, of)
			if i%3 == 0 {
				idx = idx.clone()
			}
			room := slices.Clone(of)
			idx.add(room, span{uint32(i), 1})
			clear(room) // the index must not keep it
			if i%3 == 2 {
				values = append(values, value{idx, blocks})
			}
		}
		if n := len(idx.merged) + len(idx.runs); n < 20 || n > 180 || len(idx.merged) == 0 {
			t.Fatalf("%d and %d runs of %d blocks: the test wants some that were merged, and some that were not", len(idx.merged), len(idx.runs), len(blocks))
		}
		for _, v := range values {
			for range 40 {
				key, at := keys[r.IntN(len(keys))], r.IntN(len(v.blocks))
				if r.IntN(3) == 0 {
					key = keys[r.IntN(3)]
				}
				want := at
				for want >= 0 && !slices.Contains(v.blocks[want], key) {
					want--
				}
				got, ok, err := v.idx.last(nil, key, uint32(at))
				if err != nil || ok != (want >= 0) || ok && int(got) != want {
					t.Fatalf("seed %d: key %x at %d of %d: got %d, %t, want %d", seed, key, at, len(v.blocks), got, ok, want)
				}
			}
		}
		var want []posting
		for i, b := range blocks {
			for _, k := range b {
				want = append(want, posting{k, uint32(i)})
			}
		}
		slices.SortFunc(want, posting.compare)
		gotKeys, gotBlocks := idx.postings()
		for i, p := range want {
			if gotKeys[i] != p.key || gotBlocks[i] != p.block {
				t.Fatalf("seed %d: posting %d is %x %d, want %+v", seed, i, gotKeys[i], gotBlocks[i], p)
			}
		}
		if len(gotKeys) != len(want) || len(gotBlocks) != len(want) {
			t.Fatalf("seed %d: %d postings, want %d", seed, len(gotKeys), len(want))
		}
	}
}

// TestFindSince: it yields the same blocks as Find, and first those of the first segment
// that can hold the row.
func TestFindSince(t *testing.T) {
	l := mustOpen(t, t.TempDir(), testOptions)
	var blocks []Block
	for i := range 100 {
		blocks = append(blocks, Block{Min: int64(i), Max: int64(i), Keys: []uint64{uint64(i % 2), uint64(100 + i)}, Payload: fmt.Appendf(nil, "%0200d", i)})
	}
	if _, err := l.Append(blocks[:1]...); err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks[1:] {
		if _, err := l.Append(b); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(*l.files.Load()); n < 4 {
		t.Fatalf("only %d segments", n)
	}
	for ms := int64(-1); ms <= 101; ms++ {
		var got [][]byte
		for b, err := range l.FindSince([][]uint64{{1}}, ms) {
			if err != nil {
				t.Fatal(err)
			}
			if len(got) == 0 && ms < 100 {
				of := slices.IndexFunc(*l.files.Load(), func(f *file) bool { return f.max >= ms })
				if f := (*l.files.Load())[of]; b.Pos < f.base || b.Pos >= f.end() {
					t.Fatalf("since %d: the first block is at %d, which is not in segment %d", ms, b.Pos, of)
				}
			}
			got = append(got, bytes.Clone(b.Payload))
		}
		slices.SortFunc(got, func(a, b []byte) int { return bytes.Compare(b, a) })
		if want := expect(blocks, [][]uint64{{1}}); !sameBytes(got, want) {
			t.Fatalf("since %d: got %d blocks, want %d", ms, len(got), len(want))
		}
	}
}

// TestSearchesBesideEachOther: a yielded block stays intact while other searches run,
// although searches share buffers. A search that ends early returns its buffers in order.
func TestSearchesBesideEachOther(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	l := mustOpen(t, t.TempDir(), testOptions)
	blocks := randomBlocks(r, 100)
	appendAll(t, l, r, blocks)
	outer := expect(blocks, [][]uint64{{1}})
	i := 0
	for b, err := range l.Find([][]uint64{{1}}, End) {
		if err != nil {
			t.Fatal(err)
		}
		for other, err := range l.Find([][]uint64{{uint64(2 + i%10)}}, End) {
			if err != nil || !slices.Contains(other.Keys, uint64(2+i%10)) {
				t.Fatal(other, err)
			}
			if i%3 == 0 {
				break
			}
		}
		if !bytes.Equal(b.Payload, outer[i]) || !slices.Contains(b.Keys, 1) {
			t.Fatalf("block %d has changed", i)
		}
		i++
	}
	if i != len(outer) {
		t.Fatalf("%d blocks, want %d", i, len(outer))
	}
}

// TestRest: a block that was written in parts is read as one.
func TestRest(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, testOptions)
	length, err := l.Append(
		Block{Keys: []uint64{1}, Payload: []byte("a"), Rest: [][]byte{[]byte("b"), nil, []byte("cd")}},
		Block{Keys: []uint64{1, 2}, Rest: [][]byte{[]byte("e")}})
	if err != nil {
		t.Fatal(err)
	}
	l.Close() //nolint:errcheck // opened again
	l = mustOpen(t, dir, Options{Kind: "test", SegmentBytes: 4 << 10, Length: length})
	if got := payloads(find(t, l, nil, End)); !sameBytes(got, [][]byte{[]byte("e"), []byte("abcd")}) {
		t.Fatalf("got %q", got)
	}
}

// countingReader counts reads.
type countingReader struct {
	io.ReaderAt
	n int
}

func (r *countingReader) ReadAt(p []byte, off int64) (int, error) {
	r.n++
	return r.ReaderAt.ReadAt(p, off)
}

// TestAbsentKeys: a segment remembers that it does not have a key, and answers again
// without a read. A key that it has only in later blocks is still found.
func TestAbsentKeys(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 11))
	l := mustOpen(t, t.TempDir(), testOptions)
	var blocks []Block
	for i := range 20 { // key 0 is an ordinary key; 164 shares the cell of 100
		blocks = append(blocks, Block{Keys: []uint64{uint64(i % 2), uint64(100 + i)}, Payload: fmt.Append(nil, i)})
	}
	appendAll(t, l, r, blocks)
	l.write.Lock()
	err := l.roll()
	l.write.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	d := (*l.files.Load())[0].idx.(*disk)
	counting := &countingReader{ReaderAt: d.r}
	d.r = counting
	for _, ask := range []struct {
		key   uint64
		reads int // for each repetition of the query
	}{{164, 0}, {100, 1}, {7, 0}, {0, 1}, {64, 0}, {119, 1}} {
		want := expect(blocks, [][]uint64{{ask.key}})
		if got := find(t, l, [][]uint64{{ask.key}}, (*l.files.Load())[0].base+headerSize+1); len(got) > 1 {
			t.Fatalf("%d blocks before the second", len(got))
		}
		for again := range 3 {
			before := counting.n
			if got := find(t, l, [][]uint64{{ask.key}}, End); !sameBytes(payloads(got), want) {
				t.Fatalf("key %d: %d blocks, want %d", ask.key, len(got), len(want))
			}
			if again > 0 && (counting.n > before) != (ask.reads > 0) {
				t.Fatalf("key %d, asked again: %d reads", ask.key, counting.n-before)
			}
		}
	}
}
