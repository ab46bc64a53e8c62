package sched_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/access"
	"github.com/wheelworkhq/wheelwork/alert/definition"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/host"
	"github.com/wheelworkhq/wheelwork/host/services"
	"github.com/wheelworkhq/wheelwork/internal/keyring"
	"github.com/wheelworkhq/wheelwork/internal/memconn"
	"github.com/wheelworkhq/wheelwork/journal"
	"github.com/wheelworkhq/wheelwork/journal/local"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/mq"
	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/sched"
	"github.com/wheelworkhq/wheelwork/sched/api"
	"github.com/wheelworkhq/wheelwork/sched/core"
	"github.com/wheelworkhq/wheelwork/store"
)

// world is a server and its hosts in one synctest bubble with fake time. It runs the real
// code on real files, over in-memory connections. Only the handlers are Go functions
// instead of modules.
type world struct {
	// The configuration of the servers. A zero value means the default, or a minute for
	// snapshotEvery.
	statsBatch      int
	bundleRuns      int
	random          *rand.ChaCha8
	checkpointEvery time.Duration
	snapshotEvery   time.Duration
	snapshotTimes   int64
	standsBy        bool // each server takes over from a standby
	t               *testing.T
	dir             string

	mu     sync.Mutex
	listen *memconn.Listener // the listener of the running server; nil: none
	hosts  map[string]*simHost

	stopServer func()
	handlers   *handlers

	wrap   func(journal.Journal) journal.Journal // wraps the journal; nil: not wrapped
	failed error                                 // the last result of the server's Run

	gathered func(app string, have int) bool // sched.Config.Gathered; nil: all hosts are connected

	remote api.Remote    // the other partitions; nil: none
	srv    *sched.Server // the running server

	secretKey []byte
	requests  *apiv1.Grants // what the manifest of each module asks for
	badScript error         // why each script is refused; nil: it is accepted
	trials    []sched.Trial // of scripts that were tried

	maxLive, maxApps int // of sched.Config

	alerts     *definition.Edges      // sched.Config.Alerts
	conditions func() core.Conditions // sched.Config.Conditions

	auditBytes int64 // of store.Config; 0: the default

	guard func() *access.Guard // makes the guard of each server; nil: there is none
}

func newWorld(t *testing.T) *world {
	return &world{t: t, dir: t.TempDir(), hosts: map[string]*simHost{}, handlers: &handlers{byJob: map[string]handler{}}, secretKey: make([]byte, 32)}
}

// handler replaces the module of a job.
type handler func(ctx context.Context, t runtime.Task, s runtime.Sink) runtime.Result

// handlers is the engine of every host of a world.
type handlers struct {
	mu    sync.Mutex
	byJob map[string]handler
	calls []call
}

// call is one execution of a handler.
type call struct {
	job     string
	run     string
	attempt int
	planned time.Time
	at      time.Time
}

func (e *handlers) Load(context.Context, string, []byte) error { return nil }
func (e *handlers) Loaded(string) bool                         { return true }

func (e *handlers) Run(ctx context.Context, t runtime.Task, s runtime.Sink) runtime.Result {
	e.mu.Lock()
	h := e.byJob[t.Job]
	e.calls = append(e.calls, call{t.Job, t.RunID, t.Attempt, t.PlannedAt, time.Now()})
	e.mu.Unlock()
	if !t.Deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, t.Deadline)
		defer cancel()
	}
	start := time.Now()
	res := runtime.Result{Outcome: runtime.Succeeded, Output: t.Input}
	if h != nil {
		res = h(ctx, t, s)
	}
	res.Duration = time.Since(start)
	return res
}

// serviced is the engine of one host. It passes the services of the host to the handlers.
type serviced struct {
	*handlers
	svc runtime.Services
}

type servicesKey struct{}

func (e serviced) Run(ctx context.Context, t runtime.Task, s runtime.Sink) runtime.Result {
	return e.handlers.Run(context.WithValue(ctx, servicesKey{}, e.svc), t, s)
}

// guest returns the services of the host on which a handler executes.
func guest(ctx context.Context) runtime.Services {
	return ctx.Value(servicesKey{}).(runtime.Services)
}

