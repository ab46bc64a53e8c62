package meter

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"

	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"
)

// Version is incremented when the rewritten code of an unchanged module may change.
const Version = 6

// Names that the rewritten module uses.
const (
	HostModule   = "wheelwork_meter" // imports TickName and NextName
	TickName     = "tick"
	NextName     = "next"       // opens a task; only in a module that takes batches
	Prefix       = "wheelwork:" // of all added exports; the caller must refuse a module that exports such a name itself
	BudgetGlobal = Prefix + "budget"
	MarksGlobal  = Prefix + "marks"
	LinesGlobal  = Prefix + "lines"
	BatchGlobal  = Prefix + "batch" // only in a module that takes batches
)

// Options are the bounds written into the module.
type Options struct {
	StackBytes    int64  // estimated bytes of native stack for all frames of a call, below 2 GiB
	MemoryPages   uint32 // maximum of the memory, in pages of 64 KiB
	TableElements uint32 // maximum of each table
	// Marks asks for dirty bits, for a module whose state can be reset.
	Marks bool
	// Writes returns the memory that an imported function writes. ok is false when the
	// function may write anywhere. Nil: all imported functions may.
	Writes func(module, name string) (writes []Write, ok bool)
	// Batch names the functions with which a guest takes tasks. Default: none.
	Batch Batch
	// Moves asks for Result.Moves.
	Moves bool
}

// A Result is a rewritten module and the facts that its host needs.
type Result struct {
	Code    []byte
	Globals []string // export names of the module's own mutable globals
	Marks   *Marks   // nil: the module has no dirty bits
	// NotResettable is the reason why memory and globals are not the whole state of an
	// instance, so that an instance can only run once; "" when they are.
	NotResettable string
	Moves         Moves // nil unless Options.Moves is set
}

// Rewrite returns the metered form of a parsed module.
func Rewrite(m *binary.Module, opts Options) Result {
	w := &rewriter{m: m, opts: opts}
	w.plan()
	return w.module()
}

// Budget packs units of fuel and bytes of stack into the value of BudgetGlobal.
func Budget(fuel int32, stack int64) uint64 { return uint64(stack<<stackShift + int64(fuel)) }

// SplitBudget is the reverse of Budget. A part is negative when it is used up.
func SplitBudget(v uint64) (fuel int32, stack int64) {
	return int32(v), (int64(v) - int64(int32(v))) >> stackShift
}

// rewriter holds the index space of the new module.
type rewriter struct {
	m    *binary.Module
	opts Options

	shapes []shape // by defined function
	nests  []bool  // whether a function takes stack, because it may be part of a recursion

	tick           uint32 // function index of the import; defined functions of the old module began at this index
	tickFn         uint32 // the function that code calls for tick: the import, or a helper
	added          uint32 // number of added imports, by which the indices of defined functions are shifted
	fillFn, copyFn uint32 // function indices of helpers
	markRange      uint32
	imports        []uint32 // for each imported function, the function that tables and exports refer to
	direct         []uint32 // for each imported function, the function that callImport calls
	functions      []binary.Import
	batch          batchFunctions
	helpers        []helper // added functions, in the order of their indices

	budget, marksGlobal, linesGlobal uint32 // global indices

	marks    *Marks            // nil: no dirty bits
	lineBits map[uint32]uint64 // the dirty bit of each line that has one

	types      []byte // encoded types added to the type section
	typeCount  uint32 // size of the new type section
	blockTypes map[string]uint32

	tickType      uint32
	nextType      uint32
	usesBulk      bool
	namesData     bool // the code refers to data segments by index
	notResettable string

	moves  Moves
	oldEnd int // end in the old code section of the function that was rewritten last

	pointBuf []point // reused by points
	openBuf  []int
}

// helper is an added function.
type helper struct {
	typ  uint32
	body []byte
}

func (w *rewriter) plan() {
	w.tick, w.added = uint32(w.m.ImportedFuncs), 1
	w.tickFn = w.tick
	w.budget = uint32(w.m.GlobalCount())
	w.marksGlobal, w.linesGlobal = w.budget+1, w.budget+2
	w.typeCount = uint32(len(w.m.Types))
	w.blockTypes = make(map[string]uint32)
	w.tickType = w.addType([]byte{binary.I64}, []byte{binary.I64})
	w.planBatch()
	w.look()
	w.findNests()
	for _, g := range w.m.Globals {
		if g.Mutable && !isNumber(g.Type) {
			w.notResettable = "a mutable global holds a vector or a reference"
		}
	}
	if w.opts.Marks && w.notResettable == "" && w.m.Memory != nil {
		w.marks, w.lineBits = marksFor(w.m), make(map[uint32]uint64)
	}
	w.planHelpers()
}

