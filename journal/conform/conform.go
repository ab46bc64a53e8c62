// Package conform tests the contract of the journal: each implementation runs these tests
// against itself.
package conform

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/journal"
)

// Open opens the journal of a test. A later call, after the journal was closed, opens the
// same journal.
type Open func(t *testing.T) journal.Journal

// Run runs the tests. fresh returns a function that opens a new journal.
func Run(t *testing.T, fresh func(t *testing.T) Open) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Open)
	}{
		{"records keep their slot and order", order},
		{"sequences are dense and answers in order", answers},
		{"a barrier waits for what is before it", barrier},
		{"what nobody waits for becomes durable", lazy},
		{"a unit of any size", units},
		{"reading from anywhere", anywhere},
		{"a reader's error ends the reading", stops},
		{"trimming", trims},
		{"closing", closes},
		{"that it was closed", orderly},
		{"what is refused", refuses},
		{"bytes and room", sizes},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, fresh(t)) })
	}
}

type told struct {
	seq  uint64
	slot journal.Slot
	body string
}

func (r told) String() string {
	if len(r.body) > 40 {
		return fmt.Sprintf("%d %v %d bytes %.20q…", r.seq, r.slot, len(r.body), r.body)
	}
	return fmt.Sprintf("%d %v %q", r.seq, r.slot, r.body)
}

func read(t *testing.T, j journal.Journal, from uint64) []told {
	t.Helper()
	var got []told
	err := j.Read(from, func(seq uint64, slot journal.Slot, body []byte) error {
		got = append(got, told{seq, slot, string(body)})
		return nil
	})
	if err != nil {
		t.Fatalf("read from %d: %v", from, err)
	}
	return got
}

func same(t *testing.T, got, want []told) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Fatalf("%d records are missing from %v on", len(want)-i, want[i])
		case i >= len(want):
			t.Fatalf("%d records too many, the first is %v", len(got)-i, got[i])
		case got[i] != want[i]:
			t.Fatalf("got %v, want %v", got[i], want[i])
		}
	}
}

func appendSync(t *testing.T, j journal.Journal, recs ...journal.Record) uint64 {
	t.Helper()
	done := make(chan error, 2)
	last, err := j.Append(recs, func(err error) { done <- err })
	if err != nil {
		t.Fatal(err)
	}
	spoil(recs)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return last
}

// spoil overwrites appended records, because the caller may reuse them.
func spoil(recs []journal.Record) {
	for i := range recs {
		clear(recs[i].Body)
	}
	clear(recs)
}

func closeIt(t *testing.T, j journal.Journal) {
	t.Helper()
	if err := j.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

func record(app string, index int, body string) journal.Record {
	return journal.Record{Slot: journal.Slot{App: app, Index: uint8(index)}, Body: []byte(body)}
}

func order(t *testing.T, open Open) {
	j := open(t)
	if j.Next() != 1 {
		t.Fatalf("a new journal begins with %d", j.Next())
	}
	var want []told
	for i := range 100 {
		r := record(strings.Repeat("a", i), i%16, strings.Repeat(string(rune(i)), i))
		want = append(want, told{uint64(i + 1), r.Slot, string(r.Body)})
		if i%3 == 0 {
			recs := []journal.Record{r}
			if last, err := j.AppendLazy(recs); err != nil || last != uint64(i+1) {
				t.Fatalf("lazy: %d, %v", last, err)
			}
			spoil(recs)
		} else if last := appendSync(t, j, r); last != uint64(i+1) {
			t.Fatalf("record %d has the sequence %d", i+1, last)
		}
	}
	appendSync(t, j)
	same(t, read(t, j, 1), want)
	for range 2 {
		closeIt(t, j)
		j = open(t)
		if j.Next() != 101 {
			t.Fatalf("next is %d", j.Next())
		}
		same(t, read(t, j, 1), want)
	}
	r := record("b", 1, "after")
	if last := appendSync(t, j, r); last != 101 {
		t.Fatalf("after the restart: %d", last)
	}
	same(t, read(t, j, 1), append(want, told{101, r.Slot, "after"}))
	closeIt(t, j)
}

// answers appends from many goroutines, one at a time, so that the order of the appends
// is known, while other goroutines wait.
func answers(t *testing.T, open Open) {
	j := open(t)
	const writers, each = 8, 40
	var mu sync.Mutex // appending and noting are one step
	var calls []int
	n, answered := 0, map[int]int{}
	var appended sync.WaitGroup
	all := make(chan struct{})
	for w := range writers {
		appended.Go(func() {
			for i := range each {
				mu.Lock()
				number, recs := n, []journal.Record(nil)
				n++
				for k := range (w + i) % 4 { // none: a barrier
					recs = append(recs, record("app", w, fmt.Sprint(number, k)))
				}
				before := j.Next()
				last, err := j.Append(recs, func(err error) {
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						t.Errorf("append %d: %v", number, err)
					}
					calls = append(calls, number)
					if answered[number]++; len(calls) == writers*each {
						close(all)
					}
				})
				if err != nil || last != before+uint64(len(recs))-1 || j.Next() != last+1 {
					t.Errorf("append %d of %d records at %d: last %d, next %d, %v", number, len(recs), before, last, j.Next(), err)
				}
				mu.Unlock()
			}
		})
	}
	appended.Wait()
	<-all
	mu.Lock()
	defer mu.Unlock()
	for i, number := range calls {
		if i != number || answered[number] != 1 {
			t.Fatalf("answer %d was for append %d, which had %d", i, number, answered[number])
		}
	}
	got := read(t, j, 1)
	for i, r := range got {
		if r.seq != uint64(i+1) {
			t.Fatalf("record %d has the sequence %d", i+1, r.seq)
		}
	}
	if uint64(len(got)) != j.Next()-1 {
		t.Fatalf("%d records, next is %d", len(got), j.Next())
	}
	closeIt(t, j)
}

