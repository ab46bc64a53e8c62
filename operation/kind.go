package operation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/wheelworkhq/wheelwork/alert/definition"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/naming"
)

// kind is what an operation does.
type kind struct {
	list  func(ctx context.Context, w *work, token string) (page []object, next string, err error)
	state string // of runs, without one in the request
	live  bool   // it changes live runs, otherwise ended ones
	finds bool   // it finds runs and changes none
	// change changes one object; nil for a kind that finds. It reports false if the object was like that before.
	change func(ctx context.Context, w *work, o object) (changed bool, err error)
}

// kindOf returns a kind by its name.
func kindOf(name string) (kind, bool) {
	switch name {
	case "runs.search":
		return kind{list: listRuns, finds: true}, true
	case "runs.cancel":
		return kind{list: listRuns, state: "live", live: true, change: cancelRun}, true
	case "runs.retry":
		return kind{list: listRuns, state: "unsuccessful", change: retryRun}, true
	case "runs.delete":
		return kind{list: listRuns, state: "ended", change: deleteRun}, true
	case "runs.purge":
		return kind{list: listRuns, state: "ended", change: purgeRun}, true
	case "jobs.pause":
		return kind{list: listJobs, change: pauseJob}, true
	case "jobs.resume":
		return kind{list: listJobs, change: resumeJob}, true
	case "jobs.run":
		return kind{list: listJobs, change: runJob}, true
	case "jobs.delete":
		return kind{list: listJobs, change: deleteJob}, true
	case "jobs.set":
		return kind{list: listJobs, change: setJob}, true
	}
	return kind{}, false
}

// ofRuns reports whether the objects of the kind are runs.
func (k kind) ofRuns() bool { return k.state != "" || k.finds }

func cancelRun(ctx context.Context, w *work, o object) (bool, error) {
	_, err := w.runs.CancelRun(ctx, &apiv1.CancelRunRequest{App: w.req.App, Id: o.name})
	if status.Code(err) == codes.FailedPrecondition { // it has ended since it was listed
		return false, errNothing
	}
	return true, err
}

// retryRun retries a run. Its key is that of BulkRuns, so the two make one retry.
func retryRun(ctx context.Context, w *work, o object) (bool, error) {
	_, err := w.runs.RetryRun(ctx, &apiv1.RetryRunRequest{App: w.req.App, Id: o.name, IdempotencyKey: "bulk retry of " + o.name})
	return true, err
}

func deleteRun(ctx context.Context, w *work, o object) (bool, error) {
	_, err := w.runs.DeleteRun(ctx, &apiv1.DeleteRunRequest{App: w.req.App, Id: o.name})
	return true, err
}

func purgeRun(ctx context.Context, w *work, o object) (bool, error) {
	if o.run.GetPayloadDeletedAt() != nil {
		return false, nil
	}
	answer, err := w.runs.DeleteRun(ctx, &apiv1.DeleteRunRequest{App: w.req.App, Id: o.name, PayloadOnly: true})
	return answer.GetRuns() > 0, err
}

func pauseJob(ctx context.Context, w *work, o object) (bool, error) {
	if o.job.GetPaused() && proto.Equal(o.job.GetPause().GetUntil(), w.req.Until) {
		return false, nil
	}
	_, err := w.jobs.PauseJob(ctx, &apiv1.PauseJobRequest{App: w.req.App, Name: o.name, Reason: w.req.Note, Until: w.req.Until})
	return true, err
}

func resumeJob(ctx context.Context, w *work, o object) (bool, error) {
	if !o.job.GetPaused() {
		return false, nil
	}
	_, err := w.jobs.ResumeJob(ctx, &apiv1.ResumeJobRequest{App: w.req.App, Name: o.name})
	return true, err
}

func runJob(ctx context.Context, w *work, o object) (bool, error) {
	_, err := w.jobs.TriggerJob(ctx, &apiv1.TriggerJobRequest{App: w.req.App, Name: o.name, IdempotencyKey: w.key() + "/" + o.name})
	return true, err
}

func deleteJob(ctx context.Context, w *work, o object) (bool, error) {
	_, err := w.jobs.DeleteJob(ctx, &apiv1.DeleteJobRequest{App: w.req.App, Name: o.name, Force: w.req.Force})
	return true, err
}

// setJob changes fields of a job as it is now. If it changes at the same time, the error is
// ABORTED.
func setJob(ctx context.Context, w *work, o object) (bool, error) {
	j, err := w.jobs.GetJob(ctx, &apiv1.GetJobRequest{App: w.req.App, Name: o.name})
	if err != nil {
		return false, err
	}
	next := proto.CloneOf(j)
	setFields(next, w.req.Set)
	if proto.Equal(j, next) {
		return false, nil
	}
	next.Paused = nil // it stays as it is
	answer, err := w.jobs.ApplyJob(ctx, &apiv1.ApplyJobRequest{Job: next, IfMatch: j.Etag})
	return answer.GetResult() != "unchanged", err
}

// setFields makes the changes in a job.
func setFields(j *apiv1.Job, set *apiv1.JobChanges) {
	if set.Owner != nil {
		j.Owner = *set.Owner
	}
	if j.Labels == nil {
		j.Labels = map[string]string{}
	}
	maps.Copy(j.Labels, set.Labels)
	for _, name := range set.RemoveLabels {
		delete(j.Labels, name)
	}
	if set.Timeout != nil {
		j.Timeout = *set.Timeout
	}
	if set.RemoveAlerts {
		j.Alerts = slices.DeleteFunc(j.Alerts, func(x *apiv1.JobAlert) bool { return !has(set.Alerts, x) })
	}
	for _, x := range set.Alerts {
		if !has(j.Alerts, x) {
			j.Alerts = append(j.Alerts, proto.CloneOf(x))
		}
	}
	if s := j.Schedule; set.Zone != nil && (s.GetCron() != "" || s.GetDaily() != nil) {
		s.Zone = *set.Zone
	}
}

