package worker

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/host/session"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// prefix precedes the names of worker functions in jobs and hellos.
const prefix = "native:"

// Func executes an attempt and returns the run's output, at most 1 MiB. It should return
// soon after ctx has ended. A result without an error counts as success, also after that.
type Func func(ctx context.Context, t *Task) ([]byte, error)

// Handler is a function with the name by which jobs call it.
type Handler struct {
	name string
	fn   Func
	err  error
}

// Handle names a function. Jobs call it native:NAME. A name has at most 128 letters,
// digits, '.', '_' and '-', and begins with a letter or a digit.
func Handle(name string, fn Func) Handler {
	h := Handler{name: name, fn: fn}
	switch {
	case !isName(name):
		h.err = fmt.Errorf("%q is not the name of a handler: use letters, digits, '.', '_' and '-', at most 128, and begin with a letter or a digit", name)
	case fn == nil:
		h.err = fmt.Errorf("the handler %s has no function", name)
	}
	return h
}

// Name returns the name by which jobs call the handler, without "native:".
func (h Handler) Name() string { return h.name }

// Call calls the function of a handler as a worker does, but in the goroutine of the
// caller and without the limits of a run: for tests, and for middleware. The middleware of
// [Options] is not called.
func (h Handler) Call(ctx context.Context, t *Task) ([]byte, error) {
	if h.err != nil {
		return nil, h.err
	}
	return h.fn(ctx, t)
}

// HandleJSON names a function whose input and output are JSON. A run without input passes
// the zero value. An input that does not fit is a permanent failure with the code
// "bad_input".
func HandleJSON[In, Out any](name string, fn func(ctx context.Context, t *Task, in In) (Out, error)) Handler {
	if fn == nil {
		return Handle(name, nil)
	}
	return Handle(name, func(ctx context.Context, t *Task) ([]byte, error) {
		var in In
		if len(t.Input) > 0 {
			if err := json.Unmarshal(t.Input, &in); err != nil {
				return nil, WithCode(Permanent(fmt.Errorf("the input does not fit the handler %s: %w", name, err)), "bad_input")
			}
		}
		out, err := fn(ctx, t, in)
		if err != nil {
			return nil, err
		}
		b, err := json.Marshal(out)
		if err != nil {
			return nil, WithCode(Permanent(fmt.Errorf("the output of the handler %s: %w", name, err)), "bad_output")
		}
		return b, nil
	})
}

func isName(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case i > 0 && (c == '.' || c == '_' || c == '-'):
		default:
			return false
		}
	}
	return true
}

// Options adjusts [Run]. Address is required; a zero value means the default
// named beside the field.
type Options struct {
	// Address is http://host:port or https://host:port of a server or a nameserver, or
	// several of one installation, separated by commas. The worker tries the next one
	// when one is out of reach.
	Address string

	// Token authenticates the worker. It needs the permission "work", like the token in
	// the file host-token of a server's data directory. White space around it is ignored.
	Token string

	// TLS is used for https addresses. Default: the system's roots, TLS 1.2 or later.
	TLS *tls.Config

	Name    string            // for people; default: the machine's name
	Labels  map[string]string // for the routing of jobs
	Apps    []string          // the apps whose jobs it executes; default: all
	Version string            // version of the program, for people; default: that of its main module

	// Concurrency is the number of functions that run at once. Default: GOMAXPROCS, at
	// least 4.
	Concurrency int

	// Dir is a directory for this worker alone, created when missing. It holds the
	// worker's identity and unacknowledged results, so that a restart does not lose them.
	// Default: none; runs whose results are unacknowledged at the end of the program are
	// executed again.
	Dir string

	// DrainTimeout is how long functions may continue after ctx of Run has ended.
	// Default: 10 s.
	DrainTimeout time.Duration

	// Patience is how long a function may continue after its context has ended before the
	// worker gives up its run. Default: 10 s.
	Patience time.Duration

	// Middleware wraps every handler: each function receives a handler and returns one of
	// the same name that calls it. The first is the outermost. Default: none.
	//
	//	func timed(next worker.Handler) worker.Handler {
	//		return worker.Handle(next.Name(), func(ctx context.Context, t *worker.Task) ([]byte, error) {
	//			defer func(start time.Time) { t.Logf("took %s", time.Since(start)) }(time.Now())
	//			return next.Call(ctx, t)
	//		})
	//	}
	Middleware []func(Handler) Handler

	// DialOptions are added to those of the worker's connections: interceptors, stats
	// handlers. Default: none.
	DialOptions []grpc.DialOption

	// TracerProvider makes a span of each attempt, in the trace of the call that triggered
	// its run; with OpenTelemetry's global provider it is otel.GetTracerProvider(). Default:
	// none; the context of a function then has the span context of the caller.
	TracerProvider trace.TracerProvider

	// Logger receives the worker's own messages. Default: [slog.Default].
	Logger *slog.Logger

	// Dialer opens connections to host:port. Default: TCP.
	Dialer func(ctx context.Context, address string) (net.Conn, error)
}

