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
// ("live.EPOCH.SERIAL") or in the history ("history.EPOCH.RUN.CURSOR", or "history." for its
// beginning). Serials and cursors are only valid for the owner that made them. If the owner
// has changed, the new one begins again with its newest live run, or continues in the history
// after RUN, the last run that was shown. A run may then be shown twice, but none is left out.
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
	case kind+"." == historyToken && rest == "":
		t.history = true
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
	app := core.AppOf(req.App)
	live, ended, err := statesOf(req.State)
	allEnded := req.State == "" || req.State == "ended" // any state of the history
	if err != nil {
		return nil, err
	}
	if req.Parent != "" {
		return a.runsUnder(ctx, req, live, ended, limit)
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
		if resp.Runs, more, err = a.liveRuns(ctx, app, req, live, before, limit); err != nil {
			return nil, err
		}
		if more > 0 {
			resp.NextPageToken = fmt.Sprintf("%s%d.%d", liveToken, a.s.cfg.Epoch, more)
			return resp, nil
		}
	}
	if len(ended) == 0 && !allEnded {
		return resp, nil
	}
	if len(resp.Runs) == limit {
		resp.NextPageToken = historyToken // from its beginning
		return resp, nil
	}
	if err := a.s.loop.CaughtUp(ctx); err != nil {
		return nil, err
	}
	filter := ended
	if allEnded {
		filter = nil
	}
	q := store.RunQuery{
		App: app, Job: req.Job, Host: req.Host, States: filter, Limit: limit - len(resp.Runs),
		Damaged: func(error) { resp.UnreadableBlocks++ },
	}
	if from.mine {
		q.Cursor = from.cursor
	} else {
		q.After = from.shown
	}
	values, next, err := a.s.cfg.Store.Runs(q)
	if errors.Is(err, store.ErrCursor) {
		return nil, badToken()
	}
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, r := range resp.Runs {
		seen[r.Id] = true
	}
	for _, value := range values {
		row := &apiv1.RunRow{}
		if err := proto.Unmarshal(value, row); err != nil {
			return nil, err
		}
		if len(row.Id) == len(from.shown) {
			from.shown = job.RunID(row.Id)
		}
		if m := brief(job.RunMessage(row, time.Now())); !seen[m.Id] {
			resp.Runs = append(resp.Runs, m)
		}
	}
	if next != "" {
		shown := ""
		if from.shown != (job.RunID{}) {
			shown = from.shown.String()
		}
		resp.NextPageToken = fmt.Sprintf("%s%d.%s.%s", historyToken, a.s.cfg.Epoch, shown, next)
	}
	return resp, nil
}

func badToken() error {
	return status.Error(codes.InvalidArgument, "page_token is not one that this list returned")
}

func (a *runsAPI) liveRuns(ctx context.Context, app string, req *apiv1.ListRunsRequest, states []job.State, before uint64, limit int) (runs []*apiv1.Run, more uint64, err error) {
	if len(states) == 0 {
		return nil, 0, nil
	}
	type page struct {
		runs []*apiv1.Run
		more uint64
	}
	p, err := core.Ask(ctx, a.s.loop, func(l *core.Loop) (p page, err error) {
		p.runs, p.more = l.Newest(core.RunFilter{App: app, Job: req.Job, Host: req.Host, States: states}, before, limit)
		return p, nil
	})
	for _, r := range p.runs {
		brief(r)
	}
	return p.runs, p.more, err
}

// brief clears the fields that a list does not show, and returns r.
func brief(r *apiv1.Run) *apiv1.Run {
	r.Input, r.InputBytes, r.Output, r.OutputBytes, r.Trace, r.Nodes = "", nil, "", nil, "", nil
	return r
}

// statesOf returns the live and the ended states that the filter of a list selects. For the
// filter "" it returns all live states, and no ended ones: the caller then reads all of them.
func statesOf(filter string) (live []job.State, ended []string, err error) {
	for _, s := range job.States() {
		var match bool
		switch filter {
		case "", string(s):
			match = true
		case "live":
			match = !s.Terminal()
		case "ended":
			match = s.Terminal()
		case "unsuccessful":
			match = s.Terminal() && s != job.Succeeded && s != job.Skipped
		}
		switch {
		case match && s.Terminal():
			ended = append(ended, string(s))
		case match:
			live = append(live, s)
		}
	}
	if live == nil && ended == nil {
		return nil, nil, status.Errorf(codes.InvalidArgument, "there is no state %q: want live, ended, unsuccessful, or one of %s", filter, strings.Trim(fmt.Sprint(job.States()), "[]"))
	}
	if filter == "" {
		return live, nil, nil
	}
	return live, ended, nil
}