// has reports whether a list has an alert equal to x.
func has(alerts []*apiv1.JobAlert, x *apiv1.JobAlert) bool {
	return slices.ContainsFunc(alerts, func(y *apiv1.JobAlert) bool { return proto.Equal(x, y) })
}

const (
	maxNote = 450 // bytes
	maxKey  = 120 // bytes: those of the changes also have the name of a job

	maxRequest = 16 << 10 // bytes
)

// check returns an error if a request is invalid.
func check(k kind, q *apiv1.StartOperationRequest) error {
	switch {
	case proto.Size(q) > maxRequest: // the registry keeps it
		return status.Errorf(codes.InvalidArgument, "the request has %d bytes, the limit is %d", proto.Size(q), maxRequest)
	case len(q.Note) > maxNote:
		return status.Errorf(codes.InvalidArgument, "the note has %d bytes, the limit is %d", len(q.Note), maxNote)
	case len(q.IdempotencyKey) > maxKey:
		return status.Errorf(codes.InvalidArgument, "the idempotency key has %d bytes, the limit is %d", len(q.IdempotencyKey), maxKey)
	case q.Kind != "jobs.set" && q.Set != nil:
		return status.Errorf(codes.InvalidArgument, "set is for jobs.set, not for %s", q.Kind)
	case q.Kind != "jobs.delete" && q.Force:
		return status.Errorf(codes.InvalidArgument, "force is for jobs.delete, not for %s", q.Kind)
	case q.Kind != "jobs.pause" && q.Until != nil:
		return status.Errorf(codes.InvalidArgument, "until is for jobs.pause, not for %s", q.Kind)
	case q.Until != nil && (!q.Until.IsValid() || !q.Until.AsTime().After(time.Now())):
		return status.Errorf(codes.InvalidArgument, "until is %s, which is no time in the future", q.Until.AsTime().Format(time.RFC3339))
	case k.ofRuns() && q.Jobs != nil:
		return status.Errorf(codes.InvalidArgument, "jobs selects jobs, and %s is about runs", q.Kind)
	case !k.ofRuns() && (q.Runs != nil || q.Module != "" || q.Error != ""):
		return status.Errorf(codes.InvalidArgument, "runs, module and error select runs, and %s is about jobs", q.Kind)
	case !q.All && !selects(q):
		return status.Error(codes.InvalidArgument, "say which objects: by conditions of runs or jobs, or all of them with all")
	}
	if err := k.checkState(q.Kind, q.Runs.GetState()); err != nil {
		return err
	}
	if q.Kind == "jobs.set" {
		return checkSet(q.Set)
	}
	return nil
}

// selects reports whether a request has a condition besides a state.
func selects(q *apiv1.StartOperationRequest) bool {
	runs, jobs := &apiv1.ListRunsRequest{}, &apiv1.ListJobsRequest{}
	proto.Merge(runs, q.Runs)
	proto.Merge(jobs, q.Jobs)
	runs.App, runs.State, runs.PageSize, runs.PageToken = "", "", 0, ""
	jobs.App, jobs.PageSize, jobs.PageToken, jobs.WithInput, jobs.Order = "", 0, "", false, ""
	return q.Module != "" || q.Error != "" || proto.Size(runs) > 0 || proto.Size(jobs) > 0
}

// checkState refuses a state of runs that the kind cannot change.
func (k kind) checkState(name, state string) error {
	fits := true
	switch {
	case state == "":
	case k.finds && (state == "live" || state == "ended" || state == "unsuccessful"):
	case state == "live":
		fits = k.live
	case state == "ended" || state == "unsuccessful":
		fits = !k.live
	case !slices.Contains(job.States(), job.State(state)):
		return status.Errorf(codes.InvalidArgument, "there is no state %.40q: want live, ended, unsuccessful, or one of %s", state, strings.Trim(fmt.Sprint(job.States()), "[]"))
	default:
		fits = k.finds || job.State(state).Terminal() != k.live
	}
	switch {
	case fits:
		return nil
	case k.live:
		return status.Errorf(codes.InvalidArgument, "state %q: %s acts on live runs: leave the state out, or use a live one", state, name)
	}
	return status.Errorf(codes.InvalidArgument, "state %q: %s acts on runs that have ended: leave the state out, or use unsuccessful or an ended one", state, name)
}

// checkSet refuses changes that no job can have, before the first job is tried.
func checkSet(set *apiv1.JobChanges) error {
	if proto.Size(set) == 0 {
		return status.Error(codes.InvalidArgument, "set is empty: say which fields to change")
	}
	sample := &apiv1.Job{App: naming.DefaultApp, Name: "sample", Handler: &apiv1.Handler{Module: "sample@1"}, Schedule: &apiv1.Schedule{Cron: "0 0 * * *"}}
	setFields(sample, set)
	if err := job.Validate(sample); err != nil {
		return status.Errorf(codes.InvalidArgument, "set: %v", err)
	}
	if _, err := definition.ReadJobAlerts(sample.App, sample.Name, set.Alerts); err != nil {
		return status.Errorf(codes.InvalidArgument, "set: %v", err)
	}
	return nil
}
