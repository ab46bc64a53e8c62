package mq

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/testkit"
)

// keep implements vault. Its effect is durable when it returns.
func (d *simDisk) keep(name, folder string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.onDir != nil {
		if err := d.onDir(); err != nil {
			return err
		}
	}
	n, to := d.files[name], filepath.Join(quarantineName, folder, name)
	if n == nil {
		return &fs.PathError{Op: "link", Path: name, Err: fs.ErrNotExist}
	}
	if other := d.files[to]; other != nil && !bytes.Equal(other.mem, n.mem) {
		return &fs.PathError{Op: "link", Path: to, Err: fs.ErrExist}
	}
	d.files[to], d.durable[to] = n, n
	return nil
}

// note implements vault.
func (d *simDisk) note(name string, text []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.onDir != nil {
		if err := d.onDir(); err != nil {
			return err
		}
	}
	n := &inode{mem: bytes.Clone(text), platter: bytes.Clone(text)}
	d.change(func(m map[string]*inode) { m[name] = n })
	for _, change := range d.changes {
		change(d.durable)
	}
	d.changes = nil
	return nil
}

// rollSize makes record 6 of each ten so large that a segment ends behind the next ones.
func rollSize(seq uint64) int {
	if seq%10 == 6 {
		return 56 << 10
	}
	return int(seq*13) % 90
}

// rolled returns an unclosed log of three segments with about ten records in each, in
// groups of one to three.
func rolled(tb testing.TB) (d *simDisk, end uint64) {
	tb.Helper()
	d = newSimDisk()
	l, err := openSim(d)
	if err != nil {
		tb.Fatal(err)
	}
	for g := 0; l.Next() < 29; g++ {
		recs := make([]Record, g%3+1)
		for i := range recs {
			seq := l.Next() + uint64(i)
			recs[i] = Record{Queue: 7, Type: 3, Body: bodyFor(seq, rollSize(seq))}
		}
		mustWrite(tb, l, recs...)
	}
	end = l.Next()
	if n := l.Stats().Segments; n != 3 {
		tb.Fatalf("%d segments", n)
	}
	mustClose(tb, l) // writes an empty commit, which covers the last group
	return d.clone(), end
}

// check runs Verify on a simulated disk.
func check(d *simDisk) (Report, error) {
	c := checker{disk: d}
	err := c.checkAll()
	return c.report("sim"), err
}

// mend runs Repair on a simulated disk.
func mend(d *simDisk, choice Choice) (Repaired, error) {
	return repair(d, "sim", choice, RepairOptions{}, time.Unix(1, 0))
}

// survivors reads the remaining records of a log and returns their sequences. Afterwards
// the log takes records again.
func survivors(d *simDisk, size func(uint64) int) (got []uint64, next uint64, err error) {
	l, err := openSim(d)
	if err != nil {
		return nil, 0, err
	}
	got, next, err = remaining(l, size)
	if err == nil {
		_, err = write(l, Record{Queue: 7, Type: 3, Body: bodyFor(next, size(next))})
	}
	return got, next, errors.Join(err, l.Close())
}

// remaining reads a whole log. Lost records must be reported, once, and none may be
// invented.
func remaining(l *Log, size func(uint64) int) (got []uint64, next uint64, err error) {
	want := l.First()
	for {
		err = l.Read(want, func(e Entry) error {
			if e.Seq != want || !bytes.Equal(e.Body, bodyFor(e.Seq, size(e.Seq))) || e.Queue != 7 || e.Type != 3 {
				return fmt.Errorf("record %d where %d must be, or with a body that nobody wrote", e.Seq, want)
			}
			got = append(got, e.Seq)
			want++
			return nil
		})
		var lost *LostError
		if !errors.As(err, &lost) {
			break
		}
		if lost.First != want || lost.End <= want || !lost.Repaired.Equal(time.Unix(1, 0)) {
			return got, want, fmt.Errorf("a hole %+v where record %d must be", lost, want)
		}
		want = lost.End
	}
	if err == nil && want != l.Next() {
		err = fmt.Errorf("the log was read up to %d and ends at %d", want, l.Next())
	}
	return got, want, err
}

// lostIn returns the acknowledged records that a report calls lost.
func lostIn(r Report) (lost []uint64) {
	for _, d := range r.Damage {
		for seq := d.First; seq < d.End; seq++ {
			lost = append(lost, seq)
		}
	}
	return lost
}

