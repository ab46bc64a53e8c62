package node_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/backup/archive"
	"github.com/wheelworkhq/wheelwork/examples/greet"
	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// trusting returns how clients verify the server of a data directory.
func trusting(t *testing.T, data string) *tls.Config {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(data, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		t.Fatal("the authority is not in PEM form")
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}
}

// hostsWithCertificates returns the hosts that have joined.
func hostsWithCertificates(t *testing.T, c *sdk.Client) ([]*sdk.Certificate, error) {
	all, err := c.Certificates(t.Context())
	return slices.DeleteFunc(all, func(m *sdk.Certificate) bool { return m.GetKind() != "host" }), err
}

// installation is a server with TLS, whose hosts join with tokens.
type installation struct {
	t      *testing.T
	data   string
	server *process
	c      *sdk.Client
}

func newInstallation(t *testing.T, change func(*node.ServerConfig)) *installation {
	t.Helper()
	i := &installation{t: t, data: filepath.Join(t.TempDir(), "server")}
	i.server = launch(t, func(ctx context.Context, ready func(node.Ready)) error {
		cfg := node.ServerConfig{Data: i.data, Listen: "127.0.0.1:0", Certificates: node.CertificatesConfig{TLS: "on"}, Ready: ready}
		if change != nil {
			change(&cfg)
		}
		return node.Server(ctx, cfg)
	})
	var err error
	if i.c, err = sdk.Dial(t.Context(), i.server.URL, sdk.Options{Token: i.server.Token, TLS: trusting(t, i.data)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { i.c.Close() }) //nolint:errcheck // a test's
	return i
}

func (i *installation) token(n sdk.NewJoinToken) string {
	i.t.Helper()
	token, err := i.c.CreateJoinToken(i.t.Context(), n)
	if err != nil {
		i.t.Fatal(err)
	}
	return token.Token
}

// tried runs a host until it is ready or fails, and returns its error; nil: it is ready, and has ended again.
func (i *installation) tried(cfg node.HostConfig) error {
	ctx, cancel := context.WithTimeout(i.t.Context(), time.Minute)
	defer cancel()
	cfg.Server = i.server.GRPC
	cfg.Ready = func(node.Ready) { cancel() }
	return node.Host(ctx, cfg)
}

func (i *installation) host(cfg node.HostConfig) *process {
	return launch(i.t, func(ctx context.Context, ready func(node.Ready)) error {
		cfg.Server, cfg.Ready = i.server.GRPC, ready
		return node.Host(ctx, cfg)
	})
}

// greets applies a job of an app.
func (i *installation) greets(app string) {
	i.t.Helper()
	if _, _, err := i.c.PushModule(i.t.Context(), sdk.Upload{App: app, Name: "greet", Version: "1", Code: greet.Module}); err != nil {
		i.t.Fatal(err)
	}
	if _, err := i.c.Apply(i.t.Context(), &sdk.Job{App: app, Name: "greet", Handler: &sdk.Handler{Module: "greet@1"}, Input: "you"}); err != nil {
		i.t.Fatal(err)
	}
}

// ends triggers a run of an app, and waits for its success.
func (i *installation) ends(app string) error {
	ctx, cancel := context.WithTimeout(i.t.Context(), time.Minute)
	defer cancel()
	r, err := i.c.Trigger(ctx, sdk.Trigger{App: app, Job: "greet"})
	if err != nil {
		return err
	}
	done, err := i.c.Wait(ctx, app, r.RunID)
	if err == nil && done.State != sdk.Succeeded {
		err = fmt.Errorf("the run is %v: %v", done.State, done)
	}
	return err
}

// up returns the hosts that have a session.
func up(t *testing.T, c *sdk.Client) (names []string) {
	t.Helper()
	all, err := c.Hosts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range all {
		if h.GetState() == "up" {
			names = append(names, h.GetName())
		}
	}
	return names
}

// TestHostJoins: a host with a join token gets a certificate, executes runs of its apps with it, and comes back
// without the token. Its runs never reach it for another app.
func TestHostJoins(t *testing.T) {
	t.Parallel()
	i := newInstallation(t, nil)
	i.greets("shop")
	i.greets("payments")
	token := i.token(sdk.NewJoinToken{Apps: []string{"shop"}, Labels: map[string]string{"zone": "a"}})
	dir := filepath.Join(t.TempDir(), "host")
	h := i.host(node.HostConfig{Data: dir, Name: "press", JoinToken: token})
	if err := i.ends("shop"); err != nil {
		t.Fatal(err)
	}
	hosts, err := i.c.Hosts(t.Context())
	if err != nil || len(hosts) != 1 || hosts[0].GetName() != "press" || fmt.Sprint(hosts[0].GetApps(), hosts[0].GetLabels()) != "[shop] map[zone:a]" {
		t.Errorf("%v, %v", hosts, err)
	}
	r, err := i.c.Trigger(t.Context(), sdk.Trigger{App: "payments", Job: "greet"})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	h = i.host(node.HostConfig{Data: dir, Name: "press"}) // it has its certificate
	if err := i.ends("shop"); err != nil {
		t.Fatal(err)
	}
	if run, err := i.c.Run(t.Context(), "payments", r.RunID); err != nil || run.State != "queued" {
		t.Errorf("a run of another app: %v, %v", run, err)
	}
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}

	// The replayed token, other credentials, and claims beyond the certificate.
	for name, x := range map[string]struct {
		cfg  node.HostConfig
		want string
	}{
		"a replayed token":  {node.HostConfig{Data: filepath.Join(t.TempDir(), "other"), JoinToken: token}, "refused"},
		"no credential":     {node.HostConfig{Data: filepath.Join(t.TempDir(), "none")}, "--join-token"},
		"a token in part":   {node.HostConfig{Data: filepath.Join(t.TempDir(), "part"), JoinToken: token[:40]}, "copied in part"},
		"a wrong character": {node.HostConfig{Data: filepath.Join(t.TempDir(), "wrong"), JoinToken: token[:10] + "0" + token[11:]}, "checksum"},
		"of another installation": {node.HostConfig{Data: filepath.Join(t.TempDir(), "foreign"), JoinToken: func() string {
			return newInstallation(t, nil).token(sdk.NewJoinToken{})
		}()}, "another installation"},
	} {
		if err := i.tried(x.cfg); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
	}
	certificates, err := hostsWithCertificates(t, i.c)
	if err != nil || len(certificates) != 1 || certificates[0].GetName() != "press" {
		t.Errorf("%v, %v", certificates, err)
	}
	events := auditOf(t, i.c, sdk.AuditQuery{Code: "machine."})
	if len(events) != 3 || events[0].GetCode() != "machine.joined" || events[0].GetAddress() != "127.0.0.1" || events[1].GetActor() != "admin" || events[2].GetKind() != "server" {
		t.Errorf("%v", events)
	}
}

