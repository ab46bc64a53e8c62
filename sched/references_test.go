package sched_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// refusal checks the code and the machine-readable reason of an error, and returns its
// Refusal detail.
func refusal(t *testing.T, err error, code codes.Code, reason string) *apiv1.Refusal {
	t.Helper()
	if status.Code(err) == code {
		for _, d := range status.Convert(err).Details() {
			if r, ok := d.(*apiv1.Refusal); ok && r.Reason == reason {
				return r
			}
		}
	}
	t.Fatalf("error %v with details %v, want %s with the reason %s", err, status.Convert(err).Details(), code, reason)
	return nil
}

// related applies the job up and two jobs that refer to it: after depends on it, and flow
// runs it in its nodes.
func (c *client) related() {
	c.t.Helper()
	c.push()
	c.apply(&apiv1.Job{Name: "up"})
	c.apply(&apiv1.Job{Name: "after", Dependency: &apiv1.Dependency{Jobs: []string{"up"}}})
	flow := &apiv1.Job{Name: "flow", Workflow: &apiv1.Workflow{Nodes: []*apiv1.Node{{Name: "a", Job: "up"}, {Name: "b", Job: "up"}}}}
	if _, err := c.jobs.ApplyJob(context.Background(), &apiv1.ApplyJobRequest{Job: flow}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) has(name string) bool {
	_, err := c.jobs.GetJob(context.Background(), &apiv1.GetJobRequest{Name: name})
	return err == nil
}

// TestDeleteOfWhatIsNamed checks that a referenced job is deleted only by force: also
// after a restart, by a producer, and in bulk.
func TestDeleteOfWhatIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		defer w.close()
		c := w.client()
		defer c.close()
		ctx := context.Background()
		c.related()
		check := func() {
			t.Helper()
			_, err := c.jobs.DeleteJob(ctx, &apiv1.DeleteJobRequest{Name: "up"})
			if r := refusal(t, err, codes.FailedPrecondition, "referenced"); !slices.Equal(r.Names, []string{"job after", "job flow"}) {
				t.Errorf("names %q", r.Names)
			}
			if text := err.Error(); !strings.Contains(text, "job up is named by job after, job flow") || !strings.Contains(text, "--force") {
				t.Errorf("the refusal says %q", text)
			}
		}
		check()
		w.stopServer()
		w.start()
		c.reconnect(w)
		check()

		s, err := apiv1.NewProducerClient(c.conn).Produce(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Send(&apiv1.ProduceRequest{Commands: []*apiv1.Command{{Kind: &apiv1.Command_Delete{Delete: &apiv1.DeleteJobRequest{Name: "up"}}}}}); err != nil {
			t.Fatal(err)
		}
		answer, err := s.Recv()
		if err != nil || codes.Code(answer.Results[0].Code) != codes.FailedPrecondition {
			t.Errorf("a producer's deletion: %v, %v", answer, err)
		}
		s.CloseSend() //nolint:errcheck // the answer is there

		bulk := func(req *apiv1.BulkJobsRequest) *apiv1.BulkJobsResponse {
			t.Helper()
			req.Action = "delete"
			resp, err := c.jobs.BulkJobs(ctx, req)
			if err != nil {
				t.Fatal(err)
			}
			return resp
		}
		if r := bulk(&apiv1.BulkJobsRequest{Names: []string{"up", "after"}}); r.Changed != 1 || len(r.Failures) != 1 || !strings.Contains(r.Failures[0], "job flow") || !c.has("up") || c.has("after") {
			t.Errorf("a bulk deletion without one of those that name it: %v", r)
		}
		if r := bulk(&apiv1.BulkJobsRequest{Names: []string{"up"}, Force: true}); r.Changed != 1 || c.has("up") {
			t.Errorf("a bulk deletion by force: %v", r)
		}
		c.related()
		if _, err := c.jobs.DeleteJob(ctx, &apiv1.DeleteJobRequest{Name: "up", Force: true}); err != nil || c.has("up") {
			t.Errorf("by force: %v", err)
		}
		c.related()
		if r := bulk(&apiv1.BulkJobsRequest{All: true}); r.Changed != 3 || len(r.Failures) != 0 || c.has("up") {
			t.Errorf("a bulk deletion of all: %v", r)
		}

		// A reference that a job had earlier does not block the deletion.
		c.related()
		c.apply(&apiv1.Job{Name: "after"})
		if _, err := c.jobs.ApplyJob(ctx, &apiv1.ApplyJobRequest{Job: &apiv1.Job{Name: "flow", Workflow: &apiv1.Workflow{Nodes: []*apiv1.Node{{Name: "a", Job: "after"}}}}}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.jobs.DeleteJob(ctx, &apiv1.DeleteJobRequest{Name: "up"}); err != nil {
			t.Errorf("nothing names it: %v", err)
		}
	})
}

