package transport

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wheelworkhq/wheelwork/access"
	"github.com/wheelworkhq/wheelwork/internal/memconn"
)

// failing is a listener whose Accept returns the errors that the test sends, and then
// accepts.
type failing struct {
	*memconn.Listener
	errs chan error
}

func (f failing) Accept() (net.Conn, error) {
	select {
	case err := <-f.errs:
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: err}
	default:
		return f.Listener.Accept()
	}
}

// serveOn starts the HTTP and gRPC servers on a listener.
func serveOn(t *testing.T, ln net.Listener, dial func(context.Context) (net.Conn, error), limits Limits) (*Server, chan error) {
	t.Helper()
	return serveAt(t, newPort(ln, dial, nil, limits, slog.New(slog.DiscardHandler)), limits)
}

// serveAt starts the HTTP and gRPC servers at a port.
func serveAt(t *testing.T, p *Port, limits Limits) (*Server, chan error) {
	t.Helper()
	d := NewServer(access.New(), limits, slog.New(slog.DiscardHandler))
	done := make(chan error, 1)
	go func() { done <- d.Serve(p, nil) }()
	return d, done
}

// TestAcceptGoesOn: the process is out of file descriptors for a while, and then the
// listener is broken for good.
func TestAcceptGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := failing{memconn.Listen(1 << 16), make(chan error, 20)}
		for _, err := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
			for range 4 {
				ln.errs <- err
			}
		}
		_, done := serveOn(t, ln, ln.DialContext, Limits{})
		if err := asking(ln.DialContext, false)(t.Context()); err != nil {
			t.Errorf("after the errors have passed: %v", err)
		}
		ln.errs <- syscall.EBADF
		_ = asking(ln.DialContext, false)(t.Context()) // ends the accept that waits
		if err := <-done; !errors.Is(err, syscall.EBADF) {
			t.Errorf("the listener is broken, and serve ended with: %v", err)
		}
	})
}

// TestProbeEndsADeadPort: the process ends when its port does not answer, and not when it
// answers.
func TestProbeEndsADeadPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := memconn.Listen(1 << 16)
		d, done := serveOn(t, ln, ln.DialContext, Limits{})
		select {
		case err := <-done:
			t.Fatalf("a port that answers ended: %v", err)
		case <-time.After(10 * time.Minute):
		}
		d.Close(0)
		if err := <-done; err != nil {
			t.Error(err)
		}

		begin := time.Now()
		stuck := memconn.Listen(1 << 16) // nothing accepts
		err := probe{asking(stuck.DialContext, false), func() uint64 { return 0 }}.run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "answers no connection") {
			t.Errorf("a dead port: %v", err)
		}
		if after := time.Since(begin); after > 2*time.Minute {
			t.Errorf("the process of a dead port ends after %v", after)
		}
		p := newPort(memconn.Listen(1<<16), nil, nil, Limits{}, slog.New(slog.DiscardHandler))
		p.ask = asking(stuck.DialContext, false)
		_, done = serveAt(t, p, Limits{})
		if err := <-done; err == nil || !strings.Contains(err.Error(), "answers no connection") {
			t.Errorf("a process serves a dead port: %v", err)
		}
		busy := uint64(0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := (probe{asking(stuck.DialContext, false), func() uint64 { busy += 10; return busy }}).run(ctx); err != nil {
			t.Errorf("a busy port that accepts others: %v", err)
		}
	})
}

// TestProbeWithTLS: the process reaches its own port whatever name the certificate has.
func TestProbeWithTLS(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	pair := selfSigned(t)
	p := newPort(ln, toPort(ln.Addr()), tlsConfig(func() *tls.Certificate { return &pair }, nil), Limits{}, slog.New(slog.DiscardHandler))
	server := &http.Server{Handler: http.NotFoundHandler()}
	go server.Serve(p)   //nolint:errcheck // ends with the test
	defer server.Close() //nolint:errcheck // a test's
	if err := p.ask(t.Context()); err != nil {
		t.Error(err)
	}
}

// selfSigned returns a certificate for another name.
func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"elsewhere.example"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, form, form, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// far is a connection from any address.
type far struct {
	net.Conn
	address string
	closed  bool
}

func (f *far) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(f.address), 9))
}

func (f *far) Close() error {
	f.closed = true
	return nil
}

// TestCredentialsAreNeverThrottled fills a port from one address, from many, and with
// callers that have a credential.
func TestCredentialsAreNeverThrottled(t *testing.T) {
	synctest.Test(t, testCredentialsAreNeverThrottled)
}

