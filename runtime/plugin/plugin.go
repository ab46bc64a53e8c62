package plugin

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/process"
)

// Spec is a plugin that the operator of a host allows. A zero value means the
// default named beside the field; Name, Path, and SHA256 or Keys are required.
type Spec struct {
	Name string // jobs name it plugin:NAME/HANDLER
	Path string // the program, absolute
	Args []string
	Env  map[string]string // beside PATH, HOME, LANG and TMPDIR of the host; it gets nothing else of the host's
	Dir  string            // the directory it runs in; default: that of Path

	SHA256    []string            // digests of programs that are allowed, in hex
	Keys      []ed25519.PublicKey // or it is signed with one of these
	Signature string              // the file with the signature; default: Path.sig

	Processes    int           // how many run at once; default 1
	StartTimeout time.Duration // from its start until it is ready; default 10 s
	Grace        time.Duration // that a task has to end when it is asked to; default 5 s
	HealthEvery  time.Duration // between two health checks; three failures are the end; default 5 s
}

// Config is what an executor is made of.
type Config struct {
	Plugins []Spec
	Dir     string          // for the checked copies of programs; created, and only this user's
	Keeper  *process.Keeper // starts the programs; the caller closes it after the executor
	Version string          // of the host, told to plugins
	Logger  *slog.Logger    // default: discard
}

// Executor runs tasks in plugins; see [runtime.Executor]. A task's Module is the
// plugin's name, its Handler the handler's.
type Executor struct {
	plugins map[string]*plugin
	changed atomic.Pointer[func()] // called when a plugin is up or down; nil: nobody is
	cancel  context.CancelFunc
	wg      sync.WaitGroup
}

// pluginName is a name that can stand in a path and in a job's handler.
var pluginName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

func (s *Spec) check() error {
	switch {
	case !pluginName.MatchString(s.Name):
		return fmt.Errorf("plugin %q: that is no name: use letters, digits, '.', '_' and '-', and begin with a letter or a digit", s.Name)
	case !filepath.IsAbs(s.Path):
		return fmt.Errorf("plugin %s: path %q is not absolute", s.Name, s.Path)
	case len(s.SHA256) == 0 && len(s.Keys) == 0:
		return fmt.Errorf("plugin %s: give sha256 with the digests of programs that are allowed, or keys to check a signature with", s.Name)
	case s.Processes < 0 || s.Processes > maxProcesses:
		return fmt.Errorf("plugin %s: processes is %d, it must be 1 to %d", s.Name, s.Processes, maxProcesses)
	case s.StartTimeout < 0 || s.Grace < 0 || s.HealthEvery < 0:
		return fmt.Errorf("plugin %s: a time is negative", s.Name)
	}
	for _, d := range s.SHA256 {
		if b, err := hex.DecodeString(strings.TrimPrefix(d, "sha256:")); err != nil || len(b) != 32 {
			return fmt.Errorf("plugin %s: sha256 %q is not 64 hex digits", s.Name, d)
		}
	}
	for _, k := range s.Keys {
		if len(k) != ed25519.PublicKeySize {
			return fmt.Errorf("plugin %s: a key has %d bytes, an ed25519 key has %d", s.Name, len(k), ed25519.PublicKeySize)
		}
	}
	return nil
}

const maxProcesses = 256

// Open starts the plugins. One that does not start is tried again and again,
// with the reason in the log and in the results of its tasks: a host is not to
// be without the others.
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
			return nil, fmt.Errorf("plugin %s is there twice", s.Name)
		}
		s.Dir = cmp.Or(s.Dir, filepath.Dir(s.Path))
		s.Processes = cmp.Or(s.Processes, 1)
		s.StartTimeout = cmp.Or(s.StartTimeout, 10*time.Second)
		s.Grace = cmp.Or(s.Grace, 5*time.Second)
		s.HealthEvery = cmp.Or(s.HealthEvery, 5*time.Second)
		e.plugins[s.Name] = &plugin{
			spec: s, dir: cfg.Dir, keeper: cfg.Keeper, version: cfg.Version,
			log: cfg.Logger.With("plugin", s.Name), changed: make(chan struct{}), hopeful: s.Processes,
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

// Close asks the plugins to end, kills those that do not, and waits.
func (e *Executor) Close() error {
	e.cancel()
	e.wg.Wait()
	return nil
}

// Up says whether the plugin of a name runs, or ended so lately that it is
// expected back. One that has never come up, and one that waits long for its
// next start, is not up.
func (e *Executor) Up(name string) bool {
	p := e.plugins[name]
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.up
}

// Watch has f called when a plugin is up or down, instead of who was before.
func (e *Executor) Watch(f func()) { e.changed.Store(&f) }

func (e *Executor) turned() {
	if f := e.changed.Load(); f != nil {
		(*f)()
	}
}

// Codes of results that the host gives. A handler's own code stands instead when
// it told one.
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

// Run runs one task in a plugin.
func (e *Executor) Run(ctx context.Context, t runtime.Task, sink runtime.Sink) runtime.Result {
	p := e.plugins[t.Module]
	if p == nil {
		return failed(runtime.HostError, codeNotAllowed, "this host has no plugin %s: its operator allows plugins with --plugins", t.Module)
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
		if err != nil { // it ended in this moment: another process may be ready
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

// plugin is one of the operator's, with the processes of it that are ready.
type plugin struct {
	spec    Spec
	dir     string
	keeper  *process.Keeper
	version string
	log     *slog.Logger
	said    throttle // lines of its programs in the host's log

	mu      sync.Mutex
	ready   []*instance
	changed chan struct{} // closed when an instance is ready or has room, if somebody waits
	waiting int
	hopeful int    // supervisors whose process runs, starts, or is soon started
	down    error  // why there is no instance
	up      bool   // see Executor.Up
	turned  func() // called without mu when up has changed
}

// take returns an instance with room for one more task, the one with the most.
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
		if len(p.ready) == 0 && p.hopeful == 0 {
			defer p.mu.Unlock()
			return nil, p.down
		}
		// How long to wait for room is for the task's deadline to say.
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

// give gives back the room of a task.
func (p *plugin) give(i *instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i.tasks--
	p.changedLocked()
}

// changedLocked wakes who waits; p.mu must be held.
func (p *plugin) changedLocked() {
	if p.waiting > 0 {
		close(p.changed)
		p.changed = make(chan struct{})
	}
}

// heard writes a line of a program to the host's log, where it is of no run.
func (p *plugin) heard(pid int, level slog.Level, line string) {
	pass, dropped := p.said.pass(time.Now())
	if dropped > 0 {
		p.log.Warn("lines of a plugin were dropped: it wrote more than the host's log takes", "lines", dropped, "pid", pid)
	}
	if pass {
		p.log.Log(context.Background(), level, line, "pid", pid)
	}
}

// throttle lets through a burst of lines and then so many in a second.
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
