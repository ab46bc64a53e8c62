package lines

import (
	"cmp"
	"slices"
)

// Bounds of the information about inlined calls.
const (
	maxInlined = 1 << 18
	maxShapes  = 1 << 19    // abbreviations and their attributes
	maxSteps   = 10_000_000 // entries, attributes and ranges: below a second of work
)

// An Inlined is a call that the compiler replaced by the body of the function, with the
// address range of that body.
type Inlined struct {
	From, To     uint32 // bytes from the start of the contents of the code section
	File         uint32 // of the call
	Line, Column uint32
}

// orderInlined sorts calls so that each one precedes those inside it.
func orderInlined(all []Inlined) []Inlined {
	all = slices.DeleteFunc(all, func(i Inlined) bool { return i.From >= i.To })
	slices.SortStableFunc(all, func(a, b Inlined) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(b.To, a.To))
	})
	return all
}

// The tags, attributes and forms that this package uses, as numbered in the
// specification.
const (
	tagCompileUnit = 0x11
	tagInlined     = 0x1d

	attrStmtList   = 0x10
	attrLowPC      = 0x11
	attrHighPC     = 0x12
	attrRanges     = 0x55
	attrCallColumn = 0x57
	attrCallFile   = 0x58
	attrCallLine   = 0x59
	attrAddrBase   = 0x73
	attrRangesBase = 0x74

	formAddr          = 0x01
	formFlag          = 0x0c
	formSdata         = 0x0d
	formRefAddr       = 0x10
	formRef1          = 0x11
	formRef2          = 0x12
	formRef4          = 0x13
	formRef8          = 0x14
	formRefUdata      = 0x15
	formSecOffset     = 0x17
	formExprloc       = 0x18
	formFlagPresent   = 0x19
	formStrx          = 0x1a
	formAddrx         = 0x1b
	formRefSup4       = 0x1c
	formStrpSup       = 0x1d
	formRefSig8       = 0x20
	formImplicitConst = 0x21
	formLoclistx      = 0x22
	formRnglistx      = 0x23
	formRefSup8       = 0x24
	formStrx1         = 0x25
	formStrx4         = 0x28
	formAddrx1        = 0x29
	formAddrx4        = 0x2c
)

// said holds the attributes of an entry that this package uses.
type said struct {
	lines, low, high, ranges, callFile, callLine, callColumn, addressBase, rangesBase value
}

// of returns a pointer to the field of an attribute, or nil if the package does not use
// it.
func (s *said) of(name uint64) *value {
	switch name {
	case attrStmtList:
		return &s.lines
	case attrLowPC:
		return &s.low
	case attrHighPC:
		return &s.high
	case attrRanges:
		return &s.ranges
	case attrCallFile:
		return &s.callFile
	case attrCallLine:
		return &s.callLine
	case attrCallColumn:
		return &s.callColumn
	case attrAddrBase:
		return &s.addressBase
	case attrRangesBase:
		return &s.rangesBase
	}
	return nil
}

// abbreviation describes the attributes of an entry.
type abbreviation struct {
	tag        uint64
	attributes []attribute
}

type attribute struct {
	name, form uint64
	constant   uint64 // value for formImplicitConst
}

// value is the value of one attribute of an entry.
type value struct {
	form, number uint64
	there        bool
}

// unit is a unit of .debug_info.
type unit struct {
	version     uint64
	addressSize int
	wide        bool
	table       *table // nil: it has no lines
	base        uint64 // base address of its ranges
	addresses   uint64 // offset of its addresses in .debug_addr
	ranges      uint64 // offset of its ranges in .debug_rnglists
}

// inlined reads the calls from .debug_info. It has its own small reader, because that of
// the standard library trusts counts and repeats work as often as the input asks for it.
func (p *parser) inlined() []Inlined {
	p.steps, p.room = maxSteps, maxShapes
	var all []Inlined
	for rest := p.s.Info; len(rest) > 0 && p.steps > 0; {
		r := &reader{buf: rest}
		r.unitLength()
		body := r.bytes(r.length)
		if r.bad {
			break
		}
		all = p.entries(&reader{buf: body, wide: r.wide}, all)
		rest = rest[r.at:]
	}
	return orderInlined(all)
}

