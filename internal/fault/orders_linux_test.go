package fault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/wheelworkhq/wheelwork/internal/history"
	"github.com/wheelworkhq/wheelwork/sdk"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// orders holds the knowledge of the producers: their requests and the answers.
type orders struct {
	apps      []string // the apps whose runs are ordered
	jobs      []string // the jobs that next orders, as APP/JOB; empty: those of defineJobs
	schedules []history.Schedule

	mu        sync.Mutex
	rnd       *rand.Rand
	all       []*history.Order // each job is APP/JOB
	open      []int            // neither acknowledged nor being sent
	acked     []int
	sightings []history.Run
}

func newOrders(seed uint64) *orders {
	return &orders{apps: apps, schedules: schedules(), rnd: rand.New(rand.NewPCG(seed, 2))}
}

// next returns the order to send next: an unacknowledged one, sometimes an acknowledged
// one again, otherwise a new one.
func (o *orders) next() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := len(o.open); n > 0 {
		i := o.open[n-1]
		o.open = o.open[:n-1]
		return i
	}
	if len(o.acked) > 0 && o.rnd.IntN(10) == 0 {
		return o.acked[len(o.acked)-1-o.rnd.IntN(min(len(o.acked), 200))]
	}
	if len(o.jobs) > 0 {
		return o.addLocked(o.jobs[o.rnd.IntN(len(o.jobs))])
	}
	job := "quick"
	switch o.rnd.IntN(20) {
	case 0:
		job = "slow"
	case 1, 2:
		job = "flaky"
	}
	return o.addLocked(o.apps[o.rnd.IntN(len(o.apps))] + "/" + job)
}

// add creates an order of a job, APP/JOB.
func (o *orders) add(job string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.addLocked(job)
}

// any creates an order of a job in one of the apps, and returns the order and the app.
func (o *orders) any(job string) (i int, app string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	app = o.apps[len(o.all)%len(o.apps)]
	return o.addLocked(app + "/" + job), app
}

func (o *orders) addLocked(job string) int {
	o.all = append(o.all, &history.Order{Key: fmt.Sprintf("order-%d", len(o.all)), Job: job})
	return len(o.all) - 1
}

// ask sends an order once. The client's answer is certain, or the outcome is unknown.
// Then the order stays open.
func (o *orders) ask(ctx context.Context, c *sdk.Client, i int) (run string, err error) {
	o.mu.Lock()
	order := o.all[i]
	o.mu.Unlock()
	app, job, _ := strings.Cut(order.Job, "/")
	a, err := c.Trigger(ctx, sdk.Trigger{App: app, Job: job, Key: order.Key})
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		if len(order.Answers) == 0 {
			o.open = append(o.open, i)
		}
		return "", err
	}
	if len(order.Answers) == 0 {
		o.acked = append(o.acked, i)
	}
	order.Answers = append(order.Answers, a.RunID)
	return a.RunID, nil
}

// runName identifies a run.
type runName struct{ app, id string }

// someRun returns an acknowledged run and its app; "" when there is none.
func (o *orders) someRun() (app, run string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.acked) == 0 {
		return "", ""
	}
	order := o.all[o.acked[o.rnd.IntN(len(o.acked))]]
	app, _, _ = strings.Cut(order.Job, "/")
	return app, order.Answers[0]
}

