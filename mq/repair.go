package mq

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Choice selects what a Repair retains of a log with damaged records. There is no default:
// both choices give up acknowledged records, and only the owner knows which of them
// matter.
type Choice uint8

const (
	// CutBehind retains everything before the first lost record and drops all later
	// records, intact or not. The log is then in an earlier state and assigns the dropped
	// sequences again.
	CutBehind Choice = iota + 1
	// SkipDamaged retains every intact record. Read returns a *LostError at missing ones. A
	// hole may split the records of one Append.
	SkipDamaged
)

var choices = map[string]Choice{"cut": CutBehind, "skip": SkipDamaged}

// ParseChoice returns the choice with the name "cut" or "skip".
func ParseChoice(s string) (Choice, error) {
	if c, ok := choices[s]; ok {
		return c, nil
	}
	return 0, fmt.Errorf(`mq: the choice is %q, it must be "cut" or "skip"`, s)
}

func (c Choice) String() string {
	for name, choice := range choices {
		if choice == c {
			return name
		}
	}
	return fmt.Sprintf("Choice(%d)", uint8(c))
}

// RepairOptions modify a Repair. The zero value is usable.
type RepairOptions struct {
	DryRun   bool     // only report what a Repair would do
	Progress Progress // progress of reading; may be nil
}

// Repaired reports what a Repair did, or what it would do with RepairOptions.DryRun.
type Repaired struct {
	Found   Report // before the repair
	Choice  Choice
	Next    uint64   // of the log, after the repair
	Lost    uint64   // damaged records that this repair gives up
	Dropped uint64   // intact records that CutBehind gives up
	Rewrote []string // segments that were replaced
	Removed []string // segments that were removed
	// Quarantine is the directory within Dir that holds the originals of these segments
	// and a text, why.txt. It is empty if nothing had to be done.
	Quarantine string
}

const (
	repairName     = "REPAIR"
	quarantineName = "quarantine"
	whyName        = "why.txt"
)

// Repair makes a damaged log usable again, with the losses that choice names. It rebuilds
// headers, footers and commits from other data, which costs no record. Under both choices
// it repairs damage without lost records in the same way. It retains the original of each
// file that it changes in a directory in quarantine/ and never deletes it.
//
// The log must not be open in any process; otherwise Repair fails with ErrLocked. An
// interrupted Repair leaves a file REPAIR, and Open then fails with ErrUnfinished until
// the same Repair is run again. Repair changes nothing in a sound log.
func Repair(path string, choice Choice, opt RepairOptions) (Repaired, error) {
	if choice != CutBehind && choice != SkipDamaged {
		return Repaired{}, fmt.Errorf("mq: repair: %v is not a choice, choose CutBehind or SkipDamaged", choice)
	}
	lock := lockDir
	if opt.DryRun {
		lock = lockExisting
	}
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return Repaired{}, errors.Join(fmt.Errorf("mq: repair: %s is not the directory of a log", path), err)
	}
	unlock, err := lock(path)
	if err != nil {
		return Repaired{}, lockError(path, err)
	}
	done, err := repair(dir(path), path, choice, opt, time.Now())
	return done, errors.Join(err, unlock())
}

// vault adds to disk the operations that only a Repair needs.
type vault interface {
	disk
	// keep gives a file a second, durable name in a directory below quarantineName. It
	// succeeds if the file has that name already.
	keep(name, folder string) error
	// note writes a small file atomically and durably.
	note(name string, text []byte) error
}

func repair(v vault, path string, choice Choice, opt RepairOptions, now time.Time) (Repaired, error) {
	folder := now.UTC().Format("20060102T150405.000Z")
	begun, err := readNote(v)
	if err != nil {
		return Repaired{}, err
	}
	if begun.choice != 0 {
		if folder = begun.folder; begun.choice != choice {
			return Repaired{}, fmt.Errorf("%w: it was begun with the choice %q; repeat it with that", ErrUnfinished, begun.choice)
		}
	}
	c := checker{disk: v, progress: opt.Progress}
	if err := c.checkAll(); err != nil {
		return Repaired{}, err
	}
	r := repairer{vault: v, folder: folder, resumed: begun.choice != 0, now: now, done: Repaired{Found: c.report(path), Choice: choice}}
	if err := r.plan(c.pieces); err != nil {
		return r.done, err
	}
	if opt.DryRun || r.done.Found.Sound() {
		return r.done, nil
	}
	return r.done, r.run()
}

// repairer carries out one Repair.
type repairer struct {
	vault  vault
	folder string
	// resumed means that an interrupted Repair has begun the work and has written the
	// reasons.
	resumed bool
	now     time.Time
	steps   []step // in this order, so that dropped segments vanish from the back
	done    Repaired
}

