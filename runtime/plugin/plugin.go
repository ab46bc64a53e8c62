package plugin

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/process"
)

// Spec describes a plugin that the operator of a host allows. Name, Path, and SHA256 or
// Keys are required. The zero value of another field means the default beside it.
type Spec struct {
	Name string // jobs use plugin:NAME/HANDLER
	Path string // absolute path of the program
	Args []string
	Env  map[string]string // in addition to PATH, HOME, LANG and TMPDIR of the host, its only variables that the plugin receives
	Dir  string            // working directory, which it may change; default: the directory of Path, with User /

	SHA256    []string            // allowed digests of the program, in hex
	Keys      []ed25519.PublicKey // or keys, one of which must have signed the program
	Signature string              // file with the signature; default: Path.sig

	Processes    int           // number of processes at once; default 1
	StartTimeout time.Duration // from the start until the plugin is ready; default 10 s
	Grace        time.Duration // from the request to end a task until the plugin is killed; default 5 s
	HealthEvery  time.Duration // between two health checks; after three failures in a row the plugin is killed; default 5 s
	process.Rights
}

// Config is the configuration of an Executor.
type Config struct {
	Plugins []Spec
	Dir     string          // for verified copies of the programs; Open creates it, accessible only to this user
	Keeper  *process.Keeper // starts the programs; the caller must close it after the executor
	Version string          // version of the host, which plugins receive
	Logger  *slog.Logger    // default: discard
}

// Executor runs tasks in plugins; see [runtime.Executor]. The Module of a task is the
// name of the plugin, and its Handler that of the handler.
type Executor struct {
	plugins map[string]*plugin
	changed atomic.Pointer[func()] // called when a plugin comes up or goes down; nil: no function
	cancel  context.CancelFunc
	wg      sync.WaitGroup
}

// pluginName matches names that are valid in a path and in the handler of a job.
var pluginName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

func (s *Spec) check() error {
	switch {
	case !pluginName.MatchString(s.Name):
		return fmt.Errorf("plugin %q: the name is malformed: use letters, digits, '.', '_' and '-', and begin with a letter or a digit", s.Name)
	case !filepath.IsAbs(s.Path):
		return fmt.Errorf("plugin %s: path %q is not absolute", s.Name, s.Path)
	case len(s.SHA256) == 0 && len(s.Keys) == 0:
		return fmt.Errorf("plugin %s: give sha256 with the digests of programs that are allowed, or keys to check a signature with", s.Name)
	case s.Processes < 0 || s.Processes > maxProcesses:
		return fmt.Errorf("plugin %s: processes is %d, it must be 1 to %d", s.Name, s.Processes, maxProcesses)
	case s.StartTimeout < 0 || s.Grace < 0 || s.HealthEvery < 0:
		return fmt.Errorf("plugin %s: a time is negative", s.Name)
	}
	if err := process.CheckDigests(s.SHA256); err != nil {
		return fmt.Errorf("plugin %s: %w", s.Name, err)
	}
	for _, k := range s.Keys {
		if len(k) != ed25519.PublicKeySize {
			return fmt.Errorf("plugin %s: a key has %d bytes, an ed25519 key has %d", s.Name, len(k), ed25519.PublicKeySize)
		}
	}
	return nil
}

const maxProcesses = 256

