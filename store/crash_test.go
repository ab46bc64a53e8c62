package store

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// crashDir names the variable with the directory in which a child process commits until
// it is killed.
const crashDir = "WHEELWORK_TEST_CRASH_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		err := commitForEver(dir)
		fmt.Fprintln(os.Stderr, err) //nolint:errcheck // about to exit
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// numbered returns the batch with a number, on which its whole content depends.
func numbered(n int) *Batch {
	return &Batch{
		Applied:  uint64(n),
		Jobs:     []JobRow{{"a", fmt.Sprintf("job-%02d", n%50), []byte(strconv.Itoa(n))}},
		Runs:     []RunRow{{"a", id(n), []byte(strconv.Itoa(n))}, {"a", id(n - 3), nil}},
		Rows:     []Row{{"counter", []byte(strconv.Itoa(n))}},
		Finished: finishedRange(10*n, 10*n+10),
		Keys:     []Keys{{"a", fmt.Appendf(nil, "%0100d", n)}, {"b", nil}},
		Revisions: []Revision{
			numberedRevision(n),
			{App: "b", Kind: "calendar", Name: strconv.Itoa(n), Number: 1, AtMs: int64(n), After: Content{Own: "any"}},
		},
		Audit: []AuditEntry{auditOf(uint64(n), 1, "app/a")},
	}
}

// numberedRevision returns the revision of the job of the batch with a number.
func numberedRevision(n int) Revision {
	return Revision{
		App: "a", Kind: "job", Name: fmt.Sprintf("job-%02d", n%50), Number: int64(n-1)/50 + 1, AtMs: int64(n),
		Cause: []byte("the test"), Before: numberedContent(n - 50), After: numberedContent(n),
	}
}

// numberedContent returns the definition of a job after the batch with a number.
func numberedContent(n int) Content {
	if n <= 0 {
		return Content{}
	}
	return Content{Shape: "shape", Own: fmt.Sprintf("definition %d of a job", n)}
}

// checkNumbered checks that the store holds exactly what the batches from 1 to
// Applied wrote.
func checkNumbered(t testing.TB, s *Store) {
	t.Helper()
	n := int(s.Applied())
	var want []string
	for job := range 50 {
		if last := n - (n-job+50)%50; last > 0 {
			want = append(want, fmt.Sprintf("job %q %q %q", "a", fmt.Sprintf("job-%02d", job), strconv.Itoa(last)))
		}
	}
	for run := max(1, n-2); run <= n; run++ {
		want = append(want, fmt.Sprintf("run %q %x %q", "a", id(run), strconv.Itoa(run)))
	}
	if n > 0 {
		want = append(want, fmt.Sprintf("row %q %q", "counter", strconv.Itoa(n)))
	}
	wantDump(t, s, want...)
	checkHistory(t, s, n)
	checkKeys(t, s, n)
	checkRevisions(t, s, n)
	checkShares(t, s)
	if all := fromStart(t, s); len(all) != n || n > 0 && (all[0] != 1 || all[n-1] != uint64(n)) {
		t.Fatalf("applied %d: there are %d audit events", n, len(all))
	}
}

// checkRevisions checks that the revisions of the batches up to n are present, each once.
func checkRevisions(t testing.TB, s *Store, n int) {
	t.Helper()
	for at := max(1, n-49); at <= n; at++ { // the last revision of each job
		want := numberedRevision(at)
		revs, _, err := s.Revisions(want.App, want.Kind, want.Name, "", visibleRevisions)
		if err != nil || len(revs) != min(int(want.Number), visibleRevisions) {
			t.Fatalf("applied %d: %s has %d revisions, %v, want %d", n, want.Name, len(revs), err, want.Number)
		}
		after := want.After
		for i, r := range revs {
			want := numberedRevision(at - 50*i)
			before, err := r.Before(after)
			if r.Number != want.Number || r.AtMs != want.AtMs || before != want.Before || err != nil {
				t.Fatalf("applied %d: before revision %d of %s there is %q, %v, want %q", n, r.Number, want.Name, before, err, want.Before)
			}
			after = before
		}
		name := strconv.Itoa(at)
		if revs, _, err = s.Revisions("b", "calendar", name, "", 10); err != nil || len(revs) != 1 {
			t.Fatalf("applied %d: calendar %s has %d revisions, %v", n, name, len(revs), err)
		}
	}
	if want := numberedRevision(n + 1); want.Number == 1 {
		if revs, _, err := s.Revisions(want.App, want.Kind, want.Name, "", 10); err != nil || len(revs) > 0 {
			t.Fatalf("applied %d: %s has %d revisions, %v", n, want.Name, len(revs), err)
		}
	}
	if revs, _, err := s.Revisions("b", "calendar", strconv.Itoa(n+1), "", 10); err != nil || len(revs) > 0 {
		t.Fatalf("applied %d: the revision of the next batch is there: %v", n, err)
	}
}

