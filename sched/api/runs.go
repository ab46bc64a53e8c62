package api

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched/core"
	"github.com/wheelworkhq/wheelwork/store"
)

type runsAPI struct {
	apiv1.UnimplementedRunsServer
	s *Services
}

func parseRun(id string) (job.RunID, error) {
	r, err := job.ParseRunID(id)
	if err != nil {
		return r, status.Errorf(codes.InvalidArgument, "%q is %v", id, err)
	}
	return r, nil
}

func (a *runsAPI) GetRun(ctx context.Context, req *apiv1.GetRunRequest) (*apiv1.Run, error) {
	id, err := parseRun(req.Id)
	if err != nil {
		return nil, err
	}
	return a.s.run(ctx, core.AppOf(req.App), id)
}

func (a *runsAPI) CancelRun(ctx context.Context, req *apiv1.CancelRunRequest) (*apiv1.Run, error) {
	id, err := parseRun(req.Id)
	if err != nil {
		return nil, err
	}
	app := core.AppOf(req.App)
	live, err := core.Change(ctx, a.s.loop, func(l *core.Loop) (bool, error) { return l.Commands.CancelRun(app, id) })
	if err != nil {
		return nil, err
	}
	r, err := a.s.run(ctx, app, id)
	if err != nil {
		return nil, err
	}
	if !live {
		return nil, status.Errorf(codes.FailedPrecondition, "run %s has ended as %s: there is nothing to cancel", r.Id, r.State)
	}
	return r, nil
}

// The grace of TerminateRun by default and at most, and the time that an end takes after it.
const (
	defaultGrace = 10 * time.Second
	maxGrace     = 10 * time.Minute
	endingTime   = 5 * time.Second
)

func (a *runsAPI) TerminateRun(ctx context.Context, req *apiv1.TerminateRunRequest) (*apiv1.Run, error) {
	grace := defaultGrace
	if req.Grace != "" {
		var err error
		if grace, err = time.ParseDuration(req.Grace); err != nil || grace < 0 || grace > maxGrace {
			return nil, status.Errorf(codes.InvalidArgument, `grace: %q is not a time from 0 to %v: write "30s"`, req.Grace, maxGrace)
		}
	}
	r, err := a.CancelRun(ctx, &apiv1.CancelRunRequest{App: req.App, Id: req.Id})
	if err != nil || job.State(r.State).Terminal() {
		return r, err
	}
	id, err := parseRun(req.Id)
	if err != nil {
		return nil, err
	}
	app := core.AppOf(req.App)
	if r, err = a.awaitEnd(ctx, app, id, grace); err != nil || job.State(r.State).Terminal() {
		return r, err
	}
	why := fmt.Sprintf("terminated: no host confirmed the end within %s", grace)
	if _, err := core.Change(ctx, a.s.loop, func(l *core.Loop) (bool, error) { return l.Commands.TerminateRun(app, id, why) }); err != nil {
		return nil, err
	}
	return a.awaitEnd(ctx, app, id, endingTime)
}

// awaitEnd returns a run when it has ended, or after d.
func (a *runsAPI) awaitEnd(ctx context.Context, app string, id job.RunID, d time.Duration) (*apiv1.Run, error) {
	changed, stop := a.s.hub.Watch(id)
	defer stop()
	over := time.NewTimer(d)
	defer over.Stop()
	for late := d == 0; ; {
		r, err := a.s.run(ctx, app, id)
		if err != nil || late || job.State(r.State).Terminal() {
			return r, err
		}
		select {
		case <-changed:
		case <-over.C:
			late = true
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		case <-a.s.loop.Mail.Done:
			return nil, core.ErrEnded
		}
	}
}

func (a *runsAPI) WatchRun(req *apiv1.WatchRunRequest, stream apiv1.Runs_WatchRunServer) error {
	id, err := parseRun(req.Id)
	if err != nil {
		return err
	}
	ctx := stream.Context()
	changed, stop := a.s.hub.Watch(id)
	defer stop()
	var last *apiv1.Run
	for {
		r, err := a.s.run(ctx, core.AppOf(req.App), id)
		if err != nil {
			return err
		}
		if last == nil || !proto.Equal(r, last) {
			if err := stream.Send(r); err != nil {
				return err
			}
			last = r
		}
		if job.State(r.State).Terminal() {
			return nil
		}
		// An armed run becomes queued when its time comes, without a notification.
		var due <-chan time.Time
		if r.State == string(job.Armed) {
			due = time.After(time.Until(r.PlannedAt.AsTime()) + time.Millisecond)
		}
		select {
		case <-changed:
		case <-due:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-a.s.loop.Mail.Done:
			return core.ErrEnded
		}
	}
}