// entries reads the entries of one unit, of all levels in sequence.
func (p *parser) entries(r *reader, all []Inlined) []Inlined {
	u := unit{version: r.fixed(2), wide: r.wide}
	var abbreviations uint64
	switch {
	case u.version >= 2 && u.version <= 4:
		abbreviations = r.offset()
		u.addressSize = int(r.fixed(1))
	case u.version == 5 && r.fixed(1) == 1: // a compilation unit
		u.addressSize = int(r.fixed(1))
		abbreviations = r.offset()
	default:
		return all
	}
	shapes := p.abbreviations(abbreviations)
	if u.addressSize != 4 && u.addressSize != 8 {
		return all
	}
	for !r.bad && r.at < len(r.buf) && p.steps > 0 && len(all) < maxInlined {
		p.steps--
		code := r.uleb()
		if code == 0 {
			continue // end of a level
		}
		shape, ok := shapes[code]
		if !ok {
			break
		}
		var s said
		for _, a := range shape.attributes {
			p.steps--
			v := value{a.form, p.skip(r, &u, a), true}
			if at := s.of(a.name); at != nil {
				*at = v
			}
		}
		if r.bad {
			break
		}
		switch shape.tag {
		case tagCompileUnit:
			u.begin(p, &s)
		case tagInlined:
			all = p.call(&u, &s, all)
		}
	}
	return all
}

// begin uses the first entry of a unit, which describes the whole unit.
func (u *unit) begin(p *parser, s *said) {
	if s.lines.there {
		u.table = p.tables[s.lines.number]
	}
	u.addresses, u.ranges = s.addressBase.number, s.rangesBase.number
	u.base = p.address(u, s.low)
}

// call adds an inlined call, once for each range of its code.
func (p *parser) call(u *unit, s *said, all []Inlined) []Inlined {
	if u.table == nil {
		return all
	}
	file, ok := p.file(u.table, s.callFile.number)
	line, column := s.callLine.number, min(s.callColumn.number, 1<<20)
	if !ok || line == 0 || line >= 1<<31 {
		return all
	}
	add := func(from, to uint64) {
		if from > 0 && from < to && to < 1<<32-2 && len(all) < maxInlined {
			all = append(all, Inlined{uint32(from), uint32(to), file, uint32(line), uint32(column)})
		}
	}
	switch {
	case s.low.there && s.high.there:
		from, to := p.address(u, s.low), p.address(u, s.high)
		if s.high.form != formAddr && !s.high.numbered() {
			to += from // high_pc is a length here
		}
		add(from, to)
	case s.ranges.there && u.version >= 5:
		p.rangeList(u, s.ranges, add)
	case s.ranges.there:
		p.rangePairs(u, s.ranges.number, add)
	}
	return all
}

// numbered reports whether a value is an index into .debug_addr.
func (v value) numbered() bool {
	return v.form == formAddrx || v.form >= formAddrx1 && v.form <= formAddrx4
}

// address returns the value of an attribute that is an address, or an index of one.
func (p *parser) address(u *unit, v value) uint64 {
	if v.numbered() {
		return p.addressNumber(u, v.number)
	}
	return v.number
}

func (p *parser) addressNumber(u *unit, n uint64) uint64 {
	at := u.addresses + n*uint64(u.addressSize)
	if n >= 1<<32 || at >= uint64(len(p.s.Addr)) {
		return 0
	}
	return (&reader{buf: p.s.Addr[at:]}).fixed(u.addressSize)
}

// rangePairs reads ranges in the format of the versions before 5.
func (p *parser) rangePairs(u *unit, at uint64, add func(from, to uint64)) {
	if at >= uint64(len(p.s.Ranges)) {
		return
	}
	r, base, highest := &reader{buf: p.s.Ranges[at:]}, u.base, uint64(1)<<(8*u.addressSize-1)<<1-1
	for ; p.steps > 0; p.steps-- {
		from, to := r.fixed(u.addressSize), r.fixed(u.addressSize)
		switch {
		case r.bad || from == 0 && to == 0:
			return
		case from == highest:
			base = to
		default:
			add(base+from, base+to)
		}
	}
}