// defineJobs defines the jobs of the tests. The service decides how long each takes.
func defineJobs(t *testing.T, c *sdk.Client, s *service) {
	t.Helper()
	at := s.addresses()
	to := func(address, job string) *sdk.Handler {
		return &sdk.Handler{Name: "builtin:http", Http: &apiv1.HTTPCall{Method: "POST", Url: "http://" + address + "/" + job, Timeout: "5m"}}
	}
	call := func(job string) *sdk.Handler { return to(at[0], job) }
	retry := &sdk.Retry{Max: 5, First: "50ms"}
	jobs := []*sdk.Job{
		{Name: "quick", Handler: call("quick"), Retry: retry},
		{Name: "slow", Handler: call("slow"), Retry: retry},
		{Name: "flaky", Handler: call("flaky"), Retry: retry},
		{Name: "tick", Handler: call("tick"), Retry: retry, Schedule: &sdk.Schedule{Every: "1s"}, Misfire: &sdk.Misfire{Policy: "fire_all", Max: 1000}},
		{Name: "tock", Handler: call("tock"), Retry: retry, Schedule: &sdk.Schedule{Cron: "* * * * * *"}},
	}
	for i, address := range at {
		jobs = append(jobs, &sdk.Job{Name: heldJob(i), Handler: to(address, "held"), Retry: retry})
	}
	for _, app := range apps {
		for _, j := range jobs {
			j.App = app
			at := j.Handler.Http.Url
			j.Handler.Http.Url += "?app=" + app
			if _, err := c.Apply(t.Context(), j); err != nil {
				t.Fatal(err)
			}
			j.Handler.Http.Url = at
		}
	}
}

// heldJob names a job whose runs last until the gate opens. There is one for each address
// of the service.
func heldJob(i int) string { return fmt.Sprint("held-", i) }

// apps are the apps that the tests order from. In a cluster whose servers share the work,
// they have different owners.
var apps = []string{"default", "mail", "pay", "stock"}

// schedules returns the jobs that no producer triggers.
func schedules() (all []history.Schedule) {
	for _, app := range apps {
		for _, job := range []string{"/tick", "/tock"} {
			all = append(all, history.Schedule{Job: app + job, Every: time.Second})
		}
	}
	return all
}

// produce sends orders until ctx ends, at a pace that leaves the machine time for the
// faults. It fails the test on an error that an absent part does not explain.
func (o *orders) produce(ctx context.Context, t *testing.T, c *sdk.Client, pause time.Duration) {
	for ctx.Err() == nil {
		_, err := o.ask(ctx, c, o.next())
		if err != nil && ctx.Err() == nil && !mayFail(err) {
			t.Errorf("a producer: %v", err)
		}
		wait(pause)
	}
}

// mayFail reports whether a part of a cluster may return the error while another part is
// away.
func mayFail(err error) bool {
	return errors.Is(err, sdk.ErrUnavailable) || errors.Is(err, sdk.ErrUnknown) || errors.Is(err, sdk.ErrExhausted) || errors.Is(err, context.DeadlineExceeded)
}

// look reads runs and records what it sees, until ctx ends.
func (o *orders) look(ctx context.Context, c *sdk.Client) {
	for ctx.Err() == nil {
		if app, id := o.someRun(); id != "" {
			short, cancel := context.WithTimeout(ctx, 2*time.Second)
			if r, err := c.Run(short, app, id); err == nil { // it may be away
				o.mu.Lock()
				o.sightings = append(o.sightings, recordOf(r))
				o.mu.Unlock()
			}
			cancel()
		}
		wait(20 * time.Millisecond)
	}
}

func recordOf(r *sdk.Run) history.Run {
	rec := history.Run{ID: r.GetId(), Job: r.GetApp() + "/" + r.GetJob(), State: r.GetState(), Code: r.GetCode(), Attempt: int(r.GetAttempt()), Output: r.GetOutput(), Covers: r.GetCovers()}
	if r.GetState() == sdk.Succeeded {
		rec.Code = "" // the code of an earlier attempt
	}
	if r.GetTrigger() == "schedule" {
		rec.Planned = r.GetPlannedAt().AsTime().Truncate(time.Millisecond)
	}
	return rec
}

