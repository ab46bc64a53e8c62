package node_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/backup/archive"
	"github.com/wheelworkhq/wheelwork/examples/greet"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// damageKinds are the ways in which a disk, or a person, damages a file. Journals are
// filled with zeros behind their records, so the damage is in the used part of a file.
var damageKinds = map[string]func(b []byte) []byte{
	"flip":     func(b []byte) []byte { b[usedPart(b)/2] ^= 0x10; return b },
	"truncate": func(b []byte) []byte { return b[:usedPart(b)*6/10] },
	"zeros":    func(b []byte) []byte { clear(b[usedPart(b)*6/10:]); return b },
	"remove":   nil,
}

// usedPart returns the length of a file without the zeros at its end.
func usedPart(b []byte) int { return max(len(bytes.TrimRight(b, "\x00")), 1) }

// damageable are the files of a data directory that hold the server's state. Caches, and
// files that are written at each start, are not among them.
var damageable = []string{
	"journal/*.seg", "journal-closed", "ingress/log/*.seg", "ingress/index/*", "host/spool/*.seg",
	"store/view/MANIFEST", "store/view/*.sst", "store/view/*.vlog", "store/view/*.mem", "store/view/KEYREGISTRY", "store/view/DISCARD",
	"store/history/*.seg", "store/history/gaps", "store/keys/*.seg", "store/revisions/*.seg", "store/logs/*.seg", "store/snapshots/*.snap",
	"secret.key", "form", "server-id",
}

// shortDamages are the cases that run without WHEELWORK_LONG: for each kind of file the
// damage that was once handled wrongly.
var shortDamages = regexp.MustCompile(`^closed/(journal/.*remove|journal/.*flip|store/view/.*sst truncate|store/view/MANIFEST remove|store/history/.*seg flip|secret.key flip)$|^restored/(store/history/.*seg remove|store/snapshots/.* flip)$`)

// nextStep matches an instruction in a refusal.
var nextStep = regexp.MustCompile("`wheelwork [a-z]+|bring|[Bb]ring back|from a copy|restore|--new-secret-key")

// TestDamagedFiles damages each file of a data directory in each way. The server then
// starts with all that was acknowledged, or starts and reports the missing state, or
// refuses to start and names a remedy. It never loses something silently.
func TestDamagedFiles(t *testing.T) {
	dir := t.TempDir()
	closed := filepath.Join(dir, "closed")
	p := dev(t, node.DevConfig{Data: closed})
	l := &remembered{start: func(ctx context.Context, dir string, log *slog.Logger, ready func(node.Ready)) error {
		return node.Dev(ctx, node.DevConfig{Data: dir, Listen: "127.0.0.1:0", Logger: log, Ready: ready})
	}}
	l.fill(t, client(t, p, p.Token), "default", 12)
	var saved bytes.Buffer
	if err := backUp(within(t), client(t, p, p.Token), &saved); err != nil {
		t.Fatal(err)
	}
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	restored := filepath.Join(dir, "restored") // has snapshots, and a journal that begins behind them
	if _, err := archive.Restore(within(t), &saved, restored, nil, nil); err != nil {
		t.Fatal(err)
	}
	tried := l.damageAll(t, []string{closed, restored}, damageable, shortDamages)
	if least := 6; tried < least {
		t.Errorf("only %d files were damaged, want at least %d: the names have changed", tried, least)
	}
}

// damageAll tries each kind of damage on each file in dirs that matches one of the
// patterns, without WHEELWORK_LONG only the cases that match short. It returns the number
// of cases.
func (l *remembered) damageAll(t *testing.T, dirs, patterns []string, short *regexp.Regexp) (tried int) {
	long := testkit.Long()
	for _, from := range dirs {
		for _, pattern := range patterns {
			files, err := filepath.Glob(filepath.Join(from, pattern))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				for kind, damage := range damageKinds {
					rel, err := filepath.Rel(from, file)
					if err != nil {
						t.Fatal(err)
					}
					name := fmt.Sprintf("%s/%s %s", filepath.Base(from), rel, kind)
					if !long && !short.MatchString(name) {
						continue
					}
					tried++
					t.Run(name, func(t *testing.T) { l.trial(t, from, rel, damage) })
				}
			}
		}
	}
	return tried
}

// remembered is the state that the server acknowledged.
type remembered struct {
	runs []acknowledged
	// start runs the server on a data directory.
	start func(ctx context.Context, data string, log *slog.Logger, ready func(node.Ready)) error
	token string        // of its administrator; "": the one in node.Ready
	retry time.Duration // for how long a call is retried; 0: it is not
}

