package transport

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/access"
	"github.com/wheelworkhq/wheelwork/access/authority"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// newMachine returns a machine with a certificate that was signed some time ago.
func newMachine(t *testing.T, a *authority.Authority, m authority.Machine, age time.Duration) *Machine {
	t.Helper()
	key, err := authority.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := a.Issue(key.Public(), m, []string{"127.0.0.1"}, time.Now().Add(-age))
	if err != nil {
		t.Fatal(err)
	}
	x := NewMachine(a.Certificate())
	if err := x.Set(cert, key); err != nil {
		t.Fatal(err)
	}
	return x
}

func newTestAuthority(t *testing.T) *authority.Authority {
	t.Helper()
	a, err := authority.New(time.Now().Add(-48 * time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// handshake connects a client to a port with the certificate of a machine, and returns the certificate that the
// server has verified.
func handshake(t *testing.T, own *Machine, client *tls.Config) (seen *x509.Certificate, server, mine error) {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close() //nolint:errcheck // a test's
	defer b.Close() //nolint:errcheck // a test's
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	in := tls.Server(a, tlsConfig(own.pair.Load, own))
	done := make(chan error, 1)
	go func() {
		err := in.HandshakeContext(ctx)
		if err == nil {
			_, err = in.Write([]byte{1})
		}
		if err != nil {
			a.Close() //nolint:errcheck // it wakes the client
		}
		done <- err
	}()
	out := tls.Client(b, client)
	mine = out.HandshakeContext(ctx)
	if mine == nil { // in TLS 1.3 a client learns with the first byte that its certificate was refused
		_, mine = out.Read(make([]byte, 1))
	}
	b.Close() //nolint:errcheck // it wakes the server
	server = <-done
	if chains := in.ConnectionState().VerifiedChains; len(chains) > 0 {
		seen = chains[0][0]
	}
	return seen, server, mine
}

// TestMachines connects machines, and what only claims to be one.
func TestMachines(t *testing.T) {
	ours, other := newTestAuthority(t), newTestAuthority(t)
	server := newMachine(t, ours, authority.Machine{Kind: authority.Server, ID: "srv"}, 0)
	host := authority.Machine{Kind: authority.Host, ID: "host-1"}
	of := func(m *Machine) *tls.Config { return m.clientConfig() }
	// A client that trusts our authority, and shows the certificate of another one.
	foreign := newMachine(t, other, host, 0)
	stranger := of(newMachine(t, ours, host, 0))
	stranger.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return foreign.pair.Load(), nil }
	expired := newMachine(t, ours, host, 25*time.Hour)
	forced := of(expired)
	forced.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return expired.pair.Load(), nil }
	old := of(newMachine(t, ours, host, 0))
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	browser := &tls.Config{RootCAs: ours.Pool(), ServerName: "127.0.0.1", GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		t.Error("a browser is asked for a certificate")
		return &tls.Certificate{}, nil
	}}
	for name, x := range map[string]struct {
		own    *Machine
		client *tls.Config
		seen   string // the id in the certificate that the server sees
		ok     bool
	}{
		"a host":                                 {server, of(newMachine(t, ours, host, 0)), "host-1", true},
		"a server calls another":                 {server, of(newMachine(t, ours, authority.Machine{Kind: authority.Server, ID: "b"}, 0)), "b", true},
		"a host whose certificate has ended":     {server, of(expired), "", true}, // it renews without
		"it shows the one that has ended":        {server, forced, "", false},
		"a machine of another installation":      {server, stranger, "", false},
		"a server of another installation":       {newMachine(t, other, authority.Machine{Kind: authority.Server, ID: "evil"}, 0), of(newMachine(t, ours, host, 0)), "", false},
		"a host takes the place of a server":     {newMachine(t, ours, host, 0), of(newMachine(t, ours, host, 0)), "", false},
		"a server whose certificate has ended":   {newMachine(t, ours, authority.Machine{Kind: authority.Server, ID: "late"}, 25*time.Hour), of(newMachine(t, ours, host, 0)), "", false},
		"TLS 1.2":                                {server, old, "", false},
		"a browser":                              {server, browser, "", true},
		"a clock that is five minutes late":      {server, of(newMachine(t, ours, host, -5*time.Minute)), "host-1", true},
		"a certificate of five minutes from now": {newMachine(t, ours, authority.Machine{Kind: authority.Server, ID: "s"}, -5*time.Minute), of(newMachine(t, ours, host, 0)), "host-1", true},
	} {
		seen, in, out := handshake(t, x.own, x.client)
		if ok := in == nil && out == nil; ok != x.ok {
			t.Errorf("%s: server %v, client %v", name, in, out)
		}
		if id := ""; seen != nil && x.ok {
			if id = seen.Subject.CommonName; id != x.seen {
				t.Errorf("%s: the server sees %q", name, id)
			}
		} else if x.ok && x.seen != "" {
			t.Errorf("%s: the server sees no certificate", name)
		}
	}
}

