package mq

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/testkit"

	"pgregory.net/rapid"
)

// unit is the records that a test appended in one call: count records from first on.
type unit struct {
	first uint64
	count int
}

// checkUnits verifies the state after a crash: no acknowledged record is missing, none
// was invented, every unit is complete.
func checkUnits(l *Log, size func(seq uint64) int, units []unit, acked uint64) error {
	want := l.First()
	err := l.Read(want, func(e Entry) error {
		if e.Seq != want {
			return fmt.Errorf("record %d follows %d", e.Seq, want-1)
		}
		if !bytes.Equal(e.Body, bodyFor(e.Seq, size(e.Seq))) {
			return fmt.Errorf("record %d has a body that nobody wrote", e.Seq)
		}
		want++
		return nil
	})
	if err != nil {
		return err
	}
	if want < acked {
		return fmt.Errorf("the log ends before %d, acknowledged was everything below %d", want, acked)
	}
	for _, u := range units {
		if end := u.first + uint64(u.count); u.first < want && want < end {
			return fmt.Errorf("the log ends before %d, inside the unit %d to %d", want, u.first, end-1)
		}
	}
	return nil
}

// TestPowerCuts runs a log on a disk that loses and tears unsynced writes. It cuts the
// power at a random call and continues with the remaining state, many times.
func TestPowerCuts(t *testing.T) {
	rounds := 400
	if testkit.Long() {
		rounds = 10000
	}
	for _, policy := range []SyncPolicy{Always, Interval, OS} {
		t.Run(policy.String(), func(t *testing.T) {
			for seed := range uint64(rounds / 20) {
				if err := powerCutRun(policy, seed); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
		})
	}
}

func powerCutRun(policy SyncPolicy, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, uint64(policy)))
	size := func(seq uint64) int { return int(seq*2654435761>>3) % 3000 }
	d := newSimDisk()
	var acked uint64
	for round := range 20 {
		cfg := small("sim")
		cfg.Sync = policy
		if err := cfg.validate(); err != nil {
			return err
		}
		l, err := open(cfg, d, func() error { return nil })
		if err != nil {
			return fmt.Errorf("round %d: open: %w", round, err)
		}
		if policy != Always {
			acked = 0 // a power cut may lose records that these policies acknowledged
		}
		if err := checkUnits(l, size, nil, acked); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		units, err := powerCutRound(l, rng, size)
		if err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		// The order matters: a record that is acknowledged before the cut must be there
		// after it.
		acked = l.Durable()
		after := d.crash(rng)
		_ = l.Close()
		d = after
		if err := checkCrashed(d.crash(rng), policy, size, units, acked); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
}

// A cut just before any sync, including those of a seal, leaves a log that opens. A
// footer that reached the disk before its records would look like damage.
func TestPowerCutBeforeEverySync(t *testing.T) {
	for _, policy := range []SyncPolicy{Always, Interval, OS} {
		t.Run(policy.String(), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(policy), 1))
			d := newSimDisk()
			var outcomes []*simDisk
			d.onSync = func() error {
				for range 20 {
					outcomes = append(outcomes, d.crashLocked(rng))
				}
				return nil
			}
			cfg := small("sim")
			cfg.Sync = policy
			if err := cfg.validate(); err != nil {
				t.Fatal(err)
			}
			l, err := open(cfg, d, func() error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			for range 60 { // about three segments
				mustWrite(t, l, Record{Body: bodyFor(l.Next(), 3000)})
			}
			mustClose(t, l)
			for i, after := range outcomes {
				l, err := openSim(after)
				if err != nil {
					t.Fatalf("outcome %d of %d: %v", i, len(outcomes), err)
				}
				mustClose(t, l)
			}
		})
	}
}

