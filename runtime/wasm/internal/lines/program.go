package lines

import (
	"bytes"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of the debug information of a module. Compilers stay below them.
const (
	maxRows      = 1 << 20
	maxFiles     = 20_000
	maxName      = 512     // bytes of a file name, and of a directory
	maxNameBytes = 4 << 20 // bytes of all names
)

// Sections are the custom sections with debug information.
type Sections struct {
	Line    []byte // .debug_line
	Str     []byte // .debug_str
	LineStr []byte // .debug_line_str

	// The sections about inlined calls:
	Info     []byte // .debug_info
	Abbrev   []byte // .debug_abbrev
	Ranges   []byte // .debug_ranges
	RngLists []byte // .debug_rnglists
	Addr     []byte // .debug_addr
}

// A Row is the source position of the code from address At to the next row.
type Row struct {
	At     uint32 // bytes from the start of the contents of the code section
	File   uint32 // index in Program.Files
	Line   uint32 // 0: the code belongs to no known line
	Column uint32 // 0: unknown
}

// A Program holds the line tables of a module.
type Program struct {
	Files []string
	Rows  []Row // invariant: At is ascending, and File is in range

	Inlined []Inlined // invariant: File is in range, and each call precedes those inside it
}

// Parse reads all line tables. A module without any has no rows.
func Parse(s Sections) *Program {
	p := &parser{s: s, fileIndex: make(map[string]uint32), tables: make(map[uint64]*table), shapes: make(map[uint64]map[uint64]abbreviation)}
	for rest := s.Line; len(rest) > 0; {
		r := &reader{buf: rest}
		r.unitLength()
		unit := r.bytes(r.length)
		if r.bad {
			break // its length is wrong, so the start of the next unit is unknown
		}
		p.unit(&reader{buf: unit, wide: r.wide}, uint64(len(s.Line)-len(rest)))
		rest = rest[r.at:]
	}
	return p.program()
}

// Move translates the addresses to those of the rewritten code. The function to must not
// decrease.
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

// tidy removes all rows but the last one of each address, and rows equal to the previous
// one.
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
	tables    map[uint64]*table                  // by offset in .debug_line
	shapes    map[uint64]map[uint64]abbreviation // by offset in .debug_abbrev, then by code
	steps     int                                // steps left for inlined calls
	room      int                                // abbreviations and attributes left
}

// sequenceRow is a row, or the end of a sequence of rows.
type sequenceRow struct {
	Row
	end bool
}

func (p *parser) program() *Program {
	// One function ends where the next one begins. The row of the second one counts.
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

// A table is the header of one line table, and the files that it uses.
type table struct {
	version     uint16
	minLength   uint32
	lineBase    int64
	lineRange   byte
	opcodeBase  byte
	lengths     []byte // operand counts of the standard opcodes; that of opcode i is at i-1
	dirs        [][]byte
	files       []entry
	fileNumbers []uint32 // index of each file in parser.files, plus 1; 0: not looked up yet; noFile: there is none
}

const noFile = 1<<32 - 1

// entry is a file of a table: its name and the index of its directory.
type entry struct {
	name []byte
	dir  uint64
}

// unit reads the line table at an offset of the section.
func (p *parser) unit(r *reader, at uint64) {
	t := &table{version: uint16(r.fixed(2))}
	if t.version < 2 || t.version > 5 {
		return
	}
	if t.version >= 5 {
		r.fixed(2) // sizes of addresses and segment selectors; set_address has a size of its own
	}
	header := r.bytes(r.offset())
	if r.bad || !t.header(&reader{buf: header, wide: r.wide}, p.s) {
		return
	}
	p.tables[at] = t
	p.run(t, r)
}

// header reads the header of a table. It returns false if the program cannot be read.
func (t *table) header(r *reader, s Sections) (ok bool) {
	t.minLength = uint32(r.fixed(1))
	if t.version >= 4 && r.fixed(1) != 1 {
		return false // used only for machines with several instructions at one address
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
	return true // names that could not be read are missing
}

// entries reads directories and files in the format of the versions before 5. Directory 0
// is the working directory of the compiler, which the table does not contain. There is no
// file 0.
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
		r.uleb() // modification time
		r.uleb() // size of the file
	}
}

// entries5 reads directories and files in the format of version 5.
func (t *table) entries5(r *reader, s Sections) {
	for _, e := range r.list(s) {
		t.dirs = append(t.dirs, e.name)
	}
	t.files = r.list(s)
}

// file returns the index of a table's file among the files of the module.
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

// sane reports whether a name fits into one line of a trace.
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

// run executes the line program of one table and adds its rows.
func (p *parser) run(t *table, r *reader) {
	initial := state{file: 1, line: 1}
	s := initial
	begin := len(p.rows) // start of the current sequence
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
	p.rows = p.rows[:begin] // without its end, the address range of a sequence is unknown
}

// sequence removes the rows of a sequence whose code the linker has removed. The linker
// marks it by the address zero or one of the highest addresses.
func sequence(rows []sequenceRow, begin int) []sequenceRow {
	if begin < len(rows) {
		if first := rows[begin].At; first == 0 || first >= 1<<32-2 {
			return rows[:begin]
		}
	}
	return rows
}