func barrier(t *testing.T, open Open) {
	j := open(t)
	for range 3 {
		appendSync(t, j) // on an idle journal, and twice
	}
	if _, err := j.AppendLazy(nil); err != nil {
		t.Fatal(err)
	}
	r := record("a", 0, "lazy")
	if _, err := j.AppendLazy([]journal.Record{r}); err != nil {
		t.Fatal(err)
	}
	if last := appendSync(t, j); last != 1 {
		t.Fatalf("a barrier is at %d", last)
	}
	same(t, read(t, j, 1), []told{{1, r.Slot, "lazy"}})
	closeIt(t, j)
}

// lazy appends records without a callback and calls nothing else that would flush them.
func lazy(t *testing.T, open Open) {
	j := open(t)
	r := record("a", 0, "lazy")
	for n := range 3 {
		if _, err := j.AppendLazy([]journal.Record{r}); err != nil {
			t.Fatal(err)
		}
		for begin := time.Now(); len(read(t, j, 1)) != n+1; runtime.Gosched() {
			if time.Since(begin) > 20*time.Second {
				t.Fatalf("record %d is not durable after 20 s", n+1)
			}
		}
	}
	closeIt(t, j)
}

func units(t *testing.T, open Open) {
	j := open(t)
	var want []told
	put := func(bodies ...int) {
		t.Helper()
		var recs []journal.Record
		for _, n := range bodies {
			r := record("app", len(want)%16, string(bytes.Repeat([]byte{byte('a' + len(want)%26)}, n)))
			want = append(want, told{uint64(len(want) + 1), r.Slot, string(r.Body)})
			recs = append(recs, r)
		}
		if last := appendSync(t, j, recs...); last != uint64(len(want)) {
			t.Fatalf("last is %d of %d", last, len(want))
		}
	}
	put(0)
	put(512<<10 - 100)
	put(512 << 10)
	put(1<<20 + 1)
	many := make([]int, 3000)
	for i := range many {
		many[i] = i % 1000
	}
	put(many...)
	put(700<<10, 1, 700<<10, 0)
	put(3)
	same(t, read(t, j, 1), want)
	closeIt(t, j)
	j = open(t)
	same(t, read(t, j, 5), want[4:])
	closeIt(t, j)
}

func anywhere(t *testing.T, open Open) {
	j := open(t)
	var want []told
	for i := range 40 {
		var recs []journal.Record
		for k := range i%5 + 1 {
			r := record("app", k, fmt.Sprint(i, k))
			want = append(want, told{uint64(len(want) + 1), r.Slot, string(r.Body)})
			recs = append(recs, r)
		}
		appendSync(t, j, recs...)
	}
	for from := uint64(1); from <= uint64(len(want))+1; from++ {
		same(t, read(t, j, from), want[from-1:])
	}
	closeIt(t, j)
}