// Open starts the plugins. It retries a plugin that does not start, and reports the
// reason in the log and in the results of its tasks, so that the host can serve the other
// plugins.
func Open(cfg Config) (*Executor, error) {
	if cfg.Dir == "" || cfg.Keeper == nil {
		return nil, errors.New("plugin: Dir and Keeper are required")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	e := &Executor{plugins: map[string]*plugin{}}
	for _, s := range cfg.Plugins {
		if err := s.check(); err != nil {
			return nil, err
		}
		if e.plugins[s.Name] != nil {
			return nil, fmt.Errorf("plugin %s is listed twice", s.Name)
		}
		if s.Dir != "" { // the operator names it as the folder to work in
			s.Write = append(slices.Clone(s.Write), s.Dir)
		}
		rules, err := cfg.Keeper.Rules(s.Rights)
		if err != nil {
			return nil, fmt.Errorf("plugin %s: %w", s.Name, err)
		}
		s.Dir = cmp.Or(s.Dir, rules.Dir(s.Path))
		s.Processes = cmp.Or(s.Processes, 1)
		s.StartTimeout = cmp.Or(s.StartTimeout, 10*time.Second)
		s.Grace = cmp.Or(s.Grace, 5*time.Second)
		s.HealthEvery = cmp.Or(s.HealthEvery, 5*time.Second)
		e.plugins[s.Name] = &plugin{
			spec: s, rules: rules.Listening(), dir: cfg.Dir, keeper: cfg.Keeper, version: cfg.Version,
			log: cfg.Logger.With("plugin", s.Name), changed: make(chan struct{}), expected: s.Processes,
			turned: e.turned,
		}
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.Chmod(cfg.Dir, 0o700); err != nil {
		return nil, err
	}
	var ctx context.Context
	ctx, e.cancel = context.WithCancel(context.Background())
	for _, p := range e.plugins {
		for range p.spec.Processes {
			e.wg.Go(func() { p.supervise(ctx) })
		}
	}
	return e, nil
}

// Close asks the plugins to end, kills those that have not ended after Grace, and waits.
func (e *Executor) Close() error {
	e.cancel()
	e.wg.Wait()
	return nil
}

// Up reports whether a plugin runs, or is expected to run again soon after its end. A
// plugin is not up before its first start, and while it waits for over 500 ms for its
// next start.
func (e *Executor) Up(name string) bool {
	p := e.plugins[name]
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.up
}

// Apps returns the apps that may use a plugin; nil: all.
func (e *Executor) Apps(name string) []string {
	if p := e.plugins[name]; p != nil {
		return p.spec.Apps
	}
	return nil
}

// Watch sets the function that the executor calls when a plugin comes up or goes down. It
// replaces the previous function.
func (e *Executor) Watch(f func()) { e.changed.Store(&f) }

func (e *Executor) turned() {
	if f := e.changed.Load(); f != nil {
		(*f)()
	}
}

// Codes of results by the host. For a failed handler, its own code takes precedence.
const (
	codeNotAllowed  = "plugin_not_allowed"
	codeDown        = "plugin_down"
	codeCrash       = "plugin_crash"
	codeKilled      = "killed"
	codeNoHandler   = "no_handler"
	codeStatus      = "status"
	codeStopped     = "stopped"
	codeDeadline    = "deadline"
	codeOutputLimit = "output_limit"
)

// Run runs one task in a plugin and waits for its end.
func (e *Executor) Run(ctx context.Context, t runtime.Task, sink runtime.Sink) runtime.Result {
	p := e.plugins[t.Module]
	if p == nil {
		return failed(runtime.HostError, codeNotAllowed, "this host has no plugin %s: its operator allows plugins with --plugins", t.Module)
	}
	if !p.spec.Serves(t.App) {
		return failed(runtime.HostError, codeNotAllowed, "this host does not offer plugin %s to app %s: its operator names the apps in the file of --plugins", t.Module, t.App)
	}
	handler := cmp.Or(t.Handler, "main")
	wait := ctx
	if !t.Deadline.IsZero() {
		var cancel context.CancelFunc
		wait, cancel = context.WithDeadline(ctx, t.Deadline)
		defer cancel()
	}
	for {
		i, err := p.take(wait)
		switch {
		case ctx.Err() != nil:
			if err == nil {
				p.give(i)
			}
			return failed(runtime.Stopped, codeStopped, "cancelled before it started")
		case errors.Is(err, context.DeadlineExceeded):
			return failed(runtime.TimedOut, codeDeadline, "the timeout passed before plugin %s had room for it", t.Module)
		case err != nil:
			return failed(runtime.HostError, codeDown, "plugin %s is not running: %v", t.Module, err)
		}
		if !i.serves(handler) {
			p.give(i)
			return failed(runtime.Permanent, codeNoHandler, "plugin %s has no handler %q; it has: %s", t.Module, handler, strings.Join(i.about.Handlers, ", "))
		}
		start := time.Now()
		r, err := i.run(ctx, &t, handler, sink)
		p.give(i)
		if err != nil { // the process has just ended; another one may be ready
			p.leave(i, nil)
			continue
		}
		if r.Duration == 0 {
			r.Duration = time.Since(start)
		}
		return r
	}
}

func failed(o runtime.Outcome, code, format string, args ...any) runtime.Result {
	return runtime.Result{Outcome: o, Code: code, Error: process.OneLine(fmt.Sprintf(format, args...))}
}

// plugin is one plugin of the operator, with its processes that are ready.
type plugin struct {
	spec    Spec
	rules   *process.Rules
	dir     string
	keeper  *process.Keeper
	version string
	log     *slog.Logger
	said    throttle // bounds the lines of its programs in the log of the host

	mu       sync.Mutex
	ready    []*instance
	changed  chan struct{} // closed when an instance is ready or has room, if there are waiters
	waiting  int
	expected int    // number of supervisors whose process runs, starts, or will start soon
	down     error  // reason why there is no instance
	up       bool   // see Executor.Up
	turned   func() // called without mu after up has changed
}

// take reserves room for one task and returns its instance, the one with the most room.
// It blocks until there is room, and fails when no process is expected soon.
func (p *plugin) take(ctx context.Context) (*instance, error) {
	p.mu.Lock()
	for {
		var best *instance
		for _, i := range p.ready {
			if i.tasks < i.limit && (best == nil || i.limit-i.tasks > best.limit-best.tasks) {
				best = i
			}
		}
		if best != nil {
			best.tasks++
			p.mu.Unlock()
			return best, nil
		}
		if len(p.ready) == 0 && p.expected == 0 {
			defer p.mu.Unlock()
			return nil, p.down
		}
		// The deadline of the task bounds the wait for room.
		changed := p.changed
		p.waiting++
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		p.mu.Lock()
		p.waiting--
		if ctx.Err() != nil {
			defer p.mu.Unlock()
			return nil, ctx.Err()
		}
	}
}

// give releases the room of a task.
func (p *plugin) give(i *instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i.tasks--
	p.changedLocked()
}

// changedLocked wakes the waiters of take. The caller must hold p.mu.
func (p *plugin) changedLocked() {
	if p.waiting > 0 {
		close(p.changed)
		p.changed = make(chan struct{})
	}
}

// receive writes a line of a program that belongs to no run to the log of the host.
func (p *plugin) receive(pid int, level slog.Level, line string) {
	pass, dropped := p.said.pass(time.Now())
	if dropped > 0 {
		p.log.Warn("lines of a plugin were dropped: it wrote more than the host's log takes", "lines", dropped, "pid", pid)
	}
	if pass {
		p.log.Log(context.Background(), level, line, "pid", pid)
	}
}

// throttle admits a burst of throttleBurst lines, and throttlePerSec lines per second.
type throttle struct {
	mu      sync.Mutex
	tokens  float64
	at      time.Time
	dropped int
}

const (
	throttleBurst  = 1000
	throttlePerSec = 100
)

func (t *throttle) pass(now time.Time) (ok bool, dropped int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.at.IsZero() {
		t.tokens = throttleBurst
	} else {
		t.tokens = min(t.tokens+now.Sub(t.at).Seconds()*throttlePerSec, throttleBurst)
	}
	t.at = now
	if t.tokens < 1 {
		t.dropped++
		return false, 0
	}
	t.tokens--
	dropped, t.dropped = t.dropped, 0
	return true, dropped
}
