package sched_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// TestRunFilters checks the filters of a list by trigger, label and time, in the memory of
// the server and in its history.
func TestRunFilters(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		start := time.Now()
		team := func(name string) map[string]string { return map[string]string{"team": name, "tier": "1"} }
		w.handlers.byJob["slow"] = sleeping(24 * time.Hour)
		c.apply(&apiv1.Job{Name: "ticks", Labels: team("money"), Schedule: &apiv1.Schedule{Every: "1s"}})
		c.apply(&apiv1.Job{Name: "once", Labels: team("mail")})
		c.apply(&apiv1.Job{Name: "slow", Labels: team("mail")})
		time.Sleep(10 * time.Minute) // 600 runs of ticks
		c.wait(c.trigger("once", ""))
		time.Sleep(time.Second)
		mid := time.Now()
		time.Sleep(10 * time.Minute)
		c.trigger("slow", "")
		c.wait(c.trigger("once", ""))
		c.apply(&apiv1.Job{Name: "ticks", Labels: team("money"), Paused: new(true), Schedule: &apiv1.Schedule{Every: "1s"}})
		c.apply(&apiv1.Job{Name: "once", Labels: map[string]string{"team": "other"}}) // its runs keep their labels
		time.Sleep(time.Minute)

		at := timestamppb.New
		for range 2 {
			all, _ := c.under(&apiv1.ListRunsRequest{PageSize: 1000})
			count := func(keep func(*apiv1.Run) bool) (n int) {
				for _, r := range all {
					if keep(r) {
						n++
					}
				}
				return n
			}
			if n := count(func(r *apiv1.Run) bool { return r.Job == "ticks" }); n < 1150 || len(all) != n+3 {
				t.Fatalf("%d runs, %d of them of ticks: the test wants about 1200", len(all), n)
			}
			earlier := count(func(r *apiv1.Run) bool { return r.FinishedAt != nil && r.FinishedAt.AsTime().Before(mid) })
			for _, tc := range []struct {
				req  *apiv1.ListRunsRequest
				want int
			}{
				{&apiv1.ListRunsRequest{Triggers: []string{"manual"}, PageSize: 1}, 3},
				{&apiv1.ListRunsRequest{Triggers: []string{"manual", "retry"}, State: "live"}, 1},
				{&apiv1.ListRunsRequest{Triggers: []string{"manual", "schedule"}, PageSize: 7}, len(all)},
				{&apiv1.ListRunsRequest{Triggers: []string{"backfill"}}, 0},
				{&apiv1.ListRunsRequest{Labels: map[string]string{"team": "mail"}}, 3},
				{&apiv1.ListRunsRequest{Labels: map[string]string{"team": "mail", "tier": "1"}, State: "succeeded"}, 2},
				{&apiv1.ListRunsRequest{Labels: map[string]string{"team": "other"}}, 0},
				{&apiv1.ListRunsRequest{Labels: map[string]string{"team": "mail", "tier": "2"}}, 0},
				{&apiv1.ListRunsRequest{Since: at(start)}, len(all)},
				{&apiv1.ListRunsRequest{Since: at(mid), Job: "once"}, 1},
				{&apiv1.ListRunsRequest{Until: at(mid), Job: "once"}, 1},
				{&apiv1.ListRunsRequest{Until: at(mid), PageSize: 100}, earlier},
				{&apiv1.ListRunsRequest{Since: at(mid), PageSize: 100}, len(all) - earlier},
				{&apiv1.ListRunsRequest{Since: at(time.Now()), State: "live"}, 1},
				{&apiv1.ListRunsRequest{Until: at(time.Now()), State: "live"}, 0},
				{&apiv1.ListRunsRequest{Until: at(time.Now().Add(time.Hour)), State: "live"}, 1},
				{&apiv1.ListRunsRequest{Since: at(mid), Until: at(mid.Add(time.Minute)), Triggers: []string{"manual"}}, 0},
			} {
				got, _ := c.under(tc.req)
				ids := map[string]bool{}
				for _, r := range got {
					ids[r.Id] = true
				}
				if len(got) != tc.want || len(ids) != tc.want {
					t.Errorf("%v: %d runs, %d different ones; want %d", tc.req, len(got), len(ids), tc.want)
				}
			}
			if r := c.all("once", "")[0]; r.Labels["team"] != "mail" {
				t.Errorf("labels %v, want those of the job when the run was accepted", r.Labels)
			}
			w.stopServer()
			w.start()
			c.reconnect(w)
		}
		for _, bad := range []*apiv1.ListRunsRequest{
			{Triggers: []string{"cron"}},
			{Since: &timestamppb.Timestamp{Seconds: -5}},
			{Since: at(mid), Until: at(start)},
		} {
			if _, err := c.runs.ListRuns(t.Context(), bad); status.Code(err) != codes.InvalidArgument {
				t.Errorf("%v: %v", bad, err)
			}
		}
		jobs := func(labels map[string]string, size int32) (names []string) {
			req := &apiv1.ListJobsRequest{Labels: labels, PageSize: size}
			for {
				resp, err := c.jobs.ListJobs(t.Context(), req)
				if err != nil || len(resp.Jobs) > int(size) {
					t.Fatalf("%v: %d jobs, %v", req, len(resp.GetJobs()), err)
				}
				for _, j := range resp.Jobs {
					names = append(names, j.Name)
				}
				if req.PageToken = resp.NextPageToken; req.PageToken == "" {
					return names
				}
			}
		}
		if got := jobs(map[string]string{"tier": "1"}, 1); !slices.Equal(got, []string{"slow", "ticks"}) {
			t.Errorf("jobs of tier 1: %v", got)
		}
		if got := jobs(map[string]string{"tier": "1", "team": "other"}, 10); len(got) != 0 {
			t.Errorf("jobs of tier 1 and team other: %v", got)
		}
	})
}

