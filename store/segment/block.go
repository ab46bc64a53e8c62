package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
)

// ErrCorrupt means that bytes in a file differ from those that were written.
var ErrCorrupt = errors.New("corrupt")

// A Block is the unit that [Log.Append] writes and [Log.Find] yields.
type Block struct {
	// Pos is the position of the block in its log. It rises with every block and is never
	// reused. Find sets it, Append ignores it.
	Pos int64
	// Min and Max bound the times of the rows, Unix ms. [Log.Retain] uses them.
	Min, Max int64
	// Keys are the keys under which the block is found, sorted, each once.
	Keys []uint64
	// Payload is opaque to the log.
	Payload []byte
	// Rest is written behind the payload, so a caller with scattered bytes need not copy
	// them together first. Find yields all of them in Payload.
	Rest [][]byte
}

const (
	blockHead   = 8              // length of the body, its checksum
	bodyHead    = 4 + 8 + 8      // number of keys, min, max
	maxBody     = 256 << 20      // limits how much a flipped bit in a length makes a reader read
	endOfBlocks = 0xF007F007     // is written in place of the next length; greater than maxBody
	maxSegment  = int64(1) << 32 // offsets in the index have 32 bits
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum covers the content and its position. A moved block, or one left over from an
// older file, therefore fails the check.
func checksum(pos int64, content []byte) uint32 {
	var p [8]byte
	binary.LittleEndian.PutUint64(p[:], uint64(pos))
	return crc32.Update(crc32.Update(0, castagnoli, p[:]), castagnoli, content)
}

// size returns the bytes that the block takes in a segment.
func (b *Block) size() int {
	n := blockHead + bodyHead + 8*len(b.Keys) + len(b.Payload)
	for _, part := range b.Rest {
		n += len(part)
	}
	return n
}

func (b *Block) check(size int) error {
	if size > maxBody {
		return fmt.Errorf("segment: a block of %d bytes is more than the limit of %d", size, maxBody)
	}
	for i := 1; i < len(b.Keys); i++ {
		if b.Keys[i-1] >= b.Keys[i] {
			return errors.New("segment: the keys of a block must be sorted, each once")
		}
	}
	return nil
}

// appendBlock appends the encoding of the block at pos.
func appendBlock(dst []byte, b *Block, pos int64) []byte {
	le := binary.LittleEndian
	start := len(dst)
	dst = le.AppendUint32(dst, 0)
	dst = le.AppendUint32(dst, 0)
	dst = le.AppendUint32(dst, uint32(len(b.Keys)))
	dst = le.AppendUint64(dst, uint64(b.Min))
	dst = le.AppendUint64(dst, uint64(b.Max))
	for _, k := range b.Keys {
		dst = le.AppendUint64(dst, k)
	}
	dst = append(dst, b.Payload...)
	for _, part := range b.Rest {
		dst = append(dst, part...)
	}
	le.PutUint32(dst[start:], uint32(len(dst)-start-blockHead))
	le.PutUint32(dst[start+4:], checksum(pos, dst[start+blockHead:]))
	return dst
}

// parseBlock parses a whole block at pos. The payload aliases raw; the keys are in room
// if it is large enough.
func parseBlock(raw []byte, pos int64, room []uint64) (Block, error) {
	le := binary.LittleEndian
	if len(raw) < blockHead+bodyHead || int64(le.Uint32(raw)) != int64(len(raw)-blockHead) {
		return Block{}, fmt.Errorf("block at %d: wrong length: %w", pos, ErrCorrupt)
	}
	body := raw[blockHead:]
	if checksum(pos, body) != le.Uint32(raw[4:]) {
		return Block{}, fmt.Errorf("block at %d: checksum does not match: %w", pos, ErrCorrupt)
	}
	n := int(le.Uint32(body))
	if n > (len(body)-bodyHead)/8 {
		return Block{}, fmt.Errorf("block at %d: %d keys do not fit: %w", pos, n, ErrCorrupt)
	}
	b := Block{Pos: pos, Min: int64(le.Uint64(body[4:])), Max: int64(le.Uint64(body[12:])), Keys: slices.Grow(room[:0], n)[:n]}
	for i := range b.Keys {
		b.Keys[i] = le.Uint64(body[bodyHead+8*i:])
	}
	b.Payload = body[bodyHead+8*n:]
	return b, nil
}
