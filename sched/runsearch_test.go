package sched_test

import (
	"context"
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

// TestSearchPayloads finds live and ended runs by their inputs and outputs, also after a restart.
// Deleted payloads do not match, and no answer has a payload.
func TestSearchPayloads(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		start := timestamppb.New(time.Now())
		w.handlers.byJob["echo"] = func(_ context.Context, t runtime.Task, _ runtime.Sink) runtime.Result {
			return runtime.Result{Outcome: runtime.Succeeded, Output: append([]byte("out "), t.Input...)}
		}
		w.handlers.byJob["json"] = func(context.Context, runtime.Task, runtime.Sink) runtime.Result {
			return runtime.Result{Outcome: runtime.Succeeded, Output: []byte(`{"total": 12345678901234567890, "ok": true}`)}
		}
		w.handlers.byJob["slow"] = sleeping(24 * time.Hour)
		for _, name := range []string{"echo", "json", "slow"} {
			c.apply(&apiv1.Job{Name: name, Input: "of the job " + name})
		}
		with := func(name, input string) string {
			run, err := c.jobs.TriggerJob(t.Context(), &apiv1.TriggerJobRequest{Name: name, Input: &input})
			if err != nil {
				t.Fatal(err)
			}
			return run.Id
		}
		german := `{"data": {"country": "DE", "lines": [{"sku": "A-1"}]}}`
		c.wait(with("echo", "customer 42"))
		c.wait(with("echo", "customer 4"))
		own := c.wait(c.trigger("echo", ""))
		c.wait(with("json", german))
		gone := c.wait(with("json", german))
		with("slow", german)
		if n := c.remove(gone.Id, true); n != 1 {
			t.Fatalf("%d payloads deleted", n)
		}
		time.Sleep(time.Second)
		values := func(pairs ...string) map[string]string {
			m := map[string]string{}
			for pair := range slices.Chunk(pairs, 2) {
				m[pair[0]] = pair[1]
			}
			return m
		}
		for range 2 {
			for _, tt := range []struct {
				req  *apiv1.ListRunsRequest
				want int
			}{
				{&apiv1.ListRunsRequest{Input: "customer 4"}, 2},
				{&apiv1.ListRunsRequest{Input: "customer 42"}, 1},
				{&apiv1.ListRunsRequest{Input: "Customer 42"}, 0},
				{&apiv1.ListRunsRequest{Input: "of the job echo"}, 1},
				{&apiv1.ListRunsRequest{Output: "out of the job"}, 1},
				{&apiv1.ListRunsRequest{Output: "out", PageSize: 1}, 3},
				{&apiv1.ListRunsRequest{Input: "customer", Output: "42"}, 1},
				{&apiv1.ListRunsRequest{Input: "country"}, 2},
				{&apiv1.ListRunsRequest{Input: "country", State: "live"}, 1},
				{&apiv1.ListRunsRequest{Input: "country", State: "ended"}, 1},
				{&apiv1.ListRunsRequest{Input: "country", Labels: map[string]string{"no": "label"}}, 0},
				{&apiv1.ListRunsRequest{InputValues: values("data.country", "DE"), PageSize: 1}, 2},
				{&apiv1.ListRunsRequest{InputValues: values("data.country", "D*", "data.lines.0.sku", "A-1")}, 2},
				{&apiv1.ListRunsRequest{InputValues: values("data.country", "D")}, 0},
				{&apiv1.ListRunsRequest{InputValues: values("data.lines", "A-1")}, 0},
				{&apiv1.ListRunsRequest{OutputValues: values("total", "12345678901234567890", "ok", "true")}, 1},
				{&apiv1.ListRunsRequest{OutputValues: values("total", "12345678901234567891")}, 0},
			} {
				tt.req.Since = start
				got, _ := c.under(tt.req)
				if len(got) != tt.want {
					t.Errorf("%v: %d runs, want %d", tt.req, len(got), tt.want)
				}
				for _, r := range got {
					if r.Input+r.Output != "" {
						t.Errorf("%v: a list has the payload of %v", tt.req, r)
					}
				}
			}
			page, err := c.runs.ListRuns(t.Context(), &apiv1.ListRunsRequest{Input: "no run has this", Since: start})
			if err != nil || page.Examined != 6 || page.ExaminedNewest == nil || page.ExaminedOldest.AsTime().After(own.FinishedAt.AsTime()) {
				t.Errorf("the search has examined %v: %v", page, err)
			}
			w.stopServer()
			w.start()
			c.reconnect(w)
		}
		many := map[string]string{}
		for n := range 17 {
			many[strings.Repeat("x", n+1)] = ""
		}
		for want, bad := range map[string]*apiv1.ListRunsRequest{
			"set since":                    {Input: "x"},
			"needs the start":              {OutputValues: values("a", "b"), Until: start},
			"the limit is 1024":            {Output: strings.Repeat("x", 1025), Since: start},
			"output_values has 17":         {OutputValues: many, Since: start},
			"input_values: the path \"a..": {InputValues: values("a..b", "c"), Since: start},
		} {
			if _, err := c.runs.ListRuns(t.Context(), bad); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: %v, want %q", bad, err, want)
			}
		}
	})
}