func sequence(from, end uint64, without []uint64) (all []uint64) {
	for seq := from; seq < end; seq++ {
		if !slices.Contains(without, seq) {
			all = append(all, seq)
		}
	}
	return all
}

// checkHarmed compares the results of Verify, Open and both Repairs for one damaged log
// with the records [1, end).
func checkHarmed(harmed *simDisk, end uint64) (lost int, err error) {
	gone, err := checkSeen(harmed, end)
	if err != nil || gone == nil {
		return 0, err
	}
	return len(gone), checkMended(harmed, end, gone)
}

// checkSeen compares the results of Verify and Open. It returns the lost records, nil if
// there is no damage.
func checkSeen(harmed *simDisk, end uint64) (gone []uint64, err error) {
	r, err := check(harmed)
	if err != nil {
		return nil, err
	}
	gone = lostIn(r)
	if r.Records+uint64(len(gone)) != end-1 && r.Sound() {
		return nil, fmt.Errorf("Verify finds %d records and nothing lost, there were %d", r.Records, end-1)
	}
	var got []uint64
	var next uint64
	l, err := loaded(harmed.clone())
	if err == nil {
		got, next, err = remaining(l, rollSize)
	}
	var rot *CorruptError
	switch {
	case errors.As(err, &rot):
		if r.Sound() {
			return nil, fmt.Errorf("Verify finds nothing and the log says: %w", err)
		}
		if i := slices.IndexFunc(r.Damage, func(d Damage) bool { return d.Segment == rot.Segment }); i < 0 {
			return nil, fmt.Errorf("Verify finds %v and the log says: %w", r.Damage, err)
		}
	case err != nil:
		return nil, err
	case len(gone) > 0:
		return nil, fmt.Errorf("Verify misses %v and the log can be read", gone)
	case !slices.Equal(got, sequence(1, end, nil)) || next != end:
		return nil, fmt.Errorf("the log lost records without a word: %v", got)
	}
	if r.Sound() {
		return nil, nil
	}
	return append([]uint64{}, gone...), nil
}

// checkMended makes both repairs and reads the results.
func checkMended(harmed *simDisk, end uint64, gone []uint64) error {
	skip := harmed.clone()
	if _, err := mend(skip, SkipDamaged); err != nil {
		return fmt.Errorf("skip: %w", err)
	}
	got, next, err := survivors(skip, rollSize)
	if err != nil || next != end || !slices.Equal(got, sequence(1, end, gone)) {
		return fmt.Errorf("skip leaves %v up to %d without %v: %w", got, next, gone, err)
	}
	cut, until := harmed.clone(), end
	if len(gone) > 0 {
		until = gone[0]
	}
	if _, err := mend(cut, CutBehind); err != nil {
		return fmt.Errorf("cut: %w", err)
	}
	if got, next, err = survivors(cut, rollSize); err != nil || next != until || !slices.Equal(got, sequence(1, until, nil)) {
		return fmt.Errorf("cut leaves %v up to %d, want those below %d: %w", got, next, until, err)
	}
	return nil
}

// interesting returns the offsets of a segment except those of zeros and of the middle of
// a large body.
func interesting(b []byte) (offs []int) {
	used := usedBytes(b[:len(b)-footerSize])
	for off := range b {
		switch {
		case off < headerUsed,
			off >= headerSize && off < headerSize+1200,
			off > used-600 && off < used+8,
			off >= len(b)-footerSize,
			off%1021 == 0 && off > headerSize:
			offs = append(offs, off)
		}
	}
	return offs
}

// everyFew returns n, for tests that take one offset in n; the long form takes all.
func everyFew(n int) int {
	if testkit.Long() {
		return 1
	}
	return n
}

// TestEveryFlipIsFoundAndRepaired flips a bit of each byte of each segment in turn, and
// repairs one in a few of them.
func TestEveryFlipIsFoundAndRepaired(t *testing.T) {
	d, end := rolled(t)
	step := everyFew(8)
	for id := uint64(1); id <= 3; id++ {
		t.Run(segmentName(id), func(t *testing.T) {
			t.Parallel()
			cost := map[int]int{}
			for i, off := range interesting(d.files[segmentName(id)].mem) {
				c := d.clone()
				c.files[segmentName(id)].mem[off] ^= 1 << (off % 8)
				gone, err := checkSeen(c, end)
				if gone != nil && i%step == int(id)%step {
					err = cmp.Or(err, checkMended(c, end, gone))
				}
				if err != nil {
					t.Fatalf("flip at %d: %v", off, err)
				}
				cost[len(gone)]++
			}
			t.Logf("flips by the records they cost: %v", cost)
			if cost[0] == 0 || cost[1] == 0 {
				t.Fatal("the flips did not reach what they must reach")
			}
		})
	}
}

