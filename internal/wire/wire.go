// Package wire writes and reads the fields of protobuf messages by hand, for the few
// kinds of messages that exist once per run. The functions write the same bytes as
// proto.Marshal and omit a field with its zero value. Each package that uses them has a
// test that fills every field of its messages, so that a new field cannot be forgotten.
//
// Gain: 0.1 of the time of protobuf's reflection for the row of a run (BenchmarkAppendRow
// in job), and 0.6 for a message of tasks that is written and read (BenchmarkCodec in
// internal/wire/codec).
package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
)

// tag appends the tag of a field. Fields with small numbers take one or two bytes.
func tag(b []byte, n protowire.Number, kind protowire.Type) []byte {
	if n < 1<<4 {
		return append(b, byte(n)<<3|byte(kind))
	}
	if n < 1<<11 {
		return append(b, byte(n)<<3|byte(kind)|1<<7, byte(n>>4))
	}
	return protowire.AppendTag(b, n, kind)
}

// sized appends the tag and the length of a length-delimited field.
func sized(b []byte, n protowire.Number, size int) []byte {
	if n < 1<<4 && size < 1<<7 { // nearly always
		return append(b, byte(n)<<3|byte(protowire.BytesType), byte(size))
	}
	return protowire.AppendVarint(tag(b, n, protowire.BytesType), uint64(size))
}

// Int appends an integer or enum field.
func Int(b []byte, n protowire.Number, v int64) []byte {
	if v == 0 {
		return b
	}
	b = tag(b, n, protowire.VarintType)
	if uint64(v) < 1<<7 {
		return append(b, byte(v))
	}
	return protowire.AppendVarint(b, uint64(v))
}

// Bool appends a bool field.
func Bool(b []byte, n protowire.Number, v bool) []byte {
	if !v {
		return b
	}
	return append(tag(b, n, protowire.VarintType), 1)
}

// Text appends a string field.
func Text(b []byte, n protowire.Number, v string) []byte {
	if v == "" {
		return b
	}
	return append(sized(b, n, len(v)), v...)
}

// Texts appends a repeated string field.
func Texts(b []byte, n protowire.Number, vs []string) []byte {
	for _, v := range vs {
		b = append(sized(b, n, len(v)), v...)
	}
	return b
}

// Bytes appends a bytes field.
func Bytes(b []byte, n protowire.Number, v []byte) []byte {
	if len(v) == 0 {
		return b
	}
	return append(sized(b, n, len(v)), v...)
}

// Ints appends a repeated, packed field of 32-bit integers.
func Ints(b []byte, n protowire.Number, vs []int32) []byte { return packed(b, n, vs) }

// Longs appends a repeated, packed field of 64-bit integers.
func Longs(b []byte, n protowire.Number, vs []int64) []byte { return packed(b, n, vs) }

func packed[T int32 | int64](b []byte, n protowire.Number, vs []T) []byte {
	if len(vs) == 0 {
		return b
	}
	b, from := Begin(b, n)
	for _, v := range vs {
		b = protowire.AppendVarint(b, uint64(int64(v)))
	}
	return End(b, from)
}

// Begin appends the head of a message field. The caller appends the fields of that
// message next, and then calls [End].
func Begin(b []byte, n protowire.Number) (_ []byte, from int) {
	b = append(tag(b, n, protowire.BytesType), 0)
	return b, len(b)
}

// End ends the field that begins at from and writes its length, which is known only now.
// Begin leaves one byte for the length; End moves the contents of a field that needs
// more.
func End(b []byte, from int) []byte {
	size := len(b) - from
	if size < 1<<7 {
		b[from-1] = byte(size)
		return b
	}
	if size > math.MaxInt32 {
		panic(fmt.Sprintf("wire: a field of %d bytes", size)) // the limits of the listeners are far below
	}
	var length [binary.MaxVarintLen64]byte
	head := protowire.AppendVarint(length[:0], uint64(size))
	b = append(b, head[1:]...)
	copy(b[from-1+len(head):], b[from:from+size])
	copy(b[from-1:], head)
	return b
}

