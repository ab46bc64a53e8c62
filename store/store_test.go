package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func openStore(t testing.TB, cfg Config) *Store {
	t.Helper()
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.lock != nil {
			closeStore(t, s)
		}
	})
	return s
}

func closeStore(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s.lock = nil
}

// reopen closes the store and opens it again.
func reopen(t testing.TB, s *Store) *Store {
	t.Helper()
	closeStore(t, s)
	return openStore(t, s.cfg)
}

func commit(t testing.TB, s *Store, b *Batch) {
	t.Helper()
	if err := s.Commit(b); err != nil {
		t.Fatal(err)
	}
}

func snapshot(t testing.TB, s *Store) uint64 {
	t.Helper()
	applied, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return applied
}

func id(n int) (id [16]byte) {
	r := rand.New(rand.NewPCG(uint64(n), 0))
	ms := uint64(1_700_000_000_000 + n)
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	for i := 6; i < 16; i++ {
		id[i] = byte(r.Uint32())
	}
	return id
}

// recent is a time within the retention.
var recent = time.Now().UnixMilli()

// finished returns the n-th run of a synthetic history: 10 jobs of 2 apps, 3 hosts, every
// 20th run failed.
func finished(n int) Finished {
	f := Finished{
		App: fmt.Sprint("app", n%2), Job: fmt.Sprint("job", n%10), Host: fmt.Sprint("host", n%3), State: "succeeded",
		ID: id(n), PlannedMs: recent + int64(n), FinishedMs: recent + int64(n) + 5, Value: fmt.Append(nil, "run ", n),
	}
	if n%5 > 0 { // some values have a shared beginning, some consist of it
		f.Shared, f.Value = beginnings[n%5-1], f.Value[len(beginnings[n%5-1]):]
	}
	if n%20 == 7 {
		f.State = "failed"
	}
	return f
}

var beginnings = [4][]byte{[]byte("run "), []byte("r"), []byte("run"), {}}

// whole returns the value that reads return.
func whole(f Finished) string { return string(f.Shared) + string(f.Value) }

func finishedRange(from, to int) []Finished {
	var out []Finished
	for n := from; n < to; n++ {
		out = append(out, finished(n))
	}
	return out
}