// TestBulkDeleteOfChain checks that a bulk deletion retains jobs that a job outside of it
// needs, directly or through other jobs.
func TestBulkDeleteOfChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		defer w.close()
		c := w.client()
		defer c.close()
		c.push()
		c.apply(&apiv1.Job{Name: "x-1"})
		c.apply(&apiv1.Job{Name: "x-2", Dependency: &apiv1.Dependency{Jobs: []string{"x-1"}}})
		c.apply(&apiv1.Job{Name: "x-3"})
		c.apply(&apiv1.Job{Name: "out", Dependency: &apiv1.Dependency{Jobs: []string{"x-2"}}})
		resp, err := c.jobs.BulkJobs(context.Background(), &apiv1.BulkJobsRequest{Action: "delete", Prefix: "x-"})
		if err != nil || resp.Changed != 1 || len(resp.Failures) != 2 || !c.has("x-1") || !c.has("x-2") || c.has("x-3") {
			t.Errorf("%v, %v", resp, err)
		}
	})
}

// TestDeleteModule checks the deletion of versions and aliases that are referenced.
func TestDeleteModule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		defer w.close()
		c := w.client()
		defer c.close()
		ctx := context.Background()
		c.pushVersions("1", "2", "3")
		c.alias(&apiv1.SetAliasRequest{Version: "2"})
		for name, module := range map[string]string{"by-version": "n@1", "by-alias": "n@prod"} {
			if _, err := c.jobs.ApplyJob(ctx, &apiv1.ApplyJobRequest{Job: &apiv1.Job{Name: name, Handler: &apiv1.Handler{Module: module}}}); err != nil {
				t.Fatal(err)
			}
		}
		remove := func(version string, force bool) error {
			_, err := c.modules.DeleteModule(ctx, &apiv1.DeleteModuleRequest{Name: "n", Version: version, Force: force})
			return err
		}
		if r := refusal(t, remove("1", false), codes.FailedPrecondition, "referenced"); !slices.Equal(r.Names, []string{"job by-version"}) {
			t.Errorf("names %q", r.Names)
		}
		if r := refusal(t, remove("2", false), codes.FailedPrecondition, "referenced"); !slices.Equal(r.Names, []string{"alias n@prod"}) {
			t.Errorf("names %q", r.Names)
		}
		if err := remove("3", false); err != nil {
			t.Errorf("nothing names it: %v", err)
		}
		if err := remove("4", true); status.Code(err) != codes.NotFound {
			t.Errorf("a version that is not there: %v", err)
		}
		if err := remove("1", true); err != nil {
			t.Errorf("by force: %v", err)
		}
		gone := func(version string) bool {
			m, err := c.modules.GetModule(ctx, &apiv1.GetModuleRequest{Name: "n", Version: version})
			if err != nil {
				t.Fatal(err)
			}
			s, err := c.modules.DownloadModule(ctx, &apiv1.DownloadModuleRequest{Name: "n", Version: version})
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.Recv()
			if (err != nil) != (m.CollectedAt != nil) {
				t.Errorf("version %s is marked %v, and its bytes: %v", version, m.CollectedAt, err)
			}
			return m.CollectedAt != nil
		}
		if !gone("1") || gone("2") || !gone("3") {
			t.Error("versions 1 and 3 are to be gone, 2 is to be there")
		}
		c.pushVersions("3")
		if gone("3") {
			t.Error("pushing the same bytes does not bring it back")
		}

		_, err := c.modules.DeleteAlias(ctx, &apiv1.DeleteAliasRequest{Module: "n", Name: "prod"})
		if r := refusal(t, err, codes.FailedPrecondition, "referenced"); !slices.Equal(r.Names, []string{"job by-alias"}) {
			t.Errorf("names %q", r.Names)
		}
		if _, err := c.modules.DeleteAlias(ctx, &apiv1.DeleteAliasRequest{Module: "n", Name: "prod", Force: true}); err != nil {
			t.Fatal(err)
		}
		// A run whose alias is missing fails with the reason. The next run works when the
		// alias is back.
		if r := c.wait(c.trigger("by-alias", "")); r.State != string(job.Failed) || r.Code != "no_alias" || !strings.Contains(r.Error, "n@prod") {
			t.Errorf("the run is %s, %s: %s", r.State, r.Code, r.Error)
		}
		w.addHost("h", 1)
		c.alias(&apiv1.SetAliasRequest{Version: "2"})
		if r := c.wait(c.trigger("by-alias", "")); r.State != string(job.Succeeded) || r.Module != "n@2" {
			t.Errorf("the run is %s with module %s: %s", r.State, r.Module, r.Error)
		}
	})
}

