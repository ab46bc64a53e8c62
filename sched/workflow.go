package sched

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// This file advances runs of workflows. The next step follows from the state of the run
// alone, so it can be computed at any time: when the run begins, when the run of a node
// has ended, when it is cancelled, after a restart. One batch has the end of a node's
// run, the decision of the workflow about it, and the runs that the decision starts (ADR
// 11, 14).

const (
	// fullBatchBytes is the size of a batch, in bytes, to which no further step is added.
	// startBytes bounds the records of the nodes that one step starts, in bytes.
	fullBatchBytes = 2 * stageBytes
	startBytes     = 1 << 20
)

// begin begins a due run of a workflow in this turn. The run needs no host, so it does
// not go through the ready queue.
func (l *loop) begin(r *job.Run) {
	if !l.due(r) || l.expired(r) || l.limited(r) {
		return
	}
	l.moved = append(l.moved, r)
}

// workflowTimer advances a run of a workflow.
type workflowTimer struct{ r *job.Run }

func (x *workflowTimer) holds(l *loop) bool {
	return l.liveRun(x.r.App, x.r.ID) == x.r && x.r.HasNodes()
}

// watchNodes sets the timers of a run of a workflow after a restart: one for now, and one
// for its timeout.
func (l *loop) watchNodes(r *job.Run) {
	l.wheel.Add(l.nowMs, &workflowTimer{r})
	if r.Policy.Timeout > 0 {
		l.wheel.Add(r.StartedMs+r.Policy.Timeout.Milliseconds()-l.ahead.lag(r), &workflowTimer{r})
	}
}

// advance advances the runs of moved, and the runs of workflows that have nodes among the
// runs of ended.
func (l *loop) advance(ended, moved []*job.Run) {
	var ends map[*job.Run][]*job.Run
	for _, up := range ended {
		if up.Node == "" {
			continue
		}
		if r := l.liveRun(up.App, up.Cause); r != nil && r.HasNodes() {
			if ends == nil {
				ends = map[*job.Run][]*job.Run{}
			}
			if ends[r] == nil {
				moved = append(moved, r)
			}
			ends[r] = append(ends[r], up)
		}
	}
	for _, r := range moved {
		if l.liveRun(r.App, r.ID) == r && (r.HasNodes() || l.due(r)) {
			l.step(r, ends[r])
		}
		delete(ends, r)
	}
}

// step decides and records the next step of a run of a workflow. ended has the runs of
// its nodes that have ended in this turn.
func (l *loop) step(r *job.Run, ended []*job.Run) {
	g, err := r.Graph()
	if err != nil {
		l.endUnrun(r, job.Failed, "workflow", "its workflow was accepted by another version and cannot be read: apply the job again: "+err.Error())
		return
	}
	s := &stepping{l: l, r: r, g: g, a: &apiv1.Advanced{Run: r.ID[:]}}
	if r.HasNodes() {
		s.rows = slices.Clone(r.Nodes.Rows)
	} else {
		if r.Nodes != nil {
			s.a.GoOn = g.Keep(r.Nodes.Kept)
		}
		s.rows = r.BeginNodes(s.a.GoOn)
	}
	for _, up := range ended {
		if i, row := g.Ended(s.rows, up); row != nil {
			s.set(i, row)
		}
	}
	switch {
	case l.cramped() || l.live >= 2*l.cfg.MaxLive:
		s.later(armWindow)
	case l.stage.bytes >= fullBatchBytes:
		s.later(0)
	default:
		s.decide()
	}
	s.record()
}

// stepping is the decision of one step.
type stepping struct {
	l      *loop
	r      *job.Run
	g      *job.Graph
	a      *apiv1.Advanced
	rows   []*apiv1.NodeRow  // all nodes, as they are after the step
	starts []*apiv1.Accepted // runs of nodes to start
	stops  []*job.Run        // runs of nodes to cancel
	wait   bool              // the run cannot begin now
}

func (s *stepping) set(i int, row *apiv1.NodeRow) {
	s.rows[i] = row
	s.a.Nodes = append(s.a.Nodes, row)
}

