package node_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/backup"
	"github.com/wheelworkhq/wheelwork/backup/archive"
	"github.com/wheelworkhq/wheelwork/examples/greet"
	"github.com/wheelworkhq/wheelwork/ingress"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
	"github.com/wheelworkhq/wheelwork/mq"
	"github.com/wheelworkhq/wheelwork/mq/queue"
	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/node/offline"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// life is the state that tests of backup and growth put into a server, and look for
// afterwards.
type life struct {
	t    *testing.T
	runs []string
}

func client(t *testing.T, p *process, token string) *sdk.Client {
	t.Helper()
	c, err := sdk.Dial(within(t), p.URL, sdk.Options{Token: token, RetryFor: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // a test's
	return c
}

// backUp writes a backup with the keys of the server, which is not encrypted.
func backUp(ctx context.Context, c *sdk.Client, w io.Writer) error {
	_, err := c.Backup(ctx, w, sdk.BackupOptions{Keys: sdk.BackupKeysIncluded, PlaintextKeys: true})
	return err
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// fill puts one of each kind of state into a server.
func (l *life) fill(c *sdk.Client) {
	l.t.Helper()
	ctx := within(l.t)
	_, _, err := c.PushModule(ctx, sdk.Upload{Name: "greet", Version: "1", Code: greet.Module})
	must := func(err error) {
		if err != nil {
			l.t.Helper()
			l.t.Fatal(err)
		}
	}
	must(err)
	_, err = c.SetAlias(ctx, "", "greet@prod", sdk.AliasChange{Version: "1"})
	must(err)
	_, err = c.SetSecret(ctx, "", "key", []byte("a value that nobody reads"))
	must(err)
	_, err = c.PutCalendar(ctx, &sdk.Calendar{App: "default", Name: "holidays", Yearly: []string{"12-25"}})
	must(err)
	_, err = c.PutApp(ctx, &sdk.App{Name: "pay"})
	must(err)
	_, err = c.PutValue(ctx, "", "b", "k", []byte("v"), 0)
	must(err)
	_, err = c.Apply(ctx, &sdk.Job{Name: "hello", Handler: &sdk.Handler{Module: "greet@prod"}, Input: "test"})
	must(err)
	_, err = c.Apply(ctx, &sdk.Job{App: "pay", Name: "later", Handler: &sdk.Handler{Module: "greet@1"}, Schedule: &sdk.Schedule{Cron: "0 0 1 1 *"}})
	if err != nil { // the module belongs to the other app
		_, _, err = c.PushModule(ctx, sdk.Upload{App: "pay", Name: "greet", Version: "1", Code: greet.Module})
		must(err)
		_, err = c.Apply(ctx, &sdk.Job{App: "pay", Name: "later", Handler: &sdk.Handler{Module: "greet@1"}, Schedule: &sdk.Schedule{Cron: "0 0 1 1 *"}})
		must(err)
	}
	l.trigger(c, 20)
}

// trigger triggers runs, and waits for half of them.
func (l *life) trigger(c *sdk.Client, n int) {
	l.t.Helper()
	ctx := within(l.t)
	for i := range n {
		a, err := c.Trigger(ctx, sdk.Trigger{Job: "hello", Key: fmt.Sprint("k", len(l.runs))})
		if err != nil {
			l.t.Fatal(err)
		}
		l.runs = append(l.runs, a.RunID)
		if i%2 == 0 {
			l.ends(c, a.RunID)
		}
	}
}

func (l *life) ends(c *sdk.Client, id string) {
	l.t.Helper()
	r, err := c.Wait(within(l.t), "", id)
	if err != nil || r.State != "succeeded" || r.Output != "Hello, test!\n" {
		l.t.Errorf("run %s: %v, %v", id, r, err)
	}
}

// check looks for all of that state.
func (l *life) check(c *sdk.Client) {
	l.t.Helper()
	ctx := within(l.t)
	for _, id := range l.runs {
		l.ends(c, id)
	}
	if a, err := c.Alias(ctx, "", "greet@prod"); err != nil || a.Version != "1" {
		l.t.Errorf("the alias: %v, %v", a, err)
	}
	if s, err := c.Secrets(ctx, ""); err != nil || len(s) != 1 || s[0].Name != "key" {
		l.t.Errorf("the secrets: %v, %v", s, err)
	}
	if cal, err := c.Calendar(ctx, "", "holidays"); err != nil || !slices.Equal(cal.Yearly, []string{"12-25"}) {
		l.t.Errorf("the calendar: %v, %v", cal, err)
	}
	if v, err := c.Value(ctx, "", "b", "k"); err != nil || string(v.Value) != "v" {
		l.t.Errorf("the value: %v, %v", v, err)
	}
	if j, err := c.Job(ctx, "pay", "later"); err != nil || j.Schedule.GetCron() != "0 0 1 1 *" {
		l.t.Errorf("the job: %v, %v", j, err)
	}
	if code, err := c.DownloadModule(ctx, "", "greet@1"); err != nil || !bytes.Equal(code, greet.Module) {
		l.t.Errorf("the module: %d bytes, %v", len(code), err)
	}
	again, err := c.Trigger(ctx, sdk.Trigger{Job: "hello", Key: "k0"})
	if err != nil || again.RunID != l.runs[0] {
		l.t.Errorf("a key that was used before is now of %s, %v", again.RunID, err)
	}
}

func same(t *testing.T, a, b string) {
	t.Helper()
	x, err := os.ReadFile(a)
	y, err2 := os.ReadFile(b)
	if err = errors.Join(err, err2); err != nil || !bytes.Equal(x, y) || len(x) == 0 {
		t.Errorf("%s and %s differ: %v", a, b, err)
	}
}

// damaged returns damaged copies of a backup.
func damaged(whole []byte, rnd *rand.Rand) map[string][]byte {
	all := map[string][]byte{
		"empty":  nil,
		"magic":  append([]byte("X"), whole[1:]...),
		"longer": append(bytes.Clone(whole), 0),
		"twice":  append(bytes.Clone(whole), whole...),
	}
	for range 40 {
		at := rnd.IntN(len(whole))
		flipped := bytes.Clone(whole)
		flipped[at] ^= 1 << rnd.IntN(8)
		all[fmt.Sprintf("a bit at %d", at)] = flipped
		all[fmt.Sprintf("cut at %d", at)] = whole[:at]
	}
	newer := bytes.Clone(whole)
	binary.LittleEndian.PutUint16(newer[8:], backup.Form+1)
	all["newer"] = newer
	return all
}

// TestRestoreRefuses: a backup that is damaged, cut short or newer leaves nothing behind.
// A directory that is not empty is left alone. A directory with an unfinished restore
// starts no server, and the next restore begins again.
func TestRestoreRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := dev(t, node.DevConfig{Data: filepath.Join(dir, "a"), Sample: true})
	var made bytes.Buffer
	if err := backUp(within(t), client(t, a, a.Token), &made); err != nil {
		t.Fatal(err)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	to := filepath.Join(dir, "to")
	for name, bad := range damaged(made.Bytes(), rand.New(rand.NewPCG(seed, 0))) {
		_, err := archive.Restore(within(t), bytes.NewReader(bad), to, nil, nil)
		newer := (*backup.NewerError)(nil)
		if !errors.Is(err, backup.ErrDamaged) && !errors.Is(err, backup.ErrCut) && !errors.As(err, &newer) {
			t.Errorf("%s: %v", name, err)
		}
		if (name == "newer") != (newer != nil && newer.Form == backup.Form+1) {
			t.Errorf("%s: %v", name, err)
		}
		if left, err := os.ReadDir(to); err != nil || len(left) > 0 {
			t.Errorf("%s left %v, %v", name, left, err)
		}
	}
	full := filepath.Join(dir, "full")
	if err := os.MkdirAll(full, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(full, "mine"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := archive.Restore(within(t), bytes.NewReader(made.Bytes()), full, nil, nil); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("a directory with a file: %v", err)
	}
	if left, err := os.ReadDir(full); err != nil || len(left) != 1 {
		t.Errorf("it holds %v, %v", left, err)
	}
	// The directory is as a killed restore leaves it.
	if err := os.WriteFile(filepath.Join(full, "restoring"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := node.Server(within(t), node.ServerConfig{Data: full, Listen: "127.0.0.1:0", Ready: func(node.Ready) { t.Error("it started") }})
	if err == nil || !strings.Contains(err.Error(), "restore") {
		t.Errorf("a server on half a restore: %v", err)
	}
	if _, err := archive.Restore(within(t), bytes.NewReader(made.Bytes()), full, nil, nil); err != nil {
		t.Errorf("again: %v", err)
	}
	if _, err := os.Stat(filepath.Join(full, "mine")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what the first attempt left is there still: %v", err)
	}
}

// TestForeignBackup: names that lead out of the directory, or to files that no server
// has, are refused even if the checksums are right.
func TestForeignBackup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"server-id", "form", "lock", "journal/0000000000000001.seg", "store/view/000001.sst", "units/x/y/store/history/00000000000000000000.seg", "units/x/token", "units/x/placement.json", "modules/abc", "ingress/0", "restoring"} {
		var b bytes.Buffer
		w, err := backup.NewWriter(&b, backup.Info{})
		if err != nil {
			t.Fatal(err)
		}
		f, err := w.Create(name)
		if err == nil {
			_, err = io.WriteString(f, "x")
		}
		if _, cerr := w.Close(); err != nil || cerr != nil {
			t.Fatal(err, cerr)
		}
		if _, err := archive.Restore(within(t), &b, filepath.Join(dir, "to"), nil, nil); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNewerDirectory: a directory that a newer version has written is left alone.
func TestNewerDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := dev(t, node.DevConfig{Data: dir})
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	form := filepath.Join(dir, "form")
	if text, err := os.ReadFile(form); err != nil || string(text) != "5\n" {
		t.Fatalf("%q, %v", text, err)
	}
	for _, before := range []string{"1\n", "2\n", "3\n", "4\n"} {
		if err := os.WriteFile(form, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		p = dev(t, node.DevConfig{Data: dir})
		if err := p.stop(); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(form); err != nil || string(text) != "5\n" {
			t.Fatalf("a directory of form %q has form %q, %v", before, text, err)
		}
	}
	for text, want := range map[string]string{"6\n": "a newer one", "x": "no form", "": "no form", "0": "no form"} {
		if err := os.WriteFile(form, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		err := node.Server(within(t), node.ServerConfig{Data: dir, Listen: "127.0.0.1:0", Ready: func(node.Ready) { t.Error("it started") }})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// ports returns n free loopback addresses.
func ports(t *testing.T, n int) (all []string) {
	t.Helper()
	for range n {
		all = append(all, testkit.FreeAddress(t))
	}
	return all
}

// clustered is a nameserver, a host, and servers with a member of etcd in each.
type clustered struct {
	t          *testing.T
	dir        string
	names      *process
	key        string // the file that seals secrets
	etcd       string // an etcd outside the servers; "": each has a member in it
	partitions int    // of the cluster; 0: the default
	// settle is the minimum dwell time of partitions; 0: the default.
	settle time.Duration
	at     []string // client and peer of each member
}

func newClustered(t *testing.T) *clustered {
	t.Helper()
	w := &clustered{t: t, dir: t.TempDir(), at: ports(t, 6)}
	if err := os.WriteFile(filepath.Join(w.dir, "shared"), []byte("a-shared-secret-of-this-test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.names = launch(t, func(ctx context.Context, ready func(node.Ready)) error {
		return node.Nameserver(ctx, node.NameserverConfig{Listen: "127.0.0.1:0", TokenFile: filepath.Join(w.dir, "shared"), Ready: ready})
	})
	return w
}

func (w *clustered) data(i int) string { return filepath.Join(w.dir, fmt.Sprint("s", i)) }

func (w *clustered) member(i int) node.ClusterConfig {
	return node.ClusterConfig{On: true, Listen: w.at[2*i], Peer: w.at[2*i+1]}
}

// server starts a server. stop ends it, even if it owns nothing.
func (w *clustered) server(i int) (ready <-chan node.Ready, stop func() error) {
	w.t.Helper()
	if err := os.MkdirAll(w.data(i), 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.data(i), "token"), []byte(adminToken+"\n"), 0o600); err != nil {
		w.t.Fatal(err)
	}
	cfg := node.ServerConfig{
		Data: w.data(i), Listen: testkit.FreeAddress(w.t), Nameserver: w.names.GRPC, TokenFile: filepath.Join(w.dir, "shared"),
		SecretKey: w.key,
	}
	if w.etcd != "" {
		cfg.Etcd.Endpoints, cfg.Etcd.Units, cfg.Etcd.Settle = []string{w.etcd}, w.partitions, w.settle
	} else {
		cfg.Cluster = w.member(i)
	}
	works := make(chan node.Ready, 1)
	cfg.Ready = func(r node.Ready) { works <- r }
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- node.Server(ctx, cfg) }()
	stop = func() error { cancel(); err := <-done; done <- err; return err }
	w.t.Cleanup(func() {
		if err := stop(); err != nil {
			w.t.Error(err)
		}
	})
	return works, stop
}

func (w *clustered) works(ready <-chan node.Ready) *process {
	w.t.Helper()
	select {
	case r := <-ready:
		return &process{Ready: r}
	case <-within(w.t).Done():
		w.t.Fatal("it does not work")
		return nil
	}
}

func (w *clustered) host() {
	w.t.Helper()
	launch(w.t, func(ctx context.Context, ready func(node.Ready)) error {
		return node.Host(ctx, node.HostConfig{Data: filepath.Join(w.dir, "host"), Nameserver: w.names.GRPC, TokenFile: filepath.Join(w.dir, "shared"), Ready: ready})
	})
}

// TestGrow: a standalone server becomes the first of a cluster with all its state, also
// if the growth was interrupted and the server ran standalone in between.
func TestGrow(t *testing.T) {
	t.Parallel()
	w := newClustered(t)
	l := &life{t: t}
	alone := func() *process { return dev(t, node.DevConfig{Data: w.data(0)}) }
	p := alone()
	l.fill(client(t, p, p.Token))
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	grow := func() node.Grown {
		t.Helper()
		g, err := node.Grow(within(t), w.grow(0))
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	first := grow()
	if first.Applied == 0 || first.Again || first.Waiting != 0 {
		t.Fatalf("%+v", first)
	}
	// The directory is as a crash before the last step leaves it.
	if err := errors.Join(os.Rename(first.OldJournal, filepath.Join(w.data(0), "journal")), os.Remove(filepath.Join(w.data(0), "clustered"))); err != nil {
		t.Fatal(err)
	}
	err := node.Server(within(t), node.ServerConfig{Data: w.data(0), Listen: testkit.FreeAddress(t), Cluster: w.member(0), Ready: func(node.Ready) { t.Error("it started") }})
	if err == nil || !strings.Contains(err.Error(), "cluster init") {
		t.Errorf("a server on what is half grown: %v", err)
	}
	p = alone()
	l.trigger(client(t, p, p.Token), 3)
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	accept(t, w.data(0), "accepted")
	second := grow()
	if second.Applied <= first.Applied || second.Again || second.Waiting != 1 || second.Server != first.Server {
		t.Fatalf("%+v after %+v", second, first)
	}
	if third := grow(); !third.Again || third.Applied != second.Applied {
		t.Fatalf("%+v after %+v", third, second)
	}
	w.key = second.SecretKey
	ready, _ := w.server(0)
	one := w.works(ready)
	w.host()
	c := client(t, one, adminToken)
	l.check(c)
	applied(t, c, "accepted")
	l.trigger(c, 3)
}

func (w *clustered) grow(i int) node.GrowConfig {
	if w.etcd != "" {
		return node.GrowConfig{Data: w.data(i), Etcd: node.EtcdConfig{Endpoints: []string{w.etcd}}}
	}
	return node.GrowConfig{Data: w.data(i), Cluster: w.member(i)}
}

// TestStandbyBegins: a server with an empty directory fetches the state of the server
// that works, although no journal holds it any longer, and takes over.
func TestStandbyBegins(t *testing.T) {
	t.Parallel()
	w := newClustered(t)
	m, err := etcd.Start(within(t), etcd.MemberConfig{Name: "m", Dir: t.TempDir(), Client: "http://" + w.at[0], Peer: "http://" + w.at[1], NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close() //nolint:errcheck // a test's
	w.etcd = m.Client()
	l := &life{t: t}
	p := dev(t, node.DevConfig{Data: w.data(0)})
	l.fill(client(t, p, p.Token))
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	g, err := node.Grow(within(t), w.grow(0))
	if err != nil {
		t.Fatal(err)
	}
	w.key = g.SecretKey
	ready, stop := w.server(0)
	c := client(t, w.works(ready), adminToken)
	w.host()
	l.check(c)
	next, _ := w.server(1)
	has := func(pattern string) bool {
		found, err := filepath.Glob(filepath.Join(w.data(1), pattern))
		return err == nil && len(found) > 0
	}
	for ctx := within(t); !has("store/snapshots/*.snap") || !has("modules/sha256/*/*"); {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("the standby did not begin")
		}
	}
	l.trigger(c, 3)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	l.check(client(t, w.works(next), adminToken))
	// The first server's directory can be backed up as well.
	var made bytes.Buffer
	if _, err := offline.Backup(within(t), w.data(0), nil, archive.KeysIncluded, &made); err != nil {
		t.Fatal(err)
	}
	if res, err := archive.Check(within(t), &made, nil); err != nil || res.Applied < g.Applied {
		t.Errorf("%+v, %v", res, err)
	}
	// Growth into a group that is in use already is refused.
	q := dev(t, node.DevConfig{Data: w.data(2), Sample: true})
	if err := q.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := node.Grow(within(t), w.grow(2)); err == nil || !strings.Contains(err.Error(), "--group") {
		t.Errorf("a second growth: %v", err)
	}
	if _, err := os.Stat(filepath.Join(w.data(2), "journal.alone")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its journal is gone: %v", err)
	}
}

// TestClusterMistakes: mistakes are reported before anything is done.
func TestClusterMistakes(t *testing.T) {
	t.Parallel()
	used := t.TempDir()
	p := dev(t, node.DevConfig{Data: used, Sample: true})
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	lost := t.TempDir()
	if err := os.WriteFile(filepath.Join(lost, "clustered"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	at := ports(t, 2)
	good := node.ClusterConfig{On: true, Listen: at[0], Peer: at[1]}
	for _, c := range []struct {
		name   string
		change func(*node.ServerConfig)
		want   string
	}{
		{"a journal of its own", func(c *node.ServerConfig) { c.Data = used }, "cluster init"},
		{"a member that is gone", func(c *node.ServerConfig) { c.Data = lost }, "--join"},
		{"two kinds of etcd", func(c *node.ServerConfig) { c.Etcd.Endpoints = []string{"http://127.0.0.1:1"} }, "one of them"},
		{"joins and begins", func(c *node.ServerConfig) {
			c.Cluster.Join, c.Cluster.Members = []string{"127.0.0.1:1"}, []string{at[1]}
		}, "one of them"},
		{"no port", func(c *node.ServerConfig) { c.Cluster.Join = []string{"127.0.0.1"} }, "HOST:PORT"},
		{"not among them", func(c *node.ServerConfig) { c.Cluster.Members = []string{"127.0.0.1:1"} }, "does not include"},
		{"beyond this machine", func(c *node.ServerConfig) { c.Cluster.Peer = "10.0.0.1:2380" }, "TLS is required"},
		{"half of a certificate", func(c *node.ServerConfig) { c.Etcd.Cert = "/nowhere" }, "all three or none"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		cfg := node.ServerConfig{Data: filepath.Join(t.TempDir(), "d"), Listen: "127.0.0.1:17701", Cluster: good}
		cfg.Ready = func(node.Ready) { t.Errorf("%s: it started", c.name); cancel() }
		c.change(&cfg)
		if err := node.Server(ctx, cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		if _, err := os.Stat(filepath.Join(cfg.Data, "etcd")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: a member was begun: %v", c.name, err)
		}
		cancel()
	}
}

// accept puts a command that applies a job into the ingress of a stopped server, as if
// the command had been acknowledged but not yet applied.
func accept(t *testing.T, data, name string) {
	t.Helper()
	q, err := queue.Open(queue.Config{Dir: filepath.Join(data, "ingress"), Log: mq.Config{SegmentBytes: 16 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	in := ingress.New(ingress.Config{Queue: q, Apply: func(context.Context, []*apiv1.Ingress, bool) ([]*apiv1.CommandResult, error) {
		return nil, errors.New("it is not run")
	}})
	job := greetJob()
	job.Name = name
	done := make(chan error, 1)
	err = in.Accept([]*apiv1.Command{{Kind: &apiv1.Command_Apply{Apply: job}}}, "test", func(_ []*apiv1.CommandResult, err error) { done <- err })
	if err == nil {
		err = <-done
	}
	if err = errors.Join(err, q.Close()); err != nil {
		t.Fatal(err)
	}
}

// applied waits until the command of [accept] was applied.
func applied(t *testing.T, c *sdk.Client, name string) {
	t.Helper()
	for ctx := within(t); ; {
		_, err := c.Job(ctx, "", name)
		if err == nil {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("what was accepted as %s is not applied: %v", name, err)
		}
	}
}

// TestBackup: a backup that is made while a server works has all that was acknowledged
// before, and a server on the restored directory continues from it. The same holds for a
// backup of a stopped server's directory.
func TestBackup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := dev(t, node.DevConfig{Data: filepath.Join(dir, "a")})
	c := client(t, a, a.Token)
	l := &life{t: t}
	l.fill(c)
	working, rest := context.WithCancel(within(t))
	busy := make(chan int)
	go func() { // work continues during the backups
		n := 0
		for ; working.Err() == nil; n++ {
			if _, err := c.Trigger(working, sdk.Trigger{Job: "hello"}); err != nil && working.Err() == nil {
				t.Error(err)
				break
			}
		}
		busy <- n
	}()
	var online bytes.Buffer
	for n := 0; n < 5; n++ {
		l.trigger(c, 3) // acknowledged, and many runs are in progress
		a, err := c.Trigger(within(t), sdk.Trigger{Job: "hello", Key: fmt.Sprint("k", len(l.runs))})
		if err != nil {
			t.Fatal(err)
		}
		l.runs = append(l.runs, a.RunID) // acknowledged a moment ago
		online.Reset()
		if err := backUp(within(t), c, &online); err != nil {
			t.Fatal(err)
		}
	}
	rest()
	t.Logf("%d runs meanwhile", <-busy)
	res, err := archive.Check(within(t), bytes.NewReader(online.Bytes()), nil)
	if err != nil || res.Modules != 1 || !res.Key || res.Applied == 0 || res.Files < 5 || res.Size == 0 || res.MadeAt.IsZero() {
		t.Fatalf("%+v, %v", res, err)
	}
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	accept(t, filepath.Join(dir, "a"), "accepted")
	var made bytes.Buffer
	if _, err := offline.Backup(within(t), filepath.Join(dir, "a"), nil, archive.KeysIncluded, &made); err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]*bytes.Buffer{"online": &online, "offline": &made} {
		to := filepath.Join(dir, name)
		var last int64
		if _, err := archive.Restore(within(t), from, to, nil, func(done, total int64) {
			if done < last || done > total {
				t.Errorf("progress %d of %d after %d", done, total, last)
			}
			last = done
		}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		same(t, filepath.Join(dir, "a", "secret.key"), filepath.Join(to, "secret.key"))
		b := dev(t, node.DevConfig{Data: to})
		if b.Token != a.Token || b.HostToken != a.HostToken {
			t.Errorf("%s: the tokens are others", name)
		}
		cb := client(t, b, b.Token)
		l.check(cb)
		if name == "offline" {
			applied(t, cb, "accepted")
		}
		more := *l
		more.trigger(cb, 4) // it works like any other server
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBehindDoesNotTakeOver: a server whose disk is empty does not take a partition whose
// journal begins later, although it has no owner. Once the server has the state, it takes
// the partition.
func TestBehindDoesNotTakeOver(t *testing.T) {
	t.Parallel()
	w := newClustered(t)
	m, err := etcd.Start(within(t), etcd.MemberConfig{Name: "m", Dir: t.TempDir(), Client: "http://" + w.at[0], Peer: "http://" + w.at[1], NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() }) // after the servers have ended
	w.etcd = m.Client()
	p := dev(t, node.DevConfig{Data: w.data(0), Sample: true})
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	g, err := node.Grow(within(t), w.grow(0))
	if err != nil {
		t.Fatal(err)
	}
	w.key = g.SecretKey
	empty, _ := w.server(1)
	// The server listens, and answers that the partition has no owner.
	c, err := etcd.Connect(within(t), etcd.Config{Endpoints: []string{w.etcd}, Server: "looks"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // a test's
	quiet, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	for quiet.Err() == nil {
		if o, ok, err := c.Owner(t.Context(), "main"); err != nil || ok {
			t.Fatalf("%+v owns the journal: %v", o, err)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-quiet.Done():
		}
	}
	ready, stop := w.server(0)
	w.works(ready)
	if applied := g.Applied; applied == 0 {
		t.Fatal("nothing was there")
	}
	for ctx := within(t); ; {
		found, err := filepath.Glob(filepath.Join(w.data(1), "store", "snapshots", "*.snap"))
		if err != nil || ctx.Err() != nil {
			t.Fatalf("it did not get the state: %v", err)
		}
		if len(found) > 0 {
			break
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	two := client(t, w.works(empty), adminToken)
	if _, err := two.Job(within(t), "", "greet"); err != nil {
		t.Error(err)
	}
}

// TestEndsWithoutEtcd: a server can be stopped even if its etcd is gone for good.
func TestEndsWithoutEtcd(t *testing.T) {
	t.Parallel()
	w := newClustered(t)
	m, err := etcd.Start(within(t), etcd.MemberConfig{Name: "m", Dir: t.TempDir(), Client: "http://" + w.at[0], Peer: "http://" + w.at[1], NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	w.etcd = m.Client()
	works := make(chan node.Ready, 1)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- node.Server(ctx, node.ServerConfig{
			Data: w.data(0), Listen: testkit.FreeAddress(t), Nameserver: w.names.GRPC, TokenFile: filepath.Join(w.dir, "shared"),
			Etcd: node.EtcdConfig{Endpoints: []string{w.etcd}}, Ready: func(r node.Ready) { works <- r },
		})
	}()
	ready := <-works
	c := client(t, w.works(asReady(ready)), ready.Token)
	if _, err := c.Apply(within(t), &sdk.Job{Name: "often", Schedule: &sdk.Schedule{Every: "1s"}, Handler: &sdk.Handler{Name: "native:x"}}); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(2*time.Second, stop) // something is not written yet
	select {
	case <-ended: // with an error, if something was not written
	case <-within(t).Done():
		t.Fatal("it does not end")
	}
}

func asReady(r node.Ready) <-chan node.Ready {
	ch := make(chan node.Ready, 1)
	ch <- r
	return ch
}
