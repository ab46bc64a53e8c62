package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
)

const (
	footerMagic  = 0x53455744 // ends a sealed file
	pagePostings = 512
	pageSpans    = 1024
	postingSize  = 12
	spanSize     = 8
	crcSize      = 4
	trailerSize  = 8 + 8 + 4 + 8 + 8 + crcSize + 4
)

// disk is the index of a sealed segment. Its postings and its block table are in pages of
// fixed size behind the blocks, each with its own checksum.
type disk struct {
	r        io.ReaderAt
	base     int64     // position of the file
	fences   []posting // first posting of each page
	postings int64
	count    uint32 // blocks
	pages    int64  // offset of the first page of postings
	table    int64  // offset of the first page of spans

	// absent holds keys that a search has not found in the segment, each in the cell of
	// its low bits. Queries for rare states search every segment for the same keys.
	absent [64]atomic.Uint64

	// healed replaces the pages after one of them was found damaged.
	healed atomic.Pointer[memory]
}

// heal rebuilds the index from the blocks, in memory.
func (d *disk) heal() (*memory, error) {
	if m := d.healed.Load(); m != nil {
		return m, nil
	}
	rd := newReader()
	defer rd.free()
	x := examined{base: d.base, idx: &memory{}}
	if _, err := x.walk(d.r, d.pages-8, rd, false); err != nil {
		return nil, err
	}
	d.healed.Store(x.idx)
	return x.idx, nil
}

func pagesOf(n, perPage int64) int64 { return (n + perPage - 1) / perPage }

// paged returns the number of bytes that n entries take in pages.
func paged(n, perPage, size int64) int64 { return n*size + pagesOf(n, perPage)*crcSize }

// page reads page i of the n entries at offset start into p, unless p already holds it.
func (d *disk) page(p *page, start, i, n, perPage, size int64) ([]byte, error) {
	off := start + i*(perPage*size+crcSize)
	if p.of == d && p.off == off {
		return p.content, nil
	}
	p.of = nil
	buf := slices.Grow(p.content[:0], int(min(perPage, n-i*perPage)*size+crcSize))
	buf = buf[:min(perPage, n-i*perPage)*size+crcSize]
	p.content = buf
	if _, err := d.r.ReadAt(buf, off); err != nil {
		return nil, err
	}
	content := buf[:len(buf)-crcSize]
	if checksum(d.base+off, content) != binary.LittleEndian.Uint32(buf[len(content):]) {
		return nil, fmt.Errorf("index page at %d: checksum does not match: %w", d.base+off, ErrCorrupt)
	}
	*p = page{of: d, off: off, content: content}
	return content, nil
}

func (d *disk) blocks() uint32 {
	if m := d.healed.Load(); m != nil {
		return m.blocks()
	}
	return d.count
}

func (d *disk) span(rd *reader, block uint32) (span, error) {
	if d.healed.Load() == nil {
		if s, err := d.pageSpan(rd, block); !errors.Is(err, ErrCorrupt) {
			return s, err
		}
	}
	m, err := d.heal()
	if err != nil {
		return span{}, err
	}
	if block >= m.blocks() { // the caller took the number from the damaged index
		return span{}, fmt.Errorf("index names block %d of %d: %w", block, m.blocks(), ErrCorrupt)
	}
	return m.span(rd, block)
}

func (d *disk) pageSpan(rd *reader, block uint32) (span, error) {
	if block >= d.count {
		return span{}, fmt.Errorf("index names block %d of %d: %w", block, d.count, ErrCorrupt)
	}
	spans, err := d.page(&rd.spans, d.table, int64(block)/pageSpans, int64(d.count), pageSpans, spanSize)
	if err != nil {
		return span{}, err
	}
	at := int(block%pageSpans) * spanSize
	return span{binary.LittleEndian.Uint32(spans[at:]), binary.LittleEndian.Uint32(spans[at+4:])}, nil
}

func (d *disk) last(rd *reader, key uint64, at uint32) (block uint32, ok bool, err error) {
	absent := &d.absent[key%uint64(len(d.absent))]
	if key != 0 && absent.Load() == key {
		return 0, false, nil
	}
	if d.healed.Load() == nil {
		block, ok, err = d.lookUp(rd, key, at)
	}
	if d.healed.Load() != nil || errors.Is(err, ErrCorrupt) {
		m, err := d.heal()
		if err != nil {
			return 0, false, err
		}
		return m.last(rd, key, at)
	}
	if !ok && err == nil && at+1 >= d.count {
		absent.Store(key)
	}
	return block, ok, err
}

