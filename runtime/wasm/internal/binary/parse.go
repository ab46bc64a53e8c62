package binary

import (
	"errors"
	"fmt"
)

// The causes of a refusal that callers distinguish.
var (
	// ErrNotWasm reports that the bytes do not begin like a WebAssembly module.
	ErrNotWasm = errors.New("not a WebAssembly module")
	// ErrComponent reports that the bytes are a component of the component model.
	ErrComponent = errors.New("a WebAssembly component, not a core module")
	// ErrMalformed reports that the bytes begin like a module but violate its format.
	ErrMalformed = errors.New("malformed module")
)

// Parse splits a core module into its parts. Its error wraps one of the sentinel errors
// of this package, a *LimitError or an *UnservedError.
func Parse(code []byte, limits Limits) (*Module, error) {
	if err := checkHeader(code); err != nil {
		return nil, err
	}
	if len(code) > limits.ModuleBytes {
		return nil, &LimitError{What: "module size in bytes", Have: int64(len(code)), Max: int64(limits.ModuleBytes)}
	}
	p := parser{limits: limits, m: &Module{}}
	if err := p.sections(code); err != nil {
		return nil, err
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	return p.m, nil
}

func checkHeader(code []byte) error {
	if len(code) < 8 || string(code[:4]) != "\x00asm" {
		return ErrNotWasm
	}
	switch {
	case string(code[4:8]) == "\x01\x00\x00\x00":
		return nil
	case string(code[6:8]) == "\x01\x00": // the layer of components, in any version
		return ErrComponent
	}
	return fmt.Errorf("%w: version % x is unknown", ErrMalformed, code[4:8])
}

type parser struct {
	limits Limits
	m      *Module
	work   int // blocks times locals, summed over the functions read so far
	init   int // bytes of initialisers
	items  int // of element segments
}

// order returns the position of a section in the file. The data count section precedes
// the code section although its id is higher.
func order(id byte) int {
	switch {
	case id == SectionDataCount:
		return int(SectionElement)*2 + 1
	default:
		return int(id) * 2
	}
}

func (p *parser) sections(code []byte) error {
	r := &reader{buf: code, off: 8}
	last := 0
	for !r.empty() {
		id := r.u8()
		body := r.bytes(r.u32())
		if r.err != nil {
			return fmt.Errorf("%w: section %d: %w", ErrMalformed, id, r.err)
		}
		if id != SectionCustom {
			if order(id) <= last {
				return fmt.Errorf("%w: section %d is repeated or out of order", ErrMalformed, id)
			}
			last = order(id)
		}
		if err := p.section(id, body); err != nil {
			return err
		}
	}
	return nil
}

func (p *parser) section(id byte, body []byte) error {
	r := &reader{buf: body}
	read, name := p.reader(id)
	if read == nil {
		return fmt.Errorf("%w: unknown section %d", ErrMalformed, id)
	}
	read(r)
	if r.err == nil && !r.empty() {
		r.failf("%d bytes too many", len(r.buf)-r.off)
	}
	return wrapSection(name, r.err)
}

// wrapSection adds the section to an error, except to errors with a complete text of
// their own.
func wrapSection(name string, err error) error {
	var limit *LimitError
	var unserved *UnservedError
	if err == nil || errors.As(err, &limit) || errors.As(err, &unserved) {
		return err
	}
	return fmt.Errorf("%w: %s section: %w", ErrMalformed, name, err)
}

func (p *parser) reader(id byte) (read func(*reader), name string) {
	switch id {
	case SectionCustom:
		return p.custom, "custom"
	case SectionType:
		return p.types, "type"
	case SectionImport:
		return p.imports, "import"
	case SectionFunction:
		return p.functions, "function"
	case SectionTable:
		return p.tables, "table"
	case SectionMemory:
		return p.memory, "memory"
	case SectionGlobal:
		return p.globals, "global"
	case SectionExport:
		return p.exports, "export"
	case SectionStart:
		return p.start, "start"
	case SectionElement:
		return p.elements, "element"
	case SectionCode:
		return p.code, "code"
	case SectionData:
		return p.data, "data"
	case SectionDataCount:
		return p.dataCount, "data count"
	case sectionTag:
		return func(r *reader) { r.fail(errExceptions()) }, "tag"
	}
	return nil, ""
}

func (p *parser) custom(r *reader) {
	name := r.name()
	if len(p.m.Customs) == p.limits.Customs {
		r.fail(&LimitError{What: "custom sections", Have: int64(len(p.m.Customs)) + 1, Max: int64(p.limits.Customs)})
		return
	}
	p.m.Customs = append(p.m.Customs, Custom{Name: name, Body: r.buf[r.off:]})
	r.off = len(r.buf)
}

func (p *parser) types(r *reader) {
	p.m.RawTypes = r.buf
	n := r.count("types", p.limits.Types)
	p.m.Types = make([]FuncType, 0, n)
	for range n {
		if form := r.u8(); r.err == nil && form != 0x60 {
			r.fail(unservedInstr(0xfb))
			return
		}
		t := FuncType{Params: p.valueTypes(r, "parameters"), Results: p.valueTypes(r, "results")}
		p.m.Types = append(p.m.Types, t)
	}
}

func (p *parser) valueTypes(r *reader, what string) []byte {
	n := r.count(what+" of one function type", p.limits.FunctionParams)
	start := r.off
	for range n {
		r.valueType()
	}
	return r.buf[start:r.off]
}

func (p *parser) imports(r *reader) {
	p.m.RawImports = r.buf
	for range r.count("imports", p.limits.Imports) {
		im := Import{Module: r.name(), Name: r.name(), Kind: ExternKind(r.u8())}
		switch im.Kind {
		case KindFunc:
			im.Type = r.u32()
			p.m.ImportedFuncs++
		case KindTable:
			r.valueType()
			p.limitRange(r)
		case KindMemory:
			p.limitRange(r)
		case KindGlobal:
			r.valueType()
			p.flag(r)
			p.m.ImportedGlobals++
		case kindTag:
			r.fail(errExceptions())
		default:
			r.failf("import %s.%s has unknown kind %d", im.Module, im.Name, im.Kind)
		}
		if r.err != nil {
			return
		}
		p.m.Imports = append(p.m.Imports, im)
	}
}

func (p *parser) functions(r *reader) {
	p.m.RawFuncs = r.buf
	n := r.count("functions", p.limits.Functions)
	p.m.Funcs = make([]uint32, 0, n)
	for range n {
		p.m.Funcs = append(p.m.Funcs, r.u32())
	}
}

func (p *parser) tables(r *reader) {
	for range r.count("tables", p.limits.Tables) {
		t := Table{Type: r.valueType(), Range: p.limitRange(r)}
		if t.Min > p.limits.TableElements {
			r.fail(&LimitError{What: "elements of one table", Have: int64(t.Min), Max: int64(p.limits.TableElements)})
		}
		if r.err != nil {
			return
		}
		p.m.Tables = append(p.m.Tables, t)
	}
}

// maxPages is the number of pages that 32-bit addresses reach.
const maxPages = 1 << 16

func (p *parser) memory(r *reader) {
	n := r.count("memories", 1)
	if n == 0 {
		return
	}
	mem := p.limitRange(r)
	if mem.Min > p.limits.MemoryPages {
		r.fail(&LimitError{
			What: "initial memory in bytes",
			Have: int64(mem.Min) * PageSize, Max: int64(p.limits.MemoryPages) * PageSize,
		})
	}
	if mem.Max > maxPages {
		r.failf("maximum of %d pages is more than can be addressed", mem.Max)
	}
	p.m.Memory = &mem
}

func (p *parser) limitRange(r *reader) Range {
	var lim Range
	switch flags := r.u8(); {
	case flags > 1 && flags < 4:
		r.fail(unservedInstr(0xfe))
	case flags > 3:
		r.fail(&UnservedError{Feature: "64-bit memory or another unknown kind of limits", Remedy: "compile for wasm32"})
	default:
		lim.HasMax = flags == 1
	}
	lim.Min = r.u32()
	if lim.HasMax {
		lim.Max = r.u32()
		if r.err == nil && lim.Max < lim.Min {
			r.failf("maximum %d is below minimum %d", lim.Max, lim.Min)
		}
	}
	return lim
}

func (p *parser) globals(r *reader) {
	for range r.count("globals", p.limits.Globals) {
		g := Global{Type: r.valueType(), Mutable: p.flag(r), Init: p.constExpr(r)}
		if r.err != nil {
			return
		}
		p.m.Globals = append(p.m.Globals, g)
	}
}

func (p *parser) flag(r *reader) bool {
	b := r.u8()
	if b > 1 {
		r.failf("flag is %d, not 0 or 1", b)
	}
	return b == 1
}

// constExpr reads an initialiser, including its end.
func (p *parser) constExpr(r *reader) []byte {
	start := r.off
	for r.err == nil {
		in := r.instr(0)
		if n := r.off - start; n > p.limits.InitBytes {
			r.fail(&LimitError{What: "bytes of one initialiser", Have: int64(n), Max: int64(p.limits.InitBytes)})
			return nil
		}
		switch in.Op {
		case OpEnd:
			if p.init += r.off - start; p.init > p.limits.InitWork {
				r.fail(&LimitError{What: "bytes of all initialisers", Have: int64(p.init), Max: int64(p.limits.InitWork)})
			}
			return r.buf[start:r.off]
		case OpBlock, OpLoop, OpIf, OpBrTable, OpCall:
			r.failf("initialiser has control flow")
		}
	}
	return nil
}

func (p *parser) exports(r *reader) {
	for range r.count("exports", p.limits.Exports) {
		e := Export{Name: r.name(), Kind: ExternKind(r.u8()), Index: r.u32()}
		if r.err == nil && e.Kind == kindTag {
			r.fail(errExceptions())
		}
		if r.err == nil && e.Kind > KindGlobal {
			r.failf("export %q has unknown kind %d", e.Name, e.Kind)
		}
		if r.err != nil {
			return
		}
		p.m.Exports = append(p.m.Exports, e)
	}
}

func (p *parser) start(r *reader) {
	p.m.Start = r.buf
	p.m.StartFn = r.u32()
}

func (p *parser) elements(r *reader) {
	for range r.count("element segments", p.limits.Segments) {
		e := p.element(r)
		if r.err != nil {
			return
		}
		p.m.Elements = append(p.m.Elements, e)
	}
}

// element reads one element segment. Its flags: 1 = not active, 2 = explicit table (or
// declarative), 4 = items are expressions.
func (p *parser) element(r *reader) Element {
	e := Element{Flags: r.u32()}
	if e.Flags > 7 {
		r.failf("element segment has unknown form %d", e.Flags)
		return e
	}
	if e.Flags&1 == 0 {
		if e.Flags&2 != 0 {
			e.Table = r.u32()
		}
		e.Offset = p.constExpr(r)
	}
	if e.Flags&3 != 0 {
		e.Kind = r.bytes(1)
	}
	n := r.count("items of one element segment", int(p.limits.TableElements))
	if p.items += n; p.items > p.limits.Items {
		r.fail(&LimitError{What: "items of all element segments", Have: int64(p.items), Max: int64(p.limits.Items)})
		return e
	}
	if e.Flags&4 != 0 {
		e.Exprs = make([][]byte, 0, n)
	} else {
		e.Funcs = make([]uint32, 0, n)
	}
	for range n {
		if e.Flags&4 != 0 {
			e.Exprs = append(e.Exprs, p.constExpr(r))
		} else {
			e.Funcs = append(e.Funcs, r.u32())
		}
	}
	return e
}

func (p *parser) code(r *reader) {
	n := r.count("function bodies", p.limits.Functions)
	if n != len(p.m.Funcs) {
		r.failf("%d bodies for %d functions", n, len(p.m.Funcs))
		return
	}
	p.m.Bodies = make([]Body, 0, n)
	for i := range n {
		size := r.count("bytes of one function body", p.limits.BodyBytes)
		at := r.off
		b, err := p.body(r.bytes(uint32(size)), p.params(i))
		if r.err == nil && err != nil {
			r.fail(fmt.Errorf("function %d: %w", p.m.ImportedFuncs+i, err))
		}
		if r.err != nil {
			return
		}
		b.At = at
		p.m.Bodies = append(p.m.Bodies, b)
	}
}

// params returns the number of parameters of a defined function. A later check refuses an
// unknown type.
func (p *parser) params(i int) int {
	if t := p.m.Funcs[i]; int64(t) < int64(len(p.m.Types)) {
		return len(p.m.Types[t].Params)
	}
	return 0
}

func (p *parser) data(r *reader) {
	p.m.RawData = r.buf
	for range r.count("data segments", p.limits.Segments) {
		var d Data
		switch flags := r.u32(); flags {
		case 0:
			d.Offset = p.constExpr(r)
		case 1:
		case 2:
			if memory := r.u32(); memory != 0 {
				r.failf("data segment names memory %d", memory) // the rewriter may write the segment without its memory index
			}
			d.Offset = p.constExpr(r)
		default:
			r.failf("data segment has unknown form %d", flags)
		}
		d.Bytes = r.bytes(r.u32())
		if r.err != nil {
			return
		}
		p.m.Data = append(p.m.Data, d)
	}
}

func (p *parser) dataCount(r *reader) {
	p.m.RawDataCount = r.buf
	r.u32()
}