// step repairs one segment.
type step struct {
	p *piece
	// until is the sequence behind the last one to keep; 0 means that the segment is
	// removed.
	until uint64
}

// plan decides what to do with each segment.
func (r *repairer) plan(pieces []*piece) error {
	until := uint64(math.MaxUint64)
	for _, d := range r.done.Found.Damage {
		if d.End > d.First && r.done.Choice == CutBehind {
			until = d.First
			break
		}
	}
	for i, p := range pieces {
		switch {
		case p.blank:
			return fmt.Errorf("mq: repair: nothing in %s is intact, including the sequence of its first record; move the directory away and start with an empty one",
				p.seg.name())
		case p.misnamed:
			return fmt.Errorf("mq: repair: %s is %s by its header: give the file its right name, then repair what is still damaged",
				p.seg.name(), segmentName(p.head.segment))
		case i > 0 && p.start >= until:
			r.steps = append(r.steps, step{p: p})
			r.done.Dropped += p.tail.records
			if !p.missing {
				r.done.Removed = append(r.done.Removed, p.seg.name())
			}
		case len(p.damage) > 0:
			r.steps = append(r.steps, step{p, until})
			r.done.Rewrote = append(r.done.Rewrote, p.seg.name())
		}
		if p.start < until || i == 0 {
			r.done.Next = min(p.end, until)
		}
	}
	slices.Reverse(r.steps)
	for _, p := range pieces {
		for _, d := range p.damage {
			r.done.Lost += d.End - d.First
		}
	}
	if len(r.steps) > 0 || r.resumed {
		r.done.Quarantine = filepath.Join(quarantineName, r.folder)
	}
	return r.count()
}

// count adds the intact records behind a cut within a segment to the number of dropped
// ones.
func (r *repairer) count() error {
	for _, s := range r.steps {
		if s.until == 0 || s.p.end <= s.until {
			continue
		}
		m := mender{seg: &segment{id: s.p.seg.id, base: s.p.start, seed: s.p.seg.seed}}
		kept, err := r.mend(s, &m)
		if err != nil {
			return err
		}
		r.done.Dropped += s.p.tail.records - kept
	}
	return nil
}

// run carries out the plan. It may be interrupted anywhere and repeated: each step brings
// the log nearer to the result. The file REPAIR makes Open refuse until then.
func (r *repairer) run() error {
	if !r.resumed {
		if err := r.vault.note(filepath.Join(r.done.Quarantine, whyName), r.why()); err != nil {
			return fmt.Errorf("mq: repair: %w", err)
		}
		if err := r.vault.note(repairName, begun{r.done.Choice, r.folder}.text()); err != nil {
			return fmt.Errorf("mq: repair: %w", err)
		}
	}
	for _, s := range r.steps {
		do := r.rewrite
		if s.until == 0 {
			do = r.takeAway
		}
		if err := do(s); err != nil {
			return fmt.Errorf("mq: repair %s: %w", s.p.seg.name(), err)
		}
	}
	c := checker{disk: r.vault}
	if err := c.checkAll(); err != nil {
		return err
	}
	if after := c.report(r.done.Found.Dir); len(after.Damage) > 0 {
		return fmt.Errorf("mq: repair: there is still damage: %v; the disk may be failing", after.Damage[0])
	}
	if err := r.vault.remove(repairName); err != nil {
		return fmt.Errorf("mq: repair: %w", err)
	}
	return r.vault.sync()
}

// why returns the text for the quarantine directory.
func (r *repairer) why() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "`wheelwork mq repair`, choice %q, %s.\n\nThe files here are the originals of those that it replaced or took away.\n\nFound:\n",
		r.done.Choice, r.now.UTC().Format(time.RFC3339))
	for _, d := range r.done.Found.Damage {
		fmt.Fprintf(&b, "  %v\n", d)
	}
	fmt.Fprintf(&b, "\nReplaced: %s\nTaken away: %s\n%d damaged and %d intact records were given up; the next record gets sequence %d.\n",
		cmp.Or(strings.Join(r.done.Rewrote, " "), "nothing"), cmp.Or(strings.Join(r.done.Removed, " "), "nothing"),
		r.done.Lost, r.done.Dropped, r.done.Next)
	return b.Bytes()
}

func (r *repairer) takeAway(s step) error {
	if s.p.missing {
		return nil
	}
	if err := r.vault.keep(s.p.seg.name(), r.folder); err != nil {
		return err
	}
	return errors.Join(r.vault.remove(s.p.seg.name()), r.vault.sync())
}