// rangeList reads ranges in the format of version 5.
func (p *parser) rangeList(u *unit, v value, add func(from, to uint64)) {
	at := v.number
	if v.form == formRnglistx {
		size := uint64(4)
		if u.wide {
			size = 8
		}
		if at >= 1<<32 || u.ranges+at*size >= uint64(len(p.s.RngLists)) {
			return
		}
		at = u.ranges + (&reader{buf: p.s.RngLists[u.ranges+at*size:], wide: u.wide}).offset()
	}
	if at >= uint64(len(p.s.RngLists)) {
		return
	}
	r, base := &reader{buf: p.s.RngLists[at:]}, u.base
	for ; p.steps > 0 && !r.bad; p.steps-- {
		switch r.fixed(1) {
		case 1: // base_addressx
			base = p.addressNumber(u, r.uleb())
		case 2: // startx_endx
			from := p.addressNumber(u, r.uleb())
			add(from, p.addressNumber(u, r.uleb()))
		case 3: // startx_length
			from := p.addressNumber(u, r.uleb())
			add(from, from+r.uleb())
		case 4: // offset_pair
			from := base + r.uleb()
			add(from, base+r.uleb())
		case 5: // base_address
			base = r.fixed(u.addressSize)
		case 6: // start_end
			from := r.fixed(u.addressSize)
			add(from, r.fixed(u.addressSize))
		case 7: // start_length
			from := r.fixed(u.addressSize)
			add(from, from+r.uleb())
		default:
			return
		}
	}
}

// abbreviations reads the abbreviations at an offset of .debug_abbrev.
func (p *parser) abbreviations(at uint64) map[uint64]abbreviation {
	if known, ok := p.shapes[at]; ok || at >= uint64(len(p.s.Abbrev)) {
		return known
	}
	shapes := make(map[uint64]abbreviation)
	r := &reader{buf: p.s.Abbrev[at:]}
	for ; p.room > 0; p.room-- {
		code := r.uleb()
		if r.bad || code == 0 {
			break
		}
		a := abbreviation{tag: r.uleb()}
		r.fixed(1) // whether the entry has children
		for ; p.room > 0; p.room-- {
			name, form := r.uleb(), r.uleb()
			constant := uint64(0)
			if form == formImplicitConst {
				constant = uint64(r.sleb())
			}
			if r.bad || name == 0 && form == 0 {
				break
			}
			a.attributes = append(a.attributes, attribute{name, form, constant})
		}
		shapes[code] = a
	}
	p.shapes[at] = shapes
	return shapes
}

// skip reads the value of an attribute. It returns only numbers.
func (p *parser) skip(r *reader, u *unit, a attribute) uint64 {
	switch form := a.form; form {
	case formAddr:
		return r.fixed(u.addressSize)
	case formFlag, formRef1:
		return r.fixed(1)
	case formRef2:
		return r.fixed(2)
	case formRef4, formRefSup4:
		return r.fixed(4)
	case formRef8, formRefSig8, formRefSup8:
		return r.fixed(8)
	case formSdata:
		return uint64(max(r.sleb(), 0))
	case formRefUdata, formStrx, formAddrx, formLoclistx, formRnglistx:
		return r.uleb()
	case formRefAddr:
		if u.version == 2 {
			return r.fixed(u.addressSize)
		}
		return r.offset()
	case formStrp, formLineStr, formSecOffset, formStrpSup:
		return r.offset()
	case formExprloc:
		r.bytes(r.uleb())
	case formFlagPresent:
	case formImplicitConst:
		return a.constant
	default:
		switch {
		case form >= formStrx1 && form <= formStrx4:
			return r.fixed(int(form-formStrx1) + 1)
		case form >= formAddrx1 && form <= formAddrx4:
			return r.fixed(int(form-formAddrx1) + 1)
		}
		_, n := r.form(form, Sections{}) // sets bad if the form is unknown
		return n
	}
	return 0
}
