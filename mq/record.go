package mq

import (
	"encoding/binary"
	"hash/crc32"
)

// Record is one record as the caller passes it. The log stores Queue and Type and gives
// them no meaning.
type Record struct {
	Queue uint32
	Type  uint8
	Body  []byte
}

// Entry is one durable record as Read delivers it. Body is valid until the callback
// returns.
type Entry struct {
	Seq   uint64
	Queue uint32
	Type  uint8
	Body  []byte
}

// Sizes of the format in bytes. doc.go shows them. They never change within a format
// version.
const (
	recordHeaderSize = 24
	commitBodySize   = 32
	commitSize       = recordHeaderSize + commitBodySize
	holeBodySize     = 16
	recordAlign      = 8
)

// flagControl marks a record of the log itself. Its type is then one of the control types
// and its queue is zero. All other flag bits are reserved and zero in format version 1.
const flagControl = 1 << 0

const (
	controlCommit = 1 // closes a flush group
	controlHole   = 2 // is written between two groups for records that a Repair gave up
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frame is a decoded record header with its body. Body aliases the buffer that it was
// decoded from.
type frame struct {
	crc   uint32
	kind  uint8
	flags uint8
	epoch uint16
	queue uint32
	seq   uint64
	body  []byte
}

func (f frame) isCommit() bool { return f.flags == flagControl && f.kind == controlCommit }

// frameSize returns the bytes that a record with a body of n bytes takes in a segment.
func frameSize(n int) int {
	return (recordHeaderSize + n + recordAlign - 1) &^ (recordAlign - 1)
}

// frameCRC returns the checksum of an encoded record, whose first four bytes are the
// place of the checksum itself. The position is the initial value, and different initial
// values give different checksums. A record that was moved, or that is left over in a
// recycled file, therefore never passes.
func frameCRC(seed uint32, off int64, b []byte) uint32 {
	return crc32.Update(seed^uint32(off/recordAlign), castagnoli, b[4:])
}

// putFrame encodes f to b, whose length must be exactly frameSize(len(f.body)), and
// returns the checksum. seed is that of the segment, off the offset of the record in it.
func putFrame(b []byte, seed uint32, off int64, f frame) uint32 {
	used := recordHeaderSize + len(f.body)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(f.body)))
	b[8], b[9] = f.kind, f.flags
	binary.LittleEndian.PutUint16(b[10:], f.epoch)
	binary.LittleEndian.PutUint32(b[12:], f.queue)
	binary.LittleEndian.PutUint64(b[16:], f.seq)
	copy(b[recordHeaderSize:], f.body)
	clear(b[used:])
	crc := frameCRC(seed, off, b[:used])
	binary.LittleEndian.PutUint32(b, crc)
	return crc
}

// bodyLen reads the length field of the record header at b, which must hold at least
// recordHeaderSize bytes. The value is not validated.
func bodyLen(b []byte) int64 { return int64(binary.LittleEndian.Uint32(b[4:])) }

// takeFrame decodes the record at the start of b, which is at off in a segment with the
// given seed. It reports false if there is no intact record.
func takeFrame(b []byte, seed uint32, off int64) (frame, bool) {
	var f frame
	ok := f.take(b, seed, off)
	return f, ok
}

// take is takeFrame without a copy of the frame. f is undefined if it reports false.
func (f *frame) take(b []byte, seed uint32, off int64) bool {
	if len(b) < recordHeaderSize || bodyLen(b) > int64(len(b)-recordHeaderSize) {
		return false
	}
	used := recordHeaderSize + int(bodyLen(b))
	f.crc = binary.LittleEndian.Uint32(b)
	f.kind, f.flags = b[8], b[9]
	f.epoch = binary.LittleEndian.Uint16(b[10:])
	f.queue = binary.LittleEndian.Uint32(b[12:])
	f.seq = binary.LittleEndian.Uint64(b[16:])
	f.body = b[recordHeaderSize:used:used]
	// Sequences start at 1, so zeroed space is never a record, whatever its checksum is.
	return f.seq != 0 && f.crc == frameCRC(seed, off, b[:used])
}

// commit is the body of a commit record. It names the records of the group that it
// closes, and the records that were durable when it was written.
type commit struct {
	first   uint64 // sequence of the first record of the group
	count   uint32 // records in the group; 0 in an empty commit
	crcs    uint32 // checksum of the records' checksums, in order
	prev    uint64 // offset of the previous commit in this segment, 0 if there is none
	durable uint64 // every record with a sequence below this was synced before the commit was written
}

func (c commit) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, c.first)
	b = binary.LittleEndian.AppendUint32(b, c.count)
	b = binary.LittleEndian.AppendUint32(b, c.crcs)
	b = binary.LittleEndian.AppendUint64(b, c.prev)
	return binary.LittleEndian.AppendUint64(b, c.durable)
}

// takeCommit decodes the body of a commit record.
func takeCommit(f frame) (commit, bool) {
	if !f.isCommit() || len(f.body) != commitBodySize {
		return commit{}, false
	}
	c := commit{
		first:   binary.LittleEndian.Uint64(f.body),
		count:   binary.LittleEndian.Uint32(f.body[8:]),
		crcs:    binary.LittleEndian.Uint32(f.body[12:]),
		prev:    binary.LittleEndian.Uint64(f.body[16:]),
		durable: binary.LittleEndian.Uint64(f.body[24:]),
	}
	return c, c.first+uint64(c.count) == f.seq && c.durable <= c.first
}

// hole is a hole record: the records from first up to its own sequence were lost and an
// operator chose to continue without them. It is valid without a commit, because Repair
// seals every segment in which it writes one.
type hole struct {
	first uint64
	end   uint64 // the record's sequence, which is that of the next record as in every control record
	at    int64  // time of the repair, Unix nanoseconds
}

func (h hole) frame(epoch uint16) frame {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, holeBodySize), h.first)
	b = binary.LittleEndian.AppendUint64(b, uint64(h.at))
	return frame{kind: controlHole, flags: flagControl, epoch: epoch, seq: h.end, body: b}
}

// takeHole decodes a hole record.
func takeHole(f frame) (hole, bool) {
	if f.flags != flagControl || f.kind != controlHole || len(f.body) != holeBodySize {
		return hole{}, false
	}
	h := hole{
		first: binary.LittleEndian.Uint64(f.body),
		end:   f.seq,
		at:    int64(binary.LittleEndian.Uint64(f.body[8:])),
	}
	return h, h.first < h.end
}

// foldCRC adds the checksum of one more record to the checksum of checksums.
func foldCRC(sum, crc uint32) uint32 {
	// Multiplying by an odd constant and rotating makes the sum depend on the order of
	// the records.
	sum = sum*0x9E3779B1 + crc
	return sum<<13 | sum>>19
}
