package mq

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
)

// Report is the result of a Verify.
type Report struct {
	Dir      string
	Segments []SegmentReport // ascending; includes missing segments in between
	// Damage lists the damaged places in acknowledged data, or in the bytes that lead to
	// it, in ascending order. A torn tail is not damage: see SegmentReport.TornBytes.
	Damage []Damage

	First, Next uint64 // the sequences of the log: First <= seq < Next
	Records     uint64 // intact records
	GivenUp     uint64 // records that an earlier Repair gave up; Read returns a *LostError for them
	Bytes       int64  // size of all segments
	Spares      int    // prepared segments; their content has no meaning
	Temporary   int    // unfinished files; the next Open removes them
	// Unfinished means that a Repair was interrupted. Open refuses until the Repair is
	// repeated.
	Unfinished bool
}

// Sound reports whether Open accepts the log and every record can be read.
func (r *Report) Sound() bool { return len(r.Damage) == 0 && !r.Unfinished }

// Lost returns the number of damaged acknowledged records.
func (r *Report) Lost() (n uint64) {
	for _, d := range r.Damage {
		n += d.End - d.First
	}
	return n
}

// SegmentState is the state of a segment.
type SegmentState string

const (
	Sealed  SegmentState = "sealed"  // complete, with its footer
	Active  SegmentState = "active"  // the last one, which takes records
	Damaged SegmentState = "damaged" // it has an entry in Report.Damage
	Missing SegmentState = "missing" // like Damaged, but no file has this number
)

// SegmentReport is the result of a Verify for one segment.
type SegmentReport struct {
	Name        string
	State       SegmentState
	First, Next uint64 // its sequences: First <= seq < Next
	Records     uint64 // intact records
	GivenUp     uint64 // see Report.GivenUp
	Bytes       int64  // size of the file
	// TornBytes is the number of bytes behind the last complete group of the last
	// segment, from TornAt on, that a crash has left. They were never acknowledged; the
	// next Open clears them.
	TornAt, TornBytes int64
}

// Damage is one damaged range of acknowledged data.
type Damage struct {
	Segment       string
	Offset, Bytes int64 // position in the file; Bytes is 0 if something is missing there
	// First and End bound the lost acknowledged records, First <= seq < End. They are
	// equal if all damaged data is known from elsewhere, as for a header or a commit.
	First, End uint64
	Why        string
}

func (d Damage) String() string {
	lost := "no record is lost"
	switch d.End - d.First {
	case 0:
	case 1:
		lost = fmt.Sprintf("record %d is lost", d.First)
	default:
		lost = fmt.Sprintf("records %d to %d are lost", d.First, d.End-1)
	}
	return fmt.Sprintf("%s at %d, %d bytes: %s; %s", d.Segment, d.Offset, d.Bytes, d.Why, lost)
}

// Progress is called from time to time with the bytes done so far and the total. Its
// error ends the work and is returned unchanged.
type Progress func(done, total int64) error

// Verify reads the whole log in path and reports its state. It writes nothing. The log
// must not be open in any process, otherwise Verify fails with ErrLocked; for an open log
// see Log.Verify. The error is about the work itself; damage is in the Report.
//
// Three kinds of loss leave no trace that Verify could find: missing segments at either
// end, and the last group before a crash that came within 100 ms.
func Verify(path string, progress Progress) (Report, error) {
	unlock, err := lockExisting(path)
	if err != nil {
		return Report{}, lockError(path, err)
	}
	c := checker{disk: dir(path), progress: progress}
	err = c.checkAll()
	return c.report(path), errors.Join(err, unlock())
}

func lockError(path string, err error) error {
	if errors.Is(err, ErrLocked) {
		return err
	}
	return fmt.Errorf("mq: lock %s: %w", path, err)
}

