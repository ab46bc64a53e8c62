package sched_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/host"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/mq"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// codeOf returns the test code of a version of module n. It differs from other versions
// only in the version text.
func codeOf(version string) []byte { return []byte("code of version " + version) }

// interpreterOf returns the digest of the interpreter that a script names, or "" for
// other code.
func interpreterOf(code []byte) string {
	if digest, ok := strings.CutPrefix(string(code), "script for "); ok {
		return digest
	}
	return ""
}

func (c *client) tryPush(head *apiv1.PushModuleRequest_Head, code []byte) (*apiv1.PushModuleResponse, error) {
	c.t.Helper()
	s, err := c.modules.PushModule(context.Background())
	if err != nil {
		c.t.Fatal(err)
	}
	for _, part := range []*apiv1.PushModuleRequest{
		{Part: &apiv1.PushModuleRequest_Head_{Head: head}}, {Part: &apiv1.PushModuleRequest_Chunk{Chunk: code}},
	} {
		if err := s.Send(part); err != nil && !errors.Is(err, io.EOF) {
			c.t.Fatal(err)
		}
	}
	return s.CloseAndRecv()
}

// pushVersions pushes versions of the module n.
func (c *client) pushVersions(versions ...string) {
	c.t.Helper()
	for _, v := range versions {
		if _, err := c.tryPush(&apiv1.PushModuleRequest_Head{Name: "n", Version: v}, codeOf(v)); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *client) alias(req *apiv1.SetAliasRequest) *apiv1.Alias {
	c.t.Helper()
	req.Module, req.Name = "n", "prod"
	x, err := c.modules.SetAlias(context.Background(), req)
	if err != nil {
		c.t.Fatal(err)
	}
	return x
}

func (c *client) getAlias() *apiv1.Alias {
	c.t.Helper()
	x, err := c.modules.GetAlias(context.Background(), &apiv1.GetAliasRequest{Module: "n", Name: "prod"})
	if err != nil {
		c.t.Fatal(err)
	}
	return x
}

func (c *client) applyTo(module string, j *apiv1.Job) error {
	j.Handler = &apiv1.Handler{Module: module}
	_, err := c.jobs.ApplyJob(context.Background(), &apiv1.ApplyJobRequest{Job: j})
	return err
}

// executed sets the handler of a job and records the digest of the code that each attempt
// received.
func (w *world) executed(name string, h handler) (digests func() []string) {
	var mu sync.Mutex
	var seen []string
	w.handlers.mu.Lock()
	defer w.handlers.mu.Unlock()
	w.handlers.byJob[name] = func(ctx context.Context, t runtime.Task, s runtime.Sink) runtime.Result {
		mu.Lock()
		seen = append(seen, t.Digest)
		mu.Unlock()
		return h(ctx, t, s)
	}
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
}

func succeed(context.Context, runtime.Task, runtime.Sink) runtime.Result {
	return runtime.Result{Outcome: runtime.Succeeded}
}

// TestRunsKeepTheVersionOfTheirAlias moves an alias while a run waits for its retry,
// restarts the server, and checks that the run keeps its version. A scheduled run takes
// the version that the alias has at its planned time.
func TestRunsKeepTheVersionOfTheirAlias(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		c.pushVersions("1", "2")
		c.alias(&apiv1.SetAliasRequest{Version: "1"})
		first := true
		digests := w.executed("flaky", func(ctx context.Context, t runtime.Task, s runtime.Sink) runtime.Result {
			if first {
				first = false
				return runtime.Result{Outcome: runtime.Retryable, Error: "not yet"}
			}
			return runtime.Result{Outcome: runtime.Succeeded}
		})
		if err := c.applyTo("n@prod", &apiv1.Job{Name: "flaky", Retry: &apiv1.Retry{Max: 3, First: "1m"}}); err != nil {
			t.Fatal(err)
		}
		id := c.trigger("flaky", "")
		time.Sleep(10 * time.Second)
		c.alias(&apiv1.SetAliasRequest{Version: "2"})
		w.stopServer()
		w.start()
		c.reconnect(w)
		r := c.wait(id)
		if r.Module != "n@1" || r.Alias != "n@prod" || r.Digest != modules.Digest(codeOf("1")) || r.Attempt != 2 || r.State != "succeeded" {
			t.Errorf("the run that began before the switch: %s %s of %s, attempt %d, %s", r.Module, r.Digest, r.Alias, r.Attempt, r.State)
		}
		if got, one := digests(), modules.Digest(codeOf("1")); !slices.Equal(got, []string{one, one}) {
			t.Errorf("its attempts executed %q", got)
		}
		if r := c.wait(c.trigger("flaky", "")); r.Module != "n@2" || r.Digest != modules.Digest(codeOf("2")) {
			t.Errorf("the run after the switch: %s", r.Module)
		}
		// Each scheduled run takes the version that the alias has when the run fires.
		scheduled := w.executed("tick", succeed)
		if err := c.applyTo("n@prod", &apiv1.Job{Name: "tick", Schedule: &apiv1.Schedule{Every: "1m"}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(90 * time.Second)
		c.alias(&apiv1.SetAliasRequest{Version: "1"})
		time.Sleep(time.Minute)
		if got := scheduled(); !slices.Equal(got, []string{modules.Digest(codeOf("2")), modules.Digest(codeOf("1"))}) {
			t.Errorf("the planned runs executed %q", got)
		}
		// Events are listed with the newest first.
		x := c.getAlias()
		var told []string
		for _, e := range x.Events {
			told = append(told, e.What+" "+e.From+">"+e.To)
		}
		if want := []string{"set 2>1", "set 1>2", "set >1"}; !slices.Equal(told, want) || x.Jobs != 2 {
			t.Errorf("events %q of an alias with %d jobs, want %q and 2", told, x.Jobs, want)
		}
	})
}

// TestRunsOfDependenciesAndNodesTakeAliases checks that a run which another run starts
// takes a version too.
func TestRunsOfDependenciesAndNodesTakeAliases(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		c.pushVersions("1")
		c.alias(&apiv1.SetAliasRequest{Version: "1"})
		w.executed("leaf", succeed)
		w.executed("after", succeed)
		for _, j := range []*apiv1.Job{{Name: "leaf"}, {Name: "after", Dependency: &apiv1.Dependency{Jobs: []string{"leaf"}}}} {
			if err := c.applyTo("n@prod", j); err != nil {
				t.Fatal(err)
			}
		}
		c.flow(&apiv1.Job{Name: "w"}, &apiv1.Node{Name: "leaf", Job: "leaf"})
		r := c.wait(c.trigger("w", ""))
		if n := c.run(r.Nodes[0].Run); n.State != "succeeded" || n.Module != "n@1" {
			t.Errorf("the node: %s of %q: %s", n.State, n.Module, n.Error)
		}
		time.Sleep(time.Second)
		runs, err := c.runs.ListRuns(t.Context(), &apiv1.ListRunsRequest{Job: "after"})
		if err != nil || len(runs.Runs) != 1 || runs.Runs[0].State != "succeeded" || runs.Runs[0].Module != "n@1" {
			t.Errorf("the run after it: %v, %v", runs, err)
		}
	})
}

