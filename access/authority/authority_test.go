package authority_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/access/authority"
)

var now = time.Unix(1_800_000_000, 0)

func newAuthority(t *testing.T) *authority.Authority {
	t.Helper()
	a, err := authority.New(now)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func newKey(t *testing.T) crypto.Signer {
	t.Helper()
	key, err := authority.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// issue returns a certificate of a machine.
func issue(t *testing.T, a *authority.Authority, m authority.Machine, names ...string) *x509.Certificate {
	t.Helper()
	text, err := a.Issue(newKey(t).Public(), m, names, now)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := authority.ParseCertificate(text)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// TestIssue checks what certificates say, what they can be used for, and when.
func TestIssue(t *testing.T) {
	a := newAuthority(t)
	m := authority.Machine{Kind: authority.Host, ID: "host-1", Apps: []string{"billing", "shop"}, Labels: map[string]string{"zone": "a=b&c", "empty": ""}, Executors: []string{"builtin:*", "modules"}}
	host, server := issue(t, a, m), issue(t, a, authority.Machine{Kind: authority.Server, ID: "srv-1"}, "sched.example", "10.0.0.5")
	for _, x := range []struct {
		cert *x509.Certificate
		want authority.Machine
	}{{host, m}, {server, authority.Machine{Kind: authority.Server, ID: "srv-1"}}} {
		if got, err := a.Machine(x.cert); err != nil || !reflect.DeepEqual(got, x.want) {
			t.Errorf("%+v, %v; want %+v", got, err, x.want)
		}
	}
	for name, x := range map[string]struct {
		cert *x509.Certificate
		use  x509.ExtKeyUsage
		name string
		at   time.Time
		ok   bool
	}{
		"a host calls":                           {host, x509.ExtKeyUsageClientAuth, "", now, true},
		"a host serves":                          {host, x509.ExtKeyUsageServerAuth, "", now, false},
		"a host has the name of servers":         {host, x509.ExtKeyUsageAny, authority.ServerName, now, false},
		"a server calls":                         {server, x509.ExtKeyUsageClientAuth, "", now, true},
		"a server serves machines":               {server, x509.ExtKeyUsageServerAuth, authority.ServerName, now, true},
		"a server serves browsers":               {server, x509.ExtKeyUsageServerAuth, "sched.example", now, true},
		"a server serves at an address":          {server, x509.ExtKeyUsageServerAuth, "10.0.0.5", now, true},
		"a server serves elsewhere":              {server, x509.ExtKeyUsageServerAuth, "evil.example", now, false},
		"a clock that is five minutes late":      {host, x509.ExtKeyUsageClientAuth, "", now.Add(-5 * time.Minute), true},
		"a clock that is an hour late":           {host, x509.ExtKeyUsageClientAuth, "", now.Add(-time.Hour), false},
		"before the end":                         {host, x509.ExtKeyUsageClientAuth, "", now.Add(authority.DefaultLife - time.Second), true},
		"a clock that is five minutes early":     {host, x509.ExtKeyUsageClientAuth, "", now.Add(authority.DefaultLife - 5*time.Minute), true},
		"after the end":                          {host, x509.ExtKeyUsageClientAuth, "", now.Add(authority.DefaultLife + time.Second), false},
		"a host signs the certificate of others": {issue(t, newAuthority(t), m), x509.ExtKeyUsageClientAuth, "", now, false},
	} {
		_, err := x.cert.Verify(x509.VerifyOptions{Roots: a.Pool(), CurrentTime: x.at, DNSName: x.name, KeyUsages: []x509.ExtKeyUsage{x.use}})
		if (err == nil) != x.ok {
			t.Errorf("%s: %v, want accepted: %v", name, err, x.ok)
		}
	}
	if short := a.WithLife(time.Minute); issue(t, short, m).NotAfter != now.Add(time.Minute).UTC() || a.Life() != authority.DefaultLife {
		t.Error("the life of certificates is another one")
	}
}

// TestForeign checks that certificates of other authorities, or for other purposes, are not those of machines.
func TestForeign(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	m := authority.Machine{Kind: authority.Host, ID: "host-1"}
	if _, err := a.Machine(issue(t, other, m)); err == nil || !strings.Contains(err.Error(), "another authority") {
		t.Errorf("the certificate of another installation: %v", err)
	}
	if _, err := authority.MachineOf(issue(t, other, m), a.Installation()); err == nil || !strings.Contains(err.Error(), "installation") {
		t.Errorf("the URI of another installation: %v", err)
	}

	// An operator's authority signs certificates for other purposes, and with URIs of its own.
	cert, key, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	root, err := authority.ParseCertificate(cert)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(key)
	signer, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	uri := func(text string) *url.URL {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	own := "wheelwork://" + a.Installation()
	for name, uris := range map[string][]*url.URL{
		"no URI":                {},
		"another scheme":        {uri("spiffe://" + a.Installation() + "/host/x")},
		"two machines":          {uri(own + "/host/x"), uri(own + "/server/y")},
		"an unknown kind":       {uri(own + "/admin/x")},
		"no id":                 {uri(own + "/host/")},
		"no kind":               {uri(own)},
		"a path in the id":      {uri(own + "/host/x/y")},
		"a server with apps":    {uri(own + "/server/x?app=shop")},
		"an empty app":          {uri(own + "/host/x?app=")},
		"a query that is none":  {{Scheme: "wheelwork", Host: a.Installation(), Path: "/host/x", RawQuery: "%zz"}},
		"too many apps":         {uri(own + "/host/x?" + strings.Repeat("app=a&", 65) + "app=a")},
		"a label of 300 bytes":  {uri(own + "/host/x?label=" + strings.Repeat("a", 300))},
		"an id of 200 bytes":    {uri(own + "/host/" + strings.Repeat("a", 200))},
		"an id with characters": {uri(own + "/host/a%00b")},
	} {
		template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "host-1"}, NotBefore: now, NotAfter: now.Add(time.Hour), URIs: uris}
		der, err := x509.CreateCertificate(rand.Reader, template, root, newKey(t).Public(), signer)
		if err != nil {
			t.Fatal(err)
		}
		c, err := x509.ParseCertificate(der)
		if err != nil {
			continue // the library does not read it either
		}
		if got, err := a.Machine(c); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestParse reads authorities, and refuses other files.
func TestParse(t *testing.T) {
	a := newAuthority(t)
	cert, key, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := authority.Parse(cert, key)
	if err != nil || again.Installation() != a.Installation() || again.Pin() != a.Pin() {
		t.Fatal(err)
	}
	if _, err := again.Machine(issue(t, a, authority.Machine{Kind: authority.Host, ID: "h"})); err != nil {
		t.Errorf("after it was stored: %v", err)
	}
	_, otherKey, err := newAuthority(t).Encode()
	if err != nil {
		t.Fatal(err)
	}
	leaf := authority.EncodeCertificate(issue(t, a, authority.Machine{Kind: authority.Server, ID: "s"}))
	for name, x := range map[string]struct {
		cert, key []byte
		want      string
	}{
		"another key":          {cert, otherKey, "not the one"},
		"a machine's":          {leaf, key, "not one of an authority"},
		"no certificate":       {[]byte("hello"), key, "no certificate"},
		"an empty file":        {nil, key, "no certificate"},
		"no key":               {cert, []byte("hello"), "not in PEM form"},
		"a key that is broken": {cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")}), "cannot be read"},
		"a key for a key":      {key, key, "no certificate"},
	} {
		if _, err := authority.Parse(x.cert, x.key); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
	}
}

// TestRequest reads requests for certificates.
func TestRequest(t *testing.T) {
	key := newKey(t)
	der, err := authority.NewRequest(key)
	if err != nil {
		t.Fatal(err)
	}
	got, err := authority.ReadRequest(der)
	if err != nil || !key.Public().(*ecdsa.PublicKey).Equal(got) {
		t.Errorf("%v, %v", got, err)
	}
	flipped := append([]byte(nil), der...)
	flipped[len(flipped)-1] ^= 1
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	wide, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := func(key crypto.Signer) []byte {
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	for name, x := range map[string][]byte{"empty": nil, "another signature": flipped, "Ed25519": of(ed), "P-521": of(wide), "too large": make([]byte, 1<<20)} {
		if _, err := authority.ReadRequest(x); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// FuzzMachine reads what any certificate may say. What is accepted can be said again.
func FuzzMachine(f *testing.F) {
	f.Add("host", "host-1", "app=shop&label=zone%3Da&executor=modules")
	f.Add("server", "srv-1", "")
	f.Add("host", "x", "app=&label==&executor")
	f.Fuzz(func(t *testing.T, kind, id, query string) {
		cert := &x509.Certificate{URIs: []*url.URL{{Scheme: "wheelwork", Host: "i", Path: "/" + kind + "/" + id, RawQuery: query}}}
		m, err := authority.MachineOf(cert, "i")
		if err != nil {
			return
		}
		again, err := authority.MachineOf(&x509.Certificate{URIs: []*url.URL{authority.URI(&m, "i")}}, "i")
		if err != nil || again.ID != m.ID || again.Kind != m.Kind || len(again.Apps) != len(m.Apps) || len(again.Labels) != len(m.Labels) || len(again.Executors) != len(m.Executors) {
			t.Errorf("%+v is read as %+v, %v", m, again, err)
		}
	})
}