// rewrite replaces a segment by one with its intact records, and holes for the others.
// The replacement is complete and durable before it gets the name. It is always sealed,
// even if the original was not, so that the footer vouches for the holes.
func (r *repairer) rewrite(s step) error {
	p := s.p
	m := mender{seg: &segment{id: p.seg.id, base: p.start, seed: p.seg.seed}}
	if _, err := r.mend(s, &m); err != nil { // only measures
		return err
	}
	need := (m.off + footerSize + pageSize - 1) &^ (pageSize - 1)
	m.seg.size = max(need, minSegmentBytes)
	if size := p.seg.size; size%pageSize == 0 && size <= maxSegmentBytes {
		m.seg.size = max(m.seg.size, size) // a file of the usual size can be recycled later
	}
	if need > maxSegmentBytes {
		return errors.New("the remaining records do not fit into a segment; choose to cut")
	}
	temp := strings.TrimSuffix(p.seg.name(), segmentSuffix) + tempSuffix
	if err := r.write(temp, s, m); err != nil {
		err = errors.Join(err, r.discard(temp))
		if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
			return fmt.Errorf("%w: free %d bytes and repeat the repair: %w", ErrFull, m.seg.size, err)
		}
		return err
	}
	if !p.missing {
		if err := r.vault.keep(p.seg.name(), r.folder); err != nil {
			return err
		}
	}
	return errors.Join(r.vault.rename(temp, p.seg.name()), r.vault.sync())
}

