package lines

import (
	"bytes"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of what is read of a module; compilers stay below them.
const (
	maxRows      = 1 << 20
	maxFiles     = 20_000
	maxName      = 512     // bytes of a name, and of a directory
	maxNameBytes = 4 << 20 // of all names
)

// Sections are the custom sections that hold line tables.
type Sections struct {
	Line    []byte // .debug_line
	Str     []byte // .debug_str
	LineStr []byte // .debug_line_str

	// Of calls that were replaced by the body of their function:
	Info     []byte // .debug_info
	Abbrev   []byte // .debug_abbrev
	Ranges   []byte // .debug_ranges
	RngLists []byte // .debug_rnglists
	Addr     []byte // .debug_addr
}

// A Row says what the code from a place on was compiled from, until the next row.
type Row struct {
	At     uint32 // bytes from the start of the code section's contents
	File   uint32 // in Program.Files
	Line   uint32 // 0: it was compiled from no line that is known
	Column uint32 // 0: not known
}

// A Program is the line tables of a module.
type Program struct {
	Files []string
	Rows  []Row // invariant: At rises, and File is in range

	Inlined []Inlined // invariant: File is in range, and one comes before those inside it
}

// Parse reads all line tables; a module that has none has no rows.
func Parse(s Sections) *Program {
	p := &parser{s: s, fileIndex: make(map[string]uint32), tables: make(map[uint64]*table), shapes: make(map[uint64]map[uint64]abbreviation)}
	for rest := s.Line; len(rest) > 0; {
		r := &reader{buf: rest}
		r.unitLength()
		unit := r.bytes(r.length)
		if r.bad {
			break // its length is wrong, so nobody knows where the next one begins
		}
		p.unit(&reader{buf: unit, wide: r.wide}, uint64(len(s.Line)-len(rest)))
		rest = rest[r.at:]
	}
	return p.program()
}

// Move carries the rows along to where their code went. to must not fall.
func (p *Program) Move(to func(at uint32) uint32) {
	for i := range p.Rows {
		p.Rows[i].At = to(p.Rows[i].At)
	}
	p.Rows = tidy(p.Rows)
	for i := range p.Inlined {
		p.Inlined[i].From, p.Inlined[i].To = to(p.Inlined[i].From), to(p.Inlined[i].To)
	}
	p.Inlined = orderInlined(p.Inlined)
}

// tidy keeps the last of the rows for one place, and none that says what the one
// before it says.
func tidy(rows []Row) []Row {
	kept := rows[:0]
	for _, r := range rows {
		if n := len(kept); n > 0 && kept[n-1].At == r.At {
			kept = kept[:n-1]
		}
		if n := len(kept); n > 0 && kept[n-1].File == r.File && kept[n-1].Line == r.Line && kept[n-1].Column == r.Column {
			continue
		}
		kept = append(kept, r)
	}
	return kept
}

type parser struct {
	s         Sections
	rows      []sequenceRow
	files     []string
	fileIndex map[string]uint32
	nameBytes int
	tables    map[uint64]*table                  // by their places in .debug_line
	shapes    map[uint64]map[uint64]abbreviation // by their places in .debug_abbrev, and their codes
	steps     int                                // that may still be done for inlined calls
	room      int                                // for shapes
}

// sequenceRow is a row, or the end of a sequence of them.
type sequenceRow struct {
	Row
	end bool
}

func (p *parser) program() *Program {
	// The end of one function is where the next one begins, whose row counts.
	slices.SortStableFunc(p.rows, func(a, b sequenceRow) int {
		switch {
		case a.At != b.At:
			if a.At < b.At {
				return -1
			}
			return 1
		case a.end == b.end:
			return 0
		case a.end:
			return -1
		}
		return 1
	})
	out := &Program{}
	for _, r := range p.rows {
		if r.end {
			r.Row = Row{At: r.At}
		}
		out.Rows = append(out.Rows, r.Row)
	}
	out.Rows = tidy(out.Rows)
	out.Inlined = p.inlined()
	out.Files = p.files
	return out
}

// A table is the header of one line table, and where its files are.
type table struct {
	version     uint16
	minLength   uint32
	lineBase    int64
	lineRange   byte
	opcodeBase  byte
	lengths     []byte // operands of the standard opcodes; of opcode i at i-1
	dirs        [][]byte
	files       []entry
	fileNumbers []uint32 // of each file in parser.files, plus 1; 0: not asked for yet; noFile: it has none
}

const noFile = 1<<32 - 1

// entry is a file of a table: a name and the number of its directory.
type entry struct {
	name []byte
	dir  uint64
}

// unit reads one table, which is at a place of the section.
func (p *parser) unit(r *reader, at uint64) {
	t := &table{version: uint16(r.fixed(2))}
	if t.version < 2 || t.version > 5 {
		return
	}
	if t.version >= 5 {
		r.fixed(2) // sizes of addresses and of segment selectors; set_address has its own
	}
	header := r.bytes(r.offset())
	if r.bad || !t.header(&reader{buf: header, wide: r.wide}, p.s) {
		return
	}
	p.tables[at] = t
	p.run(t, r)
}

// header reads what is before the program; ok is false when the program cannot
// be read.
func (t *table) header(r *reader, s Sections) (ok bool) {
	t.minLength = uint32(r.fixed(1))
	if t.version >= 4 && r.fixed(1) != 1 {
		return false // for machines with several instructions at one address
	}
	r.fixed(1) // whether rows are statements at first
	t.lineBase = int64(int8(r.fixed(1)))
	t.lineRange = byte(r.fixed(1))
	t.opcodeBase = byte(r.fixed(1))
	if r.bad || t.lineRange == 0 || t.opcodeBase == 0 {
		return false
	}
	if t.lengths = r.bytes(uint64(t.opcodeBase - 1)); r.bad {
		return false
	}
	if t.version >= 5 {
		t.entries5(r, s)
	} else {
		t.entries(r)
	}
	return true // what could not be read of the names is missing
}

// entries reads directories and files in the form before version 5. Number 0 is
// the directory that the compiler worked in, which the table does not tell, and no file.
func (t *table) entries(r *reader) {
	t.dirs = [][]byte{nil}
	for {
		dir := r.text()
		if r.bad || len(dir) == 0 {
			break
		}
		t.dirs = append(t.dirs, dir)
	}
	t.files = []entry{{}}
	for {
		name := r.text()
		if r.bad || len(name) == 0 {
			return
		}
		t.files = append(t.files, entry{name, r.uleb()})
		r.uleb() // time
		r.uleb() // length
	}
}

// entries5 reads directories and files in the form of version 5.
func (t *table) entries5(r *reader, s Sections) {
	for _, e := range r.list(s) {
		t.dirs = append(t.dirs, e.name)
	}
	t.files = r.list(s)
}

// file returns the number of a table's file among those of the module.
func (p *parser) file(t *table, n uint64) (uint32, bool) {
	if n >= uint64(len(t.files)) {
		return 0, false
	}
	for len(t.fileNumbers) < len(t.files) {
		t.fileNumbers = append(t.fileNumbers, 0)
	}
	if t.fileNumbers[n] == 0 {
		t.fileNumbers[n] = noFile
		if index, ok := p.name(t, t.files[n]); ok {
			t.fileNumbers[n] = index + 1
		}
	}
	return t.fileNumbers[n] - 1, t.fileNumbers[n] != noFile
}

func (p *parser) name(t *table, e entry) (uint32, bool) {
	var in []byte
	if e.dir < uint64(len(t.dirs)) {
		in = t.dirs[e.dir]
	}
	if !sane(e.name) || len(e.name) == 0 || !sane(in) {
		return 0, false
	}
	name, dir := string(e.name), string(in)
	if dir != "" && dir != "." && !strings.HasPrefix(name, "/") {
		name = strings.TrimSuffix(dir, "/") + "/" + name
	}
	if index, ok := p.fileIndex[name]; ok {
		return index, true
	}
	if len(p.files) >= maxFiles || p.nameBytes+len(name) > maxNameBytes {
		return 0, false
	}
	index := uint32(len(p.files))
	p.files = append(p.files, name)
	p.fileIndex[name] = index
	p.nameBytes += len(name)
	return index, true
}

// sane says whether a name fits into one line of a trace.
func sane(name []byte) bool {
	return len(name) <= maxName && utf8.Valid(name) && !bytes.ContainsFunc(name, unicode.IsControl)
}

// Opcodes of a line program.
const (
	opExtended = iota
	opCopy
	opAdvancePC
	opAdvanceLine
	opSetFile
	opSetColumn
	opNegateStmt
	opBasicBlock
	opConstAddPC
	opFixedAdvancePC
	opPrologueEnd
	opEpilogueBegin
	opSetISA
)

// Extended opcodes.
const (
	extEndSequence = 1
	extSetAddress  = 2
	extDefineFile  = 3
)

// state is the registers of a line program.
type state struct {
	at, file     uint64
	line, column int64
}

// run reads the rows of one table.
func (p *parser) run(t *table, r *reader) {
	initial := state{file: 1, line: 1}
	s := initial
	begin := len(p.rows) // of the sequence
	emit := func(end bool) {
		if len(p.rows) >= maxRows {
			r.bad = true
			return
		}
		row := sequenceRow{Row: Row{At: uint32(s.at)}, end: end}
		if file, ok := p.file(t, s.file); ok && s.line > 0 && s.line < 1<<31 {
			row.File, row.Line, row.Column = file, uint32(s.line), uint32(min(max(s.column, 0), 1<<20))
		}
		p.rows = append(p.rows, row)
	}
	special := func(op byte) {
		op -= t.opcodeBase
		s.at += uint64(op/t.lineRange) * uint64(t.minLength)
		s.line += t.lineBase + int64(op%t.lineRange)
	}
	for !r.bad && r.at < len(r.buf) {
		op := byte(r.fixed(1))
		switch {
		case op >= t.opcodeBase:
			special(op)
			emit(false)
		case op == opExtended:
			x := &reader{buf: r.bytes(r.uleb())}
			switch x.fixed(1) {
			case extEndSequence:
				emit(true)
				p.rows = sequence(p.rows, begin)
				begin, s = len(p.rows), initial
			case extSetAddress:
				s.at = x.fixed(min(len(x.buf)-1, 8))
			case extDefineFile:
				if len(t.files) < maxFiles {
					t.files = append(t.files, entry{x.text(), x.uleb()})
				}
			}
		case op == opCopy:
			emit(false)
		case op == opAdvancePC:
			s.at += r.uleb() * uint64(t.minLength)
		case op == opAdvanceLine:
			s.line += r.sleb()
		case op == opSetFile:
			s.file = r.uleb()
		case op == opSetColumn:
			s.column = int64(min(r.uleb(), 1<<20))
		case op == opConstAddPC:
			s.at += uint64((255-t.opcodeBase)/t.lineRange) * uint64(t.minLength)
		case op == opFixedAdvancePC:
			s.at += r.fixed(2)
		default:
			for range t.lengths[op-1] {
				r.uleb()
			}
		}
		if s.at >= 1<<32 || s.line <= -1<<40 || s.line >= 1<<40 {
			break
		}
	}
	p.rows = p.rows[:begin] // a sequence without an end says nothing of where it holds
}

// sequence drops the rows of a sequence whose code the linker has left out: it puts
// zero or one of the highest numbers in the place of the address.
func sequence(rows []sequenceRow, begin int) []sequenceRow {
	if begin < len(rows) {
		if first := rows[begin].At; first == 0 || first >= 1<<32-2 {
			return rows[:begin]
		}
	}
	return rows
}