// Reader reads the fields of a message, one after another:
//
//	for r.Next() {
//		switch r.Field {
//		case 1:
//			m.Name = r.Text()
//		default:
//			r.Fail()
//		}
//	}
//	if r.Failed() { … } // fall back to proto.Unmarshal, which handles it or returns the error
//
// The texts and bytes that it returns share the memory of the whole message. A caller
// copies those that outlive the message, and must not write to bytes. A Reader is not
// safe for concurrent use.
type Reader struct {
	Field protowire.Number // the number of the field that Next has found

	kind   protowire.Type
	raw    []byte
	text   string // the same bytes as raw, from which strings are cut
	at     int
	failed bool
}

// NewReader returns a reader of a message. It copies b once, for all texts and bytes of
// the message: a message of 256 tasks takes 275 allocations instead of 1803
// (BenchmarkCodec).
func NewReader(b []byte) Reader {
	text := string(b)
	// No code writes to raw, so it may share the memory of a string.
	return Reader{raw: unsafe.Slice(unsafe.StringData(text), len(text)), text: text}
}

// Next advances to the next field. It returns false at the end and after a failure.
func (r *Reader) Next() bool {
	if r.failed || r.at == len(r.raw) {
		return false
	}
	if first := r.raw[r.at]; first < 1<<7 && first >= 1<<3 { // a tag of one byte, the most common case
		r.Field, r.kind = protowire.Number(first>>3), protowire.Type(first&7)
		r.at++
		return true
	}
	n, kind, size := protowire.ConsumeTag(r.raw[r.at:])
	if size < 0 {
		r.failed = true
		return false
	}
	r.Field, r.kind = n, kind
	r.at += size
	return true
}

// Fail marks the message as failed. The caller uses it for a field that it does not know.
func (r *Reader) Fail() { r.failed = true }

// Failed reports whether the message was malformed or unknown to the caller. Then the
// values that were read must not be used.
func (r *Reader) Failed() bool { return r.failed }

// Skip passes over the field.
func (r *Reader) Skip() {
	size := protowire.ConsumeFieldValue(r.Field, r.kind, r.raw[r.at:])
	if size < 0 {
		r.failed = true
		return
	}
	r.at += size
}

// Int returns the value of an integer field. For a bool, 0 is false and any other value
// is true.
func (r *Reader) Int() int64 {
	if r.kind != protowire.VarintType {
		r.failed = true
		return 0
	}
	v, size := protowire.ConsumeVarint(r.raw[r.at:])
	if size < 0 {
		r.failed = true
		return 0
	}
	r.at += size
	return int64(v)
}

// span returns the position of the field's contents.
func (r *Reader) span() (from, to int) {
	if r.kind != protowire.BytesType {
		r.failed = true
		return 0, 0
	}
	n, size := protowire.ConsumeVarint(r.raw[r.at:])
	if size < 0 || n > uint64(len(r.raw)-r.at-size) {
		r.failed = true
		return 0, 0
	}
	from = r.at + size
	r.at = from + int(n)
	return from, r.at
}

// Bytes returns the contents of the field; nil when it is empty.
func (r *Reader) Bytes() []byte {
	from, to := r.span()
	if from == to {
		return nil
	}
	return r.raw[from:to:to]
}

// Text returns the field's string. Text that is not UTF-8 is a failure.
func (r *Reader) Text() string {
	from, to := r.span()
	s := r.text[from:to]
	if !utf8.ValidString(s) {
		r.failed = true
	}
	return s
}

// Message returns a reader of the message in the field.
func (r *Reader) Message() Reader {
	from, to := r.span()
	return Reader{raw: r.raw[from:to:to], text: r.text[from:to], failed: r.failed}
}
