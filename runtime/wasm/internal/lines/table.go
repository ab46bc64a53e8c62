package lines

import (
	"encoding/binary"
	"fmt"
	"sort"
)

// A Table maps code addresses to source lines. It is immutable, and takes a few bytes for
// each row.
type Table struct {
	files []string
	rows  []byte  // encoded by Append
	index []block // of rows, in ascending order
	calls []call
}

// call is an inlined call and the index of the innermost call around it, or -1.
type call struct {
	Inlined
	outer int32
}

// blockRows is the maximum number of rows that a look-up decodes.
const blockRows = 128

// block is the start of a group of rows.
type block struct {
	first Row    // state before the first row is decoded
	at    uint32 // offset in Table.rows
}

// A Position is a position in source code.
type Position struct {
	File         string
	Line, Column uint32
}

// String returns file:line:column, without the column if it is unknown.
func (p Position) String() string {
	if p.Column == 0 {
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Append appends the encoded program, which Open decodes: the file names, the inlined
// calls, and each row as its difference from the previous one.
func (p *Program) Append(out []byte) []byte {
	out = binary.AppendUvarint(out, uint64(len(p.Files)))
	for _, f := range p.Files {
		out = binary.AppendUvarint(out, uint64(len(f)))
		out = append(out, f...)
	}
	out = binary.AppendUvarint(out, uint64(len(p.Inlined)))
	var from uint32
	for _, c := range p.Inlined {
		out = binary.AppendUvarint(out, uint64(c.From-from))
		out = binary.AppendUvarint(out, uint64(c.To-c.From))
		out = binary.AppendUvarint(out, uint64(c.File))
		out = binary.AppendUvarint(out, uint64(c.Line))
		out = binary.AppendUvarint(out, uint64(c.Column))
		from = c.From
	}
	var last Row
	for _, r := range p.Rows {
		out = binary.AppendUvarint(out, uint64(r.At-last.At))
		out = binary.AppendVarint(out, int64(r.File)-int64(last.File))
		out = binary.AppendVarint(out, int64(r.Line)-int64(last.Line))
		out = binary.AppendUvarint(out, uint64(r.Column))
		last = r
	}
	return out
}

// Open decodes the output of Append. It returns nil if data is empty or malformed.
func Open(data []byte) *Table {
	d := &decoder{data: data}
	t := &Table{}
	for range d.count(maxFiles) {
		n := d.uvarint()
		if d.bad || n > uint64(len(d.data)) {
			return nil
		}
		t.files = append(t.files, string(d.data[:n]))
		d.data = d.data[n:]
	}
	t.readCalls(d)
	if d.bad || len(d.data) == 0 {
		return nil
	}
	t.rows = d.data
	var row Row
	for n := 0; len(d.data) > 0; n++ {
		if n%blockRows == 0 {
			t.index = append(t.index, block{row, uint32(len(t.rows) - len(d.data))})
		}
		row = d.row(row)
		if d.bad || row.Line > 0 && int(row.File) >= len(t.files) {
			return nil
		}
	}
	return t
}

// readCalls decodes the inlined calls and finds the parent of each.
func (t *Table) readCalls(d *decoder) {
	var open []int32 // calls that begin before the next one and may contain it
	var from uint32
	for n := range d.count(maxInlined) {
		from += uint32(d.uvarint())
		c := call{Inlined{From: from, To: from + uint32(d.uvarint()), File: uint32(d.uvarint()), Line: uint32(d.uvarint()), Column: uint32(d.uvarint())}, -1}
		if int64(c.File) >= int64(len(t.files)) {
			d.bad, d.data = true, nil
		}
		if d.bad {
			return
		}
		for len(open) > 0 && t.calls[open[len(open)-1]].To <= c.From {
			open = open[:len(open)-1]
		}
		if len(open) > 0 {
			c.outer = open[len(open)-1]
		}
		open = append(open, int32(n))
		t.calls = append(t.calls, c)
	}
}

// Bounds of the answer for one address: the positions returned, and the calls examined.
const (
	maxChain = 16
	maxWalk  = 1000
)

// At returns the source positions of the code at an address. The first is that of the
// instruction. If the instruction belongs to the body of an inlined function, the
// positions of the calls follow, from the innermost to the outermost.
func (t *Table) At(at uint32) []Position {
	row, ok := t.row(at)
	if !ok {
		return nil
	}
	chain := []Position{row}
	i := int32(sort.Search(len(t.calls), func(i int) bool { return t.calls[i].From > at })) - 1
	for n := 0; i >= 0 && n < maxWalk && len(chain) < maxChain; i, n = t.calls[i].outer, n+1 {
		if c := t.calls[i]; at < c.To {
			chain = append(chain, Position{t.files[c.File], c.Line, c.Column})
		}
	}
	return chain
}

// row returns the position of the instruction at an address.
func (t *Table) row(at uint32) (Position, bool) {
	if t == nil {
		return Position{}, false
	}
	// Find the last block whose first row is at or before the address.
	i := sort.Search(len(t.index), func(i int) bool {
		b := t.index[i]
		return (&decoder{data: t.rows[b.at:]}).row(b.first).At > at
	}) - 1
	if i < 0 {
		return Position{}, false
	}
	d := &decoder{data: t.rows[t.index[i].at:]}
	row, found := t.index[i].first, Row{}
	for n := 0; n < blockRows && len(d.data) > 0; n++ {
		if row = d.row(row); row.At > at {
			break
		}
		found = row
	}
	if found.Line == 0 {
		return Position{}, false
	}
	return Position{t.files[found.File], found.Line, found.Column}, true
}

// A decoder decodes a table.
type decoder struct {
	data []byte
	bad  bool
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.data)
	if n <= 0 {
		d.bad, d.data = true, nil
		return 0
	}
	d.data = d.data[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.data)
	if n <= 0 {
		d.bad, d.data = true, nil
		return 0
	}
	d.data = d.data[n:]
	return v
}

// count decodes a count of at most most.
func (d *decoder) count(most int) int {
	n := d.uvarint()
	if n > uint64(most) {
		d.bad, d.data = true, nil
		return 0
	}
	return int(n)
}

// row decodes the row after last.
func (d *decoder) row(last Row) Row {
	return Row{
		At:     last.At + uint32(d.uvarint()),
		File:   uint32(int64(last.File) + d.varint()),
		Line:   uint32(int64(last.Line) + d.varint()),
		Column: uint32(d.uvarint()),
	}
}