// powerCutRound appends and trims for a while and returns while appends are still not
// written.
func powerCutRound(l *Log, rng *rand.Rand, size func(uint64) int) ([]unit, error) {
	var units []unit
	for range rng.IntN(40) {
		first := l.Next()
		recs := make([]Record, 1+rng.IntN(4))
		for i := range recs {
			recs[i].Body = bodyFor(first+uint64(i), size(first+uint64(i)))
		}
		units = append(units, unit{first, len(recs)})
		var err error
		switch rng.IntN(4) {
		case 0:
			_, err = l.AppendLazy(recs)
		case 1:
			_, err = l.Append(recs, nil)
		default:
			_, err = write(l, recs...)
		}
		if err != nil {
			return nil, err
		}
		if rng.IntN(10) == 0 {
			if err := l.Trim(l.Durable() - min(l.Durable(), uint64(rng.IntN(100)))); err != nil {
				return nil, err
			}
		}
	}
	return units, nil
}

// checkCrashed opens a second, independent outcome of the same crash: d has nothing
// unsynced, so it equals the first outcome.
func checkCrashed(d *simDisk, policy SyncPolicy, size func(uint64) int, units []unit, acked uint64) error {
	if policy != Always {
		acked = 0
	}
	l, err := openSim(d)
	if err != nil {
		return fmt.Errorf("open after the cut: %w", err)
	}
	err = checkUnits(l, size, units, acked)
	return errors.Join(err, l.Close())
}

// image returns an unclosed log of a few groups on a simulated disk, with the sequence
// behind the last record and the sequence behind the last group but one.
func image(t *testing.T, groups int, closed bool) (d *simDisk, end, proven uint64) {
	t.Helper()
	d = newSimDisk()
	l, err := openSim(d)
	if err != nil {
		t.Fatal(err)
	}
	for g := range groups {
		proven = l.Next()
		var recs []Record
		for i := range g%3 + 1 {
			seq := l.Next() + uint64(i)
			recs = append(recs, Record{Queue: 7, Type: 3, Body: bodyFor(seq, rotSize(seq))})
		}
		mustWrite(t, l, recs...)
	}
	end = l.Next()
	if closed {
		mustClose(t, l)
		return d.clone(), end, proven
	}
	died := d.clone()
	mustClose(t, l)
	return died, end, proven
}

func rotSize(seq uint64) int { return int(seq*13) % 90 }

// clone returns the disk as the process sees it: the process died, the system did not.
func (d *simDisk) clone() *simDisk {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := newSimDisk()
	for name, n := range d.files {
		c.files[name] = &inode{mem: bytes.Clone(n.mem), platter: bytes.Clone(n.mem)}
		c.durable[name] = c.files[name]
	}
	return c
}

// lastSegment returns the bytes of the segment with the highest number.
func (d *simDisk) lastSegment() (name string, b []byte) {
	for n, f := range d.files {
		if strings.HasSuffix(n, segmentSuffix) && n > name {
			name, b = n, f.mem
		}
	}
	return name, b
}

func usedBytes(b []byte) int {
	used := len(b)
	for used > 0 && b[used-1] == 0 {
		used--
	}
	return used
}

// TestBitFlipsAreFound flips each byte of a log in turn. If a later commit proves that
// data was durable, it is intact or the log refuses. Without such a proof only the last
// group may be missing.
func TestBitFlipsAreFound(t *testing.T) {
	for _, closed := range []bool{true, false} {
		t.Run(fmt.Sprintf("closed=%v", closed), func(t *testing.T) {
			d, end, proven := image(t, 8, closed)
			if closed {
				proven = end
			}
			_, b := d.lastSegment()
			used := usedBytes(b)
			refused, intact, cut := 0, 0, 0
			for off := 0; off < used+64; off++ {
				if off == headerUsed+8 {
					off = headerSize - 8 // the rest of the header page has no meaning
				}
				bits := []byte{1 << (off % 8), 0xff}
				for _, bit := range bits {
					c := d.clone()
					name, b := c.lastSegment()
					b[off] ^= bit
					next, err := reopenedNext(c)
					var rot *CorruptError
					switch {
					case errors.As(err, &rot):
						if rot.Segment != name || rot.Why == "" {
							t.Fatalf("flip at %d: %v", off, err)
						}
						refused++
					case err != nil:
						t.Fatalf("flip at %d: %v", off, err)
					case next == end:
						intact++
					case next == proven && !closed:
						cut++
					default:
						t.Fatalf("flip at %d of %d: the log ends before %d, want %d or a refusal", off, used, next, end)
					}
				}
			}
			t.Logf("%d refused, %d harmless, %d cut the last group", refused, intact, cut)
			if refused == 0 || (cut == 0) == !closed {
				t.Fatal("the flips did not reach what they must reach")
			}
		})
	}
}