// Verify reads all durable records of the open log and reports their state. Appends,
// Reads and Trims may run meanwhile.
func (l *Log) Verify(progress Progress) (Report, error) {
	c := checker{disk: l.disk, progress: progress}
	l.mu.Lock()
	for _, s := range l.segs {
		c.pieces = append(c.pieces, l.pieceOf(s))
	}
	r := Report{Spares: len(l.spares)}
	closed := l.closed
	l.mu.Unlock()
	if closed {
		return Report{}, ErrClosed
	}
	for _, p := range c.pieces {
		c.total += p.seg.size
	}
	for _, p := range c.pieces {
		if err := c.checkOne(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Report{}, err
		}
	}
	// Segments that were trimmed meanwhile are not part of the log, and their files may
	// hold anything.
	c.pieces = slices.DeleteFunc(c.pieces, func(p *piece) bool { return !l.holds(p.seg) })
	all := c.report(l.cfg.Dir)
	all.Spares = r.Spares
	return all, nil
}

// pieceOf describes the durable part of s. mu must be held.
func (l *Log) pieceOf(s *segment) *piece {
	p := &piece{
		seg:  &segment{id: s.id, base: s.base, end: s.end, dataEnd: s.dataEnd, size: s.size, seed: s.seed},
		open: true, sealed: true, footed: true, last: !s.sealed, bytes: s.size,
		start: s.base, end: s.end, limit: s.dataEnd,
	}
	return p
}

// holds reports whether s, or the segment it was copied from, still belongs to the log.
func (l *Log) holds(s *segment) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.segs, func(o *segment) bool { return o.id == s.id })
}

// checker reads the segments of a log and records their intact parts.
type checker struct {
	disk     disk
	progress Progress
	stopped  error // error of progress
	total    int64 // bytes of all segments
	before   int64 // bytes of the segments already checked
	pieces   []*piece
	spares   int
	temps    int
	begun    bool // the file REPAIR exists
}

// piece is one segment under examination.
type piece struct {
	seg   *segment // known properties; base 0 means unknown
	bytes int64    // size of the file
	head  header   // its header, as far as it is trusted
	wrong string   // error of the header or of the whole file, "" for none
	known bool     // head is trusted
	last  bool
	// open means that the segment belongs to an open log, whose data about it is trusted.
	open    bool
	missing bool
	sealed  bool // all of it was acknowledged
	footed  bool // it has an intact footer

	limit int64  // behind the last byte of the last group
	end   uint64 // sequence behind the last acknowledged record, 0 if unknown
	start uint64 // sequence with which the segment must start, behind the previous segment

	// blank means that the first sequence of the log is unknown, misnamed that the header
	// is intact but has another number.
	blank, misnamed bool

	tail   tail
	intact []span // ranges of intact frames, merged, ascending
	damage []Damage
	torn   int64
}

// span is a range of bytes in a file.
type span struct{ from, to int64 }

func (p *piece) keep(from, to int64) {
	if n := len(p.intact); n > 0 && p.intact[n-1].to == from {
		p.intact[n-1].to = to
	} else if from < to {
		p.intact = append(p.intact, span{from, to})
	}
}

// drop removes everything from an offset on from the intact ranges.
func (p *piece) drop(from int64) {
	for n := len(p.intact) - 1; n >= 0 && p.intact[n].to > from; n-- {
		if p.intact[n].to = from; p.intact[n].from >= from {
			p.intact = p.intact[:n]
		}
	}
}

func (p *piece) lose(off, n int64, first, end uint64, why string, args ...any) {
	p.damage = append(p.damage, Damage{p.seg.name(), off, n, first, max(first, end), fmt.Sprintf(why, args...)})
}

// checkAll examines a directory that no process has open.
func (c *checker) checkAll() error {
	if err := c.list(); err != nil {
		return err
	}
	for _, p := range c.pieces {
		if err := c.readHead(p); err != nil {
			return err
		}
		c.total += p.bytes
	}
	c.chooseStore()
	for _, p := range c.pieces {
		if err := c.readEnd(p); err != nil {
			return err
		}
	}
	for i, p := range c.pieces {
		c.connect(i)
		if err := c.checkOne(p); err != nil {
			return err
		}
	}
	return nil
}

// maxGap bounds the number of consecutive missing segments. A larger gap means that a
// foreign file is in the directory.
const maxGap = 1000