// TestStolenCertificate copies the certificate of a host. Under another id it is refused; under its own it works
// until it is revoked, and then no server knows it.
func TestStolenCertificate(t *testing.T) {
	t.Parallel()
	i := newInstallation(t, nil)
	dir := filepath.Join(t.TempDir(), "host")
	i.host(node.HostConfig{Data: dir, Name: "press", JoinToken: i.token(sdk.NewJoinToken{})})
	reaches(t, spread, "the host is up", func() bool { return len(up(t, i.c)) == 1 })

	stolen := filepath.Join(t.TempDir(), "stolen")
	if err := os.MkdirAll(stolen, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"machine.key", "machine.crt", "ca.crt"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(stolen, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	thief := i.host(node.HostConfig{Data: stolen, Name: "thief"})
	i.greets("default")
	for range 20 {
		if err := i.ends("default"); err != nil {
			t.Fatal(err)
		}
	}
	if names := up(t, i.c); len(names) != 1 || names[0] != "press" {
		t.Errorf("the hosts are %v", names)
	}
	if err := thief.stop(); err != nil {
		t.Fatal(err)
	}

	begin := time.Now()
	if err := i.c.RevokeHost(t.Context(), "press"); err != nil {
		t.Fatal(err)
	}
	reaches(t, spread, "the revoked host has no session", func() bool { return len(up(t, i.c)) == 0 })
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("the session of a revoked host ended after %v, want 2s at most", took)
	}
	if err := i.c.RevokeHost(t.Context(), "press"); !errors.Is(err, sdk.ErrNotFound) {
		t.Errorf("a host is revoked twice: %v", err)
	}
	if certificates, err := hostsWithCertificates(t, i.c); err != nil || len(certificates) != 0 {
		t.Errorf("%v, %v", certificates, err)
	}
}

// TestAuthorityIsLost starts a server whose authority has lost its key, and then without the authority: another one
// is made, and a host joins again with its key.
func TestAuthorityIsLost(t *testing.T) {
	t.Parallel()
	i := newInstallation(t, nil)
	dir := filepath.Join(t.TempDir(), "host")
	h := i.host(node.HostConfig{Data: dir, Name: "press", JoinToken: i.token(sdk.NewJoinToken{})})
	if err := errors.Join(h.stop(), i.c.Close(), i.server.stop(), os.Remove(filepath.Join(i.data, "ca.key"))); err != nil {
		t.Fatal(err)
	}
	cfg := node.ServerConfig{Data: i.data, Listen: "127.0.0.1:0", Certificates: node.CertificatesConfig{TLS: "on"}}
	if err := node.Server(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "ca.key") || !strings.Contains(err.Error(), "remove") {
		t.Fatalf("a server without the key of its authority: %v", err)
	}
	if err := os.Remove(filepath.Join(i.data, "ca.crt")); err != nil {
		t.Fatal(err)
	}
	i.server = launch(t, func(ctx context.Context, ready func(node.Ready)) error {
		cfg := cfg
		cfg.Ready = ready
		return node.Server(ctx, cfg)
	})
	var err error
	if i.c, err = sdk.Dial(t.Context(), i.server.URL, sdk.Options{Token: i.server.Token, TLS: trusting(t, i.data)}); err != nil {
		t.Fatal(err)
	}
	defer i.c.Close() //nolint:errcheck // a test's
	if err := os.Remove(filepath.Join(dir, "machine.crt")); err != nil {
		t.Fatal(err)
	}
	i.host(node.HostConfig{Data: dir, Name: "press", JoinToken: i.token(sdk.NewJoinToken{})})
	reaches(t, spread, "the host is up", func() bool { return len(up(t, i.c)) == 1 })
}

// renewFor is how long TestCertificatesAreRenewed works: `go test ./node -run Renewed -renew 10m`.
var renewFor = flag.Duration("renew", 12*time.Second, "how long certificates of ten seconds are renewed under load")

// TestCertificatesAreRenewed: certificates that are valid for ten seconds are renewed while runs come, and no
// session ends, no call fails, and nothing piles up.
func TestCertificatesAreRenewed(t *testing.T) {
	if *renewFor < time.Minute {
		t.Parallel()
	}
	i := newInstallation(t, func(cfg *node.ServerConfig) { cfg.Certificates.Life = 10 * time.Second })
	i.greets("default")
	dir := filepath.Join(t.TempDir(), "host")
	i.host(node.HostConfig{Data: dir, Name: "press", JoinToken: i.token(sdk.NewJoinToken{})})
	reaches(t, spread, "the host is up", func() bool { return len(up(t, i.c)) == 1 })
	first, err := os.ReadFile(filepath.Join(dir, "machine.crt"))
	if err != nil {
		t.Fatal(err)
	}
	use := func() (goroutines int, bytes uint64) {
		var m goruntime.MemStats
		goruntime.GC()
		goruntime.ReadMemStats(&m)
		return goruntime.NumGoroutine(), m.HeapInuse
	}
	var runs int
	var goroutines int
	var bytes uint64
	begin := time.Now()
	for time.Since(begin) < *renewFor { // longer than the first certificates of both are valid
		if err := i.ends("default"); err != nil {
			t.Fatalf("after %v: %v", time.Since(begin), err)
		}
		if runs++; goroutines == 0 && time.Since(begin) > 30*time.Second {
			goroutines, bytes = use()
		}
	}
	if goroutines > 0 {
		now, heap := use()
		t.Logf("%d goroutines and %d MiB after 30 s, %d and %d MiB at the end", goroutines, bytes>>20, now, heap>>20)
		if now > goroutines+20 || heap > 2*bytes+64<<20 {
			t.Error("goroutines or memory pile up")
		}
	}
	next, err := os.ReadFile(filepath.Join(dir, "machine.crt"))
	if err != nil || string(next) == string(first) {
		t.Errorf("the certificate was not renewed: %v", err)
	}
	all, err := hostsWithCertificates(t, i.c)
	if err != nil || len(all) != 1 || !all[0].GetRenewedAt().AsTime().After(all[0].GetJoinedAt().AsTime()) {
		t.Errorf("%v, %v", all, err)
	}
	t.Logf("%d runs", runs)
}

// TestMachinesInCluster: the servers of a cluster have one authority. A host joins at one of them, works for the
// partitions of both, and is revoked at the other one.
func TestMachinesInCluster(t *testing.T) {
	t.Parallel()
	w := newSeveral(t, 2)
	w.tls = "on"
	w.secret = filepath.Join(w.dir, "secret.key")
	if err := os.WriteFile(w.secret, []byte(base64.StdEncoding.EncodeToString(make([]byte, 32))+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.start("a")
	w.start("b")
	c := w.client("a", "b")
	w.untilBothOwn(c)
	apps := w.place(c, "a")
	for _, app := range apps {
		if _, err := c.Apply(t.Context(), &sdk.Job{App: app, Name: "greet", Handler: &sdk.Handler{Module: "greet@1"}, Input: "you"}); err != nil {
			t.Fatal(err)
		}
	}
	token, err := c.CreateJoinToken(t.Context(), sdk.NewJoinToken{})
	if err != nil {
		t.Fatal(err)
	}
	launch(t, func(ctx context.Context, ready func(node.Ready)) error {
		return node.Host(ctx, node.HostConfig{Data: filepath.Join(w.dir, "h"), Name: "press", Nameserver: w.at["b"] + "," + w.at["a"], JoinToken: token.Token, Ready: ready})
	})
	for _, app := range apps {
		w.ends(c, app, "greet", "")
	}
	begin := time.Now()
	if err := w.as(adminToken, "b").RevokeHost(t.Context(), "press"); err != nil {
		t.Fatal(err)
	}
	reaches(t, spread, "no server has a session of the revoked host", func() bool { return len(up(t, c)) == 0 })
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("the sessions of a revoked host ended after %v, want 2s at most", took)
	}
}

// TestAuthorityInBackup: a backup with keys has the authority, so that hosts go on with the restored server.
func TestAuthorityInBackup(t *testing.T) {
	t.Parallel()
	i := newInstallation(t, nil)
	var b bytes.Buffer
	if err := backUp(within(t), i.c, &b); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "restored")
	if _, err := archive.Restore(within(t), bytes.NewReader(b.Bytes()), to, nil, nil); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ca.crt", "ca.key"} {
		was, err := os.ReadFile(filepath.Join(i.data, name))
		if err != nil {
			t.Fatal(err)
		}
		if is, err := os.ReadFile(filepath.Join(to, name)); err != nil || !bytes.Equal(is, was) {
			t.Errorf("%s is another one after the restore: %v", name, err)
		}
	}
	b.Reset()
	if _, err := i.c.Backup(within(t), &b, sdk.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	if key, err := os.ReadFile(filepath.Join(i.data, "ca.key")); err != nil || bytes.Contains(b.Bytes(), key) {
		t.Errorf("a backup without keys has that of the authority: %v", err)
	}
}
