package node

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/test/bufconn"

	"github.com/wheelworkhq/wheelwork/internal/wire/codec"
)

// maxMessage bounds a gRPC message in both directions: 256 commands with the
// largest input fit.
const maxMessage = 32 << 20

// door is a listener that serves gRPC and, on the same port, HTTP/1.1.
type door struct {
	grpc *grpc.Server
	http *http.Server
	in   *bufconn.Listener // for the process's own calls
	log  *slog.Logger
}

func newDoor(g *guard, tel *telemetry, log *slog.Logger, more ...grpc.ServerOption) *door {
	opts := append(append(tel.serverOptions(), more...),
		grpc.UnaryInterceptor(g.unary), grpc.StreamInterceptor(g.stream), grpc.ForceServerCodecV2(codec.New()),
		grpc.ChainUnaryInterceptor(spoken.unary), grpc.ChainStreamInterceptor(spoken.stream),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.InitialWindowSize(1<<20), grpc.InitialConnWindowSize(1<<20),
		// A host says something every two seconds. One that is silent is asked, and
		// is away when it does not answer: until then it is sent tasks.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 4 * time.Second, Timeout: 4 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)
	d := &door{
		in: bufconn.Listen(1 << 20), log: log,
		http: &http.Server{ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)},
		grpc: grpc.NewServer(opts...),
	}
	h := health.NewServer()
	h.SetServingStatus("", healthv1.HealthCheckResponse_SERVING)
	healthv1.RegisterHealthServer(d.grpc, h)
	return d
}

// dial returns a connection from inside the process. It goes through the same
// interceptors as any other.
func (d *door) dial(opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	opts = append(opts,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return d.in.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	)
	return grpc.NewClient("passthrough:in-process", append(dialOptions(), opts...)...)
}

func dialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage), grpc.ForceCodecV2(codec.New())),
		grpc.WithInitialWindowSize(1 << 20), grpc.WithInitialConnWindowSize(1 << 20),
		// A process that comes back is found in about a second: gRPC by itself waits for up to two minutes.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second, PermitWithoutStream: true}),
	}
}

// serve serves until close. The handler may be nil: then there is no HTTP.
func (d *door) serve(ln net.Listener, h http.Handler) error {
	s := newSniffer(ln)
	errs := make(chan error, 3)
	go func() { errs <- d.grpc.Serve(s.grpc) }()
	go func() { errs <- d.grpc.Serve(d.in) }()
	if h == nil {
		h = http.NotFoundHandler()
	}
	d.http.Handler = h
	go func() { errs <- d.http.Serve(s.http) }()
	var err error
	for range 3 {
		if e := <-errs; e != nil && !errors.Is(e, http.ErrServerClosed) && !errors.Is(e, grpc.ErrServerStopped) && !errors.Is(e, net.ErrClosed) && err == nil {
			err = e
			d.close(0)
		}
	}
	return err
}

// close stops serving: calls under way may end within patience.
func (d *door) close(patience time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := d.http.Shutdown(ctx); err != nil {
		d.http.Close() //nolint:errcheck // it is being thrown away
	}
	done := make(chan struct{})
	go func() { d.grpc.GracefulStop(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		d.grpc.Stop()
	}
}

// listen opens the port. Beyond loopback it insists on TLS.
func listen(addr, cert, key string) (net.Listener, bool, error) {
	if (cert == "") != (key == "") {
		return nil, false, errors.New("--tls-cert and --tls-key go together")
	}
	if cert == "" {
		if err := loopbackOnly(addr); err != nil {
			return nil, false, err
		}
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, false, fmt.Errorf("listen: %w: choose another address with --listen", err)
	}
	if cert == "" {
		return ln, false, nil
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		ln.Close() //nolint:errcheck // it is being thrown away
		return nil, false, fmt.Errorf("read --tls-cert and --tls-key: %w", err)
	}
	return tls.NewListener(ln, tlsConfig(pair)), true, nil
}

// tlsConfig lets gRPC clients, which offer h2 alone, have HTTP/2, and everybody
// else HTTP/1.1: so the first bytes tell who it is, as they do without TLS.
func tlsConfig(pair tls.Certificate) *tls.Config {
	base := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	h2 := base.Clone()
	h2.NextProtos = []string{"h2"}
	base.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if slices.Equal(hello.SupportedProtos, []string{"h2"}) {
			return h2, nil
		}
		return nil, nil
	}
	return base
}

func loopbackOnly(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("--listen %q is not HOST:PORT: %w", addr, err)
	}
	ip, err := netip.ParseAddr(host)
	if host == "localhost" || (err == nil && ip.IsLoopback()) {
		return nil
	}
	return fmt.Errorf("--listen %s is not a loopback address: beyond this machine TLS is required, give --tls-cert and --tls-key", addr)
}

// sniffer hands a connection to gRPC or to HTTP by its first bytes: HTTP/2
// begins with "PRI * HTTP/2.0", and no HTTP/1.1 method is called PRI.
type sniffer struct {
	grpc, http *branch
}

// sniffTime is how long a connection may be silent before it is closed.
const sniffTime = 10 * time.Second

func newSniffer(ln net.Listener) *sniffer {
	s := &sniffer{newBranch(ln), newBranch(ln)}
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				s.grpc.fail(err)
				s.http.fail(err)
				return
			}
			go s.route(conn)
		}
	}()
	return s
}

func (s *sniffer) route(conn net.Conn) {
	r := bufio.NewReaderSize(conn, 4096)
	conn.SetReadDeadline(time.Now().Add(sniffTime)) //nolint:errcheck // the read says it
	head, err := r.Peek(3)
	if err != nil {
		conn.Close() //nolint:errcheck // nobody has seen it yet
		return
	}
	conn.SetReadDeadline(time.Time{}) //nolint:errcheck // the next read says it
	to := s.http
	if string(head) == "PRI" {
		to = s.grpc
	}
	to.give(&peeked{conn, r})
}

// peeked is a connection whose first bytes were looked at.
type peeked struct {
	net.Conn
	r *bufio.Reader
}

func (p *peeked) Read(b []byte) (int, error) { return p.r.Read(b) }

// branch is one of the listeners behind a sniffer.
type branch struct {
	ln    net.Listener
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
	err   error
}

func newBranch(ln net.Listener) *branch {
	return &branch{ln: ln, conns: make(chan net.Conn), done: make(chan struct{}), err: net.ErrClosed}
}

func (b *branch) give(c net.Conn) {
	select {
	case b.conns <- c:
	case <-b.done:
		c.Close() //nolint:errcheck // nobody will serve it
	}
}

func (b *branch) fail(err error) { b.once.Do(func() { b.err = err; close(b.done) }) }

func (b *branch) Accept() (net.Conn, error) {
	select {
	case c := <-b.conns:
		return c, nil
	case <-b.done:
		return nil, b.err
	}
}

func (b *branch) Close() error {
	b.fail(net.ErrClosed)
	if err := b.ln.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

func (b *branch) Addr() net.Addr { return b.ln.Addr() }