// dump returns the whole result of Load as text, sorted by key.
func dump(t testing.TB, s *Store) []string {
	t.Helper()
	var out []string
	err := s.Load(Loader{
		Job: func(app, name string, v []byte) error {
			out = append(out, fmt.Sprintf("job %q %q %q", app, name, v))
			return nil
		},
		Run: func(app string, id [16]byte, v []byte) error {
			out = append(out, fmt.Sprintf("run %q %x %q", app, id, v))
			return nil
		},
		Module: func(app, name, version string, v []byte) error {
			out = append(out, fmt.Sprintf("module %q %q %q %q", app, name, version, v))
			return nil
		},
		Row: func(key string, v []byte) error {
			out = append(out, fmt.Sprintf("row %q %q", key, v))
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func wantDump(t testing.TB, s *Store, want ...string) {
	t.Helper()
	if got := dump(t, s); !slices.Equal(got, want) {
		t.Fatalf("rows\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// pages follows the cursors of a query to the end.
func pages(t testing.TB, s *Store, q RunQuery) (values []string) {
	t.Helper()
	for range 10_000 {
		page, next, err := s.Runs(q)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range page {
			values = append(values, string(v))
		}
		if next == "" {
			return values
		}
		q.Cursor = next
	}
	t.Fatal("the pages do not end")
	return nil
}

func TestRowsRoundTrip(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir()})
	if s.Applied() != 0 {
		t.Fatalf("a new store has applied %d", s.Applied())
	}
	wantDump(t, s)
	commit(t, s, &Batch{
		Applied: 7,
		Jobs:    []JobRow{{"b", "x", []byte("1")}, {"a", "z", []byte("2")}, {"a", "y\x00", []byte{}}, {"a\x00", "", []byte("3")}},
		Runs:    []RunRow{{"a", id(1), []byte("r1")}, {"a", id(2), []byte("r2")}},
		Modules: []ModuleRow{{"a", "m", "2", []byte("m2")}, {"a", "m", "1", []byte("m1")}, {"b", "m", "1", []byte("bm")}},
		Rows:    []Row{{"minute/9", []byte("n")}, {"", []byte("empty key")}},
	})
	commit(t, s, &Batch{Applied: 9, Jobs: []JobRow{{"b", "x", nil}, {"b", "missing", nil}}, Runs: []RunRow{{"a", id(1), nil}}})
	want := []string{
		`module "a" "m" "1" "m1"`, `module "a" "m" "2" "m2"`, `module "b" "m" "1" "bm"`,
		`job "a" "y\x00" ""`, `job "a" "z" "2"`, `job "a\x00" "" "3"`,
		fmt.Sprintf("run %q %x %q", "a", id(2), "r2"),
		`row "" "empty key"`, `row "minute/9" "n"`,
	}
	wantDump(t, s, want...)
	s = reopen(t, s)
	wantDump(t, s, want...)
	if s.Applied() != 9 {
		t.Errorf("applied %d after reopen, want 9", s.Applied())
	}
	if v, ok, err := s.Job("a", "z"); string(v) != "2" || !ok || err != nil {
		t.Errorf("job: got %q, %v, %v", v, ok, err)
	}
	if v, ok, err := s.Job("b", "x"); ok || v != nil || err != nil {
		t.Errorf("deleted job: got %q, %v, %v", v, ok, err)
	}
	if v, ok, err := s.Job("a", "y\x00"); v == nil || len(v) != 0 || !ok || err != nil {
		t.Errorf("job with an empty value: got %q, %v, %v", v, ok, err)
	}
	if m, err := s.Modules("a"); len(m) != 2 || string(m[0]) != "m1" || err != nil {
		t.Errorf("modules: got %q, %v", m, err)
	}
	stop := errors.New("stop")
	if err := s.Load(Loader{Job: func(string, string, []byte) error { return stop }}); !errors.Is(err, stop) {
		t.Errorf("load: got %v, want the error of the function", err)
	}
}

// TestLoadReadsAhead: rows that come in several pieces are complete and in order, and
// rows of other kinds follow. A receiver that fails in the middle gets no further rows.
func TestLoadReadsAhead(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir()})
	b := &Batch{Applied: 1, Rows: []Row{{"last", []byte("row")}}}
	text := func(n int) string { return strings.Repeat(strconv.Itoa(n), n%200) }
	for n := range 3000 {
		b.Jobs = append(b.Jobs, JobRow{"a", fmt.Sprintf("job-%04d", n), []byte(text(n))})
	}
	commit(t, s, b)
	stop := errors.New("stop")
	for _, limit := range []int{3000, 1500, 1} {
		n, last := 0, ""
		err := s.Load(Loader{
			Job: func(_, name string, value []byte) error {
				if name != fmt.Sprintf("job-%04d", n) || string(value) != text(n) {
					t.Fatalf("row %d is %s with %q", n, name, value)
				}
				if n++; n == limit && limit < 3000 {
					return stop
				}
				return nil
			},
			Row: func(key string, value []byte) error { last = key + " " + string(value); return nil },
		})
		if want := map[bool]string{true: "last row"}[limit == 3000]; n != limit || last != want || (err == nil) != (want != "") || err != nil && !errors.Is(err, stop) {
			t.Errorf("%d rows and %q, of %d: %v", n, last, limit, err)
		}
	}
}

func TestJobsByPage(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir()})
	b := &Batch{Applied: 1}
	for n := range 25 {
		name := fmt.Sprintf("job-%02d", n)
		b.Jobs = append(b.Jobs, JobRow{"a", name, []byte(name)}, JobRow{"b", name, []byte("other app")})
	}
	b.Jobs = append(b.Jobs, JobRow{"a", "aa", []byte("aa")}, JobRow{"a", "zz", []byte("zz")})
	commit(t, s, b)
	var got []string
	after := ""
	for more := true; more; {
		var names []string
		var err error
		names, more, err = s.Jobs("a", "job-", after, 10)
		if err != nil {
			t.Fatal(err)
		}
		got, after = append(got, names...), names[len(names)-1]
		// The new job sorts before the pages that follow, so they must not have it.
		commit(t, s, &Batch{Applied: 2, Jobs: []JobRow{{"a", "job-00a", []byte("job-00a")}}})
	}
	if len(got) != 25 || !slices.IsSorted(got) || got[0] != "job-00" || got[24] != "job-24" {
		t.Fatalf("got %q", got)
	}
	if names, more, err := s.Jobs("a", "", "zz", 10); len(names) != 0 || more || err != nil {
		t.Errorf("behind the end: %q, %v, %v", names, more, err)
	}
	if values, more, err := s.Jobs("a", "job-2", "aa", 10); len(values) != 5 || more || err != nil {
		t.Errorf("after a name before the prefix: %q, %v, %v", values, more, err)
	}
}

func TestRowsRange(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir()})
	b := &Batch{Applied: 1}
	for n := range 10 {
		b.Rows = append(b.Rows, Row{fmt.Sprintf("minute/a/%02d", n), []byte("v")})
	}
	b.Rows = append(b.Rows, Row{"minute/b/00", []byte("v")})
	commit(t, s, b)
	for _, c := range []struct {
		from, to string
		want     string
	}{
		{"", "", "00 01 02 03 04 05 06 07 08 09"},
		{"03", "06", "03 04 05"},
		{"08", "", "08 09"},
		{"", "02", "00 01"},
		{"5", "", ""},
	} {
		var got []string
		err := s.Rows("minute/a/", c.from, c.to, func(key string, _ []byte) error {
			got = append(got, strings.TrimPrefix(key, "minute/a/"))
			return nil
		})
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("rows from %q to %q: got %q, %v, want %q", c.from, c.to, got, err, c.want)
		}
	}
}

