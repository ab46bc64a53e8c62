package operation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/wheelworkhq/wheelwork/access"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// fakeAPI is an API with jobs and runs in memory.
type fakeAPI struct {
	grpc.ClientConnInterface
	mu      sync.Mutex
	jobs    map[string]*apiv1.Job
	runs    []*apiv1.Run
	history []*apiv1.Run        // the second page of the runs
	calls   map[string]int      // by method
	keys    map[string]int      // idempotency keys
	heads   map[string][]string // of the last change
	late    atomic.Int64        // of each answer, in ns
	fail    func(method, name string) error
}

func newFake(jobs int) *fakeAPI {
	f := &fakeAPI{jobs: map[string]*apiv1.Job{}, calls: map[string]int{}, keys: map[string]int{}}
	for i := range jobs {
		name := fmt.Sprintf("job-%05d", i)
		f.jobs[name] = &apiv1.Job{App: "shop", Name: name, Etag: "1", Paused: proto.Bool(false), Handler: &apiv1.Handler{Module: "m@1"}, Schedule: &apiv1.Schedule{Cron: "0 0 * * *"}, Labels: map[string]string{"team": "a"}}
	}
	return f
}

// Invoke implements [grpc.ClientConnInterface].
func (f *fakeAPI) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	time.Sleep(time.Duration(f.late.Load()))
	f.mu.Lock()
	defer f.mu.Unlock()
	_, method, _ = strings.Cut(method[1:], "/")
	f.calls[method]++
	sent, _ := metadata.FromOutgoingContext(ctx)
	name := ""
	if q, ok := args.(interface{ GetName() string }); ok {
		name = q.GetName()
	}
	if f.fail != nil {
		if err := f.fail(method, name); err != nil {
			return err
		}
	}
	if !strings.HasPrefix(method, "List") && !strings.HasPrefix(method, "Get") {
		f.heads = sent
	}
	switch q := args.(type) {
	case *apiv1.ListJobsRequest:
		names := slices.Sorted(maps.Keys(f.jobs))
		from, _ := slices.BinarySearch(names, q.PageToken)
		answer := reply.(*apiv1.ListJobsResponse)
		for _, n := range names[from:] {
			if len(answer.Jobs) == int(q.PageSize) {
				answer.NextPageToken = n
				break
			}
			answer.Jobs = append(answer.Jobs, proto.CloneOf(f.jobs[n]))
		}
	case *apiv1.ListRunsRequest:
		answer := reply.(*apiv1.ListRunsResponse)
		runs := f.runs
		switch {
		case q.PageToken != "":
			runs = f.history
		case len(f.history) > 0:
			answer.NextPageToken = "history"
		}
		for _, r := range runs {
			if q.State == r.State {
				answer.Runs = append(answer.Runs, proto.CloneOf(r))
			}
		}
	case *apiv1.PauseJobRequest:
		f.jobs[q.Name].Paused = proto.Bool(true)
	case *apiv1.TriggerJobRequest:
		f.keys[q.IdempotencyKey]++
	case *apiv1.RetryRunRequest:
		f.keys[q.IdempotencyKey]++
	case *apiv1.DeleteRunRequest:
		f.keys[fmt.Sprint(q.Id, " ", q.PayloadOnly)]++
		switch q.Id {
		case "gone":
			return status.Error(codes.NotFound, "there is no run gone")
		case "node":
			return status.Error(codes.FailedPrecondition, "it belongs to another run")
		}
		reply.(*apiv1.DeleteRunResponse).Runs = 1
	case *apiv1.CancelRunRequest:
		if q.Id == "ended" {
			return status.Error(codes.FailedPrecondition, "it has ended")
		}
	case *apiv1.GetJobRequest:
		proto.Merge(reply.(proto.Message), f.jobs[q.Name])
	case *apiv1.ApplyJobRequest:
		if q.IfMatch != f.jobs[q.Job.Name].Etag {
			return status.Error(codes.Aborted, "it has changed")
		}
		f.jobs[q.Job.Name] = proto.CloneOf(q.Job)
		reply.(*apiv1.ApplyJobResponse).Result = "updated"
	case *apiv1.DeleteJobRequest:
		for _, other := range f.jobs {
			if slices.Contains(other.Dependency.GetJobs(), q.Name) && !q.Force {
				s, err := status.New(codes.FailedPrecondition, other.Name+" names it").WithDetails(&apiv1.Refusal{Reason: "referenced"})
				if err != nil {
					return err
				}
				return s.Err()
			}
		}
		delete(f.jobs, q.Name)
	}
	return nil
}

