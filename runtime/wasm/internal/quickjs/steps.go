package quickjs

import (
	"math"
	"strings"

	"github.com/tetratelabs/wazero/api"

	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/guest"
)

// Results of the interpreter's promise_state.
const (
	promisePending   = 0
	promiseFulfilled = 1
)

// steps calls exports one after another; after an error it skips all further calls.
type steps struct {
	c   *guest.Call
	d   *Driver
	err error
}

func (s *steps) do(name string, args ...uint64) uint64 {
	if s.err != nil {
		return 0
	}
	v, err := s.d.do(s.c, name, args...)
	s.err = err
	return v
}

// alloc copies data into the guest, followed by a zero byte.
func (s *steps) alloc(data string) uint64 {
	ptr := s.do("wasm_malloc", uint64(len(data)+1))
	if s.err != nil {
		return 0
	}
	mem := s.d.mod.Memory()
	if ptr == 0 || !mem.WriteString(uint32(ptr), data) || !mem.WriteByte(uint32(ptr)+uint32(len(data)), 0) {
		s.err = errNoMemory
		return 0
	}
	return ptr
}

func (s *steps) free(ptr uint64) { s.do("wasm_free", ptr) }

// text creates a JavaScript string.
func (s *steps) text(data string) uint64 {
	ptr := s.alloc(data)
	box := s.do("qjs_new_string", ptr, uint64(len(data)))
	s.free(ptr)
	return box
}

// string reads a JavaScript string, up to limit bytes.
func (s *steps) string(box uint64, limit int) string {
	scratch := uint64(s.d.scratch)
	ptr := s.do("qjs_get_string_len", box, scratch)
	if s.err != nil || ptr == 0 {
		return ""
	}
	size, _ := s.d.mod.Memory().ReadUint32Le(uint32(scratch))
	b, _ := s.d.mod.Memory().Read(uint32(ptr), min(size, uint32(limit)))
	text := strings.ToValidUTF8(string(b), "\uFFFD")
	s.do("qjs_free_cstring", ptr)
	return text
}

// global returns a property of the global object, or sets it if value is not 0.
func (s *steps) global(name string, value uint64) uint64 {
	object := s.do("qjs_get_global")
	key := s.alloc(name)
	var box uint64
	if value == 0 {
		box = s.do("qjs_get_prop_string", object, key)
	} else {
		s.do("qjs_set_prop_string", object, key, value)
	}
	s.free(key)
	return box
}

// await runs the interpreter's pending jobs until a promise is settled, and returns its
// value. It returns any other value unchanged. ok is false when the promise was rejected.
func (s *steps) await(box uint64) (value uint64, ok bool) {
	if s.do("qjs_is_promise", box) == 0 {
		return box, true
	}
	for s.err == nil {
		switch s.do("qjs_promise_state", box) {
		case promisePending:
			if s.do("qjs_is_job_pending") == 0 && s.err == nil {
				s.err = &Error{Text: "a promise will never be settled: nothing that it waits for goes on"}
				return 0, false
			}
			s.do("qjs_execute_pending_job")
		case promiseFulfilled:
			return s.do("qjs_promise_result", box), true
		default:
			return s.do("qjs_promise_result", box), false
		}
	}
	return 0, false
}

// exception returns the text of the interpreter's current exception.
func (s *steps) exception() string { return s.string(s.do("qjs_get_exception"), maxText) }

// borrow returns a string's bytes in the guest's memory, valid until qjs_free_cstring.
func (s *steps) borrow(box uint64) (ptr, size uint64) {
	ptr = s.do("qjs_get_string_len", box, uint64(s.d.scratch))
	if s.err == nil && ptr == 0 {
		s.err = errNoMemory
	}
	n, _ := s.d.mod.Memory().ReadUint32Le(s.d.scratch)
	return ptr, uint64(n)
}

// bytes returns the location of the bytes of a Uint8Array in the guest's memory; ok is
// false for other values.
func (s *steps) bytes(box uint64) (ptr, size uint64, ok bool) {
	scratch := s.d.scratch
	buffer := s.do("qjs_get_typed_array_buffer", box, uint64(scratch), uint64(scratch+4), uint64(scratch+8))
	if s.do("qjs_is_exception", buffer) != 0 {
		s.do("qjs_free_value", s.do("qjs_get_exception"))
		return 0, 0, false
	}
	if s.err != nil {
		return 0, 0, false
	}
	mem := s.d.mod.Memory()
	off, _ := mem.ReadUint32Le(scratch)
	length, _ := mem.ReadUint32Le(scratch + 4)
	start := s.do("qjs_get_array_buffer", buffer, uint64(scratch+12))
	s.do("qjs_free_value", buffer)
	if s.err != nil {
		return 0, 0, false
	}
	if start == 0 { // an empty array has no memory
		return 0, 0, length == 0
	}
	return uint64(uint32(start) + off), uint64(length), true
}

// number converts a JavaScript number to a parameter. It saturates at the range of int64,
// and an i32 gets the low 32 bits; the functions check their ranges.
func number(t api.ValueType, v float64) uint64 {
	switch t {
	case api.ValueTypeF64:
		return math.Float64bits(v)
	case api.ValueTypeF32:
		return uint64(math.Float32bits(float32(v)))
	case api.ValueTypeI64:
		return uint64(toInt64(v))
	}
	return uint64(uint32(toInt64(v)))
}

// toInt64 truncates the fraction and saturates; NaN becomes 0.
func toInt64(v float64) int64 {
	switch {
	case v != v:
		return 0
	case v >= math.MaxInt64:
		return math.MaxInt64
	case v <= math.MinInt64:
		return math.MinInt64
	}
	return int64(v)
}

// number converts a result to a JavaScript number.
func (s *steps) number(t api.ValueType, v uint64) uint64 {
	f := float64(int64(v))
	switch t {
	case api.ValueTypeI32:
		f = float64(int32(v))
	case api.ValueTypeF64:
		f = math.Float64frombits(v)
	}
	return s.do("qjs_new_number", math.Float64bits(f))
}