// reopenedNext opens and checks the log on d and returns its Next.
func reopenedNext(d *simDisk) (uint64, error) {
	l, err := openSim(d)
	if err != nil {
		return 0, err
	}
	next := l.Next()
	err = checkUnits(l, rotSize, nil, 0)
	return next, errors.Join(err, l.Close())
}

// TestLostTailsAreCut replaces everything from each offset on by zeros and by garbage,
// like a crash. The log continues behind the last complete group.
func TestLostTailsAreCut(t *testing.T) {
	d, end, _ := image(t, 8, false)
	_, b := d.lastSegment()
	used := (usedBytes(b) + recordAlign - 1) &^ (recordAlign - 1) // the last number may end with zeros
	garbage := rand.NewChaCha8([32]byte{1})
	for _, zero := range []bool{true, false} {
		last := uint64(1)
		for off := headerSize; off <= used; off++ {
			c := d.clone()
			_, b := c.lastSegment()
			clear(b[off:])
			if !zero {
				_, _ = garbage.Read(b[off : used+200])
			}
			l, err := openSim(c)
			if err != nil {
				t.Fatalf("cut at %d: %v", off, err)
			}
			next := l.Next()
			if next < last || next > end {
				t.Fatalf("cut at %d: next is %d after %d", off, next, last)
			}
			last = next
			if rest := c.bytesFrom(segmentName(1), l.stage.off); usedBytes(rest) != 0 {
				t.Fatalf("cut at %d: Open left bytes behind the last group", off)
			}
			first := mustWrite(t, l, Record{Body: bodyFor(next, rotSize(next))})
			if first != next {
				t.Fatalf("cut at %d: first = %d, want %d", off, first, next)
			}
			mustClose(t, l)
			if again, err := reopenedNext(c); err != nil || again != next+1 {
				t.Fatalf("cut at %d: next %d after reopening, want %d; %v", off, again, next+1, err)
			}
		}
		if last != end {
			t.Fatalf("the longest cut ends before %d, want %d", last, end)
		}
	}
}

// bytesFrom returns a copy of a file from an offset on.
func (d *simDisk) bytesFrom(name string, off int64) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return bytes.Clone(d.files[name].mem[off:])
}

// TestKillThenPowerCut kills a process whose records the system has not synced yet. A
// restart acknowledges the records that it finds, by Durable, and must have synced them
// before the power fails.
func TestKillThenPowerCut(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 3))
		d := newSimDisk()
		cfg := small("sim")
		cfg.Sync = OS
		if err := cfg.validate(); err != nil {
			t.Fatal(err)
		}
		l, err := open(cfg, d, func() error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			seq := l.Next()
			mustWrite(t, l, Record{Body: bodyFor(seq, rotSize(seq))})
		}
		end := l.Next()
		killed := d.killed()
		mustClose(t, l)
		l, err = openSim(killed)
		if err != nil {
			t.Fatal(err)
		}
		if l.Durable() != end {
			t.Fatalf("durable %d after the restart, want %d", l.Durable(), end)
		}
		after := killed.crash(rng)
		mustClose(t, l)
		if next, err := reopenedNext(after); err != nil || next != end {
			t.Fatalf("seed %d: next %d after the power cut, want %d; %v", seed, next, end, err)
		}
	}
}

// killed returns the disk as the next process finds it: unsynced writes are visible and
// still unsynced. The directory must have no unsynced changes that matter.
func (d *simDisk) killed() *simDisk {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := newSimDisk()
	for name, n := range d.files {
		c.files[name] = &inode{mem: bytes.Clone(n.mem), platter: bytes.Clone(n.platter), writes: slices.Clone(n.writes)}
		c.durable[name] = c.files[name]
	}
	return c
}

