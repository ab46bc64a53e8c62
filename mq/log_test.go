package mq

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// small is a log with the smallest segments.
func small(dir string) Config {
	return Config{Dir: dir, SegmentBytes: minSegmentBytes, Writer: "pwrite", ReserveBytes: -1}
}

func mustOpen(t testing.TB, cfg Config) *Log {
	t.Helper()
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// openSim opens a log on a simulated disk.
func openSim(d *simDisk) (*Log, error) {
	cfg := small("sim")
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return open(cfg, d, func() error { return nil })
}

// write appends recs and waits until they are durable.
func write(l *Log, recs ...Record) (uint64, error) {
	done := make(chan error, 1)
	first, err := l.Append(recs, func(err error) { done <- err })
	if err != nil {
		return 0, err
	}
	return first, <-done
}

func mustWrite(t testing.TB, l *Log, recs ...Record) uint64 {
	t.Helper()
	first, err := write(l, recs...)
	if err != nil {
		t.Fatal(err)
	}
	return first
}

func mustClose(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// bodyFor returns the body of record seq in tests that check all bytes: n bytes that
// depend on seq.
func bodyFor(seq uint64, n int) []byte {
	b := make([]byte, n)
	for i := 0; i+8 <= n; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], seq*0x9E3779B97F4A7C15+uint64(i))
	}
	return b
}

func readAll(l *Log, from uint64) ([]Entry, error) {
	var all []Entry
	err := l.Read(from, func(e Entry) error {
		e.Body = bytes.Clone(e.Body)
		all = append(all, e)
		return nil
	})
	return all, err
}

// allWriters returns the writers, which must all behave the same.
func allWriters() []string {
	if runtime.GOOS == "linux" {
		return []string{"pwrite", "direct", "mmap", "auto"}
	}
	return []string{"pwrite", "auto"}
}

func forEachWriter(t *testing.T, f func(*testing.T, Config)) {
	for _, w := range allWriters() {
		t.Run(w, func(t *testing.T) {
			cfg := small(t.TempDir())
			cfg.Writer = w
			f(t, cfg)
		})
	}
}

func TestRecordsComeBackAsTheyWere(t *testing.T) {
	forEachWriter(t, func(t *testing.T, cfg Config) {
		l := mustOpen(t, cfg)
		var want []Entry
		for i := range 300 { // about five segments
			n := i * 7 % 2000
			recs := []Record{{Queue: uint32(i), Type: uint8(i), Body: bodyFor(uint64(i), n)}, {Queue: 1 << 31, Type: 255}}
			first := mustWrite(t, l, recs...)
			for k, r := range recs {
				want = append(want, Entry{first + uint64(k), r.Queue, r.Type, r.Body})
			}
		}
		check := func(l *Log) {
			t.Helper()
			for _, from := range []uint64{1, 2, 300, 599, 600, 601} {
				got, err := readAll(l, from)
				if err != nil {
					t.Fatalf("Read(%d): %v", from, err)
				}
				if err := sameEntries(got, want[from-1:]); err != nil {
					t.Fatalf("Read(%d): %v", from, err)
				}
			}
		}
		check(l)
		if s := l.Stats(); s.Segments < 3 || s.Next != 601 || s.Durable != 601 || s.First != 1 {
			t.Fatalf("stats: %+v", s)
		}
		mustClose(t, l)
		l = mustOpen(t, cfg)
		check(l)
		if first := mustWrite(t, l, Record{}); first != 601 {
			t.Fatalf("first = %d after reopening, want 601", first)
		}
	})
}

func sameEntries(got, want []Entry) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d entries, want %d", len(got), len(want))
	}
	for i, w := range want {
		if g := got[i]; g.Seq != w.Seq || g.Queue != w.Queue || g.Type != w.Type || !bytes.Equal(g.Body, w.Body) {
			return fmt.Errorf("entry %d is %+v, want %+v", i, g, w)
		}
	}
	return nil
}

