package segment

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
)

// Tail as [Options.Length] keeps the log up to its last good block.
const Tail = -1

// Options configure a [Log].
type Options struct {
	// Kind, up to 8 bytes, is written in every file, so that logs cannot be mixed up.
	Kind string
	// SegmentBytes is the size at which a segment is sealed. A single Append may exceed
	// it. It must be less than 2 GiB.
	SegmentBytes int64
	// Length cuts the log. Data at or behind this position is removed, and all data
	// before it must be present and sound. It is a value that Log.Length returned (0:
	// remove all), or Tail.
	Length int64
	// AllowShort opens a log that ends before Length with the data it has. The log
	// continues at Length, so positions have the same meaning.
	AllowShort bool
}

// ShortError means that a log ends before the required position.
type ShortError struct {
	Want, Have int64 // positions
}

func (e *ShortError) Error() string {
	return fmt.Sprintf("the segments end at position %d, but should reach %d", e.Have, e.Want)
}

// A Log is an append-only sequence of segments in one directory. Its methods may be
// called concurrently.
type Log struct {
	dir string
	opt Options

	write    sync.Mutex // guards the fields below
	buf      []byte     // buffer of the last Append, reused by the next one
	unsynced []*os.File // files sealed since the last Sync
	held     int        // number of open copies; above 0 nothing is unlinked
	broken   error      // a failed fsync; from then on the state of the disk is unknown
	gaps     []Span     // ranges without a file that are accounted for
	missing  []Gap      // ranges that were not accounted for when the log was opened

	// files holds the segments, oldest first. The last one is active, the others are
	// sealed. The slice and its elements never change, so a reader may retain the slice it
	// has loaded.
	files atomic.Pointer[[]*file]
}

// Open opens the log in dir and creates dir if it is missing. The caller must make sure
// that no other process has the log open. Open returns a [*ShortError], and changes
// nothing, if the log ends before Options.Length and AllowShort is not set.
func Open(dir string, opt Options) (*Log, error) {
	if opt.SegmentBytes <= headerSize || opt.SegmentBytes >= maxSegment/2 || len(opt.Kind) > 8 {
		return nil, fmt.Errorf("segment: open %s: segment size %d or kind %q out of range", dir, opt.SegmentBytes, opt.Kind)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("segment: open: %w", err)
	}
	bases, err := list(dir)
	if err != nil {
		return nil, fmt.Errorf("segment: open %s: %w", dir, err)
	}
	l := &Log{dir: dir, opt: opt}
	files, err := l.load(bases)
	if err != nil {
		closeAll(files)
		return nil, fmt.Errorf("segment: open %s: %w", dir, err)
	}
	if err := errors.Join(l.account(files), removeRewrites(dir)); err != nil {
		closeAll(files)
		return nil, fmt.Errorf("segment: open %s: %w", dir, err)
	}
	l.files.Store(&files)
	return l, nil
}

// list returns the positions of the segments in dir, in order.
func list(dir string) ([]int64, error) {
	entries, err := os.ReadDir(dir) // sorted by name, that is by position
	if err != nil {
		return nil, err
	}
	var bases []int64
	for _, e := range entries {
		if base, ok := parseName(e.Name()); ok {
			bases = append(bases, base)
		}
	}
	return bases, nil
}

// load opens the segments and cuts the log at Options.Length. The last returned file is
// active. With an error it returns the files opened so far.
func (l *Log) load(bases []int64) (files []*file, err error) {
	keep := bases
	if l.opt.Length != Tail {
		keep = bases[:len(bases)-countFrom(bases, l.opt.Length)]
	}
	for _, base := range keep {
		f, err := open(l.dir, l.opt.Kind, base)
		if err != nil && l.opt.Length == Tail && errors.Is(err, ErrCorrupt) {
			continue // the power was cut before the header was on disk, so the file holds no record
		}
		if err != nil {
			return files, err
		}
		files = append(files, f)
	}
	short := l.checkLength(files)
	if short != nil && !l.opt.AllowShort {
		return files, short
	}
	if l.opt.Length != Tail {
		for _, base := range bases[len(keep):] {
			if err := os.Remove(filepath.Join(l.dir, filename(base))); err != nil {
				return files, err
			}
		}
	}
	for i, f := range files {
		if err := l.loadIndex(f, i == len(files)-1, short != nil); err != nil {
			return files, err
		}
	}
	return l.withActive(files, bases, short != nil)
}

// countFrom returns the number of positions at or behind from.
func countFrom(bases []int64, from int64) int {
	i, _ := slices.BinarySearch(bases, from)
	return len(bases) - i
}

