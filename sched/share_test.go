package sched_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/journal"
	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/sched"
)

// two holds the servers of two partitions, each with its own journal, store and host. The
// hosts share their handlers, so their executions are recorded together.
type two struct {
	t    *testing.T
	u, v *world
	dies [2]*dying
}

// dying is a journal that fails after a number of appends, as if its process was killed.
type dying struct {
	journal.Journal
	left atomic.Int64 // appends until the failure; 0: it does not fail
}

var errKilled = errors.New("killed")

func (d *dying) Append(recs []journal.Record, done func(error)) (uint64, error) {
	if len(recs) > 0 && d.left.Load() > 0 && d.left.Add(-1) == 0 {
		d.left.Store(-1)
	}
	if d.left.Load() < 0 {
		return 0, errKilled
	}
	return d.Journal.Append(recs, done)
}

// other is the sched.Remote of one partition. It calls the server of the other one.
type other struct {
	to   func() *sched.Server
	copy func() error // copies the shared state of the app
}

func (o other) Run(ctx context.Context, app string, id job.RunID) (*apiv1.Run, error) {
	return o.to().Find(ctx, app, id)
}

func (o other) Get(ctx context.Context, app string, req *apiv1.GuestGetEntryRequest) (*apiv1.GuestGetEntryResponse, error) {
	return o.to().Entry(ctx, app, req)
}

func (o other) Put(ctx context.Context, app string, req *apiv1.GuestPutEntryRequest) (*apiv1.GuestPutEntryResponse, error) {
	return o.to().PutEntry(ctx, app, req)
}

func (o other) Delete(ctx context.Context, app string, req *apiv1.GuestDeleteEntryRequest) error {
	return o.to().DeleteEntry(ctx, app, req)
}

func (o other) Enqueue(ctx context.Context, from string, req *apiv1.GuestEnqueueRequest, trace string) (*apiv1.GuestEnqueueResponse, error) {
	return o.to().Enqueue(ctx, from, req, trace)
}

func (o other) CheckChanges(ctx context.Context, _ string, set *apiv1.ApplyChangeSetRequest) (*apiv1.ChangeSetCheck, error) {
	return o.to().CheckChanges(ctx, set)
}

func (o other) ApplyChanges(ctx context.Context, app string, share *apiv1.ChangeSetShare) error {
	return o.to().ApplyChanges(ctx, app, share)
}

func (o other) CopyState(context.Context, string) error {
	return o.copy()
}

func newTwo(t *testing.T) *two { return newTwoOf(t, func(*world) {}) }

func newTwoOf(t *testing.T, change func(*world)) *two {
	p := &two{t: t, u: newWorld(t), v: newWorld(t)}
	change(p.u)
	change(p.v)
	p.v.handlers = p.u.handlers
	for i, w := range []*world{p.u, p.v} {
		w.wrap = func(j journal.Journal) journal.Journal {
			p.dies[i] = &dying{Journal: j}
			return p.dies[i]
		}
	}
	p.u.remote = other{to: func() *sched.Server { return p.v.srv }, copy: p.copyState}
	p.v.remote = other{to: func() *sched.Server { return p.u.srv }}
	p.u.start()
	p.v.start()
	return p
}

// kill makes a server fail at its n-th append from now on while f runs, then starts it
// again.
func (p *two) kill(i, n int, f func()) {
	p.t.Helper()
	w := []*world{p.u, p.v}[i]
	p.dies[i].left.Store(int64(n))
	f()
	synctest.Wait()
	w.stopServer()
	if !errors.Is(w.failed, nil) && !strings.Contains(w.failed.Error(), errKilled.Error()) {
		p.t.Fatalf("the server ended: %v", w.failed)
	}
	w.start()
}

