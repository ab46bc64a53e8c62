package transport

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
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/test/bufconn"

	"github.com/wheelworkhq/wheelwork/access"
	"github.com/wheelworkhq/wheelwork/access/authority"
	"github.com/wheelworkhq/wheelwork/internal/wire/codec"
)

// maxMessage bounds the bytes of a gRPC message in both directions: 256 commands with the
// largest input fit.
const maxMessage = 32 << 20

// Server is a listener that serves gRPC and, on the same port, HTTP/1.1.
type Server struct {
	GRPC   *grpc.Server
	http   *http.Server
	in     *bufconn.Listener // for the process's own calls
	log    *slog.Logger
	guard  *access.Guard
	limits atomic.Pointer[Limits] // in effect
	sizes  *sizes
	Signed func(*http.Request) bool // reports whether a request comes from a browser that is signed in; nil: none does
	// methods maps each served method to whether it is unary. It does not change while
	// the listener serves.
	methods map[string]bool
}

// maxStreams bounds the open calls of a connection; for callers without a credential
// Limits.Streams is lower.
const maxStreams = 16 << 10

func NewServer(g *access.Guard, limits Limits, log *slog.Logger, more ...grpc.ServerOption) *Server {
	d := &Server{in: bufconn.Listen(1 << 20), log: log, guard: g, methods: map[string]bool{}}
	limits = limits.withDefaults()
	d.limits.Store(&limits)
	d.sizes = newSizes(codec.New(), limits.Inflated, g.Permissions())
	opts := []grpc.ServerOption{grpc.ChainUnaryInterceptor(g.Unary), grpc.ChainStreamInterceptor(g.Stream)}
	opts = append(append(opts, more...),
		grpc.InTapHandle(d.tap), grpc.Creds(origins{}),
		grpc.MaxHeaderListSize(uint32(limits.Header)), grpc.MaxConcurrentStreams(maxStreams), grpc.ConnectionTimeout(sniffTime),
		grpc.UnaryInterceptor(d.sizes.unary), grpc.StreamInterceptor(d.sizes.stream), grpc.ForceServerCodecV2(d.sizes),
		grpc.ChainUnaryInterceptor(Spoken.unary), grpc.ChainStreamInterceptor(Spoken.stream),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.InitialWindowSize(1<<20), grpc.InitialConnWindowSize(1<<20),
		// A host sends a message every two seconds. The server pings a silent connection
		// and closes it when there is no answer, because it sends tasks to a lost host
		// until the connection is closed. MaxConnectionIdle counts only the time without
		// an open call, so it does not end a long call.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 4 * time.Second, Timeout: 4 * time.Second, MaxConnectionIdle: limits.Idle}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)
	d.http = &http.Server{
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: limits.Idle, MaxHeaderBytes: limits.Header, ConnContext: withConnection,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	d.GRPC = grpc.NewServer(opts...)
	h := health.NewServer()
	h.SetServingStatus("", healthv1.HealthCheckResponse_SERVING)
	healthv1.RegisterHealthServer(d.GRPC, h)
	reflection.Register(d.GRPC)
	return d
}

// Limits returns the limits in effect.
func (d *Server) Limits() Limits { return *d.limits.Load() }

// SetLimits replaces the limits while the server works. Header and Idle stay as they are,
// because gRPC takes them once.
func (d *Server) SetLimits(l Limits) {
	l, now := l.withDefaults(), d.Limits()
	l.Header, l.Idle = now.Header, now.Idle
	d.limits.Store(&l)
	d.sizes.limit.Store(l.Inflated)
}

// Dial returns a connection from inside the process. Its calls pass the same interceptors
// as any other.
func (d *Server) Dial(opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	opts = append(opts,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return d.in.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	)
	return grpc.NewClient("passthrough:in-process", append(DialOptions(), opts...)...)
}

func DialOptions() []grpc.DialOption {
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

// Serve serves until close, or until the probe finds the port dead. A nil handler answers
// every HTTP request with 404.
func (d *Server) Serve(ln *Port, h http.Handler) error {
	for name, service := range d.GRPC.GetServiceInfo() {
		for _, m := range service.Methods {
			d.methods["/"+name+"/"+m.Name] = !m.IsClientStream && !m.IsServerStream
		}
	}
	s := newSniffer(ln)
	errs := make(chan error, 4)
	probing, stop := context.WithCancel(context.Background())
	defer stop()
	go func() { errs <- probe{ln.ask, ln.conns.accepts}.run(probing) }()
	go func() { errs <- d.GRPC.Serve(s.grpc) }()
	go func() { errs <- d.GRPC.Serve(d.in) }()
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
			d.Close(0)
		}
	}
	return err
}

// Close stops serving. Open calls may end within patience.
func (d *Server) Close(patience time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := d.http.Shutdown(ctx); err != nil {
		d.http.Close() //nolint:errcheck // it is being thrown away
	}
	done := make(chan struct{})
	go func() { d.GRPC.GracefulStop(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		d.GRPC.Stop()
	}
}

// Port is a listener for other processes: it counts its connections.
type Port struct {
	net.Listener                             // with TLS if secure is set
	Secure       bool                        // it uses TLS
	conns        *connections                // below TLS
	ask          func(context.Context) error // sends a request to the port from outside
	pair         *keyPair                    // for browsers and programs; nil without TLS
	machines     bool                        // pair is the certificate of this machine, which [Machine] renews
}

// SetLimits replaces the limits on new connections.
func (p *Port) SetLimits(l Limits) {
	l = l.withDefaults()
	p.conns.limits.Store(&l)
}

// keyPair is the certificate of a port with its key. New connections use the one that was
// set last.
type keyPair struct {
	atomic.Pointer[tls.Certificate]
}

func readPair(cert, key string) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("read --tls-cert and --tls-key: %w", err)
	}
	return &pair, nil
}

