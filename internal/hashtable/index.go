package hashtable

// Index is an open-addressing hash table from 32-bit hashes to the numbers of entries in
// the caller's list. Several numbers may have the same hash: a look-up visits the cells of
// the hash with First and Next, and the caller compares the entries. Hashes must be
// random in all bits. The zero value is empty. It is not safe for concurrent use.
type Index struct {
	// cells has a power of two of entries, or none. Invariant: a number is in the cell of
	// its hash or in a later one, without an empty cell between.
	cells []cell
	n     int // numbers
}

// cell is 32 bits of a hash, then 32 bits with the number plus 1; 0: empty.
type cell uint64

func cellOf(hash, number uint32) cell { return cell(hash)<<32 | cell(number+1) }

func (c cell) hash() uint32 { return uint32(c >> 32) }

func (c cell) number() uint32 { return uint32(c) - 1 }

// Len returns the number of entries.
func (x *Index) Len() int { return x.n }

// Cells returns the number of cells. A cell has 8 bytes.
func (x *Index) Cells() int { return len(x.cells) }

func (x *Index) start(hash uint32) int { return int(hash) & (len(x.cells) - 1) }

func (x *Index) after(cell int) int { return (cell + 1) & (len(x.cells) - 1) }

// First returns the first cell with a hash; -1: there is none. A cell is valid until the
// next Add or Remove.
func (x *Index) First(hash uint32) int {
	if len(x.cells) == 0 {
		return -1
	}
	return x.seek(x.start(hash), hash)
}

// Next returns the cell with the same hash after a cell; -1: there is none.
func (x *Index) Next(cell int, hash uint32) int { return x.seek(x.after(cell), hash) }

func (x *Index) seek(cell int, hash uint32) int {
	for ; x.cells[cell] != 0; cell = x.after(cell) {
		if x.cells[cell].hash() == hash {
			return cell
		}
	}
	return -1
}

// Find returns the cell of a number with its hash; -1: there is none.
func (x *Index) Find(hash, number uint32) int {
	if len(x.cells) == 0 {
		return -1
	}
	want := cellOf(hash, number)
	for i := x.start(hash); x.cells[i] != 0; i = x.after(i) {
		if x.cells[i] == want {
			return i
		}
	}
	return -1
}

// Number returns the number in a cell.
func (x *Index) Number(cell int) uint32 { return x.cells[cell].number() }

// Load reads the cell where a look-up of a hash begins, so that the processor has it in
// its cache. The result has no meaning.
func (x *Index) Load(hash uint32) uint64 {
	if len(x.cells) == 0 {
		return 0
	}
	return uint64(x.cells[x.start(hash)])
}

// Add adds a number, which must be less than 2³²-1.
func (x *Index) Add(hash, number uint32) {
	if 5*(x.n+1) > 4*len(x.cells) {
		old := x.cells
		x.cells = make([]cell, max(8, 2*len(old)))
		for _, c := range old {
			if c != 0 {
				x.insert(c)
			}
		}
	}
	x.insert(cellOf(hash, number))
	x.n++
}

func (x *Index) insert(c cell) {
	i := x.start(c.hash())
	for x.cells[i] != 0 {
		i = x.after(i)
	}
	x.cells[i] = c
}

// Remove empties a cell.
func (x *Index) Remove(hole int) {
	// Close the gap: a number behind it moves into it, unless the gap is before its start.
	for i := x.after(hole); x.cells[i] != 0; i = x.after(i) {
		if start := x.start(x.cells[i].hash()); (i-start)&(len(x.cells)-1) >= (i-hole)&(len(x.cells)-1) {
			x.cells[hole], hole = x.cells[i], i
		}
	}
	x.cells[hole] = 0
	x.n--
}

// Clear removes all numbers and sets the number of cells, which must be a power of two or
// 0. It reuses the memory of an index that has as many cells.
func (x *Index) Clear(cells int) {
	if x.n = 0; len(x.cells) == cells {
		clear(x.cells)
		return
	}
	x.cells = make([]cell, cells)
}
