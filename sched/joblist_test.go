package sched_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// TestJobFilters lists jobs by each condition and in each order, page by page, before and after a
// restart, which reads the jobs from their stored form.
func TestJobFilters(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		w.handlers.byJob["broken"] = func(context.Context, runtime.Task, runtime.Sink) runtime.Result {
			return runtime.Result{Outcome: runtime.Permanent, Error: "broken"}
		}
		apply := func(name, module string, s *apiv1.Schedule, more func(*apiv1.Job)) {
			j := &apiv1.Job{Name: name, Handler: &apiv1.Handler{Module: module}, Schedule: s}
			if more != nil {
				more(j)
			}
			if _, err := c.jobs.ApplyJob(t.Context(), &apiv1.ApplyJobRequest{Job: j}); err != nil {
				t.Fatal(err)
			}
		}
		apply("broken", "m@1", nil, nil)
		apply("Daily-Mail", "m@1", &apiv1.Schedule{Daily: &apiv1.Daily{From: "09:00"}}, func(j *apiv1.Job) { j.Owner = "ada" })
		apply("yearly", "", &apiv1.Schedule{Cron: "0 0 1 1 *"}, func(j *apiv1.Job) { j.Handler = &apiv1.Handler{Name: "native:n"} })
		apply("once", "m@1", &apiv1.Schedule{After: "24h"}, nil)
		apply("mail-queue", "m@1", &apiv1.Schedule{Every: "2h"}, func(j *apiv1.Job) { j.Paused = new(true) })
		c.wait(c.trigger("broken", ""))
		time.Sleep(time.Second)
		c.wait(c.trigger("Daily-Mail", ""))
		time.Sleep(time.Second)
		c.wait(c.trigger("once", ""))

		list := func(req *apiv1.ListJobsRequest) (names []string) {
			for range 20 {
				resp, err := c.jobs.ListJobs(t.Context(), req)
				if err != nil || len(resp.Jobs) > int(req.PageSize) {
					t.Fatalf("%v: %d jobs, %v", req, len(resp.GetJobs()), err)
				}
				for _, j := range resp.Jobs {
					names = append(names, j.Name)
				}
				if req.PageToken = resp.NextPageToken; req.PageToken == "" {
					return names
				}
			}
			t.Fatalf("%v: the list does not end", req)
			return nil
		}
		for range 2 {
			for _, tc := range []struct {
				req  *apiv1.ListJobsRequest
				want []string
			}{
				{&apiv1.ListJobsRequest{Contains: "MAIL"}, []string{"Daily-Mail", "mail-queue"}},
				{&apiv1.ListJobsRequest{Contains: "mail", Prefix: "m"}, []string{"mail-queue"}},
				{&apiv1.ListJobsRequest{Module: "m"}, []string{"Daily-Mail", "broken", "mail-queue", "once"}},
				{&apiv1.ListJobsRequest{Module: "m@1", Prefix: "o"}, []string{"once"}},
				{&apiv1.ListJobsRequest{Module: "m@"}, nil},
				{&apiv1.ListJobsRequest{Module: "m@2"}, nil},
				{&apiv1.ListJobsRequest{Schedule: "daily"}, []string{"Daily-Mail"}},
				{&apiv1.ListJobsRequest{Schedule: "every"}, []string{"mail-queue"}},
				{&apiv1.ListJobsRequest{Schedule: "after"}, []string{"once"}},
				{&apiv1.ListJobsRequest{Schedule: "none"}, []string{"broken"}},
				{&apiv1.ListJobsRequest{Paused: new(true)}, []string{"mail-queue"}},
				{&apiv1.ListJobsRequest{Paused: new(false), Module: "m@1"}, []string{"Daily-Mail", "broken", "once"}},
				{&apiv1.ListJobsRequest{Failing: true}, []string{"broken"}},
				{&apiv1.ListJobsRequest{Owner: "ada", Order: "last_run"}, []string{"Daily-Mail"}},
				{&apiv1.ListJobsRequest{Order: "name"}, []string{"Daily-Mail", "broken", "mail-queue", "once", "yearly"}},
				{&apiv1.ListJobsRequest{Order: "last_run"}, []string{"once", "Daily-Mail", "broken", "mail-queue", "yearly"}},
				{&apiv1.ListJobsRequest{Order: "next_time", Contains: "l"}, []string{"Daily-Mail", "yearly", "mail-queue"}},
			} {
				for _, size := range []int32{1, 2, 50} {
					tc.req.PageToken, tc.req.PageSize = "", size
					if got := list(tc.req); !slices.Equal(got, tc.want) {
						t.Errorf("%v: %v, want %v", tc.req, got, tc.want)
					}
				}
			}
			w.stopServer()
			w.start()
			c.reconnect(w)
		}
		for _, bad := range []*apiv1.ListJobsRequest{{Order: "size"}, {Schedule: "weekly"}, {PageToken: "%"}, {Order: "last_run", PageToken: "am9i"}} {
			if _, err := c.jobs.ListJobs(t.Context(), bad); status.Code(err) != codes.InvalidArgument {
				t.Errorf("%v: %v", bad, err)
			}
		}
	})
}

// TestManyJobsInOrder puts more jobs into an order than one turn of the loop examines.
func TestManyJobsInOrder(t *testing.T) {
	simulate(t, func(t *testing.T, _ *world, c *client) {
		const jobs = 5100
		for i := range jobs {
			c.apply(&apiv1.Job{Name: fmt.Sprintf("job-%04d", i), Schedule: &apiv1.Schedule{After: fmt.Sprintf("%dh", 100+jobs-i)}})
		}
		req, got := &apiv1.ListJobsRequest{Order: "next_time", PageSize: 1000}, 0
		for {
			resp, err := c.jobs.ListJobs(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			for _, j := range resp.Jobs {
				if got++; j.Name != fmt.Sprintf("job-%04d", jobs-got) {
					t.Fatalf("job %d of the list is %s", got, j.Name)
				}
			}
			if req.PageToken = resp.NextPageToken; req.PageToken == "" {
				break
			}
		}
		if got != jobs {
			t.Errorf("the list has %d jobs, want %d", got, jobs)
		}
	})
}
