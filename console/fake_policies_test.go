package console

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/schedule"
)

const queuedRun = "01QUED0000000000000000000D"

var parentPlanned = time.Date(2026, 3, 8, 6, 0, 0, 0, time.UTC)

func parentID() job.RunID { return job.OccurrenceID("default", "policed", parentPlanned, "parent") }

// parentRun returns the id of a run with 60 parts; partRun returns the ids of its parts.
func parentRun() string { return parentID().String() }

func partRun(n int32) string {
	return job.PartID("default", "policed", parentPlanned, parentID(), n).String()
}

// populatePolicies adds a job with every policy, a run with parts, and a waiting run.
func (f *fakeAPI) populatePolicies(ts func(time.Duration) *timestamppb.Timestamp) {
	f.calendars = map[string]*apiv1.Calendar{
		"holidays": {App: "default", Name: "holidays", Yearly: []string{"01-01"}, Dates: []string{"2026-12-24/2026-12-26"}, UpdatedAt: ts(time.Hour)},
		"weekend":  {App: "default", Name: "weekend", Description: "<days off>" + evil, Days: []string{"sat", "sun"}, UpdatedAt: ts(time.Minute)},
		"never":    {App: "default", Name: "never", Dates: []string{"2001-01-01"}, UpdatedAt: ts(time.Minute)},
	}
	f.jobs = append(f.jobs, &apiv1.Job{
		App: "default", Name: "policed", Handler: &apiv1.Handler{Module: "totals@1"}, NextAt: timestamppb.New(time.Date(2040, 1, 2, 9, 0, 0, 0, time.UTC)),
		Schedule: &apiv1.Schedule{
			Daily: &apiv1.Daily{From: "09:00", Until: "17:00", Every: "30m", Days: []string{"mon", "tue"}}, MaxRuns: 100, Exclude: []string{"holidays"},
		},
		Misfire: &apiv1.Misfire{Policy: "fire_all", Max: 5, Window: "6h", Threshold: "1m"}, Overlap: &apiv1.Overlap{Policy: "queue", Limit: 3},
		Deadline: "10m", Priority: -2, Rate: &apiv1.Rate{Max: 2}, Fanout: &apiv1.Fanout{Mode: "shards", Shards: 12},
		Limits: &apiv1.Limits{MemoryBytes: 64 << 20, Fuel: 1_500_000},
		Routing: &apiv1.Routing{
			Strategy: "hash", Key: "input", Hosts: []string{"h1"}, Labels: []string{"gpu", "zone=a"}, MaxHosts: 2, MinFreeCpu: 0.25, MaxMemoryBytes: 1 << 30, MinFreeSlots: 1,
		},
		Dependency: &apiv1.Dependency{Jobs: []string{"totals", "sweep"}, On: "end", Need: "any", PassOutput: true},
	})
	f.runs = append(f.runs, &apiv1.Run{
		Id: parentRun(), App: "default", Job: "policed", State: "stopped", Trigger: "manual", Error: "part 7 was stopped", PlannedAt: timestamppb.New(parentPlanned),
		AcceptedAt: ts(time.Minute), FinishedAt: ts(0), Parts: 60, PartsSucceeded: 12, PartsFailed: 48,
	})
	for n := range int32(60) {
		f.runs = append(f.runs, &apiv1.Run{
			Id: partRun(n), App: "default", Job: "policed", State: "stopped", Trigger: "fanout", Error: "part " + evil, Host: "host-a", Parent: parentRun(), Part: n, Parts: 60,
			PlannedAt: timestamppb.New(parentPlanned), AcceptedAt: ts(time.Minute), StartedAt: ts(time.Minute), FinishedAt: ts(0),
		})
	}
	f.runs = append(f.runs, &apiv1.Run{
		Id: queuedRun, App: "default", Job: "policed", State: "queued", Trigger: "dependency", Cause: doneRun, Covers: 7, PlannedAt: ts(time.Minute), AcceptedAt: ts(time.Minute),
	})
}

func (f *fakeAPI) SkipNext(ctx context.Context, r *apiv1.SkipNextRequest) (*apiv1.Job, error) {
	f.change(func() { f.skipped++ })
	return f.GetJob(ctx, &apiv1.GetJobRequest{App: r.App, Name: r.Name})
}