func TestCallbacksComeOnceInAppendOrder(t *testing.T) {
	forEachWriter(t, func(t *testing.T, cfg Config) {
		l := mustOpen(t, cfg)
		const producers, each = 8, 200
		var mu sync.Mutex
		var order []uint64
		var wg sync.WaitGroup
		for range producers {
			wg.Go(func() {
				for range each {
					var first uint64
					staged := make(chan struct{})
					done := make(chan error, 1)
					first, err := l.Append([]Record{{Body: make([]byte, 100)}}, func(err error) {
						<-staged
						mu.Lock()
						order = append(order, first)
						mu.Unlock()
						done <- err
					})
					close(staged)
					if err == nil {
						err = <-done
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		if len(order) != producers*each {
			t.Fatalf("%d callbacks, want %d", len(order), producers*each)
		}
		for i, seq := range order {
			if seq != uint64(i+1) {
				t.Fatalf("callback %d was for sequence %d", i, seq)
			}
		}
	})
}

func TestEmptyUnitIsABarrier(t *testing.T) {
	l := mustOpen(t, small(t.TempDir()))
	if _, err := l.AppendLazy([]Record{{Body: []byte("lazy")}}); err != nil {
		t.Fatal(err)
	}
	if first := mustWrite(t, l); first != 2 || l.Durable() != 2 {
		t.Fatalf("first %d, durable %d, want 2 and 2", first, l.Durable())
	}
}

func TestLazyRecordsGoOutByThemselves(t *testing.T) {
	for _, policy := range []SyncPolicy{Always, Interval, OS} {
		t.Run(policy.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newSimDisk()
				cfg := small("sim")
				cfg.Sync = policy
				if err := cfg.validate(); err != nil {
					t.Fatal(err)
				}
				l, err := open(cfg, d, func() error { return nil })
				if err != nil {
					t.Fatal(err)
				}
				if _, err := l.AppendLazy([]Record{{Body: []byte("x")}}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if l.Durable() != 1 {
					t.Fatal("a lazy record was flushed at once")
				}
				time.Sleep(2 * lazyDelay) // fake time
				synctest.Wait()
				if l.Durable() != 2 {
					t.Fatal("a lazy record was not flushed")
				}
				mustClose(t, l)
			})
		})
	}
}

func TestIdleLogSleeps(t *testing.T) {
	for _, policy := range []SyncPolicy{Always, Interval, OS} {
		t.Run(policy.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newSimDisk()
				cfg := small("sim")
				cfg.Sync = policy
				if err := cfg.validate(); err != nil {
					t.Fatal(err)
				}
				l, err := open(cfg, d, func() error { return nil })
				if err != nil {
					t.Fatal(err)
				}
				mustWrite(t, l, Record{Body: []byte("x")})
				time.Sleep(10 * lazyDelay) // fake time
				synctest.Wait()
				calls := 0
				d.mu.Lock()
				d.onSync = func() error { calls++; return nil }
				d.onWrite = d.onSync
				d.mu.Unlock()
				time.Sleep(time.Hour)
				synctest.Wait()
				if calls != 0 {
					t.Fatalf("%d disk calls in an idle hour", calls)
				}
				mustClose(t, l)
			})
		})
	}
}

func TestTooLargeStagesNothing(t *testing.T) {
	cfg := small(t.TempDir())
	cfg.MaxRecordBytes = 1000
	l := mustOpen(t, cfg)
	for _, recs := range [][]Record{
		{{Body: make([]byte, 10)}, {Body: make([]byte, 1001)}},
		make([]Record, minSegmentBytes/recordHeaderSize),
	} {
		if _, err := l.Append(recs, nil); !errors.Is(err, ErrTooLarge) {
			t.Fatalf("err = %v, want ErrTooLarge", err)
		}
	}
	if l.Next() != 1 {
		t.Fatalf("next = %d", l.Next())
	}
	whole := make([]Record, (minSegmentBytes-headerSize-footerSize-commitSize)/recordHeaderSize)
	mustWrite(t, l, whole...) // exactly one segment
	mustWrite(t, l, whole...)
	if got, err := readAll(l, 1); err != nil || len(got) != 2*len(whole) {
		t.Fatalf("%d records, %v", len(got), err)
	}
}

