package mq

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
)

const (
	formatVersion = 1
	headerSize    = 4096 // a whole page, so that rewriting records never touches the header
	headerUsed    = 80
	footerSize    = 64

	segmentSuffix = ".seg"
	spareSuffix   = ".spare"
	tempSuffix    = ".tmp"

	minSegmentBytes = 64 << 10
	maxSegmentBytes = 1 << 30
)

var (
	headerMagic = [8]byte{'W', 'W', 'M', 'Q', 'S', 'E', 'G', '\n'}
	footerMagic = [8]byte{'W', 'W', 'M', 'Q', 'E', 'N', 'D', '\n'}
)

// segment is one file of the log.
type segment struct {
	id   uint64 // increases by one from segment to segment; never reused, even if the file is
	base uint64 // sequence of its first record
	size int64  // bytes of the file
	seed uint32 // initial value of the checksums of its records

	// file is the writer's handle, nil once the segment is sealed. The goroutine in Open
	// owns it first, then the flusher alone.
	file file
	// spare is the name of the file until the segment is activated.
	spare string

	// Guarded by Log.mu.
	end     uint64 // sequence behind its last acknowledged record
	dataEnd int64  // offset behind the commit of that record
	sealed  bool
	pins    int // number of running Reads; a pinned file is never recycled
	index   []mark
}

// mark is a known start of a group in a segment. A Read from the middle starts scanning
// there.
type mark struct {
	seq uint64
	off int64
}

// indexSpacing is the distance in bytes between two marks of a segment.
const indexSpacing = 256 << 10

// limit returns the offset behind the last byte that records and commits may use.
func (s *segment) limit() int64 { return s.size - footerSize }

func (s *segment) name() string { return segmentName(s.id) }

// addMark remembers that a group with the sequence seq starts at off. Log.mu must be
// held.
func (s *segment) addMark(seq uint64, off int64) {
	if n := len(s.index); n == 0 || off-s.index[n-1].off >= indexSpacing {
		s.index = append(s.index, mark{seq, off})
	}
}

// seek returns the last known group start at or before seq. Log.mu must be held.
func (s *segment) seek(seq uint64) mark {
	lo, hi := 0, len(s.index)
	for lo < hi {
		if mid := (lo + hi) / 2; s.index[mid].seq <= seq {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return mark{s.base, headerSize}
	}
	return s.index[lo-1]
}

func segmentName(id uint64) string { return fmt.Sprintf("%016x%s", id, segmentSuffix) }
func spareName(n uint64) string    { return fmt.Sprintf("%016x%s", n, spareSuffix) }

// parseName returns the number in a file name with the given suffix.
func parseName(name, suffix string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != 16 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 16, 64)
	return n, err == nil
}

// storeID is the random identity of a log. It enters every checksum, so bytes of one log
// are never valid in another.
type storeID [16]byte

// segmentSeed returns the initial value of the checksums of a segment.
func segmentSeed(store storeID, id uint64) uint32 {
	return crc32.Checksum(binary.LittleEndian.AppendUint64(store[:], id), castagnoli)
}

// header is the first page of a segment. It is synced before the file gets its segment
// name. A segment with a bad header is therefore damaged, never torn.
type header struct {
	store   storeID
	segment uint64
	epoch   uint32 // the opening of the log that started the segment
	base    uint64
	size    int64
	created int64 // Unix nanoseconds
}

func (h header) encode() []byte {
	b := make([]byte, 0, headerSize)
	b = append(b, headerMagic[:]...)
	b = binary.LittleEndian.AppendUint32(b, formatVersion)
	b = binary.LittleEndian.AppendUint32(b, headerSize)
	b = append(b, h.store[:]...)
	b = binary.LittleEndian.AppendUint64(b, h.segment)
	b = binary.LittleEndian.AppendUint32(b, h.epoch)
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint64(b, h.base)
	b = binary.LittleEndian.AppendUint64(b, uint64(h.size))
	b = binary.LittleEndian.AppendUint64(b, uint64(h.created))
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	return b[:headerSize]
}

// decodeHeader decodes the first bytes of a segment file. why describes the error, "" for
// none.
func decodeHeader(b []byte) (h header, why string) {
	switch {
	case len(b) < headerUsed:
		return h, "the file is too short for a segment header"
	case !bytes.Equal(b[:8], headerMagic[:]):
		return h, "the file does not start like a segment of this log"
	case binary.LittleEndian.Uint32(b[8:]) != formatVersion:
		return h, fmt.Sprintf("format version %d is unknown, this program reads version %d",
			binary.LittleEndian.Uint32(b[8:]), formatVersion)
	case crc32.Checksum(b[:headerUsed-4], castagnoli) != binary.LittleEndian.Uint32(b[headerUsed-4:]):
		return h, "the checksum of the segment header is wrong"
	}
	copy(h.store[:], b[16:32])
	h.segment = binary.LittleEndian.Uint64(b[32:])
	h.epoch = binary.LittleEndian.Uint32(b[40:])
	h.base = binary.LittleEndian.Uint64(b[48:])
	h.size = int64(binary.LittleEndian.Uint64(b[56:]))
	h.created = int64(binary.LittleEndian.Uint64(b[64:]))
	if h.base == 0 || h.size < minSegmentBytes || h.size > maxSegmentBytes {
		return h, "the segment header holds impossible values"
	}
	return h, ""
}

// footer is the end of a sealed segment. A footer proves that everything before it was
// synced.
type footer struct {
	base, end  uint64 // sequences in the segment: base <= seq < end
	dataEnd    int64  // offset behind the last commit
	lastCommit int64  // offset of the last commit, 0 if there is none
}

func (f footer) encode(segment uint64, seed uint32) []byte {
	b := make([]byte, 0, footerSize)
	b = append(b, footerMagic[:]...)
	b = binary.LittleEndian.AppendUint64(b, segment)
	b = binary.LittleEndian.AppendUint64(b, f.base)
	b = binary.LittleEndian.AppendUint64(b, f.end)
	b = binary.LittleEndian.AppendUint64(b, uint64(f.dataEnd))
	b = binary.LittleEndian.AppendUint64(b, uint64(f.lastCommit))
	b = append(b, make([]byte, footerSize-4-len(b))...)
	return binary.LittleEndian.AppendUint32(b, crc32.Update(seed, castagnoli, b))
}

// decodeFooter decodes the footer of s and reports false if there is no intact one.
func decodeFooter(b []byte, s *segment) (footer, bool) {
	if len(b) != footerSize || !bytes.Equal(b[:8], footerMagic[:]) ||
		crc32.Update(s.seed, castagnoli, b[:footerSize-4]) != binary.LittleEndian.Uint32(b[footerSize-4:]) {
		return footer{}, false
	}
	f := footer{
		base:       binary.LittleEndian.Uint64(b[16:]),
		end:        binary.LittleEndian.Uint64(b[24:]),
		dataEnd:    int64(binary.LittleEndian.Uint64(b[32:])),
		lastCommit: int64(binary.LittleEndian.Uint64(b[40:])),
	}
	ok := binary.LittleEndian.Uint64(b[8:]) == s.id && f.base == s.base && f.end >= f.base &&
		f.dataEnd >= headerSize && f.dataEnd <= s.limit()
	return f, ok
}
