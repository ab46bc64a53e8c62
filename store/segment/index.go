package segment

import (
	"iter"
	"slices"
	"sort"
)

// A posting says that a block has rows of a key.
type posting struct {
	key   uint64
	block uint32 // number of the block in its segment
}

func (p posting) compare(q posting) int {
	switch {
	case p.key < q.key || p.key == q.key && p.block < q.block:
		return -1
	case p == q:
		return 0
	}
	return 1
}

// span is the location of a block in its file.
type span struct{ off, len uint32 }

// index finds the blocks of one segment. Implementations are immutable once they are in
// [Log.files]. The reader lends its buffers.
type index interface {
	blocks() uint32
	span(rd *reader, block uint32) (span, error)
	// last returns the last block at or before at that lists the key.
	last(rd *reader, key uint64, at uint32) (block uint32, ok bool, err error)
}

// largeRun is the number of postings from which a run is not merged further. A look-up
// searches all runs, so there must be few. A merge costs as much per posting as writing
// it, and look-ups are rare.
const largeRun = 512

// memory is the index of the active segment. Postings are in sorted runs, each for some
// consecutive blocks. A new block adds a run. Neighbours are merged when they are small
// and of similar length. An idle server with one row in each block therefore has few
// runs, and a busy one merges nothing.
//
// A value that readers have is never changed: clone and add make the next value. The
// spans and the merged runs of all values share one array each, of which each value sees
// its own prefix. So a clone copies only the runs that a merge may replace.
type memory struct {
	merged []run // are not merged further; oldest first
	runs   []run // newer ones
	spans  []span
}

// run is a sorted sequence of postings.
type run struct {
	keys   []uint64
	blocks []uint32 // the block of each key; nil: all are first
	first  uint32   // smallest block
}

func (r *run) at(i int) posting {
	if r.blocks == nil {
		return posting{r.keys[i], r.first}
	}
	return posting{r.keys[i], r.blocks[i]}
}

func (m *memory) blocks() uint32 { return uint32(len(m.spans)) }

func (m *memory) span(_ *reader, block uint32) (span, error) { return m.spans[block], nil }

func (m *memory) last(_ *reader, key uint64, at uint32) (uint32, bool, error) {
	for _, runs := range [...][]run{m.runs, m.merged} {
		// Runs from n on hold only later blocks.
		n := sort.Search(len(runs), func(i int) bool { return runs[i].first > at })
		for i := n - 1; i >= 0; i-- {
			if block, ok := runs[i].last(key, at); ok {
				return block, true, nil
			}
		}
	}
	return 0, false, nil
}

func (r *run) last(key uint64, at uint32) (uint32, bool) {
	i, ok := slices.BinarySearch(r.keys, key)
	if !ok || r.blocks == nil {
		return r.first, ok
	}
	same := sort.Search(len(r.keys)-i, func(n int) bool { return r.keys[i+n] != key || r.blocks[i+n] > at })
	if same == 0 {
		return 0, false
	}
	return r.blocks[i+same-1], true
}

// clone returns a value to which blocks may be added. Only the newest value of a segment
// may be cloned.
func (m *memory) clone() *memory {
	return &memory{merged: m.merged, runs: append(make([]run, 0, len(m.runs)+1), m.runs...), spans: m.spans}
}

// add adds a block to a value that no reader has yet. It copies keys.
func (m *memory) add(keys []uint64, s span) {
	next := run{keys: slices.Clone(keys), first: m.blocks()}
	n := len(m.runs)
	for ; n > 0; n-- {
		older := &m.runs[n-1]
		if max(len(older.keys), len(next.keys)) >= largeRun || len(older.keys) > 2*len(next.keys) {
			break
		}
		next = merge(older, &next)
	}
	m.runs = append(m.runs[:n], next)
	if len(next.keys) >= largeRun { // no merge reaches behind this run
		m.merged, m.runs = append(m.merged, m.runs...), nil
	}
	m.spans = append(m.spans, s)
}

// all yields all runs, oldest first.
func (m *memory) all() iter.Seq[*run] {
	return func(yield func(*run) bool) {
		for _, runs := range [...][]run{m.merged, m.runs} {
			for i := range runs {
				if !yield(&runs[i]) {
					return
				}
			}
		}
	}
}

func merge(a, b *run) run {
	n := len(a.keys) + len(b.keys)
	out := run{keys: make([]uint64, 0, n), blocks: make([]uint32, 0, n), first: a.first}
	put := func(p posting) { out.keys, out.blocks = append(out.keys, p.key), append(out.blocks, p.block) }
	i := 0
	for j := range b.keys {
		p := b.at(j)
		for ; i < len(a.keys) && a.keys[i] <= p.key; i++ { // the blocks of a come first
			put(a.at(i))
		}
		put(p)
	}
	for ; i < len(a.keys); i++ {
		put(a.at(i))
	}
	return out
}

// postings returns all postings in order, as keys and the block of each. Sealing a
// segment writes them as its index.
func (m *memory) postings() ([]uint64, []uint32) {
	n := 0
	for r := range m.all() {
		n += len(r.keys)
	}
	keys, blocks := make([]uint64, 0, n), make([]uint32, 0, n)
	for r := range m.all() {
		keys = append(keys, r.keys...)
		if blocks = append(blocks, r.blocks...); r.blocks == nil {
			for range r.keys {
				blocks = append(blocks, r.first)
			}
		}
	}
	return sortPostings(keys, blocks)
}

// sortPostings sorts by key and preserves the order of equal keys: runs come oldest first, so
// their blocks are already in order. It is a radix sort by bytes, lowest byte first,
// because keys are hashes without an order that a merge could use.
func sortPostings(keys []uint64, blocks []uint32) ([]uint64, []uint32) {
	var counts [8][256]uint32
	for _, k := range keys {
		for b := range counts {
			counts[b][byte(k>>(8*b))]++
		}
	}
	otherKeys, otherBlocks := make([]uint64, len(keys)), make([]uint32, len(keys))
	for b := range counts {
		starts, sum := &counts[b], uint32(0)
		if len(keys) > 0 && starts[byte(keys[0]>>(8*b))] == uint32(len(keys)) {
			continue // all keys have the same byte here
		}
		for i, n := range starts {
			starts[i], sum = sum, sum+n
		}
		for i, k := range keys {
			at := &starts[byte(k>>(8*b))]
			otherKeys[*at], otherBlocks[*at] = k, blocks[i]
			*at++
		}
		keys, otherKeys, blocks, otherBlocks = otherKeys, keys, otherBlocks, blocks
	}
	return keys, blocks
}