// later advances the run again after ms, or admits it again if it has not begun.
func (s *stepping) later(ms int64) {
	if s.r.HasNodes() {
		s.l.wheel.Add(s.l.nowMs+ms, &workflowTimer{s.r})
		return
	}
	s.l.wheel.Add(s.l.nowMs+ms, &readmitTimer{r: s.r})
	s.wait = true
}

// decide decides the next states of the nodes that have not ended, and the end of the run
// if all have.
func (s *stepping) decide() {
	l, r := s.l, s.r
	if t := r.Policy.Timeout; t > 0 && r.HasNodes() && !r.CancelRequested && l.nowMs+l.ahead.lag(r) >= r.StartedMs+t.Milliseconds() {
		if err := l.cancel(r, timedOut(r)); err != nil {
			s.later(armWindow)
			return
		}
	}
	if r.CancelRequested {
		s.cancel()
	} else {
		s.follow()
	}
	if slices.ContainsFunc(s.rows, func(n *apiv1.NodeRow) bool { return !job.State(n.State).Terminal() }) {
		return
	}
	to, why, code, output := s.g.Result(s.rows, r.CancelRequested)
	if to == job.Stopped && r.CancelWhy == timedOut(r) {
		to, why, code = job.TimedOut, r.CancelWhy, "timeout"
	}
	s.a.State, s.a.Error, s.a.Code, s.a.Output = string(to), why, code, output
	s.a.JobNextMs = l.delayNext(r)
}

// timedOut returns the reason with which a run of a workflow is cancelled at its timeout.
func timedOut(r *job.Run) string {
	return "it did not end within its timeout of " + r.Policy.Timeout.String()
}

func (s *stepping) cancel() {
	for i, n := range s.rows {
		switch job.State(n.State) {
		case job.Pending:
			s.set(i, s.g.Unrun(i, job.Cancelled, "its workflow was cancelled before", "cancelled", s.l.nowMs))
		case job.Running:
			if run := s.l.liveRun(s.r.App, job.RunID(n.Run)); run != nil && !run.CancelRequested {
				s.stops = append(s.stops, run)
			}
		}
	}
}

// follow starts the nodes that are ready, and ends the nodes that their conditions
// exclude.
func (s *stepping) follow() {
	l, r, size := s.l, s.r, 0
	for _, m := range s.g.Next(s.rows, r.Given(), func(name string) bool { return l.job(r.App, name) != nil }) {
		if m.State != job.Running {
			s.set(m.Node, s.g.Unrun(m.Node, m.State, m.Error, m.Code, l.nowMs))
			continue
		}
		id := s.g.NodeID(r, m.Node, l.nowMs)
		acc := &apiv1.Accepted{
			Run: id[:], Job: s.g.Job(m.Node), Node: s.g.Name(m.Node), Cause: r.ID[:], Trigger: string(job.ByWorkflow),
			HasInput: m.HasInput, Input: m.Input, Priority: r.Policy.Priority, TraceParent: r.TraceParent, Kept: s.rows[m.Node].Nodes,
		}
		if size += proto.Size(acc); size > startBytes && len(s.starts) > 0 {
			s.later(0)
			return // the next step starts the rest
		}
		s.starts = append(s.starts, acc)
		s.set(m.Node, s.g.Started(m.Node, id, l.nowMs))
	}
}

func (s *stepping) record() {
	l, r, begins := s.l, s.r, !s.r.HasNodes()
	if s.wait || !begins && len(s.a.Nodes) == 0 && s.a.State == "" && len(s.stops) == 0 {
		return
	}
	if begins || len(s.a.Nodes) > 0 || s.a.State != "" {
		l.record(l.slotOf(r), &apiv1.Record{Kind: &apiv1.Record_Advanced{Advanced: s.a}})
	}
	if begins && r.HasNodes() && r.Policy.Timeout > 0 {
		l.wheel.Add(r.StartedMs+r.Policy.Timeout.Milliseconds(), &workflowTimer{r})
	}
	for _, acc := range s.starts {
		l.record(l.app(r.App).slots[job.SlotOf(acc.Job)], &apiv1.Record{Kind: &apiv1.Record_Accepted{Accepted: acc}})
	}
	for _, run := range s.stops {
		if err := l.cancel(run, "run "+r.ID.String()+" of its workflow was cancelled"); err != nil {
			s.later(armWindow)
			return
		}
	}
}

