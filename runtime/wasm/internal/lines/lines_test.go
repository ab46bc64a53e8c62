package lines

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// A builder writes a line table of version 4 with one file.
type builder struct{ bytes.Buffer }

func (b *builder) address(at uint32) {
	b.Write(binary.LittleEndian.AppendUint32([]byte{0, 5, 2}, at))
}

func (b *builder) advance(by uint64, lines int8) { // and appends a row
	b.Write(binary.AppendUvarint([]byte{2}, by))
	b.Write([]byte{3, byte(lines) & 0x7f, 1})
}

func (b *builder) end(by uint64) {
	b.Write(binary.AppendUvarint([]byte{2}, by))
	b.Write([]byte{0, 1, 1})
}

// table puts a header before the program.
func (b *builder) table(files ...string) []byte {
	header := []byte{1, 1, 1, 0xfb, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1}
	header = append(header, "src\x00\x00"...)
	for _, f := range files {
		header = append(header, f+"\x00\x01\x00\x00"...)
	}
	header = append(header, 0)
	unit := binary.LittleEndian.AppendUint32([]byte{4, 0}, uint32(len(header)))
	unit = append(append(unit, header...), b.Bytes()...)
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(unit))), unit...)
}

func at(t *testing.T, p *Program, want map[uint32]string) {
	t.Helper()
	table := Open(p.Append(nil))
	for place, position := range want {
		if got := fmt.Sprint(table.At(place)); got != "["+position+"]" {
			t.Errorf("%#x is %s, want %q", place, got, position)
		}
	}
}

func TestLookUp(t *testing.T) {
	var b builder
	b.address(100)
	b.advance(0, 9)  // line 10 at 100
	b.advance(5, 1)  // 11 at 105
	b.advance(0, 1)  // line 12 at 105: the last row of an address counts
	b.advance(10, 0) // line 12 at 115
	b.end(10)        // no line from 125
	b.address(125)
	b.advance(0, 49) // line 50, at the end of the other sequence
	b.end(5)
	b.address(0) // removed by the linker
	b.advance(0, 1)
	b.end(1000)
	b.address(1<<32 - 2) // also removed by the linker
	b.advance(0, 1)
	b.end(0)
	b.address(60)
	b.advance(0, 2) // line 3 at 60
	b.end(10)
	b.address(200)
	b.advance(0, 1) // a sequence without an end
	p := Parse(Sections{Line: b.table("a.c")})
	at(t, p, map[uint32]string{
		0: "", 59: "", 60: "src/a.c:3", 69: "src/a.c:3", 70: "", 99: "",
		100: "src/a.c:10", 104: "src/a.c:10", 105: "src/a.c:12", 124: "src/a.c:12",
		125: "src/a.c:50", 129: "src/a.c:50", 130: "", 200: "", 1<<32 - 1: "",
	})
	p.Move(func(at uint32) uint32 { return at*2 + 1 })
	at(t, p, map[uint32]string{120: "", 121: "src/a.c:3", 200: "", 201: "src/a.c:10", 210: "src/a.c:10", 211: "src/a.c:12", 251: "src/a.c:50", 261: ""})
}

// TestInlined checks calls within calls that begin or end at the same address, and the
// space between two calls.
func TestInlined(t *testing.T) {
	p := &Program{
		Files: []string{"a", "b"},
		Rows:  []Row{{At: 10, Line: 1}, {At: 90, Line: 0}},
		Inlined: orderInlined([]Inlined{
			{From: 20, To: 30, File: 1, Line: 4},
			{From: 20, To: 60, Line: 3},
			{From: 40, To: 60, File: 1, Line: 5},
			{From: 5, To: 80, Line: 2},
			{From: 50, To: 50, Line: 6},
			{From: 85, To: 95, Line: 7, Column: 8},
		}),
	}
	at(t, p, map[uint32]string{
		7: "", 10: "a:1 a:2", 19: "a:1 a:2", 20: "a:1 b:4 a:3 a:2", 29: "a:1 b:4 a:3 a:2", 30: "a:1 a:3 a:2", 39: "a:1 a:3 a:2",
		40: "a:1 b:5 a:3 a:2", 50: "a:1 b:5 a:3 a:2", 59: "a:1 b:5 a:3 a:2", 60: "a:1 a:2", 79: "a:1 a:2", 80: "a:1", 85: "a:1 a:7:8", 90: "",
	})
	p.Move(func(at uint32) uint32 { return max(at, 40) }) // removes the code before 40
	at(t, p, map[uint32]string{39: "", 40: "a:1 b:5 a:3 a:2", 60: "a:1 a:2"})
}