// BackfillJob plans a run for every hour; the first hour already has one. A single call
// does not reach the end.
func (f *fakeAPI) BackfillJob(_ context.Context, r *apiv1.BackfillJobRequest) (*apiv1.BackfillJobResponse, error) {
	if !r.Until.AsTime().After(r.From.AsTime()) {
		return nil, status.Error(codes.InvalidArgument, "until must be after from")
	}
	answer := &apiv1.BackfillJobResponse{Existing: 1, Accepted: 3, NextFrom: timestamppb.New(r.Until.AsTime().Add(-30 * time.Minute))}
	for i := range answer.Accepted {
		answer.Times = append(answer.Times, timestamppb.New(r.From.AsTime().Add(time.Duration(i)*time.Hour)))
	}
	if !r.DryRun {
		f.change(func() { f.backfilled += int(answer.Accepted) })
	}
	return answer, nil
}

func (f *fakeAPI) RetryRun(ctx context.Context, r *apiv1.RetryRunRequest) (*apiv1.Run, error) {
	old, err := f.GetRun(ctx, &apiv1.GetRunRequest{Id: r.Id})
	if err != nil {
		return nil, err
	}
	if old.FinishedAt == nil {
		return nil, status.Error(codes.FailedPrecondition, "only a run that has ended can be retried")
	}
	if r.Host == "gone" {
		return nil, status.Error(codes.InvalidArgument, "there is no host with the id \"gone\"")
	}
	run := &apiv1.Run{App: old.App, Job: old.Job, State: "running", Trigger: "retry", Cause: old.Id, PlannedAt: timestamppb.Now(), FromNode: r.FromNode, BoundHost: r.Host, Module: cmp.Or(r.Module, old.Module)}
	for _, n := range old.Nodes {
		if n.Kept = n.State == "succeeded"; !n.Kept {
			n.State, n.Run = "pending", ""
		}
		run.Nodes = append(run.Nodes, n)
	}
	f.change(func() {
		run.Id = fmt.Sprintf("01RETR%020d", len(f.runs))
		f.runs = append([]*apiv1.Run{run}, f.runs...)
	})
	return proto.CloneOf(run), nil
}

func (f *fakeAPI) ExplainRun(_ context.Context, r *apiv1.ExplainRunRequest) (*apiv1.ExplainRunResponse, error) {
	return &apiv1.ExplainRunResponse{State: "queued", Why: "no host may take it " + evil, Hosts: []*apiv1.HostVerdict{
		{Host: "host-a", Name: "node-1", Why: "it lacks the label gpu " + evil},
		{Host: "host-b", Able: true},
		{Host: "host-c", Why: "has no label gpu, the job wants gpu", Reason: &apiv1.Reason{Code: "label_missing", Values: map[string]string{"label": "gpu" + evil, "want": "gpu"}}},
		{Host: "host-d", Why: "is of a later version", Reason: &apiv1.Reason{Code: "later_version"}},
	}}, nil
}

func (f *fakeAPI) GetCalendar(_ context.Context, r *apiv1.GetCalendarRequest) (*apiv1.Calendar, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.calendars[r.Name]; c != nil {
		return proto.CloneOf(c), nil
	}
	return nil, status.Errorf(codes.NotFound, "there is no calendar %q", r.Name)
}

func (f *fakeAPI) ListCalendars(context.Context, *apiv1.ListCalendarsRequest) (*apiv1.ListCalendarsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &apiv1.ListCalendarsResponse{}
	for _, name := range slices.Sorted(maps.Keys(f.calendars)) {
		out.Calendars = append(out.Calendars, proto.CloneOf(f.calendars[name]))
	}
	return out, nil
}

func (f *fakeAPI) PutCalendar(_ context.Context, r *apiv1.PutCalendarRequest) (*apiv1.Calendar, error) {
	c := proto.CloneOf(r.Calendar)
	if _, err := schedule.CompileCalendar(c); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calendars == nil {
		f.calendars = map[string]*apiv1.Calendar{}
	}
	c.UpdatedAt = timestamppb.Now()
	f.calendars[c.Name] = c
	return proto.CloneOf(c), nil
}

func (f *fakeAPI) DeleteCalendar(_ context.Context, r *apiv1.DeleteCalendarRequest) (*apiv1.DeleteCalendarResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Name == "holidays" {
		return nil, status.Error(codes.FailedPrecondition, "calendar holidays is named by 1 jobs, \"policed\" among them: change these first")
	}
	delete(f.calendars, r.Name)
	return &apiv1.DeleteCalendarResponse{}, nil
}