// list finds the files.
func (c *checker) list() error {
	names, err := c.disk.names()
	if err != nil {
		return fmt.Errorf("mq: verify: %w", err)
	}
	var ids []uint64
	for _, name := range names {
		if id, ok := parseName(name, segmentSuffix); ok {
			ids = append(ids, id)
		}
		if _, ok := parseName(name, spareSuffix); ok {
			c.spares++
		}
		if strings.HasSuffix(name, tempSuffix) {
			c.temps++
		}
		c.begun = c.begun || name == repairName
	}
	slices.Sort(ids)
	for i, id := range ids {
		if i > 0 && id-ids[i-1] > maxGap {
			return fmt.Errorf("mq: verify: %d segments are missing before %s; move that file away if it does not belong to this log",
				id-ids[i-1]-1, segmentName(id))
		}
		for n := len(c.pieces); n > 0 && c.pieces[n-1].seg.id+1 < id; n++ {
			missing := &segment{id: c.pieces[n-1].seg.id + 1, size: minSegmentBytes}
			c.pieces = append(c.pieces, &piece{seg: missing, missing: true, wrong: "the segment is missing"})
		}
		c.pieces = append(c.pieces, &piece{seg: &segment{id: id}})
	}
	if n := len(c.pieces); n > 0 {
		c.pieces[n-1].last = true
	}
	return nil
}

// readHead reads the header of p.
func (c *checker) readHead(p *piece) error {
	if p.missing {
		return nil
	}
	return c.reading(p, func(f file, r io.ReaderAt) (err error) {
		if p.bytes, err = f.size(); err != nil {
			return err
		}
		b := make([]byte, headerSize)
		n, err := r.ReadAt(b, 0)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if p.head, p.wrong = decodeHeader(b[:n]); p.wrong == "" && p.head.segment != p.seg.id {
			p.wrong = "the header belongs to " + segmentName(p.head.segment)
			p.misnamed = true
		}
		p.known = p.wrong == ""
		if copy(p.head.store[:], b[16:]); p.known && p.head.size != p.bytes {
			p.wrong = fmt.Sprintf("the file has %d bytes instead of %d", p.bytes, p.head.size)
		}
		return nil
	})
}