// checkLength returns a ShortError if the files end before Options.Length.
func (l *Log) checkLength(files []*file) error {
	var have int64
	if n := len(files); n > 0 {
		have = files[n-1].end()
	}
	if have < l.opt.Length {
		return &ShortError{Want: l.opt.Length, Have: have}
	}
	return nil
}

// loadIndex reads the index of a file from its footer. If the file has no footer or must
// be cut, loadIndex reads the blocks.
func (l *Log) loadIndex(s *file, last, short bool) error {
	exact := l.opt.Length != Tail && !short // every block must be present
	cut := last && exact
	if ft, ok := readFooter(s.f, s.size, s.base); ok && !cut {
		s.idx, s.min, s.max = ft.idx, ft.min, ft.max
		return nil
	}
	limit := s.size
	if cut {
		limit = min(limit, l.opt.Length-s.base)
	}
	bad := s.scan(limit)
	if bad != nil && exact {
		return bad
	}
	if cut && s.size != limit {
		return fmt.Errorf("%s: no block ends at position %d: %w", s.f.Name(), l.opt.Length, ErrCorrupt)
	}
	if err := s.f.Truncate(s.size); err != nil {
		return err
	}
	if last && !short {
		return nil
	}
	return l.seal(s)
}

// withActive adds an active segment if the last file is sealed or there is none.
func (l *Log) withActive(files []*file, bases []int64, short bool) ([]*file, error) {
	var base int64
	if n := len(files); n > 0 {
		if !files[n-1].sealed() {
			return files, nil
		}
		base = files[n-1].end()
	}
	if l.opt.Length == Tail && len(bases) > 0 { // skipped files have the same positions
		base = max(base, bases[len(bases)-1]+headerSize)
	}
	if short {
		base = l.opt.Length
	}
	active, err := create(l.dir, l.opt.Kind, base)
	if err != nil {
		return files, err
	}
	return append(files, active), nil
}

// Append writes the blocks and returns the new length. It writes all blocks or none. It
// does not sync; see [Log.Sync].
func (l *Log) Append(blocks ...Block) (length int64, err error) {
	l.write.Lock()
	defer l.write.Unlock()
	size := 0
	for i := range blocks {
		n := blocks[i].size()
		if err := blocks[i].check(n); err != nil {
			return l.Length(), err
		}
		size += n
	}
	if a := l.active(); a.size > headerSize && a.size+int64(size) > l.opt.SegmentBytes {
		if err := l.roll(); err != nil {
			return l.Length(), fmt.Errorf("segment: append: %w", err)
		}
	}
	a := l.active()
	if a.size+int64(size) > maxSegment/2 {
		return l.Length(), fmt.Errorf("segment: append: %d bytes at once are more than a segment can hold", size)
	}
	next := *a
	idx := a.idx.(*memory).clone()
	l.buf = slices.Grow(l.buf[:0], size)
	for i := range blocks {
		b := &blocks[i]
		start := len(l.buf)
		l.buf = appendBlock(l.buf, b, a.end()+int64(start))
		n := len(l.buf) - start
		idx.add(b.Keys, span{uint32(next.size), uint32(n)})
		next.size += int64(n)
		next.min, next.max = min(next.min, b.Min), max(next.max, b.Max)
	}
	// A failed write leaves garbage behind the end; the next write overwrites it.
	if _, err := a.f.WriteAt(l.buf, a.size); err != nil {
		return l.Length(), fmt.Errorf("segment: append: %w", err)
	}
	next.idx = idx
	l.replaceActive(&next)
	return next.end(), nil
}

func (l *Log) active() *file { files := *l.files.Load(); return files[len(files)-1] }

// replaceActive replaces the active file by other files.
func (l *Log) replaceActive(with ...*file) {
	old := *l.files.Load()
	files := make([]*file, 0, len(old)+1)
	files = append(append(files, old[:len(old)-1]...), with...)
	l.files.Store(&files)
}

// roll seals the active segment and starts the next one.
func (l *Log) roll() error {
	sealed := *l.active()
	if err := l.seal(&sealed); err != nil {
		return err
	}
	next, err := create(l.dir, l.opt.Kind, sealed.end())
	if err != nil {
		return errors.Join(err, sealed.f.Truncate(l.active().size))
	}
	l.replaceActive(&sealed, next)
	return nil
}

// seal writes the footer of s and replaces its index in memory by the one on disk.
func (l *Log) seal(s *file) error {
	m := s.idx.(*memory)
	l.buf = appendFooter(l.buf[:0], m, s.base, s.size, s.min, s.max)
	ft := l.buf
	if _, err := s.f.WriteAt(ft, s.size); err != nil {
		return errors.Join(err, s.f.Truncate(s.size))
	}
	size := s.size + int64(len(ft))
	read, ok := readFooter(s.f, size, s.base)
	if !ok {
		return errors.Join(fmt.Errorf("%s: the footer just written does not read back: %w", s.f.Name(), ErrCorrupt), s.f.Truncate(s.size))
	}
	s.idx, s.size = read.idx, size
	l.unsynced = append(l.unsynced, s.f)
	return nil
}