func (r *repairer) discard(temp string) error {
	if err := r.vault.remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// write writes the replacement to a temporary file.
func (r *repairer) write(temp string, s step, plan mender) (err error) {
	if err := r.vault.fill(temp, plan.seg.size, accessPwrite, nil); err != nil {
		return err
	}
	f, err := r.vault.open(temp, accessPwrite)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	m := mender{seg: plan.seg, w: f}
	if _, err := r.mend(s, &m); err != nil {
		return err
	}
	h := header{
		store: s.p.head.store, segment: m.seg.id, epoch: max(s.p.head.epoch, 1), base: m.seg.base, size: m.seg.size,
		created: r.now.UnixNano(),
	}
	if _, err := f.WriteAt(h.encode(), 0); err != nil {
		return err
	}
	ft := footer{base: m.seg.base, end: m.next, dataEnd: m.off, lastCommit: m.commit}
	if _, err := f.WriteAt(ft.encode(m.seg.id, m.seg.seed), m.seg.limit()); err != nil {
		return err
	}
	return f.sync(0, m.seg.size)
}

// mend passes the retained frames of a segment to m and returns the number of records.
func (r *repairer) mend(s step, m *mender) (records uint64, err error) {
	m.off, m.next, m.epoch, m.at = headerSize, m.seg.base, uint16(max(s.p.head.epoch, 1)), r.now.UnixNano()
	m.g = group{first: m.next}
	m.start = m.off
	if !s.p.missing {
		f, err := r.vault.open(s.p.seg.name(), accessRead)
		if err != nil {
			return 0, err
		}
		err = m.copy(&patient{f}, s.p, s.until)
		if err := errors.Join(err, f.Close()); err != nil {
			return 0, err
		}
	}
	return m.records, errors.Join(m.skipTo(min(s.p.end, s.until)), m.flush())
}

// mender frames records again for other offsets in a segment.
type mender struct {
	seg *segment
	w   io.WriterAt // nil: only measure
	at  int64       // time for holes

	off, start int64 // offset of the next frame, and of the first one in buf
	next       uint64
	commit     int64
	epoch      uint16
	g          group
	buf        []byte
	records    uint64
}

// copy copies the intact records and holes of p below the sequence until.
func (m *mender) copy(r io.ReaderAt, p *piece, until uint64) error {
	for _, s := range p.intact {
		sc := newScanner(r, p.seg.seed, s.from, s.to)
		for {
			at := sc.off
			f, err := sc.next()
			if err == io.EOF {
				break
			}
			if err != nil {
				return fmt.Errorf("the bytes at %d changed under the repair: %w", at, err)
			}
			if f.isCommit() {
				continue
			}
			h, isHole := takeHole(f)
			first := f.seq
			if isHole {
				first = h.first
			}
			if first >= until {
				return nil
			}
			if err := m.skipTo(first); err != nil {
				return err
			}
			if isHole {
				h.end = min(h.end, until)
				err = m.putHole(h)
			} else {
				err = m.putRecord(f)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// skipTo writes a hole for the missing records below seq.
func (m *mender) skipTo(seq uint64) error {
	if seq <= m.next {
		return nil
	}
	return m.putHole(hole{first: m.next, end: seq, at: m.at})
}

func (m *mender) putHole(h hole) error {
	if h.first = max(h.first, m.next); h.first >= h.end {
		return nil // it is in the previous segment
	}
	m.closeGroup()
	m.put(h.frame(m.epoch))
	m.next = h.end
	m.g = group{first: m.next}
	return nil
}

// mendGroup is the size in bytes at which a group of records is closed and written.
const mendGroup = 1 << 20

func (m *mender) putRecord(f frame) error {
	if f.seq < m.next {
		return nil // it is in the previous segment
	}
	if int16(f.epoch-m.epoch) > 0 {
		m.epoch = f.epoch
	}
	f.epoch = m.epoch
	m.g.crcs = foldCRC(m.g.crcs, m.put(f))
	m.g.count++
	m.next++
	m.records++
	if len(m.buf) >= mendGroup {
		return m.flush()
	}
	return nil
}

// put frames f at the end of the buffer and returns its checksum.
func (m *mender) put(f frame) uint32 {
	n := frameSize(len(f.body))
	at := len(m.buf)
	m.buf = append(m.buf, make([]byte, n)...)
	crc := putFrame(m.buf[at:], m.seg.seed, m.off, f)
	m.off += int64(n)
	return crc
}

func (m *mender) closeGroup() {
	if m.g.count == 0 {
		return
	}
	c := commit{first: m.g.first, count: m.g.count, crcs: m.g.crcs, prev: uint64(m.commit), durable: m.g.first}
	at := m.off
	m.put(frame{kind: controlCommit, flags: flagControl, epoch: m.epoch, seq: m.next, body: c.append(nil)})
	m.commit = at
	m.g = group{first: m.next}
}

// flush closes the group and writes the buffer.
func (m *mender) flush() error {
	m.closeGroup()
	if m.w != nil {
		if _, err := m.w.WriteAt(m.buf, m.start); err != nil {
			return err
		}
	}
	m.start, m.buf = m.off, m.buf[:0]
	return nil
}

// begun is the content of the file REPAIR during a Repair.
type begun struct {
	choice Choice
	folder string
}

func (b begun) text() []byte { return fmt.Appendf(nil, "%v\n%s\n", b.choice, b.folder) }

// maxNote bounds the size of the file REPAIR, in bytes.
const maxNote = 1 << 10

// parseNote parses the text of the file REPAIR.
func parseNote(text []byte) (begun, error) {
	word, rest, _ := strings.Cut(string(text), "\n")
	folder, rest, ended := strings.Cut(rest, "\n")
	choice, err := ParseChoice(word)
	if err != nil || !ended || rest != "" || folder == "" || strings.Trim(folder, "0123456789.TZ") != "" || folder[0] == '.' {
		return begun{}, fmt.Errorf("mq: repair: %s is not a file of a repair; delete it and repeat the repair", repairName)
	}
	return begun{choice, folder}, nil
}

// readNote returns the note of an unfinished Repair, or the zero value.
func readNote(v disk) (begun, error) {
	f, err := v.open(repairName, accessRead)
	if errors.Is(err, fs.ErrNotExist) {
		return begun{}, nil
	}
	if err != nil {
		return begun{}, fmt.Errorf("mq: repair: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	b := make([]byte, maxNote)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return begun{}, fmt.Errorf("mq: repair: %w", err)
	}
	return parseNote(b[:n])
}

func (d dir) keep(name, folder string) error {
	to := filepath.Join(quarantineName, folder)
	if err := d.makeFolder(to); err != nil {
		return err
	}
	from, at := d.path(name), d.path(filepath.Join(to, name))
	err := os.Link(from, at)
	if errors.Is(err, fs.ErrExist) {
		here, hereErr := os.Stat(from)
		there, thereErr := os.Stat(at)
		if hereErr == nil && thereErr == nil && os.SameFile(here, there) {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("keep the original (the file system must have hard links; repair a copy on one that has): %w", err)
	}
	return dir(d.path(to)).sync()
}

// makeFolder creates a directory below d and its parents, durably.
func (d dir) makeFolder(name string) error {
	if err := os.MkdirAll(d.path(name), 0o700); err != nil {
		return err
	}
	for name != "." {
		name = filepath.Dir(name)
		if err := dir(d.path(name)).sync(); err != nil {
			return err
		}
	}
	return nil
}

func (d dir) note(name string, text []byte) error {
	folder := filepath.Dir(name)
	if err := d.makeFolder(folder); err != nil {
		return err
	}
	temp := d.path(name + tempSuffix)
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp, d.path(name)); err != nil {
		return err
	}
	return dir(d.path(folder)).sync()
}
