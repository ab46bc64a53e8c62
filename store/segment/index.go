package segment

import "slices"

// A posting says that a block holds rows of a key.
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

// span is where a block lies in its file.
type span struct{ off, len uint32 }

// index finds the blocks of one segment. Both kinds are immutable.
type index interface {
	blocks() uint32
	span(block uint32) (span, error)
	// last returns the last block at or before at that lists the key.
	last(key uint64, at uint32) (block uint32, ok bool, err error)
}

// memory indexes the active segment. Postings lie in sorted runs; a new block
// adds a run, and neighbours are merged when they are of similar length, so
// there are O(log n) runs and each posting moves O(log n) times.
//
// A memory value is never changed: with returns the next one. The spans of all
// values share one array, of which each sees its own prefix.
type memory struct {
	runs  [][]posting // longest first
	spans []span
}

func (m *memory) blocks() uint32 { return uint32(len(m.spans)) }

func (m *memory) span(block uint32) (span, error) { return m.spans[block], nil }

func (m *memory) last(key uint64, at uint32) (uint32, bool, error) {
	var best uint32
	var found bool
	for _, run := range m.runs {
		i, exact := slices.BinarySearchFunc(run, posting{key, at}, posting.compare)
		if !exact {
			i--
		}
		if i >= 0 && run[i].key == key && (!found || run[i].block > best) {
			best, found = run[i].block, true
		}
	}
	return best, found, nil
}

// with returns the index after one more block. Only the newest value of a
// segment may be extended.
func (m *memory) with(keys []uint64, s span) *memory {
	run := make([]posting, len(keys))
	for i, k := range keys {
		run[i] = posting{k, m.blocks()}
	}
	older := m.runs
	for len(older) > 0 && len(older[len(older)-1]) <= 2*len(run) {
		run = merge(older[len(older)-1], run)
		older = older[:len(older)-1]
	}
	runs := make([][]posting, 0, len(older)+1)
	return &memory{runs: append(append(runs, older...), run), spans: append(m.spans, s)}
}

// postings returns all postings in order.
func (m *memory) postings() []posting {
	var all []posting
	for _, run := range slices.Backward(m.runs) {
		all = merge(all, run)
	}
	return all
}

func merge(a, b []posting) []posting {
	out := make([]posting, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if a[0].compare(b[0]) <= 0 {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return append(append(out, a...), b...)
}