// TestCanaryIsRolledBack checks that the percentage and the run ID decide which runs
// execute the canary, and that a canary which fails too often is rolled back.
func TestCanaryIsRolledBack(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		c.pushVersions("1", "2")
		c.alias(&apiv1.SetAliasRequest{Version: "1"})
		bad := modules.Digest(codeOf("2"))
		w.executed("j", func(_ context.Context, t runtime.Task, _ runtime.Sink) runtime.Result {
			if t.Digest == bad {
				return runtime.Result{Outcome: runtime.Permanent, Error: "no good"}
			}
			return runtime.Result{Outcome: runtime.Succeeded}
		})
		if err := c.applyTo("n@prod", &apiv1.Job{Name: "j"}); err != nil {
			t.Fatal(err)
		}
		x := c.alias(&apiv1.SetAliasRequest{Canary: &apiv1.Canary{Version: "2", Percent: 30, MinAttempts: 10, MaxFailure: 0.2}})
		if x.Version != "1" || x.Canary.GetVersion() != "2" || x.Canary.GetWindow() != "10m" {
			t.Fatalf("with a canary: %v", x)
		}
		failed := 0
		for range 9 { // too few attempts for a decision
			for {
				r := c.wait(c.trigger("j", ""))
				id, err := job.ParseRunID(r.Id)
				if err != nil {
					t.Fatal(err)
				}
				if want := job.InCanary(id, "n@prod", 30); r.Canary != want || want != (r.Module == "n@2") {
					t.Fatalf("run %s executed %s, canary %v", r.Id, r.Module, want)
				}
				if r.Canary {
					if failed++; r.State != "failed" {
						t.Fatalf("a run of the canary is %s", r.State)
					}
					break
				}
			}
		}
		if x := c.getAlias(); x.Canary == nil || x.Canary.Failed != 9 {
			t.Fatalf("after %d failures: %v", failed, x.Canary)
		}
		w.stopServer() // the counts of the canary survive a restart
		w.start()
		c.reconnect(w)
		for range 200 {
			c.wait(c.trigger("j", ""))
			if c.getAlias().Canary == nil {
				break
			}
		}
		x = c.getAlias()
		if x.Canary != nil || x.Version != "1" {
			t.Fatalf("after ten failures: %v", x)
		}
		if e := x.Events[0]; e.What != "rolled_back" || e.From != "2" || e.To != "1" || !strings.HasPrefix(e.Why, "10 of 10 attempts within 10m failed") {
			t.Errorf("the event: %v", e)
		}
		for range 50 {
			if r := c.wait(c.trigger("j", "")); r.Module != "n@1" || r.Canary {
				t.Fatalf("after the roll-back a run executed %s", r.Module)
			}
		}
		w.stopServer()
		w.start()
		c.reconnect(w)
		if x := c.getAlias(); x.Canary != nil || x.Events[0].What != "rolled_back" {
			t.Errorf("after a restart: %v", x)
		}
	})
}

