package sched_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// under lists runs page by page, and returns them with the number of pages.
func (c *client) under(req *apiv1.ListRunsRequest) (runs []*apiv1.Run, pages int) {
	c.t.Helper()
	for {
		resp, err := c.runs.ListRuns(context.Background(), req)
		if err != nil {
			c.t.Fatal(err)
		}
		runs = append(runs, resp.Runs...)
		pages++
		if req.PageToken = resp.NextPageToken; req.PageToken == "" {
			return runs, pages
		}
	}
}

func numbers(runs []*apiv1.Run) []int32 {
	var n []int32
	for _, r := range runs {
		n = append(n, r.Part)
	}
	return n
}

func TestRunsUnderARun(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		w.handlers.byJob["shards"] = func(ctx context.Context, task runtime.Task, s runtime.Sink) runtime.Result {
			switch task.Part % 10 {
			case 3:
				return runtime.Result{Outcome: runtime.Permanent, Error: "three"}
			case 7:
				return sleeping(time.Hour)(ctx, task, s)
			}
			return runtime.Result{Outcome: runtime.Succeeded}
		}
		c.apply(&apiv1.Job{Name: "shards", Fanout: &apiv1.Fanout{Mode: "shards", Shards: 200}})
		w.removeHost("h1") // on a host with few slots, its parts that take an hour would delay its quick parts
		w.addHost("h1", 64)
		w.addHost("h2", 64)
		time.Sleep(time.Second)          // until both hosts have joined
		other := c.trigger("shards", "") // its parts must not appear in the list of the next run
		id := c.trigger("shards", "")
		time.Sleep(time.Minute)
		all, pages := c.under(&apiv1.ListRunsRequest{Parent: id, PageSize: 60})
		if len(all) != 200 || pages != 4 || !slices.IsSorted(numbers(all)) {
			t.Fatalf("%d runs on %d pages", len(all), pages)
		}
		for i, r := range all {
			want := map[int32]string{3: "failed", 7: "running"}[r.Part%10]
			if want == "" {
				want = "succeeded"
			}
			if r.Parent != id || r.Part != int32(i) || r.State != want || r.Input != "" {
				t.Fatalf("run %d: %v", i, r)
			}
		}
		for _, tc := range []struct {
			req  *apiv1.ListRunsRequest
			want int
		}{
			{&apiv1.ListRunsRequest{State: "unsuccessful"}, 20},
			{&apiv1.ListRunsRequest{State: "live", PageSize: 7}, 20},
			{&apiv1.ListRunsRequest{State: "ended", PageSize: 1000}, 180},
			{&apiv1.ListRunsRequest{State: "succeeded", PageSize: 1000}, 160},
			{&apiv1.ListRunsRequest{State: "skipped"}, 0},
			{&apiv1.ListRunsRequest{Job: "shards", State: "running"}, 20},
			{&apiv1.ListRunsRequest{Job: "another"}, 0},
			{&apiv1.ListRunsRequest{Host: "nowhere"}, 0},
		} {
			tc.req.Parent = id
			if got, _ := c.under(tc.req); len(got) != tc.want {
				t.Errorf("%v: %d runs, want %d", tc.req, len(got), tc.want)
			}
		}
		on := map[string]int{}
		for _, r := range all {
			on[r.Host]++
		}
		for _, host := range []string{"h1", "h2"} {
			if got, _ := c.under(&apiv1.ListRunsRequest{Parent: id, Host: host}); len(got) != on[host] {
				t.Errorf("%d runs are listed on %s, and %d are there", len(got), host, on[host])
			}
		}
		w.stopServer() // the history must show the same
		w.start()
		c.reconnect(w)
		if got, _ := c.under(&apiv1.ListRunsRequest{Parent: id}); len(got) != 200 {
			t.Errorf("after a restart: %d runs", len(got))
		}
		if got, _ := c.under(&apiv1.ListRunsRequest{Parent: other}); len(got) != 200 || got[0].Parent != other {
			t.Errorf("of the other one: %d runs", len(got))
		}
		// A plain run has no parts, and neither has a part.
		c.apply(&apiv1.Job{Name: "plain"})
		for _, id := range []string{c.wait(c.trigger("plain", "")).Id, all[0].Id} {
			if got, _ := c.under(&apiv1.ListRunsRequest{Parent: id}); len(got) != 0 {
				t.Errorf("under %s: %v", id, got)
			}
		}
		for _, tc := range []struct {
			req  *apiv1.ListRunsRequest
			code codes.Code
		}{
			{&apiv1.ListRunsRequest{Parent: "x"}, codes.InvalidArgument},
			{&apiv1.ListRunsRequest{Parent: strings.Repeat("0", 26)}, codes.NotFound},
			{&apiv1.ListRunsRequest{Parent: id, State: "odd"}, codes.InvalidArgument},
			{&apiv1.ListRunsRequest{Parent: id, PageToken: "live.1"}, codes.InvalidArgument},
			{&apiv1.ListRunsRequest{Parent: id, PageToken: "under.-1"}, codes.InvalidArgument},
			{&apiv1.ListRunsRequest{Parent: id, PageToken: "under.x"}, codes.InvalidArgument},
			{&apiv1.ListRunsRequest{PageToken: "under.1"}, codes.InvalidArgument},
		} {
			if _, err := c.runs.ListRuns(t.Context(), tc.req); status.Code(err) != tc.code {
				t.Errorf("%v: %v, want %s", tc.req, err, tc.code)
			}
		}
		if resp, err := c.runs.ListRuns(t.Context(), &apiv1.ListRunsRequest{Parent: id, PageToken: "under.99999"}); err != nil || len(resp.Runs) != 0 {
			t.Errorf("behind the end: %v, %v", resp, err)
		}
	})
}