// TestBulkRuns cancels and retries many runs, and repeats each call.
func TestBulkRuns(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		ctx := t.Context()
		broken := true
		w.handlers.byJob["fails"] = func(context.Context, runtime.Task, runtime.Sink) runtime.Result {
			if broken {
				return runtime.Result{Outcome: runtime.Permanent, Error: "broken"}
			}
			return runtime.Result{Outcome: runtime.Succeeded}
		}
		w.handlers.byJob["slow"] = sleeping(24 * time.Hour)
		c.apply(&apiv1.Job{Name: "fails", Labels: map[string]string{"team": "money"}})
		c.apply(&apiv1.Job{Name: "parts", Handler: &apiv1.Handler{Module: "m@1"}, Fanout: &apiv1.Fanout{Mode: "shards", Shards: 3}})
		w.handlers.byJob["parts"] = w.handlers.byJob["fails"]
		c.apply(&apiv1.Job{Name: "slow"})
		for i := range 100 {
			c.trigger("fails", fmt.Sprint("fails-", i))
		}
		c.wait(c.trigger("parts", ""))
		for range 5 {
			c.trigger("slow", "")
		}
		time.Sleep(time.Minute)
		bulk := func(req *apiv1.BulkRunsRequest) *apiv1.BulkRunsResponse {
			t.Helper()
			all := &apiv1.BulkRunsResponse{}
			for {
				resp, err := c.runs.BulkRuns(ctx, req)
				if err != nil {
					t.Fatal(err)
				}
				all.Matched += resp.Matched
				all.Changed += resp.Changed
				all.Failures = append(all.Failures, resp.Failures...)
				if req.PageToken = resp.NextPageToken; req.PageToken == "" {
					return all
				}
			}
		}
		check := func(req *apiv1.BulkRunsRequest, matched, changed int32) {
			t.Helper()
			if got := bulk(req); got.Matched != matched || got.Changed != changed || len(got.Failures) != 0 {
				t.Errorf("%v: matched %d, changed %d, failures %q; want %d and %d", req, got.Matched, got.Changed, got.Failures, matched, changed)
			}
		}
		check(&apiv1.BulkRunsRequest{Action: "retry", All: true, DryRun: true}, 101, 0)
		check(&apiv1.BulkRunsRequest{Action: "retry", Labels: map[string]string{"team": "money"}, State: "timed_out"}, 0, 0)
		broken = false
		check(&apiv1.BulkRunsRequest{Action: "retry", All: true}, 101, 101)
		check(&apiv1.BulkRunsRequest{Action: "retry", All: true}, 101, 101) // finds the retries of the first call
		time.Sleep(time.Minute)
		retries, _ := c.under(&apiv1.ListRunsRequest{Triggers: []string{"retry"}, State: "succeeded"})
		causes := map[string]bool{}
		for _, r := range retries {
			causes[r.Cause] = true
		}
		if len(retries) != 101 || len(causes) != 101 {
			t.Errorf("%d retries of %d runs, want one each of 101", len(retries), len(causes))
		}
		check(&apiv1.BulkRunsRequest{Action: "cancel", Job: "fails"}, 0, 0)
		check(&apiv1.BulkRunsRequest{Action: "cancel", All: true, DryRun: true}, 5, 0)
		check(&apiv1.BulkRunsRequest{Action: "cancel", Job: "slow"}, 5, 5)
		time.Sleep(time.Minute)
		check(&apiv1.BulkRunsRequest{Action: "cancel", All: true}, 0, 0)
		for _, bad := range []*apiv1.BulkRunsRequest{
			{Action: "cancel"},
			{Action: "retry", State: "failed"},
			{Action: "explode", All: true},
			{Action: "cancel", All: true, State: "failed"},
			{Action: "retry", All: true, State: "live"},
			{Action: "retry", All: true, State: "odd"},
			{Action: "retry", All: true, PageToken: "odd"},
		} {
			if _, err := c.runs.BulkRuns(ctx, bad); status.Code(err) != codes.InvalidArgument {
				t.Errorf("%v: %v", bad, err)
			}
		}
		if _, err := c.jobs.DeleteJob(ctx, &apiv1.DeleteJobRequest{Name: "slow", Force: true}); err != nil {
			t.Fatal(err)
		}
		got := bulk(&apiv1.BulkRunsRequest{Action: "retry", Job: "slow"})
		if got.Matched != 5 || got.Changed != 0 || len(got.Failures) != 5 || !strings.Contains(got.Failures[0], "slow") {
			t.Errorf("retries of a deleted job: %v", got)
		}
	})
}

