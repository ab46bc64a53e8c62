package job

import "hash/maphash"

// numberIndex is an open-addressing hash table from the hash of an entry to its number in
// the caller's list. A lookup visits the cells of a hash, and the caller compares the
// entries. The garbage collector does not scan the table, which has no pointers. Its size
// is a power of two, or 0. A number is in the cell of its hash or in a later one, without
// an empty cell between. The zero value is empty.
type numberIndex []cell

// cell is 32 bits of a hash, then 32 bits with the number plus 1; 0: empty.
type cell uint64

func cellOf(hash, number uint32) cell { return cell(hash)<<32 | cell(number+1) }

func (p cell) hash() uint32 { return uint32(p >> 32) }

func (p cell) number() uint32 { return uint32(p) - 1 }

// tableSeed keeps clients from choosing names that collide.
var tableSeed = maphash.MakeSeed()

func (t numberIndex) start(hash uint32) int { return int(hash) & (len(t) - 1) }

func (t numberIndex) after(i int) int { return (i + 1) & (len(t) - 1) }

// first returns the first cell with a hash; -1: there is none.
func (t numberIndex) first(hash uint32) int {
	if len(t) == 0 {
		return -1
	}
	return t.seek(t.start(hash), hash)
}

// next returns the cell with the same hash after i; -1: there is none.
func (t numberIndex) next(i int, hash uint32) int { return t.seek(t.after(i), hash) }

func (t numberIndex) seek(i int, hash uint32) int {
	for ; t[i] != 0; i = t.after(i) {
		if t[i].hash() == hash {
			return i
		}
	}
	return -1
}

// put adds a number to a table of n numbers.
func (t *numberIndex) put(hash, number uint32, n int) {
	if 5*(n+1) > 4*len(*t) {
		old := *t
		*t = make(numberIndex, max(8, 2*len(old)))
		for _, p := range old {
			if p != 0 {
				t.insert(p)
			}
		}
	}
	t.insert(cellOf(hash, number))
}

func (t numberIndex) insert(p cell) {
	i := t.start(p.hash())
	for t[i] != 0 {
		i = t.after(i)
	}
	t[i] = p
}

// remove empties the cell hole.
func (t numberIndex) remove(hole int) {
	// Close the gap: a number behind it moves into it, unless the gap is before its start.
	for i := t.after(hole); t[i] != 0; i = t.after(i) {
		if start := t.start(t[i].hash()); (i-start)&(len(t)-1) >= (i-hole)&(len(t)-1) {
			t[hole], hole = t[i], i
		}
	}
	t[hole] = 0
}
