package binary

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// errTruncated reports that the bytes end inside an item.
var errTruncated = errors.New("unexpected end")

// reader decodes bytes. After the first error every read returns zero and the error
// remains, so callers check it once per item and not once per field.
type reader struct {
	buf []byte
	off int // invariant: 0 <= off <= len(buf)
	err error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
		r.off = len(r.buf)
	}
}

func (r *reader) failf(format string, args ...any) { r.fail(fmt.Errorf(format, args...)) }

func (r *reader) empty() bool { return r.off >= len(r.buf) }

func (r *reader) u8() byte {
	if r.empty() {
		r.fail(errTruncated)
		return 0
	}
	b := r.buf[r.off]
	r.off++
	return b
}

func (r *reader) bytes(n uint32) []byte {
	if uint64(n) > uint64(len(r.buf)-r.off) {
		r.fail(errTruncated)
		return nil
	}
	b := r.buf[r.off : r.off+int(n) : r.off+int(n)]
	r.off += int(n)
	return b
}

// u32 reads an unsigned LEB128 of at most 32 bits.
func (r *reader) u32() uint32 {
	if r.off < len(r.buf) && r.buf[r.off] < 0x80 { // most are short
		r.off++
		return uint32(r.buf[r.off-1])
	}
	var v uint32
	for shift := 0; shift < 35; shift += 7 {
		b := r.u8()
		if shift == 28 && b > 0x0f {
			r.failf("integer does not fit 32 bits")
			return 0
		}
		v |= uint32(b&0x7f) << shift
		if b < 0x80 {
			return v
		}
	}
	return 0
}

// blockType reads a signed 33-bit LEB128. It is one byte for a value type (or 0x40 for
// none), or the index of a type. A negative number of several bytes would be a value type
// in a form that no compiler writes.
func (r *reader) blockType() (index uint32, isIndex bool) {
	if r.empty() || r.buf[r.off]&0xc0 == 0x40 {
		if b := r.u8(); b != 0x40 {
			r.checkValueType(b)
		}
		return 0, false
	}
	index = r.u32()
	if r.err == nil && r.buf[r.off-1]&0x40 != 0 {
		r.failf("block type is negative")
	}
	return index, true
}

// valueType reads a value type of WebAssembly 2.0.
func (r *reader) valueType() byte {
	b := r.u8()
	r.checkValueType(b)
	return b
}

// Types that are not served: those of exception handling, and references to a heap type, which
// follows.
const (
	exnRef  = 0x69
	noExn   = 0x74
	refNull = 0x63
	ref     = 0x64
)

func (r *reader) checkValueType(b byte) {
	if r.err != nil || b >= V128 && b <= I32 || b == FuncRef || b == ExternRef {
		return
	}
	heap := b
	if (b == ref || b == refNull) && !r.empty() {
		heap = r.buf[r.off]
	}
	if heap == exnRef || heap == noExn {
		r.fail(errExceptions())
		return
	}
	if b >= 0x60 && b <= 0x7a {
		r.fail(unservedInstr(0xfb))
		return
	}
	r.failf("0x%02x is no value type", b)
}

// s32 reads a signed LEB128 of at most 32 bits. It ignores excess bits of a fifth byte:
// the engine refuses them.
func (r *reader) s32() int32 {
	var v int64
	for shift := 0; shift < 35; shift += 7 {
		b := r.u8()
		v |= int64(b&0x7f) << shift
		if b < 0x80 {
			if b&0x40 != 0 {
				v |= -1 << (shift + 7)
			}
			return int32(v)
		}
	}
	r.failf("integer is longer than 5 bytes")
	return 0
}

// skipLEB skips a LEB128 of at most n bytes.
func (r *reader) skipLEB(n int) {
	for range n {
		if r.u8() < 0x80 {
			return
		}
	}
	r.failf("integer is longer than %d bytes", n)
}

func (r *reader) name() string {
	b := r.bytes(r.u32())
	if !utf8.Valid(b) {
		r.failf("name is not UTF-8")
		return ""
	}
	return string(b)
}

// count reads the length of a vector. It refuses a length above the limit, and one that
// the remaining bytes cannot hold, so that no count causes a large allocation.
func (r *reader) count(what string, limit int) int {
	n := r.u32()
	switch {
	case r.err != nil:
		return 0
	case uint64(n) > uint64(limit):
		r.fail(&LimitError{What: what, Have: int64(n), Max: int64(limit)})
		return 0
	case uint64(n) > uint64(len(r.buf)-r.off):
		r.fail(errTruncated)
		return 0
	}
	return int(n)
}
