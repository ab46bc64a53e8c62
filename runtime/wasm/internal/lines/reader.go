package lines

import "bytes"

// A reader decodes the bytes of a section. The first error sets bad; from then on every
// read returns zero.
type reader struct {
	buf    []byte
	at     int
	bad    bool
	wide   bool   // offsets have 64 bits
	length uint64 // of the current unit
}

func (r *reader) bytes(n uint64) []byte {
	if r.bad || n > uint64(len(r.buf)-r.at) {
		r.bad = true
		return nil
	}
	b := r.buf[r.at : r.at+int(n)]
	r.at += int(n)
	return b
}

// fixed reads a little-endian number of up to eight bytes.
func (r *reader) fixed(n int) (v uint64) {
	if n < 0 {
		r.bad = true
		return 0
	}
	for i, b := range r.bytes(uint64(n)) {
		v |= uint64(b) << (8 * i)
	}
	return v
}

// unitLength reads the length of a unit and the width of its offsets.
func (r *reader) unitLength() {
	if r.length = r.fixed(4); r.length == 1<<32-1 {
		r.wide = true
		r.length = r.fixed(8)
	}
}

func (r *reader) offset() uint64 {
	if r.wide {
		return r.fixed(8)
	}
	return r.fixed(4)
}

func (r *reader) uleb() (v uint64) {
	for shift := 0; ; shift += 7 {
		b := r.fixed(1)
		if r.bad || shift > 63 {
			r.bad = true
			return 0
		}
		v |= (b & 0x7f) << shift
		if b < 0x80 {
			return v
		}
	}
}

func (r *reader) sleb() (v int64) {
	for shift := 0; ; shift += 7 {
		b := r.fixed(1)
		if r.bad || shift > 63 {
			r.bad = true
			return 0
		}
		v |= int64(b&0x7f) << shift
		if b < 0x80 {
			if shift < 57 && b&0x40 != 0 {
				v |= -1 << (shift + 7)
			}
			return v
		}
	}
}

// text reads a string up to its zero byte.
func (r *reader) text() []byte {
	if r.bad {
		return nil
	}
	n := bytes.IndexByte(r.buf[r.at:], 0)
	if n < 0 {
		r.bad = true
		return nil
	}
	s := r.buf[r.at : r.at+n]
	r.at += n + 1
	return s
}

// The contents of an entry of a list, and their forms.
const (
	contentPath      = 1
	contentDirectory = 2

	formBlock2  = 0x03
	formBlock4  = 0x04
	formData2   = 0x05
	formData4   = 0x06
	formData8   = 0x07
	formString  = 0x08
	formBlock   = 0x09
	formBlock1  = 0x0a
	formData1   = 0x0b
	formStrp    = 0x0e
	formUdata   = 0x0f
	formLineStr = 0x1f
	formData16  = 0x1e
)

// list reads directories or files in the format of version 5: a description of the
// fields, and then the entries.
func (r *reader) list(s Sections) (list []entry) {
	type field struct{ content, form uint64 }
	fields := make([]field, 0, 8)
	for range r.fixed(1) {
		fields = append(fields, field{r.uleb(), r.uleb()})
	}
	for n := r.uleb(); n > 0 && !r.bad && len(list) < maxFiles && len(fields) > 0; n-- {
		var e entry
		for _, f := range fields {
			text, number := r.form(f.form, s)
			switch f.content {
			case contentPath:
				e.name = text
			case contentDirectory:
				e.dir = number
			}
		}
		if !r.bad {
			list = append(list, e)
		}
	}
	return list
}

// form reads a value in one of the forms that the specification allows here.
func (r *reader) form(form uint64, s Sections) (text []byte, number uint64) {
	switch form {
	case formString:
		return r.text(), 0
	case formStrp:
		return textAt(s.Str, r.offset()), 0
	case formLineStr:
		return textAt(s.LineStr, r.offset()), 0
	case formData1:
		return nil, r.fixed(1)
	case formData2:
		return nil, r.fixed(2)
	case formData4:
		return nil, r.fixed(4)
	case formData8:
		return nil, r.fixed(8)
	case formUdata:
		return nil, r.uleb()
	case formData16:
		r.bytes(16)
	case formBlock:
		r.bytes(r.uleb())
	case formBlock1:
		r.bytes(r.fixed(1))
	case formBlock2:
		r.bytes(r.fixed(2))
	case formBlock4:
		r.bytes(r.fixed(4))
	default:
		r.bad = true // the length of an unknown form is not known
	}
	return nil, 0
}

// textAt returns the string at an offset of a section, or nil if it is too long. Many
// entries may refer to one string, so textAt searches at most maxName bytes for its end.
func textAt(section []byte, at uint64) []byte {
	if at >= uint64(len(section)) {
		return nil
	}
	return (&reader{buf: section[at:min(at+maxName+1, uint64(len(section)))]}).text()
}