// message returns a live run as the API shows it.
func (l *loop) message(r *job.Run) *apiv1.Run {
	m := job.RunMessage(l.row(r), l.now)
	m.Progress = l.progress[r.ID]
	if lag := l.ahead.lag(r); lag > 0 && m.NextAttemptAt != nil {
		m.NextAttemptAt = timestamppb.New(time.UnixMilli(r.RetryMs - lag))
	}
	if !r.HasNodes() {
		return m
	}
	for i, n := range r.Nodes.Rows { // the rows do not have each state of a node's run
		if job.State(n.State) != job.Running {
			continue
		}
		if run := l.liveRun(r.App, job.RunID(n.Run)); run != nil {
			m.Nodes[i].State, m.Nodes[i].StartedAt = string(l.state(run)), nil
			if at := l.handlerMs(run); at > 0 {
				m.Nodes[i].StartedAt = timestamppb.New(time.UnixMilli(at))
			}
		}
	}
	return m
}

// explainNodes returns a text with the progress of a run of a workflow.
func explainNodes(r *job.Run) string {
	over := 0
	var now []string
	for _, n := range r.Nodes.Rows {
		switch s := job.State(n.State); {
		case s.Terminal():
			over++
		case s == job.Running:
			now = append(now, n.Name)
		}
	}
	why := haveEnded(over, len(r.Nodes.Rows), "node")
	if len(now) > 0 {
		more := ""
		if n := len(now) - 10; n > 0 {
			now, more = now[:10], fmt.Sprintf(" and %d more", n)
		}
		why += "; under way: " + strings.Join(now, ", ") + more
	}
	return why
}

// checkNodes fails if a node of a workflow names a job that does not exist, is not among
// the jobs that are applied together, or is in another partition.
func (l *loop) checkNodes(def *apiv1.Job, together []string) error {
	for _, n := range def.GetWorkflow().GetNodes() {
		if err := l.errIfCrossPartition(def, n.Job); err != nil {
			return err
		}
		if n.Job != def.Name && l.job(def.App, n.Job) == nil && !slices.Contains(together, n.Job) {
			return status.Errorf(codes.FailedPrecondition, "job %s: node %s is job %q, which app %s does not have: apply that one first", def.Name, n.Name, n.Job, def.App)
		}
	}
	return nil
}

// keptBytes bounds the nodes, in bytes, that a retried workflow keeps of nested
// workflows.
const keptBytes = 1 << 20

// kept returns the nodes of a run of a workflow that has ended, for a retry that
// continues it. Nested workflows that have not succeeded are continued too, as long as
// left, in bytes, suffices; beyond it they begin again.
func (a *runsAPI) kept(ctx context.Context, app string, id []byte, left *int) ([]*apiv1.NodeRow, error) {
	value, ok, err := a.s.cfg.Store.Run(app, job.RunID(id))
	if err != nil || !ok { // it is gone from the history: there is nothing to continue
		return nil, err
	}
	row := &apiv1.RunRow{}
	if err := proto.Unmarshal(value, row); err != nil {
		return nil, err
	}
	for _, n := range row.Nodes {
		if ctx.Err() != nil {
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		if job.State(n.State) == job.Succeeded || len(n.Run) != len(job.RunID{}) {
			continue
		}
		nested, err := a.kept(ctx, app, n.Run, left)
		if err != nil {
			return nil, err
		}
		size := 0
		for _, k := range nested {
			size += proto.Size(k)
		}
		if size <= *left {
			n.Nodes = nested
			*left -= size
		}
	}
	return row.Nodes, nil
}
