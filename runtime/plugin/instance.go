package plugin

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"

	pluginv1 "github.com/wheelworkhq/wheelwork/api/plugin/v1"
	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/process"
)

// The handshake of go-plugin. Without the cookie in its environment, a program was not
// started as a plugin. The values are part of the contract with plugins in every
// language.
const (
	protocolVersion = 1
	cookieKey       = "WHEELWORK_PLUGIN"
	cookieValue     = "f4b1d3b6-handlers-for-jobs"
)

const (
	defaultConcurrency = 64
	maxConcurrency     = 1024
	maxMessage         = 16 << 20 // bytes of one message from a plugin
)

// instance is one process of a plugin.
type instance struct {
	p      *plugin
	path   string
	digest string

	child  *process.Child
	stdin  *os.File // the plugin's standard input, which ends with this process
	stdout *output
	stderr *output
	first  *io.PipeReader // the first line of the plugin's standard output: the handshake

	client *goplugin.Client
	conn   *grpc.ClientConn
	about  *pluginv1.DescribeResponse
	stream *stream

	limit int // number of tasks at once
	tasks int // Invariant: changed only under p.mu, and never above limit

	// owner is the task to whose log the program's output belongs. It is known only for
	// an instance with a limit of 1.
	owner atomic.Pointer[call]

	mu    sync.Mutex
	words process.LastWords
	fate  error // reason why this host killed the program; nil: it did not
}

// launch starts a process of the plugin, and returns it when it is ready.
func (p *plugin) launch(ctx context.Context) (_ *instance, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.spec.StartTimeout, fmt.Errorf("it was not ready after %s", p.spec.StartTimeout))
	defer cancel()
	i := &instance{p: p}
	if i.path, i.digest, err = prepare(&p.spec, p.dir); err != nil {
		return nil, err
	}
	// A program that hangs blocks go-plugin. Killing the program unblocks it.
	stop := context.AfterFunc(ctx, func() { i.kill(context.Cause(ctx)) })
	defer stop()
	if err := i.open(ctx); err != nil {
		i.kill(err)
		i.clear()
		if i.child == nil {
			return nil, err
		}
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("%w%s", err, i.lastWords())
	}
	return i, nil
}

// open starts the program, performs the handshake and asks for its capabilities.
func (i *instance) open(ctx context.Context) error {
	cert, certPEM, err := clientCertificate()
	if err != nil {
		return err
	}
	i.client = goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig:  goplugin.HandshakeConfig{ProtocolVersion: protocolVersion, MagicCookieKey: cookieKey, MagicCookieValue: cookieValue},
		Plugins:          goplugin.PluginSet{"wheelwork": connOf{}},
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		StartTimeout:     i.p.spec.StartTimeout,
		SkipHostEnv:      true,
		Logger:           hclog.NewNullLogger(),
		RunnerFunc: func(_ hclog.Logger, cmd *exec.Cmd, dir string) (runner.Runner, error) {
			return &starter{i: i, env: append(cmd.Env, "PLUGIN_CLIENT_CERT="+certPEM), dir: dir}, nil
		},
		// This is AutoMTLS of go-plugin with another curve. go-plugin uses P-521, which
		// the TLS libraries of gRPC for Python, Node and C++ refuse.
		TLSConfig:       &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, ServerName: "localhost"},
		GRPCDialOptions: []grpc.DialOption{grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage))},
	})
	protocol, err := i.client.Client()
	if err != nil {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.fate != nil {
			return i.fate
		}
		return fmt.Errorf("handshake: %s", process.OneLine(err.Error()))
	}
	raw, err := protocol.Dispense("wheelwork")
	if err != nil {
		return err
	}
	i.conn = raw.(*grpc.ClientConn)
	service := pluginv1.NewPluginClient(i.conn)
	if i.about, err = service.Describe(ctx, &pluginv1.DescribeRequest{Host: i.p.version}); err != nil {
		return fmt.Errorf("describe: %w", err)
	}
	if i.limit = int(min(i.about.Concurrency, maxConcurrency)); i.limit == 0 {
		i.limit = defaultConcurrency
	}
	if i.stream, err = openStream(service, i); err != nil {
		return fmt.Errorf("work: %w", err)
	}
	return nil
}