// Renew reads a certificate and its key from files, and returns the function that puts them in
// effect for new connections. Open ones continue. Whether a port uses TLS is fixed: without files,
// or at a port without TLS, the function changes nothing.
func (p *Port) Renew(cert, key string) (commit func(), err error) {
	if err := checkPaired(cert, key); err != nil {
		return nil, err
	}
	if p.pair == nil || p.machines || cert == "" {
		return func() {}, nil
	}
	pair, err := readPair(cert, key)
	if err != nil {
		return nil, err
	}
	return func() { p.pair.Store(pair) }, nil
}

func checkPaired(cert, key string) error {
	if (cert == "") != (key == "") {
		return errors.New("--tls-cert and --tls-key go together")
	}
	return nil
}

// newPort serves the connections of a listener, with TLS if secure is not nil. dial
// connects to the listener.
func newPort(ln net.Listener, dial func(context.Context) (net.Conn, error), secure *tls.Config, limits Limits, log *slog.Logger) *Port {
	conns := newConnections(ln, limits.withDefaults(), log)
	p := &Port{Listener: conns, Secure: secure != nil, conns: conns, ask: asking(dial, secure != nil)}
	if p.Secure {
		p.Listener = tls.NewListener(conns, secure)
	}
	return p
}

// Listen opens the port. An address beyond loopback needs TLS. own has the certificate for machines, and
// for browsers too if there are no files with another one; nil: no machine shows a certificate.
//
// both serves clients without TLS too, which is for this machine only: an installation moves to TLS with it.
func Listen(addr, cert, key string, own *Machine, both bool, limits Limits, log *slog.Logger) (*Port, error) {
	if err := limits.Check(); err != nil {
		return nil, err
	}
	if err := checkPaired(cert, key); err != nil {
		return nil, err
	}
	if cert == "" && own == nil || both {
		if err := CheckLoopback(addr); err != nil {
			return nil, err
		}
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen: %w: choose another address with --listen", err)
	}
	if cert == "" && own == nil {
		return newPort(ln, toPort(ln.Addr()), nil, limits, log), nil
	}
	current := &keyPair{}
	if cert == "" {
		current = &own.pair
	} else {
		pair, err := readPair(cert, key)
		if err != nil {
			ln.Close() //nolint:errcheck // it is being thrown away
			return nil, err
		}
		current.Store(pair)
	}
	conf := tlsConfig(current.Load, own)
	var p *Port
	if both {
		p = newPort(ln, toPort(ln.Addr()), nil, limits, log)
		p.Listener = &eitherListener{p.Listener, conf}
	} else {
		p = newPort(ln, toPort(ln.Addr()), conf, limits, log)
	}
	p.pair, p.machines = current, cert == ""
	return p, nil
}

// eitherListener accepts connections with TLS and without.
type eitherListener struct {
	net.Listener
	secure *tls.Config
}

// Accept implements [net.Listener]. The first byte of a connection is read with it, because Accept must not wait for
// a client.
func (l *eitherListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &either{Conn: conn, secure: l.secure}, nil
}

// either is a connection that becomes one with TLS when its first byte is that of a handshake.
type either struct {
	net.Conn
	secure *tls.Config
	once   sync.Once
	found  net.Conn // set by once
	err    error    // of the first byte
}

// tlsHandshake is the type of the first record of TLS, which begins no request of HTTP.
const tlsHandshake = 0x16

// resolve waits for the first byte.
func (e *either) resolve() (net.Conn, error) {
	e.once.Do(func() {
		r := bufio.NewReader(e.Conn)
		head, err := r.Peek(1)
		if err != nil {
			e.found, e.err = e.Conn, err
			return
		}
		e.found = &peeked{e.Conn, r}
		if head[0] == tlsHandshake {
			e.found = tls.Server(e.found, e.secure)
		}
	})
	return e.found, e.err
}

// Read implements [net.Conn].
func (e *either) Read(b []byte) (int, error) {
	conn, err := e.resolve()
	if err != nil {
		return 0, err
	}
	return conn.Read(b)
}

// Write implements [net.Conn].
func (e *either) Write(b []byte) (int, error) {
	conn, err := e.resolve()
	if err != nil {
		return 0, err
	}
	return conn.Write(b)
}

// tlsConfig gives HTTP/2 to clients that offer h2 alone, as gRPC clients do, and HTTP/1.1
// to all others. So the first bytes show the protocol, as they do without TLS. A client that connects to
// [authority.ServerName] is a machine: it gets the certificate of own, and may show one itself. Browsers are
// not asked for one.
func tlsConfig(certificate func() *tls.Certificate, own *Machine) *tls.Config {
	base := &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate(), nil }, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	h2 := base.Clone()
	h2.NextProtos = []string{"h2"}
	base.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if machines := own.acceptedConfig(); machines != nil && hello.ServerName == authority.ServerName {
			return machines, nil
		}
		if slices.Equal(hello.SupportedProtos, []string{"h2"}) {
			return h2, nil
		}
		return nil, nil
	}
	return base
}

// CheckLoopback returns an error unless an address is one of this machine alone.
func CheckLoopback(addr string) error {
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
		conn.Close() //nolint:errcheck // no goroutine has seen it yet
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
		c.Close() //nolint:errcheck // no server will serve it
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