// keptKeys is the number of batches whose keys a test retains, at least.
const keptKeys = 5

// checkKeys checks that the keys of the last batches are present, each once, and none
// behind them.
func checkKeys(t testing.TB, s *Store, n int) {
	t.Helper()
	var got []string
	for k := range eachKeys(t, s) {
		got = append(got, fmt.Sprintf("%s %s", k.App, k.Value))
	}
	var want []string
	for i := max(1, n-keptKeys); i <= n; i++ {
		want = append(want, fmt.Sprintf("a %0100d", i), "b ")
	}
	if from := len(got) - len(want); from < 0 || !slices.Equal(got[from:], want) {
		t.Fatalf("applied %d: the keys are %q", n, got)
	}
}

// eachKeys returns an iterator over [Store.EachKeys].
func eachKeys(t testing.TB, s *Store) iter.Seq2[Keys, int64] {
	return func(yield func(Keys, int64) bool) {
		t.Helper()
		err := s.EachKeys(func(k Keys, at int64) error {
			if !yield(k, at) {
				return errStop
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStop) {
			t.Fatal(err)
		}
	}
}

func checkHistory(t testing.TB, s *Store, n int) {
	t.Helper()
	next := 10*n + 9
	for _, v := range pages(t, s, RunQuery{Limit: 1000}) {
		if v != fmt.Sprint("run ", next) {
			t.Fatalf("applied %d: the history has %q where run %d should be", n, v, next)
		}
		next--
	}
	if next != 9 && n > 0 {
		t.Fatalf("applied %d: the history lacks the runs up to %d", n, next)
	}
}

func commitForEver(dir string) error {
	s, err := Open(Config{Dir: dir, SegmentBytes: 64 << 10})
	if err != nil {
		return err
	}
	go func() {
		for {
			if _, err := s.Snapshot(context.Background()); err != nil {
				fmt.Fprintln(os.Stderr, err) //nolint:errcheck // about to exit
				os.Exit(1)
			}
		}
	}()
	var ends []int64 // lengths of the log of keys after each batch
	for n := int(s.Applied()) + 1; ; n++ {
		b := numbered(n)
		if len(ends) > keptKeys {
			b.Forgotten, ends = ends[0], ends[1:]
		}
		if err := s.Commit(b); err != nil {
			return err
		}
		ends = append(ends, s.KeysLength())
		fmt.Println(n)
	}
}

func TestKill(t *testing.T) {
	dir := t.TempDir()
	cfg := Config{Dir: dir, SegmentBytes: 64 << 10}
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 12 {
		acked := killed(t, dir, 1+r.IntN(150), round)
		s := openStore(t, cfg)
		if got := int(s.Applied()); got < acked {
			t.Fatalf("applied %d, but %d was acknowledged", got, acked)
		}
		checkNumbered(t, s)
		closeStore(t, s)
	}
	if _, err := Rebuild(dir, RebuildOptions{}); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, cfg)
	if s.Applied() == 0 {
		t.Fatal("rebuilt from nothing")
	}
	checkNumbered(t, s)
}

// killed lets a child commit in dir, kills it after the given number of acknowledgements,
// and returns the last number acknowledged.
func killed(t *testing.T, dir string, commits, round int) (acked int) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), crashDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for i := 0; lines.Scan(); i++ {
		if acked, err = strconv.Atoi(lines.Text()); err != nil {
			t.Fatal(err)
		}
		if i == commits {
			cmd.Process.Kill() //nolint:errcheck // it may be gone: then the test fails below
		}
	}
	cmd.Wait() //nolint:errcheck // it was killed
	if acked == 0 {
		t.Fatalf("round %d: the child committed nothing", round)
	}
	return acked
}

