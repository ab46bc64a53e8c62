package api

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched/core"
)

// This file finds the child runs of a run: its parts, or the runs of its nodes. The ids of
// parts are derived from the id of their parent, and the row of a workflow's run has the ids
// of the runs of its nodes, so no list is searched.

const (
	underToken = "under."
	// maxUnder bounds the child runs that one page examines, and underStep those that the
	// loop looks up in one turn.
	maxUnder  = 4096
	underStep = 256
)

// under identifies the child runs of a run.
type under struct {
	app    string
	parent job.RunID
	of     *apiv1.Run
}

// len returns the number of child runs, including those that were not made.
func (u *under) len() int {
	if len(u.of.Nodes) > 0 {
		return len(u.of.Nodes)
	}
	return int(u.of.Parts)
}

// id returns the id of child run n; zero: that of a node that has not run.
func (u *under) id(n int) job.RunID {
	if len(u.of.Nodes) > 0 {
		id, err := job.ParseRunID(u.of.Nodes[n].Run)
		if err != nil {
			return job.RunID{}
		}
		return id
	}
	return job.PartID(u.app, u.of.Job, u.of.PlannedAt.AsTime(), u.parent, int32(n))
}

// under returns the child runs of a run. A part has none.
func (s *Services) under(ctx context.Context, app string, parent job.RunID) (*under, error) {
	of, err := s.run(ctx, app, parent)
	if err != nil {
		return nil, err
	}
	u := &under{app, parent, of}
	if of.Parent != "" {
		u.of.Parts = 0 // the row of a part has the number of its parent's parts
	}
	return u, nil
}

// runsUnder is ListRuns for the child runs of req.Parent.
func (a *runsAPI) runsUnder(ctx context.Context, req *apiv1.ListRunsRequest, f *runFilter, limit int) (*apiv1.ListRunsResponse, error) {
	id, err := parseRun(req.Parent)
	if err != nil {
		return nil, err
	}
	from := 0
	if req.PageToken != "" {
		text, ok := strings.CutPrefix(req.PageToken, underToken)
		if from, err = strconv.Atoi(text); !ok || err != nil || from < 0 {
			return nil, badToken()
		}
	}
	u, err := a.s.under(ctx, core.AppOf(req.App), id)
	if err != nil {
		return nil, err
	}
	resp := &apiv1.ListRunsResponse{}
	end := min(u.len(), from+maxUnder)
	for n := from; n < end; n += underStep {
		last := min(n+underStep, end)
		found, err := a.s.rowsUnder(ctx, u, n, last)
		if err != nil {
			return nil, err
		}
		for i, row := range found {
			if row == nil {
				continue
			}
			m := job.RunMessage(row, time.Now())
			if !f.keeps(row, m.State) || !f.search.keeps(m) {
				continue
			}
			if len(resp.Runs) == limit {
				resp.NextPageToken = fmt.Sprint(underToken, n+i)
				f.search.report(resp)
				return resp, nil
			}
			resp.Runs = append(resp.Runs, brief(m))
		}
		if f.search.over() {
			end = last
		}
	}
	f.search.report(resp)
	if end < u.len() {
		resp.NextPageToken = fmt.Sprint(underToken, end)
	}
	return resp, nil
}

// rowsUnder returns the rows of the child runs n with from <= n < to; nil: there is no such
// run. It looks up live runs before the history, so that a run that ends in between is found.
func (s *Services) rowsUnder(ctx context.Context, u *under, from, to int) ([]*apiv1.RunRow, error) {
	numbers := make([]int32, to-from)
	for i := range numbers {
		numbers[i] = int32(from + i)
	}
	return s.rowsOf(ctx, u, numbers)
}