type worker struct {
	opt    Options
	tracer trace.Tracer // nil: attempts are no spans
	funcs  map[string]Func
	names  []string // sorted, as jobs name them
}

// Run executes runs of jobs with the given functions until ctx ends. Then it accepts no
// more tasks, returns those that have not begun, and lets functions finish for
// DrainTimeout. After that it ends the contexts of the others. It returns when a server
// has their results or, if that fails, when they are stored. Run waits for a server that
// is out of reach, and logs at once and then at growing intervals why it waits. It fails
// if a server refuses the worker before the worker has joined, for example its token.
func Run(ctx context.Context, opt Options, handlers ...Handler) (err error) {
	w, err := newWorker(opt, handlers)
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	servers, err := newServers(w.opt)
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	conf := session.Config{
		Name: w.opt.Name, Version: w.opt.Version, Labels: w.opt.Labels, Apps: w.opt.Apps, ABI: w.names,
		Slots: w.opt.Concurrency, Connect: servers.connect, Units: servers.units, ConnectUnit: servers.connectUnit, Final: refused, Run: w.run,
		DrainTimeout: w.opt.DrainTimeout, Logger: w.opt.Logger,
	}
	if w.opt.Dir == "" {
		conf.ID = newID()
	} else {
		d, err := openDir(w.opt.Dir, w.opt.Logger)
		if err != nil {
			return fmt.Errorf("worker: %w", err)
		}
		defer func() { err = errors.Join(err, d.close()) }()
		conf.ID, conf.Spool = d.id, d.spool
	}
	servers.id = conf.ID
	s, err := session.New(conf)
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	if err := s.Run(ctx); err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	return nil
}

// newWorker fills in the defaults and validates the options.
func newWorker(opt Options, handlers []Handler) (*worker, error) {
	opt.Concurrency = cmp.Or(opt.Concurrency, concurrency())
	opt.DrainTimeout = cmp.Or(opt.DrainTimeout, 10*time.Second)
	opt.Patience = cmp.Or(opt.Patience, 10*time.Second)
	if opt.Logger == nil {
		opt.Logger = slog.Default()
	}
	if opt.Name == "" {
		opt.Name, _ = os.Hostname() // without a host name, the id is the name
	}
	if info, ok := debug.ReadBuildInfo(); ok && opt.Version == "" {
		if opt.Version = info.Main.Version; opt.Version == "(devel)" {
			opt.Version = "dev" // as a server and a host say it
		}
	}
	w := &worker{opt: opt, funcs: map[string]Func{}}
	for _, h := range handlers {
		if h.err == nil && w.funcs[h.name] != nil {
			h.err = fmt.Errorf("the handler %s is given twice", h.name)
		}
		if h.err != nil {
			return nil, h.err
		}
		wrapped, err := wrap(h, opt.Middleware)
		if err != nil {
			return nil, err
		}
		w.funcs[h.name] = wrapped.fn
	}
	switch {
	case len(handlers) == 0:
		return nil, errors.New("no handler is given: pass worker.Handle(name, function)")
	case opt.Concurrency < 1 || opt.Concurrency > 1<<16:
		return nil, fmt.Errorf("the Concurrency is %d: want 1 to %d", opt.Concurrency, 1<<16)
	case opt.DrainTimeout < 0:
		return nil, fmt.Errorf("the DrainTimeout is %v: want more than 0", opt.DrainTimeout)
	case opt.Patience < 0:
		return nil, fmt.Errorf("the Patience is %v: want more than 0", opt.Patience)
	}
	if opt.TracerProvider != nil {
		w.tracer = opt.TracerProvider.Tracer("github.com/wheelworkhq/wheelwork/sdk/worker")
	}
	w.names = sorted(w.funcs)
	return w, nil
}

// wrap puts middleware around a handler, the first outermost.
func wrap(h Handler, middleware []func(Handler) Handler) (Handler, error) {
	name := h.name
	for _, m := range slices.Backward(middleware) {
		if h = m(h); h.err != nil {
			return h, h.err
		}
		if h.name != name {
			return h, fmt.Errorf("a middleware made %q of the handler %s: it must keep the name, with worker.Handle(next.Name(), …)", h.name, name)
		}
	}
	return h, nil
}

// refused reports whether the error of a first join is permanent.
func refused(err error) bool {
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument:
		return true
	}
	return false
}

func newID() string { return "worker-" + strings.ToLower(rand.Text()) }

// sdk returns the options of connections.
func (o Options) sdk() sdk.Options {
	return sdk.Options{Token: o.Token, TLS: o.TLS, Dialer: o.Dialer, DialOptions: o.DialOptions}
}