func (a *runsAPI) ReadLog(req *apiv1.ReadLogRequest, stream apiv1.Runs_ReadLogServer) error {
	id, err := parseRun(req.Id)
	if err != nil {
		return err
	}
	ctx, app := stream.Context(), core.AppOf(req.App)
	changed, stop := a.s.hub.Watch(id)
	defer stop()
	from := max(req.From, 0)
	for {
		// Read the state before the log. The lines of a run are stored before its end, so the
		// log of a run that has ended is complete.
		r, err := a.s.run(ctx, app, id)
		if err != nil {
			return err
		}
		if r.PayloadDeletedAt != nil { // a host that was lost may have sent lines since then
			return nil
		}
		if from, err = a.s.logs.read(runKey{app, id}, from, stream.Send); err != nil {
			return err
		}
		if !req.Follow || job.State(r.State).Terminal() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-a.s.loop.Mail.Done:
			return core.ErrEnded
		}
	}
}

// The token of a page of runs says where the next page begins: among the live runs
// ("live.EPOCH.SERIAL") or in the history ("history.EPOCH.RUN.CURSOR"). A list enters the
// history at its length at that time, because the list has shown the runs that end later as
// live. Serials and cursors are only valid for the owner that made them. If the owner has
// changed, the new one begins again with its newest live run, or continues in the history
// after RUN, the last run that was shown. A run may then be shown twice, but none is left
// out.
//
// A run that ends between two pages of live runs, or while the list enters the history, may
// be shown twice as well: the history does not tell on which page it was, or would have
// been. The SDK leaves out the second.
const (
	liveToken    = "live."
	historyToken = "history."
)

// runsToken is a parsed token.
type runsToken struct {
	history bool
	mine    bool      // the current owner made it
	serial  uint64    // the page begins with the first live run that is older; 0: with the newest one
	shown   job.RunID // the last run of the history that was shown; zero: none yet
	cursor  string    // of the store
}

func (a *runsAPI) parseRunsToken(s string) (t runsToken, err error) {
	kind, rest, _ := strings.Cut(s, ".")
	parts := strings.Split(rest, ".")
	if len(parts) > 1 {
		var epoch uint64
		if epoch, err = strconv.ParseUint(parts[0], 10, 64); err != nil {
			return t, err
		}
		t.mine = epoch == a.s.cfg.Epoch
	}
	switch {
	case s == "":
	case kind+"." == historyToken && len(parts) == 3:
		t.history, t.cursor = true, parts[2]
		if parts[1] != "" {
			t.shown, err = job.ParseRunID(parts[1])
		}
	case kind+"." == liveToken && len(parts) == 2:
		t.serial, err = strconv.ParseUint(parts[1], 10, 64)
	default:
		err = errors.New("unknown form")
	}
	return t, err
}

func (a *runsAPI) ListRuns(ctx context.Context, req *apiv1.ListRunsRequest) (*apiv1.ListRunsResponse, error) {
	for limit := pageSize(req.PageSize); ; {
		resp, err := a.listRuns(ctx, req, limit)
		if err != nil || len(resp.Runs) < 2 || proto.Size(resp) <= pageBytes {
			return resp, err
		}
		// The errors of the runs are long. Ask for fewer runs: a page cannot be cut, because there
		// is a token only for its end.
		limit = len(resp.Runs) / 2
	}
}

func (a *runsAPI) listRuns(ctx context.Context, req *apiv1.ListRunsRequest, limit int) (*apiv1.ListRunsResponse, error) {
	f, err := newRunFilter(req, time.Now())
	if err != nil {
		return nil, err
	}
	if req.Parent != "" {
		return a.runsUnder(ctx, req, f, limit)
	}
	resp := &apiv1.ListRunsResponse{}
	from, err := a.parseRunsToken(req.PageToken)
	if err != nil {
		return nil, badToken()
	}
	if !from.history {
		var before uint64
		if from.mine {
			before = from.serial
		}
		// Read the live runs before the store. A run that ends in between is then found twice
		// and not missed; the second entry is dropped below.
		var more uint64
		if resp.Runs, more, err = a.liveRuns(ctx, f, before, limit); err != nil {
			return nil, err
		}
		f.search.report(resp)
		if more > 0 {
			resp.NextPageToken = fmt.Sprintf("%s%d.%d", liveToken, a.s.cfg.Epoch, more)
			return resp, nil
		}
	}
	if !f.wantsEnded() {
		return resp, nil
	}
	if err := a.s.loop.CaughtUp(ctx); err != nil {
		return nil, err
	}
	if len(resp.Runs) == limit {
		resp.NextPageToken = a.historyPage(from, a.s.cfg.Store.EndCursor())
		return resp, nil
	}
	err = a.endedRuns(f, from, limit, resp)
	f.search.report(resp)
	return resp, err
}

