package sched_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// TestPauseOfAJobEnds checks that the server resumes a paused job at the end of its pause: one job,
// many of a selection, over a restart, and after a server that was off at the end.
func TestPauseOfAJobEnds(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		ctx := context.Background()
		for i := range 20 {
			c.apply(&apiv1.Job{Name: fmt.Sprintf("j%02d", i), Labels: map[string]string{"team": "a"}, Schedule: &apiv1.Schedule{Every: "20m"}})
		}
		get := func(name string) *apiv1.Job {
			j, err := c.jobs.GetJob(ctx, &apiv1.GetJobRequest{Name: name})
			if err != nil {
				t.Fatal(err)
			}
			return j
		}
		until := time.Now().Add(time.Minute)
		j, err := c.jobs.PauseJob(ctx, &apiv1.PauseJobRequest{Name: "j00", Reason: "the database moves", Until: timestamppb.New(until)})
		if err != nil || !j.GetPaused() || j.Pause.GetReason() != "the database moves" || !j.Pause.Until.AsTime().Equal(until) || j.NextAt != nil {
			t.Fatalf("pause: %v, %v", j, err)
		}
		since := j.Pause.Since.AsTime()
		// An update leaves the pause alone, and a second pause replaces its end.
		c.apply(&apiv1.Job{Name: "j00", Description: "changed", Labels: map[string]string{"team": "a"}, Schedule: &apiv1.Schedule{Every: "20m"}})
		if j := get("j00"); !j.GetPaused() || j.Pause.GetReason() == "" || j.Description != "changed" {
			t.Errorf("after an update: %v", j)
		}
		time.Sleep(10 * time.Second)
		if j, err = c.jobs.PauseJob(ctx, &apiv1.PauseJobRequest{Name: "j00", Reason: "longer", Until: timestamppb.New(until.Add(time.Minute))}); err != nil || !j.Pause.Since.AsTime().Equal(since) {
			t.Errorf("the second pause: %v, %v, want one since %s", j, err, since)
		}
		bulk, err := c.jobs.BulkJobs(ctx, &apiv1.BulkJobsRequest{Action: "pause", Labels: map[string]string{"team": "a"}, Prefix: "j1", Reason: "many", Until: timestamppb.New(until)})
		if err != nil || bulk.Changed != 10 {
			t.Fatalf("bulk: %v, %v", bulk, err)
		}
		w.stopServer()
		w.start()
		c.reconnect(w)
		time.Sleep(time.Until(until) - time.Millisecond)
		if j := get("j15"); !j.GetPaused() || j.Pause.GetReason() != "many" {
			t.Errorf("1 ms before the end: %v", j)
		}
		time.Sleep(100 * time.Millisecond)
		for i := 10; i < 20; i++ {
			if j := get(fmt.Sprintf("j%d", i)); j.GetPaused() || j.Pause != nil || j.NextAt == nil || j.ChangedBy != "server" {
				t.Errorf("after the end: %v", j)
			}
		}
		if j := get("j00"); !j.GetPaused() {
			t.Errorf("the first end, which was replaced, has resumed the job: %v", j)
		}
		w.stopServer()
		time.Sleep(10 * time.Minute)
		w.start()
		c.reconnect(w)
		time.Sleep(time.Second)
		if j := get("j00"); j.GetPaused() || j.NextAt == nil {
			t.Errorf("after a server that was off at the end: %v", j)
		}

		// A call ends a pause early, and its end changes nothing then.
		if _, err := c.jobs.PauseJob(ctx, &apiv1.PauseJobRequest{Name: "j01", Until: timestamppb.New(time.Now().Add(time.Hour))}); err != nil {
			t.Fatal(err)
		}
		if j, err := c.jobs.ResumeJob(ctx, &apiv1.ResumeJobRequest{Name: "j01"}); err != nil || j.GetPaused() || j.Pause != nil {
			t.Errorf("resume: %v, %v", j, err)
		}
		revision := get("j01").Revision
		time.Sleep(2 * time.Hour)
		if j := get("j01"); j.Revision != revision {
			t.Errorf("the end of a pause that was over made revision %d after %d", j.Revision, revision)
		}
		for _, bad := range []*apiv1.PauseJobRequest{
			{Name: "j01", Until: timestamppb.New(time.Now())},
			{Name: "j01", Until: &timestamppb.Timestamp{Nanos: -1}},
			{Name: "j01", Reason: strings.Repeat("x", 501)},
		} {
			if _, err := c.jobs.PauseJob(ctx, bad); status.Code(err) != codes.InvalidArgument {
				t.Errorf("%v: %v", bad, err)
			}
		}
		if _, err := c.jobs.BulkJobs(ctx, &apiv1.BulkJobsRequest{Action: "resume", All: true, Reason: "x"}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("a resumption with a reason: %v", err)
		}
	})
}