func TestRunsEqualsScan(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir(), SegmentBytes: 16 << 10})
	const total = 3000
	for n := 0; n < total; {
		to := min(n+1+n%150, total)
		commit(t, s, &Batch{Applied: uint64(to), Finished: finishedRange(n, to)})
		n = to
	}
	if len(mustGlob(t, s.path("history/*"))) < 5 {
		t.Fatal("too few segments to test")
	}
	check := func() {
		t.Helper()
		for _, q := range []RunQuery{
			{},
			{App: "app1"},
			{App: "app1", Job: "job7"},
			{App: "app0", Job: "job7"}, // does not exist in this app
			{App: "app1", Job: "job7", State: "failed"},
			{State: "failed"},
			{States: []string{"failed", "succeeded"}},
			{State: "failed", States: []string{"timed_out"}},
			{App: "app1", State: "failed", Host: "host2"},
			{Host: "host1"},
			{App: "app0", Host: "host1"},
			{App: "app1", Job: "job3", Host: "host0", States: []string{"succeeded"}},
			{Host: "nobody"},
		} {
			var want []string
			for n := total - 1; n >= 0; n-- {
				f := finished(n)
				states := q.states()
				if (q.App == "" || q.App == f.App) && (q.Job == "" || q.Job == f.Job) && (q.Host == "" || q.Host == f.Host) &&
					(len(states) == 0 || slices.Contains(states, f.State)) {
					want = append(want, whole(f))
				}
			}
			for _, limit := range []int{0, 7, 1000} {
				q.Limit = limit
				if got := pages(t, s, q); !slices.Equal(got, want) {
					t.Errorf("%+v: got %d runs, want %d", q, len(got), len(want))
				}
			}
		}
		for n := range total {
			if v, ok, err := s.Run(finished(n).App, id(n)); string(v) != fmt.Sprint("run ", n) || !ok || err != nil {
				t.Fatalf("run %d: got %q, %v, %v", n, v, ok, err)
			}
		}
	}
	check()
	s = reopen(t, s)
	check()
	if _, ok, err := s.Run("app1", id(0)); ok || err != nil {
		t.Errorf("the run of another app: %v, %v", ok, err)
	}
	if _, ok, err := s.Run("app0", id(total)); ok || err != nil {
		t.Errorf("a run that never was: %v, %v", ok, err)
	}
}