func TestShortenedOrMissingFilesAreRefused(t *testing.T) {
	fresh := func() *simDisk {
		d := newSimDisk()
		l, err := openSim(d)
		if err != nil {
			t.Fatal(err)
		}
		for range 200 {
			mustWrite(t, l, Record{Body: make([]byte, 1000)})
		}
		mustClose(t, l)
		return d.clone()
	}
	refuses := func(what string, harm func(*simDisk)) {
		t.Helper()
		d := fresh()
		harm(d)
		l, err := openSim(d)
		var rot *CorruptError
		if !errors.As(err, &rot) {
			if err == nil {
				_ = l.Close()
			}
			t.Errorf("%s: err = %v, want a CorruptError", what, err)
		}
	}
	for _, n := range []int{0, 10, headerUsed, headerSize, headerSize + 1, minSegmentBytes - 1} {
		refuses(fmt.Sprintf("first segment cut to %d bytes", n), func(d *simDisk) {
			d.files[segmentName(1)].mem = d.files[segmentName(1)].mem[:n]
		})
		refuses(fmt.Sprintf("last segment cut to %d bytes", n), func(d *simDisk) {
			name, b := d.lastSegment()
			d.files[name].mem = b[:n]
		})
	}
	refuses("missing segment", func(d *simDisk) { delete(d.files, segmentName(2)) })
	refuses("swapped segments", func(d *simDisk) {
		d.files[segmentName(1)], d.files[segmentName(2)] = d.files[segmentName(2)], d.files[segmentName(1)]
	})
	refuses("damaged footer", func(d *simDisk) { d.files[segmentName(1)].mem[minSegmentBytes-20] ^= 1 })
	refuses("newer format", func(d *simDisk) { d.files[segmentName(1)].mem[8]++ })
	refuses("segment of another log", func(d *simDisk) { d.files[segmentName(2)] = fresh().files[segmentName(2)] })
}

// TestRotInSealedSegmentsStopsTheRead damages a record that Open does not check.
func TestRotInSealedSegmentsStopsTheRead(t *testing.T) {
	d := newSimDisk()
	l, err := openSim(d)
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		mustWrite(t, l, Record{Body: make([]byte, 1000)})
	}
	d.mu.Lock()
	d.files[segmentName(1)].mem[headerSize+5*(1024+commitSize)+100] ^= 4
	d.mu.Unlock()
	got, err := readAll(l, 1)
	var rot *CorruptError
	if !errors.As(err, &rot) || rot.Segment != segmentName(1) || rot.Offset != headerSize+5*(1024+commitSize) {
		t.Fatalf("err = %v", err)
	}
	if len(got) != 5 {
		t.Fatalf("%d records in front of the damage, want 5", len(got))
	}
	mustClose(t, l)
}

// TestCrashBetweenSealAndSuccessor removes the last segment, as if the crash came before
// its creation, twice.
func TestCrashBetweenSealAndSuccessor(t *testing.T) {
	d := newSimDisk()
	l, err := openSim(d)
	if err != nil {
		t.Fatal(err)
	}
	for l.Stats().Segments < 2 {
		mustWrite(t, l, Record{Body: bodyFor(l.Next(), rotSize(l.Next()))})
	}
	mustClose(t, l)
	var sealed uint64
	for round := range 3 {
		d = d.clone()
		delete(d.files, segmentName(2))
		delete(d.durable, segmentName(2))
		l, err := openSim(d)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if err := checkUnits(l, rotSize, nil, 0); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if round > 0 && l.Next() != sealed {
			t.Fatalf("round %d: next = %d, want %d", round, l.Next(), sealed)
		}
		sealed = l.Next()
		mustWrite(t, l) // a barrier takes no room
		if first := mustWrite(t, l, Record{Body: bodyFor(sealed, rotSize(sealed))}); first != sealed {
			t.Fatalf("round %d: first = %d, want %d", round, first, sealed)
		}
		if l.Stats().Segments != 2 {
			t.Fatalf("round %d: %d segments", round, l.Stats().Segments)
		}
		mustClose(t, l)
		if next, err := reopenedNext(d.clone()); err != nil || next != sealed+1 {
			t.Fatalf("round %d: next %d after reopening, want %d; %v", round, next, sealed+1, err)
		}
	}
}

