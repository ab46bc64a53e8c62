package sched_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// retryWith retries a run with choices.
func (c *client) retryWith(req *apiv1.RetryRunRequest) *apiv1.Run {
	c.t.Helper()
	r, err := c.runs.RetryRun(context.Background(), req)
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

// refused fails unless a retry is refused with a text.
func (c *client) refused(req *apiv1.RetryRunRequest, code codes.Code, text string) {
	c.t.Helper()
	if r, err := c.runs.RetryRun(context.Background(), req); status.Code(err) != code || !strings.Contains(err.Error(), text) {
		c.t.Errorf("retry %v: %v, %v, want %s with %q", req, r, err, code, text)
	}
}

// TestRetryFromNode retries a workflow that succeeded from one of its nodes. The choice holds when the
// server ends before the new run begins.
func TestRetryFromNode(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		c.flow(&apiv1.Job{Name: "w", Overlap: &apiv1.Overlap{Policy: "queue"}}, node("a"), node("b", "a"), node("c", "b"), node("d", "a"))
		first := c.wait(c.trigger("w", ""))
		again := c.wait(c.retryWith(&apiv1.RetryRunRequest{Id: first.Id, FromNode: "b"}).Id)
		kept := func(r *apiv1.Run) (names []string) {
			for _, n := range r.Nodes {
				if n.Kept {
					names = append(names, n.Name)
				}
			}
			return names
		}
		if again.State != "succeeded" || again.FromNode != "b" || !slices.Equal(kept(again), []string{"a", "d"}) {
			t.Errorf("the retry from b is %v and kept %v, want a and d", again, kept(again))
		}
		for name, want := range map[string]int{"a": 1, "b": 2, "c": 2, "d": 1} {
			if n := len(w.handlers.of(name)); n != want {
				t.Errorf("node %s ran %d times, want %d", name, n, want)
			}
		}

		w.handlers.byJob["a"] = sleeping(time.Minute)
		long := c.trigger("w", "") // the retry waits behind this run
		time.Sleep(time.Second)
		made := c.retryWith(&apiv1.RetryRunRequest{Id: first.Id, FromNode: "a", IdempotencyKey: "k"})
		same := c.retryWith(&apiv1.RetryRunRequest{Id: first.Id, FromNode: "a", IdempotencyKey: "k"})
		if same.Id != made.Id {
			t.Errorf("the key made %s and %s", made.Id, same.Id)
		}
		other := c.retryWith(&apiv1.RetryRunRequest{Id: first.Id, FromNode: "c"})
		w.stopServer()
		w.start()
		c.reconnect(w)
		c.wait(long)
		if r := c.wait(made.Id); r.FromNode != "a" || len(kept(r)) > 0 {
			t.Errorf("the retry from a, over a restart: from %q, kept %v", r.FromNode, kept(r))
		}
		if r := c.wait(other.Id); r.FromNode != "c" || !slices.Equal(kept(r), []string{"a", "b", "d"}) {
			t.Errorf("the retry from c, over a restart: from %q, kept %v", r.FromNode, kept(r))
		}

		c.refused(&apiv1.RetryRunRequest{Id: first.Id, FromNode: "x"}, codes.InvalidArgument, "no such node")
		plain := c.wait(c.trigger("d", ""))
		c.refused(&apiv1.RetryRunRequest{Id: plain.Id, FromNode: "a"}, codes.InvalidArgument, "no nodes")
	})
}

// TestRetryWithModule retries a run with other versions of its module, and with an alias.
func TestRetryWithModule(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		c.pushVersions("1", "2", "3")
		c.alias(&apiv1.SetAliasRequest{Version: "3"})
		for _, ref := range []string{"n@1", "n@prod"} {
			name := "j" + ref[2:]
			if err := c.applyTo(ref, &apiv1.Job{Name: name, Overlap: &apiv1.Overlap{Policy: "queue"}}); err != nil {
				t.Fatal(err)
			}
			first := c.wait(c.trigger(name, ""))
			if r := c.wait(c.retryWith(&apiv1.RetryRunRequest{Id: first.Id, Module: "n@2"}).Id); r.State != "succeeded" || r.Module != "n@2" || r.Alias != "" {
				t.Errorf("%s with n@2: %v", name, r)
			}
			if r := c.wait(c.retryWith(&apiv1.RetryRunRequest{Id: first.Id, Module: "n@prod"}).Id); r.Module != "n@3" || r.Alias != "n@prod" {
				t.Errorf("%s with the alias: %v", name, r)
			}
			if r := c.wait(c.retry(first.Id).Id); r.Module != first.Module {
				t.Errorf("%s without a choice has module %s", name, r.Module)
			}
			w.handlers.byJob[name] = sleeping(time.Minute)
			long := c.trigger(name, "")
			time.Sleep(time.Second)
			made := c.retryWith(&apiv1.RetryRunRequest{Id: first.Id, Module: "n@2"})
			w.stopServer()
			w.start()
			c.reconnect(w)
			c.wait(long)
			if r := c.wait(made.Id); r.Module != "n@2" || r.State != "succeeded" {
				t.Errorf("%s with n@2, over a restart: %v", name, r)
			}
			c.refused(&apiv1.RetryRunRequest{Id: first.Id, Module: "m@1"}, codes.InvalidArgument, "another version or alias of it")
			c.refused(&apiv1.RetryRunRequest{Id: first.Id, Module: "n@9"}, codes.FailedPrecondition, "no module n@9")
			c.refused(&apiv1.RetryRunRequest{Id: first.Id, Module: "n"}, codes.InvalidArgument, "want a version")
		}
		if _, err := c.jobs.ApplyJob(t.Context(), &apiv1.ApplyJobRequest{Job: &apiv1.Job{Name: "native", Handler: &apiv1.Handler{Name: "native:none"}}}); err != nil {
			t.Fatal(err)
		}
		native, err := c.jobs.TriggerJob(t.Context(), &apiv1.TriggerJobRequest{Name: "native"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.runs.CancelRun(t.Context(), &apiv1.CancelRunRequest{Id: native.Id}); err != nil {
			t.Fatal(err)
		}
		c.refused(&apiv1.RetryRunRequest{Id: c.wait(native.Id).Id, Module: "n@1"}, codes.InvalidArgument, "runs no module")
	})
}