func TestRunsCursor(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir()})
	commit(t, s, &Batch{Applied: 1, Finished: finishedRange(0, 500)})
	q := RunQuery{App: "app1", Limit: 100}
	first, next, err := s.Runs(q)
	if err != nil || len(first) != 100 || next == "" {
		t.Fatal(len(first), next, err)
	}
	commit(t, s, &Batch{Applied: 2, Finished: finishedRange(500, 900)}) // does not shift the second page
	q.Cursor = next
	second, _, err := s.Runs(q)
	if err != nil || len(second) != 100 || string(second[0]) != "run 299" {
		t.Fatalf("second page: %d rows from %q, %v", len(second), second[0], err)
	}
	for _, bad := range []string{"x", "!", next + "A", strings.ToUpper(next), next[:len(next)-2]} {
		if _, _, err := s.Runs(RunQuery{Cursor: bad}); !errors.Is(err, ErrCursor) {
			t.Errorf("cursor %q: got %v, want %v", bad, err, ErrCursor)
		}
	}
	if _, _, err := s.Runs(RunQuery{Job: "job1"}); err == nil {
		t.Error("a job without its app is accepted")
	}
}

// TestRunsBounded queries for keys that share many blocks but no row.
func TestRunsBounded(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir()})
	for n := range pageBlocks + 50 {
		commit(t, s, &Batch{Applied: uint64(n), Finished: []Finished{
			{App: "a", Job: "j", Host: "h1", State: "failed", ID: id(2 * n), FinishedMs: recent},
			{App: "a", Job: "k", Host: "h2", State: "failed", ID: id(2*n + 1), FinishedMs: recent},
		}})
	}
	q := RunQuery{App: "a", Job: "j", Host: "h2"}
	page, next, err := s.Runs(q)
	if err != nil || len(page) != 0 || next == "" {
		t.Fatalf("got %d rows, next %q, %v: want a page that ends early", len(page), next, err)
	}
	q.Cursor = next
	if page, next, err = s.Runs(q); err != nil || len(page) != 0 || next != "" {
		t.Fatalf("got %d rows, next %q, %v: want the end", len(page), next, err)
	}
}