// TestFailedTrimLeavesNoGap makes the removal of a file fail.
func TestFailedTrimLeavesNoGap(t *testing.T) {
	d := newSimDisk()
	l, err := openSim(d)
	if err != nil {
		t.Fatal(err)
	}
	for l.Stats().Segments < 6 {
		mustWrite(t, l, Record{Body: make([]byte, 1000)})
	}
	d.mu.Lock()
	d.onDir = func() error { return errInjected }
	d.mu.Unlock()
	if err := l.Trim(l.Next()); !errors.Is(err, errInjected) {
		t.Fatalf("Trim = %v", err)
	}
	if got, err := readAll(l, 1); err != nil || len(got) != int(l.Next()-1) {
		t.Fatalf("%d records, %v", len(got), err)
	}
	d.mu.Lock()
	d.onDir = nil
	d.mu.Unlock()
	if err := l.Trim(l.Next()); err != nil {
		t.Fatal(err)
	}
	if n := l.Stats().Segments; n != 1 {
		t.Fatalf("%d segments", n)
	}
	mustClose(t, l)
	l, err = openSim(d.clone())
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, l)
}

// TestModel compares a log with a slice over random histories of appends, trims, reads, clean restarts and power cuts.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newSimDisk()
		l, err := openSim(d)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		var model []Entry // index = sequence - 1
		reopen := func(next *simDisk) {
			_ = l.Close()
			d = next
			if l, err = openSim(d); err != nil {
				t.Fatal(err)
			}
			if l.Next() != uint64(len(model))+1 {
				t.Fatalf("next = %d, want %d", l.Next(), len(model)+1)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				recs := make([]Record, rapid.IntRange(1, 5).Draw(t, "records"))
				for i := range recs {
					recs[i] = Record{
						Queue: rapid.Uint32().Draw(t, "queue"), Type: rapid.Uint8().Draw(t, "type"),
						Body: make([]byte, rapid.OneOf(rapid.IntRange(0, 50), rapid.IntRange(0, 10000)).Draw(t, "size")),
					}
					recs[i].Body = bodyFor(uint64(len(model)+i), len(recs[i].Body))
				}
				first, err := write(l, recs...)
				if err != nil {
					t.Fatal(err)
				}
				for i, r := range recs {
					model = append(model, Entry{first + uint64(i), r.Queue, r.Type, r.Body})
				}
			},
			"trim": func(t *rapid.T) {
				before := rapid.Uint64Range(0, l.Next()).Draw(t, "before")
				old := l.First()
				if err := l.Trim(before); err != nil {
					t.Fatal(err)
				}
				if l.First() > max(before, old) {
					t.Fatalf("Trim(%d) moved First to %d", before, l.First())
				}
			},
			"restart":   func(*rapid.T) { _ = l.Close(); reopen(d.clone()) },
			"kill":      func(*rapid.T) { reopen(d.clone()) },
			"power cut": func(*rapid.T) { reopen(d.crash(rng)) },
			"": func(t *rapid.T) {
				first := l.First()
				from := rapid.Uint64Range(first, l.Next()).Draw(t, "from")
				got, err := readAll(l, from)
				if err != nil {
					t.Fatal(err)
				}
				if err := sameEntries(got, model[from-1:]); err != nil {
					t.Fatal(err)
				}
			},
		})
	})
}

const crashDirEnv = "WHEELWORK_MQ_CRASH"

// TestMain turns the test binary into the victim of TestKill if an environment variable
// asks for it.
func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDirEnv); dir != "" {
		victim(dir)
	}
	os.Exit(m.Run())
}

func killSize(seq uint64) int { return int(seq*2654435761>>4) % 600 }