func TestRunsUnderAWorkflow(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		for _, name := range []string{"a", "b", "c"} {
			c.apply(&apiv1.Job{Name: name})
		}
		w.handlers.byJob["b"] = func(context.Context, runtime.Task, runtime.Sink) runtime.Result {
			return runtime.Result{Outcome: runtime.Permanent, Error: "no"}
		}
		_, err := c.jobs.ApplyJob(t.Context(), &apiv1.ApplyJobRequest{Job: &apiv1.Job{Name: "flow", Workflow: &apiv1.Workflow{Nodes: []*apiv1.Node{
			{Name: "one", Job: "a"}, {Name: "two", Job: "b", After: []string{"one"}}, {Name: "three", Job: "c", After: []string{"two"}},
		}}}})
		if err != nil {
			t.Fatal(err)
		}
		r := c.wait(c.trigger("flow", ""))
		got, _ := c.under(&apiv1.ListRunsRequest{Parent: r.Id})
		if len(got) != 2 || got[0].Node != "one" || got[0].Job != "a" || got[1].Node != "two" || got[1].Cause != r.Id {
			t.Errorf("under the workflow: %v", got)
		}
	})
}

// TestRetryOfParts checks that a retry runs only the failed parts, though the fan-out of
// the job changed: a shard has the same share, and a part of a broadcast goes to the same
// host.
func TestRetryOfParts(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restart), func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world, c *client) {
				w.addHost("h2", 4)
				time.Sleep(time.Second)
				var mu sync.Mutex
				bad, ran := true, []string{}
				retry := func(id string) *apiv1.Run {
					t.Helper()
					mu.Lock()
					bad, ran = false, nil
					mu.Unlock()
					again, err := c.runs.RetryRun(t.Context(), &apiv1.RetryRunRequest{Id: id})
					if err != nil {
						t.Fatal(err)
					}
					if restart {
						w.stopServer()
						w.start()
						c.reconnect(w)
					}
					return c.wait(again.Id)
				}
				do := func(fails int) handler {
					return func(_ context.Context, task runtime.Task, _ runtime.Sink) runtime.Result {
						mu.Lock()
						defer mu.Unlock()
						ran = append(ran, fmt.Sprintf("%d/%d", task.Part, task.Parts))
						if bad && task.Part == fails {
							return runtime.Result{Outcome: runtime.Permanent, Error: "bad"}
						}
						return runtime.Result{Outcome: runtime.Succeeded}
					}
				}
				w.handlers.byJob["shards"] = do(7)
				c.apply(&apiv1.Job{Name: "shards", Fanout: &apiv1.Fanout{Mode: "shards", Shards: 10}})
				first := c.wait(c.trigger("shards", ""))
				c.apply(&apiv1.Job{Name: "shards", Fanout: &apiv1.Fanout{Mode: "shards", Shards: 4}})
				if r := retry(first.Id); r.State != "succeeded" || r.Parts != 10 || r.PartsSucceeded != 10 || !slices.Equal(ran, []string{"7/10"}) {
					t.Errorf("a shard of a job with fewer: %v, ran %q", r, ran)
				}
				bad = true
				w.handlers.byJob["all"] = do(1) // part 1, which runs on h2
				c.apply(&apiv1.Job{Name: "all", Fanout: &apiv1.Fanout{Mode: "broadcast"}})
				r := c.wait(c.trigger("all", ""))
				w.addHost("h0", 4)
				time.Sleep(time.Second)
				r = retry(r.Id)
				got, _ := c.under(&apiv1.ListRunsRequest{Parent: r.Id})
				if r.State != "succeeded" || r.Parts != 2 || len(got) != 1 || got[0].Part != 1 || got[0].Host != "h2" {
					t.Errorf("a part of a broadcast: %v, %v", r, got)
				}
				// If the job fans out in another mode now, a retry starts from the
				// beginning.
				bad = true
				c.apply(&apiv1.Job{Name: "shards", Fanout: &apiv1.Fanout{Mode: "shards", Shards: 8}})
				r = c.wait(c.trigger("shards", ""))
				c.apply(&apiv1.Job{Name: "shards", Fanout: &apiv1.Fanout{Mode: "broadcast"}})
				if r = retry(r.Id); r.State != "succeeded" || r.Parts != 3 || r.PartsSucceeded != 3 || len(ran) != 3 {
					t.Errorf("in another way: %v, ran %q", r, ran)
				}
			})
		})
	}
}

