package node_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// ended waits for the end of an operation.
func ended(t *testing.T, c *sdk.Client, op *sdk.Operation) *sdk.Operation {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) { // real processes
		got, err := c.Operation(t.Context(), op.GetApp(), op.GetId())
		if err != nil {
			t.Fatal(err)
		}
		if got.GetState() != "running" {
			return got
		}
		if time.Now().After(deadline) {
			t.Fatalf("it does not end: %v", got)
		}
	}
}

func idleJobs(app string, n int) (all []proto.Message) {
	for i := range n {
		all = append(all, &sdk.Job{App: app, Name: fmt.Sprintf("job-%03d", i), Handler: &sdk.Handler{Name: "native:none"}, Schedule: &sdk.Schedule{Cron: "0 0 1 1 *"}})
	}
	return all
}

// TestOperation changes many jobs as a user with a token: each change is its own, an audit event names
// the operation, and without the token the operation ends.
func TestOperation(t *testing.T) {
	t.Parallel()
	p := dev(t, node.DevConfig{Data: t.TempDir()})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client := func(token string) *sdk.Client {
		c, err := sdk.Dial(ctx, p.URL, sdk.Options{Token: token})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() }) //nolint:errcheck // a test's
		return c
	}
	admin := client(p.Token)
	const jobs = 300
	if _, err := admin.ApplyChangeSet(ctx, sdk.ChangeSet{App: "shop", Definitions: idleJobs("shop", jobs), CreateApp: true}); err != nil {
		t.Fatal(err)
	}
	made, err := admin.CreateToken(ctx, "ann", "operator", sdk.AppScope("shop"), "")
	if err != nil {
		t.Fatal(err)
	}
	ann := client(made.GetToken())
	pause := &sdk.OperationRequest{App: "shop", Kind: sdk.PauseJobs, Jobs: &sdk.JobSelection{Prefix: "job-0"}, Note: "maintenance"}
	seen, err := ann.PreviewOperation(ctx, pause)
	if err != nil || seen.GetMatched() != 100 || len(seen.GetJobs()) != 20 {
		t.Fatalf("preview: %d jobs, %d shown, %v", seen.GetMatched(), len(seen.GetJobs()), err)
	}
	op, err := ann.StartOperation(ctx, pause)
	if err != nil {
		t.Fatal(err)
	}
	if op = ended(t, ann, op); op.GetState() != "done" || op.GetDone() != 100 || op.GetTotal() != 100 || op.GetCaller() != "ann" || op.GetNote() != "maintenance" {
		t.Fatalf("%v", op)
	}
	for name, paused := range map[string]bool{"job-042": true, "job-142": false} {
		if j, err := admin.Job(ctx, "shop", name); err != nil || j.GetPaused() != paused {
			t.Errorf("%s: %v, %v", name, j, err)
		}
	}
	n := 0
	for e, err := range admin.AuditEvents(ctx, sdk.AuditQuery{App: "shop", Actor: "ann", Code: "job.changed"}) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; e.GetToken() != made.GetId() || e.GetMessage() != "maintenance (operation "+op.GetId()+")" {
			t.Fatalf("an event of the operation: %v", e)
		}
	}
	if n != 100 {
		t.Errorf("%d audit events of ann, want one for each change", n)
	}

	for _, refused := range []*sdk.OperationRequest{
		{App: "shop", Kind: sdk.DeleteJobs, All: true}, // it needs jobs.write
		{App: "default", Kind: sdk.PauseJobs, All: true},
	} {
		if _, err := ann.StartOperation(ctx, refused); !errors.Is(err, sdk.ErrDenied) {
			t.Errorf("%v: %v", refused, err)
		}
	}
	elsewhere, err := admin.StartOperation(ctx, &sdk.OperationRequest{App: "default", Kind: sdk.PauseJobs, All: true})
	if err != nil {
		t.Fatal(err)
	}
	if all, err := ann.AllOperations(ctx); err != nil || len(all) != 1 || all[0].GetId() != op.GetId() {
		t.Errorf("ann sees %v, %v", all, err)
	}
	if all, err := admin.AllOperations(ctx); err != nil || len(all) != 2 || all[0].GetId() != elsewhere.GetId() {
		t.Errorf("the administrator sees %v, %v", all, err)
	}

	resume, err := ann.StartOperation(ctx, &sdk.OperationRequest{App: "shop", Kind: sdk.ResumeJobs, All: true})
	if err != nil {
		t.Fatal(err)
	}
	other, err := ann.StartOperation(ctx, &sdk.OperationRequest{App: "shop", Kind: sdk.PauseJobs, All: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CancelOperation(ctx, "shop", other.GetId()); err != nil {
		t.Fatal(err)
	}
	if other = ended(t, admin, other); other.GetState() != "cancelled" || other.GetDone()+other.GetSkipped() >= jobs {
		t.Errorf("a cancelled operation: %v", other)
	}
	if _, err := admin.CancelOperation(ctx, "shop", other.GetId()); err != nil { // it has ended
		t.Fatal(err)
	}
	var events []string
	for e, err := range admin.AuditEvents(ctx, sdk.AuditQuery{App: "shop", Code: "operation."}) {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, strings.TrimPrefix(e.GetCode(), "operation.")+" by "+e.GetActor()+": "+e.GetObject()+" "+e.GetAfter()+" "+e.GetMessage())
	}
	slices.Sort(events)
	want := []string{
		"cancelled by admin: " + other.GetId() + " jobs.pause: all ",
		"started by ann: " + op.GetId() + " jobs.pause: prefix=job-0 maintenance",
		"started by ann: " + other.GetId() + " jobs.pause: all ",
		"started by ann: " + resume.GetId() + " jobs.resume: all ",
	}
	slices.Sort(want)
	if !slices.Equal(events, want) {
		t.Errorf("the audit events are\n%q, want\n%q", events, want)
	}
	if err := admin.RevokeToken(ctx, made.GetId()); err != nil {
		t.Fatal(err)
	}
	if resume = ended(t, admin, resume); resume.GetState() != "failed" || !strings.Contains(resume.GetError(), "was revoked") || resume.GetSkipped()+resume.GetDone() >= jobs {
		t.Errorf("after its caller lost the token: %v", resume)
	}
}

