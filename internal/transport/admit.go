package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/wheelworkhq/wheelwork/access"
)

// This file admits or refuses requests by their headers, before a body is read.

// publicTime is the time limit of a unary call without a credential: the public methods
// answer at once.
const publicTime = 10 * time.Second

// connectionOf returns the accepted connection below TLS and the sniffer; nil for a
// connection within the process.
func connectionOf(c net.Conn) *connection {
	for {
		switch x := c.(type) {
		case *connection:
			return x
		case *peeked:
			c = x.Conn
		case *either:
			c = x.Conn
		case *tls.Conn:
			c = x.NetConn()
		default:
			return nil
		}
	}
}

// origin is the auth info of a gRPC call: the connection on which it came.
type origin struct {
	credentials.CommonAuthInfo
	conn *connection       // nil: the call comes from this process
	cert *x509.Certificate // of the client, verified; nil: it has shown none
}

var _ access.Certified = origin{}

// Certificate implements [access.Certified].
func (o origin) Certificate() *x509.Certificate { return o.cert }

// certificateOf returns the verified certificate of the client of a connection; nil: it has shown none.
func certificateOf(c net.Conn) *x509.Certificate {
	for {
		switch x := c.(type) {
		case *peeked:
			c = x.Conn
		case *either:
			c, _ = x.resolve() // the sniffer has read from it
			if _, ok := c.(*tls.Conn); !ok {
				return nil
			}
		case *tls.Conn:
			// The sniffer has read from the connection, so the handshake is over.
			if chains := x.ConnectionState().VerifiedChains; len(chains) > 0 {
				return chains[0][0]
			}
			return nil
		default:
			return nil
		}
	}
}

// AuthType implements [credentials.AuthInfo].
func (origin) AuthType() string { return "origin" }

// origins puts the origin into the context of calls. It adds no TLS: connections arrive
// with TLS where there is TLS.
type origins struct{}

// ServerHandshake implements [credentials.TransportCredentials].
func (origins) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c, origin{conn: connectionOf(c), cert: certificateOf(c)}, nil
}

// ClientHandshake implements [credentials.TransportCredentials].
func (origins) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are of a server")
}

// Info implements [credentials.TransportCredentials].
func (origins) Info() credentials.ProtocolInfo { return credentials.ProtocolInfo{} }

// Clone implements [credentials.TransportCredentials].
func (o origins) Clone() credentials.TransportCredentials { return o }

// OverrideServerName implements [credentials.TransportCredentials].
func (origins) OverrideServerName(string) error { return nil }

// tap checks the headers of a gRPC call before any of its message is read or
// decompressed. It must not block, because the connection waits for it.
func (d *Server) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	unary, served := d.methods[info.FullMethodName]
	if !served {
		return ctx, nil // gRPC refuses it without reading
	}
	if err := d.guard.Check(ctx, info.FullMethodName); err != nil {
		return ctx, err
	}
	if !unary {
		ctx = d.guard.Bound(ctx, info.Header.Get("authorization"))
	}
	p, _ := grpcpeer.FromContext(ctx)
	var conn *connection
	if p != nil {
		if o, ok := p.AuthInfo.(origin); ok {
			conn = o.conn
		}
	}
	if conn == nil {
		return ctx, nil
	}
	if d.guard.Shows(ctx, info.Header.Get("authorization")) {
		conn.identified()
		return ctx, nil
	}
	limits := d.Limits()
	leave, ok := conn.of.enter(limits.client(conn.address, info.Header.Get("x-forwarded-for")), limits.Streams)
	if !ok {
		return ctx, status.Errorf(codes.ResourceExhausted, "this address has %d calls open without a token, the limit: end some, or send a token", limits.Streams)
	}
	cancel := func() {}
	if unary {
		ctx, cancel = context.WithTimeout(ctx, publicTime)
	}
	context.AfterFunc(ctx, func() { cancel(); leave() })
	return ctx, nil
}

type connectionKey struct{}

func withConnection(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, connectionOf(c))
}

// bounded applies the limits to HTTP requests.
func (d *Server) bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _ := r.Context().Value(connectionKey{}).(*connection)
		limits := d.Limits()
		switch {
		case conn == nil:
		case d.guard.Shows(r.Context(), r.Header.Values("Authorization")) || d.Signed != nil && d.Signed(r):
			conn.identified()
		case limits.proxied(conn.address):
			client := limits.client(conn.address, r.Header.Values("X-Forwarded-For"))
			if client.IsLoopback() && r.URL.Path == livePath {
				break
			}
			leave, ok := conn.of.enter(client, limits.Unknown)
			if !ok {
				http.Error(w, fmt.Sprintf("this address has %d requests open without a token, the limit: try again when they have ended, or send a token", limits.Unknown), http.StatusTooManyRequests)
				return
			}
			defer leave()
		}
		if r.Body == nil || r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		body := &pacedBody{ReadCloser: r.Body, control: http.NewResponseController(w), rate: limits.BodyRate}
		r.Body = body
		next.ServeHTTP(w, r)
		if !body.ended { // net/http reads some of the rest, to reuse the connection
			body.control.SetReadDeadline(time.Now().Add(bodyRest)) //nolint:errcheck // a test's writer has none
		}
	})
}

const (
	// bodyGrace is the time by which a body may lag behind its required rate.
	bodyGrace = 10 * time.Second
	// bodyRest is how long net/http may wait for the rest of a body that the handler left
	// unread.
	bodyRest = 2 * time.Second
)

// pacedBody is a body that must arrive at a minimum rate. Only the time spent in Read
// counts, not the time in which no handler reads.
type pacedBody struct {
	io.ReadCloser
	control *http.ResponseController
	rate    int64 // bytes a second
	read    int64
	spent   time.Duration // in Read
	ended   bool
}

// Read implements [io.Reader].
func (b *pacedBody) Read(p []byte) (int, error) {
	allowed := bodyGrace + time.Duration(float64(b.read)/float64(b.rate)*float64(time.Second)) - b.spent
	begin := time.Now()
	b.control.SetReadDeadline(begin.Add(allowed)) //nolint:errcheck // a test's writer has none
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	b.spent += time.Since(begin)
	if errors.Is(err, os.ErrDeadlineExceeded) { // the deadline stays, so nothing more is read
		return n, fmt.Errorf("the body came slower than %d bytes a second: send it faster, or in parts", b.rate)
	}
	b.ended = err != nil
	b.control.SetReadDeadline(time.Time{}) //nolint:errcheck // as above
	return n, err
}