// acknowledged is a run that has succeeded, and its job.
type acknowledged struct{ app, job, run string }

func (l *remembered) fill(t *testing.T, c *sdk.Client, app string, n int) {
	t.Helper()
	if _, _, err := c.PushModule(within(t), sdk.Upload{App: app, Name: "greet", Version: "1", Code: greet.Module}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.SetSecret(within(t), app, "key", []byte("value")); err != nil {
		t.Fatal(err)
	}
	begin := len(l.runs)
	for i := range n {
		job := fmt.Sprint("job", i)
		if _, err := c.Apply(within(t), &sdk.Job{App: app, Name: job, Handler: &sdk.Handler{Module: "greet@1"}, Input: "test"}); err != nil {
			t.Fatal(err)
		}
		a, err := c.Trigger(within(t), sdk.Trigger{App: app, Job: job, Key: job})
		if err != nil {
			t.Fatal(err)
		}
		l.runs = append(l.runs, acknowledged{app, job, a.RunID})
	}
	for _, a := range l.runs[begin:] {
		if r, err := c.Wait(within(t), app, a.run); err != nil || r.State != "succeeded" {
			t.Fatal(r, err)
		}
	}
}

func (l *remembered) trial(t *testing.T, from, file string, damage func([]byte) []byte) {
	dir := filepath.Join(t.TempDir(), "data")
	copySparseTree(t, from, dir)
	name := filepath.Join(dir, file)
	content, err := os.ReadFile(name)
	if err == nil && damage == nil {
		err = os.Remove(name)
	} else if err == nil {
		err = os.WriteFile(name, damage(content), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	var says lockedBuffer
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ready, done := make(chan node.Ready, 1), make(chan error, 1)
	go func() {
		done <- l.start(ctx, dir, slog.New(slog.NewTextHandler(&says, nil)), func(r node.Ready) { ready <- r })
	}()
	select {
	case r := <-ready:
		missing := l.missing(t, &process{Ready: r})
		cancel()
		if err := <-done; err != nil {
			t.Errorf("it ended with %v", err)
		}
		if said := says.String(); len(missing) > 0 && !regexp.MustCompile("level=(WARN|ERROR) .*(missing|damaged|cannot be read|lost)").MatchString(said) {
			t.Errorf("missing without a word: %v; it said\n%s", missing, said)
		} else if len(missing) > 0 {
			t.Logf("it started, and told that something is missing: %v", missing)
		}
	case err := <-done:
		if err == nil || !nextStep.MatchString(err.Error()) {
			t.Errorf("it refuses and names no next step: %v", err)
		}
		t.Logf("it refuses: %v", err)
	case <-time.After(time.Minute):
		t.Errorf("it neither starts nor refuses; it said\n%s", says.String())
	}
}

// missing lists the acknowledged state that the server does not have, or has differently.
func (l *remembered) missing(t *testing.T, p *process) (missing []string) {
	t.Helper()
	c, err := sdk.Dial(within(t), p.URL, sdk.Options{Token: cmp.Or(l.token, p.Token), RetryFor: cmp.Or(l.retry, -1)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // a test's
	listed := map[string]bool{}
	apps := map[string]bool{}
	for _, a := range l.runs {
		apps[a.app] = true
	}
	for app := range apps {
		for r, err := range c.Runs(within(t), sdk.RunQuery{App: app}) {
			if err != nil {
				missing = append(missing, "the end of the list: "+err.Error())
				break
			}
			listed[r.Id] = true
		}
	}
	for _, a := range l.runs {
		r, err := c.Run(within(t), a.app, a.run)
		if err != nil || r.State != "succeeded" || r.Output != "Hello, test!\n" || !listed[a.run] {
			missing = append(missing, fmt.Sprintf("run %s (listed %v): %v", a.run, listed[a.run], err))
		}
		if j, err := c.Job(within(t), a.app, a.job); err != nil || j.Input != "test" {
			missing = append(missing, fmt.Sprintf("job %s: %v", a.job, err))
		}
	}
	return missing
}

// lockedBuffer is a buffer for a logger that writes concurrently.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// copySparseTree copies a directory without spare segments and without the zeros at the
// end of files, of which journals have many.
func copySparseTree(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		if filepath.Ext(path) == ".spare" || !d.Type().IsRegular() {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f, err := os.OpenFile(filepath.Join(to, rel), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // a test's
		if _, err := io.Copy(f, bytes.NewReader(bytes.TrimRight(content, "\x00"))); err != nil {
			return err
		}
		return f.Truncate(int64(len(content)))
	})
	if err != nil {
		t.Fatal(err)
	}
}