// settle gets every order acknowledged, pauses the schedules, waits until no run is live,
// and reads the list of runs.
func (o *orders) settle(t *testing.T, c *sdk.Client) []history.Run {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for _, s := range o.schedules {
		for {
			app, job, _ := strings.Cut(s.Job, "/")
			_, err := c.Pause(ctx, app, job)
			if err == nil {
				break
			}
			if !mayFail(err) || ctx.Err() != nil {
				t.Fatal(err)
			}
			wait(100 * time.Millisecond)
		}
	}
	for len(o.open) > 0 {
		i := o.open[len(o.open)-1]
		o.open = o.open[:len(o.open)-1]
		if _, err := o.ask(ctx, c, i); err != nil && (!mayFail(err) || ctx.Err() != nil) {
			t.Fatalf("order %s stays without an answer: %v", o.all[i].Key, err)
		}
	}
	live := ""
	until(t, "every run to end", time.Minute, func() bool {
		live = ""
		for _, app := range o.apps {
			v, err := c.Overview(ctx, app)
			if err != nil {
				live = err.Error()
			}
			if v.GetArmed()+v.GetQueued()+v.GetRunning()+v.GetWaiting() > 0 {
				live += fmt.Sprintf(" %s: %d armed, %d queued, %d running, %d waiting", app, v.GetArmed(), v.GetQueued(), v.GetRunning(), v.GetWaiting())
			}
		}
		return live == ""
	}, func() string { return live })
	var ids []runName
	for _, app := range o.apps {
		for r, err := range c.Runs(ctx, sdk.RunQuery{App: app}) {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, runName{app, r.GetId()})
		}
	}
	runs := make([]history.Run, len(ids))
	var readers errgroup.Group
	readers.SetLimit(16)
	for i, n := range ids { // the list has no outputs
		readers.Go(func() error {
			r, err := c.Run(ctx, n.app, n.id)
			runs[i] = recordOf(r)
			return err
		})
	}
	if err := readers.Wait(); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(runs, func(a, b history.Run) int { return cmp.Compare(a.ID, b.ID) })
	return runs
}

// judge checks everything that was observed. The attempts of the jobs named in once must
// not have been executed twice.
func (o *orders) judge(t *testing.T, c *cluster, runs []history.Run, once ...string) {
	t.Helper()
	dispatches, err := c.wire.heard()
	if err != nil {
		t.Errorf("the wire: %v", err)
	}
	if c.units != nil {
		if n := c.units.group(dispatches); n > 0 {
			t.Logf("%d tasks have epochs of owners that nobody saw", n)
		}
	}
	h := &history.History{
		Executions: c.service.executions(), Dispatches: dispatches, Sightings: o.sightings, Runs: runs, Schedules: o.schedules,
		// The code of a run whose hosts were lost more than five times, each in the
		// middle of an attempt.
		Reasons: []string{"host_lost"}, Once: once,
	}
	for _, a := range o.all {
		h.Orders = append(h.Orders, *a)
	}
	states, epochs := map[string]int{}, map[uint64]int{}
	for _, r := range runs {
		_, job, _ := strings.Cut(r.Job, "/")
		states[job+" "+r.State]++
	}
	for _, d := range dispatches {
		epochs[d.Epoch]++
	}
	again := 0
	for _, r := range runs {
		if r.Attempt > 1 && !strings.Contains(r.Job, "/flaky") {
			again++
		}
	}
	t.Logf("%d runs needed another attempt because something was lost", again)
	t.Logf("%d orders, %d runs %v, %d executions, %d sightings, dispatches by epoch %v", len(h.Orders), len(runs), states, len(h.Executions), len(h.Sightings), epochs)
	if len(h.Dispatches) < len(runs)/2 || len(h.Sightings) == 0 {
		t.Error("the history has holes: too few dispatches or sightings")
	}
	for i, v := range history.Check(h) {
		if i == 20 {
			t.Error("and more")
			break
		}
		t.Error(v)
	}
	c.twice(h.Executions, dispatches)
}

// twice logs the attempts that were executed more than once.
func (c *cluster) twice(all []history.Execution, sent []history.Dispatch) {
	seen := map[history.Execution]int{}
	for _, e := range all {
		e.Token = ""
		if seen[e]++; seen[e] != 2 {
			continue
		}
		var ways []string
		for _, d := range sent {
			if d.Run == e.Run && d.Attempt == e.Attempt {
				ways = append(ways, fmt.Sprintf("to %s with the epoch %d, taken: %v", d.Host, d.Epoch, d.Taken))
			}
		}
		c.t.Logf("attempt %d of run %s was executed more than once: %s; it went %s", e.Attempt, e.Run, c.service.told(e.Run, e.Attempt), strings.Join(ways, ", "))
	}
}