// clientCertificate creates the certificate of the host for one start of a plugin.
func clientCertificate() (tls.Certificate, string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, "", err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(30, 0, 0),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		IsCA:        true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, "", err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, string(text), nil
}

// connOf is a go-plugin plugin whose client is the gRPC connection.
type connOf struct {
	goplugin.NetRPCUnsupportedPlugin
}

func (connOf) GRPCServer(*goplugin.GRPCBroker, *grpc.Server) error {
	return errors.New("the host serves no plugin")
}

func (connOf) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return conn, nil
}

// serves reports whether the plugin has the handler. A plugin without a list of handlers
// has all.
func (i *instance) serves(handler string) bool {
	return len(i.about.Handlers) == 0 || slices.Contains(i.about.Handlers, handler)
}

// kill kills the program. The first reason given is the error of its tasks.
func (i *instance) kill(why error) {
	i.mu.Lock()
	if i.fate == nil {
		i.fate = why
	}
	child := i.child
	i.mu.Unlock()
	if child != nil {
		child.Kill()
	}
}

// ended returns the reason why the program ended. The program must have ended.
func (i *instance) ended() error {
	i.mu.Lock()
	fate := i.fate
	i.mu.Unlock()
	if fate != nil {
		return fate
	}
	return fmt.Errorf("it ended with %s%s", i.child.State(), i.lastWords())
}

func (i *instance) lastWords() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	if said := i.words.String(); said != "" {
		return ": " + said
	}
	return ""
}

// close ends an instance. A nil reason means an orderly end, with a kill after Grace;
// otherwise close kills the program at once.
func (i *instance) close(why error) {
	if why != nil {
		i.kill(why)
	} else {
		i.stream.stop()
		late := time.AfterFunc(i.p.spec.Grace, func() { i.kill(errClosing) })
		defer late.Stop()
	}
	i.clear()
	if i.stream != nil {
		i.stream.join()
	}
}

// clear kills the program, waits for its end and releases its resources.
func (i *instance) clear() {
	if i.client != nil {
		i.client.Kill()
	}
	if i.child == nil {
		return
	}
	i.child.Kill()
	<-i.child.Done()
	i.stdin.Close()
	i.stdout.close()
	i.stderr.close()
}

// starter starts the program for go-plugin. go-plugin receives only the first line of the
// program's standard output; the rest is log.
type starter struct {
	i   *instance
	env []string
	dir string // directory for the socket of the program
}

var _ runner.Runner = (*starter)(nil)

// busyTries is the number of attempts to start a program while the system reports that
// its file is open for writing (ETXTBSY). The file was just written by this process.
// Another child of this process holds it open between its fork and its exec.
const busyTries = 50

func (s *starter) Start(ctx context.Context) (err error) {
	i := s.i
	in, stdin, err := os.Pipe()
	if err != nil {
		return err
	}
	defer in.Close()
	open := []io.Closer{stdin}
	defer func() {
		if err != nil { // go-plugin does not clean up after a program that did not start
			for _, c := range open {
				c.Close()
			}
			_ = os.RemoveAll(s.dir)
		}
	}()
	stdout, err := newOutput()
	if err != nil {
		return err
	}
	open = append(open, stdout.r, stdout.w)
	stderr, err := newOutput()
	if err != nil {
		return err
	}
	open = append(open, stderr.r, stderr.w)
	// The plugin makes its socket there.
	if err := s.i.p.rules.Own(s.dir); err != nil {
		return err
	}
	child, err := s.run(ctx, in, stdout.w, stderr.w)
	if err != nil {
		return err
	}
	i.stdin, i.stdout, i.stderr = stdin, stdout, stderr
	var handshake *io.PipeWriter
	i.first, handshake = io.Pipe()
	i.mu.Lock()
	i.child = child
	fate := i.fate
	i.mu.Unlock()
	if fate != nil { // kill was called before the program had started
		child.Kill()
	}
	go func() {
		<-child.Done()
		stdout.ended()
		stderr.ended()
	}()
	go stdout.read(handshake, i.kill, i.receive)
	go stderr.read(nil, nil, i.receive)
	return nil
}

