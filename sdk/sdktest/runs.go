package sdktest

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// hasLabels reports whether labels has all entries of wanted.
func hasLabels(labels, wanted map[string]string) bool {
	for k, v := range wanted {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// selects reports whether a list with the conditions of r has the run at the time now.
func selects(r *apiv1.ListRunsRequest, run *apiv1.Run, now time.Time) bool {
	live := run.GetFinishedAt() == nil
	state := false
	switch r.GetState() {
	case "", run.GetState():
		state = true
	case "live":
		state = live
	case "ended":
		state = !live
	case "unsuccessful":
		state = !live && run.GetState() != "succeeded" && run.GetState() != "skipped"
	}
	end := now
	if !live {
		end = run.GetFinishedAt().AsTime()
	}
	return state && (r.GetJob() == "" || run.GetJob() == r.GetJob()) && (r.GetHost() == "" || run.GetHost() == r.GetHost()) &&
		(len(r.GetTriggers()) == 0 || slices.Contains(r.GetTriggers(), run.GetTrigger())) && hasLabels(run.GetLabels(), r.GetLabels()) &&
		strings.Contains(run.GetInput()+string(run.GetInputBytes()), r.GetInput()) && strings.Contains(run.GetOutput()+string(run.GetOutputBytes()), r.GetOutput()) &&
		(r.GetSince() == nil || live || !end.Before(r.GetSince().AsTime())) && (r.GetUntil() == nil || end.Before(r.GetUntil().AsTime()))
}

// ListRuns returns runs, newest first, in pages of 50 by default. It has no parts and no
// nodes, and refuses to search for values in JSON.
func (s *Server) ListRuns(_ context.Context, r *apiv1.ListRunsRequest) (*apiv1.ListRunsResponse, error) {
	if len(r.GetInputValues())+len(r.GetOutputValues()) > 0 {
		return nil, status.Error(codes.Unimplemented, "this server for tests finds no values in inputs and outputs: use input and output, which find texts")
	}
	if r.GetInput()+r.GetOutput() != "" && r.GetSince() == nil {
		return nil, status.Error(codes.InvalidArgument, "a search by input or output needs the start of a time range: set since, such as 24 hours ago")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := &apiv1.ListRunsResponse{UnreadableBlocks: int32(s.conf.UnreadableBlocks)}
	for _, run := range slices.Backward(s.runs) {
		older := r.GetPageToken() == "" || run.GetId() < r.GetPageToken()
		if !older || !selects(r, run.Run, s.nowLocked()) {
			continue
		}
		if len(answer.Runs) == int(cmp.Or(r.GetPageSize(), 50)) {
			answer.NextPageToken = answer.Runs[len(answer.Runs)-1].GetId()
			break
		}
		answer.Runs = append(answer.Runs, proto.CloneOf(run.Run))
	}
	return answer, nil
}

// BulkRuns handles all runs in one page.
func (s *Server) BulkRuns(_ context.Context, r *apiv1.BulkRunsRequest) (*apiv1.BulkRunsResponse, error) {
	states := map[string]string{"cancel": "live", "retry": "unsuccessful"}
	filter := &apiv1.ListRunsRequest{
		Job: r.GetJob(), State: cmp.Or(r.GetState(), states[r.GetAction()]), Host: r.GetHost(), Triggers: r.GetTriggers(),
		Labels: r.GetLabels(), Since: r.GetSince(), Until: r.GetUntil(),
	}
	switch {
	case states[r.GetAction()] == "":
		return nil, status.Errorf(codes.InvalidArgument, "action: %q is neither cancel nor retry", r.GetAction())
	case filter.Job == "" && filter.Host == "" && len(filter.Triggers)+len(filter.Labels) == 0 && filter.Since == nil && filter.Until == nil && !r.GetAll():
		return nil, status.Error(codes.InvalidArgument, "say which runs: by job, host, triggers, labels, since or until, or all of them with all")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := &apiv1.BulkRunsResponse{}
	for _, run := range slices.Clone(s.runs) {
		if run.GetApp() != r.GetApp() || !selects(filter, run.Run, s.nowLocked()) {
			continue
		}
		answer.Matched++
		if r.GetDryRun() {
			continue
		}
		if r.GetAction() == "cancel" {
			run.CancelRequested = true
			run.cancel()
			answer.Changed++
			continue
		}
		if _, err := s.retryLocked(run); err != nil {
			answer.Failures = append(answer.Failures, run.GetId()+": "+status.Convert(err).Message())
			continue
		}
		answer.Changed++
	}
	return answer, nil
}

// TerminateRun cancels a run. Its function decides when it ends.
func (s *Server) TerminateRun(ctx context.Context, r *apiv1.TerminateRunRequest) (*apiv1.Run, error) {
	return s.CancelRun(ctx, &apiv1.CancelRunRequest{App: r.GetApp(), Id: r.GetId()})
}