// TestCanaryOldFailuresAreForgotten checks that failures outside the window do not count.
func TestCanaryOldFailuresAreForgotten(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		c.pushVersions("1", "2")
		c.alias(&apiv1.SetAliasRequest{Version: "1", Canary: &apiv1.Canary{Version: "2", Percent: 99.9999999, MinAttempts: 4, MaxFailure: 0.5, Window: "5m"}})
		w.executed("j", func(context.Context, runtime.Task, runtime.Sink) runtime.Result {
			return runtime.Result{Outcome: runtime.Permanent, Error: "no good"}
		})
		if err := c.applyTo("n@prod", &apiv1.Job{Name: "j"}); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			c.wait(c.trigger("j", ""))
			time.Sleep(2 * time.Minute)
		}
		if x := c.getAlias(); x.Canary == nil || x.Canary.Failed > 3 {
			t.Errorf("ten failures in twenty minutes, never four in five: %v", x)
		}
		// A new canary starts with its own counts.
		c.pushVersions("3")
		if x := c.alias(&apiv1.SetAliasRequest{Canary: &apiv1.Canary{Version: "3", Percent: 99.9999999, MinAttempts: 4, MaxFailure: 0.5, Window: "5m"}}); x.Canary.Failed != 0 {
			t.Errorf("a new canary begins with %v", x.Canary)
		}
		for range 4 {
			c.wait(c.trigger("j", ""))
		}
		if x := c.getAlias(); x.Canary != nil {
			t.Errorf("four failures in a moment: %v", x.Canary)
		}
	})
}

func TestAliasRefusals(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		c.pushVersions("1", "2")
		ctx := t.Context()
		c.alias(&apiv1.SetAliasRequest{Version: "1"})
		if err := c.applyTo("n@prod", &apiv1.Job{Name: "j"}); err != nil {
			t.Fatal(err)
		}
		canary := func(v string) *apiv1.Canary { return &apiv1.Canary{Version: v, Percent: 10} }
		for _, tt := range []struct {
			req  *apiv1.SetAliasRequest
			code codes.Code
			want string
		}{
			{&apiv1.SetAliasRequest{Module: "n", Name: "prod"}, codes.InvalidArgument, "nothing to do"},
			{&apiv1.SetAliasRequest{Module: "n", Name: "prod", Version: "3"}, codes.FailedPrecondition, "there is no module n@3"},
			{&apiv1.SetAliasRequest{Module: "n", Name: "prod", Version: "../1"}, codes.InvalidArgument, "is not a name"},
			{&apiv1.SetAliasRequest{Module: "n", Name: "", Version: "1"}, codes.InvalidArgument, "alias is missing"},
			{&apiv1.SetAliasRequest{Module: "n", Name: "2", Version: "1"}, codes.AlreadyExists, "n@2 is a version"},
			{&apiv1.SetAliasRequest{Module: "n", Name: "test", Version: "prod"}, codes.InvalidArgument, "n@prod is an alias"},
			{&apiv1.SetAliasRequest{Module: "n", Name: "test", EndCanary: true}, codes.NotFound, "there is no alias n@test"},
			{&apiv1.SetAliasRequest{Module: "n", Name: "prod", Canary: canary("1")}, codes.InvalidArgument, "points at already"},
			{&apiv1.SetAliasRequest{Module: "n", Name: "prod", Canary: canary("9")}, codes.FailedPrecondition, "no module n@9"},
			{&apiv1.SetAliasRequest{Module: "n", Name: "prod", Canary: &apiv1.Canary{Version: "2", Percent: 100}}, codes.InvalidArgument, "canary.percent"},
			{&apiv1.SetAliasRequest{Module: "n", Name: "prod", Canary: canary("2"), EndCanary: true}, codes.InvalidArgument, "choose one"},
		} {
			_, err := c.modules.SetAlias(ctx, tt.req)
			if status.Code(err) != tt.code || !strings.Contains(status.Convert(err).Message(), tt.want) {
				t.Errorf("%v: %v, want %s with %q", tt.req, err, tt.code, tt.want)
			}
		}
		if _, err := c.tryPush(&apiv1.PushModuleRequest_Head{Name: "n", Version: "prod"}, codeOf("x")); status.Code(err) != codes.AlreadyExists {
			t.Errorf("a version with the name of an alias: %v", err)
		}
		if _, err := c.modules.DeleteAlias(ctx, &apiv1.DeleteAliasRequest{Module: "n", Name: "prod"}); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "alias n@prod is named by job j") {
			t.Errorf("an alias that a job names is deleted: %v", err)
		}
		if _, err := c.jobs.ApplyJob(ctx, &apiv1.ApplyJobRequest{Job: &apiv1.Job{Name: "k", Handler: &apiv1.Handler{Module: "n@prod", Name: "other"}}}); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), `no handler "other"`) {
			t.Errorf("a handler that the alias's version does not have: %v", err)
		}
		if _, err := c.jobs.DeleteJob(ctx, &apiv1.DeleteJobRequest{Name: "j"}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.modules.DeleteAlias(ctx, &apiv1.DeleteAliasRequest{Module: "n", Name: "prod"}); err != nil {
			t.Fatal(err)
		}
		w.stopServer()
		w.start()
		c.reconnect(w)
		if resp, err := c.modules.ListAliases(ctx, &apiv1.ListAliasesRequest{}); err != nil || len(resp.Aliases) != 0 {
			t.Errorf("a deleted alias after a restart: %v, %v", resp, err)
		}
	})
}