// TestPinned joins servers that have the pinned authority, and such that do not.
func TestPinned(t *testing.T) {
	ours, other := newTestAuthority(t), newTestAuthority(t)
	server := newMachine(t, ours, authority.Machine{Kind: authority.Server, ID: "srv"}, 0)
	chain := func(m *Machine, extra ...*x509.Certificate) tls.ConnectionState {
		var all []*x509.Certificate
		for _, der := range m.pair.Load().Certificate {
			c, err := x509.ParseCertificate(der)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, c)
		}
		return tls.ConnectionState{PeerCertificates: append(all, extra...)}
	}
	if root, err := verifyPinned(chain(server), ours.Pin()); err != nil || !root.Equal(ours.Certificate()) {
		t.Errorf("the pinned server: %v", err)
	}
	evil := newMachine(t, other, authority.Machine{Kind: authority.Server, ID: "srv"}, 0)
	for name, x := range map[string]tls.ConnectionState{
		"another installation":                   chain(evil),
		"another one that adds the pinned one":   chain(evil, ours.Certificate()),
		"a host of the installation":             chain(newMachine(t, ours, authority.Machine{Kind: authority.Host, ID: "h"}, 0)),
		"a server whose certificate has ended":   chain(newMachine(t, ours, authority.Machine{Kind: authority.Server, ID: "s"}, 25*time.Hour)),
		"the server without its authority":       {PeerCertificates: chain(server).PeerCertificates[:1]},
		"the authority alone, as the server":     {PeerCertificates: []*x509.Certificate{ours.Certificate()}},
		"the chain of a server in another order": {PeerCertificates: []*x509.Certificate{ours.Certificate(), chain(server).PeerCertificates[0]}},
	} {
		if _, err := verifyPinned(x, ours.Pin()); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestRenewAt: a certificate is renewed when a third of its life is left.
func TestRenewAt(t *testing.T) {
	m := newMachine(t, newTestAuthority(t), authority.Machine{Kind: authority.Host, ID: "h"}, 0)
	if left := m.Leaf().NotAfter.Sub(RenewAt(m.Leaf())); left != 8*time.Hour {
		t.Errorf("%v are left", left)
	}
}

// TestSet refuses certificates that are not those of the machine.
func TestSet(t *testing.T) {
	ours, other := newTestAuthority(t), newTestAuthority(t)
	key, err := authority.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	issue := func(a *authority.Authority, key crypto.PublicKey) []byte {
		text, err := a.Issue(key, authority.Machine{Kind: authority.Host, ID: "h"}, nil, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	strange, err := authority.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	m := NewMachine(ours.Certificate())
	for name, text := range map[string][]byte{"no certificate": []byte("x"), "another authority": issue(other, key.Public()), "another key": issue(ours, strange.Public())} {
		if err := m.Set(text, key); err == nil || m.Leaf() != nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := m.Set(issue(ours, key.Public()), key); err != nil || m.Leaf() == nil {
		t.Error(err)
	}
}

// TestWithoutAuthority: a port without an authority has no certificate for machines.
func TestWithoutAuthority(t *testing.T) {
	server := newMachine(t, newTestAuthority(t), authority.Machine{Kind: authority.Server, ID: "srv"}, 0)
	conf := tlsConfig(server.pair.Load, nil)
	got, err := conf.GetConfigForClient(&tls.ClientHelloInfo{ServerName: authority.ServerName, SupportedProtos: []string{"h2"}})
	if err != nil || got.ClientCAs != nil {
		t.Errorf("%v, %v", got, err)
	}
	if _, _, err := Join(t.Context(), "nonsense", authority.Pin{}, nil, nil); err == nil || !strings.Contains(err.Error(), "HOST:PORT") {
		t.Errorf("%v", err)
	}
}

// TestBoth: a port with and without TLS serves machines by their certificates, programs with a token over TLS and
// without, and HTTP. It is for this machine alone.
func TestBoth(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	ca := newTestAuthority(t)
	own := newMachine(t, ca, authority.Machine{Kind: authority.Server, ID: "srv"}, 0)
	if _, err := Listen("0.0.0.0:0", "", "", own, true, Limits{}, log); err == nil {
		t.Error("a port beyond this machine serves without TLS")
	}
	g := access.New()
	g.Allow("a token of this test", access.Admin)
	d := NewServer(g, Limits{}, log)
	apiv1.RegisterJobsServer(d.GRPC, apiv1.UnimplementedJobsServer{})
	apiv1.RegisterNameserverServer(d.GRPC, apiv1.UnimplementedNameserverServer{})
	ln, err := Listen("127.0.0.1:0", "", "", own, true, Limits{}, log)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- d.Serve(ln, nil) }()
	defer func() {
		d.Close(time.Second)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, ca.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for name, caCert := range map[string]string{"with TLS": file, "without": ""} {
		conn, err := Dial(ln.Addr().String(), "a token of this test", caCert)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := apiv1.NewJobsClient(conn).ListJobs(ctx, &apiv1.ListJobsRequest{}); status.Code(err) != codes.Unimplemented {
			t.Errorf("a program %s: %v", name, err)
		}
		conn.Close() //nolint:errcheck // a test's
	}
	for kind, want := range map[string]codes.Code{authority.Server: codes.Unimplemented, authority.Host: codes.Unauthenticated} {
		conn, err := newMachine(t, ca, authority.Machine{Kind: kind, ID: "other"}, 0).Identity().Dial(ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := apiv1.NewNameserverClient(conn).ListServers(ctx, &apiv1.ListServersRequest{}); status.Code(err) != want {
			t.Errorf("a %s with its certificate: %v, want %v", kind, err, want)
		}
		conn.Close() //nolint:errcheck // a test's
	}
	resp, err := http.Get("http://" + ln.Addr().String() + "/any")
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); resp.StatusCode != http.StatusNotFound { //nolint:errcheck // a test's
		t.Errorf("HTTP without TLS: %s", resp.Status)
	}
}
