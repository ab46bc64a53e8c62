package core

import (
	"slices"

	"google.golang.org/protobuf/proto"

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
func (wf *workflows) begin(r *job.Run) {
	if !wf.l.timing.due(r) || wf.l.admission.expired(r) || wf.l.admission.limited(r) {
		return
	}
	wf.moved = append(wf.moved, r)
}

// workflowTimer advances a run of a workflow.
type workflowTimer struct{ r *job.Run }

func (x workflowTimer) fire(l *Loop) { l.workflows.moved = append(l.workflows.moved, x.r) }

func (x workflowTimer) holds(l *Loop, _ int64) bool {
	return l.State.LiveRun(x.r.App, x.r.ID) == x.r && x.r.HasNodes()
}

// watchNodes sets the timers of a run of a workflow after a restart: one for now, and one
// for its timeout.
func (wf *workflows) watchNodes(r *job.Run) {
	wf.l.timing.after(0, workflowTimer{r})
	if r.Policy.Timeout > 0 {
		wf.l.timing.wheel.add(r.StartedMs+r.Policy.Timeout.Milliseconds()-wf.l.timing.ahead.lag(r), workflowTimer{r})
	}
}

// advance advances the runs of moved, and the runs of workflows that have nodes among the
// runs of ended.
func (wf *workflows) advance(ended, moved []*job.Run) {
	var ends map[*job.Run][]*job.Run
	for _, up := range ended {
		if up.Node == "" {
			continue
		}
		if r := wf.l.State.LiveRun(up.App, up.Cause); r != nil && r.HasNodes() {
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
		if wf.l.State.LiveRun(r.App, r.ID) == r && (r.HasNodes() || wf.l.timing.due(r)) {
			wf.step(r, ends[r])
		}
		delete(ends, r)
	}
}

// step decides and records the next step of a run of a workflow. ended has the runs of
// its nodes that have ended in this turn.
func (wf *workflows) step(r *job.Run, ended []*job.Run) {
	g, err := r.Graph()
	if err != nil {
		wf.l.admission.endUnrun(r, job.Failed, "workflow", "its workflow was accepted by another version and cannot be read: apply the job again: "+err.Error())
		return
	}
	s := &stepping{l: wf.l, r: r, g: g, a: &apiv1.Advanced{Run: r.ID[:]}}
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
	case wf.l.commits.cramped() || wf.l.limits.mayAccept(ownerOf(r.Slot()), 0, 2) != nil:
		s.later(armWindow)
	case wf.l.commits.stage.bytes >= fullBatchBytes:
		s.later(0)
	default:
		s.decide()
	}
	s.record()
}

// stepping is the decision of one step.
type stepping struct {
	l      *Loop
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
		s.l.timing.after(ms, workflowTimer{s.r})
		return
	}
	s.l.timing.after(ms, &readmitTimer{r: s.r})
	s.wait = true
}

