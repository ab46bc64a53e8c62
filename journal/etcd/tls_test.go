package etcd

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/wheelworkhq/wheelwork/internal/testkit"
)

// authority makes certificates that are valid for this machine.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	a.key = a.write("ca", a.cert, nil)
	return a
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

// write signs a certificate and writes it and its key. Without a signer the certificate
// signs itself.
func (a *authority) write(name string, cert *x509.Certificate, signer *ecdsa.PrivateKey) *ecdsa.PrivateKey {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	by := a.cert
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, by, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{name + ".pem": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "EC PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(a.path(file), pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	return key
}

func (a *authority) issue(name string) {
	a.write(name, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.key)
}

// TestTLS: members with certificates accept another member, and serve clients with a
// certificate of the same authority, and no other clients.
func TestTLS(t *testing.T) {
	t.Parallel()
	good, bad := newAuthority(t), newAuthority(t)
	good.issue("server")
	bad.issue("server")
	member := func(name string) MemberConfig {
		return MemberConfig{
			Name: name, Dir: t.TempDir(), Client: "https://" + testkit.FreeAddress(t), Peer: "https://" + testkit.FreeAddress(t), NoSync: true,
			Heartbeat: 20 * time.Millisecond, Election: 200 * time.Millisecond,
			Cert: good.path("server.pem"), Key: good.path("server.key"), CA: good.path("ca.pem"),
		}
	}
	one, err := Start(within(t, 30*time.Second), member("one"))
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close() //nolint:errcheck // a test's
	joins := member("two")
	joins.Join = []string{one.Client()}
	two, err := Start(within(t, 60*time.Second), joins)
	if err != nil {
		t.Fatal(err)
	}
	defer two.Close() //nolint:errcheck // a test's
	secure, err := ClientTLS(good.path("server.pem"), good.path("server.key"), good.path("ca.pem"), "")
	if err != nil {
		t.Fatal(err)
	}
	c, err := Connect(within(t, 20*time.Second), Config{Endpoints: two.Endpoints(), Server: "a", TLS: secure, Keep: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // a test's
	mustPut(t, own(t, c, "x"), "sealed")
	list, err := Members(within(t, 10*time.Second), Access{Endpoints: two.Endpoints(), TLS: secure})
	if err != nil || len(list) != 2 || list[0].State == "learner" || list[1].State == "learner" {
		t.Errorf("%+v, %v", list, err)
	}
	older := secure.Clone()
	older.MinVersion, older.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	for _, address := range []string{one.Client(), joins.Peer} {
		conn, err := tls.Dial("tcp", address[len("https://"):], older)
		if err == nil {
			conn.Close() //nolint:errcheck // a test's
			t.Errorf("%s speaks TLS 1.2", address)
		}
	}
	foreign, err := ClientTLS(bad.path("server.pem"), bad.path("server.key"), good.path("ca.pem"), "")
	if err != nil {
		t.Fatal(err)
	}
	if c, err := Connect(within(t, 2*time.Second), Config{Endpoints: []string{two.Client()}, Server: "b", TLS: foreign}); err == nil {
		c.Close() //nolint:errcheck // a test's
		t.Error("a certificate of another authority was let in")
	}
	if c, err := Connect(within(t, 2*time.Second), Config{Endpoints: []string{"http" + two.Client()[5:]}, Server: "b"}); err == nil {
		c.Close() //nolint:errcheck // a test's
		t.Error("somebody without TLS was let in")
	}
}

// foreign is how another program has authenticated itself to this process.
type foreign struct{ credentials.CommonAuthInfo }

func (foreign) AuthType() string { return "foreign" }

// TestContextOfARequest: a member whose clients need certificates serves the calls that this process makes for a request
// of another program. The peer of that request is not the member's.
func TestContextOfARequest(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.issue("server")
	m, err := Start(within(t, 30*time.Second), MemberConfig{
		Name: "one", Dir: t.TempDir(), Client: "https://" + testkit.FreeAddress(t), Peer: "https://" + testkit.FreeAddress(t), NoSync: true,
		Heartbeat: 20 * time.Millisecond, Election: 200 * time.Millisecond,
		Cert: a.path("server.pem"), Key: a.path("server.key"), CA: a.path("ca.pem"),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close() //nolint:errcheck // a test's
	secure, err := ClientTLS(a.path("server.pem"), a.path("server.key"), a.path("ca.pem"), "")
	if err != nil {
		t.Fatal(err)
	}
	ctx := peer.NewContext(within(t, 20*time.Second), &peer.Peer{AuthInfo: foreign{}})
	c, err := Connect(ctx, Config{Endpoints: m.Endpoints(), Member: m, Server: "a", TLS: secure, Keep: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // a test's
	j, err := c.Own(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	mustPut(t, j, "sealed")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_, _, elected := c.Elect(ctx, "work")
	_, _, asked := c.Elected(ctx, "work")
	_, first := c.First(ctx, "names", "a", "1")
	if err := errors.Join(elected, asked, first, c.Note(ctx, "names", "b", "2", true), c.Forget(ctx, "names", "b")); err != nil {
		t.Fatal(err)
	}
	err = c.Facts(ctx, "names", func(facts []Fact, whole bool) {
		if !whole || len(facts) != 1 || facts[0].Key != "a" {
			t.Errorf("%v, %t", facts, whole)
		}
		cancel()
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