func (d *disk) lookUp(rd *reader, key uint64, at uint32) (uint32, bool, error) {
	want := posting{key, at}
	i, exact := slices.BinarySearchFunc(d.fences, want, posting.compare)
	if !exact {
		i-- // the last page that starts before the wanted posting holds it, if any page does
	}
	if i < 0 {
		return 0, false, nil
	}
	page, err := d.page(&rd.postings, d.pages, int64(i), d.postings, pagePostings, postingSize)
	if err != nil {
		return 0, false, err
	}
	lo, hi := 0, len(page)/postingSize // the wanted entry precedes the first greater one
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if readPosting(page[mid*postingSize:]).compare(want) <= 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return 0, false, nil
	}
	p := readPosting(page[(lo-1)*postingSize:])
	return p.block, p.key == key, nil
}

func readPosting(b []byte) posting {
	return posting{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint32(b[8:])}
}

func appendPosting(dst []byte, key uint64, block uint32) []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(dst, key), block)
}

// appendFooter appends the index of a segment whose blocks end at offset end.
func appendFooter(dst []byte, m *memory, base, end, minTime, maxTime int64) []byte {
	le := binary.LittleEndian
	start := len(dst)
	keys, blocks := m.postings()
	dst = slices.Grow(dst, 8+len(keys)*(postingSize+1)+len(m.spans)*(spanSize+1)+trailerSize)
	dst = le.AppendUint32(dst, endOfBlocks)
	dst = le.AppendUint32(dst, 0)
	seal := func(content int) { // closes the page that starts at content
		dst = le.AppendUint32(dst, checksum(base+end+int64(content-start), dst[content:]))
	}
	for i := 0; i < len(keys); i += pagePostings {
		content := len(dst)
		for j := i; j < min(i+pagePostings, len(keys)); j++ {
			dst = appendPosting(dst, keys[j], blocks[j])
		}
		seal(content)
	}
	for page := range slices.Chunk(m.spans, pageSpans) {
		content := len(dst)
		for _, s := range page {
			dst = le.AppendUint32(le.AppendUint32(dst, s.off), s.len)
		}
		seal(content)
	}
	fences := len(dst)
	for i := 0; i < len(keys); i += pagePostings {
		dst = appendPosting(dst, keys[i], blocks[i])
	}
	dst = le.AppendUint64(dst, uint64(end))
	dst = le.AppendUint64(dst, uint64(len(keys)))
	dst = le.AppendUint32(dst, uint32(len(m.spans)))
	dst = le.AppendUint64(dst, uint64(minTime))
	dst = le.AppendUint64(dst, uint64(maxTime))
	seal(fences)
	return le.AppendUint32(dst, footerMagic)
}

// footer is the decoded end of a sealed segment.
type footer struct {
	idx      *disk
	end      int64 // offset at which the blocks end
	min, max int64
}

// readFooter reads the footer of a file of size bytes at position base. ok is false if
// the file has no valid footer; its index must then be rebuilt from its blocks.
func readFooter(r io.ReaderAt, size, base int64) (footer, bool) {
	le := binary.LittleEndian
	if size < headerSize+8+trailerSize || size > maxSegment {
		return footer{}, false
	}
	trailer := make([]byte, trailerSize)
	if _, err := r.ReadAt(trailer, size-trailerSize); err != nil || le.Uint32(trailer[trailerSize-4:]) != footerMagic {
		return footer{}, false
	}
	end, postings, count := int64(le.Uint64(trailer)), int64(le.Uint64(trailer[8:])), le.Uint32(trailer[16:])
	if end < headerSize || end > size || postings < 0 || postings > size/postingSize || int64(count) > size/spanSize {
		return footer{}, false
	}
	pages := end + 8
	table := pages + paged(postings, pagePostings, postingSize)
	fences := table + paged(int64(count), pageSpans, spanSize)
	n := pagesOf(postings, pagePostings)
	if fences+n*postingSize+trailerSize != size {
		return footer{}, false
	}
	tail := make([]byte, size-fences)
	if _, err := r.ReadAt(tail, fences); err != nil {
		return footer{}, false
	}
	content := tail[:len(tail)-crcSize-4]
	if checksum(base+fences, content) != le.Uint32(tail[len(content):]) {
		return footer{}, false
	}
	d := &disk{r: r, base: base, postings: postings, count: count, pages: pages, table: table, fences: make([]posting, n)}
	for i := range d.fences {
		d.fences[i] = readPosting(tail[i*postingSize:])
	}
	return footer{idx: d, end: end, min: int64(le.Uint64(trailer[20:])), max: int64(le.Uint64(trailer[28:]))}, true
}