func (e *handlers) of(job string) []call {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []call
	for _, c := range e.calls {
		if c.job == job {
			out = append(out, c)
		}
	}
	return out
}

// sleeping returns a handler that takes d, returns its input, and stops when its context
// ends.
func sleeping(d time.Duration) handler {
	return func(ctx context.Context, t runtime.Task, _ runtime.Sink) runtime.Result {
		select {
		case <-time.After(d):
			return runtime.Result{Outcome: runtime.Succeeded, Output: t.Input}
		case <-ctx.Done():
			if ctx.Err() == context.DeadlineExceeded {
				return runtime.Result{Outcome: runtime.TimedOut, Error: "the deadline passed", Code: "timeout"}
			}
			return runtime.Result{Outcome: runtime.Stopped, Error: "stopped", Code: "cancelled"}
		}
	}
}

// serve returns a new server. With standsBy, a standby catches up in steps and then takes
// over.
func (w *world) serve(cfg sched.Config) (*sched.Server, error) {
	if !w.standsBy {
		return sched.New(cfg)
	}
	steps := &inSteps{Journal: cfg.Journal, next: cfg.Store.Applied() + 1}
	follows := cfg
	follows.Journal = steps
	standby, err := sched.Follow(follows)
	if err != nil {
		return nil, err
	}
	for range 4 {
		steps.next += (cfg.Journal.Next() - steps.next) / 3
		if at, err := standby.CatchUp(); err != nil {
			return nil, err
		} else if at.Applied >= steps.next {
			return nil, fmt.Errorf("a standby is at record %d of a journal that ends before %d", at.Applied, steps.next)
		}
	}
	return standby.TakeOver(cfg)
}

// inSteps is a journal that ends before the record next, so that a standby catches up in
// steps.
type inSteps struct {
	journal.Journal
	next uint64
}

func (j *inSteps) Next() uint64 { return j.next }

func (j *inSteps) Read(from uint64, fn func(uint64, journal.Slot, []byte) error) error {
	end := errors.New("it ends here")
	err := j.Journal.Read(from, func(seq uint64, slot journal.Slot, body []byte) error {
		if seq >= j.next {
			return end
		}
		return fn(seq, slot, body)
	})
	if errors.Is(err, end) {
		return nil
	}
	return err
}

// start starts a server on the directory of the world.
func (w *world) start() {
	w.t.Helper()
	log, err := mq.Open(mq.Config{Dir: filepath.Join(w.dir, "journal"), SegmentBytes: 16 << 20, ReserveBytes: -1})
	if err != nil {
		w.t.Fatal(err)
	}
	var j journal.Journal
	if j, err = local.Open(log, w.note()); err != nil {
		w.t.Fatal(err)
	}
	if w.wrap != nil {
		j = w.wrap(j)
	}
	st := w.openStore()
	mods, err := modules.Open(filepath.Join(w.dir, "modules"))
	if err != nil {
		w.t.Fatal(err)
	}
	cfg := sched.Config{
		StatsBatch: w.statsBatch, BundleRuns: w.bundleRuns, Random: w.random, CheckpointEvery: w.checkpointEvery,
		ID: "srv", Journal: j, Store: st, Modules: mods, Snapshots: sched.Snapshots{SnapshotBytes: 1 << 20, SnapshotEvery: cmp.Or(w.snapshotEvery, time.Minute), SnapshotTimes: w.snapshotTimes}, Keys: ringOf(w.t, w.secretKey), Remote: w.remote, Gathered: w.gathered, MaxLive: w.maxLive, MaxApps: w.maxApps, Alerts: w.alerts, Conditions: w.conditions,
		Inspect: func(ctx context.Context, upload *modules.Upload, _ string) (api.ModuleInfo, error) {
			code, err := upload.Bytes()
			if err != nil {
				return api.ModuleInfo{}, err
			}
			return api.ModuleInfo{Digest: modules.Digest(code), Kind: "reactor", Handlers: []string{"main", "sum"}, Requests: w.requests, Interpreter: interpreterOf(code), GetInterpreter: "fetch it so", InputSchemas: map[string]string{"sum": `{"type":"object"}`}}, nil
		},
	}
	var opts []grpc.ServerOption
	if w.guard != nil {
		guard := w.guard()
		cfg.Publish = guard.Issue
		opts = attributions(guard)
	}
	cfg.Scripts = scriptsOfWorld{w}
	srv, err := w.serve(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.srv = srv
	g := grpc.NewServer(opts...)
	srv.Register(g)
	lis := memconn.Listen(1 << 20)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if w.failed = srv.Run(ctx); w.failed != nil && w.wrap == nil {
			w.t.Errorf("the server failed: %v", w.failed)
		}
	})
	wg.Go(func() { g.Serve(lis) }) //nolint:errcheck // ends with Stop
	w.mu.Lock()
	w.listen = lis
	w.mu.Unlock()
	w.stopServer = func() {
		w.mu.Lock()
		w.listen = nil
		w.mu.Unlock()
		cancel()
		g.Stop()
		wg.Wait()
		if err := st.Close(); err != nil {
			w.t.Error(err)
		}
		if err := j.Close(); err != nil {
			w.t.Error(err)
		}
	}
}

