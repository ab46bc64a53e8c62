package sched_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// TestChaos lets a seed decide what goes wrong: hosts come and go, the server
// restarts, handlers fail, take long and are cancelled. In the end every
// acknowledged run has ended once, and each planned time has had its run.
// WHEELWORK_SEED runs one seed, WHEELWORK_LONG many.
func TestChaos(t *testing.T) {
	seeds := []uint64{1, 2, 3, 4}
	if s := os.Getenv("WHEELWORK_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds = []uint64{n}
	} else if os.Getenv("WHEELWORK_LONG") != "" {
		for n := range uint64(100) {
			seeds = append(seeds, 100+n)
		}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { chaos(t, seed) }) })
	}
}

func chaos(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(t)
	w.start()
	c := w.client()
	c.push()
	for _, name := range []string{"h1", "h2"} {
		w.addHost(name, 2)
	}
	kinds := []handler{sleeping(time.Millisecond), sleeping(700 * time.Millisecond), sleeping(9 * time.Second), fails}
	for i, h := range kinds {
		name := fmt.Sprint("job", i)
		w.handlers.byJob[name] = h
		c.apply(&apiv1.Job{Name: name, Timeout: "5s", Retry: &apiv1.Retry{Max: 2, First: "300ms"}})
	}
	start := time.Now()
	c.apply(&apiv1.Job{Name: "tick", Schedule: &apiv1.Schedule{Every: "1s"}, Retry: &apiv1.Retry{Max: 50}})

	acked := map[string]string{} // key -> run
	for step := range 60 {
		switch r.IntN(10) {
		case 0:
			w.stopServer()
			time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
			w.start()
			c.reconnect(w)
		case 1:
			if len(w.hosts) > 0 {
				w.removeHost(anyHost(r, w))
			}
		case 2, 3:
			name := fmt.Sprint("h", 1+r.IntN(4))
			if w.hosts[name] == nil {
				w.addHost(name, 1+r.IntN(3))
			}
		case 4:
			for _, id := range acked {
				// It may have ended: the answer is then a refusal.
				c.runs.CancelRun(t.Context(), &apiv1.CancelRunRequest{Id: id}) //nolint:errcheck // see above
				break
			}
		default:
			key := fmt.Sprint("key", step)
			id := c.trigger(fmt.Sprint("job", r.IntN(len(kinds))), key)
			acked[key] = id
			time.Sleep(time.Duration(r.IntN(2000)) * time.Millisecond)
		}
	}
	for len(w.hosts) < 2 { // now everything may end
		w.addHost(fmt.Sprint("last", len(w.hosts)), 4)
	}
	if _, err := c.jobs.PauseJob(t.Context(), &apiv1.PauseJobRequest{Name: "tick"}); err != nil {
		t.Fatal(err)
	}
	end := time.Now()
	time.Sleep(5 * time.Minute)

	for key, id := range acked {
		run, err := c.runs.GetRun(t.Context(), &apiv1.GetRunRequest{Id: id})
		if err != nil {
			t.Fatalf("seed %d: acknowledged run %s: %v", seed, id, err)
		}
		if !job.State(run.State).Terminal() {
			t.Errorf("seed %d: acknowledged run %s of %s is %s", seed, id, key, run.State)
		}
		if again := c.trigger(run.Job, key); again != id && end.Sub(run.AcceptedAt.AsTime()) < 4*time.Minute {
			t.Errorf("seed %d: key %s gave %s, then %s", seed, key, id, again)
		}
	}
	seen := map[string]bool{}
	for _, run := range c.all("", "") {
		if seen[run.Id] {
			t.Errorf("seed %d: run %s is listed twice", seed, run.Id)
		}
		seen[run.Id] = true
	}
	planned := map[int64]bool{}
	for _, run := range c.all("tick", "") {
		at := run.PlannedAt.AsTime()
		if planned[at.UnixMilli()] {
			t.Errorf("seed %d: two runs are planned for %s", seed, at)
		}
		planned[at.UnixMilli()] = true
		if run.State != "succeeded" {
			t.Errorf("seed %d: the tick of %s: %s %s", seed, at, run.State, run.Error)
		}
	}
	// While the server was down, ticks passed that one late run stands for; all
	// others must be there.
	if want := int(end.Sub(start) / time.Second); len(planned) > want+1 || len(planned) < want/2 {
		t.Errorf("seed %d: %d ticks in %s", seed, len(planned), end.Sub(start))
	}
	c.close()
	w.close()
}

func anyHost(r *rand.Rand, w *world) string {
	var names []string
	for n := range 4 {
		if name := fmt.Sprint("h", n+1); w.hosts[name] != nil {
			names = append(names, name)
		}
	}
	return names[r.IntN(len(names))]
}

var fails handler = func(_ context.Context, t runtime.Task, _ runtime.Sink) runtime.Result {
	if t.Attempt < 3 {
		return runtime.Result{Outcome: runtime.Retryable, Error: "not yet"}
	}
	return runtime.Result{Outcome: runtime.Succeeded}
}
