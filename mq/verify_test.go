package mq

import (
	"bytes"
	"errors"
	"slices"
	"syscall"
	"testing"
	"time"
)

// TestHolesAreAnnouncedOnce reads a repaired log from before a hole, from within it and
// from behind it.
func TestHolesAreAnnouncedOnce(t *testing.T) {
	d := newSimDisk()
	l, err := openSim(d)
	if err != nil {
		t.Fatal(err)
	}
	for range 12 {
		mustWrite(t, l, Record{Queue: 7, Type: 3, Body: bodyFor(l.Next(), rotSize(l.Next()))})
	}
	mustClose(t, l)
	d = d.clone()
	off := headerSize
	for seq := uint64(1); seq < 9; seq++ {
		if seq >= 5 { // records 5 to 8
			d.files[segmentName(1)].mem[off+4] ^= 1
		}
		off += frameSize(rotSize(seq)) + commitSize
	}
	if done, err := mend(d, SkipDamaged); err != nil || done.Lost != 4 || done.Next != 13 {
		t.Fatalf("%+v, %v", done, err)
	}
	l, err = openSim(d)
	if err != nil {
		t.Fatal(err)
	}
	for from := uint64(1); from <= 13; from++ {
		var got []uint64
		err := l.Read(from, func(e Entry) error { got = append(got, e.Seq); return nil })
		var lost *LostError
		switch inOrBefore := from < 9; {
		case inOrBefore && (!errors.As(err, &lost) || lost.First != max(from, 5) || lost.End != 9 || !slices.Equal(got, sequence(from, 5, nil))):
			t.Fatalf("Read(%d) delivers %v and says %v", from, got, err)
		case !inOrBefore && (err != nil || !slices.Equal(got, sequence(from, 13, nil))):
			t.Fatalf("Read(%d) delivers %v and says %v", from, got, err)
		}
	}
	mustWrite(t, l, Record{Queue: 7, Type: 3, Body: bodyFor(13, rotSize(13))})
	mustClose(t, l)
	// The next repair does not lose the same records again, and holes stay in place.
	d = d.clone()
	d.files[segmentName(1)].mem[headerSize+4] ^= 1
	r, err := check(d)
	if err != nil || r.GivenUp != 4 || !slices.Equal(lostIn(r), []uint64{1}) {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, err := repair(d, "sim", SkipDamaged, RepairOptions{}, time.Unix(2, 0)); err != nil {
		t.Fatal(err)
	}
	if r, err = check(d); err != nil || !r.Sound() || r.GivenUp != 5 || r.Records != 8 || r.First != 1 || r.Next != 14 {
		t.Fatalf("%+v, %v", r, err)
	}
}

// TestVerifyReportsWhatIsThere compares a report with a log that was just written and
// then killed.
func TestVerifyReportsWhatIsThere(t *testing.T) {
	d, end := rolled(t)
	_, b := d.lastSegment()
	used := usedBytes(b)
	torn := (used + 2*recordAlign - 1) &^ (recordAlign - 1)
	copy(b[torn:], "half a record")
	r, err := check(d)
	if err != nil || !r.Sound() || r.First != 1 || r.Next != end || r.Records != end-1 || r.Bytes != 3*minSegmentBytes {
		t.Fatalf("%+v, %v", r, err)
	}
	if len(r.Segments) != 3 || r.Segments[1].State != Sealed || r.Segments[1].First != r.Segments[0].Next {
		t.Fatalf("segments %+v", r.Segments)
	}
	last := r.Segments[2]
	if last.State != Active || last.Next != end || last.TornAt < int64(used) || last.TornAt > int64(torn) ||
		last.TornAt+last.TornBytes != int64(torn+len("half a record")) {
		t.Fatalf("the last segment: %+v, used %d, torn from %d on", last, used, torn)
	}
}

// TestVerifyTellsHowFarItIs: Verify reports its progress, and ends if the callback
// returns an error.
func TestVerifyTellsHowFarItIs(t *testing.T) {
	d, _ := rolled(t)
	var steps []int64
	c := checker{disk: d, progress: func(done, total int64) error {
		if total != 3*minSegmentBytes || done < 0 || done > total {
			t.Errorf("%d of %d", done, total)
		}
		steps = append(steps, done)
		return nil
	}}
	if err := c.checkAll(); err != nil || len(steps) < 3 || !slices.IsSorted(steps) {
		t.Fatalf("steps %v, %v", steps, err)
	}
	c = checker{disk: d, progress: func(int64, int64) error { return errInjected }}
	if err := c.checkAll(); err != errInjected {
		t.Fatalf("stopped with %v", err)
	}
}

// sickFile refuses to read some bytes, like a disk with a bad sector.
type sickFile struct {
	file
	from, to int64
}

func (f sickFile) ReadAt(b []byte, off int64) (int, error) {
	if off < f.to && off+int64(len(b)) > f.from {
		return 0, syscall.EIO
	}
	return f.file.ReadAt(b, off)
}

type sickDisk struct {
	*simDisk
	name     string
	from, to int64
}

func (d sickDisk) open(name string, how access) (file, error) {
	f, err := d.simDisk.open(name, how)
	if name == d.name && err == nil {
		f = sickFile{f, d.from, d.to}
	}
	return f, err
}

// rename removes the bad sector with the replaced file.
func (d *sickDisk) rename(from, to string) error {
	if to == d.name {
		d.from, d.to = 0, 0
	}
	return d.simDisk.rename(from, to)
}

// TestUnreadableSectorsCostOnlyTheirRecords has a page that the disk cannot read.
func TestUnreadableSectorsCostOnlyTheirRecords(t *testing.T) {
	sim, end := rolled(t)
	d := &sickDisk{simDisk: sim, name: segmentName(2), from: headerSize + 512, to: headerSize + 1024}
	c := checker{disk: d}
	if err := c.checkAll(); err != nil {
		t.Fatal(err)
	}
	r := c.report("sim")
	gone := lostIn(r)
	if len(gone) == 0 || r.Records+uint64(len(gone)) != end-1 {
		t.Fatalf("%+v", r)
	}
	if _, err := repair(d, "sim", SkipDamaged, RepairOptions{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if got, _, err := survivors(sim, rollSize); err != nil || !slices.Equal(got, sequence(1, end, gone)) {
		t.Fatalf("%v are left, %v were lost; %v", got, gone, err)
	}
}

// TestLongFakesAreNotSearchedForEver hides the starts of very long records in a damaged
// range.
func TestLongFakesAreNotSearchedForEver(t *testing.T) {
	const size = 4 << 20
	b := make([]byte, size)
	for off := 0; off+recordHeaderSize < len(b)/2; off += recordHeaderSize {
		f := frame{seq: 5}
		putFrame(b[off:off+recordHeaderSize], 1, int64(off), f)
		b[off+5], b[off+6], b[off] = 0xff, 0x1f, b[off]^1 // two MiB
	}
	s := sieve{seed: 1, budget: 8 * size}
	for off := 0; off < len(b); off += recordAlign {
		if _, ok := s.take(b[off:], int64(off), 5); ok {
			t.Fatal("a fake was taken")
		}
	}
	if s.budget < -2<<20 || s.budget > 2<<20 {
		t.Fatalf("the budget ended at %d", s.budget)
	}
}

// TestVerifyBesideTrim removes segments while an open log is examined.
func TestVerifyBesideTrim(t *testing.T) {
	forEachWriter(t, func(t *testing.T, cfg Config) {
		l := mustOpen(t, cfg)
		fill := func(n int) {
			for range n {
				mustWrite(t, l, Record{Body: bodyFor(l.Next(), 4000)})
			}
		}
		fill(100)
		trimmed := false
		r, err := l.Verify(func(int64, int64) error {
			if trimmed {
				return nil
			}
			trimmed = true
			err := l.Trim(l.Next() - 20)
			fill(60) // overwrites the recycled files
			return err
		})
		if err != nil || !trimmed || len(r.Damage) != 0 || r.First != l.First() {
			t.Fatalf("%+v, %v", r, err)
		}
		if r, err = l.Verify(nil); err != nil || r.Records != l.Next()-l.First() || r.Next != l.Next() {
			t.Fatalf("%+v, %v; the log holds %d to %d", r, err, l.First(), l.Next())
		}
		mustClose(t, l)
		if _, err := l.Verify(nil); !errors.Is(err, ErrClosed) {
			t.Fatalf("Verify of a closed log: %v", err)
		}
	})
}

// TestGroupsAreTakenOnlyAsTheyMustBe breaks one rule of a group at a time, with correct
// checksums.
func TestGroupsAreTakenOnlyAsTheyMustBe(t *testing.T) {
	type frames struct {
		a, b frame // the records 3 and 4 behind a complete group of two, epoch 5
		c    commit
		end  frame // carries c
	}
	for _, test := range []struct {
		name  string
		spoil func(*frames)
		taken bool
	}{
		{"as it must be", func(*frames) {}, true},
		{"a later epoch", func(f *frames) { f.b.epoch++; f.end.epoch++ }, true},
		{"a reserved flag", func(f *frames) { f.a.flags = 2 }, false},
		{"a control type that is not known", func(f *frames) { f.a.flags, f.a.kind = flagControl, 9 }, false},
		{"a sequence again", func(f *frames) { f.b.seq = 3 }, false},
		{"a sequence left out", func(f *frames) { f.b.seq = 5 }, false},
		{"another first sequence", func(f *frames) { f.a.seq, f.b.seq, f.c.first, f.end.seq = 4, 5, 4, 6 }, false},
		{"an epoch that goes back", func(f *frames) { f.b.epoch-- }, false},
		{"a commit of an earlier epoch", func(f *frames) { f.end.epoch-- }, false},
		{"a commit of more records", func(f *frames) { f.c.count, f.end.seq = 3, 6 }, false},
		{"a commit of fewer records", func(f *frames) { f.c.count, f.end.seq = 1, 4 }, false},
		{"a commit from another sequence on", func(f *frames) { f.c.first, f.c.count, f.c.durable = 4, 1, 3 }, false},
		{"a commit of as many later records", func(f *frames) { f.c.first, f.end.seq = 4, 6 }, false},
		{"a commit of other records", func(f *frames) { f.c.crcs ^= 1 }, false},
		{"a commit behind another one", func(f *frames) { f.c.prev += 8 }, false},
		{"a commit whose sums do not agree", func(f *frames) { f.end.seq++ }, false},
		{"a commit that promises itself", func(f *frames) { f.c.durable = 5 }, false},
		{"a commit with a longer body", func(f *frames) { f.end.body = make([]byte, 40) }, false},
		{"a hole inside", func(f *frames) { f.b = hole{first: 4, end: 5}.frame(5) }, false},
		{"a hole over what is in front of it", func(f *frames) { f.b = hole{first: 3, end: 5}.frame(5) }, false},
		{"a hole in front", func(f *frames) {
			f.a = hole{first: 3, end: 4}.frame(5)
			f.c.first, f.c.count, f.c.crcs = 4, 1, 0
		}, true},
		{"a hole that starts elsewhere", func(f *frames) {
			f.a = hole{first: 2, end: 4}.frame(5)
			f.c.first, f.c.count, f.c.crcs = 4, 1, 0
		}, false},
		{"a hole of nothing", func(f *frames) {
			f.a = hole{first: 3, end: 3}.frame(5)
			f.b.seq = 3
			f.c.count, f.c.crcs, f.end.seq = 1, 0, 4
		}, false},
		{"a hole of an earlier epoch", func(f *frames) {
			f.a = hole{first: 3, end: 4}.frame(4)
			f.c.first, f.c.count, f.c.crcs = 4, 1, 0
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := mender{seg: &segment{id: 1, base: 1, size: minSegmentBytes, seed: 7}, off: headerSize, start: headerSize, next: 1, epoch: 5, g: group{first: 1}}
			for seq := uint64(1); seq <= 2; seq++ {
				if err := m.putRecord(frame{epoch: 5, seq: seq}); err != nil {
					t.Fatal(err)
				}
			}
			m.closeGroup()
			before := m.off
			f := frames{
				a: frame{epoch: 5, seq: 3, body: []byte("a")}, b: frame{epoch: 5, seq: 4, body: []byte("b")},
				c:   commit{first: 3, count: 2, prev: uint64(m.commit), durable: 3},
				end: frame{kind: controlCommit, flags: flagControl, epoch: 5, seq: 5},
			}
			test.spoil(&f)
			var crcs uint32
			for _, r := range []frame{f.a, f.b} {
				if crc := m.put(r); r.flags != flagControl {
					crcs = foldCRC(crcs, crc)
				}
			}
			f.c.crcs ^= crcs // the bits that the test set are wrong
			if f.end.body == nil {
				f.end.body = f.c.append(nil)
			}
			m.put(f.end)
			b := append(make([]byte, headerSize), m.buf...)
			tl, err := findTail(bytes.NewReader(append(b, make([]byte, footerSize)...)), &segment{id: 1, base: 1, size: int64(len(b)) + footerSize, seed: 7}, 5)
			if err != nil {
				t.Fatal(err)
			}
			if taken := tl.off == m.off; taken != test.taken || !taken && tl.next > 4 {
				t.Fatalf("the tail is at %d of %d, behind the first group is %d; next is %d", tl.off, m.off, before, tl.next)
			}
		})
	}
}

// TestReadTakesOnlyTheNextRecord replaces a record by intact frames of other sequences.
func TestReadTakesOnlyTheNextRecord(t *testing.T) {
	for name, f := range map[string]frame{
		"another record":        {epoch: 1, seq: 7, body: []byte("x")},
		"a hole for other ones": hole{first: 2, end: 4}.frame(1),
	} {
		d := newSimDisk()
		l, err := openSim(d)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			mustWrite(t, l, Record{Body: []byte("x")})
		}
		d.mu.Lock()
		b := d.files[segmentName(1)].mem
		n := int64(frameSize(len(f.body)))
		putFrame(b[headerSize:headerSize+n], l.segs[0].seed, headerSize, f)
		d.mu.Unlock()
		var rot *CorruptError
		if got, err := readAll(l, 1); !errors.As(err, &rot) || rot.Offset != headerSize || len(got) != 0 {
			t.Errorf("%s: Read delivers %v and says %v", name, got, err)
		}
		mustClose(t, l)
	}
}
