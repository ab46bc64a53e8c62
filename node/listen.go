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

// maxMessage bounds the bytes of a gRPC message in both directions: 256 commands with the
// largest input fit.
const maxMessage = 32 << 20

// door is a listener that serves gRPC and, on the same port, HTTP/1.1.
type door struct {
	grpc   *grpc.Server
	http   *http.Server
	in     *bufconn.Listener // for the process's own calls
	log    *slog.Logger
	guard  *guard
	limits Limits
	signed func(*http.Request) bool // reports whether a request comes from a browser that is signed in; nil: none does
	// methods maps each served method to whether it is unary. It does not change while
	// the listener serves.
	methods map[string]bool
}

// maxStreams bounds the open calls of a connection; for callers without a credential
// Limits.Streams is lower.
const maxStreams = 16 << 10

func newDoor(g *guard, limits Limits, tel *telemetry, log *slog.Logger, more ...grpc.ServerOption) *door {
	d := &door{in: bufconn.Listen(1 << 20), log: log, guard: g, limits: limits.withDefaults(), methods: map[string]bool{}}
	bounds := newSizes(codec.New(), d.limits.Inflated, g.methods)
	opts := []grpc.ServerOption{grpc.ChainUnaryInterceptor(g.unary), grpc.ChainStreamInterceptor(g.stream)}
	opts = append(append(append(opts, tel.serverOptions()...), more...),
		grpc.InTapHandle(d.tap), grpc.Creds(origins{}),
		grpc.MaxHeaderListSize(uint32(d.limits.Header)), grpc.MaxConcurrentStreams(maxStreams), grpc.ConnectionTimeout(sniffTime),
		grpc.UnaryInterceptor(bounds.unary), grpc.StreamInterceptor(bounds.stream), grpc.ForceServerCodecV2(bounds),
		grpc.ChainUnaryInterceptor(spoken.unary), grpc.ChainStreamInterceptor(spoken.stream),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.InitialWindowSize(1<<20), grpc.InitialConnWindowSize(1<<20),
		// A host sends a message every two seconds. The server pings a silent connection,
		// and closes it when there is no answer: until then it sends tasks there.
		// MaxConnectionIdle counts only the time without an open call, however long calls
		// are.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 4 * time.Second, Timeout: 4 * time.Second, MaxConnectionIdle: d.limits.Idle}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)
	d.http = &http.Server{
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: d.limits.Idle, MaxHeaderBytes: d.limits.Header, ConnContext: withConnection,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	d.grpc = grpc.NewServer(opts...)
	h := health.NewServer()
	h.SetServingStatus("", healthv1.HealthCheckResponse_SERVING)
	healthv1.RegisterHealthServer(d.grpc, h)
	return d
}

// dial returns a connection from inside the process. Its calls pass the same interceptors
// as any other.
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
		// A process that comes back is found in about a second. By default gRPC waits for
		// up to two minutes.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second, PermitWithoutStream: true}),
	}
}

// serve serves until close, or until the probe finds the port dead. A nil handler answers
// every HTTP request with 404.
func (d *door) serve(ln *port, h http.Handler) error {
	for name, service := range d.grpc.GetServiceInfo() {
		for _, m := range service.Methods {
			d.methods["/"+name+"/"+m.Name] = !m.IsClientStream && !m.IsServerStream
		}
	}
	s := newSniffer(ln)
	errs := make(chan error, 4)
	probing, stop := context.WithCancel(context.Background())
	defer stop()
	go func() { errs <- probe{ln.ask, ln.accepts}.run(probing) }()
	go func() { errs <- d.grpc.Serve(s.grpc) }()
	go func() { errs <- d.grpc.Serve(d.in) }()
	if h == nil {
		h = http.NotFoundHandler()
	}
	d.http.Handler = d.bounded(h)
	go func() { errs <- d.http.Serve(s.http) }()
	var err error
	for range cap(errs) {
		e := <-errs
		stop() // once one of the servers has ended, all end
		if e != nil && !errors.Is(e, http.ErrServerClosed) && !errors.Is(e, grpc.ErrServerStopped) && !errors.Is(e, net.ErrClosed) && err == nil {
			err = e
			d.close(0)
		}
	}
	return err
}

// close stops serving. Open calls may end within patience.
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

// port is a listener for other processes: it counts its connections.
type port struct {
	net.Listener                             // with TLS if secure is set
	secure       bool                        // it uses TLS
	accepts      func() uint64               // returns the number of connections accepted so far
	ask          func(context.Context) error // sends a request to the port from outside
}

// newPort serves the connections of a listener, with TLS if secure is not nil. dial
// connects to the listener.
func newPort(ln net.Listener, dial func(context.Context) (net.Conn, error), secure *tls.Config, limits Limits, log *slog.Logger) *port {
	conns := newConnections(ln, limits.withDefaults(), log)
	p := &port{Listener: conns, secure: secure != nil, accepts: conns.accepts, ask: asking(dial, secure != nil)}
	if p.secure {
		p.Listener = tls.NewListener(conns, secure)
	}
	return p
}

// listen opens the port. An address beyond loopback needs TLS.
func listen(addr, cert, key string, limits Limits, log *slog.Logger) (*port, error) {
	if err := limits.check(); err != nil {
		return nil, err
	}
	if (cert == "") != (key == "") {
		return nil, errors.New("--tls-cert and --tls-key go together")
	}
	if cert == "" {
		if err := loopbackOnly(addr); err != nil {
			return nil, err
		}
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen: %w: choose another address with --listen", err)
	}
	if cert == "" {
		return newPort(ln, toPort(ln.Addr()), nil, limits, log), nil
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		ln.Close() //nolint:errcheck // it is being thrown away
		return nil, fmt.Errorf("read --tls-cert and --tls-key: %w", err)
	}
	return newPort(ln, toPort(ln.Addr()), tlsConfig(pair), limits, log), nil
}

// tlsConfig gives HTTP/2 to clients that offer h2 alone, as gRPC clients do, and HTTP/1.1
// to all others. So the first bytes show the protocol, as they do without TLS.
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

// sniffer passes a connection to gRPC or to HTTP by its first bytes: HTTP/2 begins with
// "PRI * HTTP/2.0", and no HTTP/1.1 method is called PRI.
type sniffer struct {
	grpc, http *branch
}

// sniffTime is how long a new connection may be silent before it is closed.
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

// peeked is a connection whose first bytes were read into a buffer.
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