// maxReads bounds the pages of the store that one page of a list reads, each of up to
// 65 536 runs. A list with rare runs continues on the next page.
const maxReads = 4

// endedRuns adds ended runs to a page until it has limit runs. It continues where the token
// from says, and sets the token of the next page.
func (a *runsAPI) endedRuns(f *runFilter, from runsToken, limit int, resp *apiv1.ListRunsResponse) error {
	q := f.ended
	q.Damaged = func(error) { resp.UnreadableBlocks++ }
	switch {
	case !from.history:
	case from.mine && from.cursor != "":
		q.Cursor = from.cursor
	default:
		q.After = from.shown
	}
	seen := map[string]bool{}
	for _, r := range resp.Runs {
		seen[r.Id] = true
	}
	for reads := 1; ; reads++ {
		q.Limit = limit - len(resp.Runs)
		if f.search != nil {
			q.Limit = searchPage
		} else if f.readsRows() {
			q.Limit = maxPage
		}
		values, next, err := a.s.cfg.Store.Runs(q)
		if errors.Is(err, store.ErrCursor) {
			return badToken()
		}
		if err != nil {
			return err
		}
		for i, value := range values {
			row := &apiv1.RunRow{}
			if err := proto.Unmarshal(value, row); err != nil {
				return err
			}
			if len(row.Id) == len(from.shown) {
				from.shown = job.RunID(row.Id)
			}
			if f.readsRows() && !f.keepsEnded(row) {
				continue
			}
			if m := job.RunMessage(row, time.Now()); !seen[m.Id] && f.search.keeps(m) {
				resp.Runs = append(resp.Runs, brief(m))
			}
			if (len(resp.Runs) == limit || f.search.over()) && (i < len(values)-1 || next != "") {
				cursor := next
				if i < len(values)-1 {
					cursor = "" // the next page continues after the run that was shown last
				}
				resp.NextPageToken = a.historyPage(from, cursor)
				return nil
			}
		}
		switch {
		case next == "":
			return nil
		case !f.readsRows() || f.search == nil && reads == maxReads || f.search.over():
			resp.NextPageToken = a.historyPage(from, next)
			return nil
		}
		q.Cursor, q.After = next, job.RunID{}
	}
}

// historyPage returns the token of a page of the history that begins at a cursor; "": after
// the run that was shown last.
func (a *runsAPI) historyPage(t runsToken, cursor string) string {
	shown := ""
	if t.shown != (job.RunID{}) {
		shown = t.shown.String()
	}
	return fmt.Sprintf("%s%d.%s.%s", historyToken, a.s.cfg.Epoch, shown, cursor)
}

// liveRuns returns live runs that match. more is the argument before of the next page; 0: there is none.
func (a *runsAPI) liveRuns(ctx context.Context, f *runFilter, before uint64, limit int) (runs []*apiv1.Run, more uint64, err error) {
	for more = before; len(runs) < limit; {
		var page []*apiv1.Run
		size := limit - len(runs)
		if f.search != nil {
			size = min(size, searchPage)
		}
		if page, more, err = a.newestRuns(ctx, f.live, more, size); err != nil {
			return nil, 0, err
		}
		for _, r := range page {
			if f.search.keeps(r) {
				runs = append(runs, brief(r))
			}
		}
		if f.search == nil || more == 0 || f.search.over() {
			break
		}
	}
	return runs, more, nil
}

// newestRuns returns live runs with their inputs.
func (a *runsAPI) newestRuns(ctx context.Context, f core.RunFilter, before uint64, limit int) ([]*apiv1.Run, uint64, error) {
	if len(f.States) == 0 {
		return nil, 0, nil
	}
	type page struct {
		runs []*apiv1.Run
		more uint64
	}
	p, err := core.Ask(ctx, a.s.loop, func(l *core.Loop) (p page, err error) {
		p.runs, p.more = l.Newest(f, before, limit)
		return p, nil
	})
	return p.runs, p.more, err
}