// rowsOf is rowsUnder for the given numbers.
func (s *Services) rowsOf(ctx context.Context, u *under, numbers []int32) ([]*apiv1.RunRow, error) {
	ids := make([]job.RunID, len(numbers))
	for i, n := range numbers {
		ids[i] = u.id(int(n))
	}
	type seen struct {
		live  *apiv1.RunRow
		ended []byte // the encoded row
	}
	known, err := core.Ask(ctx, s.loop, func(l *core.Loop) ([]seen, error) {
		known := make([]seen, len(ids))
		for i, id := range ids {
			known[i].live, known[i].ended = l.RunRow(u.app, id)
		}
		return known, nil
	})
	if err != nil {
		return nil, err
	}
	rows := make([]*apiv1.RunRow, len(ids))
	for i, k := range known {
		rows[i] = k.live
		if k.live != nil || ids[i] == (job.RunID{}) {
			continue
		}
		if k.ended == nil {
			var ok bool
			if k.ended, ok, err = s.cfg.Store.Run(u.app, ids[i]); err != nil {
				return nil, err
			} else if !ok {
				continue
			}
		}
		rows[i] = &apiv1.RunRow{}
		if err := proto.Unmarshal(k.ended, rows[i]); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// maxOutputs is the approximate size of a message of outputs, in bytes.
const maxOutputs = 64 << 10

// redoOf finds the parts of a run that did not succeed. Parts that succeeded must not run
// again, so redoOf fails if it cannot tell the two apart.
func (s *Services) redoOf(ctx context.Context, u *under) (*core.Redo, error) {
	g := &redoing{
		s: s, u: u, maps: strings.HasPrefix(u.of.Fanout, "map"), reduces: u.of.Fanout == "map_reduce",
		redo: &core.Redo{Fanout: u.of.Fanout, Resumed: &apiv1.Resumed{Parts: u.of.Parts}},
	}
	for n := 0; n < u.len(); n += underStep {
		rows, err := s.rowsUnder(ctx, u, n, min(n+underStep, u.len()))
		if err != nil {
			return nil, err
		}
		for i, row := range rows {
			if err := g.look(int32(n+i), row); err != nil {
				return nil, err
			}
		}
	}
	if n := u.of.PartsFailed - g.failed; n > 0 {
		return nil, g.refuse("of %d of its parts there is no run: they had not begun when it was cancelled, or are gone from the history", n)
	}
	if err := g.earlier(ctx); err != nil {
		return nil, err
	}
	g.keep()
	return g.redo, nil
}

// redoing is the state of redoOf.
type redoing struct {
	s             *Services
	u             *under
	redo          *core.Redo
	maps, reduces bool
	failed        int32   // parts that did not succeed
	kept          []int32 // parts without a run, which have succeeded in an earlier run
	outputs       []*apiv1.MapOutputs_Output
	bytes         int // of outputs
}

func (g *redoing) refuse(format string, args ...any) error {
	return status.Errorf(codes.FailedPrecondition, "run %s cannot go on where it ended: %s: trigger job %s to run all of it", g.u.of.Id, fmt.Sprintf(format, args...), g.u.of.Job)
}

// look examines part n. row is nil if the part was not made, because it had succeeded before
// or was given up.
func (g *redoing) look(n int32, row *apiv1.RunRow) error {
	redo, m := g.redo, g.redo.Resumed
	if row.GetReduce() {
		m.Parts-- // the part that reduces is made when all others have succeeded
	}
	switch {
	case row == nil:
		g.kept = append(g.kept, n)
		return nil
	case row.State == string(job.Succeeded):
		if g.reduces && !row.Reduce {
			g.output(n, row.Output)
		}
		return nil
	}
	g.failed++
	switch {
	case row.Reduce:
	case g.maps:
		if m.Inputs == nil {
			m.Inputs = &apiv1.MapChunk{}
		}
		in := m.Inputs
		in.Parts = append(in.Parts, &apiv1.MapPart{Number: n, Depth: row.Depth, Mapped: row.Mapped})
		in.Sizes = append(in.Sizes, uint32(len(row.Input)))
		if in.Data = append(in.Data, row.Input...); len(in.Data) > job.MaxMapBytes || len(in.Parts) > job.MaxMapBatch {
			return g.refuse("more than %d of its parts did not succeed, or their inputs are more than %d MiB", job.MaxMapBatch, job.MaxMapBytes>>20)
		}
	default:
		redo.Parts = append(redo.Parts, n)
		if row.Pinned != "" {
			m.Hosts = append(m.Hosts, row.Pinned)
		}
	}
	return nil
}

// output collects the output of a part for the part that reduces.
func (g *redoing) output(n int32, output []byte) {
	m := g.redo.Resumed
	const overhead = 32 // of one output, about
	if g.bytes += len(output) + overhead; m.Overflow || g.bytes > job.MaxReduce {
		m.Overflow, g.outputs = true, nil // the outputs are too large to be reduced
		return
	}
	g.outputs = append(g.outputs, &apiv1.MapOutputs_Output{Part: n, Output: output})
}

// earlier finds the outputs of the parts that had succeeded before the run, in the runs that
// it retries directly or indirectly.
func (g *redoing) earlier(ctx context.Context) error {
	u := g.u
	for g.reduces && len(g.kept) > 0 && !g.redo.Resumed.Overflow {
		cause, err := job.ParseRunID(u.of.Cause)
		if err != nil || u.of.Trigger != string(job.ByRetry) {
			return g.refuse("the outputs of %d of its parts are not in the history", len(g.kept))
		}
		if u, err = g.s.under(ctx, u.app, cause); status.Code(err) == codes.NotFound {
			return g.refuse("the outputs of %d of its parts are gone from the history, with run %s", len(g.kept), cause)
		} else if err != nil {
			return err
		}
		var left []int32
		for numbers := range slices.Chunk(g.kept, underStep) {
			rows, err := g.s.rowsOf(ctx, u, numbers)
			if err != nil {
				return err
			}
			for i, row := range rows {
				if row.GetState() == string(job.Succeeded) {
					g.output(numbers[i], row.Output)
				} else {
					left = append(left, numbers[i])
				}
			}
		}
		g.kept = left
	}
	return nil
}

// keep divides the outputs into messages of about maxOutputs bytes.
func (g *redoing) keep() {
	m, size := g.redo.Resumed, maxOutputs
	for _, o := range g.outputs {
		if size >= maxOutputs {
			m.Outputs, size = append(m.Outputs, &apiv1.MapOutputs{}), 0
		}
		c := m.Outputs[len(m.Outputs)-1]
		c.Outputs = append(c.Outputs, o)
		size += len(o.Output)
	}
}