// run starts the program, and retries while its file is busy.
func (s *starter) run(ctx context.Context, in, out, errs *os.File) (*process.Child, error) {
	spec := &s.i.p.spec
	for try := 1; ; try++ {
		cmd := exec.Command(s.i.path, spec.Args...)
		cmd.Dir, cmd.Env = spec.Dir, append(environment(spec.Env), s.env...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, errs
		child, err := s.i.p.start(cmd, s.dir)
		if !errors.Is(err, syscall.ETXTBSY) || try == busyTries {
			return child, err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// start starts a process of the plugin, whose socket will be in the folder sockets.
func (p *plugin) start(cmd *exec.Cmd, sockets string) (*process.Child, error) {
	rules := p.rules.With([]string{cmd.Path}, []string{sockets})
	if rules.User() {
		program, err := process.Hold(cmd)
		if err != nil {
			return nil, err
		}
		defer program.Close()
	}
	return p.keeper.Start(cmd, rules)
}

// environment returns the environment of a plugin: some variables of the host, and own.
func environment(own map[string]string) []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "LANG", "TMPDIR", "SystemRoot"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	for k, v := range own {
		env = append(env, k+"="+v)
	}
	return env
}

func (s *starter) Stdout() io.ReadCloser { return s.i.first }
func (s *starter) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }
func (s *starter) Name() string          { return s.i.p.spec.Path }

func (s *starter) ID() string {
	if s.i.child == nil {
		return ""
	}
	return fmt.Sprint(s.i.child.PID())
}

func (s *starter) Wait(context.Context) error { <-s.i.child.Done(); return nil }
func (s *starter) Kill(context.Context) error { s.i.child.Kill(); return nil }

func (s *starter) Diagnose(context.Context) string { return "" }

// PluginToHost refuses an address that may belong to another program, because the host
// would send it the tasks.
func (s *starter) PluginToHost(network, address string) (string, string, error) {
	switch network {
	case "unix":
		if dir, err := filepath.EvalSymlinks(filepath.Dir(address)); err == nil {
			if want, err := filepath.EvalSymlinks(s.dir); err == nil && dir == want {
				return network, address, nil
			}
		}
		return "", "", fmt.Errorf("its socket %s is not in the directory that PLUGIN_UNIX_SOCKET_DIR names", address)
	case "tcp":
		host, _, err := net.SplitHostPort(address)
		if ip := net.ParseIP(host); err == nil && ip.IsLoopback() {
			return network, address, nil
		}
		return "", "", fmt.Errorf("its address %s is not of the loopback interface", address)
	}
	return "", "", fmt.Errorf("its address is of the network %q: want unix, or tcp", network)
}

func (s *starter) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}

// receive takes a line of the program's output. The line belongs to the log of the only
// task that the program runs, or to the log of the host.
func (i *instance) receive(line []byte) {
	i.mu.Lock()
	i.words.Note(line)
	i.mu.Unlock()
	if c := i.owner.Load(); c != nil {
		c.log(runtime.LevelInfo, line)
		return
	}
	i.p.receive(i.child.PID(), slog.LevelInfo, strings.ToValidUTF8(string(line), "\uFFFD"))
}

// catchUp returns when this process has read all output that the program wrote before the
// call.
func (i *instance) catchUp() {
	i.stdout.catchUp()
	i.stderr.catchUp()
}

// output is the pipe with the output of a program. This end always reads everything:
// otherwise a full pipe would block the program.
type output struct {
	r, w  *os.File
	token []byte        // prefix of a mark; only this process knows it
	seen  chan struct{} // capacity 1: a mark was read
	done  chan struct{} // closed when the pipe has been read to its end
	upTo  atomic.Uint64 // number of the last mark that was read

	mu     sync.Mutex
	closed bool   // whether w is closed
	marks  uint64 // number of the last mark that was written
}

func newOutput() (*output, error) {
	r, w, err := os.Pipe()
	return &output{r: r, w: w, token: []byte(rand.Text() + rand.Text()), seen: make(chan struct{}, 1), done: make(chan struct{})}, err
}

// maxHandshake bounds the first line of standard output, in bytes.
const maxHandshake = 64 << 10

// read reads the pipe to its end. If handshake is not nil, the first line is the
// handshake: read writes it to handshake, or passes an error to refuse.
func (o *output) read(handshake *io.PipeWriter, refuse func(error), emit func([]byte)) {
	defer close(o.done)
	lines := process.Lines{Emit: func(line []byte) {
		if n, ok := bytes.CutPrefix(line, o.token); ok {
			mark, _ := strconv.ParseUint(string(n), 10, 64)
			o.upTo.Store(mark)
			select {
			case o.seen <- struct{}{}:
			default:
			}
			return
		}
		emit(line)
	}}
	from := bufio.NewReaderSize(o.r, maxHandshake)
	if handshake != nil {
		line, err := from.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			err = errNoHandshake
		}
		if err == nil {
			err = checkHandshake(string(line))
		}
		if err == nil {
			_, _ = handshake.Write(line) // an error means that the reader has given up
		} else {
			if err == io.EOF {
				err = errNoLine
			}
			refuse(err)
		}
		handshake.Close()
	}
	_, _ = io.Copy(&lines, from) // ends when all writers have closed the pipe, or at the deadline that drain sets
	lines.Flush()
}