// TestEveryCutIsFoundAndRepaired removes everything in a sealed segment from each offset
// on: once by zeros, once by a shorter file.
func TestEveryCutIsFoundAndRepaired(t *testing.T) {
	d, end := rolled(t)
	for _, shorter := range []bool{false, true} {
		t.Run(fmt.Sprintf("shorter=%v", shorter), func(t *testing.T) {
			t.Parallel()
			for i, off := range interesting(d.files[segmentName(2)].mem) {
				if i%everyFew(12) != 0 {
					continue
				}
				c := d.clone()
				n := c.files[segmentName(2)]
				if clear(n.mem[off:]); shorter {
					n.mem = n.mem[:off]
				}
				if _, err := checkHarmed(c, end); err != nil {
					t.Fatalf("cut at %d: %v", off, err)
				}
			}
		})
	}
}

// TestRandomHarm damages several places at once.
func TestRandomHarm(t *testing.T) {
	d, end := rolled(t)
	rounds := 200
	if testkit.Long() {
		rounds = 20000
	}
	for seed := range uint64(rounds) {
		rng := rand.New(rand.NewPCG(seed, 9))
		c := d.clone()
		for range 1 + rng.IntN(6) {
			name := segmentName(1 + rng.Uint64N(3))
			b := c.files[name].mem
			if name == segmentName(3) { // without its last empty commit there is no proof that the tail was acknowledged
				b = b[:usedBytes(b)/recordAlign*recordAlign-commitSize]
			}
			from := rng.IntN(len(b))
			if rng.IntN(2) == 0 { // in the area of the small records
				from = headerSize + rng.IntN(1000)
			}
			part := b[from:min(len(b), from+1+rng.IntN(1<<rng.IntN(14)))]
			for i := range part {
				part[i] = byte(rng.Uint32())
			}
		}
		if _, err := checkHarmed(c, end); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// harmedForRepair damages a record in the middle of segment 1, another one in segment 2,
// and the footer of segment 2.
func harmedForRepair(t *testing.T) (d *simDisk, lost []uint64, end uint64) {
	t.Helper()
	d, end = rolled(t)
	d.files[segmentName(1)].mem[headerSize+400] ^= 1
	d.files[segmentName(2)].mem[headerSize+200] ^= 1
	d.files[segmentName(2)].mem[minSegmentBytes-20] ^= 1
	r, err := check(d)
	if err != nil || r.Lost() != 2 {
		t.Fatalf("report %+v, %v", r, err)
	}
	return d, lostIn(r), end
}

// TestInterruptedRepair stops a Repair at each of its calls to the disk, cuts the power, and repeats it.
func TestInterruptedRepair(t *testing.T) {
	harmed, lost, end := harmedForRepair(t)
	for _, choice := range []Choice{CutBehind, SkipDamaged} {
		t.Run(choice.String(), func(t *testing.T) {
			end, want := end, sequence(1, end, lost)
			if choice == CutBehind {
				end, want = lost[0], sequence(1, lost[0], nil)
			}
			for stop := 0; ; stop++ {
				d := harmed.clone()
				calls := 0
				fail := func() error {
					if calls++; calls > stop {
						return errInjected
					}
					return nil
				}
				d.onSync, d.onWrite, d.onDir = fail, fail, fail
				_, err := mend(d, choice)
				if err == nil {
					if stop < 10 {
						t.Fatalf("a repair made only %d calls", stop)
					}
					t.Logf("stopped at each of %d calls", stop)
					return
				}
				if !errors.Is(err, errInjected) {
					t.Fatalf("stopped at %d: %v", stop, err)
				}
				rng := rand.New(rand.NewPCG(uint64(stop), uint64(choice)))
				for range 3 {
					after := d.crash(rng)
					checkHalfRepaired(t, stop, after.clone())
					again, err := mend(after, choice)
					if err != nil {
						t.Fatalf("stopped at %d, repeated: %v", stop, err)
					}
					got, next, err := survivors(after, rollSize)
					if err != nil || next != end || !slices.Equal(got, want) {
						t.Fatalf("stopped at %d, repeated: %v up to %d, %v", stop, got, next, err)
					}
					checkQuarantine(t, harmed, after, again)
				}
			}
		})
	}
}

// checkHalfRepaired opens the log after an interrupted Repair: Open must refuse it, or
// the repair must be complete.
func checkHalfRepaired(t *testing.T, stop int, d *simDisk) {
	t.Helper()
	r, err := check(d)
	if err != nil {
		t.Fatal(err)
	}
	l, err := openSim(d)
	if err == nil {
		err = l.Read(l.First(), func(Entry) error { return nil })
		_ = l.Close()
	}
	var rot *CorruptError
	var given *LostError
	switch {
	case r.Unfinished && errors.Is(err, ErrUnfinished):
	case !r.Unfinished && !r.Sound() && errors.As(err, &rot):
	case r.Sound() && (err == nil || errors.As(err, &given)):
	default:
		t.Fatalf("stopped at %d: Verify finds %+v, the log says %v", stop, r, err)
	}
}

// checkQuarantine checks that the original of each replaced or removed segment is there.
func checkQuarantine(t *testing.T, before, after *simDisk, done Repaired) {
	t.Helper()
	for id := uint64(1); id <= 3; id++ {
		name := segmentName(id)
		now, was := after.files[name], before.files[name]
		if now != nil && bytes.Equal(now.mem[:usedBytes(was.mem)], was.mem[:usedBytes(was.mem)]) {
			continue
		}
		if kept := after.files[filepath.Join(done.Quarantine, name)]; done.Quarantine != "" && (kept == nil || !bytes.Equal(kept.mem, was.mem)) {
			t.Fatalf("the original of %s is not in %s", name, done.Quarantine)
		}
	}
}

// TestRepairOfFiles covers the whole procedure on a real disk. Open refuses and says what
// to do. Verify and a dry run change nothing. The Repair keeps the originals.
func TestRepairOfFiles(t *testing.T) {
	harmed, lost, end := harmedForRepair(t)
	for _, choice := range []Choice{CutBehind, SkipDamaged} {
		t.Run(choice.String(), func(t *testing.T) {
			path := t.TempDir()
			for name, n := range harmed.files {
				if err := os.WriteFile(filepath.Join(path, name), n.mem, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := Open(small(path))
			var rot *CorruptError
			if !errors.As(err, &rot) || rot.Segment != segmentName(2) || rot.Dir != path {
				t.Fatalf("Open: %v", err)
			}
			for _, must := range []string{rot.Segment, fmt.Sprint(rot.Offset), "wheelwork mq verify " + path, "wheelwork mq repair " + path} {
				if !strings.Contains(err.Error(), must) {
					t.Fatalf("the text %q does not name %q", err, must)
				}
			}
			if err := os.Remove(filepath.Join(path, lockName)); err != nil {
				t.Fatal(err)
			}
			before := treeOf(t, path)
			r, err := Verify(path, nil)
			if err != nil || r.Lost() != 2 || r.Next != end {
				t.Fatalf("Verify: %+v, %v", r, err)
			}
			dry, err := Repair(path, choice, RepairOptions{DryRun: true})
			if err != nil {
				t.Fatal(err)
			}
			if after := treeOf(t, path); !slices.Equal(after, before) {
				t.Fatalf("Verify or a dry run changed the directory:\n%q\n%q", before, after)
			}
			done, err := Repair(path, choice, RepairOptions{})
			if err != nil {
				t.Fatal(err)
			}
			dry.Quarantine, done.Found.Temporary = done.Quarantine, dry.Found.Temporary
			if fmt.Sprintf("%+v", dry) != fmt.Sprintf("%+v", done) {
				t.Fatalf("the dry run said %+v, done was %+v", dry, done)
			}
			why, err := os.ReadFile(filepath.Join(path, done.Quarantine, whyName))
			if err != nil || !strings.Contains(string(why), fmt.Sprintf("record %d is lost", lost[0])) {
				t.Fatalf("why: %s, %v", why, err)
			}
			for _, name := range append(done.Rewrote, done.Removed...) {
				b, err := os.ReadFile(filepath.Join(path, done.Quarantine, name))
				if err != nil || !bytes.Equal(b, harmed.files[name].mem) {
					t.Fatalf("the original of %s is not kept: %v", name, err)
				}
			}
			if r, err = Verify(path, nil); err != nil || !r.Sound() || r.Next != done.Next {
				t.Fatalf("after the repair: %+v, %v", r, err)
			}
			l := mustOpen(t, small(path))
			if l.Next() != done.Next {
				t.Fatalf("next is %d, want %d", l.Next(), done.Next)
			}
			again, err := l.Verify(nil)
			if err != nil || !again.Sound() || again.Records != r.Records || again.GivenUp != r.GivenUp {
				t.Fatalf("Verify of the open log: %+v, before %+v, %v", again, r, err)
			}
			if choice == SkipDamaged && r.GivenUp != 2 || choice == CutBehind && (r.GivenUp != 0 || done.Dropped == 0) {
				t.Fatalf("given up %d, done %+v", r.GivenUp, done)
			}
		})
	}
}

// treeOf lists the files below a directory with their sizes and times.
func treeOf(t *testing.T, root string) (all []string) {
	t.Helper()
	if err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Stat(path)
		all = append(all, fmt.Sprintln(path, info.Size(), info.ModTime()))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestRepairRefuses(t *testing.T) {
	path := t.TempDir()
	cfg := small(path)
	l := mustOpen(t, cfg)
	mustWrite(t, l, Record{Body: []byte("x")})
	if _, err := Verify(path, nil); !errors.Is(err, ErrLocked) {
		t.Fatalf("Verify of an open log: %v", err)
	}
	if _, err := Repair(path, CutBehind, RepairOptions{}); !errors.Is(err, ErrLocked) {
		t.Fatalf("Repair of an open log: %v", err)
	}
	mustClose(t, l)
	if _, err := Repair(path, 0, RepairOptions{}); err == nil {
		t.Fatal("a repair without a choice was made")
	}
	done, err := Repair(path, CutBehind, RepairOptions{})
	if err != nil || done.Quarantine != "" || !done.Found.Sound() || done.Next != 2 {
		t.Fatalf("repair of a sound log: %+v, %v", done, err)
	}
	missing := filepath.Join(path, "missing")
	for _, err := range []error{
		errors.Join(second(Verify(missing, nil))),
		second(Repair(missing, CutBehind, RepairOptions{})),
		second(Repair(missing, CutBehind, RepairOptions{DryRun: true})),
	} {
		if err == nil || !strings.Contains(err.Error(), missing) {
			t.Fatalf("a missing directory: %v", err)
		}
	}
	// A choice other than the one that was begun.
	if err := dir(path).note(repairName, begun{CutBehind, "20200101T000000.000Z"}.text()); err != nil {
		t.Fatal(err)
	}
	if _, err := Repair(path, SkipDamaged, RepairOptions{}); !errors.Is(err, ErrUnfinished) {
		t.Fatalf("another choice: %v", err)
	}
	if _, err := Open(cfg); !errors.Is(err, ErrUnfinished) {
		t.Fatalf("Open: %v", err)
	}
	if _, err := Repair(path, CutBehind, RepairOptions{}); err != nil {
		t.Fatal(err)
	}
	mustClose(t, mustOpen(t, cfg))
	// No readable header or record.
	name := filepath.Join(path, segmentName(1))
	if err := os.WriteFile(name, bytes.Repeat([]byte{7}, minSegmentBytes), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Repair(path, SkipDamaged, RepairOptions{}); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Fatalf("repair of noise: %v", err)
	}
	if b, err := os.ReadFile(name); err != nil || b[0] != 7 {
		t.Fatalf("the noise was touched: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestMissingAndStrangeSegments repairs logs that lack whole files or contain files of
// another log.
func TestMissingAndStrangeSegments(t *testing.T) {
	other, _ := rolled(t)
	for _, c := range []struct {
		name string
		harm func(*simDisk)
	}{
		{"missing", func(d *simDisk) { delete(d.files, segmentName(2)) }},
		{"empty", func(d *simDisk) { d.files[segmentName(2)].mem = nil }},
		{"first header", func(d *simDisk) { clear(d.files[segmentName(1)].mem[:headerSize]) }},
		{"all headers but one", func(d *simDisk) {
			clear(d.files[segmentName(1)].mem[:headerSize])
			clear(d.files[segmentName(2)].mem[:headerSize])
		}},
		{"last header", func(d *simDisk) { clear(d.files[segmentName(3)].mem[:headerSize]) }},
		{"of another log", func(d *simDisk) { d.files[segmentName(2)] = other.clone().files[segmentName(2)] }},
		{"longer", func(d *simDisk) {
			d.files[segmentName(2)].mem = append(d.files[segmentName(2)].mem, make([]byte, 100)...)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, end := rolled(t)
			c.harm(d)
			if _, err := checkHarmed(d, end); err != nil {
				t.Fatal(err)
			}
			if r, err := check(d); err != nil || r.Sound() {
				t.Fatalf("%+v, %v", r, err)
			}
		})
	}
}

// TestMisnamedSegmentsAreNotThrownAway swaps two names. Only the names are wrong then.
func TestMisnamedSegmentsAreNotThrownAway(t *testing.T) {
	d, _ := rolled(t)
	d.files[segmentName(1)], d.files[segmentName(2)] = d.files[segmentName(2)], d.files[segmentName(1)]
	r, err := check(d)
	if err != nil || r.Sound() {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, err := mend(d, SkipDamaged); err == nil || !strings.Contains(err.Error(), segmentName(2)) {
		t.Fatalf("repair: %v", err)
	}
}

// TestOpenSaysWhatIsWrong checks that each kind of damage is reported as itself and not
// as one of its consequences.
func TestOpenSaysWhatIsWrong(t *testing.T) {
	rehead := func(d *simDisk, id uint64, change func(*header)) {
		b := d.files[segmentName(id)].mem
		h, _ := decodeHeader(b)
		change(&h)
		copy(b, h.encode())
	}
	seal := func(d *simDisk, change func(*footer)) { // the last segment
		b := d.files[segmentName(3)].mem
		h, _ := decodeHeader(b)
		s := &segment{id: 3, base: h.base, size: h.size, seed: segmentSeed(h.store, 3)}
		tl, err := findTail(bytes.NewReader(b), s, 1)
		if err != nil {
			t.Fatal(err)
		}
		ft := footer{base: h.base, end: tl.next, dataEnd: tl.off, lastCommit: tl.commit}
		change(&ft)
		copy(b[s.limit():], ft.encode(3, s.seed))
	}
	for _, c := range []struct {
		why  string
		harm func(*simDisk)
	}{
		{"does not continue", func(d *simDisk) { rehead(d, 3, func(h *header) { h.base++ }) }},
		{"the header belongs to", func(d *simDisk) { rehead(d, 3, func(h *header) { h.segment++ }) }},
		{"does not start like a segment", func(d *simDisk) { d.files[segmentName(3)].mem[0]++ }},
		{"format version", func(d *simDisk) { d.files[segmentName(3)].mem[8]++ }},
		{"the checksum of the segment header", func(d *simDisk) { d.files[segmentName(3)].mem[60]++ }},
		{"impossible values", func(d *simDisk) { rehead(d, 3, func(h *header) { h.base = 0 }) }},
		{"instead of", func(d *simDisk) { rehead(d, 3, func(h *header) { h.size += pageSize }) }},
		{"the footer of a sealed segment", func(d *simDisk) { d.files[segmentName(2)].mem[minSegmentBytes-1]++ }},
		{"is missing", func(d *simDisk) { delete(d.files, segmentName(2)) }},
		{"was durable", func(d *simDisk) { d.files[segmentName(3)].mem[headerSize]++ }},
		{"was sealed behind", func(d *simDisk) { seal(d, func(ft *footer) { ft.end++ }) }},
		{"was sealed behind", func(d *simDisk) { seal(d, func(ft *footer) { ft.dataEnd -= commitSize }) }},
		{"", func(d *simDisk) { seal(d, func(*footer) {}) }},
	} {
		d, _ := rolled(t)
		c.harm(d)
		_, err := loaded(d.clone())
		var rot *CorruptError
		if c.why == "" && err != nil || c.why != "" && (!errors.As(err, &rot) || !strings.Contains(rot.Why, c.why)) {
			t.Errorf("%q: Open says %v", c.why, err)
		}
		if r, err := check(d); err != nil || r.Sound() != (c.why == "") {
			t.Errorf("%q: Verify finds %v, %v", c.why, r.Damage, err)
		}
	}
}
