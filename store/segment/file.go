package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	headerSize = 32
	extension  = ".seg"
)

var headerMagic = [8]byte{'W', 'W', 'S', 'E', 'G', 0, 0, 1} // the last byte is the version of the format

// file is one segment. A file in Log.files is immutable: the next append replaces it by a
// new value.
type file struct {
	f        *os.File
	base     int64 // position of the file's first byte
	size     int64 // size of the header, the blocks and, when sealed, the footer
	min, max int64 // times of the rows; min > max: no rows
	idx      index
}

func (s *file) sealed() bool { _, ok := s.idx.(*disk); return ok }

// end returns the position behind the file.
func (s *file) end() int64 { return s.base + s.size }

func filename(base int64) string { return fmt.Sprintf("%020d%s", base, extension) }

// parseName is the inverse of filename.
func parseName(name string) (base int64, ok bool) {
	digits, found := strings.CutSuffix(name, extension)
	base, err := strconv.ParseInt(digits, 10, 64)
	return base, found && err == nil && base >= 0 && filename(base) == name
}

func appendHeader(dst []byte, kind string, base int64) []byte {
	start := len(dst)
	dst = append(dst, headerMagic[:]...)
	var k [8]byte
	copy(k[:], kind)
	dst = append(dst, k[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(base))
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	return binary.LittleEndian.AppendUint32(dst, checksum(base, dst[start:]))
}

// create creates the segment that starts at position base. It overwrites a file of that
// name that a crash has left, because such a file was never part of the log.
func create(dir, kind string, base int64) (*file, error) {
	f, err := os.OpenFile(filepath.Join(dir, filename(base)), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := f.WriteAt(appendHeader(nil, kind, base), 0); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	return &file{f: f, base: base, size: headerSize, min: math.MaxInt64, max: math.MinInt64, idx: &memory{}}, nil
}

// open opens the segment at position base and checks its header. It does not read the
// index.
func open(dir, kind string, base int64) (*file, error) {
	f, err := os.OpenFile(filepath.Join(dir, filename(base)), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	size, err := checkHeader(f, kind, base)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", f.Name(), err), f.Close())
	}
	return &file{f: f, base: base, size: size, min: math.MaxInt64, max: math.MinInt64, idx: &memory{}}, nil
}

func checkHeader(f *os.File, kind string, base int64) (size int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	got := make([]byte, headerSize)
	if _, err := f.ReadAt(got, 0); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	if string(got) != string(appendHeader(nil, kind, base)) {
		return 0, fmt.Errorf("not a %s segment of this format, or its header is damaged: %w", kind, ErrCorrupt)
	}
	return info.Size(), nil
}

// scan rebuilds the index from the blocks in the first limit bytes. It sets s.size to the
// end of the last good block. It returns nil if it reaches the limit or the start of a
// footer, else the error behind that block.
func (s *file) scan(limit int64) error {
	m := &memory{}
	s.min, s.max, s.size = math.MaxInt64, math.MinInt64, headerSize
	defer func() { s.idx = m }()
	rd := newReader()
	defer rd.free()
	for s.size < limit {
		b, n, err := readBlock(s.f, s.base, s.size, limit, rd)
		if errors.Is(err, errEndOfBlocks) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.f.Name(), err)
		}
		m.add(b.Keys, span{uint32(s.size), uint32(n)})
		s.min, s.max = min(s.min, b.Min), max(s.max, b.Max)
		s.size += n
	}
	return nil
}

var errEndOfBlocks = errors.New("end of blocks")

// readBlock reads the block at offset off of a file. The block must end at or before
// limit. It aliases memory of rd.
func readBlock(r io.ReaderAt, base, off, limit int64, rd *reader) (b Block, n int64, err error) {
	var head [blockHead]byte
	if off+blockHead > limit {
		return b, 0, fmt.Errorf("block at %d: cut short: %w", base+off, ErrCorrupt)
	}
	if _, err := r.ReadAt(head[:], off); err != nil {
		return b, 0, err
	}
	length := binary.LittleEndian.Uint32(head[:])
	if length == endOfBlocks {
		return b, 0, errEndOfBlocks
	}
	n = blockHead + int64(length)
	if length > maxBody || off+n > limit {
		return b, 0, fmt.Errorf("block at %d: cut short: %w", base+off, ErrCorrupt)
	}
	b, err = readSpan(r, base, span{uint32(off), uint32(n)}, rd)
	return b, n, err
}

// readSpan reads the block in the span s. The block aliases memory of rd.
func readSpan(r io.ReaderAt, base int64, s span, rd *reader) (Block, error) {
	if s.len > blockHead+maxBody {
		return Block{}, fmt.Errorf("block at %d: wrong length: %w", base+int64(s.off), ErrCorrupt)
	}
	if cap(rd.raw) < int(s.len) {
		rd.raw = make([]byte, s.len)
	}
	raw := rd.raw[:s.len]
	if _, err := r.ReadAt(raw, int64(s.off)); err != nil {
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("block at %d: cut short: %w", base+int64(s.off), ErrCorrupt)
		}
		return Block{}, err
	}
	b, err := parseBlock(raw, base+int64(s.off), rd.keys)
	if err == nil {
		rd.keys = b.Keys
	}
	return b, err
}