// planHelpers assigns indices to the added functions and creates their bodies.
func (w *rewriter) planHelpers() {
	next := uint32(w.m.FuncCount()) + w.added
	take := func() uint32 { next++; return next - 1 }
	if w.batch.on {
		w.batch.tell, w.tickFn = take(), take()
		w.helpers = append(w.helpers, helper{w.addType(nil, nil), w.tellBody()}, helper{w.tickType, w.batchTickBody()})
	}
	if w.marks != nil {
		w.markRange = take()
		t := w.addType([]byte{binary.I32, binary.I32}, nil)
		w.helpers = append(w.helpers, helper{t, w.markRangeBody()})
	}
	if w.usesBulk {
		w.fillFn, w.copyFn = take(), take()
		t := w.addType([]byte{binary.I32, binary.I32, binary.I32}, nil)
		w.helpers = append(w.helpers, helper{t, w.fillBody()}, helper{t, w.copyBody()})
	}
	for _, im := range w.m.Imports {
		if im.Kind != binary.KindFunc {
			continue
		}
		stand := uint32(len(w.imports))
		if body := w.markedBody(stand, im); body != nil {
			stand = take()
			w.helpers = append(w.helpers, helper{im.Type, body})
		}
		w.direct = append(w.direct, stand)
		if w.batch.on {
			w.helpers = append(w.helpers, helper{im.Type, w.batchBody(stand, im)})
			stand = take()
		}
		w.imports = append(w.imports, stand)
		w.functions = append(w.functions, im)
	}
}

// markedBody returns the body of a function that calls an imported one and marks the memory
// that it writes; nil when there is nothing to mark.
func (w *rewriter) markedBody(index uint32, im binary.Import) []byte {
	if w.marks == nil {
		return nil
	}
	t := w.m.Types[im.Type]
	writes, ok := w.writes(im)
	switch {
	case !ok:
		return w.importAnyBody(index, t)
	case len(writes) > 0:
		return w.importBody(index, t, writes)
	}
	return nil
}

func (w *rewriter) writes(im binary.Import) ([]Write, bool) {
	if w.opts.Writes == nil {
		return nil, false
	}
	return w.opts.Writes(im.Module, im.Name)
}

func isNumber(typ byte) bool { return typ >= binary.F64 && typ <= binary.I32 }

func (w *rewriter) addType(params, results []byte) uint32 {
	w.types = append(w.types, 0x60)
	w.types = append(binary.AppendU32(w.types, uint32(len(params))), params...)
	w.types = append(binary.AppendU32(w.types, uint32(len(results))), results...)
	w.typeCount++
	return w.typeCount - 1
}

// typeOf returns the type of a function of the old module.
func (w *rewriter) typeOf(index uint32) binary.FuncType {
	if index < w.tick {
		return w.m.Types[w.functions[index].Type]
	}
	return w.m.Types[w.m.Funcs[index-w.tick]]
}

// shift maps a function index of the old module to the new one.
func (w *rewriter) shift(index uint32) uint32 {
	if index < w.tick {
		return w.imports[index]
	}
	return index + w.added
}

// module writes all sections. It writes the code first, because that determines the needed
// types and helpers.
func (w *rewriter) module() Result {
	code := w.codeSection()
	globals, exports := w.exportSection()
	out := make([]byte, 0, len(code)+len(code)/4+len(w.m.RawData)+1024)
	out = append(out, "\x00asm\x01\x00\x00\x00"...)
	out = binary.AppendSection(out, binary.SectionType, w.extend(w.m.RawTypes, w.typeCount-uint32(len(w.m.Types)), w.types))
	out = binary.AppendSection(out, binary.SectionImport, w.extend(w.m.RawImports, w.added, w.addedImports()))
	out = binary.AppendSection(out, binary.SectionFunction, w.functionSection())
	out = w.appendTables(out)
	out = w.appendMemory(out)
	out = binary.AppendSection(out, binary.SectionGlobal, w.globalSection())
	out = binary.AppendSection(out, binary.SectionExport, exports)
	if w.m.Start != nil {
		out = binary.AppendSection(out, binary.SectionStart, binary.AppendU32(nil, w.shift(w.m.StartFn)))
	}
	if len(w.m.Elements) > 0 {
		out = binary.AppendSection(out, binary.SectionElement, w.elementSection())
	}
	data, count := w.data()
	if count != nil {
		out = binary.AppendSection(out, binary.SectionDataCount, count)
	}
	out = binary.AppendSection(out, binary.SectionCode, code)
	if data != nil {
		out = binary.AppendSection(out, binary.SectionData, data)
	}
	out = w.appendNames(out)
	if w.opts.Moves {
		out = appendLineInfo(out)
	}
	return Result{Code: out, Globals: globals, Marks: w.marks, NotResettable: w.notResettable, Moves: w.moves}
}