// CopyApp copies the app-wide state from the primary partition u to the partition v.
func (p *two) copyApp() {
	p.t.Helper()
	if err := p.copyState(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *two) copyState() error {
	st, err := p.u.srv.State(context.Background(), "default")
	if err != nil {
		return err
	}
	st.Home = "u"
	return p.v.srv.Copy(context.Background(), st)
}

// TestLateCopy checks that a copy from a former owner of the primary partition, or one
// that was delayed, does not overwrite a newer copy.
func TestLateCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		p := newTwo(t)
		defer func() { p.u.close(); p.v.close() }()
		conn := p.v.client().conn
		defer conn.Close() //nolint:errcheck // a test's connection
		copied := func(epoch, revision uint64, description string) error {
			return p.v.srv.Copy(ctx, &apiv1.AppState{
				App: "default", Home: "u", Epoch: epoch, Revision: revision,
				Settings: &apiv1.App{Name: "default", Description: description},
			})
		}
		for i, c := range []struct {
			epoch, revision uint64
			want            string // the description in the partition afterwards
		}{
			{3, 7, "0"},
			{3, 7, "1"}, // the same state again
			{3, 6, "1"},
			{2, 9, "1"}, // from a former owner
			{3, 8, "4"},
			{4, 1, "5"}, // from the next owner
			{3, 9, "5"},
			{0, 0, "7"}, // from a server that sends no epoch
			{4, 2, "8"},
		} {
			is := fmt.Sprint(i)
			if err := copied(c.epoch, c.revision, is); (err == nil) != (c.want == is) {
				t.Errorf("copy %d: %v", i, err)
			}
			a, err := apiv1.NewAppsClient(conn).GetApp(ctx, &apiv1.GetAppRequest{Name: "default"})
			if err != nil || a.Description != c.want {
				t.Errorf("after copy %d the partition has %q, want %q; %v", i, a.GetDescription(), c.want, err)
			}
		}
	})
}

