package queue

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wheelworkhq/wheelwork/mq"
)

// lastSegment returns the file with the end of the log in dir.
func lastSegment(t *testing.T, dir string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "log", "*.seg"))
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	return names[len(names)-1]
}

// recordOffsets returns the offsets of all records and commits in the last segment, and the end.
func recordOffsets(t *testing.T, q *Queue) []int {
	t.Helper()
	b, err := os.ReadFile(lastSegment(t, q.cfg.Dir))
	if err != nil {
		t.Fatal(err)
	}
	var out []int
	for at := 4096; at+24 < len(b); {
		out = append(out, at)
		if binary.LittleEndian.Uint64(b[at+16:]) == 0 {
			break
		}
		at += (24 + int(binary.LittleEndian.Uint32(b[at+4:])) + 7) &^ 7
	}
	return out
}

// zeroFrom clears the last segment from an offset on, as if nothing behind it had been
// written.
func zeroFrom(t *testing.T, dir string, at int) {
	t.Helper()
	name := lastSegment(t, dir)
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	clear(b[at:])
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestCrashAtEveryRecord cuts a history behind each of its records, with and without the
// derived files. The queue must then hold all messages that were published, and not
// acknowledged, before the cut.
func TestCrashAtEveryRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := small(t.TempDir())
		q := open(t, cfg)
		type state struct{ published, done, dead int }
		history := map[uint64]state{} // by the sequence behind the record
		var now state
		note := func() {
			if err := q.Sync(); err != nil {
				t.Fatal(err)
			}
			history[q.log.Next()] = now
		}
		c := consumer(t, q, "a", "g")
		note()
		for i := range 9 {
			publish(t, q, msg("a", fmt.Sprint(i%3), fmt.Sprint(i)))
			now.published++
			note()
			if i%2 == 0 {
				continue
			}
			ds := fetch(t, c, 1)
			switch i % 3 {
			case 0:
				nack(t, c, ds[0], true)
				now.done++
				now.dead++
			case 1:
				ack(t, c, ds[0])
				now.done++
			case 2:
				nack(t, c, ds[0], false)
			}
			note()
		}
		if err := q.snapshot(); err != nil {
			t.Fatal(err)
		}
		cuts := 0
		for _, at := range recordOffsets(t, q) {
			for _, keep := range []bool{true, false} {
				dir := crash(t, q)
				if !keep {
					if err := os.RemoveAll(filepath.Join(dir, "index")); err != nil {
						t.Fatal(err)
					}
				}
				zeroFrom(t, dir, at)
				cut := open(t, small(dir))
				want, known := history[cut.log.Next()]
				if known {
					cuts++
					s := cut.Stats()
					g := s.Topics[0].Groups[0]
					if s.Topics[0].Next != uint64(want.published) || int(g.Lag) != want.published-want.done || s.Dead != want.dead {
						t.Fatalf("cut at %d (record %d): %+v, want %+v", at, cut.log.Next(), g, want)
					}
					c := consumer(t, cut, "a", "g")
					time.Sleep(time.Hour)
					for range g.Lag {
						ack(t, c, fetch(t, c, 1)...)
					}
					none(t, c)
				}
				if err := cut.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if cuts < len(history) {
			t.Fatalf("%d cuts for %d states", cuts, len(history))
		}
	})
}

// summary returns the contents of a queue as text, for comparisons.
func summary(t *testing.T, q *Queue) string {
	t.Helper()
	s := q.Stats()
	out := fmt.Sprintf("dead %d\n", s.Dead)
	for _, ts := range s.Topics {
		out += fmt.Sprintf("topic %s %d-%d\n", ts.Name, ts.First, ts.Next)
		for _, g := range ts.Groups {
			g.Acked, g.Failed, g.Oldest = 0, 0, 0
			out += fmt.Sprintf("group %+v\n", g)
		}
		vs, err := q.Peek(ts.Name, 0, 5000)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range vs {
			out += fmt.Sprintf("%d %d %s\n", v.Position, v.ID, v.Body)
		}
	}
	return out
}

func TestDerivedFiles(t *testing.T) {
	q := open(t, small(t.TempDir()))
	c := consumer(t, q, "a", "g")
	consumer(t, q, "b", "idle")
	for i := range 900 {
		publish(t, q, msg("a", fmt.Sprint(i%7), fmt.Sprint("a", i)), msg("b", "", fmt.Sprint("b", i)))
	}
	for i := range 90 {
		ds := fetch(t, c, 7)
		switch {
		case i == 40:
			nack(t, c, ds[0], true)
			ack(t, c, ds[1:]...)
		case i%2 == 0:
			ack(t, c, ds...)
		default:
			c.giveBack(ds)
		}
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	q = open(t, q.cfg)
	before := summary(t, q)
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(q.cfg.Dir, "index", "*"))
	if err != nil || len(names) != 3 {
		t.Fatalf("derived files: %v, %v", names, err)
	}
	type harm struct {
		name string
		do   func(file string) error
	}
	harms := []harm{{"gone", os.Remove}, {"empty", func(f string) error { return os.Truncate(f, 0) }}}
	for _, at := range []int{9, 100, 4095, 9000} {
		harms = append(
			harms,
			harm{fmt.Sprint("flip ", at), func(f string) error { return flip(f, at) }},
			harm{fmt.Sprint("cut ", at), func(f string) error { return cut(f, at) }},
		)
	}
	for _, name := range names {
		for _, h := range harms {
			t.Run(filepath.Base(name)+" "+h.name, func(t *testing.T) {
				cfg := small(t.TempDir())
				if err := os.CopyFS(cfg.Dir, os.DirFS(q.cfg.Dir)); err != nil {
					t.Fatal(err)
				}
				if err := h.do(filepath.Join(cfg.Dir, "index", filepath.Base(name))); err != nil {
					t.Fatal(err)
				}
				r := open(t, cfg)
				if after := summary(t, r); after != before {
					t.Fatalf("before:\n%.2000s\nafter:\n%.2000s", before, after)
				}
				if filepath.Ext(name) == indexSuffix && h.name == "gone" && r.Stats().Repaired == 0 {
					t.Fatal("nothing was repaired, the file is not used")
				}
			})
		}
	}
}

func TestSnapshotOfAnotherLog(t *testing.T) {
	q := open(t, small(t.TempDir()))
	publish(t, q, msg("a", "", "1"))
	other := open(t, small(t.TempDir()))
	for range 5 {
		publish(t, other, msg("b", "", "2"))
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(other.cfg.Dir, "index", "state"), filepath.Join(q.cfg.Dir, "index", "state")); err != nil {
		t.Fatal(err)
	}
	q = open(t, q.cfg) // the snapshot is ahead of the log
	want(t, fetch(t, consumer(t, q, "a", "g"), 10), "1")
}

func TestLogOfAnotherKind(t *testing.T) {
	cfg := small(t.TempDir())
	if err := cfg.validate(); err != nil {
		t.Fatal(err)
	}
	l, err := mq.Open(cfg.Log)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append([]mq.Record{{Type: 200, Body: []byte("x")}}, nil); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if q, err := Open(small(cfg.Dir)); err == nil {
		_ = q.Close()
		t.Fatal("a log with records of an unknown kind was opened")
	}
}
