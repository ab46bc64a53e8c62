package console

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// jobToken begins the tokens of pages of jobs. An address has to escape it.
const jobToken = "token/2&x=y"

// fakeJobs is how the fake lists jobs.
type fakeJobs struct {
	endless  bool   // each page of jobs has a next one
	examined int    // jobs that one call examines; 0: all
	unsorted string // why the API refuses an order; "": it does not
}

func selects(j *apiv1.Job, r *apiv1.ListJobsRequest) bool {
	kind := map[string]bool{"cron": j.GetSchedule().GetCron() != "", "every": j.GetSchedule().GetEvery() != "", "none": j.Schedule == nil}
	s := j.GetStats().GetLastState()
	return strings.HasPrefix(j.Name, r.Prefix) && strings.Contains(j.Name, r.Contains) && (r.Owner == "" || r.Owner == j.Owner) &&
		(r.Module == "" || strings.HasPrefix(j.GetHandler().GetModule(), r.Module)) && (r.Schedule == "" || kind[r.Schedule]) &&
		(r.Paused == nil || *r.Paused == j.GetPaused()) && (!r.Failing || s != "" && s != "succeeded") &&
		maps.Equal(r.Labels, ownOf(j, r.Labels))
}

// ownOf returns the labels of a job that are among the wanted ones.
func ownOf(j *apiv1.Job, want map[string]string) map[string]string {
	all := maps.Clone(j.Labels)
	maps.DeleteFunc(all, func(k, _ string) bool { _, ok := want[k]; return !ok })
	return all
}

func (f *fakeAPI) ListJobs(_ context.Context, r *apiv1.ListJobsRequest) (*apiv1.ListJobsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unsorted != "" && r.Order != "" {
		return nil, status.Error(codes.FailedPrecondition, f.unsorted)
	}
	jobs := slices.Clone(f.jobs)
	switch r.Order {
	case "next_time":
		slices.SortStableFunc(jobs, func(a, b *apiv1.Job) int { return cmp.Compare(a.NextAt.GetSeconds(), b.NextAt.GetSeconds()) })
	case "last_run":
		slices.SortStableFunc(jobs, func(a, b *apiv1.Job) int {
			return -cmp.Compare(a.GetStats().GetLastFinishedAt().GetSeconds(), b.GetStats().GetLastFinishedAt().GetSeconds())
		})
	}
	from, _ := strconv.Atoi(strings.TrimPrefix(r.PageToken, jobToken))
	out := &apiv1.ListJobsResponse{}
	for i, j := range jobs[min(from, len(jobs)):] {
		if len(out.Jobs) == int(cmp.Or(r.PageSize, 50)) || f.examined > 0 && i == f.examined {
			out.NextPageToken = jobToken + strconv.Itoa(from+i)
			break
		}
		if selects(j, r) {
			j = proto.CloneOf(j)
			if !r.WithInput {
				j.Input, j.InputBytes = "", nil
			}
			out.Jobs = append(out.Jobs, j)
		}
	}
	if f.endless {
		out.NextPageToken = jobToken + "0"
	}
	return out, nil
}