// scriptsOfWorld works with scripts as the world says.
type scriptsOfWorld struct{ w *world }

// CheckScript implements [api.Scripts].
func (s scriptsOfWorld) CheckScript(_ context.Context, upload *modules.Upload, interpreter []byte) error {
	code, err := upload.Bytes()
	if want := interpreterOf(code); err == nil && modules.Digest(interpreter) != want {
		err = fmt.Errorf("checked with the interpreter %s, want %s", modules.Digest(interpreter), want)
	}
	return cmp.Or(err, s.w.badScript)
}

// TryScript implements [api.Scripts].
func (s scriptsOfWorld) TryScript(ctx context.Context, upload *modules.Upload, interpreter []byte, trial sched.Trial) (sched.Tried, error) {
	if err := s.CheckScript(ctx, upload, interpreter); err != nil {
		return sched.Tried{}, err
	}
	s.w.trials = append(s.w.trials, trial)
	return sched.Tried{Outcome: "succeeded", Output: trial.Input, Took: time.Second, Log: []sched.TriedLine{{Level: "info", Text: "a\xffb"}}}, nil
}

// note is the path of the file that records an orderly close of the journal.
func (w *world) note() string { return filepath.Join(w.dir, "journal-closed") }

func (w *world) openStore() *store.Store {
	w.t.Helper()
	st, err := store.Open(store.Config{Dir: filepath.Join(w.dir, "store"), SegmentBytes: 1 << 20, AuditBytes: w.auditBytes})
	if err != nil {
		w.t.Fatal(err)
	}
	return st
}