// TestRetryOfARetryThatNeverBegan checks that parts which succeeded in an earlier run do
// not run again after a retry that was cancelled before it began.
func TestRetryOfARetryThatNeverBegan(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		var mu sync.Mutex
		bad, slow, ran := true, false, []string{}
		w.handlers.byJob["shards"] = func(_ context.Context, task runtime.Task, _ runtime.Sink) runtime.Result {
			mu.Lock()
			defer mu.Unlock()
			if slow {
				mu.Unlock()
				time.Sleep(10 * time.Second)
				mu.Lock()
				return runtime.Result{Outcome: runtime.Succeeded}
			}
			ran = append(ran, fmt.Sprintf("%d/%d", task.Part, task.Parts))
			if bad && task.Part == 2 {
				return runtime.Result{Outcome: runtime.Permanent, Error: "bad"}
			}
			return runtime.Result{Outcome: runtime.Succeeded}
		}
		c.apply(&apiv1.Job{Name: "shards", Overlap: &apiv1.Overlap{Policy: "queue"}, Fanout: &apiv1.Fanout{Mode: "shards", Shards: 4}})
		id := c.wait(c.trigger("shards", "")).Id
		mu.Lock()
		slow = true
		mu.Unlock()
		c.trigger("shards", "") // the retries wait for this run
		time.Sleep(time.Second)
		for range 2 {
			r, err := c.runs.RetryRun(t.Context(), &apiv1.RetryRunRequest{Id: id})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.runs.CancelRun(t.Context(), &apiv1.CancelRunRequest{Id: r.Id}); err != nil {
				t.Fatal(err)
			}
			if r = c.wait(r.Id); r.State != "cancelled" || r.Parts != 0 {
				t.Errorf("a retry that was cancelled before it began: %v", r)
			}
			id = r.Id
		}
		mu.Lock()
		bad, slow, ran = false, false, nil
		mu.Unlock()
		r, err := c.runs.RetryRun(t.Context(), &apiv1.RetryRunRequest{Id: id})
		if err != nil {
			t.Fatal(err)
		}
		if r = c.wait(r.Id); r.State != "succeeded" || r.Parts != 4 || r.PartsSucceeded != 4 || !slices.Equal(ran, []string{"2/4"}) {
			t.Errorf("%v, ran %q", r, ran)
		}
	})
}

// TestBroadcastAfterARestart checks that a broadcast which is due while the hosts
// reconnect one after another runs on all of them.
func TestBroadcastAfterARestart(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		for _, id := range []string{"h2", "h3", "h4", "h5"} {
			w.addHost(id, 1)
		}
		time.Sleep(time.Second)
		c.apply(&apiv1.Job{Name: "all", Fanout: &apiv1.Fanout{Mode: "broadcast"}})
		w.stopServer()
		w.start()
		c.reconnect(w)
		id := c.trigger("all", "")
		if x, err := c.runs.ExplainRun(t.Context(), &apiv1.ExplainRunRequest{Id: id}); err != nil || !strings.Contains(x.Why, "waits until its hosts are back") {
			t.Errorf("explain: %v, %v", x, err)
		}
		if r := c.wait(id); r.State != "succeeded" || r.Parts != 5 {
			t.Errorf("the broadcast: %v", r)
		}
	})
}