var errNoLine = errors.New("it ended, or closed its standard output, before the handshake")

var errNoHandshake = errors.New("the first line of its standard output is not a handshake: it must be 1|1|NETWORK|ADDRESS|grpc|CERTIFICATE")

// checkHandshake refuses first lines that go-plugin accepts or explains badly. It
// requires a certificate: without one, any program could talk to the plugin.
func checkHandshake(line string) error {
	parts := strings.Split(strings.TrimSpace(line), "|")
	if len(parts) < 5 {
		return fmt.Errorf("%w, and it is %.80q", errNoHandshake, line)
	}
	if len(parts) < 6 {
		return errors.New("it sends no certificate: it must answer the one in PLUGIN_CLIENT_CERT with its own, as the sixth part of its handshake")
	}
	der, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(parts[5], "="))
	if err == nil {
		_, err = x509.ParseCertificate(der)
	}
	if err != nil {
		return fmt.Errorf("the sixth part of its handshake is not a certificate in base64: %w", err)
	}
	return nil
}

// outputTimeout bounds the time that a result waits for the rest of its log. The wait takes
// microseconds unless the machine is overloaded.
const outputTimeout = time.Second

// catchUp returns when all earlier output in the pipe has been read. It writes a line of its
// own to the pipe and waits until that line is read.
func (o *output) catchUp() {
	o.mu.Lock()
	o.marks++
	mark := o.marks
	if !o.closed { // short enough for one atomic write
		_, _ = o.w.Write(fmt.Appendf(nil, "\n%s%d\n", o.token, mark))
	}
	o.mu.Unlock()
	late := time.NewTimer(outputTimeout)
	defer late.Stop()
	for o.upTo.Load() < mark {
		select {
		case <-o.seen:
		case <-o.done:
			return
		case <-late.C:
			return
		}
	}
}

// ended closes the writing end in this process. It is called when the program has ended.
func (o *output) ended() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.closed = true
		o.w.Close()
	}
}

// drain returns when the output of a program that has ended was read. A process that has
// left the group may hold the pipe open, so drain waits at most outputTimeout.
func (o *output) drain() {
	o.ended()
	_ = o.r.SetReadDeadline(time.Now().Add(outputTimeout))
	<-o.done
}

func (o *output) close() {
	o.drain()
	o.r.Close()
}
