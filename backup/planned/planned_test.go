package planned_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wheelworkhq/wheelwork/backup"
	"github.com/wheelworkhq/wheelwork/backup/archive"
	"github.com/wheelworkhq/wheelwork/backup/planned"
	"github.com/wheelworkhq/wheelwork/node/offline"
	"github.com/wheelworkhq/wheelwork/store"
)

// board keeps the state in memory, as etcd keeps it for the servers of a cluster.
type board struct {
	mu     sync.Mutex
	state  []byte
	leader string
	self   string
	of     *board // the board that this server shares; nil: it has its own
}

func (b *board) shared() *board {
	if b.of != nil {
		return b.of
	}
	return b
}

func (b *board) Leads(context.Context) (bool, error) {
	s := b.shared()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leader == "" || s.leader == b.self, nil
}

func (b *board) Load(context.Context) ([]byte, error) {
	s := b.shared()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, nil
}

func (b *board) Save(_ context.Context, state []byte) error {
	s := b.shared()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = bytes.Clone(state)
	return nil
}

func (b *board) lead(server string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leader = server
}

// small writes a backup with one file, which a check accepts and no restore.
func small(_ context.Context, w io.Writer, _ archive.Keys) error {
	b, err := backup.NewWriter(w, backup.Info{Server: "s"})
	if err == nil {
		_, err = b.Create("keys/token")
	}
	if err == nil {
		_, err = b.Write([]byte("t"))
	}
	if err == nil {
		_, err = b.Close()
	}
	return err
}

// config is that of a maker whose backups are small, on a disk without room for a drill.
func config(t *testing.T, at string) planned.Config {
	t.Helper()
	s, err := planned.ParseSchedule(at)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	return planned.Config{
		Dir: filepath.Join(dir, "backups"), Scratch: filepath.Join(dir, "drill"), Schedule: s, Server: "srv-1", Board: &board{self: "srv-1"},
		Order: func() (archive.Order, error) { return archive.Order{}, nil }, Write: small,
		// The backup fits, and a drill beside it does not.
		Size: func() int64 { return 1 << 30 }, Free: func(string) (int64, bool) { return 2 << 30, true },
		Drill: func(context.Context, string) (planned.Found, error) { return planned.Found{}, errors.New("no drill") },
		Log:   slog.New(slog.DiscardHandler),
	}
}

func maker(t *testing.T, cfg planned.Config) *planned.Maker {
	t.Helper()
	m, err := planned.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// run runs a maker until stop is called.
func run(t *testing.T, m *planned.Maker) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func status(t *testing.T, m *planned.Maker) planned.Status {
	t.Helper()
	s, err := m.Status()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func names(s planned.Status) (all []string) {
	for _, f := range s.Files {
		all = append(all, f.Name)
	}
	return all
}

// The clock of a bubble begins at midnight UTC, 2000-01-01.

// TestSchedule: backups are made at their planned times, and not before.
func TestSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := maker(t, config(t, "30 2 * * *"))
		defer run(t, m)()
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if s := status(t, m); len(s.Files) > 0 || !s.Next.Equal(time.Date(2000, 1, 1, 2, 30, 0, 0, time.UTC)) || s.Last != nil {
			t.Errorf("before its time: %+v", s)
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		s := status(t, m)
		if got := names(s); !slices.Equal(got, []string{"wheelwork-20000101T023000Z.wwb"}) || s.Last == nil || s.Last.Bytes == 0 || s.Error != "" {
			t.Errorf("at its time: %v, %+v", got, s.State)
		}
		if s.Drill == nil || s.Drill.Result != planned.Read || !strings.Contains(s.Drill.Reason, "no room") || s.Drill.Files != 1 {
			t.Errorf("the drill without room: %+v", s.Drill)
		}
	})
}

