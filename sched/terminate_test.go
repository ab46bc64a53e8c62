package sched_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// TestTerminate ends runs whose handlers ignore the request to end, after their grace and
// not before.
func TestTerminate(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		ctx := t.Context()
		deaf := func(context.Context, runtime.Task, runtime.Sink) runtime.Result {
			time.Sleep(time.Hour) // whatever its context says
			return runtime.Result{Outcome: runtime.Succeeded, Output: []byte("late")}
		}
		for _, name := range []string{"deaf", "parts", "node"} {
			w.handlers.byJob[name] = deaf
		}
		w.handlers.byJob["polite"] = sleeping(time.Hour)
		c.apply(&apiv1.Job{Name: "deaf"})
		c.apply(&apiv1.Job{Name: "polite"})
		c.apply(&apiv1.Job{Name: "parts", Fanout: &apiv1.Fanout{Mode: "shards", Shards: 2}})
		c.apply(&apiv1.Job{Name: "node"})
		flow := &apiv1.Job{Name: "flow", Workflow: &apiv1.Workflow{Nodes: []*apiv1.Node{{Name: "one", Job: "node"}, {Name: "two", Job: "node", After: []string{"one"}}}}}
		if _, err := c.jobs.ApplyJob(ctx, &apiv1.ApplyJobRequest{Job: flow}); err != nil {
			t.Fatal(err)
		}
		w.removeHost("h1")
		w.addHost("h1", 16)
		terminate := func(name, grace string) (*apiv1.Run, time.Duration) {
			t.Helper()
			id := c.trigger(name, "")
			time.Sleep(time.Minute)
			start := time.Now()
			r, err := c.runs.TerminateRun(ctx, &apiv1.TerminateRunRequest{Id: id, Grace: grace})
			if err != nil || r.State != "stopped" {
				t.Errorf("%s: %v, %v", name, r, err)
			}
			return r, time.Since(start)
		}
		if r, took := terminate("deaf", "30s"); took < 30*time.Second || took > 31*time.Second || r.Code != "terminated" || !strings.Contains(r.Error, "within 30s") {
			t.Errorf("ended after %v: %v", took, r)
		}
		if r, took := terminate("deaf", "0s"); took > time.Second || r.Code != "terminated" {
			t.Errorf("without a grace: ended after %v: %v", took, r)
		}
		if r, took := terminate("polite", ""); took > time.Second || r.Code == "terminated" {
			t.Errorf("a handler that ends on request: after %v: %v", took, r)
		}
		for _, name := range []string{"parts", "flow"} {
			if _, took := terminate(name, "1s"); took < time.Second || took > 3*time.Second {
				t.Errorf("%s ended after %v", name, took)
			}
		}
		ended := c.all("deaf", "stopped")
		time.Sleep(2 * time.Hour) // the handlers return now
		for range 2 {
			if again := c.all("deaf", "stopped"); len(again) != len(ended) || len(c.all("deaf", "succeeded")) != 0 {
				t.Errorf("late results changed %d runs into %d", len(ended), len(again))
			}
			w.stopServer()
			w.start()
			c.reconnect(w)
		}
		for _, bad := range []*apiv1.TerminateRunRequest{{Id: ended[0].Id, Grace: "-1s"}, {Id: ended[0].Id, Grace: "1h"}, {Id: ended[0].Id, Grace: "soon"}, {Id: "x"}} {
			if _, err := c.runs.TerminateRun(ctx, bad); status.Code(err) != codes.InvalidArgument {
				t.Errorf("%v: %v", bad, err)
			}
		}
		if _, err := c.runs.TerminateRun(ctx, &apiv1.TerminateRunRequest{Id: ended[0].Id}); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("a run that has ended: %v", err)
		}
	})
}