// exported returns the items of a departing slot.
func exported(t *testing.T, s *sched.Server, slot uint8, move uint64) (items []*apiv1.SlotItem) {
	t.Helper()
	err := s.Export(context.Background(), "default", slot, move, func(more []*apiv1.SlotItem) error {
		items = append(items, more...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return items
}

const movedSlot = 5

var movedJob, keptJob = nameIn(movedSlot, "moved"), nameIn(movedSlot+1, "kept")

// TestSlotMoves moves a slot to another partition and back, once for each moment at which
// one of the servers is killed. Each planned time is executed once, a waiting run
// continues with its attempt number and checkpoint, an idempotency key identifies the
// same run, and ended runs are found.
func TestSlotMoves(t *testing.T) {
	for _, kill := range []string{"nobody", "u frozen", "v second", "v came", "u forgets"} {
		t.Run(kill, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { slotMoves(t, kill) })
		})
	}
}

func slotMoves(t *testing.T, kill string) {
	ctx := context.Background()
	p := newTwo(t)
	defer func() { p.u.close(); p.v.close() }()
	p.u.addHost("hu", 4)
	p.v.addHost("hv", 4)
	var fails atomic.Bool
	fails.Store(true)
	retry := nameIn(movedSlot, "retry")
	p.u.handlers.byJob[retry] = func(context.Context, runtime.Task, runtime.Sink) runtime.Result {
		if fails.Load() {
			return runtime.Result{Outcome: runtime.Retryable, Error: "not yet"}
		}
		return runtime.Result{Outcome: runtime.Succeeded}
	}
	c := p.u.client()
	defer func() { c.close() }()
	c.push()
	c.apply(&apiv1.Job{Name: movedJob, Schedule: &apiv1.Schedule{Every: "1s"}, Overlap: &apiv1.Overlap{Policy: "queue"}})
	c.apply(&apiv1.Job{Name: keptJob, Schedule: &apiv1.Schedule{Every: "1s"}})
	c.apply(&apiv1.Job{Name: retry, Retry: &apiv1.Retry{Max: 9, First: "15s", Backoff: "fixed"}})
	big := strings.Repeat("x", 60<<10) // so that the move takes several records
	for i := range 12 {
		c.apply(&apiv1.Job{Name: nameIn(movedSlot, fmt.Sprint("big", i)), Input: big, Schedule: &apiv1.Schedule{Every: "1h"}})
	}
	before := c.trigger(movedJob, "key")
	waits := c.trigger(retry, "again")
	began := time.Now()
	time.Sleep(5*time.Second + 300*time.Millisecond)
	p.copyApp()

	// A partition cannot give up a slot that it does not have.
	if _, err := p.v.srv.Leave(ctx, "default", movedSlot, "x", 0); err == nil {
		t.Error("a slot left a partition where it is not")
	}
	move, err := p.u.srv.Leave(ctx, "default", movedSlot, "v", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if kill == "u frozen" {
		p.kill(0, 1, func() { c.reconnectTo(p.u); _, _ = c.tryTrigger(keptJob) })
		if again, err := p.u.srv.Leave(ctx, "default", movedSlot, "v", 0); err != nil || again != move {
			t.Fatalf("after the kill the move is %d, %v", again, err)
		}
	}
	items := exported(t, p.u.srv, movedSlot, move)
	take := func() error { return p.v.srv.Take(ctx, "default", movedSlot, move, items) }
	if n := map[string]int{"v second": 2}[kill]; n > 0 {
		p.kill(1, n, func() {
			if err := take(); err == nil {
				t.Error("a server that was killed took a slot")
			}
		})
	}
	if err := take(); err != nil {
		t.Fatal(err)
	}
	if kill == "v came" {
		p.kill(1, 1, func() { time.Sleep(1100 * time.Millisecond) })
	}
	if err := take(); err != nil { // a repeat, as after a lost answer
		t.Fatal(err)
	}
	forget := func() error { return p.u.srv.Forget(ctx, "default", movedSlot, move) }
	if kill == "u forgets" {
		p.kill(0, 1, func() { _ = forget() })
	}
	if err := errors.Join(forget(), forget()); err != nil {
		t.Fatal(err)
	}
	if err := take(); err != nil { // a late repeat, as from an owner that was stopped for long
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second)

	d := p.v.client()
	defer d.close()
	if again := d.trigger(movedJob, "key"); again != before {
		t.Errorf("the key stands for run %s, it stood for %s", again, before)
	}
	if r, err := d.runs.GetRun(ctx, &apiv1.GetRunRequest{Id: before}); err != nil || r.State != "succeeded" {
		t.Errorf("the run that ended before: %v, %v", r, err)
	}
	if r, err := d.runs.GetRun(ctx, &apiv1.GetRunRequest{Id: waits}); err != nil || r.State != "waiting" || r.Attempt != 1 {
		t.Errorf("the run that waits: %v, %v", r, err)
	}
	c.reconnectTo(p.u)
	if _, err := c.tryTrigger(movedJob); err == nil {
		t.Error("a job was triggered where it is not any more")
	}
	fails.Store(false)
	time.Sleep(15 * time.Second)
	if r, err := d.runs.GetRun(ctx, &apiv1.GetRunRequest{Id: waits}); err != nil || r.State != "succeeded" || r.Attempt != 2 {
		t.Errorf("the run that waited: %v, %v", r, err)
	}

	// Move the slot back.
	move, err = p.v.srv.Leave(ctx, "default", movedSlot, "u", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.u.srv.Take(ctx, "default", movedSlot, move, exported(t, p.v.srv, movedSlot, move)); err != nil {
		t.Fatal(err)
	}
	if err := p.v.srv.Forget(ctx, "default", movedSlot, move); err != nil {
		t.Fatal(err)
	}
	if err := take(); err != nil { // a repeat of the first move changes nothing
		t.Fatal(err)
	}
	time.Sleep(4 * time.Second)
	for _, name := range []string{movedJob, keptJob} {
		planned := map[time.Time]int{}
		for _, call := range p.u.handlers.of(name) {
			if call.run != before {
				planned[call.planned]++
			}
		}
		var at []time.Time
		for when, n := range planned {
			if n != 1 {
				t.Errorf("%s: the run planned for %v was executed %d times", name, when, n)
			}
			at = append(at, when)
		}
		slices.SortFunc(at, time.Time.Compare)
		if len(at) < int(time.Since(began)/time.Second)-1 {
			t.Errorf("%s: %d planned times in %v", name, len(at), time.Since(began))
		}
		for i := 1; i < len(at); i++ {
			if gap := at[i].Sub(at[i-1]); gap != time.Second {
				t.Errorf("%s: after %v comes %v", name, at[i-1], at[i])
			}
		}
	}
	c.reconnectTo(p.u)
	j, err := c.jobs.GetJob(ctx, &apiv1.GetJobRequest{Name: movedJob})
	if err != nil || j.Stats.Failed != 0 || j.Stats.Succeeded != int64(len(p.u.handlers.of(movedJob))) {
		t.Errorf("the job has the stats %v for %d runs, %v", j.GetStats(), len(p.u.handlers.of(movedJob)), err)
	}
	if kill != "nobody" {
		return
	}
	// A restarted server has the same state.
	p.u.stopServer()
	p.u.start()
	c.reconnectTo(p.u)
	if again, err := c.jobs.GetJob(ctx, &apiv1.GetJobRequest{Name: movedJob}); err != nil || again.Stats.Succeeded < j.Stats.Succeeded {
		t.Errorf("after a restart: %v, %v", again.GetStats(), err)
	}
	p.v.stopServer()
	p.v.start()
	if err := p.v.srv.Ready(ctx, "default"); err != nil {
		t.Error(err)
	}
	if sh, err := p.v.srv.Share(ctx, "default"); err != nil || sh.Home != "u" || sh.Slots[movedSlot].State != job.Left || sh.Here[movedSlot] {
		t.Errorf("the other partition has %+v, %v", sh, err)
	}
}

// nameIn returns a job name with the given prefix that belongs to the slot.
func nameIn(slot uint8, begin string) string {
	for i := 0; ; i++ {
		if name := fmt.Sprintf("%s-%d", begin, i); job.SlotOf(name) == slot {
			return name
		}
	}
}

func (c *client) reconnectTo(w *world) { c.reconnect(w) }

// tryTrigger triggers a job and returns the error, as the forwarder does.
func (c *client) tryTrigger(name string) (*apiv1.Run, error) {
	return c.jobs.TriggerJob(context.Background(), &apiv1.TriggerJobRequest{Name: name})
}

// TestHandlersAcrossUnits checks that a handler outside the primary partition of its app
// reads and writes the app's values there, gets its secrets, and enqueues a job there
// once, however often it repeats the call. A handler in the primary partition enqueues
// jobs in the other one the same way.
func TestHandlersAcrossUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		p := newTwoOf(t, func(w *world) { w.requests = everything() })
		defer func() { p.u.close(); p.v.close() }()
		p.u.addHost("hu", 4)
		p.v.addHost("hv", 4)
		var seen []string
		asks := func(child string) handler {
			return func(ctx context.Context, task runtime.Task, _ runtime.Sink) runtime.Result {
				svc := guest(ctx)
				value, version, err := svc.Get(ctx, &task, "state", "k")
				if err != nil {
					return runtime.Result{Outcome: runtime.Permanent, Error: "get: " + err.Error()}
				}
				if _, err = svc.Put(ctx, &task, "state", "k", append(value, '+'), version); err == nil {
					version, err = svc.Put(ctx, &task, "config", "once", []byte("x"), 0)
				}
				if err == nil {
					err = svc.Delete(ctx, &task, "config", "once", version)
				}
				if err != nil {
					return runtime.Result{Outcome: runtime.Permanent, Error: "put: " + err.Error()}
				}
				if secret, err := svc.Secret(ctx, &task, "token"); err != nil || string(secret) != "s3" {
					return runtime.Result{Outcome: runtime.Permanent, Error: fmt.Sprint("secret: ", err)}
				}
				var ids []string
				for range 2 {
					id, err := svc.Enqueue(ctx, &task, runtime.Submit{Job: child})
					if err != nil {
						return runtime.Result{Outcome: runtime.Permanent, Error: "enqueue: " + err.Error()}
					}
					ids = append(ids, id)
				}
				if ids[0] != ids[1] {
					return runtime.Result{Outcome: runtime.Permanent, Error: "one order has two runs"}
				}
				seen = append(seen, ids[0])
				return runtime.Result{Outcome: runtime.Succeeded}
			}
		}
		childMoved, childKept := nameIn(movedSlot, "child"), nameIn(movedSlot+1, "child")
		p.u.handlers.byJob[movedJob], p.u.handlers.byJob[keptJob] = asks(childKept), asks(childMoved)
		c := p.u.client()
		defer c.close()
		c.push()
		c.grant(everything())
		if _, err := apiv1.NewSecretsClient(c.conn).SetSecret(ctx, &apiv1.SetSecretRequest{Name: "token", Value: "s3"}); err != nil {
			t.Fatal(err)
		}
		if _, err := apiv1.NewValuesClient(c.conn).PutValue(ctx, &apiv1.PutValueRequest{Bucket: "state", Key: "k", Value: "v"}); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{movedJob, keptJob, childMoved, childKept} {
			c.apply(&apiv1.Job{Name: name})
		}
		p.copyApp()
		time.Sleep(4 * time.Second) // until the hosts have reported their tasks
		move, err := p.u.srv.Leave(ctx, "default", movedSlot, "v", time.Second)
		if err == nil {
			err = p.v.srv.Take(ctx, "default", movedSlot, move, exported(t, p.u.srv, movedSlot, move))
		}
		if err = errors.Join(err, p.u.srv.Forget(ctx, "default", movedSlot, move)); err != nil {
			t.Fatal(err)
		}
		d := p.v.client()
		defer d.close()
		for _, run := range []*apiv1.Run{d.wait(d.trigger(movedJob, "1")), c.wait(c.trigger(keptJob, "2"))} {
			if run.State != "succeeded" {
				t.Errorf("%s: %s: %s", run.Job, run.State, run.Error)
			}
		}
		if len(seen) != 2 {
			t.FailNow()
		}
		for i, at := range []*client{c, d} {
			if run := at.wait(seen[i]); run.State != "succeeded" || run.Trigger != "handler" {
				t.Errorf("%s: %s", run.Job, run.State)
			}
		}
		for _, name := range []string{childMoved, childKept} {
			if n := len(p.u.handlers.of(name)); n != 1 {
				t.Errorf("%s was executed %d times", name, n)
			}
		}
		v, err := apiv1.NewValuesClient(c.conn).GetValue(ctx, &apiv1.GetValueRequest{Bucket: "state", Key: "k"})
		if err != nil || v.Value != "v++" {
			t.Errorf("the value is %v, %v", v, err)
		}
		// Jobs in different partitions cannot refer to each other, and jobs with
		// references stay in their partition.
		_, err = d.jobs.ApplyJob(ctx, &apiv1.ApplyJobRequest{Job: &apiv1.Job{
			Name: movedJob, Handler: &apiv1.Handler{Module: "m@1"}, Dependency: &apiv1.Dependency{Jobs: []string{keptJob}},
		}})
		if err == nil || !strings.Contains(err.Error(), "merge") {
			t.Errorf("a job refers to one in another partition: %v", err)
		}
		rules := []*apiv1.Change{
			{Kind: &apiv1.Change_AlertChannel{AlertChannel: &apiv1.AlertChannel{Name: "ops", Slack: &apiv1.AlertRobot{Url: "https://example.com"}}}},
			{Kind: &apiv1.Change_AlertRule{AlertRule: &apiv1.AlertRule{Name: "r", Events: []string{"failed"}, Channels: []string{"ops"}}}},
		}
		if _, err := c.applySet(rules...); !strings.Contains(fmt.Sprint(problemsOf(err)), "merge") {
			t.Errorf("an alert rule sees a part of the app: %v", err)
		}
		if _, err := c.modules.CollectModules(ctx, &apiv1.CollectModulesRequest{}); err == nil {
			t.Error("modules were collected that jobs in other partitions may name")
		}
		if _, err := c.jobs.ApplyJob(ctx, &apiv1.ApplyJobRequest{Job: &apiv1.Job{
			Name: childKept, Handler: &apiv1.Handler{Module: "m@1"}, Dependency: &apiv1.Dependency{Jobs: []string{keptJob}},
		}}); err != nil {
			t.Fatal(err)
		}
		if _, err := p.u.srv.Leave(ctx, "default", movedSlot+1, "v", time.Second); err == nil || !strings.Contains(err.Error(), "refer") {
			t.Errorf("a slot with jobs that refer to each other left: %v", err)
		}
	})
}