// TestEvery: "every 6h" counts from the planned time before.
func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := maker(t, config(t, "every 6h"))
		defer run(t, m)()
		time.Sleep(13 * time.Hour)
		synctest.Wait()
		if got := names(status(t, m)); !slices.Equal(got, []string{"wheelwork-20000101T120000Z.wwb", "wheelwork-20000101T060000Z.wwb"}) {
			t.Errorf("%v", got)
		}
	})
}

// TestMissed: a server that was down at several planned times makes one backup at its start.
func TestMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config(t, "0 * * * *")
		m := maker(t, cfg)
		stop := run(t, m)
		time.Sleep(90 * time.Minute)
		synctest.Wait()
		stop()
		time.Sleep(5 * time.Hour)
		m = maker(t, cfg)
		defer run(t, m)()
		time.Sleep(time.Second)
		synctest.Wait()
		if got := names(status(t, m)); !slices.Equal(got, []string{"wheelwork-20000101T063000Z.wwb", "wheelwork-20000101T010000Z.wwb"}) {
			t.Errorf("%v", got)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := names(status(t, m)); len(got) != 3 || got[0] != "wheelwork-20000101T070000Z.wwb" {
			t.Errorf("after it: %v", got)
		}
	})
}

// TestOneServer: of two servers that share the state, the elected one makes each backup, and the
// next one continues when it is lost.
func TestOneServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &board{leader: "srv-1"}
		var made []string
		var mu sync.Mutex
		var makers []*planned.Maker
		for _, id := range []string{"srv-1", "srv-2"} {
			cfg := config(t, "0 * * * *")
			cfg.Server, cfg.Board = id, &board{of: shared, self: id}
			cfg.Write = func(ctx context.Context, w io.Writer, k archive.Keys) error {
				mu.Lock()
				made = append(made, fmt.Sprint(id, " ", time.Now().UTC().Hour()))
				mu.Unlock()
				return small(ctx, w, k)
			}
			m := maker(t, cfg)
			makers = append(makers, m)
			defer run(t, m)()
		}
		time.Sleep(150 * time.Minute)
		shared.lead("srv-2")
		time.Sleep(60 * time.Minute)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if want := []string{"srv-1 1", "srv-1 2", "srv-2 3"}; !slices.Equal(made, want) {
			t.Errorf("%v, want %v", made, want)
		}
		if s := status(t, makers[1]); s.Last == nil || s.Last.Server != "srv-2" {
			t.Errorf("%+v", s.Last)
		}
	})
}

// TestKeep: the newest backups stay, the oldest go after a newer one was verified, and other
// files are not touched.
func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config(t, "0 * * * *")
		cfg.Keep = 2
		var failing atomic.Bool
		cfg.Write = func(ctx context.Context, w io.Writer, k archive.Keys) error {
			if failing.Load() {
				return errors.New("the partition moved")
			}
			return small(ctx, w, k)
		}
		m := maker(t, cfg)
		others := []string{"notes.txt", "wheelwork.wwb", "wheelwork-20000101T000000Z.wwb.old", "wheelwork-19990101T000000Z.wwb.partial-srv-9", "monday.wwb"}
		for _, name := range others {
			if err := os.WriteFile(filepath.Join(cfg.Dir, name), []byte(name), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Mkdir(filepath.Join(cfg.Dir, "wheelwork-19990101T000000Z.wwb"), 0o700); err != nil {
			t.Fatal(err)
		}
		defer run(t, m)()
		time.Sleep(4*time.Hour + time.Minute)
		synctest.Wait()
		want := []string{"wheelwork-20000101T040000Z.wwb", "wheelwork-20000101T030000Z.wwb"}
		if got := names(status(t, m)); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		failing.Store(true)
		time.Sleep(time.Hour + 5*time.Minute) // with the attempts after the first one
		synctest.Wait()
		s := status(t, m)
		if got := names(s); !slices.Equal(got, want) || s.Failures != 3 || !strings.Contains(s.Error, "moved") {
			t.Errorf("after failures: %v, %+v", got, s.State)
		}
		if !s.Next.Equal(time.Date(2000, 1, 1, 6, 0, 0, 0, time.UTC)) {
			t.Errorf("after failures the next time is %v", s.Next)
		}
		entries, err := os.ReadDir(cfg.Dir)
		if err != nil || len(entries) != len(others)+1+len(want) {
			t.Errorf("%v, %v", entries, err)
		}
	})
}