// reading opens the file of p for one pass over it.
func (c *checker) reading(p *piece, fn func(file, io.ReaderAt) error) error {
	f, err := c.disk.open(p.seg.name(), accessRead)
	if err != nil {
		return fmt.Errorf("mq: verify: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	if err := fn(f, &patient{f}); err != nil {
		return fmt.Errorf("mq: read %s: %w", p.seg.name(), err)
	}
	return nil
}

// patient replaces pages that the disk cannot read by zeros, which are then reported as
// damaged.
type patient struct{ r io.ReaderAt }

func (p *patient) ReadAt(b []byte, off int64) (n int, err error) {
	if n, err = p.r.ReadAt(b, off); err == nil || errors.Is(err, io.EOF) || errors.Is(err, ErrClosed) {
		return n, err
	}
	for n = 0; n < len(b); {
		part := b[n:min(int64(len(b)), int64(n)+pageSize-(off+int64(n))%pageSize)]
		got, err := p.r.ReadAt(part, off+int64(n))
		if errors.Is(err, io.EOF) || errors.Is(err, ErrClosed) {
			return n + got, err
		}
		if err != nil {
			clear(part)
		}
		n += len(part)
	}
	return n, nil
}

// chooseStore decides to which log the directory belongs, and how to treat segments with
// another identity.
func (c *checker) chooseStore() {
	count := map[storeID]int{}
	for _, p := range c.pieces {
		if p.known {
			count[p.head.store]++
		}
	}
	var store storeID
	for _, p := range c.pieces { // in order, so that a tie is always decided the same way
		if p.known && count[p.head.store] > count[store] {
			store = p.head.store
		}
	}
	for _, p := range c.pieces {
		p.misnamed = p.misnamed && p.head.store == store
		if p.known && p.head.store != store {
			p.known, p.wrong = false, "the segment belongs to another log"
		}
		if !p.known && len(count) > 0 {
			p.head.store = store // otherwise the identity in the damaged header; the records will confirm or refute it
		}
		p.seg.seed = segmentSeed(p.head.store, p.seg.id)
		if p.known {
			p.seg.base, p.seg.size = p.head.base, p.head.size
		} else if !p.missing {
			p.seg.size = p.bytes
		}
	}
}

// readEnd reads the footer of p, and determines the first sequence if the header does
// not.
func (c *checker) readEnd(p *piece) error {
	p.limit = max(p.seg.limit(), headerSize)
	if p.missing {
		return nil
	}
	return c.reading(p, func(_ file, r io.ReaderAt) error {
		b := make([]byte, footerSize)
		n, err := r.ReadAt(b, p.limit)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if n == footerSize {
			s := *p.seg
			if s.base == 0 { // only the checksum can decide
				s.base = binary.LittleEndian.Uint64(b[16:])
			}
			var ft footer
			if ft, p.footed = decodeFooter(b, &s); p.footed {
				p.seg.base, p.end, p.limit = ft.base, ft.end, ft.dataEnd
			}
		}
		if p.known || p.open || p != c.pieces[0] {
			return nil // connect derives the base from the neighbours
		}
		f, err := newScanner(r, p.seg.seed, headerSize, p.limit).next()
		if err == nil && f.flags == 0 {
			p.head.epoch, p.seg.base = uint32(f.epoch), cmp.Or(p.seg.base, f.seq)
		}
		if p.seg.base > 0 {
			return nil
		}
		first, _, found, err := findCommit(r, p.seg.seed, headerSize, p.limit, func(commit) bool { return true })
		if found {
			p.seg.base = first.first
		}
		return err
	})
}

// connect determines the sequences of the segment at i from its neighbours. The previous
// one has been examined.
func (c *checker) connect(i int) {
	p := c.pieces[i]
	if i+1 < len(c.pieces) {
		p.end = max(p.end, c.pieces[i+1].seg.base)
	}
	p.sealed = !p.last || p.footed
	if i > 0 {
		before := c.pieces[i-1]
		p.start = before.end
		if !p.known {
			p.head.epoch = before.head.epoch + uint32(before.tail.epoch-uint16(before.head.epoch))
		}
	}
	if p.seg.base == 0 && i == 0 {
		p.blank = true
		for _, later := range c.pieces { // the number of records before these is unknown
			if p.seg.base = later.seg.base; p.seg.base > 0 {
				p.blank = false
				break
			}
		}
		p.seg.base = max(p.seg.base, p.end, 1)
	}
	p.seg.base = cmp.Or(p.seg.base, p.start)
	p.start = max(p.start, p.seg.base)
	if p.sealed && p.end > 0 {
		p.end = max(p.end, p.start)
	}
}

// checkOne examines the frames of p.
func (c *checker) checkOne(p *piece) error {
	defer func() { c.before += p.bytes }()
	if p.missing {
		p.end = max(p.end, p.start)
		p.lose(0, 0, p.start, p.end, "%s", p.wrong)
		return nil
	}
	if p.open {
		if err := c.compareHead(p); err != nil {
			return err
		}
	}
	if p.wrong != "" {
		p.lose(0, headerSize, p.start, p.start, "%s", p.wrong)
	}
	if p.seg.base < p.start {
		p.lose(0, 0, p.start, p.start, "the segment starts with record %d again", p.seg.base)
	}
	if err := c.reading(p, func(_ file, r io.ReaderAt) error {
		return p.walk(metered{r, func(off int64) error {
			if c.progress != nil {
				c.stopped = c.progress(c.before+min(off, p.bytes), c.total)
			}
			return c.stopped
		}})
	}); err != nil {
		return cmp.Or(c.stopped, err)
	}
	if p.sealed && !p.footed && !p.open {
		p.lose(max(p.seg.limit(), 0), footerSize, p.end, p.end, "the footer is not intact")
	}
	return nil
}

// compareHead compares the header and the footer of a segment with the data that the log
// has about it.
func (c *checker) compareHead(p *piece) error {
	seg, limit, end := *p.seg, p.limit, p.end
	if err := c.readHead(p); err != nil {
		return err
	}
	if p.known && (p.head.base != seg.base || p.head.size != seg.size || segmentSeed(p.head.store, seg.id) != seg.seed) {
		p.wrong = "the header is the one of another segment"
	}
	if p.last {
		return nil
	}
	if err := c.readEnd(p); err != nil {
		return err
	}
	if !p.footed || p.end != end || p.limit != limit {
		p.lose(seg.limit(), footerSize, end, end, "the footer is not intact")
	}
	*p.seg, p.limit, p.end, p.footed = seg, limit, end, true
	return nil
}

// metered reports how far reading has come, and ends it if the callback returns an error.
type metered struct {
	r      io.ReaderAt
	report func(off int64) error
}

func (m metered) ReadAt(b []byte, off int64) (int, error) {
	n, err := m.r.ReadAt(b, off)
	if stop := m.report(off + int64(n)); stop != nil {
		return 0, stop
	}
	return n, err
}

// walk follows the groups of p and collects intact frames between damaged ones.
func (p *piece) walk(r io.ReaderAt) error {
	p.tail = tail{off: headerSize, next: p.seg.base, epoch: uint16(p.head.epoch)}
	t := &p.tail
	for {
		from := t.off
		bad, err := t.follow(newScanner(r, p.seg.seed, t.off, p.limit))
		if err != nil {
			return err
		}
		p.keep(from, t.off)
		if p.sealed && p.end > 0 && t.next > p.end {
			p.lose(p.limit, 0, t.next, t.next, "the segment holds more records than its footer or its successor says")
			p.end, p.footed = t.next, false
		}
		if p.sealed && t.next == p.end && (t.off == p.limit || !p.footed) {
			return p.checkBehind(r)
		}
		c, at, found, err := findCommit(r, p.seg.seed, t.off, p.limit, func(c commit) bool {
			if p.sealed {
				return c.first+uint64(c.count) > t.next
			}
			return c.durable > t.next
		})
		switch {
		case err != nil:
			return err
		case !found && !p.sealed:
			p.end = t.next
			p.torn, err = tornBytes(r, t.off, p.seg.size)
			return err
		case !found && p.end == 0: // no evidence of further records
			p.end = t.next
			return nil
		case !found:
			return p.salvage(r, bad, p.limit, p.end)
		case p.sealed:
			err = p.salvage(r, bad, at+commitSize, c.first+uint64(c.count))
		default:
			err = p.salvage(r, bad, at, c.first)
		}
		if err != nil {
			return err
		}
		t.commit = anyCommit
	}
}

// checkBehind searches for groups behind the end that the footer states.
func (p *piece) checkBehind(r io.ReaderAt) error {
	if !p.footed || p.open {
		return nil
	}
	from := p.tail.off
	if _, err := p.tail.follow(newScanner(r, p.seg.seed, from, p.seg.limit())); err != nil || p.tail.off == from {
		return err
	}
	p.keep(from, p.tail.off)
	p.end = p.tail.next
	p.lose(from, p.tail.off-from, p.end, p.end, "the segment goes on behind the end that its footer names")
	return nil
}

// tornBytes returns the number of bytes between off and the last byte that is not zero.
func tornBytes(r io.ReaderAt, off, size int64) (torn int64, err error) {
	buf := make([]byte, min(scanChunk, max(size-off, 0)))
	for at := off; at < size; {
		n, err := r.ReadAt(buf[:min(int64(len(buf)), size-at)], at)
		for i := 0; i < n; i += pageSize {
			if page := buf[i:min(n, i+pageSize)]; !isZero(page) {
				torn = at + int64(i+len(bytes.TrimRight(page, "\x00"))) - off
			}
		}
		if errors.Is(err, io.EOF) || n == 0 && err == nil {
			break
		}
		if err != nil {
			return torn, err
		}
		at += int64(n)
	}
	return torn, nil
}

// salvage examines the damaged bytes from the tail of p up to an offset, frame by frame.
// All records there below the sequence end had been acknowledged. It moves the tail
// behind them, or to the first frame that does not belong there.
func (p *piece) salvage(r io.ReaderAt, bad, to int64, end uint64) error {
	t := &p.tail
	b := make([]byte, to-t.off)
	n, err := r.ReadAt(b, t.off)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	b = b[:n]
	known := len(p.damage)
	s := sieve{seed: p.seg.seed, budget: 8 * int64(len(b))}
	g := group{first: t.next, epoch: t.epoch}
	gFrom, gap := t.off, int64(-1)
	off := t.off
	next := t.next
	for i := int64(0); i < int64(len(b)); off = t.off + i {
		f, ok := s.take(b[i:], off, next)
		if !ok {
			if gap < 0 {
				gap = off
			}
			i += recordAlign
			continue
		}
		if f.seq > end || f.seq == end && f.flags == 0 {
			break
		}
		if gap >= 0 || f.seq > next {
			p.loseGap(gap, off, next, f.seq)
			gap, g, gFrom = -1, group{first: f.seq}, off
		}
		size := int64(frameSize(len(f.body)))
		p.keep(off, off+size)
		i, next, t.epoch = i+size, f.seq, f.epoch
		if f.flags == 0 {
			next++
			t.records++
			g.count++
			g.crcs = foldCRC(g.crcs, f.crc)
			continue
		}
		if h, ok := takeHole(f); ok {
			t.lost += h.end - h.first
		}
		if c, ok := takeCommit(f); ok && c.first == g.first && c.count == g.count && c.crcs != g.crcs {
			// Each record is intact, but these are not the committed ones: some are left
			// over from an earlier write.
			p.drop(gFrom)
			t.records -= uint64(g.count)
			p.lose(gFrom, off-gFrom, c.first, f.seq, "the commit behind these records was made for others")
		}
		g, gFrom = group{first: next}, off+size
	}
	off = min(off, to)
	if gap >= 0 || next < end {
		p.loseGap(gap, off, next, max(end, next))
		next = max(end, next)
	}
	if len(p.damage) == known {
		p.lose(bad, off-bad, t.next, t.next, "the commit does not belong to the records in front of it")
	}
	t.off, t.next = off, next
	return nil
}

// loseGap records damage from offset gap to offset to. A negative gap means that the
// sequence jumps at offset to and that no bytes are bad.
func (p *piece) loseGap(gap, to int64, first, end uint64) {
	if gap < 0 {
		gap = to
	}
	p.lose(gap, to-gap, first, end, "these bytes are damaged")
}

// sieve finds intact frames among damaged bytes.
type sieve struct {
	seed uint32
	// budget bounds the bytes that are checksummed in vain, so that bytes that look like
	// long records cannot occupy it forever. When it is used up only short records are
	// found.
	budget int64
}

const shortFrame = 4 << 10

// take decodes the frame at b, which is at off. It reports true if the frame is intact
// and has the sequence next or a later one.
func (s *sieve) take(b []byte, off int64, next uint64) (frame, bool) {
	if len(b) < recordHeaderSize {
		return frame{}, false
	}
	n := bodyLen(b)
	seq := binary.LittleEndian.Uint64(b[16:])
	if b[9]&^flagControl != 0 || seq < next || seq-next > maxSegmentBytes/recordHeaderSize ||
		n > int64(len(b)) || frameSize(int(n)) > len(b) {
		return frame{}, false
	}
	if s.budget < n && n > shortFrame {
		return frame{}, false
	}
	f, ok := takeFrame(b, s.seed, off)
	if !ok {
		s.budget -= n
		return frame{}, false
	}
	if f.flags != 0 {
		_, isCommit := takeCommit(f)
		_, isHole := takeHole(f)
		ok = isCommit || isHole
	}
	return f, ok
}

// report summarises the results.
func (c *checker) report(path string) Report {
	r := Report{Dir: path, Spares: c.spares, Temporary: c.temps, Unfinished: c.begun}
	for i, p := range c.pieces {
		s := SegmentReport{Name: p.seg.name(), First: p.start, Next: p.end, Bytes: p.bytes, TornBytes: p.torn, Records: p.tail.records, GivenUp: p.tail.lost}
		if s.State = p.state(); p.torn > 0 {
			s.TornAt = p.tail.off
		}
		if i == 0 {
			r.First = p.start
		}
		r.Next = p.end
		r.Records += s.Records
		r.GivenUp += s.GivenUp
		r.Bytes += s.Bytes
		r.Segments = append(r.Segments, s)
		r.Damage = append(r.Damage, p.damage...)
	}
	return r
}

func (p *piece) state() SegmentState {
	switch {
	case p.missing:
		return Missing
	case len(p.damage) > 0:
		return Damaged
	case p.sealed && !(p.open && p.last):
		return Sealed
	}
	return Active
}
