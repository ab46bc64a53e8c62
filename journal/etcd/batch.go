package etcd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/wheelworkhq/wheelwork/journal"
)

const (
	// maxPart bounds the value of a key, in bytes.
	maxPart = 512 << 10
	// maxBatch bounds the batch that a reader assembles from parts, in bytes. A unit has
	// at most maxStaged bytes, which is less.
	maxBatch = 2 * maxStaged

	partVersion = 1
	partHeader  = 1 + 1 + 4 + 8 + 8
	lastPart    = 1 // flag
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// part is the value of one key:
//
//	| version (1) | flags (1) | crc32c of the flags and of all that follows the checksum (4) | create revision of the owner key (8) | bytes before the batch (8) | body |
//
// The concatenated bodies of the parts of a batch are the number of records as a uvarint,
// and each record as
//
//	| slot index (1) | length of the app's name (1) | name | length (uvarint) | record |
type part struct {
	last    bool
	created uint64
	before  uint64 // bytes of the journal before this batch, since the journal began
	body    []byte
}

func (p *part) sum(flags byte, rest []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte{flags}, castagnoli), castagnoli, rest)
}

func (p *part) encode() []byte {
	b := make([]byte, partHeader, partHeader+len(p.body))
	b[0] = partVersion
	if p.last {
		b[1] = lastPart
	}
	binary.BigEndian.PutUint64(b[6:], p.created)
	binary.BigEndian.PutUint64(b[14:], p.before)
	b = append(b, p.body...)
	binary.BigEndian.PutUint32(b[2:], p.sum(b[1], b[6:]))
	return b
}

func decodePart(b []byte) (part, error) {
	switch {
	case len(b) < partHeader:
		return part{}, fmt.Errorf("has %d bytes, less than a header", len(b))
	case b[0] != partVersion:
		return part{}, fmt.Errorf("has the unknown version %d: it was written by a newer version", b[0])
	case b[1]&^lastPart != 0:
		return part{}, fmt.Errorf("has unknown flags %#x", b[1])
	}
	p := part{
		last: b[1]&lastPart != 0, created: binary.BigEndian.Uint64(b[6:]),
		before: binary.BigEndian.Uint64(b[14:]), body: b[partHeader:],
	}
	if p.sum(b[1], b[6:]) != binary.BigEndian.Uint32(b[2:]) {
		return part{}, errors.New("does not match its checksum: another program than a server has changed it")
	}
	return p, nil
}

// appendRecord appends a record to the encoded records of a unit.
func appendRecord(b []byte, r *journal.Record) []byte {
	b = append(b, r.Slot.Index, byte(len(r.Slot.App)))
	b = append(b, r.Slot.App...)
	b = binary.AppendUvarint(b, uint64(len(r.Body)))
	return append(b, r.Body...)
}

var errShort = errors.New("ends within a record")

// takeRecord decodes the first record of b and returns the rest.
func takeRecord(b []byte) (slot journal.Slot, body, rest []byte, err error) {
	if len(b) < 2 || len(b) < 2+int(b[1]) {
		return slot, nil, nil, errShort
	}
	n := 2 + int(b[1])
	slot = journal.Slot{Index: b[0], App: string(b[2:n])}
	size, k := uvarint(b[n:])
	if k <= 0 || size > uint64(len(b)-n-k) {
		return slot, nil, nil, errShort
	}
	b = b[n+k:]
	return slot, b[:size:size], b[size:], nil
}

// uvarint is binary.Uvarint without redundant encodings, so that equal batches have equal
// bytes.
func uvarint(b []byte) (uint64, int) {
	v, n := binary.Uvarint(b)
	if n > 1 && b[n-1] == 0 {
		return 0, 0
	}
	return v, n
}

// decodeBatch calls fn for every record of a batch. It checks the whole batch before the
// first call. With a nil fn it only checks.
func decodeBatch(b []byte, fn func(i uint64, slot journal.Slot, body []byte) error) (n uint64, err error) {
	n, k := uvarint(b)
	if k <= 0 || n == 0 || n > uint64(len(b)) {
		return 0, errors.New("does not begin with the number of its records")
	}
	rest := b[k:]
	for range n {
		if _, _, rest, err = takeRecord(rest); err != nil {
			return 0, err
		}
	}
	if len(rest) > 0 {
		return 0, fmt.Errorf("has %d bytes behind its last record", len(rest))
	}
	if fn == nil {
		return n, nil
	}
	rest = b[k:]
	for i := range n {
		var slot journal.Slot
		var body []byte
		slot, body, rest, _ = takeRecord(rest)
		if err := fn(i, slot, body); err != nil {
			return n, err
		}
	}
	return n, nil
}

// head is the value of the head key.
type head struct {
	next  uint64 // the sequence of the next record
	bytes uint64 // of the journal since it began
}

func (h head) encode() string {
	b := binary.BigEndian.AppendUint64([]byte{partVersion}, h.next)
	return string(binary.BigEndian.AppendUint64(b, h.bytes))
}

// decodeHead decodes a head or a trim position, which have the same format.
func decodeHead(b []byte) (head, error) {
	if len(b) != 17 || b[0] != partVersion {
		return head{}, fmt.Errorf("%x is no position in a journal: a newer version, or another program than a server, has written it", b)
	}
	h := head{binary.BigEndian.Uint64(b[1:]), binary.BigEndian.Uint64(b[9:])}
	if h.next == 0 {
		return head{}, errors.New("a position in a journal is 0: sequences begin with 1")
	}
	return h, nil
}

// assembler assembles batches from parts that arrive in the order of their keys.
type assembler struct {
	seq   uint64
	parts int // parts of the batch at seq so far; 0: none is open
	first part
	body  []byte
}

// add takes the next part. It returns true when the part completes its batch, which is
// then in a.seq, a.first and a.body until the next call.
func (a *assembler) add(seq uint64, index int, p part) (whole bool, err error) {
	switch {
	case index == 0: // an unfinished batch before it was given up by its owner
		a.seq, a.parts, a.first, a.body = seq, 0, p, a.body[:0]
	case a.parts == 0 || seq != a.seq || index != a.parts || p.created != a.first.created || p.before != a.first.before:
		return false, fmt.Errorf("part %d of the batch at %d does not follow what is before it", index, seq)
	}
	if len(a.body)+len(p.body) > maxBatch {
		return false, fmt.Errorf("the batch at %d is larger than %d MiB", seq, maxBatch>>20)
	}
	a.parts++
	if index == 0 && p.last {
		a.body = p.body
	} else {
		a.body = append(a.body[:len(a.body):len(a.body)], p.body...)
	}
	if p.last {
		a.parts = 0
	}
	return p.last, nil
}