// TestStart: a caller starts a backup, and a second one is refused meanwhile.
func TestStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := maker(t, config(t, ""))
		defer run(t, m)()
		synctest.Wait()
		if err := m.Start(); err != nil {
			t.Fatal(err)
		}
		running := (*planned.RunningError)(nil)
		if err := m.Start(); !errors.As(err, &running) {
			t.Errorf("a second one: %v", err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if s := status(t, m); s.Last == nil || len(s.Files) != 1 || !s.Running.IsZero() || !s.Next.IsZero() {
			t.Errorf("%+v", s)
		}
	})
}

// TestNoRoom: without room for the backup there is none, and the reason is told.
func TestNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config(t, "0 * * * *")
		cfg.Free = func(string) (int64, bool) { return 1 << 20, true }
		m := maker(t, cfg)
		defer run(t, m)()
		time.Sleep(2*time.Hour + 5*time.Minute)
		synctest.Wait()
		if s := status(t, m); len(s.Files) > 0 || !strings.Contains(s.Error, "has 1 MiB free, and about 1408 MiB are needed") || s.Failures != 6 {
			t.Errorf("%+v", s)
		}
	})
}

func TestParseSchedule(t *testing.T) {
	for text, want := range map[string]string{
		"every 1s": "at least a minute", "* * * * * *": "at least a minute", "nonsense": "write a cron expression", "every day": "every 6h",
		"0 0 30 2 *": "",
	} {
		if _, err := planned.ParseSchedule(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for _, text := range []string{"", "every 6h", "30 2 * * *", " @daily "} {
		if _, err := planned.ParseSchedule(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// source is a store with modules and the backups of it.
func source(t *testing.T) func(context.Context, io.Writer, archive.Keys) error {
	t.Helper()
	st, err := store.Open(store.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &archive.Source{ID: "srv-1", Parts: []archive.Part{{Copy: archive.CopyOf(st, func(context.Context) error { return nil })}}}
	return func(ctx context.Context, w io.Writer, k archive.Keys) error {
		_, err := s.Write(ctx, w, k)
		return err
	}
}

// withDrill is the configuration of a maker that restores its backups.
func withDrill(t *testing.T) planned.Config {
	cfg := config(t, "")
	cfg.Write, cfg.Free = source(t), func(string) (int64, bool) { return 1 << 40, true }
	cfg.Drill = func(ctx context.Context, dir string) (planned.Found, error) { return offline.Drill(ctx, dir, cfg.Log) }
	return cfg
}

// attempt makes one backup.
func attempt(t *testing.T, m *planned.Maker) planned.Status {
	t.Helper()
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	for {
		if s := status(t, m); s.Running.IsZero() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			return s
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal("the backup did not end")
		}
	}
}

// TestDrill: a backup is restored and opened, and nothing of that stays. A file that its disk
// has damaged is found, keeps no name of a backup, and removes no older one.
func TestDrill(t *testing.T) {
	cfg := withDrill(t)
	cfg.Keep = 1
	s := attempt(t, maker(t, cfg))
	if s.Drill == nil || s.Drill.Result != planned.Passed || s.Drill.Partitions != 1 || s.Drill.Files == 0 || s.Last == nil {
		t.Fatalf("%+v, %+v", s.State, s.Drill)
	}
	good := names(s)
	if left := filesIn(t, cfg.Dir); !slices.Equal(left, good) {
		t.Errorf("the drill has left %v", left)
	}
	cfg.SetWrote(func(file string) {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
			return
		}
		content[len(content)/2] ^= 1
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Error(err)
		}
	})
	time.Sleep(time.Until(s.Last.Began.Truncate(time.Second).Add(time.Second))) // the name of the next one is another
	s = attempt(t, maker(t, cfg))
	if s.Drill.Result != planned.Failed || !strings.Contains(s.Error, "check its disk") || s.Last == nil || s.Last.File != good[0] {
		t.Errorf("with damage: %+v, %+v", s.State, s.Drill)
	}
	if left := filesIn(t, cfg.Dir); len(left) != 2 || left[0] != good[0] || !strings.HasSuffix(left[1], ".wwb.failed") {
		t.Errorf("with damage there are %v", left)
	}
}

// TestDrillOpensTheStore: a stream that is whole, of a store that is damaged, is no backup.
func TestDrillOpensTheStore(t *testing.T) {
	cfg := withDrill(t)
	whole := cfg.Write
	cfg.Write = func(ctx context.Context, w io.Writer, k archive.Keys) error {
		var b bytes.Buffer
		if err := whole(ctx, &b, k); err != nil {
			return err
		}
		return rewrite(&b, w, func(name string, content []byte) []byte {
			if strings.HasSuffix(name, ".snap") {
				content[len(content)/2] ^= 1
			}
			return content
		})
	}
	s := attempt(t, maker(t, cfg))
	if s.Drill == nil || s.Drill.Result != planned.Failed || s.Last != nil || len(s.Files) > 0 {
		t.Errorf("%+v, %+v", s.State, s.Drill)
	}
}

// rewrite copies a backup with other contents of its files.
func rewrite(from io.Reader, to io.Writer, change func(name string, content []byte) []byte) error {
	r, err := backup.NewReader(from)
	if err != nil {
		return err
	}
	w, err := backup.NewWriter(to, r.Info())
	if err != nil {
		return err
	}
	for {
		name, err := r.Next()
		if errors.Is(err, io.EOF) {
			_, err = w.Close()
			return err
		}
		if err != nil {
			return err
		}
		content, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		f, err := w.Create(name)
		if err == nil {
			_, err = f.Write(change(name, content))
		}
		if err != nil {
			return err
		}
	}
}

func filesIn(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// killedDir names, in the environment of a process of this test, the directory of its backup.
const killedDir = "WHEELWORK_TEST_BACKUP_DIR"

// TestKill: a process that is killed while it writes leaves no file with the name of a backup, and
// the next start removes what it left.
func TestKill(t *testing.T) {
	if dir := os.Getenv(killedDir); dir != "" {
		cfg := config(t, "")
		cfg.Dir = dir
		cfg.Write = func(ctx context.Context, w io.Writer, k archive.Keys) error {
			b, err := backup.NewWriter(w, backup.Info{})
			if err == nil {
				_, err = b.Create("keys/token")
			}
			for range 64 { // more than the buffer of the file
				if err == nil {
					_, err = b.Write(make([]byte, 256<<10))
				}
			}
			fmt.Println("half is written")
			<-ctx.Done()
			return errors.Join(err, ctx.Err())
		}
		attempt(t, maker(t, cfg))
		return
	}
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestKill$")
	cmd.Env = append(os.Environ(), killedDir+"="+dir)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	said := make([]byte, len("half is written"))
	if _, err := io.ReadFull(out, said); err != nil || string(said) != "half is written" {
		t.Errorf("the process said %q, %v", said, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // it was killed
	left := filesIn(t, dir)
	if len(left) != 1 || !strings.HasSuffix(left[0], ".partial-srv-1") {
		t.Fatalf("the process left %v", left)
	}
	if info, err := os.Stat(filepath.Join(dir, left[0])); err != nil || info.Size() == 0 {
		t.Errorf("%v, %v", info, err)
	}
	cfg := config(t, "")
	cfg.Dir = dir
	s := attempt(t, maker(t, cfg))
	if left := filesIn(t, dir); len(s.Files) != 1 || !slices.Equal(left, names(s)) {
		t.Errorf("after the next start there are %v", left)
	}
}
