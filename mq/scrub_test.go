package mq

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// scrubbed opens a log of three segments, two of them sealed, on a simulated disk, with a
// scrubber.
func scrubbed(t *testing.T, rate int64, logs io.Writer) (*Log, *simDisk, *scrubber, *[]*CorruptError) {
	t.Helper()
	d := newSimDisk()
	cfg := small("sim")
	cfg.Logger = slog.New(slog.NewTextHandler(logs, nil))
	told := new([]*CorruptError)
	cfg.ScrubBytesPerSecond, cfg.OnCorrupt = rate, func(e *CorruptError) { *told = append(*told, e) }
	if err := cfg.validate(); err != nil {
		t.Fatal(err)
	}
	l, err := open(cfg, d, func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	for l.Stats().Segments < 3 {
		mustWrite(t, l, Record{Body: bodyFor(l.Next(), 3000)})
	}
	return l, d, l.scrub, told
}

func flip(d *simDisk, name string, off int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files[name].mem[off] ^= 1
}

// TestScrubFindsRotOnce damages a sealed segment between two passes. The log reports it,
// continues, and forgets it with the segment.
func TestScrubFindsRotOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logs bytes.Buffer
		l, d, s, told := scrubbed(t, defaultScrubRate, &logs)
		time.Sleep(scrubDelay + time.Minute) // fake time
		synctest.Wait()
		if n, passes := s.counts(); passes != 1 || n < 2*minSegmentBytes || len(s.corruption()) != 0 {
			t.Fatalf("after one pass over a sound log: %d bytes, %d passes, %v", n, passes, s.corruption())
		}
		flip(d, segmentName(1), headerSize+100)
		for range 3 { // further passes report nothing new
			time.Sleep(scrubPause + time.Minute)
			synctest.Wait()
		}
		got := s.corruption()
		if len(got) != 1 || got[0].Segment != segmentName(1) || got[0].Offset != headerSize || got[0].Dir != "sim" {
			t.Fatalf("found %v", got)
		}
		if len(*told) != 1 || (*told)[0].Segment != segmentName(1) || strings.Count(logs.String(), "level=ERROR") != 1 {
			t.Fatalf("told %v, logged %s", *told, logs.String())
		}
		mustWrite(t, l, Record{Body: []byte("the log goes on")})
		if err := l.Err(); err != nil {
			t.Fatal(err)
		}
		if st := l.Stats(); len(l.Corruption()) != 1 || st.Corrupt != 1 || st.Passes != 4 || st.Scrubbed == 0 {
			t.Fatalf("corruption %v, stats %+v", l.Corruption(), st)
		}
		if err := l.Trim(l.Next()); err != nil {
			t.Fatal(err)
		}
		if l.Stats().Recycled != 1 || len(l.Corruption()) != 0 || !strings.Contains(logs.String(), "level=WARN") {
			t.Fatalf("after trimming: %v, logged %s", s.corruption(), logs.String())
		}
		mustClose(t, l)
		<-s.ended
	})
}

// TestScrubSeesEveryPartOfASegment damages the header and the footer, which hold no
// record.
func TestScrubSeesEveryPartOfASegment(t *testing.T) {
	for _, off := range []int{20, headerUsed - 2, headerSize, headerSize + 3000, minSegmentBytes - footerSize, minSegmentBytes - 1} {
		synctest.Test(t, func(t *testing.T) {
			l, d, s, _ := scrubbed(t, defaultScrubRate, io.Discard)
			flip(d, segmentName(2), off)
			time.Sleep(scrubDelay + time.Minute)
			synctest.Wait()
			if got := s.corruption(); len(got) != 1 || got[0].Segment != segmentName(2) {
				t.Fatalf("flip at %d: found %v", off, got)
			}
			mustClose(t, l)
			<-s.ended
		})
	}
}

