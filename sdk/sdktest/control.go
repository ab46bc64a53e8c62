package sdktest

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// BulkJobs handles all jobs in one page.
func (s *Server) BulkJobs(_ context.Context, r *apiv1.BulkJobsRequest) (*apiv1.BulkJobsResponse, error) {
	switch {
	case !slices.Contains([]string{"pause", "resume", "trigger", "delete"}, r.GetAction()):
		return nil, status.Errorf(codes.InvalidArgument, "action: %q is neither pause, resume, trigger nor delete", r.GetAction())
	case r.GetPrefix() == "" && len(r.GetNames()) == 0 && len(r.GetLabels()) == 0 && !r.GetAll():
		return nil, status.Error(codes.InvalidArgument, "say which jobs: by prefix, names or labels, or all of them with all")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := &apiv1.BulkJobsResponse{}
	for key, job := range s.jobs {
		if job.GetApp() != r.GetApp() || !wanted(r, job) {
			continue
		}
		answer.Matched++
		if r.GetDryRun() {
			continue
		}
		answer.Changed++
		switch r.GetAction() {
		case "trigger":
			s.startLocked(job, job.GetInput(), "manual", s.nowLocked())
		case "delete":
			delete(s.jobs, key)
			delete(s.plans, key)
		default:
			s.pauseLocked(job, r.GetAction() == "pause", pauseOf(r.GetReason(), r.GetUntil()))
		}
	}
	return answer, nil
}

func wanted(r *apiv1.BulkJobsRequest, job *apiv1.Job) bool {
	return hasLabels(job.GetLabels(), r.GetLabels()) && strings.HasPrefix(job.GetName(), r.GetPrefix()) && (len(r.GetNames()) == 0 || slices.Contains(r.GetNames(), job.GetName()))
}

// RetryRun starts a new run of the job with the input of an ended run.
func (s *Server) RetryRun(_ context.Context, r *apiv1.RetryRunRequest) (*apiv1.Run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, err := s.runLocked(r.GetId())
	if err != nil {
		return nil, err
	}
	switch {
	case r.GetFromNode() != "":
		return nil, status.Errorf(codes.InvalidArgument, "from_node is %q, but run %s has no nodes", r.GetFromNode(), old.GetId())
	case r.GetHost() != "" && r.GetHost() != "sdktest":
		return nil, status.Errorf(codes.InvalidArgument, "there is no host with the id %q", r.GetHost())
	}
	run, err := s.retryLocked(old)
	if err != nil {
		return nil, err
	}
	run.BoundHost = r.GetHost()
	if r.GetModule() != "" {
		run.Module = r.GetModule()
	}
	return proto.CloneOf(run.Run), nil
}

func (s *Server) retryLocked(old *run) (*run, error) {
	if old.FinishedAt == nil {
		return nil, status.Errorf(codes.FailedPrecondition, "run %s is %s: only a run that has ended can be retried", old.GetId(), old.GetState())
	}
	if old.PayloadDeletedAt != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "the payload of run %s was deleted, and a retry needs its input", old.GetId())
	}
	job, err := s.jobLocked(old.GetApp(), old.GetJob())
	if err != nil {
		return nil, err
	}
	run := s.startLocked(job, old.GetInput(), "retry", s.nowLocked())
	run.Cause = old.GetId()
	return run, nil
}

// ExplainRun reports that a live run is on the only host.
func (s *Server) ExplainRun(_ context.Context, r *apiv1.ExplainRunRequest) (*apiv1.ExplainRunResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	run, err := s.runLocked(r.GetId())
	if err != nil {
		return nil, err
	}
	resp := &apiv1.ExplainRunResponse{
		State: run.GetState(), Why: "attempt 1 is on host sdktest",
		Reason: &apiv1.Reason{Code: "on_host", Values: map[string]string{"attempt": "1", "host": "sdktest"}},
	}
	if run.FinishedAt != nil {
		resp.Why, resp.Reason = "it has ended", &apiv1.Reason{Code: "ended"}
	}
	return resp, nil
}

// Calendars

// PutCalendar stores a calendar as it is. A schedule that names it fires at its dates, in
// force from the next time that a job with such a schedule is applied.
func (s *Server) PutCalendar(_ context.Context, r *apiv1.PutCalendarRequest) (*apiv1.Calendar, error) {
	calendar := proto.CloneOf(r.GetCalendar())
	if calendar.GetName() == "" {
		return nil, status.Error(codes.InvalidArgument, "name is missing")
	}
	if calendar.App == "" {
		calendar.App = "default"
	}
	calendar.UpdatedAt = timestamppb.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dates[calendar.App+"/"+calendar.Name] = calendar
	return calendar, nil
}

// GetCalendar returns a calendar as it was stored.
func (s *Server) GetCalendar(_ context.Context, r *apiv1.GetCalendarRequest) (*apiv1.Calendar, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	calendar := s.dates[r.GetApp()+"/"+r.GetName()]
	if calendar == nil {
		return nil, status.Errorf(codes.NotFound, "there is no calendar %q in app %q", r.GetName(), r.GetApp())
	}
	return calendar, nil
}

// ListCalendars returns the calendars of an app in one page, sorted by name.
func (s *Server) ListCalendars(_ context.Context, r *apiv1.ListCalendarsRequest) (*apiv1.ListCalendarsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := &apiv1.ListCalendarsResponse{}
	for _, calendar := range s.dates {
		if calendar.GetApp() == r.GetApp() {
			answer.Calendars = append(answer.Calendars, calendar)
		}
	}
	slices.SortFunc(answer.Calendars, func(a, b *apiv1.Calendar) int { return strings.Compare(a.GetName(), b.GetName()) })
	return answer, nil
}

// DeleteCalendar deletes a calendar. It refuses while a schedule names the calendar.
func (s *Server) DeleteCalendar(ctx context.Context, r *apiv1.DeleteCalendarRequest) (*apiv1.DeleteCalendarResponse, error) {
	if _, err := s.GetCalendar(ctx, &apiv1.GetCalendarRequest{App: r.GetApp(), Name: r.GetName()}); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, job := range s.jobs {
		if job.GetApp() == r.GetApp() && slices.Contains(slices.Concat(job.GetSchedule().GetInclude(), job.GetSchedule().GetExclude()), r.GetName()) {
			return nil, status.Errorf(codes.FailedPrecondition, "calendar %s is named by job %s", r.GetName(), job.GetName())
		}
	}
	delete(s.dates, r.GetApp()+"/"+r.GetName())
	return &apiv1.DeleteCalendarResponse{}, nil
}