// TestCreateJob creates a job, which must not exist.
func TestCreateJob(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		create := func(name, input string) (*apiv1.ApplyJobResponse, error) {
			return c.jobs.CreateJob(t.Context(), &apiv1.CreateJobRequest{Job: &apiv1.Job{Name: name, Input: input, Handler: &apiv1.Handler{Module: "m@1"}}})
		}
		c.push()
		first, err := create("j", "1")
		if err != nil || first.Result != "created" || first.Job.Etag == "" {
			t.Fatalf("%v %v", first, err)
		}
		for _, input := range []string{"1", "2"} {
			if _, err := create("j", input); status.Code(err) != codes.AlreadyExists || !strings.Contains(err.Error(), "job j exists") {
				t.Errorf("with the input %s: %v", input, err)
			}
		}
		w.stopServer()
		w.start()
		c.reconnect(w)
		if j, err := c.jobs.GetJob(t.Context(), &apiv1.GetJobRequest{Name: "j"}); err != nil || j.Input != "1" {
			t.Errorf("after a restart: %v %v", j, err)
		}
		if _, err := c.jobs.DeleteJob(t.Context(), &apiv1.DeleteJobRequest{Name: "j"}); err != nil {
			t.Fatal(err)
		}
		if again, err := create("j", "3"); err != nil || again.Result != "created" {
			t.Errorf("after its deletion: %v %v", again, err)
		}
		for _, req := range []*apiv1.CreateJobRequest{{}, {Job: &apiv1.Job{}}} {
			if _, err := c.jobs.CreateJob(t.Context(), req); status.Code(err) != codes.InvalidArgument {
				t.Errorf("%v: %v", req, err)
			}
		}
	})
}