// copyDir copies a directory file by file while it may change, like a backup program that
// does not know the store.
func copyDir(t testing.TB, from string) (to string) {
	t.Helper()
	to = filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

func remove(t testing.TB, paths ...string) {
	t.Helper()
	for _, p := range paths {
		if err := os.RemoveAll(p); err != nil {
			t.Fatal(err)
		}
	}
}

func commitNumbered(t testing.TB, s *Store, n int) {
	t.Helper()
	for range n {
		commit(t, s, numbered(int(s.Applied())+1))
	}
}

// TestSnapshotsRebuild copies the store at each link of two chains, rebuilds the rows of
// the copy and compares them.
func TestSnapshotsRebuild(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir(), SegmentBytes: 16 << 10})
	for n := range 2*chainLinks + 2 {
		commitNumbered(t, s, 1+n%4)
		if applied := snapshot(t, s); applied != s.Applied() {
			t.Fatalf("snapshot up to %d, applied %d", applied, s.Applied())
		}
		commitNumbered(t, s, n%3) // not in the snapshot: the rebuild cuts them from the history
		snapshots := len(mustGlob(t, s.path("snapshots/*")))
		if want := 1 + n%chainLinks; snapshots != want {
			t.Fatalf("%d snapshots, want %d", snapshots, want)
		}
		if n%7 != 0 {
			continue
		}
		dir := copyDir(t, s.cfg.Dir)
		var last int64
		if _, err := Rebuild(dir, RebuildOptions{Progress: func(done, total int64) { last = total - done }}); err != nil || last != 0 {
			t.Fatal(err, last)
		}
		again := openStore(t, Config{Dir: dir, SegmentBytes: 16 << 10})
		if again.Applied() != s.Applied()-uint64(n%3) {
			t.Fatalf("rebuilt: applied %d, want %d", again.Applied(), s.Applied()-uint64(n%3))
		}
		checkNumbered(t, again)
		commitNumbered(t, again, 5)
		again = reopen(t, again)
		checkNumbered(t, again)
		closeStore(t, again)
	}
	before := mustGlob(t, s.path("snapshots/*"))
	snapshot(t, s) // includes commits behind the last snapshot, if there are any
	snapshot(t, s)
	if after := mustGlob(t, s.path("snapshots/*")); len(after) > len(before)+1 {
		t.Error("a snapshot was written though nothing had changed")
	}
}

// TestSnapshotKnowsDeletions lets badger compact deletions away between two snapshots.
func TestSnapshotKnowsDeletions(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir()})
	put, del := &Batch{Applied: 1}, &Batch{Applied: 2}
	for n := range 1000 {
		put.Rows = append(put.Rows, Row{fmt.Sprintf("%04d", n), []byte("v")})
		if n != 500 {
			del.Rows = append(del.Rows, Row{fmt.Sprintf("%04d", n), nil})
		}
	}
	commit(t, s, put)
	s = reopen(t, s) // moves the rows to a table of the last level
	snapshot(t, s)
	commit(t, s, del)
	fill := &Batch{Applied: 2}
	for n := range 5000 { // enough for memtables to be flushed and compacted
		fill.Rows = append(fill.Rows, Row{fmt.Sprintf("fill/%d", n%2500), make([]byte, 8<<10)})
	}
	for range 3 {
		commit(t, s, fill)
	}
	if err := s.db.Flatten(2); err != nil {
		t.Fatal(err)
	}
	if snapshot(t, s); len(s.chain.links) != 2 {
		t.Fatalf("%d links, want 2", len(s.chain.links))
	}
	closeStore(t, s)
	if _, err := Rebuild(s.cfg.Dir, RebuildOptions{}); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, s.cfg)
	var got []string
	if err := s.Rows("0", "", "", func(key string, _ []byte) error { got = append(got, key); return nil }); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, []string{"0500"}) {
		t.Errorf("%d rows after the rebuild, want only 0500", len(got))
	}
}

// TestPinIsBounded: the next snapshot is full when too much has changed since the last
// one.
func TestPinIsBounded(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir()})
	commitNumbered(t, s, 1)
	snapshot(t, s)
	s.pinned.Store(pinLimit)
	commitNumbered(t, s, 1)
	snapshot(t, s)
	if n := len(s.chain.links); n != 1 || s.chain.number != 2 {
		t.Errorf("%d links of chain %d, want a new full one", n, s.chain.number)
	}
}