// TestScrubKeepsItsRate uses the fake clock: reading two segments of 64 KiB at 64 KiB per
// second takes at least two seconds.
func TestScrubKeepsItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, s, _ := scrubbed(t, 64<<10, io.Discard)
		start := time.Now()
		time.Sleep(scrubDelay)
		for passes := uint64(0); passes == 0; _, passes = s.counts() {
			if time.Since(start) > scrubPause/2 {
				t.Fatal("the first pass does not end")
			}
			time.Sleep(time.Second / 10)
			synctest.Wait()
		}
		n, _ := s.counts()
		took := time.Since(start) - scrubDelay
		if slowest := time.Duration(n) * time.Second / (64 << 10); n < 2*minSegmentBytes || took < slowest {
			t.Fatalf("%d bytes took %v, at the rate it is %v", n, took, slowest)
		}
		mustClose(t, l)
		<-s.ended
	})
}

// TestScrubRests: the scrubber does nothing if it is switched off or if no segment is
// sealed, and Close does not wait for its rate.
func TestScrubRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, off, _ := scrubbed(t, -1, io.Discard)
		<-off.ended
		if err := l.Trim(l.Next()); err != nil {
			t.Fatal(err)
		}
		s := newScrubber(l, defaultScrubRate, nil)
		go s.run()
		time.Sleep(10 * scrubPause)
		synctest.Wait()
		if n, passes := s.counts(); n != 0 || passes != 0 {
			t.Fatalf("%d bytes and %d passes with nothing to read", n, passes)
		}
		mustClose(t, l)
		<-s.ended
	})
	synctest.Test(t, func(t *testing.T) {
		l, _, s, told := scrubbed(t, 1, io.Discard) // one window takes days
		time.Sleep(scrubDelay + time.Hour)
		start := time.Now()
		mustClose(t, l)
		<-s.ended
		if time.Since(start) != 0 || len(*told) != 0 || len(s.corruption()) != 0 {
			t.Fatalf("ended after %v with %v", time.Since(start), s.corruption())
		}
	})
}

// TestScrubbedSegmentMayBeTrimmed trims a segment while it is read, so that its file is
// recycled and overwritten. That is not damage.
func TestScrubbedSegmentMayBeTrimmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, s, _ := scrubbed(t, 8<<10, io.Discard)
		time.Sleep(scrubDelay + time.Second)
		if err := l.Trim(l.Next()); err != nil {
			t.Fatal(err)
		}
		for l.Stats().Segments < 4 {
			mustWrite(t, l, Record{Body: bodyFor(l.Next(), 3000)})
		}
		if l.Stats().Recycled == 0 {
			t.Fatal("nothing was recycled")
		}
		time.Sleep(scrubPause)
		synctest.Wait()
		if got := s.corruption(); len(got) != 0 {
			t.Fatalf("found %v", got)
		}
		mustClose(t, l)
		<-s.ended
	})
}

// TestScrubReadsTheDevice runs a pass over real files, around the page cache where the file system allows it.
func TestScrubReadsTheDevice(t *testing.T) {
	forEachWriter(t, func(t *testing.T, cfg Config) {
		l := mustOpen(t, cfg)
		for l.Stats().Segments < 4 {
			mustWrite(t, l, Record{Body: bodyFor(l.Next(), 3000)})
		}
		s := newScrubber(l, 1<<40, nil)
		s.pass()
		if n, passes := s.counts(); passes != 1 || n < 3*minSegmentBytes || len(s.corruption()) != 0 {
			t.Fatalf("%d bytes, %d passes, %v", n, passes, s.corruption())
		}
		f, err := os.OpenFile(filepath.Join(cfg.Dir, segmentName(2)), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteAt([]byte("rot"), headerSize+1000)
		if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
		s.pass()
		if got := s.corruption(); len(got) != 1 || got[0].Segment != segmentName(2) {
			t.Fatalf("found %v", got)
		}
		r, err := l.Verify(nil)
		if err != nil || len(r.Damage) != 1 || r.Damage[0].Segment != segmentName(2) || r.Segments[1].State != Damaged || r.Segments[3].State != Active {
			t.Fatalf("Verify of the open log: %+v, %v", r, err)
		}
	})
}