func testCredentialsAreNeverThrottled(t *testing.T) {
	limits := Limits{Unknown: 3, Connections: 6, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}}
	c := newConnections(nil, limits.withDefaults(), slog.New(slog.DiscardHandler))
	admit := func(address string) (*far, *connection) {
		f := &far{address: address}
		return f, c.admit(f)
	}
	first, known := admit("192.0.2.1")
	known.identified()
	var of []*far
	for range 5 { // the newest three stay
		f, _ := admit("192.0.2.1")
		of = append(of, f)
		time.Sleep(firstRequest)
	}
	if first.closed || !of[0].closed || !of[1].closed || of[2].closed || of[4].closed {
		t.Errorf("the port closed %v of those without a credential, and %v of those with one", of, first.closed)
	}
	other, _ := admit("192.0.2.2")
	last, _ := admit("2001:db8::1")
	if c.open != 6 || other.closed || last.closed {
		t.Errorf("%d connections are open, want 6", c.open)
	}
	admit("2001:db8::2") // the oldest of all is closed for it
	if !of[2].closed || c.open != 6 {
		t.Errorf("%d connections are open, and the oldest is closed: %v", c.open, of[2].closed)
	}

	burst := newConnections(nil, limits.withDefaults(), slog.New(slog.DiscardHandler)) // a machine with many hosts reconnects
	var hosts []*far
	for range 6 {
		f := &far{address: "192.0.2.1"}
		burst.admit(f)
		hosts = append(hosts, f)
	}
	if hosts[0].closed || burst.open != 6 {
		t.Error("a connection had no time to show its credential")
	}
	time.Sleep(firstRequest)
	burst.admit(&far{address: "192.0.2.1"})
	if !hosts[3].closed || hosts[4].closed || burst.open != 3 {
		t.Errorf("%d connections without a credential stay, want 3", burst.open)
	}

	full := newConnections(nil, limits.withDefaults(), slog.New(slog.DiscardHandler))
	for range 6 {
		full.admit(&far{address: "192.0.2.1"}).identified()
	}
	refused := &far{address: "192.0.2.3"}
	if full.admit(refused) != nil || !refused.closed {
		t.Error("a full port let a stranger in, in the place of a caller with a credential")
	}
	if a := full.admit(&far{address: "127.0.0.1"}); a == nil {
		t.Error("a full port does not answer this machine")
	} else if a.Close(); full.open != 6 { //nolint:errcheck // a test's
		t.Errorf("%d connections are open, want 6", full.open)
	}
	over := newConnections(nil, Limits{Unknown: 1, Connections: 6}.withDefaults(), slog.New(slog.DiscardHandler))
	for range 6 {
		over.admit(&far{address: "192.0.2.1"}).identified()
	}
	over.admit(&far{address: "127.0.0.1"}) // takes the reserve
	older, newer := &far{address: "192.0.2.3"}, &far{address: "192.0.2.3"}
	over.admit(older)
	time.Sleep(firstRequest)
	if over.admit(newer) != nil || !newer.closed || !older.closed || over.open != 6 {
		t.Errorf("%d connections are counted, and of two that are not: closed %v, %v", over.open, older.closed, newer.closed)
	}
	proxies := newConnections(nil, Limits{Unknown: 1, TrustedProxies: limits.TrustedProxies}.withDefaults(), slog.New(slog.DiscardHandler))
	a, b := &far{address: "10.9.1.1"}, &far{address: "10.9.1.1"}
	proxies.admit(a)
	time.Sleep(firstRequest)
	proxies.admit(b)
	if a.closed || b.closed {
		t.Error("the connections of a trusted proxy are counted as those of one client")
	}
}

// TestClientBehindProxies: X-Forwarded-For counts from proxies, and from no other
// senders.
func TestClientBehindProxies(t *testing.T) {
	l := Limits{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("127.0.0.1/32")}}
	for _, tt := range []struct{ from, forwarded, want string }{
		{"192.0.2.1", "198.51.100.1", "192.0.2.1"},
		{"10.0.0.1", "198.51.100.1", "198.51.100.1"},
		{"10.0.0.1", "203.0.113.9, 198.51.100.1", "198.51.100.1"},
		{"10.0.0.1", "203.0.113.9, 198.51.100.1, 10.0.0.7", "198.51.100.1"},
		{"10.0.0.1", "", "10.0.0.1"},
		{"10.0.0.1", "nonsense", "10.0.0.1"},
		{"127.0.0.1", "2001:db8::1", "2001:db8::1"},
	} {
		if got := l.client(netip.MustParseAddr(tt.from), []string{tt.forwarded}); got.String() != tt.want {
			t.Errorf("from %s with X-Forwarded-For %q: %v, want %s", tt.from, tt.forwarded, got, tt.want)
		}
	}
}