// TestRunOfAModuleThatIsCompiled checks that a run whose host still compiles its module
// is dispatched and not started, that its explanation says so, and that its deadline
// holds until the handler starts.
func TestRunOfAModuleThatIsCompiled(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		w.removeHost("h1")
		h := w.addCompiling("h", nil)
		h.load = func(string) error { time.Sleep(5 * time.Second); return nil }
		c.pushVersions("1", "2")
		for version, deadline := range map[string]string{"1": "", "2": "4s"} {
			if err := c.applyTo("n@"+version, &apiv1.Job{Name: "j" + version, Deadline: deadline}); err != nil {
				t.Fatal(err)
			}
		}
		begin := time.Now()
		early, late := c.trigger("j1", ""), c.trigger("j2", "")
		time.Sleep(2 * time.Second)
		why, err := c.runs.ExplainRun(t.Context(), &apiv1.ExplainRunRequest{Id: early})
		if err != nil || why.State != "dispatched" || !strings.Contains(why.Why, "compiles its module") {
			t.Errorf("explained as %v: %v", why, err)
		}
		if r := c.wait(early); r.State != "succeeded" || r.StartedAt.AsTime().Sub(begin).Round(time.Second) != 5*time.Second {
			t.Errorf("started %v after it was triggered: %v", r.StartedAt.AsTime().Sub(begin), r)
		}
		if r := c.wait(late); r.State != "missed" || r.Code != "deadline" || r.StartedAt != nil {
			t.Errorf("with a deadline of four seconds: %v", r)
		}
	})
}

// compiler is an engine whose Load function the test supplies.
type compiler struct {
	handlers
	mu    sync.Mutex
	have  map[string]bool
	load  func(digest string) error
	loads int
}

func (e *compiler) Load(_ context.Context, digest string, _ []byte) error {
	e.mu.Lock()
	e.loads++
	load := e.load
	e.mu.Unlock()
	if load != nil {
		if err := load(digest); err != nil {
			return err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.have[digest] = true
	return nil
}

func (e *compiler) Loaded(digest string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.have[digest]
}

// addCompiling starts a host with its own compiler engine.
func (w *world) addCompiling(id string, change func(*host.Config)) *compiler {
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
	e := &compiler{handlers: handlers{byJob: map[string]handler{}}, have: map[string]bool{}}
	cfg := host.Config{
		ID: id, Slots: 2, Engine: e, Modules: mods, Spool: spool, DrainTimeout: time.Second,
		Connect: func(context.Context) (grpc.ClientConnInterface, io.Closer, error) {
			conn, err := w.dial()
			return conn, conn, err
		},
	}
	if change != nil {
		change(&cfg)
	}
	h, err := host.New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
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
	w.hosts[id] = &simHost{stop: func() { cancel(); <-done }}
	return e
}

func (c *client) rollout(version string) (string, *apiv1.Rollout) {
	c.t.Helper()
	synctest.Wait()
	r, err := c.modules.GetRollout(context.Background(), &apiv1.GetRolloutRequest{Name: "n", Version: version})
	if err != nil {
		c.t.Fatal(err)
	}
	var all []string
	for _, h := range r.ByHost {
		all = append(all, h.Name+" "+h.State)
	}
	return fmt.Sprintf("%d/%d %v %s", r.Ready, r.Hosts, r.Complete, strings.Join(all, ", ")), r
}

// TestRollout follows the rollout of versions over hosts: one host fails to compile at
// first, and one joins later.
func TestRollout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		defer w.close()
		c := w.client()
		defer c.close()
		want := func(version, state string) {
			t.Helper()
			if got, _ := c.rollout(version); got != state {
				t.Errorf("%s: %s, want %s", version, got, state)
			}
		}
		c.pushVersions("1")
		want("1", "0/0 false ")
		slow := make(chan struct{})
		a, b := w.addCompiling("a", nil), w.addCompiling("b", nil)
		b.load = func(string) error { <-slow; return errors.New("no memory") }
		synctest.Wait()
		want("1", "0/2 false a pending, b pending") // no alias needs the version yet
		c.alias(&apiv1.SetAliasRequest{Version: "1"})
		want("prod", "1/2 false a ready, b compiling")
		if _, err := c.modules.SetAlias(t.Context(), &apiv1.SetAliasRequest{Module: "n", Name: "test", Version: "1", WhenReady: true}); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "ready on 1 of 2 hosts") {
			t.Errorf("an alias that waits for what is not ready: %v", err)
		}
		close(slow)
		want("latest", "1/2 false a ready, b failed")
		if _, r := c.rollout("1"); !strings.Contains(r.ByHost[1].Error, "no memory") {
			t.Errorf("host b failed because %q", r.ByHost[1].Error)
		}
		b.mu.Lock()
		b.load = nil
		b.mu.Unlock()
		time.Sleep(time.Second) // otherwise both versions have the same creation time
		c.pushVersions("2")
		want("latest", "2/2 true a ready, b ready")
		c.alias(&apiv1.SetAliasRequest{Version: "2", WhenReady: true})
		w.addCompiling("c", nil) // a host that joins loads the versions that aliases point at
		want("2", "3/3 true a ready, b ready, c ready")
		want("1", "1/3 false a ready, b failed, c pending")
		w.stopServer() // the hosts report their modules again to the new server
		w.start()
		c.reconnect(w)
		time.Sleep(5 * time.Second)
		want("2", "3/3 true a ready, b ready, c ready")
		w.removeHost("c")
		want("2", "2/2 true a ready, b ready")
		if a.loads != 2 {
			t.Errorf("host a compiled %d times, want twice", a.loads)
		}
		w.removeHost("a") // a restarted host has no compiled modules
		w.addCompiling("a", nil)
		want("1", "0/2 false a pending, b failed")
		w.addCompiling("native", func(cfg *host.Config) { cfg.ABI = []string{"native:settle"} }) // this host executes no modules
		want("2", "2/2 true a ready, b ready")
		if _, err := c.modules.GetRollout(t.Context(), &apiv1.GetRolloutRequest{Name: "n", Version: "9"}); status.Code(err) != codes.NotFound {
			t.Errorf("a version that is not there: %v", err)
		}
	})
}