// TestRetentionOfAnApp checks that an app's own retention counts, also after a restart.
func TestRetentionOfAnApp(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		ctx, apps := t.Context(), apiv1.NewAppsClient(c.conn)
		c.apply(&apiv1.Job{Name: "once"})
		id := c.trigger("once", "")
		c.wait(id)
		if _, err := apps.PutApp(ctx, &apiv1.PutAppRequest{App: &apiv1.App{Name: "default", RetainRuns: "2h"}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if len(c.all("once", "")) != 1 {
			t.Error("the run is gone before its retention")
		}
		time.Sleep(2 * time.Hour)
		for range 2 {
			if _, err := c.runs.GetRun(ctx, &apiv1.GetRunRequest{Id: id}); status.Code(err) != codes.NotFound || len(c.all("once", "")) != 0 {
				t.Errorf("past its retention: %v, %d runs listed", err, len(c.all("once", "")))
			}
			w.stopServer()
			w.start()
			c.reconnect(w)
			apps = apiv1.NewAppsClient(c.conn)
		}
		for _, bad := range []*apiv1.App{{Name: "default", RetainRuns: "1d"}, {Name: "default", RetainLogs: "5s"}, {Name: "default", RetainLogs: "-1h"}} {
			if _, err := apps.PutApp(ctx, &apiv1.PutAppRequest{App: bad}); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "retain_") {
				t.Errorf("%v: %v", bad, err)
			}
		}
	})
}
