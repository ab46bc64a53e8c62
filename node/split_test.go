package node_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/examples/greet"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// splitOf returns the cluster's status of an app that is split, or nil.
func splitOf(s *sdk.Cluster, app string) *sdk.SplitApp {
	for _, x := range s.GetSplit() {
		if x.GetApp() == app {
			return x
		}
	}
	return nil
}

// arrived reports whether the slots of an app have their desired placement, in so many
// partitions.
func arrived(s *sdk.Cluster, app string, partitions int) bool {
	x := splitOf(s, app)
	if x == nil {
		return partitions == 1
	}
	with := 0
	for _, sh := range x.Shares {
		if sh.Slots != sh.Wanted {
			return false
		}
		if sh.Slots > 0 {
			with++
		}
	}
	return with == partitions
}

// TestAppIsSplit: an app is spread over three partitions of two servers and merged again,
// while its jobs are scheduled and triggered all the time by clients that do not know of
// it. Each trigger has one run, which is executed once, each planned time has one run,
// and lists show all of them.
func TestAppIsSplit(t *testing.T) {
	t.Parallel()
	w := newSeveral(t, 3, "a", "b")
	c := w.client("a", "b")
	w.untilBothOwn(c)
	w.host("h", "a", "b")
	const app, jobs = "hot", 32
	if _, _, err := c.PushModule(t.Context(), sdk.Upload{App: app, Name: "greet", Version: "1", Code: greet.Module}); err != nil {
		t.Fatal(err)
	}
	name := func(i int) string { return fmt.Sprintf("job-%02d", i) }
	for i := range jobs {
		def := &sdk.Job{App: app, Name: name(i), Handler: &sdk.Handler{Module: "greet@1"}, Input: "you"}
		if i%2 == 0 {
			def.Schedule = &sdk.Schedule{Every: "1s"}
		}
		if _, err := c.Apply(t.Context(), def); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	var stop atomic.Bool
	var mu sync.Mutex
	ids := map[string]string{} // runs by key
	var longest time.Duration
	var orders sync.WaitGroup
	for p := range 2 {
		orders.Go(func() {
			for i := 0; i < 2000 && !stop.Load(); i++ {
				key := fmt.Sprintf("%d/%d", p, i)
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				at := time.Now()
				r, err := c.Trigger(ctx, sdk.Trigger{App: app, Job: name(i % jobs), Key: key})
				cancel()
				if err != nil {
					t.Errorf("order %s: %v", key, err)
					return
				}
				mu.Lock()
				ids[key] = r.RunID
				longest = max(longest, time.Since(at))
				mu.Unlock()
			}
		})
	}
	s, err := c.SplitApp(t.Context(), app, 3)
	if err != nil {
		t.Fatal(err)
	}
	if x := splitOf(s, app); x == nil || !x.ByHand || len(x.Shares) != 3 {
		t.Fatalf("the cluster says of the app: %v", x)
	}
	w.until(c, "the app is in three partitions", func(s *sdk.Cluster) bool { return arrived(s, app, 3) })

	// A new module is known in all partitions when the call is answered.
	if _, _, err := c.PushModule(t.Context(), sdk.Upload{App: app, Name: "greet", Version: "2", Code: greet.Module}); err != nil {
		t.Fatal(err)
	}
	for i := range jobs {
		if i%2 == 1 {
			if _, err := c.Apply(t.Context(), &sdk.Job{App: app, Name: name(i), Handler: &sdk.Handler{Module: "greet@2"}, Input: "you"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	var names []string
	for j, err := range c.Jobs(t.Context(), sdk.JobQuery{App: app}) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, j.Name)
	}
	if len(names) != jobs || !slices.IsSorted(names) {
		t.Errorf("the list of jobs has %d names: %v", len(names), names)
	}
	if _, err := c.MergeApp(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	w.until(c, "the app is in one partition", func(s *sdk.Cluster) bool { return arrived(s, app, 1) })
	stop.Store(true)
	orders.Wait()
	t.Logf("%d orders, the longest took %v", len(ids), longest.Round(time.Millisecond))

	seen := map[string]string{}
	for key, id := range ids {
		if other, twice := seen[id]; twice {
			t.Errorf("the orders %s and %s have one run %s", key, other, id)
		}
		seen[id] = key
		if _, err := c.Wait(t.Context(), app, id); err != nil {
			t.Fatalf("order %s: run %s: %v", key, id, err)
		}
	}
	// Every planned time of the schedules has exactly one run.
	planned, times := map[string][]time.Time{}, map[string]int64{}
	listed := map[string]bool{}
	for r, err := range c.Runs(t.Context(), sdk.RunQuery{App: app}) {
		if err != nil {
			t.Fatal(err)
		}
		if listed[r.Id] {
			t.Errorf("run %s is listed twice", r.Id)
		}
		listed[r.Id] = true
		if key, ordered := seen[r.Id]; ordered && !once(r) {
			t.Errorf("order %s: run %s is %s after the attempts %v", key, r.Id, r.State, r.Attempts)
		}
		if r.Trigger == "schedule" {
			planned[r.Job] = append(planned[r.Job], r.PlannedAt.AsTime())
			times[r.Job] += 1 + r.Covers // more if this machine stood still for long
		}
	}
	for id := range seen {
		if !listed[id] {
			t.Errorf("run %s is in no list", id)
		}
	}
	for i := 0; i < jobs; i += 2 {
		at := planned[name(i)]
		slices.SortFunc(at, time.Time.Compare)
		if len(at) == 0 || at[len(at)-1].Before(began) {
			t.Errorf("%s: it was not scheduled", name(i))
			continue
		}
		if n := len(slices.Compact(slices.Clone(at))); n != len(at) {
			t.Errorf("%s: %d runs for %d planned times", name(i), len(at), n)
		}
		if n := int64(at[len(at)-1].Sub(at[0])/time.Second) + 1; times[name(i)] < n {
			t.Errorf("%s: of %d planned times %d have a run: %v", name(i), n, times[name(i)], at)
		}
	}
}

// once reports whether a run succeeded, and only lost attempts came before the last one.
func once(r *sdk.Run) bool {
	for i, a := range r.Attempts {
		if i < len(r.Attempts)-1 && a.Outcome != "lost" { // a slow machine loses the connection to its hosts
			return false
		}
	}
	return r.State == sdk.Succeeded
}

// TestModulesArriveWhileUnitsMove: modules are pushed while every partition of a split
// app moves between servers, including the primary one. Each push succeeds, and once it
// is answered, jobs of all partitions can name the module.
func TestModulesArriveWhileUnitsMove(t *testing.T) {
	t.Parallel()
	w := newSeveral(t, 3, "a", "b")
	c := w.client("a", "b")
	w.untilBothOwn(c)
	const app, jobs = "spread", 16
	if _, _, err := c.PushModule(t.Context(), sdk.Upload{App: app, Name: "greet", Version: "first", Code: greet.Module}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.SplitApp(t.Context(), app, 3); err != nil {
		t.Fatal(err)
	}
	s := w.until(c, "the app is in three partitions", func(s *sdk.Cluster) bool { return arrived(s, app, 3) && owned(s) != nil })
	var stop atomic.Bool
	var pushes sync.WaitGroup
	pushed := 0
	pushes.Go(func() {
		for ; !stop.Load(); pushed++ {
			version := fmt.Sprint(pushed)
			if _, _, err := c.PushModule(t.Context(), sdk.Upload{App: app, Name: "greet", Version: version, Code: greet.Module}); err != nil {
				t.Errorf("push %s: %v", version, err)
				return
			}
			for i := range jobs {
				if _, err := c.Apply(t.Context(), &sdk.Job{App: app, Name: fmt.Sprint("job-", i), Handler: &sdk.Handler{Module: "greet@" + version}}); err != nil {
					t.Errorf("after push %s: %v", version, err)
					return
				}
			}
		}
	})
	for range 5 {
		for _, u := range s.Units {
			s = w.until(c, "nothing moves", func(s *sdk.Cluster) bool { return owned(s) != nil })
			to := w.at["a"]
			if partitionOf(s, u.Name).Address == to {
				to = w.at["b"]
			}
			if _, err := c.MoveUnit(t.Context(), u.Name, to); err != nil {
				t.Fatal(err)
			}
			w.until(c, "the partition is where it was sent", func(s *sdk.Cluster) bool {
				is := partitionOf(s, u.Name)
				return is.GetAddress() == to && is.GetState() == "owned"
			})
		}
	}
	stop.Store(true)
	pushes.Wait()
	t.Logf("%d modules", pushed)
	if pushed == 0 {
		t.Error("nothing was pushed while partitions moved")
	}
}

// TestHotAppSpreads: of several apps, the one with ten times the rate of the others
// spreads over all three servers by itself. Then one of the servers goes away. Every
// trigger has one run, which was executed once.
func TestHotAppSpreads(t *testing.T) {
	t.Parallel()
	w := newSeveral(t, 3)
	w.split = 10
	for _, name := range []string{"a", "b", "c"} {
		w.start(name)
	}
	c := w.client("a", "b", "c")
	w.until(c, "each server owns a partition", func(s *sdk.Cluster) bool {
		n := owned(s)
		return n[w.at["a"]] == 1 && n[w.at["b"]] == 1 && n[w.at["c"]] == 1
	})
	w.host("h", "a", "b", "c")
	const jobs = 32
	apps := []string{"hot", "mild0", "mild1", "mild2"}
	name := func(i int) string { return fmt.Sprintf("job-%02d", i%jobs) }
	for _, app := range apps {
		if _, _, err := c.PushModule(t.Context(), sdk.Upload{App: app, Name: "greet", Version: "1", Code: greet.Module}); err != nil {
			t.Fatal(err)
		}
		for i := range jobs {
			if _, err := c.Apply(t.Context(), &sdk.Job{App: app, Name: name(i), Handler: &sdk.Handler{Module: "greet@1"}, Input: "you"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	var stop atomic.Bool
	var mu sync.Mutex
	runs := map[string]map[string]string{} // by app: triggers by run
	var longest time.Duration
	var orders sync.WaitGroup
	order := func(app, job, key string) bool {
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		at := time.Now()
		r, err := c.Trigger(ctx, sdk.Trigger{App: app, Job: job, Key: key})
		if err != nil {
			t.Errorf("order %s of %s: %v", key, app, err)
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		if runs[app] == nil {
			runs[app] = map[string]string{}
		}
		if other, twice := runs[app][r.RunID]; twice {
			t.Errorf("%s: the orders %s and %s have one run", app, other, key)
		}
		runs[app][r.RunID] = key
		longest = max(longest, time.Since(at))
		return true
	}
	for p := range 3 {
		orders.Go(func() {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for i := 0; !stop.Load(); i++ {
				if !order("hot", name(i), fmt.Sprintf("%d/%d", p, i)) || i%10 == 0 && !order(apps[1+p], name(i), fmt.Sprint(i)) {
					return
				}
				<-tick.C
			}
		})
	}
	servers := func(s *sdk.Cluster) int {
		at := map[string]bool{}
		for _, sh := range splitOf(s, "hot").GetShares() {
			if u := partitionOf(s, sh.Unit); sh.Slots > 0 && u.GetState() == "owned" {
				at[u.GetAddress()] = true
			}
		}
		return len(at)
	}
	s := w.until(c, "the hot app is on three servers", func(s *sdk.Cluster) bool { return arrived(s, "hot", 3) && servers(s) == 3 })
	for _, x := range s.Split {
		if x.App != "hot" || x.ByHand {
			t.Errorf("what is split is %v", x)
		}
	}
	mu.Lock()
	t.Logf("the longest order took %v", longest.Round(time.Millisecond))
	longest = 0
	mu.Unlock()
	if err := w.all["c"].stop(); err != nil {
		t.Error(err)
	}
	w.until(c, "two servers own everything", func(s *sdk.Cluster) bool {
		n := owned(s)
		return n != nil && n[w.at["c"]] == 0 && len(s.Servers) == 2
	})
	stop.Store(true)
	orders.Wait()
	t.Logf("while a server went away the longest order took %v", longest.Round(time.Millisecond))
	for app, of := range runs {
		for id := range of {
			if _, err := c.Wait(t.Context(), app, id); err != nil {
				t.Fatalf("%s: run %s: %v", app, id, err)
			}
		}
		n := 0
		for r, err := range c.Runs(t.Context(), sdk.RunQuery{App: app}) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; of[r.Id] == "" || !once(r) {
				t.Errorf("%s: run %s is %s after the attempts %v, order %q", app, r.Id, r.State, r.Attempts, of[r.Id])
			}
		}
		if n != len(of) {
			t.Errorf("%s: %d orders have %d runs", app, len(of), n)
		}
		t.Logf("%s: %d orders", app, len(of))
	}
}

// TestEnqueueIntoAnotherUnit: a handler of an app enqueues a job of another app in
// another partition, once that app's owner allows it. The request has one run.
func TestEnqueueIntoAnotherUnit(t *testing.T) {
	t.Parallel()
	w := newSeveral(t, 2, "a")
	c := w.client("a")
	w.until(c, "the server owns both partitions", func(s *sdk.Cluster) bool { return owned(s)[w.at["a"]] == 2 })
	conn, ctx := dial(t, w.all["a"], memberToken)
	where := map[string]string{}
	for app, name := range map[string]string{"pay": "settle", "mail": "letter"} {
		up := sdk.Upload{App: app, Name: "greet", Version: "1", Code: greet.Module, Manifest: `{"handlers":[{"name":"main"}],"capabilities":{"enqueue":["mail/letter"]}}`}
		if _, _, err := c.PushModule(t.Context(), up); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Apply(t.Context(), &sdk.Job{App: app, Name: name, Handler: &sdk.Handler{Module: "greet@1"}}); err != nil {
			t.Fatal(err)
		}
		a, err := apiv1.NewNameserverClient(conn).Route(ctx, &apiv1.RouteRequest{App: app})
		if err != nil {
			t.Fatal(err)
		}
		where[app] = a.Unit
	}
	if where["pay"] == where["mail"] {
		t.Fatalf("both apps are in one partition: %v", where)
	}
	if _, err := c.PutGrants(t.Context(), &sdk.ModuleGrants{App: "pay", Module: "greet", Grants: &apiv1.Grants{Enqueue: []string{"mail/letter"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Trigger(t.Context(), sdk.Trigger{App: "pay", Job: "settle"}); err != nil {
		t.Fatal(err)
	}
	// The test acts as a host that makes a request for a run.
	work, err := apiv1.NewWorkerClient(conn).Work(metadata.AppendToOutgoingContext(ctx, "wheelwork-unit", where["pay"]))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*apiv1.WorkUp{{Hello: &apiv1.Hello{Host: "w", Session: "s", Slots: 1}}, {Credits: 1}} {
		if err := work.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	var task *apiv1.Task
	for task == nil {
		m, err := work.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Tasks) > 0 {
			task = m.Tasks[0]
		}
	}
	who := &apiv1.Caller{App: "pay", Run: task.Run, Attempt: task.Attempt, Epoch: task.Epoch, Host: "w", Session: "s"}
	order := func() (*apiv1.GuestEnqueueResponse, error) {
		return apiv1.NewGuestClient(conn).Enqueue(ctx, &apiv1.GuestEnqueueRequest{Caller: who, App: "mail", Job: "letter", Sequence: 1})
	}
	if _, err := order(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("without the leave of the other app: %v", err)
	}
	if _, err := c.PutApp(t.Context(), &sdk.App{Name: "mail", EnqueueFrom: []string{"pay"}}); err != nil {
		t.Fatal(err)
	}
	first, err := order()
	if err != nil {
		t.Fatal(err)
	}
	again, err := order()
	if err != nil || !slices.Equal(first.Run, again.Run) {
		t.Errorf("the same order again: %v, %v", again, err)
	}
	n := 0
	for _, err := range c.Runs(t.Context(), sdk.RunQuery{App: "mail", Job: "letter"}) {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	if n != 1 {
		t.Errorf("one order has %d runs", n)
	}
}

// TestProduceForASplitApp: messages that arrive before those in front of them were
// answered are applied together. Each has its answer, in order, and sees the effects of
// those before it.
func TestProduceForASplitApp(t *testing.T) {
	t.Parallel()
	w := newSeveral(t, 3, "a", "b")
	c := w.client("a", "b")
	w.untilBothOwn(c)
	const app = "hot"
	if _, _, err := c.PushModule(t.Context(), sdk.Upload{App: app, Name: "greet", Version: "1", Code: greet.Module}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.SplitApp(t.Context(), app, 3); err != nil {
		t.Fatal(err)
	}
	w.until(c, "the app is in three partitions", func(s *sdk.Cluster) bool { return arrived(s, app, 3) })
	conn, ctx := dial(t, w.all["a"], adminToken)
	stream, err := apiv1.NewProducerClient(conn).Produce(ctx)
	if err != nil {
		t.Fatal(err)
	}
	const messages = 50
	for n := range messages { // a job, and in the next message its run
		name := fmt.Sprintf("job-%02d", n/2)
		cmd := &apiv1.Command{Kind: &apiv1.Command_Apply{Apply: &apiv1.Job{App: app, Name: name, Handler: &apiv1.Handler{Module: "greet@1"}}}}
		if n%2 == 1 {
			cmd = &apiv1.Command{Kind: &apiv1.Command_Trigger{Trigger: &apiv1.TriggerJobRequest{App: app, Name: name, IdempotencyKey: name}}}
		}
		if err := stream.Send(&apiv1.ProduceRequest{Number: uint64(n + 1), Commands: []*apiv1.Command{cmd}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	for n := range messages {
		resp, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"created", "accepted"}[n%2]
		if resp.Number != uint64(n+1) || len(resp.Results) != 1 || resp.Results[0].Result != want {
			t.Errorf("the answer to message %d: %v, want %s", n+1, resp, want)
		}
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("behind the last one: %v", err)
	}
}
