package hashtable

import "iter"

// Table is a list of entries with an [Index] from their hash to their number in the list.
// The zero value is empty. It is not safe for concurrent use, but entries may be added and
// removed while All iterates.
type Table[E any] struct {
	list  []*E     // by number; nil: the number is free
	free  []uint32 // numbers
	index Index
}

// Len returns the number of entries.
func (t *Table[E]) Len() int { return len(t.list) - len(t.free) }

// Cells returns the number of cells of the index.
func (t *Table[E]) Cells() int { return t.index.Cells() }

// Numbers is greater than the number of any entry.
func (t *Table[E]) Numbers() uint32 { return uint32(len(t.list)) }

// Entry returns the entry with a number; nil: there is none. The number of a removed entry
// is used again.
func (t *Table[E]) Entry(number uint32) *E {
	if number >= t.Numbers() {
		return nil
	}
	return t.list[number]
}

// All yields the entries in no particular order. It may omit one that was added since the
// iteration began.
func (t *Table[E]) All() iter.Seq[*E] {
	return func(yield func(*E) bool) {
		for _, e := range t.list {
			if e != nil && !yield(e) {
				return
			}
		}
	}
}

// First returns the cell of the first entry with a hash; -1: there is none. See
// [Index.First].
func (t *Table[E]) First(hash uint32) int { return t.index.First(hash) }

// Next returns the cell of the entry with the same hash after a cell; -1: there is none.
func (t *Table[E]) Next(cell int, hash uint32) int { return t.index.Next(cell, hash) }

// At returns the entry of a cell; nil if the cell is -1.
func (t *Table[E]) At(cell int) *E {
	if cell < 0 {
		return nil
	}
	return t.list[t.index.Number(cell)]
}

// Load is [Index.Load].
func (t *Table[E]) Load(hash uint32) uint64 { return t.index.Load(hash) }

// Add adds an entry and returns its number. The caller has looked up that no equal entry
// is in the table.
func (t *Table[E]) Add(e *E, hash uint32) (number uint32) {
	if n := len(t.free); n > 0 {
		number, t.free = t.free[n-1], t.free[:n-1]
		t.list[number] = e
	} else {
		number = uint32(len(t.list))
		t.list = append(t.list, e)
	}
	t.index.Add(hash, number)
	return number
}

// Find returns the cell of the entry with a number and a hash; -1: there is none. It does
// not read the entry.
func (t *Table[E]) Find(hash, number uint32) int { return t.index.Find(hash, number) }

// Remove removes the entry of a cell, if the cell is not -1.
func (t *Table[E]) Remove(cell int) {
	if cell < 0 {
		return
	}
	number := t.index.Number(cell)
	t.list[number] = nil
	t.free = append(t.free, number)
	t.index.Remove(cell)
}