var ann = &access.Principal{Name: "ann", Kind: access.KindUser, Token: "tok_1"}

// begin starts an operation as ann.
func (f *fakeAPI) begin(t *testing.T, req *apiv1.StartOperationRequest) (*Service, *apiv1.Operation) {
	t.Helper()
	r := &Runner{Conn: f, Current: func(p *access.Principal) (*access.Principal, error) { return p, nil }}
	s := r.NewService()
	answer, err := s.StartOperation(access.With(t.Context(), ann), req)
	if err != nil {
		t.Fatal(err)
	}
	return s, answer.Operation
}

// now returns an operation as it is.
func now(t *testing.T, s *Service, op *apiv1.Operation) *apiv1.Operation {
	t.Helper()
	got, err := s.GetOperation(t.Context(), &apiv1.GetOperationRequest{App: op.App, Id: op.Id})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// counts returns the counters of an operation.
func counts(op *apiv1.Operation) string {
	return fmt.Sprintf("%s %d/%d/%d of %d", op.State, op.Done, op.Skipped, op.Failed, op.GetTotal())
}

// TestRate pauses 1 200 jobs: 500 in a second, each as the caller, with its note.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1200)
		f.jobs["job-00000"].Paused = proto.Bool(true)
		s, op := f.begin(t, &apiv1.StartOperationRequest{App: "shop", Kind: "jobs.pause", All: true, Note: "für heute"})
		time.Sleep(time.Second - time.Millisecond)
		synctest.Wait()
		if op := now(t, s, op); counts(op) != "running 499/1/0 of 1200" {
			t.Errorf("after a second: %s", counts(op))
		}
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		if op := now(t, s, op); counts(op) != "done 1199/1/0 of 1200" || f.calls["PauseJob"] != 1199 {
			t.Errorf("at the end: %s, %d calls", counts(op), f.calls["PauseJob"])
		}
		if got := fmt.Sprint(f.heads[access.ActingHeader], f.heads[noteHeader], f.heads[causeHeader]); got != "[principal] [f%C3%BCr%20heute%20%28operation%20"+op.Id+"%29] [operation]" {
			t.Errorf("the headers of a change: %s", got)
		}
	})
}

// TestCancel cancels an operation: it stops within a slice, and counts what it has changed.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1000)
		s, op := f.begin(t, &apiv1.StartOperationRequest{App: "shop", Kind: "jobs.pause", All: true})
		time.Sleep(450 * time.Millisecond)
		f.late.Store(int64(10 * time.Millisecond))
		time.Sleep(55 * time.Millisecond) // a slice has begun
		if _, err := s.CancelOperation(access.With(t.Context(), ann), &apiv1.CancelOperationRequest{App: "shop", Id: op.Id}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(sliceTime)
		synctest.Wait()
		got := now(t, s, op)
		if got.State != "cancelled" || got.CancelledBy != "ann" || got.Done < 250 || got.Done >= 300 || got.Failed != 0 || int(got.Done) != f.calls["PauseJob"] {
			t.Errorf("%s with %d calls", counts(got), f.calls["PauseJob"])
		}
	})
}

// TestLostToken ends an operation whose caller has lost its token.
func TestLostToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, lost := newFake(1000), atomic.Bool{}
		r := &Runner{Conn: f, Current: func(p *access.Principal) (*access.Principal, error) {
			if lost.Load() {
				return nil, status.Error(codes.Unauthenticated, "the token was revoked")
			}
			return p, nil
		}}
		s := r.NewService()
		answer, err := s.StartOperation(access.With(t.Context(), ann), &apiv1.StartOperationRequest{App: "shop", Kind: "jobs.pause", All: true})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(250 * time.Millisecond)
		synctest.Wait()
		lost.Store(true)
		time.Sleep(sliceTime)
		synctest.Wait()
		if op := now(t, s, answer.Operation); op.State != "failed" || op.Error != "the token was revoked" || op.Done != 150 {
			t.Errorf("%s %s", counts(op), op.Error)
		}
	})
}

