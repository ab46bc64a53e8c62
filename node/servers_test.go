package node_test

import (
	"context"
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/journal/etcd"
	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/node/certificates"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// joined is a cluster whose first server makes all certificates, and whose other servers join with tokens. Each
// server has a member of etcd in it.
type joined struct {
	t   *testing.T
	dir string
	at  []string // listener, client and peer of each server
}

func newJoined(t *testing.T, servers int) *joined {
	t.Helper()
	return &joined{t, t.TempDir(), ports(t, 3*servers)}
}

func (j *joined) data(i int) string { return filepath.Join(j.dir, "server-"+string(rune('a'+i))) }

func (j *joined) config(i int, token string) node.ServerConfig {
	return node.ServerConfig{
		Data: j.data(i), Listen: j.at[3*i], Etcd: node.EtcdConfig{Units: 2, Settle: time.Second}, Placement: node.Placement{Capacity: 3},
		Cluster:      node.ClusterConfig{On: true, Listen: j.at[3*i+1], Peer: j.at[3*i+2]},
		Certificates: node.CertificatesConfig{TLS: "on", JoinToken: token, JoinServer: j.at[0]},
	}
}

// start starts a server. ended gets its error when it has ended, if it is not nil.
func (j *joined) start(i int, token string, ended chan<- error) *process {
	j.t.Helper()
	if err := errors.Join(os.MkdirAll(j.data(i), 0o700), os.WriteFile(filepath.Join(j.data(i), "token"), []byte(adminToken+"\n"), 0o600)); err != nil {
		j.t.Fatal(err)
	}
	return launch(j.t, func(ctx context.Context, ready func(node.Ready)) error {
		cfg := j.config(i, token)
		cfg.Ready = ready
		err := node.Server(ctx, cfg)
		if ended == nil {
			return err
		}
		ended <- err
		return nil
	})
}

// tried starts a server that must fail.
func (j *joined) tried(i int, token string) error {
	ctx, cancel := context.WithTimeout(j.t.Context(), time.Minute)
	defer cancel()
	cfg := j.config(i, token)
	cfg.Ready = func(node.Ready) { cancel() }
	return node.Server(ctx, cfg)
}

func (j *joined) client(i int) *sdk.Client {
	j.t.Helper()
	c, err := sdk.Dial(j.t.Context(), "https://"+j.at[3*i], sdk.Options{Token: adminToken, RetryFor: time.Minute, TLS: trusting(j.t, j.data(i))})
	if err != nil {
		j.t.Fatal(err)
	}
	j.t.Cleanup(func() { c.Close() }) //nolint:errcheck // a test's
	return c
}

func (j *joined) token(c *sdk.Client, kind string) string {
	j.t.Helper()
	t, err := c.CreateJoinToken(j.t.Context(), sdk.NewJoinToken{Kind: kind})
	if err != nil {
		j.t.Fatal(err)
	}
	return t.Token
}

// reachesEtcd reports whether a client with a certificate may read the etcd of the first server.
func (j *joined) reachesEtcd(conf *tls.Config) error {
	ctx, cancel := context.WithTimeout(j.t.Context(), 3*time.Second)
	defer cancel()
	_, err := etcd.Members(ctx, etcd.Access{Endpoints: []string{"https://" + j.at[1]}, TLS: conf})
	return err
}

// certificateOf returns how a machine with a data directory connects to etcd.
func certificateOf(t *testing.T, data string) *tls.Config {
	t.Helper()
	conf, err := etcd.ClientTLS(filepath.Join(data, "machine.crt"), filepath.Join(data, "machine.key"), filepath.Join(data, "ca.crt"), "")
	if err != nil {
		t.Fatal(err)
	}
	return conf
}

// TestServersJoin: two servers join a cluster with nothing but a token each. The three know each other and their etcd
// by certificates; a server that was stopped comes back, and a revoked one ends and stays out.
func TestServersJoin(t *testing.T) {
	t.Parallel()
	j := newJoined(t, 3)
	a := j.start(0, "", nil)
	c := j.client(0)
	forB, forC := j.token(c, "server"), j.token(c, "server")
	b := j.start(1, forB, nil)
	ended := make(chan error, 1)
	j.start(2, forC, ended)
	servers := func() (all []*sdk.Certificate) {
		list, err := c.Certificates(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(list, func(m *sdk.Certificate) bool { return m.GetKind() != "server" })
	}
	reaches(t, spread, "three servers are enrolled", func() bool { return len(servers()) == 3 })
	for i := range 3 { // each server answers, and passes calls on to the owners
		if _, err := j.client(i).Apps(t.Context()); err != nil {
			t.Errorf("server %d: %v", i, err)
		}
		if _, err := j.client(i).Cluster(t.Context()); err != nil { // the answer comes from etcd
			t.Errorf("server %d: %v", i, err)
		}
	}
	first, err := os.ReadFile(filepath.Join(j.data(0), "secret.key"))
	second, err2 := os.ReadFile(filepath.Join(j.data(1), "secret.key"))
	if err != nil || err2 != nil || string(first) != string(second) {
		t.Errorf("the servers have other keys of secrets: %v, %v", err, err2)
	}

	// The attacks on etcd.
	if err := j.reachesEtcd(certificateOf(t, j.data(1))); err != nil {
		t.Errorf("a server: %v", err)
	}
	host := filepath.Join(j.dir, "host")
	h := launch(t, func(ctx context.Context, ready func(node.Ready)) error {
		return node.Host(ctx, node.HostConfig{Data: host, Nameserver: j.at[0], JoinToken: j.token(c, "host"), Ready: ready})
	})
	if err := j.reachesEtcd(certificateOf(t, host)); err == nil {
		t.Error("a host reads the etcd of the servers")
	}
	if err := j.reachesEtcd(trusting(t, j.data(0))); err == nil {
		t.Error("a client without a certificate reads the etcd of the servers")
	}
	other := newInstallation(t, nil)
	if err := j.reachesEtcd(certificateOf(t, other.data)); err == nil {
		t.Error("a server of another installation reads the etcd")
	}

	// Rogue servers.
	rogue := newJoined(t, 2)
	rogue.at[0] = j.at[0]
	for name, x := range map[string]struct{ token, want string }{
		"a used token":               {forB, "the join token was refused"},
		"a token for hosts":          {j.token(c, "host"), "is for a host"},
		"a token of another cluster": {other.token(sdk.NewJoinToken{}), "has not shown the authority"},
		"no token":                   {"", "has no certificate"},
		"what is no token":           {"wwj_x", "join token"},
		"a file that does not exist": {"@/does/not/exist", "--join-token"},
	} {
		rogue.dir = t.TempDir()
		if x.token == "" {
			cfg := rogue.config(1, "")
			cfg.Cluster.Join = []string{j.at[1]}
			err := node.Server(t.Context(), cfg)
			if err == nil || !strings.Contains(err.Error(), x.want) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err := rogue.tried(1, x.token); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", name, err)
		}
	}

	ctx, cancelHost := context.WithTimeout(t.Context(), time.Minute)
	defer cancelHost()
	if err := node.Host(ctx, node.HostConfig{Data: t.TempDir(), Nameserver: j.at[0], JoinToken: j.token(c, "server")}); err == nil || !strings.Contains(err.Error(), "is for a server") {
		t.Errorf("a host with a token for servers: %v", err)
	}

	// A server comes back with what it has.
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	b = j.start(1, forB, nil)
	reaches(t, spread, "it has told the installation of its new certificate", func() bool {
		return slices.ContainsFunc(servers(), func(m *sdk.Certificate) bool { return m.GetRenewedAt().AsTime().After(stopped) })
	})

	// One was killed after it had joined, and before it reached etcd.
	killed := newJoined(t, 2)
	killed.at[0] = j.at[0]
	if err := os.MkdirAll(killed.data(1), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"machine.crt", "machine.key", "ca.crt", "secret.key", "server-id"} {
		text, err := os.ReadFile(filepath.Join(j.data(1), name))
		if err == nil {
			err = os.WriteFile(filepath.Join(killed.data(1), name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := node.Server(t.Context(), killed.config(1, "")); err == nil || !strings.Contains(err.Error(), "before it reached the etcd") {
		t.Errorf("a server that has joined begins a cluster of its own: %v", err)
	}
	if err := other.server.stop(); err != nil {
		t.Fatal(err)
	}
	cfg := rogue.config(1, forC)
	cfg.Data = other.data
	if err := node.Server(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "an authority of its own") {
		t.Errorf("a server of another installation joins: %v", err)
	}

	// One is revoked.
	id, err := os.ReadFile(filepath.Join(j.data(2), "server-id"))
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := c.RevokeServer(t.Context(), strings.TrimSpace(string(id))); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, certificates.ErrRevoked) {
		t.Errorf("the revoked server: %v", err)
	}
	t.Logf("the revoked server ended after %v", time.Since(begin))
	if _, err := c.Apps(t.Context()); err != nil {
		t.Errorf("after the revocation: %v", err)
	}
	again, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := node.Server(again, j.config(2, "")); !errors.Is(err, certificates.ErrRevoked) {
		t.Errorf("the revoked server starts again: %v", err)
	}
	for _, p := range []*process{h, b, a} {
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	}
}

// TestGrowWithCertificates: a standalone server with TLS becomes the first of a cluster, whose etcd has certificates of the
// same authority. A second server joins it with a token, and a host keeps its certificate.
func TestGrowWithCertificates(t *testing.T) {
	j := newJoined(t, 2)
	if err := errors.Join(os.MkdirAll(j.data(0), 0o700), os.WriteFile(filepath.Join(j.data(0), "token"), []byte(adminToken+"\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	alone := launch(t, func(ctx context.Context, ready func(node.Ready)) error {
		return node.Server(ctx, node.ServerConfig{Data: j.data(0), Listen: j.at[0], Certificates: node.CertificatesConfig{TLS: "on"}, Ready: ready})
	})
	host := func(token string) *process {
		return launch(t, func(ctx context.Context, ready func(node.Ready)) error {
			return node.Host(ctx, node.HostConfig{Data: filepath.Join(j.dir, "host"), Nameserver: j.at[0], JoinToken: token, Ready: ready})
		})
	}
	h := host(j.token(j.client(0), "host"))
	root, err := os.ReadFile(filepath.Join(j.data(0), "ca.crt"))
	if err := errors.Join(err, h.stop(), alone.stop()); err != nil {
		t.Fatal(err)
	}
	first := j.config(0, "")
	if _, err := node.Grow(t.Context(), node.GrowConfig{Data: j.data(0), Cluster: first.Cluster, TLS: "on"}); err != nil {
		t.Fatal(err)
	}
	a := j.start(0, "", nil)
	c := j.client(0)
	b := j.start(1, j.token(c, "server"), nil)
	reaches(t, spread, "two servers are in the cluster", func() bool {
		all, err := c.Cluster(t.Context())
		return err == nil && len(all.GetServers()) == 2
	})
	h = host("")
	reaches(t, spread, "the host is up", func() bool { return len(up(t, c)) == 1 })
	now, err := os.ReadFile(filepath.Join(j.data(1), "ca.crt"))
	if err != nil || string(now) != string(root) {
		t.Errorf("the cluster has another authority than the server had: %v", err)
	}
	for _, p := range []*process{h, b, a} {
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	}
}
