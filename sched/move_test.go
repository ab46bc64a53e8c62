package sched_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/memconn"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/journal"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/sched"
	"github.com/wheelworkhq/wheelwork/sched/api"
	"github.com/wheelworkhq/wheelwork/store"
)

// member is a server of a cluster, with its own disk and with a journal in etcd that it
// must own. Hosts of the world connect to the member that started last.
type member struct {
	id      string
	cluster *etcd.Cluster
	journal *etcd.Journal
	lis     *memconn.Listener
	failed  chan error // the result of Run
	stop    func()     // orderly shutdown, which releases the journal
}

// etcdFor starts an etcd for a test and returns its client URL.
func etcdFor(t *testing.T) string {
	t.Helper()
	client := "http://" + testkit.FreeAddress(t)
	m, err := etcd.Start(t.Context(), etcd.MemberConfig{
		Name: "one", Dir: t.TempDir(), Client: client, Peer: "http://" + testkit.FreeAddress(t), NoSync: true,
		Heartbeat: 20 * time.Millisecond, Election: 200 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() }) //nolint:errcheck // a test's
	return client
}

// join starts a member on an empty disk. It takes over the journal as soon as that is
// free.
func (w *world) join(id, etcdURL string) *member {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := etcd.Connect(ctx, etcd.Config{Endpoints: []string{etcdURL}, Server: id, Address: id + ":1"})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := c.Free(ctx, "default.0"); err != nil {
		w.t.Fatal(err)
	}
	j, err := c.Own(ctx, "default.0")
	if err != nil {
		w.t.Fatal(err)
	}
	st, err := store.Open(store.Config{Dir: filepath.Join(w.dir, id, "store"), SegmentBytes: 1 << 20})
	if err != nil {
		w.t.Fatal(err)
	}
	mods, err := modules.Open(filepath.Join(w.dir, id, "modules"))
	if err != nil {
		w.t.Fatal(err)
	}
	srv, err := sched.New(sched.Config{
		ID: id, Epoch: j.Epoch(), Journal: j, Store: st, Modules: mods,
		Inspect: func(_ context.Context, code *modules.Upload, _ string) (api.ModuleInfo, error) {
			digest, err := code.Digest()
			return api.ModuleInfo{Digest: digest, Kind: "reactor", Handlers: []string{"main"}}, err
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	g := grpc.NewServer()
	srv.Register(g)
	m := &member{id: id, cluster: c, journal: j, lis: memconn.Listen(1 << 20), failed: make(chan error, 1)}
	run, end := context.WithCancel(context.Background())
	go func() { m.failed <- srv.Run(run) }()
	go g.Serve(m.lis) //nolint:errcheck // ends with Stop
	w.mu.Lock()
	w.listen = m.lis
	w.mu.Unlock()
	stopped := false
	m.stop = func() {
		if stopped {
			return
		}
		stopped = true
		end()
		g.Stop()
		m.failed <- <-m.failed
		if err := errors.Join(st.Close(), c.Close()); err != nil {
			w.t.Error(err)
		}
	}
	w.t.Cleanup(m.stop)
	return m
}

// through returns the API of a member, even if another member started last.
func (w *world) through(m *member) *client {
	w.t.Helper()
	w.mu.Lock()
	last := w.listen
	w.listen = m.lis
	w.mu.Unlock()
	c := w.client()
	w.mu.Lock()
	w.listen = last
	w.mu.Unlock()
	w.t.Cleanup(c.close)
	return c
}

// gate returns a handler that signals its start on began and waits until open is closed.
func gate() (h handler, began chan struct{}, open chan struct{}) {
	began, open = make(chan struct{}, 100), make(chan struct{})
	return func(ctx context.Context, t runtime.Task, _ runtime.Sink) runtime.Result {
		began <- struct{}{}
		select {
		case <-open:
			return runtime.Result{Outcome: runtime.Succeeded, Output: t.Input}
		case <-ctx.Done():
			return runtime.Result{Outcome: runtime.Stopped, Error: "stopped"}
		}
	}, began, open
}

// TestPlannedMove checks a planned move: a server gives up its partition, and another one
// with an empty disk takes over with the whole state, adopts the running run and
// schedules further runs.
func TestPlannedMove(t *testing.T) {
	w := newWorld(t)
	url := etcdFor(t)
	a := w.join("a", url)
	w.addHost("h1", 8)
	defer w.removeHost("h1")
	ca := w.through(a)
	ca.push()
	slow, began, open := gate()
	w.handlers.byJob["slow"] = slow
	ca.apply(&apiv1.Job{Name: "quick", Input: "q"})
	ca.apply(&apiv1.Job{Name: "slow", Input: "s"})
	before := ca.wait(ca.trigger("quick", "k1"))
	under := ca.trigger("slow", "k2")
	<-began

	start := time.Now()
	a.stop()
	if err := <-a.failed; err != nil {
		t.Fatalf("the first server: %v", err)
	}
	b := w.join("b", url)
	cb := w.through(b)
	if got, err := cb.runs.GetRun(t.Context(), &apiv1.GetRunRequest{Id: before.Id}); err != nil || got.State != "succeeded" || got.Output != "q" {
		t.Fatalf("a run from before the move: %v, %v", got, err)
	}
	if id := cb.trigger("quick", "k1"); id != before.Id {
		t.Errorf("the key of the run %s gave %s", before.Id, id)
	}
	after := cb.wait(cb.trigger("quick", "k3"))
	t.Logf("from giving up to a run's end on the other server: %v", time.Since(start).Round(time.Millisecond))
	if after.State != "succeeded" {
		t.Fatalf("a run after the move: %v", after)
	}
	close(open)
	if r := cb.wait(under); r.State != "succeeded" || r.Attempt != 1 || r.Output != "s" {
		t.Fatalf("the run that was under way: %v", r)
	}
	for job, want := range map[string]int{"quick": 2, "slow": 1} {
		if got := w.handlers.of(job); len(got) != want {
			t.Errorf("%s was executed %d times, want %d", job, len(got), want)
		}
	}
	if b.journal.Epoch() <= a.journal.Epoch() {
		t.Errorf("epoch %d after %d", b.journal.Epoch(), a.journal.Epoch())
	}
}

// TestStoppedOwner checks that an owner which lost its lease without noticing, like a
// process that was stopped for a while, makes nothing durable after the take-over, and
// ends.
func TestStoppedOwner(t *testing.T) {
	w := newWorld(t)
	url := etcdFor(t)
	a := w.join("a", url)
	w.addHost("h1", 8)
	defer w.removeHost("h1")
	ca := w.through(a)
	ca.push()
	slow, began, open := gate()
	w.handlers.byJob["slow"] = slow
	ca.apply(&apiv1.Job{Name: "slow", Input: "s", Overlap: &apiv1.Overlap{Policy: "parallel"}})
	var acked []string
	for i := range 20 {
		acked = append(acked, ca.trigger("slow", fmt.Sprint("k", i)))
	}
	for range 8 {
		<-began
	}

	// Depose does what etcd does when the lease expires.
	thief, err := etcd.Connect(t.Context(), etcd.Config{Endpoints: []string{url}, Server: "thief"})
	if err != nil {
		t.Fatal(err)
	}
	defer thief.Close() //nolint:errcheck // a test's
	if err := thief.Depose(t.Context(), "default.0"); err != nil {
		t.Fatal(err)
	}
	b := w.join("b", url)
	if _, err := ca.jobs.TriggerJob(t.Context(), &apiv1.TriggerJobRequest{Name: "slow", Input: proto.String("late"), IdempotencyKey: "late"}); status.Code(err) != codes.Unavailable {
		t.Fatalf("the first server took a command: %v", err)
	}
	if err := <-a.failed; err == nil || !strings.Contains(err.Error(), journal.ErrFenced.Error()) {
		t.Fatalf("the first server ended with %v", err)
	}
	a.failed <- nil
	a.stop() // its streams end, and the host connects to the other server
	close(open)
	cb := w.through(b)
	for _, id := range acked {
		if r := cb.wait(id); r.State != "succeeded" || r.Attempt != 1 {
			t.Errorf("%v", r)
		}
	}
	ran := map[string]int{}
	for _, c := range w.handlers.of("slow") {
		ran[c.run]++
	}
	for id, n := range ran {
		if n != 1 || !slices.Contains(acked, id) {
			t.Errorf("%s was executed %d times", id, n)
		}
	}
	if len(ran) != len(acked) {
		t.Errorf("%d runs were executed, %d acknowledged", len(ran), len(acked))
	}
}

// TestListGoesOnElsewhere checks that page tokens stay valid after a planned move. The
// store of the new owner has the same runs in other blocks: no run may be missing, and no
// ended run may appear twice.
func TestListGoesOnElsewhere(t *testing.T) {
	w := newWorld(t)
	url := etcdFor(t)
	a := w.join("a", url)
	w.addHost("h1", 8)
	ca := w.through(a)
	ca.push()
	for _, job := range []string{"j", "other"} {
		ca.apply(&apiv1.Job{Name: job})
	}
	ended, live := map[string]bool{}, map[string]bool{}
	for i := range 30 {
		ended[ca.wait(ca.trigger("j", fmt.Sprint(i))).Id] = true
		if i%3 == 0 {
			ended[ca.wait(ca.trigger("other", fmt.Sprint(i))).Id] = true
		}
		if i%10 == 9 {
			ca.list(&apiv1.ListRunsRequest{}) // puts the runs into the store, in blocks that differ from those of the next owner
		}
	}
	w.removeHost("h1")
	for i := range 20 {
		live[ca.trigger("j", fmt.Sprint("live", i))] = true
	}
	// begun is a list after one page: the runs shown so far, and the token of the next
	// page.
	type begun struct {
		req   *apiv1.ListRunsRequest
		shown []*apiv1.Run
		token string
	}
	var all []begun
	for _, req := range []*apiv1.ListRunsRequest{{PageSize: 7}, {PageSize: 7, Job: "j"}, {PageSize: 7, Job: "other"}, {PageSize: 5, State: "succeeded"}} {
		var shown []*apiv1.Run
		for req := proto.CloneOf(req); ; {
			p := ca.list(req)
			if shown = append(shown, p.Runs...); p.NextPageToken == "" {
				break
			}
			req.PageToken = p.NextPageToken
			all = append(all, begun{req, slices.Clone(shown), p.NextPageToken})
		}
	}
	a.stop()
	cb := w.through(w.join("b", url))
	for _, x := range all {
		seen := map[string]int{}
		for _, r := range x.shown {
			seen[r.Id]++
		}
		req := proto.CloneOf(x.req)
		for req.PageToken = x.token; ; {
			p := cb.list(req)
			for _, r := range p.Runs {
				seen[r.Id]++
			}
			if p.NextPageToken == "" {
				break
			}
			req.PageToken = p.NextPageToken
		}
		want := map[string]bool{}
		for id := range ended {
			r, err := cb.runs.GetRun(t.Context(), &apiv1.GetRunRequest{Id: id})
			if err != nil {
				t.Fatal(err)
			}
			want[id] = req.Job == "" || r.Job == req.Job
		}
		for id := range live {
			want[id] = req.State == "" && req.Job != "other"
		}
		for id, is := range want {
			if n := seen[id]; is && n == 0 || !is && n > 0 || n > 1 && ended[id] {
				t.Errorf("%v, begun with %d runs: run %s (ended: %v) is there %d times", req, len(x.shown), id, ended[id], n)
			}
		}
	}
	if len(all) < 20 {
		t.Errorf("%d pages: the test shows nothing", len(all))
	}
	for _, token := range []string{"history.9.06GZSZRAA8556SNNMNMPPN9GX8.x", "history.9.x.x", "history.x", "live.x", "live.1.x", "live.x.1", "live.1.1.1", "odd.1.1"} {
		if _, err := cb.runs.ListRuns(t.Context(), &apiv1.ListRunsRequest{PageToken: token}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", token, err)
		}
	}
}

// list returns one page.
func (c *client) list(req *apiv1.ListRunsRequest) *apiv1.ListRunsResponse {
	c.t.Helper()
	p, err := c.runs.ListRuns(c.t.Context(), req)
	if err != nil {
		c.t.Fatal(err)
	}
	return p
}

// unreachable is a journal that refuses records while why is set.
type unreachable struct {
	journal.Journal
	why *atomic.Pointer[error]
}

func (u unreachable) Refuses() error {
	if p := u.why.Load(); p != nil {
		return *p
	}
	return nil
}

// TestJournalOutOfReach checks that calls are refused with the reason while the journal
// is out of reach, and accepted again afterwards.
func TestJournalOutOfReach(t *testing.T) {
	var why atomic.Pointer[error]
	w := newWorld(t)
	w.wrap = func(j journal.Journal) journal.Journal { return unreachable{j, &why} }
	w.start()
	w.addHost("h1", 4)
	c := w.client()
	c.push()
	c.apply(&apiv1.Job{Name: "j"})
	for _, tt := range []struct {
		err  error
		code codes.Code
	}{
		{errors.New("a majority is out of reach"), codes.Unavailable},
		{fmt.Errorf("%w: the quota is used up", journal.ErrFull), codes.ResourceExhausted},
	} {
		why.Store(&tt.err)
		_, err := c.jobs.TriggerJob(t.Context(), &apiv1.TriggerJobRequest{Name: "j"})
		if status.Code(err) != tt.code || !strings.Contains(err.Error(), tt.err.Error()) {
			t.Errorf("%v: %v", tt.err, err)
		}
	}
	why.Store(nil)
	if r := c.wait(c.trigger("j", "")); r.State != "succeeded" {
		t.Errorf("after that: %v", r)
	}
	c.close()
	w.close()
}

// outage is a journal that, while out is set, refuses records and does not report records
// as durable.
type outage struct {
	journal.Journal
	mu      sync.Mutex
	out     bool
	telling bool
	held    []func()
}

func (o *outage) Refuses() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.out {
		return errors.New("a majority is out of reach")
	}
	return nil
}

func (o *outage) Append(recs []journal.Record, done func(error)) (uint64, error) {
	return o.Journal.Append(recs, func(err error) {
		o.mu.Lock()
		o.held = append(o.held, func() { done(err) })
		o.mu.Unlock()
		o.tell()
	})
}

// tell reports the held records as durable, in their order.
func (o *outage) tell() {
	for {
		o.mu.Lock()
		if o.out || o.telling || len(o.held) == 0 {
			o.mu.Unlock()
			return
		}
		done := o.held[0]
		o.held, o.telling = o.held[1:], true
		o.mu.Unlock()
		done()
		o.mu.Lock()
		o.telling = false
		o.mu.Unlock()
	}
}

func (o *outage) set(out bool) {
	o.mu.Lock()
	o.out = out
	o.mu.Unlock()
	o.tell()
}

// TestArmedRunsFireInAnOutage checks that runs which were armed before the journal was
// out of reach start at their time, once. Commands are refused meanwhile. Later planned
// times wait for the journal and then follow the misfire policy of the job.
func TestArmedRunsFireInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var o *outage
		w.wrap = func(j journal.Journal) journal.Journal {
			o = &outage{Journal: j}
			return o
		}
		w.start()
		w.addHost("h1", 4)
		c := w.client()
		c.push()
		var mu sync.Mutex
		started := map[time.Time]int{} // keys are planned times
		late := map[time.Time]time.Duration{}
		w.handlers.byJob["tick"] = func(_ context.Context, task runtime.Task, _ runtime.Sink) runtime.Result {
			mu.Lock()
			defer mu.Unlock()
			started[task.PlannedAt]++
			late[task.PlannedAt] = time.Since(task.PlannedAt)
			return runtime.Result{Outcome: runtime.Succeeded}
		}
		c.apply(&apiv1.Job{Name: "tick", Schedule: &apiv1.Schedule{Every: "1s"}, Misfire: &apiv1.Misfire{Policy: "fire_all", Window: "1m"}})
		time.Sleep(5500 * time.Millisecond) // the run planned at 6 s was armed at 5 s
		begin := time.Now()
		o.set(true)
		time.Sleep(5 * time.Second)
		mu.Lock()
		armed := 0
		for at := range started {
			if at.After(begin) {
				armed++
				if late[at] > 100*time.Millisecond {
					t.Errorf("the run of %v was %v late in the outage", at, late[at])
				}
			}
		}
		mu.Unlock()
		if armed < 1 || armed > 3 {
			t.Errorf("%d runs were started in the outage; one to two seconds were armed", armed)
		}
		if _, err := c.jobs.TriggerJob(t.Context(), &apiv1.TriggerJobRequest{Name: "tick"}); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "majority") {
			t.Errorf("a trigger in the outage: %v", err)
		}
		o.set(false)
		time.Sleep(5 * time.Second)
		c.close()
		w.close()
		mu.Lock()
		defer mu.Unlock()
		first, last := time.Now(), time.Time{}
		for at, n := range started {
			if n != 1 {
				t.Errorf("the run of %v was started %d times", at, n)
			}
			if at.Before(first) {
				first = at
			}
			if at.After(last) {
				last = at
			}
		}
		if planned := int(last.Sub(first)/time.Second) + 1; planned != len(started) || planned < 13 {
			t.Errorf("%d of %d planned runs were started", len(started), planned)
		}
	})
}

