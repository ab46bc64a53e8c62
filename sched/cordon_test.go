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

// TestCordon cordons and drains a host. The cordon must hold over a restart of the server.
func TestCordon(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		ctx := t.Context()
		cluster := func() apiv1.ClusterClient { return apiv1.NewClusterClient(c.conn) }
		w.removeHost("h1")
		w.addHost("h1", 2)
		w.addHost("h2", 2)
		time.Sleep(time.Second)
		c.apply(&apiv1.Job{Name: "quick"})
		c.apply(&apiv1.Job{Name: "only", Routing: &apiv1.Routing{Hosts: []string{"h1"}}})
		state := func() string {
			t.Helper()
			resp, err := cluster().ListHosts(ctx, &apiv1.ListHostsRequest{})
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range resp.Hosts {
				if h.Id == "h1" {
					return h.State
				}
			}
			return ""
		}
		if h, err := cluster().CordonHost(ctx, &apiv1.CordonHostRequest{Host: "h1"}); err != nil || h.State != "cordoned" {
			t.Fatalf("cordon: %v, %v", h, err)
		}
		for range 2 {
			for range 10 {
				if r := c.wait(c.trigger("quick", "")); r.Host != "h2" || r.State != "succeeded" {
					t.Fatalf("a run while h1 is cordoned: %v", r)
				}
			}
			id := c.trigger("only", "")
			time.Sleep(time.Minute)
			why, err := c.runs.ExplainRun(ctx, &apiv1.ExplainRunRequest{Id: id})
			if err != nil || why.State != "queued" || !strings.Contains(why.String(), "is cordoned: `wheelwork host uncordon h1` ends that") {
				t.Errorf("a run for h1 alone: %v, %v", why, err)
			}
			w.stopServer()
			w.start()
			c.reconnect(w)
			time.Sleep(time.Minute)
			if s := state(); s != "cordoned" {
				t.Errorf("h1 is %s after a restart of the server", s)
			}
		}
		if h, err := cluster().UncordonHost(ctx, &apiv1.UncordonHostRequest{Host: "h1"}); err != nil || h.State != "up" {
			t.Fatalf("uncordon: %v, %v", h, err)
		}
		time.Sleep(time.Minute)
		if runs := c.all("only", "succeeded"); len(runs) != 2 || runs[0].Host != "h1" {
			t.Errorf("the runs that waited for h1: %v", runs)
		}

		// A drain takes back the tasks that have not started. The job was measured as quick, so both
		// hosts hold runs of it beyond their slots.
		stuck := false
		w.handlers.byJob["busy"] = func(ctx context.Context, task runtime.Task, s runtime.Sink) runtime.Result {
			if stuck {
				return sleeping(time.Hour)(ctx, task, s)
			}
			return runtime.Result{Outcome: runtime.Succeeded}
		}
		c.apply(&apiv1.Job{Name: "busy"})
		for range 10 {
			c.wait(c.trigger("busy", ""))
		}
		stuck = true
		for range 12 {
			c.trigger("busy", "")
		}
		time.Sleep(10 * time.Millisecond)
		at := func(host string) (n int) {
			for _, r := range c.all("busy", "live") {
				if r.Host == host && (r.State == "dispatched" || r.State == "running") {
					n++
				}
			}
			return n
		}
		if n := at("h1"); n <= 2 {
			t.Fatalf("h1 holds %d runs: the test wants some that have not started", n)
		}
		if _, err := cluster().CordonHost(ctx, &apiv1.CordonHostRequest{Host: "h1", Drain: true}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
		if n := at("h1"); n != 2 {
			t.Errorf("h1 holds %d runs after its drain, want the 2 that have started", n)
		}
		for host, want := range map[string]codes.Code{"nowhere": codes.NotFound, "": codes.NotFound} {
			if _, err := cluster().CordonHost(ctx, &apiv1.CordonHostRequest{Host: host}); status.Code(err) != want {
				t.Errorf("cordon of %q: %v", host, err)
			}
		}
		w.removeHost("h2")
		time.Sleep(time.Second)
		if _, err := cluster().UncordonHost(ctx, &apiv1.UncordonHostRequest{Host: "h2"}); status.Code(err) != codes.NotFound {
			t.Errorf("uncordon of a host that is gone: %v", err)
		}
	})
}