// decide decides the next states of the nodes that have not ended, and the end of the run
// if all have.
func (s *stepping) decide() {
	l, r := s.l, s.r
	if t := r.Policy.Timeout; t > 0 && r.HasNodes() && !r.CancelRequested && l.clock.nowMs+l.timing.ahead.lag(r) >= r.StartedMs+t.Milliseconds() {
		if err := l.Commands.cancel(r, timedOut(r)); err != nil {
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
	s.a.JobNextMs = l.Commands.delayNext(r)
}

// timedOut returns the reason with which a run of a workflow is cancelled at its timeout.
func timedOut(r *job.Run) string {
	return "it did not end within its timeout of " + r.Policy.Timeout.String()
}

func (s *stepping) cancel() {
	for i, n := range s.rows {
		switch job.State(n.State) {
		case job.Pending:
			s.set(i, s.g.Unrun(i, job.Cancelled, "its workflow was cancelled before", "cancelled", s.l.clock.nowMs))
		case job.Running:
			if run := s.l.State.LiveRun(s.r.App, job.RunID(n.Run)); run != nil && !run.CancelRequested {
				s.stops = append(s.stops, run)
			}
		}
	}
}

// follow starts the nodes that are ready, and ends the nodes that their conditions
// exclude.
func (s *stepping) follow() {
	l, r, size := s.l, s.r, 0
	for _, m := range s.g.Next(s.rows, r.Given(), func(name string) bool { return l.State.Job(r.App, name) != nil }) {
		if m.State != job.Running {
			s.set(m.Node, s.g.Unrun(m.Node, m.State, m.Error, m.Code, l.clock.nowMs))
			continue
		}
		id := s.g.NodeID(r, m.Node, l.clock.nowMs)
		acc := &apiv1.Accepted{
			Run: id[:], Job: s.g.Job(m.Node), Node: s.g.Name(m.Node), Cause: r.ID[:], Trigger: string(job.ByWorkflow),
			HasInput: m.HasInput, Input: m.Input, Priority: r.Policy.Priority, TraceParent: r.TraceParent, Kept: s.rows[m.Node].Nodes,
		}
		if size += proto.Size(acc); size > startBytes && len(s.starts) > 0 {
			s.later(0)
			return // the next step starts the rest
		}
		s.starts = append(s.starts, acc)
		s.set(m.Node, s.g.Started(m.Node, id, l.clock.nowMs))
	}
}

func (s *stepping) record() {
	l, r, begins := s.l, s.r, !s.r.HasNodes()
	if s.wait || !begins && len(s.a.Nodes) == 0 && s.a.State == "" && len(s.stops) == 0 {
		return
	}
	if begins || len(s.a.Nodes) > 0 || s.a.State != "" {
		l.commits.record(r.Slot(), &apiv1.Record{Kind: &apiv1.Record_Advanced{Advanced: s.a}})
	}
	if begins && r.HasNodes() && r.Policy.Timeout > 0 {
		l.timing.wheel.add(r.StartedMs+r.Policy.Timeout.Milliseconds(), workflowTimer{r})
	}
	for _, acc := range s.starts {
		l.commits.record(l.State.app(r.App).slots[job.SlotOf(acc.Job)], &apiv1.Record{Kind: &apiv1.Record_Accepted{Accepted: acc}})
	}
	for _, run := range s.stops {
		if err := l.Commands.cancel(run, "run "+r.ID.String()+" of its workflow was cancelled"); err != nil {
			s.later(armWindow)
			return
		}
	}
}

// follow judges canaries, starts the runs that depend on runs that have ended since the last
// call, and advances workflows. Its records are in the same batch as those ends, so that
// after a crash the journal has both or neither (ADR 11).
func (wf *workflows) follow() {
	wf.l.Catalog.judge()
	for len(wf.followed)+len(wf.moved) > 0 {
		ended, moved := wf.followed, wf.moved
		wf.followed, wf.moved = nil, nil
		for _, up := range ended {
			for _, j := range wf.l.relations.dependOn(jobKey{up.App, up.Job}) {
				wf.followOne(j, up)
			}
		}
		wf.advance(ended, moved)
	}
}

func (wf *workflows) followOne(j *job.Job, up *job.Run) {
	d := j.Dependency()
	if d.Paused || !d.Counts(up.State) {
		return
	}
	if !j.Completes(up.Job) {
		if !j.Met(up.Job) {
			wf.l.commits.record(j.Slot(), &apiv1.Record{Kind: &apiv1.Record_Met{Met: &apiv1.Met{Job: j.Name(), Upstream: up.Job}}})
		}
		return
	}
	id := job.OccurrenceID(up.App, j.Name(), wf.l.clock.now, "after/"+up.ID.String())
	acc := &apiv1.Accepted{
		Run: id[:], Job: j.Name(), Trigger: string(job.ByDependency), Cause: up.ID[:], TraceParent: up.TraceParent, Completes: !d.Any,
	}
	if d.PassOutput {
		acc.HasInput, acc.Input = true, up.Output
	}
	tooLarge := job.CheckInput(len(acc.Input))
	if tooLarge != nil {
		acc.Input = nil
	}
	wf.l.commits.record(j.Slot(), &apiv1.Record{Kind: &apiv1.Record_Accepted{Accepted: acc}})
	if r := wf.l.State.LiveRun(up.App, id); r != nil && tooLarge != nil {
		wf.l.admission.endUnrun(r, job.Failed, "input_limit", "the output of run "+up.ID.String()+" cannot be passed on: "+tooLarge.Error())
	}
}