func TestReadersBesideCommit(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir(), SegmentBytes: 64 << 10, RevisionBytes: 64 << 10})
	random := rand.New(rand.NewPCG(1, 2))
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	readers.Go(func() {
		for ctx.Err() == nil {
			seen := map[string]bool{}
			for _, v := range pages(t, s, RunQuery{App: "app1", Job: "job3", Limit: 20}) {
				if seen[v] {
					t.Errorf("%s is on two pages", v)
				}
				seen[v] = true
			}
		}
	})
	changed := definitions{object: object{"a", "job", "changed"}}
	readers.Go(func() {
		for ctx.Err() == nil {
			revs, _, err := s.Revisions("a", "job", "changed", "", visibleRevisions)
			if err != nil {
				t.Error(err)
			}
			for i, r := range revs {
				if r.Number != revs[0].Number-int64(i) {
					t.Errorf("revision %d at place %d behind %d", r.Number, i, revs[0].Number)
				}
			}
		}
	})
	readers.Go(func() {
		for ctx.Err() == nil {
			if _, _, err := s.Jobs("a", "", "", 10); err != nil {
				t.Error(err)
			}
			s.Stats()
			if _, err := s.Snapshot(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	readers.Go(func() {
		for n := int64(0); ctx.Err() == nil; n++ {
			if err := s.AppendLog([]LogEntry{{"a", id(1), n, 1, []byte("line")}}); err != nil {
				t.Error(err)
			}
			got := int64(0)
			err := s.Log("a", id(1), 0, func(e LogEntry) error {
				if e.Offset != got {
					t.Errorf("line %d instead of %d", e.Offset, got)
				}
				got++
				return nil
			})
			if err != nil || got != n+1 {
				t.Errorf("%d lines, want %d: %v", got, n+1, err)
			}
			if n == 300 {
				return
			}
		}
	})
	for n := range 100 {
		commit(t, s, &Batch{
			Applied: uint64(n), Finished: finishedRange(100*n, 100*n+100), Jobs: []JobRow{{"a", fmt.Sprint(n), []byte("v")}},
			Revisions: []Revision{changed.change(Content{Own: noise(random, 2000)}, int64(n), nil)},
		})
	}
	cancel()
	readers.Wait()
	if got := len(pages(t, s, RunQuery{})); got != 10_000 {
		t.Errorf("%d runs, want 10000", got)
	}
}

func TestLargeBatch(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir()})
	b := &Batch{Applied: 5, Jobs: []JobRow{{"a", "large", make([]byte, 3<<20)}}, Finished: finishedRange(0, 2500)}
	for n := range 60_000 { // more than one transaction takes
		b.Rows = append(b.Rows, Row{fmt.Sprintf("%08d", n), make([]byte, 200)})
	}
	commit(t, s, b)
	s = reopen(t, s)
	n := 0
	if err := s.Rows("", "", "", func(string, []byte) error { n++; return nil }); err != nil || n != 60_000 {
		t.Errorf("%d rows, %v", n, err)
	}
	if v, _, err := s.Job("a", "large"); len(v) != 3<<20 || err != nil {
		t.Errorf("%d bytes, %v", len(v), err)
	}
	if got := len(pages(t, s, RunQuery{Limit: 1000})); got != 2500 || s.Applied() != 5 {
		t.Errorf("%d runs, applied %d", got, s.Applied())
	}
}

// TestValuesByTheThreshold: the largest value in a table fits into a transaction, with
// the longest key. Larger values are in the value log.
func TestValuesByTheThreshold(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir()})
	b := &Batch{Applied: 1}
	for _, size := range []int{tableValue - 1, tableValue, tableValue + 1, 2 * tableValue, memTableBytes} {
		key := fmt.Sprintf("%0*d", maxKey-len(rowKey("")), size)
		b.Rows = append(b.Rows, Row{key, bytes.Repeat([]byte{byte(size%251 + 1)}, size)})
	}
	commit(t, s, b)
	s = reopen(t, s)
	n := 0
	err := s.Rows("", "", "", func(key string, value []byte) error {
		if n == len(b.Rows) || key != b.Rows[n].Key || !bytes.Equal(value, b.Rows[n].Value) {
			return fmt.Errorf("row %d is %.40q with %d bytes", n, key, len(value))
		}
		n++
		return nil
	})
	if err != nil || n != len(b.Rows) {
		t.Errorf("%d rows, %v", n, err)
	}
}

func TestRefusedBatchWritesNothing(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir()})
	commit(t, s, &Batch{Applied: 5, Finished: finishedRange(0, 1)})
	for name, b := range map[string]*Batch{
		"long key":    {Applied: 6, Finished: finishedRange(1, 2), Jobs: []JobRow{{"a", strings.Repeat("x", 5000), []byte("v")}}},
		"large value": {Applied: 6, Finished: finishedRange(1, 2), Jobs: []JobRow{{"a", "x", make([]byte, maxValue+1)}}},
		"goes back":   {Applied: 4, Finished: finishedRange(1, 2)},
	} {
		if err := s.Commit(b); err == nil || errors.Is(err, ErrFull) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if got := pages(t, s, RunQuery{}); len(got) != 1 || s.Applied() != 5 {
		t.Errorf("%d runs, applied %d", len(got), s.Applied())
	}
	commit(t, s, &Batch{Applied: 6, Finished: finishedRange(1, 2)})
}