// victim appends from several goroutines until it is killed. It prints each acknowledged unit as one line.
func victim(arg string) {
	writer, dir, _ := strings.Cut(arg, ":")
	cfg := small(dir)
	cfg.Writer, cfg.SegmentBytes = writer, 256<<10
	l, err := Open(cfg)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var out, order sync.Mutex
	for g := range 8 {
		go func() {
			for {
				done := make(chan error, 1)
				order.Lock() // bodies depend on the sequence, which only the next Append knows
				first := l.Next()
				recs := make([]Record, g%3+1)
				for i := range recs {
					recs[i].Body = bodyFor(first+uint64(i), killSize(first+uint64(i)))
				}
				_, err := l.Append(recs, func(err error) { done <- err })
				order.Unlock()
				if err = errors.Join(err, <-done); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				out.Lock()
				fmt.Println(first, len(recs))
				out.Unlock()
				if g == 0 && first%50 == 0 {
					_ = l.Trim(first - min(first, 3000))
				}
			}
		}()
	}
	select {}
}

// killRounds returns how often each writer is killed. WHEELWORK_ROUNDS overrides it.
func killRounds(t *testing.T) int {
	t.Helper()
	if testkit.Long() {
		return testkit.Rounds(t, 1000)
	}
	return testkit.Rounds(t, 25)
}

// TestKill repeatedly kills a process that writes to the same directory. Each record that
// it printed as acknowledged must be there.
func TestKill(t *testing.T) {
	rounds := killRounds(t)
	for _, writer := range allWriters()[:len(allWriters())-1] {
		t.Run(writer, func(t *testing.T) {
			dir := t.TempDir()
			seed := rand.Uint64()
			t.Logf("seed %d", seed) // the moments depend on the machine, too
			rng := rand.New(rand.NewPCG(seed, 2))
			units, acked := 0, uint64(0)
			start := time.Now()
			for round := range rounds {
				killed, err := killOnce(t, writer+":"+dir, rng)
				if err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
				acked = max(acked, killed.end)
				units += len(killed.units)
				if r, err := Verify(dir, nil); err != nil || !r.Sound() {
					t.Fatalf("round %d: Verify finds %v, %v", round, r.Damage, err)
				}
				cfg := small(dir)
				cfg.Writer, cfg.SegmentBytes = writer, 256<<10
				l := mustOpen(t, cfg)
				if err := checkUnits(l, killSize, killed.units, acked); err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
				if err := l.Trim(l.Next() - min(l.Next(), 2000)); err != nil {
					t.Fatal(err)
				}
				mustClose(t, l)
			}
			t.Logf("killed %d times in %v after %d acknowledged units, %d records", rounds, time.Since(start).Round(time.Millisecond), units, acked)
			if units == 0 {
				t.Fatal("nothing was ever acknowledged")
			}
		})
	}
}

type ackedUnits struct {
	units []unit
	end   uint64
}

// killOnce runs a victim, kills it, and returns the units that it acknowledged. One in
// ten is killed while it starts, the others some time after the first acknowledgement.
func killOnce(t *testing.T, arg string, rng *rand.Rand) (a ackedUnits, err error) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), crashDirEnv+"="+arg)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return a, err
	}
	if err := cmd.Start(); err != nil {
		return a, err
	}
	early := rng.IntN(10) == 0
	after := time.Duration(rng.Int64N(int64(20 * time.Millisecond)))
	kill := sync.OnceFunc(func() { time.AfterFunc(after, func() { _ = cmd.Process.Kill() }) })
	if early {
		kill()
	}
	r := bufio.NewReader(out)
	for {
		line, err := r.ReadString('\n')
		if err != nil { // the last line may be torn
			break
		}
		first, count, _ := strings.Cut(strings.TrimSpace(line), " ")
		u := unit{}
		if u.first, err = strconv.ParseUint(first, 10, 64); err != nil {
			return a, err
		}
		if u.count, err = strconv.Atoi(count); err != nil {
			return a, err
		}
		kill()
		a.units = append(a.units, u)
		a.end = max(a.end, u.first+uint64(u.count))
	}
	_, _ = io.Copy(io.Discard, r)
	_ = cmd.Wait() // killed
	if stderr.Len() > 0 || len(a.units) == 0 && !early {
		return a, fmt.Errorf("the victim acknowledged %d units and says: %s", len(a.units), stderr.String())
	}
	return a, nil
}