func keyPair(t *testing.T) (ed25519.PrivateKey, string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return private, modules.KeyText(public)
}

func signed(t *testing.T, key ed25519.PrivateKey, code []byte) *apiv1.Signature {
	t.Helper()
	s, err := modules.Sign(key, modules.Digest(code))
	if err != nil {
		t.Fatal(err)
	}
	return &apiv1.Signature{Key: s.Key, Signature: s.Signature}
}

// TestRequireSigned checks that unsigned modules are refused at each step: the push, the
// job, the alias, and the host, which verifies signatures itself.
func TestRequireSigned(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		ctx := t.Context()
		apps := apiv1.NewAppsClient(c.conn)
		ours, ourKey := keyPair(t)
		theirs, _ := keyPair(t)
		setApp := func(required bool, keys ...string) error {
			_, err := apps.PutApp(ctx, &apiv1.PutAppRequest{App: &apiv1.App{Name: "default", RequireSigned: required, TrustedKeys: keys}})
			return err
		}
		refused := func(what string, err error, want string) {
			t.Helper()
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", what, err, want)
			}
		}
		c.pushVersions("1", "2")
		if err := c.applyTo("n@1", &apiv1.Job{Name: "j"}); err != nil {
			t.Fatal(err)
		}
		if r := c.wait(c.trigger("j", "")); r.State != "succeeded" {
			t.Fatalf("before anything is required: %s", r.State)
		}
		refused("no keys", setApp(true), "would refuse every module")
		refused("a wrong key", setApp(false, "ed25519:AAAA"), "is not a public key")
		if err := setApp(true, ourKey); err != nil {
			t.Fatal(err)
		}
		// The host has compiled the module, but no longer runs it.
		if r := c.wait(c.trigger("j", "")); r.State != "failed" || r.Code != "not_signed" || !strings.Contains(r.Error, "not signed by a key") {
			t.Errorf("an unsigned module: %s, %s: %s", r.State, r.Code, r.Error)
		}
		refused("a job", c.applyTo("n@2", &apiv1.Job{Name: "k"}), "wheelwork module sign")
		_, err := c.modules.SetAlias(ctx, &apiv1.SetAliasRequest{Module: "n", Name: "prod", Version: "2"})
		refused("an alias", err, "wheelwork module sign")
		head := func(v string, s ...*apiv1.Signature) *apiv1.PushModuleRequest_Head {
			return &apiv1.PushModuleRequest_Head{Name: "n", Version: v, Signatures: s}
		}
		_, err = c.tryPush(head("3"), codeOf("3"))
		refused("a push without", err, "has none")
		_, err = c.tryPush(head("3", signed(t, theirs, codeOf("3"))), codeOf("3"))
		refused("a push with a stranger's", err, "has none")
		_, err = c.tryPush(head("3", signed(t, ours, codeOf("2"))), codeOf("3"))
		refused("a push with a signature of other bytes", err, "is not one of these bytes")
		_, err = c.tryPush(head("3", slices.Repeat([]*apiv1.Signature{signed(t, ours, codeOf("3"))}, 17)...), codeOf("3"))
		refused("a push with too many", err, "the limit is 16")
		if files, err := filepath.Glob(filepath.Join(w.dir, "modules", "sha256", "*", "*")); err != nil || len(files) != 3 {
			t.Errorf("what was refused was kept: %d files, %v", len(files), err)
		}
		resp, err := c.tryPush(head("3", signed(t, theirs, codeOf("3")), signed(t, ours, codeOf("3"))), codeOf("3"))
		if err != nil || len(resp.Module.Signatures) != 2 || resp.Module.Signatures[1].AddedAt == nil {
			t.Fatalf("a push with ours: %v, %v", resp, err)
		}
		if err := c.applyTo("n@3", &apiv1.Job{Name: "k"}); err != nil {
			t.Fatal(err)
		}
		if r := c.wait(c.trigger("k", "")); r.State != "succeeded" {
			t.Errorf("a signed module: %s: %s", r.State, r.Error)
		}
		// A signature can be added to a version that was pushed before.
		sign := func(s *apiv1.Signature) (*apiv1.Module, error) {
			return c.modules.SignModule(ctx, &apiv1.SignModuleRequest{Name: "n", Version: "1", Signature: s})
		}
		_, err = sign(signed(t, ours, codeOf("2")))
		refused("signing with a signature of other bytes", err, "is not one of these bytes")
		for range 2 {
			if m, err := sign(signed(t, ours, codeOf("1"))); err != nil || len(m.Signatures) != 1 {
				t.Fatalf("signed: %v, %v", m, err)
			}
		}
		if r := c.wait(c.trigger("j", "")); r.State != "succeeded" {
			t.Errorf("after it was signed: %s: %s", r.State, r.Error)
		}
		// The trusted keys of the app change, so earlier verifications in the host no
		// longer count.
		_, otherKey := keyPair(t)
		if err := setApp(true, otherKey); err != nil {
			t.Fatal(err)
		}
		if r := c.wait(c.trigger("k", "")); r.Code != "not_signed" {
			t.Errorf("signed by a key that is not trusted any more: %s, %s", r.State, r.Code)
		}
		if err := setApp(false); err != nil {
			t.Fatal(err)
		}
		if r := c.wait(c.trigger("k", "")); r.State != "succeeded" {
			t.Errorf("when nothing is required any more: %s: %s", r.State, r.Error)
		}
	})
}