// TestRefused makes single changes fail, some of them at first only.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, tried := newFake(10), 0
		f.fail = func(method, name string) error {
			switch {
			case method != "PauseJob":
			case name == "job-00003":
				return status.Error(codes.PermissionDenied, "ann lacks the permission jobs.operate")
			case name == "job-00004":
				return status.Error(codes.NotFound, "it was deleted")
			case name == "job-00005":
				if tried++; tried < 3 {
					return status.Error(codes.Unavailable, "its partition moves")
				}
			}
			return nil
		}
		s, op := f.begin(t, &apiv1.StartOperationRequest{App: "shop", Kind: "jobs.pause", All: true})
		time.Sleep(time.Minute)
		got := now(t, s, op)
		if counts(got) != "done 8/1/1 of 10" || len(got.Errors) != 1 || got.Errors[0] != "job-00003: ann lacks the permission jobs.operate" {
			t.Errorf("%s %q", counts(got), got.Errors)
		}
	})
}

// TestDelete deletes jobs that name each other, in the order of their names, and one that a job
// outside depends on.
func TestDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(4)
		for i := range 3 { // 0 ← 1 ← 2 ← 3
			f.jobs[fmt.Sprintf("job-%05d", i+1)].Dependency = &apiv1.Dependency{Jobs: []string{fmt.Sprintf("job-%05d", i)}}
		}
		s, op := f.begin(t, &apiv1.StartOperationRequest{App: "shop", Kind: "jobs.delete", All: true})
		time.Sleep(time.Minute)
		if op := now(t, s, op); counts(op) != "done 4/0/0 of 4" || len(f.jobs) != 0 {
			t.Errorf("%s %q", counts(op), op.Errors)
		}

		f = newFake(2)
		f.jobs["job-00000"].Dependency = &apiv1.Dependency{Jobs: []string{"job-00000"}} // it names itself
		s, op = f.begin(t, &apiv1.StartOperationRequest{App: "shop", Kind: "jobs.delete", All: true})
		time.Sleep(time.Minute)
		if op := now(t, s, op); counts(op) != "done 1/0/1 of 2" || !strings.Contains(fmt.Sprint(op.Errors), "job-00000 names it") {
			t.Errorf("%s %q", counts(op), op.Errors)
		}
	})
}

// TestSet changes fields of jobs; the second time nothing is left to change.
func TestSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(3)
		f.jobs["job-00001"].Schedule = &apiv1.Schedule{Every: "5m"}
		failed := &apiv1.JobAlert{Events: []string{"failed"}, Channels: []string{"ops"}}
		missed := &apiv1.JobAlert{Events: []string{"missed"}, Channels: []string{"ops"}}
		f.jobs["job-00000"].Alerts = []*apiv1.JobAlert{missed, failed}
		f.jobs["job-00002"].Alerts = []*apiv1.JobAlert{missed}
		req := &apiv1.StartOperationRequest{App: "shop", Kind: "jobs.set", All: true, Set: &apiv1.JobChanges{
			Owner: proto.String("team-b"), Labels: map[string]string{"tier": "1"}, RemoveLabels: []string{"team"}, Timeout: proto.String("5m"), Zone: proto.String("Asia/Tokyo"),
			Alerts: []*apiv1.JobAlert{failed}, RemoveAlerts: true,
		}}
		for _, want := range []string{"done 3/0/0 of 3", "done 0/3/0 of 3"} {
			s, op := f.begin(t, req)
			time.Sleep(time.Minute)
			if op := now(t, s, op); counts(op) != want {
				t.Errorf("%s, want %s: %q", counts(op), want, op.Errors)
			}
		}
		for name, j := range f.jobs {
			if len(j.Alerts) != 1 || !proto.Equal(j.Alerts[0], failed) {
				t.Errorf("%s: alerts %v", name, j.Alerts)
			}
			if zone := j.Schedule.Zone; j.Owner != "team-b" || j.Timeout != "5m" || len(j.Labels) != 1 || j.Labels["tier"] != "1" || j.Paused != nil || (zone == "Asia/Tokyo") != (name != "job-00001") {
				t.Errorf("%v", j)
			}
		}
	})
}

