package sched_test

import (
	"context"
	"testing"
	"testing/synctest"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// TestLimitsOfAJob checks that the handler gets the limits of its job: without limits,
// after an update that sets them, after a restart of the server, and after an update that
// removes them.
func TestLimitsOfAJob(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		got := make(chan runtime.Limits, 10)
		w.handlers.byJob["bounded"] = func(_ context.Context, t runtime.Task, _ runtime.Sink) runtime.Result {
			got <- t.Limits
			return runtime.Result{Outcome: runtime.Succeeded}
		}
		apply := func(l *apiv1.Limits) string {
			t.Helper()
			j := &apiv1.Job{Name: "bounded", Limits: l}
			c.apply(j)
			r, err := c.jobs.GetJob(t.Context(), &apiv1.GetJobRequest{Name: "bounded"})
			if err != nil {
				t.Fatal(err)
			}
			if r.Limits.GetFuel() != l.GetFuel() || r.Limits.GetMemoryBytes() != l.GetMemoryBytes() {
				t.Errorf("the job has the limits %v, want %v", r.Limits, l)
			}
			return r.Etag
		}
		want := func(memory, fuel int64) {
			t.Helper()
			c.wait(c.trigger("bounded", ""))
			if l := <-got; l != (runtime.Limits{MemoryBytes: memory, Fuel: fuel}) {
				t.Errorf("the handler may use %+v, want %d bytes and %d units", l, memory, fuel)
			}
		}
		none := apply(nil)
		want(0, 0)
		if some := apply(&apiv1.Limits{MemoryBytes: 1 << 20, Fuel: 7}); some == none {
			t.Error("limits do not change the etag")
		}
		want(1<<20, 7)
		w.stopServer()
		w.start()
		c.reconnect(w)
		synctest.Wait()
		want(1<<20, 7)
		if again := apply(nil); again != none {
			t.Error("without limits the etag is another one than before them")
		}
		want(0, 0)
	})
}