// extend adds items to the vector of a raw section.
func (w *rewriter) extend(raw []byte, more uint32, items []byte) []byte {
	n, old := binary.SplitCount(raw)
	out := binary.AppendU32(make([]byte, 0, len(old)+len(items)+5), n+more)
	out = append(out, old...)
	return append(out, items...)
}

func (w *rewriter) addedImports() []byte {
	b := appendImport(nil, TickName, w.tickType)
	if w.batch.on {
		b = appendImport(b, NextName, w.nextType)
	}
	return b
}

func appendImport(b []byte, name string, typ uint32) []byte {
	b = binary.AppendName(b, HostModule)
	b = binary.AppendName(b, name)
	b = append(b, byte(binary.KindFunc))
	return binary.AppendU32(b, typ)
}

func (w *rewriter) functionSection() []byte {
	var types []byte
	for _, h := range w.helpers {
		types = binary.AppendU32(types, h.typ)
	}
	return w.extend(w.m.RawFuncs, uint32(len(w.helpers)), types)
}

func (w *rewriter) appendTables(out []byte) []byte {
	if len(w.m.Tables) == 0 {
		return out
	}
	b := binary.AppendU32(nil, uint32(len(w.m.Tables)))
	for _, t := range w.m.Tables {
		b = append(b, t.Type)
		b = appendRange(b, t.Range, w.opts.TableElements)
	}
	return binary.AppendSection(out, binary.SectionTable, b)
}

func (w *rewriter) appendMemory(out []byte) []byte {
	if w.m.Memory == nil {
		return out
	}
	b := appendRange([]byte{1}, *w.m.Memory, w.opts.MemoryPages)
	return binary.AppendSection(out, binary.SectionMemory, b)
}

// appendRange writes limits with a maximum of at most limit, but not below the minimum.
func appendRange(b []byte, r binary.Range, limit uint32) []byte {
	most := max(limit, r.Min)
	if r.HasMax {
		most = min(most, r.Max)
	}
	b = append(b, 1)
	b = binary.AppendU32(b, r.Min)
	return binary.AppendU32(b, most)
}

func (w *rewriter) globalSection() []byte {
	more := uint32(3)
	if w.batch.on {
		more++
	}
	b := binary.AppendU32(nil, uint32(len(w.m.Globals))+more)
	for _, g := range w.m.Globals {
		b = append(b, g.Type, flag(g.Mutable))
		b = w.appendConst(b, g.Init)
	}
	b = appendI64Global(b, w.opts.StackBytes<<stackShift)
	b = appendI64Global(b, 0)
	b = appendI64Global(b, 0)
	if w.batch.on {
		b = appendI64Global(b, NoTask)
	}
	return b
}

func flag(on bool) byte {
	if on {
		return 1
	}
	return 0
}

func appendI64Global(b []byte, v int64) []byte {
	b = append(b, binary.I64, 1, opI64Const)
	b = binary.AppendS64(b, v)
	return append(b, opEnd)
}

// appendConst copies a constant expression with its function indices shifted.
func (w *rewriter) appendConst(b, expr []byte) []byte {
	binary.ConstInstructions(expr, func(in binary.Instr) bool {
		if in.Op == binary.OpRefFunc {
			b = append(b, byte(binary.OpRefFunc))
			b = binary.AppendU32(b, w.shift(in.Index))
		} else {
			b = append(b, expr[in.Start:in.End]...)
		}
		return true
	})
	return b
}

