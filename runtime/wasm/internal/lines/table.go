package lines

import (
	"encoding/binary"
	"fmt"
	"sort"
)

// A Table finds lines. It is immutable, and keeps a few bytes for each row.
type Table struct {
	files []string
	rows  []byte  // encoded: see Append
	index []block // of rows, in their order
	calls []call
}

// call is an inlined call, and the innermost one around it; -1: there is none.
type call struct {
	Inlined
	outer int32
}

// blockRows is how many rows are read at most to find one.
const blockRows = 128

// block is where a number of rows begins.
type block struct {
	first Row    // as it is before the first one is read
	at    uint32 // in Table.rows
}

// A Position is a place in source code.
type Position struct {
	File         string
	Line, Column uint32
}

// String is file:line:column, without a column that is not known.
func (p Position) String() string {
	if p.Column == 0 {
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Append writes a program in the form that Open reads: the names, then the
// inlined calls, then each row as its differences from the one before it.
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

// Open reads what Append wrote; nil when it is nothing or something else.
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

// readCalls reads the inlined calls and finds out which is in which.
func (t *Table) readCalls(d *decoder) {
	var open []int32 // that begin before the next one
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

// Bounds of what is told of one place: positions, and calls looked at.
const (
	maxChain = 16
	maxWalk  = 1000
)

// At returns the positions that the code at a place was compiled from: that of the
// instruction itself, and if that is in the body of an inlined function, the calls
// that led there, the innermost first.
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

// row finds the position of the instruction at a place.
func (t *Table) row(at uint32) (Position, bool) {
	if t == nil {
		return Position{}, false
	}
	// The last block whose first row is at or before the place.
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

// A decoder reads a table.
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

// count reads a number of things of which there may be so many.
func (d *decoder) count(most int) int {
	n := d.uvarint()
	if n > uint64(most) {
		d.bad, d.data = true, nil
		return 0
	}
	return int(n)
}

// row reads the row behind another one.
func (d *decoder) row(last Row) Row {
	return Row{
		At:     last.At + uint32(d.uvarint()),
		File:   uint32(int64(last.File) + d.varint()),
		Line:   uint32(int64(last.Line) + d.varint()),
		Column: uint32(d.uvarint()),
	}
}