// TestRetryOnHost retries a run on one host. The run waits while that host takes none, over a restart,
// and holds up no other run.
func TestRetryOnHost(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		w.addHost("h2", 1)
		time.Sleep(time.Second)
		c.apply(&apiv1.Job{Name: "j"})
		first := c.wait(c.trigger("j", ""))
		for _, host := range []string{"h1", "h2", "h1", "h2"} {
			if r := c.wait(c.retryWith(&apiv1.RetryRunRequest{Id: first.Id, Host: host}).Id); r.Host != host || r.BoundHost != host {
				t.Errorf("the retry for %s ran on %s, bound to %q", host, r.Host, r.BoundHost)
			}
		}
		cluster := func() apiv1.ClusterClient { return apiv1.NewClusterClient(c.conn) }
		if _, err := cluster().CordonHost(t.Context(), &apiv1.CordonHostRequest{Host: "h2"}); err != nil {
			t.Fatal(err)
		}
		var bound []string
		for range 5 {
			bound = append(bound, c.retryWith(&apiv1.RetryRunRequest{Id: first.Id, Host: "h2"}).Id)
		}
		if r := c.wait(c.trigger("j", "")); r.Host != "h1" || r.FinishedAt.AsTime().Sub(r.AcceptedAt.AsTime()) > time.Second {
			t.Errorf("a run behind those for h2: %v", r)
		}
		explained := func() *apiv1.ExplainRunResponse {
			why, err := c.runs.ExplainRun(t.Context(), &apiv1.ExplainRunRequest{Id: bound[0]})
			if err != nil {
				t.Fatal(err)
			}
			return why
		}
		why := explained()
		if why.Reason.GetCode() != "bound_host" || why.Reason.Values["host"] != "h2" || len(why.Hosts) != 2 {
			t.Errorf("explained: %v", why)
		}
		for _, h := range why.Hosts {
			if want := map[string]string{"h1": "other_host", "h2": "cordoned"}[h.Host]; h.Reason.GetCode() != want {
				t.Errorf("host %s: %v, want %s", h.Host, h, want)
			}
		}
		w.stopServer()
		w.start()
		c.reconnect(w)
		time.Sleep(5 * time.Second)
		if code := explained().Reason.GetCode(); code != "bound_host" {
			t.Errorf("after the restart: %s", code)
		}
		if _, err := cluster().UncordonHost(t.Context(), &apiv1.UncordonHostRequest{Host: "h2"}); err != nil {
			t.Fatal(err)
		}
		for _, id := range bound {
			if r := c.wait(id); r.Host != "h2" || r.State != "succeeded" {
				t.Errorf("after the cordon: %v", r)
			}
		}

		c.refused(&apiv1.RetryRunRequest{Id: first.Id, Host: "h9"}, codes.InvalidArgument, "no host with the id")
		c.apply(&apiv1.Job{Name: "parts", Fanout: &apiv1.Fanout{Mode: "shards", Shards: 2}})
		c.refused(&apiv1.RetryRunRequest{Id: c.wait(c.trigger("parts", "")).Id, Host: "h1"}, codes.InvalidArgument, "divided into parts")
		c.flow(&apiv1.Job{Name: "w"}, node("a"))
		c.refused(&apiv1.RetryRunRequest{Id: c.wait(c.trigger("w", "")).Id, Host: "h1"}, codes.InvalidArgument, "is a workflow")
	})
}

// TestRetryOnLostHost: a run that is bound to a host that has left waits for it.
func TestRetryOnLostHost(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		w.addHost("h2", 1)
		time.Sleep(time.Second)
		w.handlers.byJob["j"] = func(context.Context, runtime.Task, runtime.Sink) runtime.Result {
			return runtime.Result{Outcome: runtime.Permanent, Error: "no"}
		}
		c.apply(&apiv1.Job{Name: "j"})
		first := c.wait(c.trigger("j", ""))
		w.removeHost("h2")
		time.Sleep(time.Second)
		r, err := c.runs.RetryRun(t.Context(), &apiv1.RetryRunRequest{Id: first.Id, Host: "h2"})
		if err != nil {
			t.Fatal(err) // the server knows the host until its lease ends
		}
		time.Sleep(time.Minute)
		why, err := c.runs.ExplainRun(t.Context(), &apiv1.ExplainRunRequest{Id: r.Id})
		if err != nil || !strings.HasPrefix(why.Reason.GetCode(), "bound_host") || why.State != "queued" {
			t.Errorf("explained: %v, %v", why, err)
		}
		w.addHost("h2", 1)
		if r := c.wait(r.Id); r.Host != "h2" {
			t.Errorf("the run ran on %s", r.Host)
		}
	})
}