func stops(t *testing.T, open Open) {
	j := open(t)
	for range 3 {
		appendSync(t, j, record("a", 0, "x"), record("a", 0, "y"))
	}
	enough, n := errors.New("enough"), 0
	err := j.Read(1, func(uint64, journal.Slot, []byte) error {
		if n++; n == 4 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || n != 4 {
		t.Fatalf("after %d records: %v", n, err)
	}
	closeIt(t, j)
}

func trims(t *testing.T, open Open) {
	j := open(t)
	body := strings.Repeat("t", 256<<10)
	var want []told
	for i := range 20 { // five megabytes: every implementation can drop some of it
		r := record("a", i%16, fmt.Sprint(i)+body)
		want = append(want, told{uint64(i + 1), r.Slot, string(r.Body)})
		appendSync(t, j, r)
	}
	if err := j.Trim(1); err != nil {
		t.Fatal(err)
	}
	same(t, read(t, j, 1), want)
	full := j.Bytes()
	const keep = 17
	for range 2 { // a repetition has no effect
		if err := j.Trim(keep); err != nil {
			t.Fatal(err)
		}
	}
	gone := func() {
		t.Helper()
		err := j.Read(1, func(uint64, journal.Slot, []byte) error { return nil })
		if !errors.Is(err, journal.ErrTrimmed) {
			t.Fatalf("reading what was trimmed: %v", err)
		}
	}
	gone()
	same(t, read(t, j, keep), want[keep-1:])
	if j.Bytes() >= full {
		t.Fatalf("%d bytes before, %d after", full, j.Bytes())
	}
	closeIt(t, j)
	j = open(t)
	gone()
	same(t, read(t, j, keep), want[keep-1:])
	if err := j.Trim(j.Next()); err != nil {
		t.Fatal(err)
	}
	closeIt(t, j)
	j = open(t)
	if j.Next() != uint64(len(want))+1 {
		t.Fatalf("with everything trimmed, next is %d", j.Next())
	}
	if got := read(t, j, j.Next()); len(got) > 0 {
		t.Fatalf("behind the end there is %v", got[0])
	}
	r := record("a", 0, "again")
	last := appendSync(t, j, r)
	same(t, read(t, j, last), []told{{uint64(len(want)) + 1, r.Slot, "again"}})
	closeIt(t, j)
}

func closes(t *testing.T, open Open) {
	j := open(t)
	r := record("a", 0, "lazy")
	if _, err := j.AppendLazy([]journal.Record{r}); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	if _, err := j.Append([]journal.Record{r}, func(err error) { done <- err }); err != nil {
		t.Fatal(err)
	}
	closeIt(t, j)
	if err := <-done; err != nil {
		t.Fatalf("what was staged before: %v", err)
	}
	if _, err := j.Append([]journal.Record{r}, func(error) { t.Error("told of a refused append") }); err == nil {
		t.Fatal("a closed journal takes records")
	}
	j = open(t)
	same(t, read(t, j, 1), []told{{1, r.Slot, "lazy"}, {2, r.Slot, "lazy"}})
	closeIt(t, j)
}

// orderly: a journal knows that it is new, and that it was closed in order.
func orderly(t *testing.T, open Open) {
	for i := range 3 {
		j := open(t)
		o, ok := j.(journal.Orderly)
		if !ok {
			t.Fatal("it does not say how its last user ended")
		}
		if !o.Orderly() {
			t.Errorf("opened for the %d. time: it is not orderly", i+1)
		}
		if i == 0 {
			if _, err := j.AppendLazy([]journal.Record{record("a", 1, "x")}); err != nil {
				t.Fatal(err)
			}
		}
		closeIt(t, j)
	}
}

func refuses(t *testing.T, open Open) {
	j := open(t)
	bad := []journal.Record{record("a", 0, "good"), record(strings.Repeat("a", 256), 0, "bad")}
	if _, err := j.Append(bad, func(error) { t.Error("told of a refused append") }); err == nil {
		t.Error("a name of 256 bytes was taken")
	}
	if _, err := j.AppendLazy(bad); err == nil {
		t.Error("a name of 256 bytes was taken lazily")
	}
	if j.Next() != 1 {
		t.Errorf("a refused append moved the sequence to %d", j.Next())
	}
	r := record(strings.Repeat("a", 255), 255, "")
	appendSync(t, j, r)
	same(t, read(t, j, 1), []told{{1, r.Slot, ""}})
	closeIt(t, j)
}

func sizes(t *testing.T, open Open) {
	j := open(t)
	if j.Room() < 1<<20 {
		t.Fatalf("a new journal has room for %d bytes", j.Room())
	}
	for range 8 {
		appendSync(t, j, record("a", 0, strings.Repeat("s", 256<<10)))
	}
	if j.Bytes() < 2<<20 {
		t.Fatalf("with 2 MiB in it, the journal has %d bytes", j.Bytes())
	}
	closeIt(t, j)
}
