package sched_test

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// TestWhoDidIt creates, changes and triggers a job as two callers, in each way in which a run starts:
// jobs and runs name them, also after a restart and when the run is in the history.
func TestWhoDidIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAudited(t, false)
		defer a.end()
		c := a.c
		job := &apiv1.Job{Name: "j", Owner: "the money team", Handler: &apiv1.Handler{Name: "native:any"}, Schedule: &apiv1.Schedule{Every: "1h"}}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		apply := func() {
			t.Helper()
			_, err := c.jobs.ApplyJob(a.admin, &apiv1.ApplyJobRequest{Job: job})
			must(err)
		}
		apply()
		wantJob := func(created, changed string) {
			t.Helper()
			j, err := c.jobs.GetJob(a.admin, &apiv1.GetJobRequest{Name: "j"})
			must(err)
			if j.CreatedBy != created || j.ChangedBy != changed || j.Owner != "the money team" {
				t.Errorf("created by %q, changed by %q, want %q and %q; owned by %q", j.CreatedBy, j.ChangedBy, created, changed, j.Owner)
			}
		}
		wantJob("admin", "admin")
		a.restart()
		wantJob("admin", "admin")

		runs := map[string]string{} // by id: the caller
		r, err := c.jobs.TriggerJob(a.admin, &apiv1.TriggerJobRequest{Name: "j", Input: proto.String("{}")})
		must(err)
		runs[r.Id] = "admin"
		stream, err := apiv1.NewProducerClient(c.conn).Produce(a.admin)
		must(err)
		must(stream.Send(&apiv1.ProduceRequest{Number: 1, Commands: []*apiv1.Command{{Kind: &apiv1.Command_Trigger{Trigger: &apiv1.TriggerJobRequest{Name: "j"}}}}}))
		answer, err := stream.Recv()
		must(err)
		runs[answer.Results[0].RunId] = "admin"
		must(stream.CloseSend())
		_, err = c.runs.CancelRun(a.admin, &apiv1.CancelRunRequest{Id: r.Id}) // no host runs it
		must(err)
		again, err := c.runs.RetryRun(a.admin, &apiv1.RetryRunRequest{Id: r.Id})
		must(err)
		runs[again.Id] = "admin"
		time.Sleep(time.Hour) // and one by the schedule
		list, err := c.runs.ListRuns(a.admin, &apiv1.ListRunsRequest{Job: "j", PageSize: 10})
		must(err)
		scheduled := 0
		for _, run := range list.Runs {
			if run.Trigger == "schedule" {
				scheduled++
				runs[run.Id] = ""
			}
		}
		if scheduled == 0 {
			t.Error("no run of the schedule")
		}
		check := func() {
			t.Helper()
			for id, by := range runs {
				got, err := c.runs.GetRun(a.admin, &apiv1.GetRunRequest{Id: id})
				must(err)
				if got.TriggeredBy != by {
					t.Errorf("a run by %s was triggered by %q, want %q", got.Trigger, got.TriggeredBy, by)
				}
			}
		}
		check()
		a.restart()
		check()

		// Another caller changes the job: its creator stays.
		made, err := apiv1.NewAccessClient(c.conn).CreateToken(a.admin, &apiv1.CreateTokenRequest{Name: "ci", Role: "deployer", Scope: "app:default"})
		must(err)
		job.Description = "changed"
		_, err = c.jobs.ApplyJob(withToken(t, made.Token), &apiv1.ApplyJobRequest{Job: job})
		must(err)
		wantJob("admin", "ci")
		apply() // it is unchanged
		wantJob("admin", "ci")
		for owner, n := range map[string]int{"": 1, "the money team": 1, "the": 0} {
			l, err := c.jobs.ListJobs(a.admin, &apiv1.ListJobsRequest{Owner: owner})
			must(err)
			if len(l.Jobs) != n {
				t.Errorf("%d jobs of owner %q, want %d", len(l.Jobs), owner, n)
			}
		}
		for _, wrong := range []string{" ada", "a\nb", string(make([]byte, 129))} {
			bad := proto.CloneOf(job)
			bad.Owner = wrong
			if _, err := c.jobs.ApplyJob(a.admin, &apiv1.ApplyJobRequest{Job: bad}); status.Code(err) != codes.InvalidArgument {
				t.Errorf("the owner %q: %v", wrong, err)
			}
		}
	})
}