// TestRuns cancels, retries and starts runs, and leaves parts and other modules alone.
func TestRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(2)
		f.runs = []*apiv1.Run{
			{Id: "one", State: "live", Module: "m@1"},
			{Id: "part", State: "live", Module: "m@1", Parent: "one"},
			{Id: "other", State: "live", Module: "n@1"},
			{Id: "ended", State: "live", Module: "m@2"},
			{Id: "bad", State: "unsuccessful"},
		}
		s, op := f.begin(t, &apiv1.StartOperationRequest{App: "shop", Kind: "runs.cancel", Module: "m"})
		time.Sleep(time.Minute)
		if op := now(t, s, op); counts(op) != "done 1/1/0 of 2" {
			t.Errorf("cancel: %s", counts(op))
		}
		for range 2 {
			for _, kind := range []string{"runs.retry", "jobs.run"} {
				s, op = f.begin(t, &apiv1.StartOperationRequest{App: "shop", Kind: kind, All: true, IdempotencyKey: "key"})
				time.Sleep(time.Minute)
				if op := now(t, s, op); op.State != "done" || op.Failed > 0 {
					t.Errorf("%s: %s", kind, counts(op))
				}
			}
		}
		if want := map[string]int{"bulk retry of bad": 2, "key/job-00000": 2, "key/job-00001": 2}; !maps.Equal(f.keys, want) {
			t.Errorf("the keys of the runs: %v, want %v", f.keys, want)
		}
	})
}

// TestSearch finds runs by their errors, parts too, and keeps the newest ones.
func TestSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(0)
		at := timestamppb.New(time.Now())
		for i := range 700 {
			f.runs = append(f.runs, &apiv1.Run{Id: fmt.Sprintf("run-%03d", i), Job: "a", Module: "m@1", PlannedAt: at, FinishedAt: at, Error: "No such Table orders"})
		}
		f.runs[0].Parent = "another"
		f.runs[1].Error = "refused"
		f.runs[2].Module = "n@1"
		s, op := f.begin(t, &apiv1.StartOperationRequest{App: "shop", Kind: "runs.search", Module: "m", Error: "no such table"})
		time.Sleep(time.Millisecond) // a search waits for nothing
		got := now(t, s, op)
		if counts(got) != "done 698/2/0 of 0" || got.Total != nil || len(got.Found) != maxFound || len(f.keys) != 0 {
			t.Fatalf("%s, %d runs, changes %v", counts(got), len(got.Found), f.keys)
		}
		if want := (&apiv1.FoundRun{Id: "run-003", Job: "a", PlannedAt: at, FinishedAt: at}); got.Found[0].Id != "run-000" || !proto.Equal(got.Found[1], want) {
			t.Errorf("found %v", got.Found[:2])
		}
		list, err := s.ListOperations(t.Context(), &apiv1.ListOperationsRequest{App: "shop"})
		if err != nil || len(list.Operations) != 1 || len(list.Operations[0].Found) != 0 {
			t.Errorf("the list has the found runs: %v", err)
		}
		resp, err := s.StartOperation(access.With(t.Context(), ann), &apiv1.StartOperationRequest{App: "shop", Kind: "runs.search", Error: "REFUSED", DryRun: true})
		if err != nil || resp.Matched != 1 || resp.Runs[0].Id != "run-001" {
			t.Errorf("preview: %v, %v", resp, err)
		}
	})
}

// TestSearchOfARunThatEnds lists a run with the live ones, and again in the history.
func TestSearchOfARunThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(0)
		at := timestamppb.New(time.Now())
		f.runs = []*apiv1.Run{{Id: "ends"}, {Id: "goes-on"}}
		f.history = []*apiv1.Run{{Id: "ends", FinishedAt: at}, {Id: "ended", FinishedAt: at}}
		s, op := f.begin(t, &apiv1.StartOperationRequest{App: "shop", Kind: "runs.search", All: true})
		synctest.Wait()
		got := now(t, s, op)
		var found []string
		for _, r := range got.Found {
			found = append(found, r.Id)
		}
		if want := []string{"ends", "goes-on", "ended"}; got.Done != 3 || !slices.Equal(found, want) {
			t.Errorf("%s: found %v, want %v", counts(got), found, want)
		}
	})
}