// Length returns the position behind the last block.
func (l *Log) Length() int64 { return l.active().end() }

// Bytes returns the size of all segments.
func (l *Log) Bytes() int64 {
	var n int64
	for _, f := range *l.files.Load() {
		n += f.size
	}
	return n
}

// Sync makes all earlier appends durable. After an error the log stays in error, because
// the state of the disk is unknown.
func (l *Log) Sync() error {
	l.write.Lock()
	broken, sealed, active := l.broken, l.unsynced, l.active().f
	l.unsynced = nil
	l.write.Unlock()
	if broken != nil {
		return broken
	}
	var errs []error
	for _, f := range append(sealed, active) {
		if err := f.Sync(); err != nil && !errors.Is(err, os.ErrClosed) { // closed: Retain removed it
			errs = append(errs, err)
		}
	}
	err := errors.Join(append(errs, syncDir(l.dir))...)
	if err == nil {
		return nil
	}
	l.write.Lock()
	defer l.write.Unlock()
	l.broken = fmt.Errorf("segment: sync: %w", err)
	return l.broken
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Retain unlinks the sealed segments whose rows are all older than before, Unix ms. It
// returns the number of bytes freed. It seals the active segment if its oldest row is
// that old, so rows live at most twice the retention.
func (l *Log) Retain(before int64) (freed int64, err error) {
	l.write.Lock()
	defer l.write.Unlock()
	if l.held > 0 {
		return 0, nil // a later call removes them
	}
	if a := l.active(); a.size > headerSize && a.min < before {
		if err := l.roll(); err != nil {
			return 0, fmt.Errorf("segment: retain: %w", err)
		}
	}
	if freed, err = l.drop(func(f *file) bool { return f.max < before }); err != nil {
		return freed, fmt.Errorf("segment: retain: %w", err)
	}
	return freed, nil
}

// Trim unlinks the sealed segments that end before a position and returns the number of
// bytes freed. The position stays valid as [Options.Length].
func (l *Log) Trim(before int64) (freed int64, err error) {
	return l.Remove(func(at Span) bool { return at.To < before })
}

// Remove unlinks the sealed segments for which unneeded returns true, given the positions of
// a segment and of its end. It returns the number of bytes freed. [Options.Length] stays
// valid as long as the segments that end behind it stay.
func (l *Log) Remove(unneeded func(Span) bool) (freed int64, err error) {
	l.write.Lock()
	defer l.write.Unlock()
	if l.held > 0 {
		return 0, nil // a later call removes them
	}
	if freed, err = l.drop(func(f *file) bool { return unneeded(Span{f.base, f.end()}) }); err != nil {
		return freed, fmt.Errorf("segment: remove: %w", err)
	}
	return freed, nil
}

// Segments returns the positions of the segments and of their ends, oldest first. The last
// one is active.
func (l *Log) Segments() []Span {
	var spans []Span
	for _, f := range *l.files.Load() {
		spans = append(spans, Span{f.base, f.end()})
	}
	return spans
}

// Base returns the position of the active segment, which has the blocks of the last
// Append.
func (l *Log) Base() int64 { return l.active().base }

// drop unlinks the sealed segments for which old returns true.
func (l *Log) drop(old func(*file) bool) (freed int64, err error) {
	var keep, gone []*file
	for _, f := range *l.files.Load() {
		if f.sealed() && old(f) {
			gone = append(gone, f)
		} else {
			keep = append(keep, f)
		}
	}
	if len(gone) == 0 {
		return 0, nil
	}
	spans := l.gaps
	for _, f := range gone {
		spans = append(spans[:len(spans):len(spans)], Span{f.base, f.end()})
	}
	spans = unite(spans)
	if err := writeGaps(l.dir, spans); err != nil { // first, because a removed file must be accounted for
		return 0, err
	}
	l.gaps = spans
	l.files.Store(&keep)
	var errs []error
	for _, f := range gone {
		freed += f.size
		errs = append(errs, os.Remove(f.f.Name()), f.f.Close())
	}
	return freed, errors.Join(errs...)
}

// Close closes the files. It does not sync.
func (l *Log) Close() error {
	l.write.Lock()
	defer l.write.Unlock()
	return closeAll(*l.files.Load())
}

func closeAll(files []*file) error {
	var errs []error
	for _, f := range files {
		errs = append(errs, f.f.Close())
	}
	return errors.Join(errs...)
}