// TestHostTrustsItsOperator runs a host that has its own trusted keys.
func TestHostTrustsItsOperator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		defer w.close()
		c := w.client()
		defer c.close()
		ours, ourKey := keyPair(t)
		e := w.addCompiling("h", func(cfg *host.Config) { cfg.TrustedKeys = []string{ourKey} })
		c.pushVersions("1")
		if err := c.applyTo("n@1", &apiv1.Job{Name: "j"}); err != nil {
			t.Fatal(err)
		}
		if r := c.wait(c.trigger("j", "")); r.Code != "not_signed" || !strings.Contains(r.Error, "operator") {
			t.Errorf("an unsigned module: %s, %s: %s", r.State, r.Code, r.Error)
		}
		if e.loads != 0 {
			t.Error("an unsigned module was compiled")
		}
		if _, err := c.modules.SignModule(t.Context(), &apiv1.SignModuleRequest{Name: "n", Version: "1", Signature: signed(t, ours, codeOf("1"))}); err != nil {
			t.Fatal(err)
		}
		if r := c.wait(c.trigger("j", "")); r.State != "succeeded" {
			t.Errorf("a signed module: %s: %s", r.State, r.Error)
		}
	})
}

// TestCollect checks that a collection removes exactly the versions without references.
func TestCollect(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		ctx := t.Context()
		c.pushVersions("free", "job", "before", "alias", "canary", "live", "twin", "shared")
		if _, err := c.tryPush(&apiv1.PushModuleRequest_Head{Name: "other", Version: "1"}, codeOf("shared")); err != nil {
			t.Fatal(err)
		}
		if _, err := c.tryPush(&apiv1.PushModuleRequest_Head{App: "shop", Name: "n", Version: "1"}, codeOf("twin")); err != nil {
			t.Fatal(err)
		}
		for module, name := range map[string]string{"n@job": "a", "other@1": "b", "n@live": "gone"} {
			if err := c.applyTo(module, &apiv1.Job{Name: name, Timeout: "24h"}); err != nil {
				t.Fatal(err)
			}
		}
		c.alias(&apiv1.SetAliasRequest{Version: "before"})
		c.alias(&apiv1.SetAliasRequest{Version: "alias", Canary: &apiv1.Canary{Version: "canary", Percent: 1}})
		w.executed("gone", sleeping(24*time.Hour))
		run := c.trigger("gone", "")
		if _, err := c.jobs.DeleteJob(ctx, &apiv1.DeleteJobRequest{Name: "gone"}); err != nil { // its live run continues
			t.Fatal(err)
		}
		collect := func(dry bool, older string) ([]string, *apiv1.CollectModulesResponse) {
			t.Helper()
			resp, err := c.modules.CollectModules(ctx, &apiv1.CollectModulesRequest{DryRun: dry, OlderThan: older})
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, m := range resp.Collected {
				names = append(names, m.Name+"@"+m.Version)
			}
			slices.Sort(names)
			return names, resp
		}
		has := func(v string) bool {
			d := strings.TrimPrefix(modules.Digest(codeOf(v)), "sha256:")
			_, err := os.Stat(filepath.Join(w.dir, "modules", "sha256", d[:2], d))
			return err == nil
		}
		if got, _ := collect(false, ""); len(got) != 0 {
			t.Errorf("just pushed, and collected: %q", got)
		}
		time.Sleep(2 * time.Hour)
		want := []string{"m@1", "n@free"} // simulate pushes m@1, which no job uses
		got, resp := collect(true, "1h")
		if !slices.Equal(got, want) || resp.Bytes != int64(len(codeOf("free"))) || !has("free") {
			t.Errorf("would collect %q, %d bytes; the bytes are still there: %v", got, resp.Bytes, has("free"))
		}
		if m, err := c.modules.GetModule(ctx, &apiv1.GetModuleRequest{Name: "n", Version: "free"}); err != nil || m.CollectedAt != nil {
			t.Errorf("after a dry run: %v, %v", m, err)
		}
		got, resp = collect(false, "1h")
		if !slices.Equal(got, want) || resp.Kept != 8 || resp.Orphans != 0 || has("free") {
			t.Errorf("collected %q, kept %d, %d orphans; the bytes are gone: %v", got, resp.Kept, resp.Orphans, !has("free"))
		}
		for _, v := range []string{"job", "before", "alias", "canary", "live", "twin", "shared"} {
			if !has(v) {
				t.Errorf("the bytes of n@%s are gone", v)
			}
		}
		if again, _ := collect(false, "1h"); len(again) != 0 {
			t.Errorf("collected twice: %q", again)
		}
		w.stopServer()
		w.start()
		c.reconnect(w)
		m, err := c.modules.GetModule(ctx, &apiv1.GetModuleRequest{Name: "n", Version: "free"})
		if err != nil || m.CollectedAt == nil || m.InputSchemas["sum"] != `{"type":"object"}` {
			t.Fatalf("the version after a restart: %v, %v", m, err)
		}
		if err := c.applyTo("n@free", &apiv1.Job{Name: "z"}); err == nil || !strings.Contains(err.Error(), "push the same bytes again") {
			t.Errorf("a job that names it: %v", err)
		}
		down, err := c.modules.DownloadModule(ctx, &apiv1.DownloadModuleRequest{Name: "n", Version: "free"})
		if err == nil {
			_, err = down.Recv()
		}
		if status.Code(err) != codes.FailedPrecondition {
			t.Errorf("a download of it: %v", err)
		}
		if _, err := c.tryPush(&apiv1.PushModuleRequest_Head{Name: "n", Version: "free"}, codeOf("else")); status.Code(err) != codes.AlreadyExists {
			t.Errorf("other bytes under its name: %v", err)
		}
		back, err := c.tryPush(&apiv1.PushModuleRequest_Head{Name: "n", Version: "free"}, codeOf("free"))
		if err != nil || back.Result != "restored" || !has("free") {
			t.Fatalf("pushed again: %v, %v", back, err)
		}
		if err := c.applyTo("n@free", &apiv1.Job{Name: "z"}); err != nil {
			t.Errorf("a job that names it now: %v", err)
		}
		// Orphans are files that belong to no version, for example those of refused and
		// broken uploads.
		c.tryPush(&apiv1.PushModuleRequest_Head{Name: "n", Version: "free"}, codeOf("stray")) //nolint:errcheck // refused before it is kept
		if has("stray") {
			t.Error("a refused upload was kept")
		}
		store, err := modules.Open(filepath.Join(w.dir, "modules"))
		if err != nil {
			t.Fatal(err)
		}
		d, err := store.Put(codeOf("stray"))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(w.dir, "modules", "sha256", d[7:9], d[7:])
		if err := os.Chtimes(path, time.Now(), time.Now()); err != nil { // file times are real; give the file the fake time of this moment
			t.Fatal(err)
		}
		if _, resp := collect(false, "1h"); resp.Orphans != 0 || !has("stray") {
			t.Errorf("%d orphans of a moment ago, still there: %v", resp.Orphans, has("stray"))
		}
		if err := os.Chtimes(path, time.Now(), time.Now().Add(-48*time.Hour)); err != nil {
			t.Fatal(err)
		}
		if _, resp := collect(false, "1h"); resp.Orphans != 1 || has("stray") {
			t.Errorf("%d orphans of two days ago, still there: %v", resp.Orphans, has("stray"))
		}
		if _, err := c.runs.CancelRun(ctx, &apiv1.CancelRunRequest{Id: run}); err != nil {
			t.Fatal(err)
		}
		c.wait(run)
		if got, _ := collect(false, "1h"); !slices.Equal(got, []string{"n@live"}) {
			t.Errorf("when the last run has ended: %q", got)
		}
	})
}