func TestSnapshotIsCancelled(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir()})
	commitNumbered(t, s, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Snapshot(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want %v", err, context.Canceled)
	}
	if left := mustGlob(t, s.path("snapshots/*")); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
	snapshot(t, s)
}

// TestViewIsRebuilt damages the view in each way that Open must detect.
func TestViewIsRebuilt(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir(), SegmentBytes: 16 << 10})
	commitNumbered(t, s, 20)
	old := copyDir(t, s.path(viewName))
	commitNumbered(t, s, 20)
	snapshot(t, s)
	commitNumbered(t, s, 10)
	killed := copyDir(t, s.cfg.Dir)
	closeStore(t, s)
	for name, c := range map[string]struct {
		from    string
		damage  func(dir string)
		applied uint64
	}{
		"closed":      {s.cfg.Dir, func(string) {}, 50},
		"killed":      {killed, func(string) {}, 50},
		"missing":     {s.cfg.Dir, func(dir string) { remove(t, filepath.Join(dir, viewName)) }, 40},
		"emptied":     {s.cfg.Dir, func(dir string) { remove(t, mustGlob(t, filepath.Join(dir, viewName, "*"))...) }, 40},
		"no tables":   {s.cfg.Dir, func(dir string) { remove(t, mustGlob(t, filepath.Join(dir, viewName, "*.sst"))...) }, 40},
		"no manifest": {s.cfg.Dir, func(dir string) { remove(t, filepath.Join(dir, viewName, "MANIFEST")) }, 40},
		"a table is cut": {s.cfg.Dir, func(dir string) {
			changeTables(t, dir, func(b []byte) []byte { return b[:len(b)*6/10] })
		}, 40},
		"a table is empty": {s.cfg.Dir, func(dir string) {
			changeTables(t, dir, func([]byte) []byte { return nil })
		}, 40},
		"a table ends in zeros": {s.cfg.Dir, func(dir string) {
			changeTables(t, dir, func(b []byte) []byte { clear(b[len(b)*9/10:]); return b })
		}, 40},
		"the last block of a table is flipped": {s.cfg.Dir, func(dir string) {
			changeTables(t, dir, func(b []byte) []byte { b[len(b)/2] ^= 0xff; return b })
		}, 40},
		"scribbled": {s.cfg.Dir, func(dir string) {
			if err := os.WriteFile(filepath.Join(dir, viewName, "MANIFEST"), []byte("scribble"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, 40},
		"older": {s.cfg.Dir, func(dir string) {
			remove(t, filepath.Join(dir, viewName))
			if err := os.CopyFS(filepath.Join(dir, viewName), os.DirFS(old)); err != nil {
				t.Fatal(err)
			}
		}, 40},
		"power cut": {killed, func(dir string) {
			if _, err := os.Stat(filepath.Join(dir, bootedName)); err != nil {
				t.Skip("the system does not tell its boots apart: ", err)
			}
			if err := os.WriteFile(filepath.Join(dir, bootedName), []byte("another"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, 40},
		"history is damaged": {s.cfg.Dir, func(dir string) {
			names := mustGlob(t, filepath.Join(dir, historyName, "*.seg"))
			content, err := os.ReadFile(names[len(names)-1])
			if err != nil {
				t.Fatal(err)
			}
			content[len(content)-1] ^= 1
			if err := os.WriteFile(names[len(names)-1], content, 0o600); err != nil {
				t.Fatal(err)
			}
		}, 40},
		"history is short": {s.cfg.Dir, func(dir string) {
			names := mustGlob(t, filepath.Join(dir, historyName, "*.seg"))
			if err := os.Truncate(names[len(names)-1], 100); err != nil {
				t.Fatal(err)
			}
		}, 40},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copyDir(t, c.from)
			c.damage(dir)
			if name == "history is short" {
				checkShortHistory(t, dir)
				return
			}
			s := openStore(t, Config{Dir: dir, SegmentBytes: 16 << 10})
			if s.Applied() != c.applied {
				t.Fatalf("applied %d, want %d", s.Applied(), c.applied)
			}
			checkNumbered(t, s)
			commitNumbered(t, s, 20)
			snapshot(t, s)
			s = reopen(t, s)
			checkNumbered(t, s)
		})
	}
}

// changeTables rewrites every table of the view.
func changeTables(t *testing.T, dir string, change func([]byte) []byte) {
	t.Helper()
	names := mustGlob(t, filepath.Join(dir, viewName, "*.sst"))
	if len(names) == 0 {
		t.Fatal("the view has no table")
	}
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, change(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// checkShortHistory opens a store whose history lacks runs, which the journal may or may
// not have. The store must open and continue to work.
func checkShortHistory(t *testing.T, dir string) {
	t.Helper()
	s := openStore(t, Config{Dir: dir, SegmentBytes: 16 << 10})
	if s.Applied() != 40 {
		t.Fatalf("applied %d, want that of the snapshot", s.Applied())
	}
	commitNumbered(t, s, 10)
	if v, ok, err := s.Run(finished(505).App, id(505)); string(v) != "run 505" || !ok || err != nil {
		t.Fatalf("a run after that: %q, %v, %v", v, ok, err)
	}
	reopen(t, s)
}

func TestDamagedSnapshot(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir()})
	commitNumbered(t, s, 5)
	snapshot(t, s)
	commitNumbered(t, s, 5)
	snapshot(t, s)
	closeStore(t, s)
	for link, name := range mustGlob(t, s.path("snapshots/*")) {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []int{0, 10, snapHead + 2, len(content) / 2, len(content) - 20, len(content) - 1} {
			dir := copyDir(t, s.cfg.Dir)
			damaged := filepath.Join(dir, snapshotsDir, filepath.Base(name))
			bad := slices.Clone(content)
			bad[at] ^= 16
			if err := os.WriteFile(damaged, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Rebuild(dir, RebuildOptions{}); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), damaged) {
				t.Fatalf("link %d, byte %d: got %v, want %v and the name of the file", link, at, err, ErrCorrupt)
			}
			again := openStore(t, Config{Dir: dir}) // the view still exists
			checkNumbered(t, again)
			if again.Applied() != 10 {
				t.Fatalf("applied %d, want 10", again.Applied())
			}
			commitNumbered(t, again, 1)
			snapshot(t, again) // the next snapshot is a full one and replaces the damaged chain
			closeStore(t, again)
			if _, err := Rebuild(dir, RebuildOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestLoggerGetsReasons(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir()})
	commitNumbered(t, s, 5)
	snapshot(t, s)
	closeStore(t, s)
	remove(t, mustGlob(t, s.path("view/*.sst"))...)
	var lines bytes.Buffer // slog locks it
	s.cfg.Logger = slog.New(slog.NewTextHandler(&lines, nil))
	openStore(t, s.cfg)
	if !strings.Contains(lines.String(), "rebuilt from the snapshots") {
		t.Errorf("the log says only %q", lines.String())
	}
}

// TestSnapshotHistoryDamaged damages runs that the journal no longer has. Open must
// report the damage. Once the file is gone, Open must succeed without them.
func TestSnapshotHistoryDamaged(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir()})
	commitNumbered(t, s, 20)
	snapshot(t, s)
	closeStore(t, s)
	name := mustGlob(t, s.path("history/*"))[0]
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)/2] ^= 1
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := Open(s.cfg); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "store repair") {
			t.Fatalf("got %v, want %v, the name of the file and what to do", err, ErrCorrupt)
		}
	}
	remove(t, name)
	s = openStore(t, s.cfg)
	if got := pages(t, s, RunQuery{}); s.Applied() != 20 || len(got) != 0 {
		t.Fatalf("applied %d, %d runs", s.Applied(), len(got))
	}
	for range 3 { // each time Open loads the snapshot, which refers to lost runs, and the caller replays
		commitNumbered(t, s, 1)
		if s = reopen(t, s); s.Applied() != 21 || len(pages(t, s, RunQuery{})) != 10 {
			t.Fatalf("applied %d, %d runs: the runs after that are lost, or twice there", s.Applied(), len(pages(t, s, RunQuery{})))
		}
		closeStore(t, s)
		remove(t, s.path(viewName))
		if s = openStore(t, s.cfg); s.Applied() != 20 || len(pages(t, s, RunQuery{})) != 0 {
			t.Fatalf("rebuilt: applied %d, %d runs", s.Applied(), len(pages(t, s, RunQuery{})))
		}
	}
}

func TestOpenIsQuick(t *testing.T) {
	start := time.Now()
	openStore(t, Config{Dir: t.TempDir()})
	if took := time.Since(start); took > 5*time.Second { // the goal is 200 ms; this bound only detects gross errors
		t.Errorf("open of an empty directory took %v", took)
	}
}