func TestLocked(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir()})
	_, err := Open(Config{Dir: s.cfg.Dir})
	if !errors.Is(err, ErrLocked) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("open: got %q, want one line that is %v", err, ErrLocked)
	}
	if _, err := Rebuild(s.cfg.Dir, RebuildOptions{}); !errors.Is(err, ErrLocked) {
		t.Fatalf("rebuild: got %v, want %v", err, ErrLocked)
	}
}

// disk is a disk whose free space the test sets.
type disk struct {
	mu   sync.Mutex
	free int64
}

func (d *disk) set(n int64) { d.mu.Lock(); defer d.mu.Unlock(); d.free = n }

func (d *disk) stat(string) (free, total int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.free, 10 << 30, nil
}

func TestGuard(t *testing.T) {
	d := &disk{free: 1 << 30}
	s := openStore(t, Config{Dir: t.TempDir(), stat: d.stat})
	commit(t, s, &Batch{Applied: 1, Finished: finishedRange(0, 10)})
	d.set(100 << 10)
	s.guard.looked = time.Time{} // invalidate the cached look at the disk
	length, revisions := s.history.Length(), s.revisions.Length()
	for name, write := range map[string]func() error{
		"commit":     func() error { return s.Commit(&Batch{Applied: 2, Finished: finishedRange(10, 20)}) },
		"revisions":  func() error { return s.Commit(&Batch{Applied: 2, Revisions: []Revision{numberedRevision(2)}}) },
		"append log": func() error { return s.AppendLog([]LogEntry{{"a", id(1), 0, 1, []byte("x")}}) },
		"snapshot":   func() error { _, err := s.Snapshot(t.Context()); return err },
	} {
		if err := write(); !errors.Is(err, ErrFull) {
			t.Errorf("%s: got %v, want %v", name, err, ErrFull)
		}
	}
	if s.history.Length() != length || s.revisions.Length() != revisions || s.Applied() != 1 || len(mustGlob(t, s.path("snapshots/*"))) != 0 {
		t.Error("something was written")
	}
	if err := s.Close(); !errors.Is(err, ErrFull) {
		t.Errorf("close: got %v, want %v", err, ErrFull)
	}
	s.lock = nil
	s.cfg.Dir = copyDir(t, s.cfg.Dir) // this process still holds badger's lock
	if _, err := Open(s.cfg); !errors.Is(err, ErrFull) {
		t.Errorf("open: got %v, want %v", err, ErrFull)
	}
	d.set(1 << 30)
	s = openStore(t, s.cfg)
	if got := len(pages(t, s, RunQuery{})); got != 10 || s.Applied() != 1 {
		t.Errorf("%d runs, applied %d: something was lost", got, s.Applied())
	}
	commit(t, s, &Batch{Applied: 2, Finished: finishedRange(10, 20)})
	if got := len(pages(t, s, RunQuery{})); got != 20 {
		t.Errorf("%d runs, want 20", got)
	}
	snapshot(t, s)
}

// TestGuardCounts: writes between two looks at the disk are counted.
func TestGuardCounts(t *testing.T) {
	d := &disk{free: 100}
	g := guard{stat: d.stat, need: func() int64 { return 10 }}
	g.looked = time.Now().Add(math.MaxInt32) // never look again
	g.free, g.reserve = 100, 10
	if err := g.check(60); err != nil {
		t.Fatal(err)
	}
	if err := g.check(60); !errors.Is(err, ErrFull) {
		t.Fatalf("got %v, want %v", err, ErrFull)
	}
	if err := g.check(30); err != nil {
		t.Fatal(err)
	}
	if reserveFor(0, 0) != slack || reserveFor(1<<40, 1<<40) != slack+unflushedLimit+compactionLimit {
		t.Error("the reserve is not what the comment says")
	}
}