// TestCatchUp checks that the store of a standby follows the journal, that the standby
// reports the modules whose code it lacks, and that it appends nothing, even while a run
// is due.
func TestCatchUp(t *testing.T) {
	w := newWorld(t)
	url := etcdFor(t)
	a := w.join("a", url)
	ca := w.through(a)
	ca.push()
	ca.apply(&apiv1.Job{Name: "j"})
	id := ca.trigger("j", "k") // there is no host, so it stays queued

	c, err := etcd.Connect(t.Context(), etcd.Config{Endpoints: []string{url}, Server: "b"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // a test's
	st, err := store.Open(store.Config{Dir: filepath.Join(w.dir, "b", "store"), SegmentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	mods, err := modules.Open(filepath.Join(w.dir, "b", "modules"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := sched.Config{
		ID: "b", Store: st, Modules: mods,
		Inspect: func(context.Context, *modules.Upload, string) (api.ModuleInfo, error) {
			return api.ModuleInfo{}, nil
		},
	}
	cfg.Journal = c.View(t.Context(), "default.0")
	standby, err := sched.Follow(cfg)
	if err != nil {
		t.Fatal(err)
	}
	catchUp := func() sched.CaughtUp {
		t.Helper()
		next := a.journal.Next()
		at, err := standby.CatchUp()
		if err != nil || at.Applied != next-1 || st.Applied() != next-1 || a.journal.Next() != next {
			t.Fatalf("%+v of %d records, the store is at %d, %v", at, next-1, st.Applied(), err)
		}
		return at
	}
	code := []byte{}
	if at := catchUp(); !slices.Equal(at.Missing, []string{modules.Digest(code)}) {
		t.Fatalf("missing: %v", at.Missing)
	}
	if _, err := mods.Put(code); err != nil {
		t.Fatal(err)
	}
	ca.apply(&apiv1.Job{Name: "j2"})
	for range 2 { // the second time there is nothing new
		if at := catchUp(); len(at.Missing) > 0 {
			t.Fatalf("missing: %v", at.Missing)
		}
	}
	if err := a.journal.Trim(st.Applied() + 1); err != nil { // the standby has all these records
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	a.stop()
	b := w.join("b", url)
	cb := w.through(b)
	w.addHost("h1", 1)
	defer w.removeHost("h1")
	if r := cb.wait(id); r.State != "succeeded" {
		t.Fatalf("the run that was waiting: %v", r)
	}
	if _, err := cb.jobs.GetJob(t.Context(), &apiv1.GetJobRequest{Name: "j2"}); err != nil {
		t.Fatal(err)
	}

	// A standby that is too far behind gets ErrTrimmed.
	empty, err := store.Open(store.Config{Dir: filepath.Join(w.dir, "c", "store"), SegmentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer empty.Close() //nolint:errcheck // a test's
	cfg.Store, cfg.Journal = empty, c.View(t.Context(), "default.0")
	if standby, err = sched.Follow(cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := standby.CatchUp(); !errors.Is(err, journal.ErrTrimmed) {
		t.Fatalf("from the beginning: %v", err)
	}
}
