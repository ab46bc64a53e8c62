package crash

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// workModule does what its input says.
//
//go:embed testdata/work.wasm
var workModule []byte

// scheduled holds the jobs that no producer triggers. Both have a planned time every
// second.
var scheduled = map[string]*sdk.Schedule{
	"cron":  {Cron: "* * * * * *"},
	"every": {Every: "1s"},
}

// TestKill kills `wheelwork dev` at random moments of its life, under load. It checks
// that every acknowledged trigger ends in exactly one terminal run and that no planned
// time has two runs.
func TestKill(t *testing.T) {
	rounds, seed := roundsOf(t), testkit.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	p := buildProgram(t, testkit.FreeAddress(t))
	url := "http://" + p.listen
	l := newLedger(seed)

	for range 3 { // includes the very first start
		r := p.start(t)
		killAfter(t, r, upTo(rnd, 100*time.Millisecond))
	}
	r := p.start(t)
	token := r.await(t, p).Token
	prepare(t, url, token)

	// This producer lives for the whole test. Its client must find the server again after
	// each restart.
	patient := dial(t, url, sdk.Options{Token: token, RetryFor: time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	var staying sync.WaitGroup
	staying.Go(func() { produce(ctx, t, patient, l) })
	r.kill(t)

	moments := map[string]int{}
	for range rounds {
		moment := life(t, p, rnd, l, token)
		moments[moment]++
		if t.Failed() {
			break
		}
	}
	cancel()
	staying.Wait()

	r = p.start(t)
	r.await(t, p)
	if !t.Failed() {
		t.Logf("%d orders, %d acknowledged before the last start, processes killed %v", l.made, len(l.runs), moments)
		settle(t, url, token, l)
		check(t, url, token, l)
	}
	r.stop(t)
}

// life is one round: it starts a process, uses it, and kills it or sometimes stops it. It
// returns the stage of the process's life in which the kill came.
func life(t *testing.T, p program, rnd *rand.Rand, l *ledger, token string) string {
	r := p.start(t)
	kind := rnd.IntN(10)
	if kind == 0 {
		killAfter(t, r, upTo(rnd, 200*time.Millisecond))
		return "while it starts"
	}
	r.await(t, p)
	ctx, cancel := context.WithCancel(t.Context())
	var producers sync.WaitGroup
	for range 3 {
		producers.Go(func() { visit(ctx, t, p, l, token) })
	}
	if rnd.IntN(3) == 0 {
		producers.Go(func() { rush(ctx, t, p, l, token) })
	}
	wait(upTo(rnd, 600*time.Millisecond))
	moment := "while it works"
	switch kind {
	case 1:
		moment = "while it ends"
		r.terminate(t)
		killAfter(t, r, upTo(rnd, 50*time.Millisecond))
	case 2:
		moment = "not at all"
		r.stop(t)
	default:
		r.kill(t)
	}
	cancel()
	producers.Wait()
	return moment
}

// visit is a producer that connects after the start and leaves at the first error.
func visit(ctx context.Context, t *testing.T, p program, l *ledger, token string) {
	c, err := sdk.Dial(ctx, "http://"+p.listen, sdk.Options{Token: token, RetryFor: -1})
	if err != nil { // the process was killed at once
		return
	}
	defer c.Close() //nolint:errcheck // nothing is expected of it any more
	produceUntilError(ctx, t, c, l)
}

// rush is a producer that sends many triggers at once.
func rush(ctx context.Context, t *testing.T, p program, l *ledger, token string) {
	c, err := sdk.Dial(ctx, "http://"+p.listen, sdk.Options{Token: token, RetryFor: -1})
	if err != nil { // the process was killed at once
		return
	}
	defer c.Close() //nolint:errcheck // nothing is expected of it any more
	orders := l.burst()
	answers := make([]*sdk.Pending, len(orders))
	for i, o := range orders {
		answers[i] = c.TriggerAsync(ctx, o.trigger())
	}
	for i, o := range orders {
		answer, err := answers[i].Wait(t.Context()) // waits fail when the process is gone
		if err != nil {
			l.unknown(o)
			checkAbsent(ctx, t, err)
			continue
		}
		if err := l.acknowledge(o, answer); err != nil {
			t.Error(err)
		}
	}
}

// produce continues after every connection error; the client must hide all of them.
func produce(ctx context.Context, t *testing.T, c *sdk.Client, l *ledger) {
	for ctx.Err() == nil {
		if err := produceUntilError(ctx, t, c, l); ctx.Err() == nil {
			t.Errorf("the client that tries again gave up: %v", err)
			return
		}
	}
}

func produceUntilError(ctx context.Context, t *testing.T, c *sdk.Client, l *ledger) error {
	for {
		o := l.next()
		answer, err := c.Trigger(ctx, o.trigger())
		if err != nil {
			l.unknown(o)
			checkAbsent(ctx, t, err)
			return err
		}
		if err := l.acknowledge(o, answer); err != nil {
			t.Error(err)
			return err
		}
	}
}

// checkAbsent checks that a trigger failed for the one permitted reason.
func checkAbsent(ctx context.Context, t *testing.T, err error) {
	if ctx.Err() == nil && !errors.Is(err, sdk.ErrUnavailable) {
		t.Errorf("trigger: %v, want nothing but an absent server", err)
	}
}

// prepare uploads the module and applies the jobs.
func prepare(t *testing.T, url, token string) {
	c := dial(t, url, sdk.Options{Token: token})
	if _, _, err := c.PushModule(t.Context(), sdk.Upload{Name: "work", Version: "1", Code: workModule}); err != nil {
		t.Fatal(err)
	}
	apply := func(job *sdk.Job) {
		job.Handler = &sdk.Handler{Module: "work@1"}
		if _, err := c.Apply(t.Context(), job); err != nil {
			t.Fatal(err)
		}
	}
	for i := range jobs {
		apply(&sdk.Job{Name: jobName(i), Retry: &sdk.Retry{Max: 1, First: "10ms"}})
	}
	for name, s := range scheduled {
		apply(&sdk.Job{Name: name, Schedule: s, Input: "\x00\x01"})
	}
}

// settle repeats every unacknowledged order, deletes the schedules and waits until no run
// is live.
func settle(t *testing.T, url, token string, l *ledger) {
	c := dial(t, url, sdk.Options{Token: token})
	for name := range scheduled {
		if _, err := c.Pause(t.Context(), "", name); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range l.open {
		answer, err := c.Trigger(t.Context(), o.trigger())
		if err == nil {
			err = l.acknowledge(o, answer)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	deadline := time.Now().Add(time.Minute)
	for {
		o, err := c.Overview(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		if o.GetArmed()+o.GetQueued()+o.GetRunning()+o.GetWaiting() == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("runs do not end: %d armed, %d queued, %d running, %d waiting", o.GetArmed(), o.GetQueued(), o.GetRunning(), o.GetWaiting())
		}
		wait(20 * time.Millisecond)
	}
}

// check compares the server's runs with what the producers recorded.
func check(t *testing.T, url, token string, l *ledger) {
	c := dial(t, url, sdk.Options{Token: token})
	listed := map[string]*sdk.Run{}
	byJob := map[string]int64{}
	planned := map[string]map[time.Time]string{} // run id by job and planned time
	for run, err := range c.Runs(t.Context(), sdk.RunQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		id := run.GetId()
		if listed[id] != nil {
			t.Errorf("run %s is in the list twice", id)
		}
		listed[id] = run
		byJob[run.GetJob()]++
		if scheduled[run.GetJob()] != nil {
			at := run.GetPlannedAt().AsTime()
			if planned[run.GetJob()] == nil {
				planned[run.GetJob()] = map[time.Time]string{}
			}
			if other, twice := planned[run.GetJob()][at]; twice {
				t.Errorf("job %s was planned for %v twice: runs %s and %s", run.GetJob(), at, other, id)
			}
			planned[run.GetJob()][at] = id
		} else if _, known := l.of[id]; !known {
			t.Errorf("run %s of job %s is nobody's order: some key was run twice", id, run.GetJob())
		}
	}
	for name := range scheduled {
		checkGrid(t, name, slices.SortedFunc(maps.Keys(planned[name]), time.Time.Compare))
	}
	for id := range l.of {
		if listed[id] == nil {
			t.Errorf("run %s was acknowledged and is not in the list", id)
		}
	}
	checkEnds(t, c, l)
	checkCounts(t, c, byJob)
	t.Logf("%d runs: %v", len(listed), byJob)
}

// checkGrid checks that planned times are whole seconds apart.
func checkGrid(t *testing.T, job string, times []time.Time) {
	if len(times) == 0 {
		t.Errorf("job %s was never planned", job)
	}
	for _, at := range times {
		if off := at.Sub(times[0]) % time.Second; off != 0 {
			t.Errorf("job %s was planned for %v and %v: not whole seconds apart", job, times[0], at)
		}
	}
}

// checkEnds reads every acknowledged run by its id. The run must be terminal, in the
// state that its work leads to.
func checkEnds(t *testing.T, c *sdk.Client, l *ledger) {
	const readers, shown = 16, 10
	ids := slices.Collect(maps.Keys(l.of))
	var mu sync.Mutex
	wrong := map[string]int{} // count by reason
	complain := func(reason, format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		if wrong[reason]++; wrong[reason] <= shown {
			t.Errorf(format, args...)
		}
	}
	var lost atomic.Int64
	group, ctx := errgroup.WithContext(t.Context())
	for part := range slices.Chunk(ids, len(ids)/readers+1) {
		group.Go(func() error {
			for _, id := range part {
				run, err := c.Run(ctx, "", id)
				if err != nil {
					return err
				}
				o := l.of[id]
				if lostTooOften(run) {
					lost.Add(1)
				} else if run.GetState() != o.work.end() {
					complain(run.GetState()+" "+run.GetCode(), "run %s of %+v is %s (%s: %s), want %s", id, o, run.GetState(), run.GetCode(), run.GetError(), o.work.end())
				}
				if run.GetJob() != o.job || run.GetFinishedAt() == nil {
					complain("row", "run %s of %+v: job %s, finished at %v", id, o, run.GetJob(), run.GetFinishedAt())
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	t.Logf("%d runs failed because their host was killed too often", lost.Load())
	if len(wrong) > 0 {
		t.Errorf("of %d acknowledged runs ended wrongly, by reason: %v", len(ids), wrong)
	}
}

// lostTooOften reports whether a run failed because its hosts were killed more often than
// the server retries for.
func lostTooOften(run *sdk.Run) bool {
	const bound = 5
	lost := 0
	for _, a := range run.GetAttempts() {
		if a.GetOutcome() == "lost" {
			lost++
		}
	}
	return run.GetState() == "failed" && run.GetCode() == "host_lost" && lost > bound
}

// checkCounts compares the counters, which the server updates at each change, with the
// listed runs.
func checkCounts(t *testing.T, c *sdk.Client, listed map[string]int64) {
	var total int64
	for name, want := range listed {
		total += want
		job, err := c.Job(t.Context(), "", name)
		if err != nil {
			t.Error(err)
			continue
		}
		if s := job.GetStats(); s.GetLive() != 0 || s.GetSucceeded()+s.GetFailed() != want {
			t.Errorf("job %s counts %d live, %d succeeded, %d failed; the list has %d runs, all ended", name, s.GetLive(), s.GetSucceeded(), s.GetFailed(), want)
		}
	}
	o, err := c.Overview(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if o.GetSucceededTotal()+o.GetFailedTotal() != total {
		t.Errorf("the app counts %d succeeded and %d failed; the list has %d runs", o.GetSucceededTotal(), o.GetFailedTotal(), total)
	}
}

func dial(t *testing.T, url string, opt sdk.Options) *sdk.Client {
	t.Helper()
	c, err := sdk.Dial(t.Context(), url, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // the server may be gone
	return c
}

// roundsOf returns the number of kills.
func roundsOf(t *testing.T) int {
	t.Helper()
	switch {
	case testkit.Long():
		return testkit.Rounds(t, 200)
	case testing.Short():
		return testkit.Rounds(t, 5)
	}
	return testkit.Rounds(t, 20)
}

// upTo returns a random duration below d.
func upTo(rnd *rand.Rand, d time.Duration) time.Duration { return time.Duration(rnd.Int64N(int64(d))) }

// wait sleeps until the moment of a kill, or between two polls.
func wait(d time.Duration) { <-time.After(d) }

func killAfter(t *testing.T, r *process, d time.Duration) {
	t.Helper()
	wait(d)
	r.kill(t)
}

func TestFixtureMatchesItsSource(t *testing.T) {
	tool, err := exec.LookPath("wat2wasm")
	if err != nil {
		testkit.Lacks(t, "needs wat2wasm (Debian package wabt), which is not installed")
	}
	for name, module := range map[string][]byte{"work": workModule, "sleep": sleepModule} {
		out := filepath.Join(t.TempDir(), name+".wasm")
		if msg, err := exec.Command(tool, "testdata/"+name+".wat", "-o", out).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, msg)
		}
		want, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(module, want) {
			t.Errorf("testdata/%s.wasm is not what its source makes: build it again", name)
		}
	}
}