// TestOperationOnRuns starts, cancels and retries runs. The same operation, started again, makes no second
// retry.
func TestOperationOnRuns(t *testing.T) {
	t.Parallel()
	p := dev(t, node.DevConfig{Data: t.TempDir()})
	c, err := sdk.Dial(t.Context(), p.URL, sdk.Options{Token: p.Token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // a test's
	const jobs = 20
	if _, err := c.ApplyChangeSet(t.Context(), sdk.ChangeSet{App: "shop", Definitions: idleJobs("shop", jobs), CreateApp: true}); err != nil {
		t.Fatal(err)
	}
	runs := func(state string) (n int) {
		for _, err := range c.Runs(t.Context(), sdk.RunQuery{App: "shop", State: state}) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n
	}
	for i, step := range []struct {
		req             *sdk.OperationRequest
		done            int64
		live, cancelled int
	}{
		{&sdk.OperationRequest{Kind: sdk.RunJobs, All: true, IdempotencyKey: "first"}, jobs, jobs, 0},
		{&sdk.OperationRequest{Kind: sdk.CancelRuns, Runs: &sdk.RunSelection{Job: "job-003"}}, 1, jobs - 1, 1},
		{&sdk.OperationRequest{Kind: sdk.CancelRuns, All: true}, jobs - 1, 0, jobs},
		{&sdk.OperationRequest{Kind: sdk.RetryRuns, Runs: &sdk.RunSelection{Triggers: []string{"manual"}}}, jobs, jobs, jobs},
		{&sdk.OperationRequest{Kind: sdk.RetryRuns, Runs: &sdk.RunSelection{Triggers: []string{"manual"}}}, jobs, jobs, jobs},
	} {
		step.req.App = "shop"
		op, err := c.StartOperation(t.Context(), step.req)
		if err != nil {
			t.Fatal(err)
		}
		if op = ended(t, c, op); op.GetState() != "done" || op.GetDone() != step.done {
			t.Errorf("step %d: %v", i, op)
		}
		if live, cancelled := runs("live"), runs("cancelled"); live != step.live || cancelled != step.cancelled {
			t.Errorf("step %d: %d live runs and %d cancelled ones, want %d and %d", i, live, cancelled, step.live, step.cancelled)
		}
	}
}

// TestOperationInCluster changes and deletes the jobs of an app that is split over three partitions of two
// servers, and shows the operation at both.
func TestOperationInCluster(t *testing.T) {
	t.Parallel()
	w := newSeveral(t, 3, "a", "b")
	c := w.client("a", "b")
	w.untilBothOwn(c)
	const app, jobs = "many", 120
	if _, err := c.ApplyChangeSet(t.Context(), sdk.ChangeSet{App: app, Definitions: idleJobs(app, jobs), CreateApp: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.SplitApp(t.Context(), app, 3); err != nil {
		t.Fatal(err)
	}
	w.until(c, "the slots of the app to move", func(s *sdk.Cluster) bool { return arrived(s, app, 3) })
	for i, req := range []*sdk.OperationRequest{
		{App: app, Kind: sdk.SetJobs, All: true, Set: &sdk.JobChanges{Owner: proto.String("team")}},
		{App: app, Kind: sdk.DeleteJobs, Jobs: &sdk.JobSelection{Owner: "team"}},
	} {
		from, to := w.client([]string{"a", "b"}[i]), w.client([]string{"b", "a"}[i])
		op, err := from.StartOperation(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if op = ended(t, to, op); op.GetState() != "done" || op.GetDone() != jobs {
			t.Errorf("%s: %v", req.Kind, op)
		}
		all, err := to.AllOperations(t.Context())
		if err != nil || len(all) != i+1 || all[0].GetId() != op.GetId() {
			t.Errorf("all operations: %v, %v", all, err)
		}
	}
	for j, err := range c.Jobs(t.Context(), sdk.JobQuery{App: app}) {
		t.Errorf("a job is left: %v, %v", j, err)
	}
}