// TestDeleteRuns deletes ended runs and payloads, and skips runs and payloads that were deleted before.
func TestDeleteRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(0)
		f.runs = []*apiv1.Run{
			{Id: "one", State: "ended"},
			{Id: "part", State: "ended", Parent: "one"},
			{Id: "purged", State: "ended", PayloadDeletedAt: timestamppb.Now()},
			{Id: "gone", State: "ended"},
			{Id: "node", State: "ended"},
			{Id: "live", State: "live"},
		}
		for kind, want := range map[string]string{"runs.purge": "done 1/2/1 of 4", "runs.delete": "done 2/1/1 of 4"} {
			s, op := f.begin(t, &apiv1.StartOperationRequest{App: "shop", Kind: kind, All: true})
			time.Sleep(time.Minute)
			if op := now(t, s, op); counts(op) != want {
				t.Errorf("%s: %s, want %s", kind, counts(op), want)
			}
		}
		want := map[string]int{"one true": 1, "gone true": 1, "node true": 1, "one false": 1, "purged false": 1, "gone false": 1, "node false": 1}
		if !maps.Equal(f.keys, want) {
			t.Errorf("the calls: %v, want %v", f.keys, want)
		}
	})
}

// TestPreview counts without changing, and ends in time.
func TestPreview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(10_000)
		r := &Runner{Conn: f, Current: func(p *access.Principal) (*access.Principal, error) { return p, nil }}
		s := r.NewService()
		preview := func() *apiv1.StartOperationResponse {
			answer, err := s.StartOperation(access.With(t.Context(), ann), &apiv1.StartOperationRequest{App: "shop", Kind: "jobs.delete", All: true, DryRun: true})
			if err != nil {
				t.Fatal(err)
			}
			return answer
		}
		if p := preview(); p.Matched != 10_000 || p.More || len(p.Jobs) != previewed || p.Jobs[19].Name != "job-00019" || p.Operation != nil {
			t.Errorf("%d, more %t, %d jobs", p.Matched, p.More, len(p.Jobs))
		}
		f.late.Store(int64(300 * time.Millisecond))
		if p := preview(); p.Matched != 3000 || !p.More {
			t.Errorf("a slow list: %d, more %t", p.Matched, p.More)
		}
		if f.calls["DeleteJob"] != 0 {
			t.Error("a preview has deleted jobs")
		}
	})
}

// TestInvalid sends invalid requests.
func TestInvalid(t *testing.T) {
	s := (&Runner{Conn: newFake(1)}).NewService()
	for want, req := range map[string]*apiv1.StartOperationRequest{
		"there is no kind":         {Kind: "jobs.explode", All: true},
		"say which objects":        {Kind: "runs.cancel", Runs: &apiv1.ListRunsRequest{State: "live", PageSize: 3}},
		"acts on live runs":        {Kind: "runs.cancel", Runs: &apiv1.ListRunsRequest{State: "failed", Job: "a"}},
		"that have ended":          {Kind: "runs.retry", Runs: &apiv1.ListRunsRequest{State: "running", Job: "a"}},
		"runs.delete acts on":      {Kind: "runs.delete", Runs: &apiv1.ListRunsRequest{State: "live", Job: "a"}},
		"no state \"odd\"":         {Kind: "runs.retry", Runs: &apiv1.ListRunsRequest{State: "odd", Job: "a"}},
		"is about runs":            {Kind: "runs.retry", Jobs: &apiv1.ListJobsRequest{Prefix: "a"}},
		"is about jobs":            {Kind: "jobs.run", Runs: &apiv1.ListRunsRequest{Job: "a"}},
		"no state \"strange\"":     {Kind: "runs.search", Runs: &apiv1.ListRunsRequest{State: "strange", Job: "a"}},
		"error select runs":        {Kind: "jobs.run", Error: "refused"},
		"set is empty":             {Kind: "jobs.set", All: true},
		"set is for jobs.set":      {Kind: "jobs.run", All: true, Set: &apiv1.JobChanges{}},
		"force is for jobs.delete": {Kind: "jobs.run", All: true, Force: true},
		"zone":                     {Kind: "jobs.set", All: true, Set: &apiv1.JobChanges{Zone: proto.String("Mars/Base")}},
		"channels":                 {Kind: "jobs.set", All: true, Set: &apiv1.JobChanges{Alerts: []*apiv1.JobAlert{{Events: []string{"failed"}}}}},
		"timeout":                  {Kind: "jobs.set", All: true, Set: &apiv1.JobChanges{Timeout: proto.String("soon")}},
		"the limit is 450":         {Kind: "jobs.run", All: true, Note: strings.Repeat("n", 1001)},
	} {
		if _, err := s.StartOperation(access.With(t.Context(), ann), req); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := s.StartOperation(t.Context(), &apiv1.StartOperationRequest{Kind: "jobs.run", All: true}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("without a caller: %v", err)
	}
}