// TestGuardLooks: another process fills the disk at full speed. The guard detects it
// before slack is used up.
func TestGuardLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate = 4 << 30 // bytes a second
		d := &disk{free: 1 << 40}
		g := guard{stat: d.stat, need: func() int64 { return slack }}
		if err := g.check(1); err != nil {
			t.Fatal(err)
		}
		for free, begin := int64(2*slack), time.Now(); ; time.Sleep(time.Millisecond) {
			left := free - int64(time.Since(begin).Seconds()*rate)
			d.set(left)
			if err := g.check(1); errors.Is(err, ErrFull) {
				break
			}
			if left < slack/2 {
				t.Fatalf("%d bytes are free, and nobody has looked", left)
			}
		}
	})
}

func TestRetention(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir(), SegmentBytes: 8 << 10, Retain: Retention{Runs: time.Hour}})
	old := finishedRange(0, 400)
	for i := range old {
		old[i].FinishedMs = recent - 2*time.Hour.Milliseconds()
	}
	commit(t, s, &Batch{Applied: 1, Finished: old[:200]})
	commit(t, s, &Batch{Applied: 2, Finished: old[200:]})
	commit(t, s, &Batch{Applied: 3, Finished: finishedRange(400, 500)})
	if got := len(pages(t, s, RunQuery{})); got != 500 {
		t.Fatalf("%d runs before, want 500", got)
	}
	before := s.Stats().History
	snapshot(t, s)
	if got := pages(t, s, RunQuery{}); len(got) != 100 {
		t.Errorf("%d runs after, want 100", len(got))
	}
	if after := s.Stats().History; after >= before/2 {
		t.Errorf("history takes %d of %d bytes", after, before)
	}
	s = reopen(t, s)
	if got := pages(t, s, RunQuery{}); len(got) != 100 {
		t.Errorf("%d runs after reopen, want 100", len(got))
	}
}

