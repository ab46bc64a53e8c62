package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
)

// DamagedError means that a span of a segment cannot be read. [Log.Find] and [Log.From]
// continue behind it.
type DamagedError struct {
	File string
	Span // positions
	Err  error
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("%s: %d bytes at position %d cannot be read: %v", e.File, e.To-e.From, e.From, e.Err)
}

func (e *DamagedError) Unwrap() error { return e.Err }

// Damage is one damaged or missing part of a log.
type Damage struct {
	File   string // within the directory; "": a file is missing
	Offset int64  // in the file
	Span          // positions of the lost blocks; empty: none are lost
	Why    string
}

// Report is the result of [Verify].
type Report struct {
	Files  int
	Bytes  int64
	Blocks int // sound blocks
	Damage []Damage
}

// Verify reads the whole closed log in dir and changes nothing. length is the position up
// to which the log is needed, or [Tail]. Bytes behind it are left over from a commit that
// a crash interrupted.
func Verify(dir, kind string, length int64) (Report, error) {
	var r Report
	bases, err := list(dir)
	if err != nil {
		return r, err
	}
	known, ok, err := readGaps(dir)
	if err != nil {
		return r, err
	}
	known = unite(known)
	var end int64
	for i, base := range bases {
		if length != Tail && base >= length {
			break
		}
		if ok && base > end && !covered(known, Span{end, base}) {
			r.Damage = append(r.Damage, Damage{Span: Span{end, base}, Why: "files are missing"})
		}
		x, err := examine(dir, kind, base, length, i == len(bases)-1)
		if err != nil {
			return r, err
		}
		r.Files++
		r.Bytes += x.size
		r.Blocks += len(x.idx.spans)
		r.Damage = append(r.Damage, x.damage...)
		end = x.base + x.size
	}
	if length != Tail && end < length {
		r.Damage = append(r.Damage, Damage{Span: Span{end, length}, Why: "the end is missing"})
	}
	return r, nil
}

// examined is a segment that was read in full.
type examined struct {
	name     string
	base     int64
	size     int64 // of the file
	end      int64 // offset at which its blocks end
	last     bool  // the active segment, which has no footer
	min, max int64
	idx      *memory // of the sound blocks
	holes    []Span  // offsets in the file without a sound block
	damage   []Damage
}

// examine reads a segment. The error is about the reading itself.
func examine(dir, kind string, base, length int64, last bool) (x examined, err error) {
	x = examined{name: filename(base), base: base, min: math.MaxInt64, max: math.MinInt64, idx: &memory{}}
	f, err := os.Open(filepath.Join(dir, x.name))
	if err != nil {
		return x, err
	}
	defer f.Close() //nolint:errcheck // only read
	if _, err := checkHeader(f, kind, base); errors.Is(err, ErrCorrupt) {
		x.add(0, Span{}, "the header is damaged")
	} else if err != nil {
		return x, err
	}
	info, err := f.Stat()
	if err != nil {
		return x, err
	}
	x.size = info.Size()
	ft, sealed := readFooter(f, x.size, base)
	limit := x.size
	if sealed {
		limit = ft.end
	} else if length != Tail {
		limit = min(limit, length-base)
	}
	rd := newReader()
	defer rd.free()
	footed, err := x.walk(f, limit, rd, length != Tail || !last)
	if err != nil {
		return x, err
	}
	x.last = last && !sealed && !footed
	switch {
	case sealed:
		if err := ft.idx.check(rd); err != nil && !errors.Is(err, ErrCorrupt) {
			return x, err
		} else if err != nil {
			x.add(ft.end, Span{}, "the index is damaged")
		}
	case !last:
		x.add(x.end, Span{}, "the footer is missing or damaged")
	}
	return x, nil
}

func (x *examined) add(offset int64, lost Span, why string) {
	x.damage = append(x.damage, Damage{File: x.name, Offset: offset, Span: lost, Why: why})
}

// walk reads the blocks up to limit. After a damaged block it continues with the next
// sound one. exact means that sound blocks must reach the limit or a footer. walk reports
// whether it reached a possible footer.
func (x *examined) walk(r io.ReaderAt, limit int64, rd *reader, exact bool) (footed bool, err error) {
	for off := int64(headerSize); ; {
		x.end = off
		if off >= limit {
			return false, nil
		}
		b, n, err := readBlock(r, x.base, off, limit, rd)
		switch {
		case err == nil:
			if !b.hole() {
				x.idx.add(b.Keys, span{uint32(off), uint32(n)})
				x.min, x.max = min(x.min, b.Min), max(x.max, b.Max)
			} else {
				x.idx.add(nil, span{uint32(off), uint32(n)})
			}
			off += n
			continue
		case errors.Is(err, errEndOfBlocks):
			return true, nil
		case !errors.Is(err, ErrCorrupt):
			return false, err
		}
		next, err := resync(r, x.base, off, limit)
		if err != nil {
			return false, err
		}
		if next < 0 { // no sound block follows
			if exact {
				x.holes = append(x.holes, Span{off, limit})
				x.add(off, Span{x.base + off, x.base + limit}, "no sound block follows")
			}
			return false, nil
		}
		x.holes = append(x.holes, Span{off, next})
		x.add(off, Span{x.base + off, x.base + next}, "a block is damaged")
		off = next
	}
}

// hole reports whether a repair wrote the block over damage: it has no keys, and its
// times are those of no row.
func (b *Block) hole() bool {
	return len(b.Keys) == 0 && b.Min == math.MaxInt64 && b.Max == math.MinInt64
}

// resync returns the offset of the first sound block, or of the footer, behind off; -1 if
// there is none.
func resync(r io.ReaderAt, base, off, limit int64) (int64, error) {
	raw := make([]byte, limit-off)
	if n, err := r.ReadAt(raw, off); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	} else {
		raw = raw[:n]
	}
	for at := 1; at+blockHead <= len(raw); at++ {
		if binary.LittleEndian.Uint32(raw[at:]) == endOfBlocks && binary.LittleEndian.Uint32(raw[at+4:]) == 0 && limit-off-int64(at) >= 8+trailerSize {
			return off + int64(at), nil
		}
		if n := plausible(raw[at:]); n > 0 {
			if _, err := parseBlock(raw[at:at+n], base+off+int64(at), nil); err == nil {
				return off + int64(at), nil
			}
		}
	}
	return -1, nil
}

// plausible returns the length of the block that may begin at b. It does not compute a
// checksum: doing so at every byte of a segment would take hours.
func plausible(b []byte) int {
	le := binary.LittleEndian
	if len(b) < blockHead+bodyHead {
		return 0
	}
	n, keys := int64(le.Uint32(b)), int64(le.Uint32(b[8:]))
	first, last := int64(le.Uint64(b[12:])), int64(le.Uint64(b[20:]))
	const farTime = 1 << 43 // Unix ms, in the year 2248
	times := first >= 0 && first <= last && last < farTime || first == math.MaxInt64 && last == math.MinInt64
	if !times || n < bodyHead || n > maxBody || n+blockHead > int64(len(b)) || keys > (n-bodyHead)/8 {
		return 0
	}
	return int(n + blockHead)
}

// check reads every page of the index.
func (d *disk) check(rd *reader) error {
	for i := range pagesOf(d.postings, pagePostings) {
		if _, err := d.page(&rd.postings, d.pages, i, d.postings, pagePostings, postingSize); err != nil {
			return err
		}
	}
	for i := range pagesOf(int64(d.count), pageSpans) {
		if _, err := d.page(&rd.spans, d.table, i, int64(d.count), pageSpans, spanSize); err != nil {
			return err
		}
	}
	return nil
}