// TestConditionalApply checks the preconditions etag and if_match.
func TestConditionalApply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		defer w.close()
		c := w.client()
		defer c.close()
		ctx := context.Background()
		c.push()
		apply := func(input, etag, ifMatch string) (*apiv1.Job, error) {
			resp, err := c.jobs.ApplyJob(ctx, &apiv1.ApplyJobRequest{IfMatch: ifMatch, Job: &apiv1.Job{Name: "j", Input: input, Etag: etag, Handler: &apiv1.Handler{Module: "m@1"}}})
			return resp.GetJob(), err
		}
		_, err := apply("1", "", "*")
		if r := refusal(t, err, codes.Aborted, "changed"); r.Etag != "" {
			t.Errorf("of no job: %v", r)
		}
		first, err := apply("1", "an etag of another server", "")
		if err != nil {
			t.Fatalf("a job that is not there is created whatever its document's etag: %v", err)
		}
		second, err := apply("2", first.Etag, first.Etag)
		if err != nil || second.Etag == first.Etag {
			t.Fatalf("with the right etag: %v, %v", second, err)
		}
		for name, with := range map[string][2]string{"etag": {first.Etag, ""}, "if_match": {"", first.Etag}, "one of both": {second.Etag, first.Etag}} {
			_, err := apply("3", with[0], with[1])
			if r := refusal(t, err, codes.Aborted, "changed"); r.Etag != second.Etag {
				t.Errorf("%s: the etag now is %q, want %q", name, r.Etag, second.Etag)
			}
		}
		// An unchanged definition with an old etag is also a conflict: its caller has not
		// seen the current revision.
		_, err = apply("2", first.Etag, "")
		refusal(t, err, codes.Aborted, "changed")
		if _, err := apply("3", "", "*"); err != nil {
			t.Errorf("any etag: %v", err)
		}
		_, err = c.jobs.DeleteJob(ctx, &apiv1.DeleteJobRequest{Name: "j", IfMatch: second.Etag, Force: true})
		refusal(t, err, codes.Aborted, "changed")
		if _, err := c.jobs.DeleteJob(ctx, &apiv1.DeleteJobRequest{Name: "j", IfMatch: "*"}); err != nil {
			t.Error(err)
		}
	})
}

// TestNoUpdateIsLost checks that each of many concurrent read-modify-write updates
// counts, if callers retry after a conflict.
func TestNoUpdateIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, additions = 6, 50
		w := newWorld(t)
		w.start()
		defer w.close()
		c := w.client()
		defer c.close()
		ctx := context.Background()
		c.push()
		c.apply(&apiv1.Job{Name: "counter", Input: "0"})
		add := func(byField bool) error {
			for {
				j, err := c.jobs.GetJob(ctx, &apiv1.GetJobRequest{Name: "counter"})
				if err != nil {
					return err
				}
				n, err := strconv.Atoi(j.Input)
				if err != nil {
					return err
				}
				time.Sleep(time.Millisecond) // fake time, in which the other callers read
				j.Input = fmt.Sprint(n + 1)
				req := &apiv1.ApplyJobRequest{Job: j}
				if byField {
					req.IfMatch, j.Etag = j.Etag, ""
				}
				if _, err := c.jobs.ApplyJob(ctx, req); status.Code(err) != codes.Aborted {
					return err
				}
			}
		}
		var all sync.WaitGroup
		for caller := range callers {
			all.Go(func() {
				for range additions {
					if err := add(caller%2 == 0); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		j, err := c.jobs.GetJob(ctx, &apiv1.GetJobRequest{Name: "counter"})
		if err != nil || j.Input != fmt.Sprint(callers*additions) {
			t.Errorf("the counter is %s, want %d: %v", j.GetInput(), callers*additions, err)
		}
	})
}

// TestDryRunTogether checks that a dry run may refer to jobs that would be applied before
// it.
func TestDryRunTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		defer w.close()
		c := w.client()
		defer c.close()
		c.push()
		req := &apiv1.ApplyJobRequest{DryRun: true, Job: &apiv1.Job{
			Name: "j", Workflow: &apiv1.Workflow{Nodes: []*apiv1.Node{{Name: "n", Job: "new"}}}, Dependency: &apiv1.Dependency{Jobs: []string{"up"}},
		}}
		apply := func() error {
			_, err := c.jobs.ApplyJob(context.Background(), req)
			return err
		}
		if err := apply(); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("neither is there: %v", err)
		}
		req.Together = []string{"new", "up"}
		if err := apply(); err != nil {
			t.Error(err)
		}
		req.DryRun = false
		if err := apply(); status.Code(err) != codes.InvalidArgument || c.has("j") {
			t.Errorf("no dry run: %v", err)
		}
	})
}