// TestManyRows looks up each row of a table with more rows than one block has.
func TestManyRows(t *testing.T) {
	var b builder
	b.address(10)
	want := map[uint32]string{9: ""}
	for i := range 1000 {
		b.advance(3, 1)
		want[uint32(10+3*(i+1))] = fmt.Sprintf("src/a.c:%d", i+2)
		want[uint32(12+3*(i+1))] = fmt.Sprintf("src/a.c:%d", i+2)
	}
	b.end(3)
	at(t, Parse(Sections{Line: b.table("a.c")}), want)
}

// TestNamesThatBreakATrace uses file names that cannot be part of a line.
func TestNamesThatBreakATrace(t *testing.T) {
	for _, name := range []string{"a\nb", "\xff", strings.Repeat("x", maxName+1), "\x1b[31m"} {
		var b builder
		b.address(1)
		b.advance(0, 1)
		b.end(10)
		at(t, Parse(Sections{Line: b.table(name)}), map[uint32]string{1: "", 5: ""})
	}
}

func TestNoLines(t *testing.T) {
	if rows := Parse(Sections{}).Rows; len(rows) > 0 {
		t.Errorf("rows of nothing: %v", rows)
	}
	if table := Open(nil); table != nil {
		t.Error("a table of nothing")
	}
	if got := (*Table)(nil).At(1); got != nil {
		t.Errorf("the position %v of no table", got)
	}
}

// sections finds the debug sections of a module by searching for their names.
func sections(tb testing.TB, file string) Sections {
	code, err := os.ReadFile("../../testdata/" + file)
	if err != nil {
		tb.Fatal(err)
	}
	section := func(name string) []byte {
		i := bytes.Index(code, append([]byte{byte(len(name))}, name...))
		if i < 0 {
			return nil
		}
		size, n := uint64(0), 0
		for back := 1; back <= 3; back++ { // the size precedes the name
			if v, m := binary.Uvarint(code[i-back:]); m == back {
				size, n = v, back
			}
		}
		if n == 0 {
			return nil
		}
		return code[i+1+len(name) : i+int(size)]
	}
	return Sections{
		Line: section(".debug_line"), Str: section(".debug_str"), LineStr: section(".debug_line_str"), Info: section(".debug_info"),
		Abbrev: section(".debug_abbrev"), Ranges: section(".debug_ranges"), RngLists: section(".debug_rnglists"), Addr: section(".debug_addr"),
	}
}

func FuzzParse(f *testing.F) {
	for _, file := range []string{"lines.wasm", "lines5.wasm"} {
		s := sections(f, file)
		if len(Parse(s).Rows) == 0 {
			f.Fatalf("%s has no lines", file)
		}
		f.Add(s.Line, s.Str, s.LineStr, s.Info, s.Abbrev, s.Ranges, s.RngLists, s.Addr)
	}
	f.Fuzz(func(t *testing.T, line, str, lineStr, info, abbrev, ranges, lists, addr []byte) {
		p := Parse(Sections{line, str, lineStr, info, abbrev, ranges, lists, addr})
		check(t, p)
		table := Open(p.Append(nil))
		if (table == nil) != (len(p.Rows) == 0) {
			t.Fatalf("%d rows, and a table %v", len(p.Rows), table != nil)
		}
		for _, r := range p.Rows[:min(len(p.Rows), 300)] {
			got := table.At(r.At)
			if (len(got) > 0) != (r.Line > 0) || len(got) > 0 && got[0] != (Position{p.Files[r.File], r.Line, r.Column}) {
				t.Fatalf("at %#x is %v, want %+v", r.At, got, r)
			}
		}
		p.Move(func(at uint32) uint32 { return at / 4 * 3 })
		check(t, p)
	})
}

func check(t *testing.T, p *Program) {
	if !slices.IsSortedFunc(p.Rows, func(a, b Row) int { return int(int64(a.At) - int64(b.At)) }) {
		t.Fatal("the rows are not in order")
	}
	for i, c := range p.Inlined {
		if c.From >= c.To || int(c.File) >= len(p.Files) || c.Line == 0 || i > 0 && c.From < p.Inlined[i-1].From {
			t.Fatalf("inlined call %d is %+v, with %d files", i, c, len(p.Files))
		}
	}
	for i, r := range p.Rows {
		if i > 0 && p.Rows[i-1].At == r.At || r.Line > 0 && int(r.File) >= len(p.Files) {
			t.Fatalf("row %d is %+v behind %+v, with %d files", i, r, p.Rows[max(i-1, 0)], len(p.Files))
		}
	}
}

// FuzzOpen decodes the content of a damaged cache.
func FuzzOpen(f *testing.F) {
	f.Add(Parse(sections(f, "lines.wasm")).Append(nil), uint32(77))
	f.Fuzz(func(t *testing.T, data []byte, place uint32) {
		Open(data).At(place)
	})
}