// dial connects to the running server.
func (w *world) dial() (*grpc.ClientConn, error) {
	w.mu.Lock()
	lis := w.listen
	w.mu.Unlock()
	if lis == nil {
		return nil, fmt.Errorf("no server is up")
	}
	return grpc.NewClient("passthrough:sim", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
}

// client returns the API of the running server. The caller closes it.
func (w *world) client() *client {
	w.t.Helper()
	conn, err := w.dial()
	if err != nil {
		w.t.Fatal(err)
	}
	return &client{w.t, conn, apiv1.NewJobsClient(conn), apiv1.NewRunsClient(conn), apiv1.NewModulesClient(conn), apiv1.NewClusterClient(conn)}
}

type simHost struct {
	host *host.Host
	stop func()
}

// addHost starts a host in its own directory.
func (w *world) addHost(id string, slots int) { w.addLabelled(id, slots, nil) }

func (w *world) addLabelled(id string, slots int, labels map[string]string) {
	w.t.Helper()
	w.addAble(id, slots, labels)
}

// addAble starts a host that announces the given abilities.
func (w *world) addAble(id string, slots int, labels map[string]string, abi ...string) {
	w.t.Helper()
	dir := filepath.Join(w.dir, id)
	spool, err := mq.Open(mq.Config{Dir: filepath.Join(dir, "spool"), SegmentBytes: 1 << 20, ReserveBytes: -1})
	if err != nil {
		w.t.Fatal(err)
	}
	mods, err := modules.Open(filepath.Join(dir, "modules"))
	if err != nil {
		w.t.Fatal(err)
	}
	svc := services.New(services.Config{})
	h, err := host.New(host.Config{
		ID: id, Slots: slots, Labels: labels, ABI: abi, Engine: serviced{w.handlers, svc}, Guests: svc, Modules: mods, Spool: spool, DrainTimeout: time.Second,
		Connect: func(context.Context) (grpc.ClientConnInterface, io.Closer, error) {
			conn, err := w.dial()
			return conn, conn, err
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	svc.Attach(h)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := h.Run(ctx); err != nil {
			w.t.Errorf("host %s: %v", id, err)
		}
		if err := spool.Close(); err != nil {
			w.t.Error(err)
		}
	}()
	w.hosts[id] = &simHost{host: h, stop: func() { cancel(); <-done }}
}

func (w *world) removeHost(id string) {
	w.hosts[id].stop()
	delete(w.hosts, id)
}

func (w *world) close() {
	for id := range w.hosts {
		w.removeHost(id)
	}
	w.stopServer()
}

// client is the API of a server. Its methods end the test on an error.
type client struct {
	t       *testing.T
	conn    *grpc.ClientConn
	jobs    apiv1.JobsClient
	runs    apiv1.RunsClient
	modules apiv1.ModulesClient
	cluster apiv1.ClusterClient
}

func (c *client) close() { c.conn.Close() } //nolint:errcheck // a test's connection

// reconnect connects to the server that runs now.
func (c *client) reconnect(w *world) {
	c.close()
	*c = *w.client()
}

func (c *client) push() {
	c.t.Helper()
	c.pushTo("")
}

func (c *client) pushTo(app string) {
	c.t.Helper()
	s, err := c.modules.PushModule(context.Background())
	if err != nil {
		c.t.Fatal(err)
	}
	head := &apiv1.PushModuleRequest_Head{App: app, Name: "m", Version: "1"}
	if err := s.Send(&apiv1.PushModuleRequest{Part: &apiv1.PushModuleRequest_Head_{Head: head}}); err != nil {
		c.t.Fatal(err)
	}
	if _, err := s.CloseAndRecv(); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) apply(j *apiv1.Job) string {
	c.t.Helper()
	j.Handler = &apiv1.Handler{Module: "m@1"}
	resp, err := c.jobs.ApplyJob(context.Background(), &apiv1.ApplyJobRequest{Job: j})
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.Result
}

func (c *client) trigger(name, key string) string {
	c.t.Helper()
	req := &apiv1.TriggerJobRequest{Name: name, IdempotencyKey: key}
	r, err := c.jobs.TriggerJob(context.Background(), req)
	if status.Code(err) == codes.ResourceExhausted { // the disk is real: on a busy machine it fills the next segment later than the test writes
		time.Sleep(time.Second) // until it has
		r, err = c.jobs.TriggerJob(context.Background(), req)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return r.Id
}

// wait follows a run and returns it when it has ended.
func (c *client) wait(id string) *apiv1.Run {
	c.t.Helper()
	s, err := c.runs.WatchRun(context.Background(), &apiv1.WatchRunRequest{Id: id})
	if err != nil {
		c.t.Fatal(err)
	}
	var last *apiv1.Run
	for {
		r, err := s.Recv()
		if err == io.EOF {
			return last
		}
		if err != nil {
			c.t.Fatal(err)
		}
		last = r
	}
}

// all returns every run of a job in a state, read page by page.
func (c *client) all(job, state string) []*apiv1.Run {
	c.t.Helper()
	var out []*apiv1.Run
	req := &apiv1.ListRunsRequest{Job: job, State: state, PageSize: 7}
	for {
		resp, err := c.runs.ListRuns(context.Background(), req)
		if err != nil {
			c.t.Fatal(err)
		}
		out = append(out, resp.Runs...)
		if req.PageToken = resp.NextPageToken; req.PageToken == "" {
			return out
		}
	}
}

// ringOf returns a ring with one key; nil: the server has none.
func ringOf(t testing.TB, key []byte) *keyring.Ring {
	t.Helper()
	if key == nil {
		return nil
	}
	keys, err := keyring.Parse(base64.StdEncoding.EncodeToString(key))
	if err != nil {
		t.Fatal(err)
	}
	return keyring.NewRing(keys)
}
