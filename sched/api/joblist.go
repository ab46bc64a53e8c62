package api

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched/core"
)

const (
	// maxExamined bounds the jobs that one turn of the loop examines: a millisecond of its time.
	maxExamined = 5000
	// maxOrdered bounds the jobs of an app that are put into an order other than that of their names.
	maxOrdered = 100_000
)

// jobList is the request of a list of jobs.
type jobList struct {
	app, prefix string
	filter      job.Filter
	order       job.Order
	after       string // the position after which the page begins; "": at the beginning
	size        int
	withInput   bool
}

func newJobList(req *apiv1.ListJobsRequest) (*jobList, error) {
	order, err := job.OrderOf(req.Order)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if req.Schedule != "" && !slices.Contains(job.ScheduleKinds(), req.Schedule) {
		return nil, status.Errorf(codes.InvalidArgument, "there is no kind of schedule %q: want one of %s", req.Schedule, strings.Join(job.ScheduleKinds(), ", "))
	}
	after, err := base64.RawURLEncoding.DecodeString(req.PageToken)
	if err != nil || len(after) > 0 && order.NameAt(string(after)) == "" {
		return nil, badToken()
	}
	return &jobList{
		app: core.AppOf(req.App), prefix: req.Prefix, order: order, after: string(after), size: pageSize(req.PageSize), withInput: req.WithInput,
		filter: job.Filter{
			Contains: req.Contains, Labels: req.Labels, Owner: req.Owner, Module: req.Module,
			Schedule: req.Schedule, Paused: req.Paused, Failing: req.Failing,
		},
	}, nil
}

func (a *jobsAPI) ListJobs(ctx context.Context, req *apiv1.ListJobsRequest) (*apiv1.ListJobsResponse, error) {
	list, err := newJobList(req)
	if err != nil {
		return nil, err
	}
	if err := a.s.loop.CaughtUp(ctx); err != nil {
		return nil, err
	}
	positions, more, err := a.positions(ctx, list)
	if err != nil {
		return nil, err
	}
	return core.Ask(ctx, a.s.loop, func(l *core.Loop) (*apiv1.ListJobsResponse, error) { return list.page(l, positions, more), nil })
}

// positions returns the positions of the jobs that a page examines, and whether there are more.
func (a *jobsAPI) positions(ctx context.Context, list *jobList) (positions []string, more bool, err error) {
	if list.order != job.ByName {
		return a.firstPositions(ctx, list)
	}
	examined := list.size
	if !list.filter.Any() {
		examined = maxExamined
	}
	return a.s.cfg.Store.Jobs(list.app, list.prefix, list.after, examined)
}

// firstPositions examines all jobs and returns the first positions of a page. The loop does other work
// after every maxExamined jobs.
func (a *jobsAPI) firstPositions(ctx context.Context, list *jobList) (positions []string, more bool, err error) {
	last := ""
	for examined, rest := 0, true; rest; {
		var names []string
		if names, rest, err = a.s.cfg.Store.Jobs(list.app, list.prefix, last, maxExamined); err != nil {
			return nil, false, err
		}
		if examined += len(names); examined > maxOrdered {
			return nil, false, status.Errorf(codes.FailedPrecondition, "app %s has more than %d jobs to put into an order: list them by name, or give a prefix", list.app, maxOrdered)
		}
		before := positions // f may still run when Ask has returned because ctx ended
		positions, err = core.Ask(ctx, a.s.loop, func(l *core.Loop) ([]string, error) {
			positions := slices.Clone(before)
			for _, name := range names {
				if j := l.State.Job(list.app, name); j != nil && list.filter.Keeps(j) {
					if position := core.JobPosition(l, list.order, j); position > list.after {
						positions = insertPosition(positions, position, list.size+1)
					}
				}
			}
			return positions, nil
		})
		if err != nil {
			return nil, false, err
		}
		if len(names) > 0 {
			last = names[len(names)-1]
		}
	}
	if more = len(positions) > list.size; more {
		positions = positions[:list.size]
	}
	return positions, more, nil
}

// insertPosition inserts a position into sorted positions, of which it keeps the first limit.
func insertPosition(positions []string, position string, limit int) []string {
	if len(positions) == limit && position >= positions[limit-1] {
		return positions
	}
	i, _ := slices.BinarySearch(positions, position)
	positions = slices.Insert(positions, i, position)
	return positions[:min(len(positions), limit)]
}

// page returns the jobs at positions, as far as the page has room.
func (list *jobList) page(l *core.Loop, positions []string, more bool) *apiv1.ListJobsResponse {
	resp, page, last := &apiv1.ListJobsResponse{}, Page{}, ""
	for _, position := range positions {
		if j := l.State.Job(list.app, list.order.NameAt(position)); j != nil && list.filter.Keeps(j) { // nil: it was deleted meanwhile
			if len(resp.Jobs) == list.size {
				more = true
				break
			}
			m := l.JobMessage(j)
			if !list.withInput {
				m.Input, m.InputBytes = "", nil
			}
			if !page.Fits(m) {
				more = true
				break
			}
			resp.Jobs = append(resp.Jobs, m)
		}
		last = position
	}
	if more {
		resp.NextPageToken = base64.RawURLEncoding.EncodeToString([]byte(last))
	}
	return resp
}
