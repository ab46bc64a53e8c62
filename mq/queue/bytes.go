package queue

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errShape means that bytes do not have the form of their format.
var errShape = errors.New("the bytes are not of this format")

func putString[T string | []byte](b []byte, s T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func putTime(b []byte, ns int64) []byte { return binary.LittleEndian.AppendUint64(b, uint64(ns)) }

// cursor decodes values from untrusted bytes. After the first bad value it returns only
// zero values, so callers check once, with end.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) fail() {
	c.b, c.bad = nil, true
}

func (c *cursor) uvarint() uint64 {
	v, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.fail()
		return 0
	}
	c.b = c.b[n:]
	return v
}

// uint32 decodes a number that must fit into 32 bits.
func (c *cursor) uint32() uint32 {
	v := c.uvarint()
	if v > 1<<32-1 {
		c.fail()
		return 0
	}
	return uint32(v)
}

// time decodes Unix nanoseconds, which are never negative.
func (c *cursor) time() int64 {
	if len(c.b) < 8 {
		c.fail()
		return 0
	}
	v := int64(binary.LittleEndian.Uint64(c.b))
	c.b = c.b[8:]
	if v < 0 {
		c.fail()
		return 0
	}
	return v
}

// bytes decodes a counted byte string. The result aliases the input.
func (c *cursor) bytes() []byte {
	n := c.uvarint()
	if n > uint64(len(c.b)) {
		c.fail()
		return nil
	}
	v := c.b[:n:n]
	c.b = c.b[n:]
	return v
}

// text decodes a counted string of at most limit bytes.
func (c *cursor) text(limit int) string {
	v := c.bytes()
	if len(v) > limit {
		c.fail()
		return ""
	}
	return string(v)
}

// count decodes a number of elements, each of which takes at least size bytes of the
// input. A caller that allocates them thus never needs more memory than a small multiple
// of the input.
func (c *cursor) count(size int) int {
	n := c.uvarint()
	if n > uint64(len(c.b)/size) {
		c.fail()
		return 0
	}
	return int(n)
}

// end returns errShape unless all bytes were consumed and none was bad.
func (c *cursor) end() error {
	if c.bad || len(c.b) > 0 {
		return errShape
	}
	return nil
}
