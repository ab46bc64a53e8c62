package binary

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func TestIntegersComeBack(t *testing.T) {
	for _, v := range []uint32{0, 1, 127, 128, 16383, 16384, math.MaxInt32, math.MaxUint32} {
		r := &reader{buf: AppendU32(nil, v)}
		if got := r.u32(); got != v || r.err != nil || !r.empty() {
			t.Errorf("%d came back as %d, error %v", v, got, r.err)
		}
	}
	for _, v := range []int64{0, 63, 64, -1, -64, -65, math.MaxInt64, math.MinInt64} {
		r := &reader{buf: AppendS64(nil, v)}
		if r.skipLEB(10); r.err != nil || !r.empty() {
			t.Errorf("%d: error %v, %d bytes left", v, r.err, len(r.buf)-r.off)
		}
	}
}

func TestBadIntegersAreErrors(t *testing.T) {
	for _, b := range []string{"", "\x80", "\xff\xff\xff\xff\x1f", "\x80\x80\x80\x80\x80\x00"} {
		r := &reader{buf: []byte(b)}
		if v := r.u32(); r.err == nil {
			t.Errorf("% x read as %d", b, v)
		}
	}
}

func TestBlockTypes(t *testing.T) {
	for b, want := range map[string]struct {
		index   uint32
		isIndex bool
		bad     bool
	}{
		"\x40":         {},
		"\x7f":         {},
		"\x05":         {index: 5, isIndex: true},
		"\xc0\x00":     {index: 64, isIndex: true},
		"\xff\x7f":     {bad: true}, // -1: i32 in a form that no compiler writes
		"\x80\x40":     {bad: true},
		"\x63":         {bad: true}, // a typed reference
		"\x41":         {bad: true},
		"\x80\x80\x80": {bad: true},
	} {
		r := &reader{buf: []byte(b)}
		index, isIndex := r.blockType()
		if (r.err != nil) != want.bad || (!want.bad && (index != want.index || isIndex != want.isIndex)) {
			t.Errorf("% x: index %d %t, error %v", b, index, isIndex, r.err)
		}
	}
}

// TestBranchesStayInTheirFunction checks that branches out of their function are refused.
// The rewriter wraps bodies in blocks, which would make such a branch valid.
func TestBranchesStayInTheirFunction(t *testing.T) {
	for code, ok := range map[string]bool{
		"\x0c\x00": true, "\x0c\x01": false,
		"\x02\x40\x0c\x01\x0b": true, "\x02\x40\x0c\x02\x0b": false,
		"\x41\x00\x0d\x00": true, "\x41\x00\x0d\x01": false,
		"\x41\x00\x0e\x02\x00\x00\x00": true, "\x41\x00\x0e\x02\x00\x01\x00": false, "\x41\x00\x0e\x01\x00\x01": false,
		"\x0c\xff\xff\xff\xff\x0f": false,
	} {
		body := "\x00" + code + "\x0b"
		module := header + "\x01\x04\x01\x60\x00\x00\x03\x02\x01\x00\x0a" + string(rune(len(body)+2)) + "\x01" + string(rune(len(body))) + body
		if _, err := Parse([]byte(module), DefaultLimits()); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "a branch leaves") {
			t.Errorf("% x: error %v", code, err)
		}
	}
}

const header = "\x00asm\x01\x00\x00\x00"

func TestParseRefuses(t *testing.T) {
	var limit *LimitError
	var unserved *UnservedError
	tests := []struct {
		name, module string
		is           error
		as           any
		words        string
	}{
		{name: "short", module: "\x00asm", is: ErrNotWasm},
		{name: "component", module: "\x00asm\x0d\x00\x01\x00", is: ErrComponent},
		{name: "component of preview 3", module: "\x00asm\x0e\x00\x01\x00", is: ErrComponent},
		{name: "order", module: header + "\x03\x01\x00\x01\x01\x00", is: ErrMalformed, words: "section 1 is repeated or out of order"},
		{name: "twice", module: header + "\x01\x01\x00\x01\x01\x00", is: ErrMalformed, words: "out of order"},
		{name: "unknown section", module: header + "\x0e\x00", is: ErrMalformed, words: "unknown section 14"},
		{name: "too long", module: header + "\x01\x05\x00", is: ErrMalformed, words: "unexpected end"},
		{name: "left over", module: header + "\x01\x02\x00\x00", is: ErrMalformed, words: "1 bytes too many"},
		{name: "count", module: header + "\x01\x05\xff\xff\xff\xff\x0f", as: &limit, words: "types: 4294967295"},
		{name: "count beyond the bytes", module: header + "\x01\x02\x80\x01", is: ErrMalformed, words: "unexpected end"},
		{name: "function without code", module: header + "\x01\x04\x01\x60\x00\x00\x03\x02\x01\x00", is: ErrMalformed, words: "0 bodies for 1 functions"},
		{name: "unknown type", module: header + "\x03\x02\x01\x00\x0a\x04\x01\x02\x00\x0b", is: ErrMalformed, words: "unknown type 0"},
		{name: "tags", module: header + "\x0d\x01\x00", as: &unserved, words: "exception"},
		{name: "an imported tag", module: header + "\x02\x07\x01\x01m\x01t\x04\x00\x00", as: &unserved, words: "exception"},
		{name: "an exported tag", module: header + "\x07\x05\x01\x01t\x04\x00", as: &unserved, words: "exception"},
		{name: "a reference to an exception", module: header + "\x01\x05\x01\x60\x01\x69\x00", as: &unserved, words: "exception"},
		{name: "a long reference to an exception", module: header + "\x01\x06\x01\x60\x01\x63\x69\x00", as: &unserved, words: "exception"},
		{name: "a reference to a structure", module: header + "\x01\x06\x01\x60\x01\x63\x6b\x00", as: &unserved, words: "garbage collection"},
		{name: "shared memory", module: header + "\x05\x04\x01\x03\x01\x01", as: &unserved, words: "threads"},
		{name: "64-bit memory", module: header + "\x05\x03\x01\x04\x01", as: &unserved, words: "wasm32"},
		{name: "maximum below minimum", module: header + "\x05\x04\x01\x01\x02\x01", is: ErrMalformed, words: "below minimum"},
		{name: "name", module: header + "\x00\x02\x01\xff", is: ErrMalformed, words: "UTF-8"},
	}
	for _, tt := range tests {
		_, err := Parse([]byte(tt.module), DefaultLimits())
		switch {
		case err == nil:
			t.Errorf("%s: accepted", tt.name)
		case tt.is != nil && !errors.Is(err, tt.is), tt.as != nil && !errors.As(err, tt.as), !strings.Contains(err.Error(), tt.words):
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	limits := DefaultLimits()
	limits.ModuleBytes = 8
	if _, err := Parse([]byte(header+"\x01\x01\x00"), limits); !errors.As(err, &limit) {
		t.Errorf("module over its size: %v", err)
	}
	if _, err := Parse([]byte(header), limits); err != nil {
		t.Errorf("empty module: %v", err)
	}
}