// TestRetentionOfApps checks that an app sees its runs and lines as long as its own
// retention says, that segments stay as long as an app needs them, and that opening a
// store removes nothing.
func TestRetentionOfApps(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir(), SegmentBytes: 8 << 10, Retain: Retention{Runs: 24 * time.Hour, Logs: 24 * time.Hour}})
	apps := []string{"brief", "plain", "long"}
	ages := []time.Duration{time.Minute, 2 * time.Hour, 48 * time.Hour, 96 * time.Hour}
	for n, age := range slices.Backward(ages) {
		for i, app := range apps {
			runs := finishedRange(100*(len(apps)*n+i), 100*(len(apps)*n+i)+100)
			for k := range runs {
				runs[k].App, runs[k].FinishedMs = app, time.Now().Add(-age).UnixMilli()
			}
			commit(t, s, &Batch{Applied: s.Applied() + 1, Finished: runs})
		}
	}
	lines, err := logBlocks([]LogEntry{{App: "brief", Run: id(1), Count: 1, Value: []byte("line")}}, time.Now().Add(-2*time.Hour).UnixMilli())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.logs.Append(lines...); err != nil {
		t.Fatal(err)
	}
	seen := func(app string) int { return len(pages(t, s, RunQuery{App: app})) }
	check := func(want ...int) {
		t.Helper()
		for i, app := range apps {
			if got := seen(app); got != want[i] {
				t.Errorf("%d runs of %s, want %d", got, app, want[i])
			}
		}
	}
	check(200, 200, 200) // 24 hours
	s.SetRetention("brief", Retention{Runs: time.Hour})
	s.SetRetention("long", Retention{Runs: 72 * time.Hour})
	check(100, 200, 300)
	old := 100 * (len(apps)*1 + 0) // a run of brief of two hours ago
	if _, ok, err := s.Run("brief", id(old)); ok || err != nil {
		t.Errorf("a run past its retention: %v, %v", ok, err)
	}
	whole := s.Stats().History
	snapshot(t, s)
	kept := s.Stats().History
	if kept >= whole*9/10 || kept <= whole/2 {
		t.Errorf("the history has %d of %d bytes, want those of 72 hours: about three quarters", kept, whole)
	}
	check(100, 200, 300)
	s.cfg.Retain = Retention{} // as a tool opens it
	s = reopen(t, s)
	snapshot(t, s)
	check(300, 300, 300)
	if got := s.Stats().History; got < kept {
		t.Errorf("a store without a retention removed %d bytes", kept-got)
	}
	count := func() (n int) {
		if err := s.Log("brief", id(1), 0, func(LogEntry) error { n++; return nil }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if count() != 1 {
		t.Error("the line is not there")
	}
	s.SetRetention("brief", Retention{Logs: time.Hour})
	if count() != 0 {
		t.Error("the line past its retention is there")
	}
	s.SetRetention("brief", Retention{})
	check(300, 300, 300)
}

func mustGlob(t testing.TB, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestLogs(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir(), SegmentBytes: 8 << 10})
	r := rand.New(rand.NewPCG(1, 1))
	want := map[int][]LogEntry{}
	next := map[int]int64{}
	for range 300 {
		var entries []LogEntry
		for range 1 + r.IntN(4) {
			n := r.IntN(5)
			e := LogEntry{App: "a", Run: id(n), Offset: next[n], Count: 1 + r.IntN(10)}
			e.Value = fmt.Appendf(nil, "run %d line %d", n, e.Offset)
			next[n] += int64(e.Count)
			entries, want[n] = append(entries, e), append(want[n], e)
		}
		if err := s.AppendLog(entries); err != nil {
			t.Fatal(err)
		}
	}
	check := func() {
		t.Helper()
		for n := range 6 {
			for _, from := range []int64{0, 1, 17, next[n] / 2, next[n] - 1, next[n], next[n] + 5} {
				var got, expected []LogEntry
				for _, e := range want[n] {
					if e.Offset+int64(e.Count) > from {
						expected = append(expected, e)
					}
				}
				err := s.Log("a", id(n), from, func(e LogEntry) error { got = append(got, e); return nil })
				same := slices.EqualFunc(got, expected, func(a, b LogEntry) bool {
					return a.App == b.App && a.Run == b.Run && a.Offset == b.Offset && a.Count == b.Count && bytes.Equal(a.Value, b.Value)
				})
				if err != nil || !same {
					t.Fatalf("run %d from %d: got %d entries, want %d, %v", n, from, len(got), len(expected), err)
				}
			}
		}
	}
	check()
	if len(mustGlob(t, s.path("logs/*"))) < 3 {
		t.Fatal("too few segments to test")
	}
	s = reopen(t, s)
	check()
	stop := errors.New("stop")
	if err := s.Log("a", id(0), 0, func(LogEntry) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v, want the error of the function", err)
	}
	if err := s.Log("b", id(0), 0, func(LogEntry) error { return stop }); err != nil {
		t.Errorf("the log of another app: %v", err)
	}
	if err := s.AppendLog([]LogEntry{{"a", id(0), -1, 1, nil}}); err == nil {
		t.Error("a negative offset is accepted")
	}
}

func TestDamagedHistoryIsNamed(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir(), SegmentBytes: 4 << 10})
	commit(t, s, &Batch{Applied: 1, Finished: finishedRange(0, 60)})
	commit(t, s, &Batch{Applied: 2, Finished: finishedRange(60, 120)})
	closeStore(t, s)
	name := mustGlob(t, s.path("history/*"))[0]
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	content[300] ^= 4
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, s.cfg)
	if _, _, err := s.Run("app0", id(0)); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), name) {
		t.Errorf("got %v, want %v and the name of the file", err, ErrCorrupt)
	}
	if v, ok, err := s.Run("app1", id(119)); string(v) != "run 119" || !ok || err != nil {
		t.Errorf("a run of another segment: %q, %v, %v", v, ok, err)
	}
}
