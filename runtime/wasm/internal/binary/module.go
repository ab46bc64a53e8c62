package binary

import "strings"

// Section ids, in the order of the specification's numbering.
const (
	SectionCustom    byte = 0
	SectionType      byte = 1
	SectionImport    byte = 2
	SectionFunction  byte = 3
	SectionTable     byte = 4
	SectionMemory    byte = 5
	SectionGlobal    byte = 6
	SectionExport    byte = 7
	SectionStart     byte = 8
	SectionElement   byte = 9
	SectionCode      byte = 10
	SectionData      byte = 11
	SectionDataCount byte = 12
	sectionTag       byte = 13
)

// An ExternKind is the kind of an import or export.
type ExternKind byte

// The kinds of imports and exports.
const (
	KindFunc   ExternKind = 0
	KindTable  ExternKind = 1
	KindMemory ExternKind = 2
	KindGlobal ExternKind = 3
	kindTag    ExternKind = 4 // of exception handling, which is not served
)

func (k ExternKind) String() string {
	switch k {
	case KindFunc:
		return "function"
	case KindTable:
		return "table"
	case KindMemory:
		return "memory"
	case KindGlobal:
		return "global"
	}
	return "item"
}

// Value types, as encoded.
const (
	I32     byte = 0x7f
	I64     byte = 0x7e
	F32     byte = 0x7d
	F64     byte = 0x7c
	V128    byte = 0x7b
	FuncRef byte = 0x70

	ExternRef byte = 0x6f
)

// PageSize is the unit of linear memory in bytes.
const PageSize = 64 << 10

// A Module is a parsed module. Its slices refer to the bytes given to Parse.
type Module struct {
	Types    []FuncType
	Imports  []Import
	Funcs    []uint32 // type index of each defined function
	Tables   []Table
	Memory   *Range // in pages; nil when the module defines none
	Globals  []Global
	Exports  []Export
	Start    []byte // raw body of the start section; nil without one
	StartFn  uint32
	Elements []Element
	Bodies   []Body // invariant: len(Bodies) == len(Funcs)
	Data     []Data
	Customs  []Custom

	ImportedFuncs   int // invariant: number of Imports of KindFunc; defined functions follow them in the index space
	ImportedGlobals int // invariant: number of Imports of KindGlobal; defined globals follow them

	// Raw bodies of sections that the rewriter copies or extends; nil when absent.
	RawTypes, RawImports, RawFuncs, RawData, RawDataCount []byte
}

// FuncCount returns the size of the function index space.
func (m *Module) FuncCount() int { return m.ImportedFuncs + len(m.Funcs) }

// GlobalCount returns the size of the global index space.
func (m *Module) GlobalCount() int { return m.ImportedGlobals + len(m.Globals) }

// FuncType returns the type of a function by its index. Parse has checked both indices.
func (m *Module) FuncType(index uint32) FuncType {
	if int(index) >= m.ImportedFuncs {
		return m.Types[m.Funcs[int(index)-m.ImportedFuncs]]
	}
	for _, im := range m.Imports {
		if im.Kind != KindFunc {
			continue
		}
		if index == 0 {
			return m.Types[im.Type]
		}
		index--
	}
	return FuncType{}
}

// Export returns the export with the name and kind.
func (m *Module) Export(name string, kind ExternKind) (Export, bool) {
	for _, e := range m.Exports {
		if e.Name == name && e.Kind == kind {
			return e, true
		}
	}
	return Export{}, false
}

// Custom returns the content of the first custom section with the name.
func (m *Module) Custom(name string) ([]byte, bool) {
	for _, c := range m.Customs {
		if c.Name == name {
			return c.Body, true
		}
	}
	return nil, false
}

// A FuncType holds value types as encoded.
type FuncType struct{ Params, Results []byte }

// String returns the type in the form "(i32 i64) -> (i32)".
func (t FuncType) String() string { return typeNames(t.Params) + " -> " + typeNames(t.Results) }

func typeNames(types []byte) string {
	out := make([]string, len(types))
	for i, t := range types {
		out[i] = typeName(t)
	}
	return "(" + strings.Join(out, " ") + ")"
}

func typeName(t byte) string {
	switch t {
	case I32:
		return "i32"
	case I64:
		return "i64"
	case F32:
		return "f32"
	case F64:
		return "f64"
	case V128:
		return "v128"
	case FuncRef:
		return "funcref"
	case ExternRef:
		return "externref"
	}
	return "unknown"
}

// An Import is one entry of the import section.
type Import struct {
	Module, Name string
	Kind         ExternKind
	Type         uint32 // of a function
}

// A Range is the limits of a memory (in pages) or table (in elements).
type Range struct {
	Min, Max uint32
	HasMax   bool
}

// A Table is a defined table.
type Table struct {
	Type byte
	Range
}

// A Global is a defined global. Init is its constant expression, including its end.
type Global struct {
	Type    byte
	Mutable bool
	Init    []byte
}

// An Export is one entry of the export section.
type Export struct {
	Name  string
	Kind  ExternKind
	Index uint32
}

// An Element is one element segment. Its form decides whether Funcs or Exprs holds the
// items.
type Element struct {
	Flags  uint32
	Table  uint32
	Offset []byte // constant expression; nil when not active
	Kind   []byte // element kind or reference type byte; empty in forms without one
	Funcs  []uint32
	Exprs  [][]byte
}

// Len returns the number of items.
func (e Element) Len() int { return len(e.Funcs) + len(e.Exprs) }

// A Data is a data segment.
type Data struct {
	Offset []byte // constant expression; nil when passive
	Bytes  []byte
}

// At returns the address of an active segment if its offset is a constant number.
func (d Data) At() (address uint32, ok bool) {
	n := 0
	ConstInstructions(d.Offset, func(in Instr) bool {
		if n++; n == 1 {
			address, ok = in.Offset, in.Op == OpI32Const
		} else if n > 2 {
			ok = false
		}
		return ok
	})
	return address, ok
}

// A Body is the code of one function.
type Body struct {
	At         int    // offset of RawLocals from the start of the contents of the code section; Code follows RawLocals
	RawLocals  []byte // the encoded declarations, with their count before them
	LocalCount int    // without parameters
	Code       []byte // instructions, including the last end
	Instrs     int    // number of instructions, for allocations of callers that decode them again
}

// A Custom is a custom section.
type Custom struct {
	Name string
	Body []byte
}