// TestCollectBesideUploads checks that a collection does not remove the bytes of an
// upload that runs at the same time.
func TestCollectBesideUploads(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		for round := range 40 {
			time.Sleep(time.Second)
			var wg sync.WaitGroup
			wg.Go(func() {
				if _, err := c.modules.CollectModules(context.Background(), &apiv1.CollectModulesRequest{OlderThan: "1ns"}); err != nil {
					t.Error(err)
				}
			})
			wg.Go(func() {
				if _, err := c.tryPush(&apiv1.PushModuleRequest_Head{Name: "n", Version: "1"}, codeOf("1")); err != nil {
					t.Error(err)
				}
			})
			wg.Wait()
			m, err := c.modules.GetModule(context.Background(), &apiv1.GetModuleRequest{Name: "n", Version: "1"})
			if err != nil {
				t.Fatal(err)
			}
			_, err = os.Stat(filepath.Join(w.dir, "modules", "sha256", m.Digest[7:9], m.Digest[7:]))
			if (m.CollectedAt == nil) != (err == nil) {
				t.Fatalf("round %d: collected at %v, and the bytes: %v", round, m.CollectedAt, err)
			}
		}
	})
}

// TestCollectKeepsInterpreters checks that an interpreter is retained as long as a script
// that names it.
func TestCollectKeepsInterpreters(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		c.pushVersions("interpreter")
		if _, err := c.tryPush(&apiv1.PushModuleRequest_Head{Name: "script", Version: "1"}, []byte("script for "+modules.Digest(codeOf("interpreter")))); err != nil {
			t.Fatal(err)
		}
		if err := c.applyTo("script@1", &apiv1.Job{Name: "j"}); err != nil {
			t.Fatal(err)
		}
		collected := func() (names []string) {
			time.Sleep(time.Minute)
			resp, err := c.modules.CollectModules(t.Context(), &apiv1.CollectModulesRequest{OlderThan: "1s"})
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range resp.Collected {
				names = append(names, m.Name+"@"+m.Version)
			}
			return names
		}
		if got := collected(); !slices.Equal(got, []string{"m@1"}) { // simulate pushes m@1
			t.Errorf("with a script that a job names: %q", got)
		}
		if _, err := c.jobs.DeleteJob(t.Context(), &apiv1.DeleteJobRequest{Name: "j"}); err != nil {
			t.Fatal(err)
		}
		if got := collected(); !slices.Equal(got, []string{"n@interpreter", "script@1"}) {
			t.Errorf("without: %q", got)
		}
		push := func() error {
			_, err := c.tryPush(&apiv1.PushModuleRequest_Head{App: "other", Name: "script", Version: "2"}, []byte("script for "+modules.Digest(codeOf("interpreter"))))
			return err
		}
		if err := push(); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "does not have the interpreter") || !strings.Contains(err.Error(), "fetch it so") {
			t.Errorf("a script whose interpreter was collected: %v", err)
		}
		c.pushVersions("interpreter") // in another app; hosts identify code by its digest only
		dry := &apiv1.PushModuleRequest_Head{App: "other", Name: "script", Version: "2", DryRun: true}
		if resp, err := c.tryPush(dry, []byte("script for "+modules.Digest(codeOf("interpreter")))); err != nil || resp.Result != "checked" {
			t.Errorf("a dry run: %v, %v", resp, err)
		}
		if _, err := c.modules.GetModule(t.Context(), &apiv1.GetModuleRequest{App: "other", Name: "script", Version: "2"}); status.Code(err) != codes.NotFound {
			t.Errorf("a dry run stored the version: %v", err)
		}
		if err := push(); err != nil {
			t.Errorf("a script whose interpreter is there again: %v", err)
		}
		if _, err := c.tryPush(dry, []byte("script for other sources of "+modules.Digest(codeOf("interpreter")))); status.Code(err) != codes.AlreadyExists {
			t.Errorf("a dry run of other bytes: %v", err)
		}
		w.badScript = errors.New("module refused: main.js:1:2: SyntaxError")
		if err := push(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "main.js:1:2") {
			t.Errorf("a script with an error of syntax: %v", err)
		}
		if _, err := c.tryPush(dry, []byte("script for "+modules.Digest(codeOf("interpreter")))); status.Code(err) != codes.InvalidArgument {
			t.Errorf("a dry run of a script with an error of syntax: %v", err)
		}
	})
}