// exportSection exports the added globals and every mutable number.
func (w *rewriter) exportSection() (globals []string, section []byte) {
	var b []byte
	n := uint32(len(w.m.Exports))
	for _, e := range w.m.Exports {
		if e.Kind == binary.KindFunc {
			e.Index = w.shift(e.Index)
		}
		b = appendExport(b, e)
	}
	add := func(name string, index uint32) {
		b = appendExport(b, binary.Export{Name: name, Kind: binary.KindGlobal, Index: index})
		n++
	}
	add(BudgetGlobal, w.budget)
	add(MarksGlobal, w.marksGlobal)
	add(LinesGlobal, w.linesGlobal)
	if w.batch.on {
		add(BatchGlobal, w.batch.global)
	}
	for i, g := range w.m.Globals {
		if !g.Mutable {
			continue
		}
		if !isNumber(g.Type) {
			continue // not resettable
		}
		name := Prefix + "g" + strconv.Itoa(i)
		add(name, uint32(w.m.ImportedGlobals+i))
		globals = append(globals, name)
	}
	return globals, append(binary.AppendU32(nil, n), b...)
}

func appendExport(b []byte, e binary.Export) []byte {
	b = binary.AppendName(b, e.Name)
	b = append(b, byte(e.Kind))
	return binary.AppendU32(b, e.Index)
}

func (w *rewriter) elementSection() []byte {
	b := binary.AppendU32(nil, uint32(len(w.m.Elements)))
	for _, e := range w.m.Elements {
		b = binary.AppendU32(b, e.Flags)
		if e.Flags&1 == 0 {
			if e.Flags&2 != 0 {
				b = binary.AppendU32(b, e.Table)
			}
			b = w.appendConst(b, e.Offset)
		}
		b = append(b, e.Kind...)
		b = binary.AppendU32(b, uint32(e.Len()))
		for _, f := range e.Funcs {
			b = binary.AppendU32(b, w.shift(f))
		}
		for _, x := range e.Exprs {
			b = w.appendConst(b, x)
		}
	}
	return b
}

// appendNames retains the function names with shifted indices, so that stack traces are
// right.
func (w *rewriter) appendNames(out []byte) []byte {
	module, funcs := w.m.Names()
	b := binary.AppendName(nil, "name")
	if module != nil {
		b = binary.AppendSection(b, 0, binary.AppendName(nil, string(module)))
	}
	names := binary.AppendU32(nil, uint32(len(funcs)))
	for _, f := range funcs {
		names = binary.AppendU32(names, w.shift(f.Index))
		names = binary.AppendName(names, string(f.Name))
	}
	b = binary.AppendSection(b, 1, names)
	return binary.AppendSection(out, binary.SectionCustom, b)
}

// maxGap is the largest number of zero bytes that are written to join two segments.
const maxGap = 64

// data returns the data section and the data count section with as few segments as
// possible: Go's linker makes twenty thousand, and each costs time at every instantiation.
// Segments with small gaps between them are merged, because nothing else writes to the
// gaps. If a segment is out of bounds, instantiation fails with or without the merge.
func (w *rewriter) data() (section, count []byte) {
	segments, ok := w.segments()
	if !ok {
		return w.m.RawData, w.m.RawDataCount
	}
	merged := segments[:1]
	merged[0].bytes = bytes.Clone(merged[0].bytes)
	for _, s := range segments[1:] {
		last := &merged[len(merged)-1]
		if gap := s.at - last.end(); gap <= maxGap {
			last.bytes = append(last.bytes, make([]byte, gap)...)
			last.bytes = append(last.bytes, s.bytes...)
		} else {
			merged = append(merged, segment{s.at, bytes.Clone(s.bytes)})
		}
	}
	section = binary.AppendU32(nil, uint32(len(merged)))
	for _, s := range merged {
		section = binary.AppendS64(append(section, 0, opI32Const), int64(int32(s.at)))
		section = append(section, opEnd)
		section = append(binary.AppendU32(section, uint32(len(s.bytes))), s.bytes...)
	}
	return section, nil
}

// segment is an active data segment at a known address.
type segment struct {
	at    uint64
	bytes []byte
}

func (s segment) end() uint64 { return s.at + uint64(len(s.bytes)) }

// segments returns the module's segments sorted by address. ok is false when they must not
// be merged: when code refers to segments by index, when a segment is passive or has a
// computed address, and when segments overlap, so that their order matters.
func (w *rewriter) segments() (segments []segment, ok bool) {
	if w.namesData || w.m.Memory == nil || len(w.m.Data) < 2 {
		return nil, false
	}
	for _, d := range w.m.Data {
		at, ok := d.At()
		if !ok {
			return nil, false
		}
		segments = append(segments, segment{uint64(at), d.Bytes})
	}
	slices.SortStableFunc(segments, func(a, b segment) int { return cmp.Compare(a.at, b.at) })
	for i := range segments[1:] {
		if segments[i].end() > segments[i+1].at {
			return nil, false
		}
	}
	return segments, true
}