func TestLockNamesTheHolder(t *testing.T) {
	cfg := small(t.TempDir())
	l := mustOpen(t, cfg)
	_, err := Open(cfg)
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Fatalf("err = %v, want ErrLocked with the pid", err)
	}
	mustClose(t, l)
	mustClose(t, mustOpen(t, cfg))
}

func TestClosedLogRefuses(t *testing.T) {
	l := mustOpen(t, small(t.TempDir()))
	if _, err := l.AppendLazy([]Record{{Body: []byte("kept")}}); err != nil {
		t.Fatal(err)
	}
	mustClose(t, l)
	if l.Durable() != 2 {
		t.Fatal("Close left a lazy record behind")
	}
	if _, err := l.Append(nil, nil); !errors.Is(err, ErrClosed) {
		t.Fatalf("Append: %v", err)
	}
	if err := l.Read(1, nil); !errors.Is(err, ErrClosed) {
		t.Fatalf("Read: %v", err)
	}
	if err := l.Trim(1); !errors.Is(err, ErrClosed) {
		t.Fatalf("Trim: %v", err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, cfg := range []Config{
		{},
		{Dir: "x", SegmentBytes: 4096},
		{Dir: "x", SegmentBytes: 1<<20 + 1},
		{Dir: "x", Writer: "fast"},
		{Dir: "x", Sync: 3},
		{Dir: "x", SegmentBytes: 1 << 20, MaxRecordBytes: 1 << 20},
	} {
		if err := cfg.validate(); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
}

func TestTrimRecyclesAndReadsStayWhole(t *testing.T) {
	forEachWriter(t, func(t *testing.T, cfg Config) {
		l := mustOpen(t, cfg)
		body := func(seq uint64) []byte { return bodyFor(seq, 4000) }
		next := uint64(1)
		fill := func(n int) {
			for range n {
				mustWrite(t, l, Record{Body: body(next)})
				next++
			}
		}
		fill(100)
		ctx, cancel := context.WithCancel(t.Context())
		var reader sync.WaitGroup
		reader.Go(func() {
			for ctx.Err() == nil {
				err := l.Read(l.First(), func(e Entry) error {
					if !bytes.Equal(e.Body, body(e.Seq)) {
						return fmt.Errorf("record %d has the wrong body", e.Seq)
					}
					return nil
				})
				if err != nil && !errors.Is(err, ErrTrimmed) {
					t.Error(err)
					return
				}
			}
		})
		for range 20 {
			fill(30)
			if err := l.Trim(next - 20); err != nil {
				t.Fatal(err)
			}
		}
		cancel()
		reader.Wait()
		s := l.Stats()
		if s.Segments > 4 || s.First == 1 || s.Spares > maxSpares {
			t.Fatalf("after trimming: %+v", s)
		}
		if err := l.Read(1, nil); !errors.Is(err, ErrTrimmed) {
			t.Fatalf("Read(1): %v", err)
		}
		if err := l.Read(next+1, nil); !errors.Is(err, ErrBeyondEnd) {
			t.Fatalf("Read beyond the end: %v", err)
		}
		first := l.First()
		mustClose(t, l)
		l = mustOpen(t, cfg)
		got, err := readAll(l, first)
		if err != nil || len(got) != int(next-first) {
			t.Fatalf("%d records after reopening, want %d; %v", len(got), next-first, err)
		}
	})
}

func TestFullDiskIsAnErrorAndTrimHelps(t *testing.T) {
	d := newSimDisk()
	d.free = 3*minSegmentBytes + 100
	l, err := openSim(d)
	if err != nil {
		t.Fatal(err)
	}
	written := uint64(0)
	for {
		if _, err = write(l, Record{Body: make([]byte, 1000)}); err != nil {
			break
		}
		written++
	}
	if !errors.Is(err, ErrFull) || l.Err() != nil {
		t.Fatalf("err = %v, log error %v, want ErrFull", err, l.Err())
	}
	if l.Next() != written+1 || l.Room() > 2000 {
		t.Fatalf("next %d after %d records, room %d", l.Next(), written, l.Room())
	}
	if err := l.Trim(l.Next()); err != nil {
		t.Fatal(err)
	}
	if l.Room() < minSegmentBytes/2 {
		t.Fatalf("room %d after trimming", l.Room())
	}
	if first := mustWrite(t, l, Record{Body: make([]byte, 1000)}); first != written+1 {
		t.Fatalf("first = %d, want %d", first, written+1)
	}
	mustClose(t, l)
}

func TestReserveKeepsSpaceFree(t *testing.T) {
	d := newSimDisk()
	cfg := small("sim")
	cfg.ReserveBytes = 1 << 20
	d.free = 1<<20 + minSegmentBytes/2
	if err := cfg.validate(); err != nil {
		t.Fatal(err)
	}
	if _, err := open(cfg, d, func() error { return nil }); !errors.Is(err, ErrFull) {
		t.Fatalf("err = %v, want ErrFull", err)
	}
	if d.free != 1<<20+minSegmentBytes/2 {
		t.Fatalf("%d bytes are free", d.free)
	}
}

func TestSyncErrorIsFinal(t *testing.T) {
	for _, kind := range []string{"sync", "write"} {
		t.Run(kind, func(t *testing.T) {
			d := newSimDisk()
			l, err := openSim(d)
			if err != nil {
				t.Fatal(err)
			}
			mustWrite(t, l, Record{Body: []byte("safe")})
			for l.Stats().Spares == 0 { // the preparer must not receive the error
				runtime.Gosched()
			}
			once := false
			inject := func() error {
				if once {
					return nil
				}
				once = true
				return errInjected
			}
			d.mu.Lock()
			if kind == "sync" {
				d.onSync = inject
			} else {
				d.onWrite = inject
			}
			d.mu.Unlock()
			if _, err := write(l, Record{Body: []byte("lost")}); !errors.Is(err, errInjected) || !errors.Is(err, ErrReadOnly) {
				t.Fatalf("callback error %v, want ErrReadOnly with its cause", err)
			}
			if _, err := write(l, Record{Body: []byte("late")}); !errors.Is(err, ErrReadOnly) || !errors.Is(err, errInjected) {
				t.Fatalf("Append after the failure: %v", err)
			}
			if !errors.Is(l.Err(), errInjected) {
				t.Fatalf("Err = %v", l.Err())
			}
			if got, err := readAll(l, 1); err != nil || len(got) != 1 || string(got[0].Body) != "safe" {
				t.Fatalf("read %v, %v", got, err)
			}
			if err := l.Close(); !errors.Is(err, errInjected) {
				t.Fatalf("Close = %v", err)
			}
		})
	}
}

func TestConcurrentFailureReachesEveryWaiter(t *testing.T) {
	d := newSimDisk()
	l, err := openSim(d)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	acked, failed := uint64(0), 0
	syncs := 0
	d.mu.Lock()
	d.onSync = func() error {
		if syncs++; syncs > 20 {
			return errInjected
		}
		return nil
	}
	d.mu.Unlock()
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for {
				first, err := write(l, Record{Body: make([]byte, 64)})
				mu.Lock()
				if err != nil {
					failed++
					mu.Unlock()
					return
				}
				acked = max(acked, first)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if failed != 16 || l.Durable() != acked+1 {
		t.Fatalf("%d of 16 waiters failed, durable %d, highest acknowledged %d", failed, l.Durable(), acked)
	}
	_ = l.Close()
}
