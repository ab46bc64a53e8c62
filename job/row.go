package job

import (
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// This file turns jobs and runs into the rows that the store keeps, and rows
// into what the API shows. What people see is always made from a row: so a live
// run and one of last week look the same.

// Row returns the job as the store keeps it.
func (j *Job) Row() *apiv1.JobRow {
	r := &apiv1.JobRow{
		Definition: j.def, NextMs: j.NextMs, ShownNextMs: j.shownNextMs(),
		Live: j.Live, Succeeded: j.Succeeded, Failed: j.Failed,
		LastState: string(j.LastState), LastEndMs: j.LastEndMs, Planned: j.Planned, Met: slices.Clone(j.met), GivenMs: slices.Clone(j.given),
	}
	if j.Route != nil {
		r.Route = routeRow(j.Route)
	}
	if j.LastEndMs > 0 {
		r.LastRun = j.LastRun[:]
	}
	return r
}

// LoadJob puts a job of the store back.
func (s *Slot) LoadJob(row *apiv1.JobRow) error {
	d := &apiv1.Job{}
	if err := proto.Unmarshal(row.Definition, d); err != nil {
		return fmt.Errorf("decode job: %w", err)
	}
	j := &Job{
		Name: d.Name, Revision: d.Revision, Etag: d.Etag, NextMs: row.NextMs, Planned: row.Planned, Policy: s.policy(d), met: row.Met, given: row.GivenMs,
		Succeeded: row.Succeeded, Failed: row.Failed, LastState: State(row.LastState), LastEndMs: row.LastEndMs,
		def: row.Definition, slot: s, born: born(d),
	}
	copy(j.LastRun[:], row.LastRun)
	j.Dependency, j.Calendars, j.Nodes = dependencyOf(d), calendarsOf(d), NodeJobs(d)
	if row.Route != nil {
		j.Route = routeState(row.Route)
	}
	s.Jobs[j.Name] = j
	return nil
}

// Row returns the run as the store keeps it. It shares slices with r.
func (r *Run) Row() *apiv1.RunRow {
	row := &apiv1.RunRow{}
	r.fill(row)
	// An attempt's row changes once more, when the attempt ends; a row of the
	// store must not change under its reader.
	for i, a := range row.Attempts {
		row.Attempts[i] = proto.CloneOf(a)
	}
	return row
}

// RowBytes is Row as bytes, without the garbage.
func (r *Run) RowBytes() ([]byte, error) {
	row := &r.slot.row
	attempts := row.Attempts[:0]
	proto.Reset(row)
	row.Attempts = attempts
	r.fill(row)
	return proto.Marshal(row)
}

// fill writes the run into an empty row, with its attempts shared.
func (r *Run) fill(row *apiv1.RunRow) {
	d := r.Shared()
	row.Id, row.App, row.Job, row.State, row.Trigger = r.ID[:], r.App, r.Job, string(r.State), string(r.Trigger)
	row.PlannedMs, row.AcceptedMs, row.StartedMs, row.FinishedMs, row.RetryMs = r.PlannedMs, r.AcceptedMs, r.StartedMs, r.FinishedMs, r.RetryMs
	row.Attempt, row.Lost, row.MaxAttempts, row.Host, row.Session = r.Attempt, r.Lost, r.MaxAttempts(), r.Host, r.Session
	row.Module, row.Handler, row.Digest = d.Handler.GetModule(), r.HandlerName(d), d.Digest
	row.HasInput, row.Input, row.Output, row.Error, row.Code, row.Trace = r.HasInput, r.Input, r.Output, r.Error, r.Code, r.Trace
	row.CancelRequested, row.CancelWhy, row.TraceParent, row.JobRevision, row.Covers = r.CancelRequested, r.CancelWhy, r.TraceParent, r.Revision, r.Covers
	row.Attempts = append(row.Attempts, r.Attempts...)
	if r.Cause != (RunID{}) {
		row.Cause = r.Cause[:]
	}
	row.Node = r.Node
	if n := r.Nodes; n != nil {
		row.Nodes = append(slices.Clone(n.Rows), n.Kept...) // one of them is empty
	}
	if f := r.Fan; f != nil {
		row.Part, row.Parts, row.PartsMade, row.Only, row.Pinned = f.Part, f.Parts, f.Made, f.Only, f.Pinned
		row.PartsSucceeded, row.PartsFailed = f.Succeeded, f.Failed
		row.Map, row.Depth, row.Mapped, row.Reduce, row.Role = f.Map.row(), f.Depth, f.Mapped, f.Reduce, r.Role()
		if r.HasParts() {
			row.Fanout = d.GetFanout().GetMode()
		}
		if r.IsPart() {
			row.Parent = f.Parent[:]
		}
	}
	if r.State.Terminal() {
		if !r.HasInput {
			row.Input = Input(d)
		}
		if len(row.Input) > MaxInput { // of the part that reduces: the outputs of the others, which have rows of their own
			row.Input = nil
		}
	} else {
		row.Definition = r.def
	}
}

// LoadRun puts a live run of the store back. The jobs must have been loaded.
func (s *Slot) LoadRun(row *apiv1.RunRow) error {
	d := &apiv1.Job{}
	if err := proto.Unmarshal(row.Definition, d); err != nil {
		return fmt.Errorf("decode the definition of a run: %w", err)
	}
	r := &Run{
		ID: runID(row.Id), App: row.App, Job: row.Job, State: State(row.State), Trigger: Trigger(row.Trigger), Policy: s.policy(d),
		PlannedMs: row.PlannedMs, AcceptedMs: row.AcceptedMs, StartedMs: row.StartedMs, RetryMs: row.RetryMs,
		Attempt: row.Attempt, Lost: row.Lost, Host: row.Host, Session: row.Session, Attempts: row.Attempts,
		HasInput: row.HasInput, Input: row.Input, Output: row.Output, Error: row.Error, Code: row.Code, Trace: row.Trace,
		CancelRequested: row.CancelRequested, CancelWhy: row.CancelWhy, TraceParent: row.TraceParent, Revision: row.JobRevision,
		Covers: row.Covers, Cause: runID(row.Cause), slot: s, def: row.Definition,
	}
	if len(row.Parent) > 0 || row.PartsMade > 0 || len(row.Only) > 0 {
		r.Fan = &Fan{
			Parent: runID(row.Parent), Part: row.Part, Parts: row.Parts, Pinned: row.Pinned, Only: row.Only,
			Made: row.PartsMade, Succeeded: row.PartsSucceeded, Failed: row.PartsFailed,
			Map: mappingOf(row.Map), Depth: row.Depth, Mapped: row.Mapped, Reduce: row.Reduce,
		}
	}
	r.Node = row.Node
	switch {
	case d.Workflow != nil && r.State == Running:
		r.Nodes = &Nodes{Rows: row.Nodes}
	case len(row.Nodes) > 0:
		r.Nodes = &Nodes{Kept: row.Nodes}
	}
	if r.owner = s.Jobs[r.Job]; r.owner == nil || r.owner.born != born(d) {
		r.owner = &Job{Name: r.Job, born: born(d), Policy: r.Policy} // deleted while the run is live
	}
	s.add(r)
	return nil
}

// Loaded ties parts to their parents when all live runs have been loaded.
func (s *Slot) Loaded() {
	for _, r := range s.Runs {
		if !r.IsPart() {
			continue
		}
		if parent := s.Runs[r.Fan.Parent]; parent != nil {
			parent.Fan.join(r)
		}
	}
	for _, r := range s.Runs {
		if r.HasParts() {
			r.Fan.parts = r.Fan.inOrder()
			for i, part := range r.Fan.parts {
				part.Fan.place = int32(i)
			}
		}
	}
}

func routeRow(s *RouteState) *apiv1.RouteRow {
	row := &apiv1.RouteRow{LastHost: s.LastHost, Seq: s.Seq}
	for _, u := range s.Uses {
		row.Uses = append(row.Uses, &apiv1.RouteRow_Use{Host: u.Host, Count: u.Count, Seq: u.Seq})
	}
	return row
}

func routeState(row *apiv1.RouteRow) *RouteState {
	s := &RouteState{LastHost: row.LastHost, Seq: row.Seq}
	for _, u := range row.Uses {
		s.Uses = append(s.Uses, HostUse{Host: u.Host, Count: u.Count, Seq: u.Seq})
	}
	return s
}

// LoadKey puts an idempotency key of the store back. Keys come oldest first.
func (s *Slot) LoadKey(hash [16]byte, run RunID, atMs int64) {
	s.remember(key{hash: hash, run: run, atMs: atMs})
}

// JobMessage returns what the API shows of a job. now tells a planned time to
// come from one whose run waits for a host.
func JobMessage(row *apiv1.JobRow, now time.Time) (*apiv1.Job, error) {
	d := &apiv1.Job{}
	if err := proto.Unmarshal(row.Definition, d); err != nil {
		return nil, fmt.Errorf("decode job: %w", err)
	}
	next := row.ShownNextMs
	if next <= now.UnixMilli() {
		next = row.NextMs
	}
	d.NextAt = timestamp(next)
	d.Stats = &apiv1.JobStats{
		Live: row.Live, Succeeded: row.Succeeded, Failed: row.Failed,
		LastState: row.LastState, LastFinishedAt: timestamp(row.LastEndMs),
	}
	if len(row.LastRun) == len(RunID{}) {
		d.Stats.LastRun = RunID(row.LastRun).String()
	}
	return d, nil
}

// RunMessage returns what the API shows of a run. now tells an armed run whose
// time has come, which is queued, from one that waits for it.
func RunMessage(row *apiv1.RunRow, now time.Time) *apiv1.Run {
	m := &apiv1.Run{
		Id: runID(row.Id).String(), App: row.App, Job: row.Job, State: row.State, Trigger: row.Trigger,
		PlannedAt: timestamp(row.PlannedMs), AcceptedAt: timestamp(row.AcceptedMs),
		StartedAt: timestamp(row.StartedMs), FinishedAt: timestamp(row.FinishedMs), NextAttemptAt: timestamp(row.RetryMs),
		Attempt: row.Attempt, MaxAttempts: row.MaxAttempts, Host: row.Host,
		Module: row.Module, Handler: row.Handler, Digest: row.Digest,
		Error: row.Error, Code: row.Code, Trace: row.Trace,
		CancelRequested: row.CancelRequested, TraceParent: row.TraceParent, JobRevision: row.JobRevision,
		Covers: row.Covers, Parts: row.Parts,
	}
	if len(row.Cause) > 0 {
		m.Cause = runID(row.Cause).String()
	}
	if len(row.Parent) > 0 {
		m.Parent, m.Part = runID(row.Parent).String(), row.Part
	} else {
		m.PartsSucceeded, m.PartsFailed = row.PartsSucceeded, row.PartsFailed
	}
	m.Fanout, m.Role = row.Fanout, row.Role
	if State(row.State) == Armed && row.PlannedMs <= now.UnixMilli() {
		m.State = string(Queued)
	}
	m.Node = row.Node
	for _, n := range row.Nodes {
		m.Nodes = append(m.Nodes, nodeMessage(n))
	}
	input := row.Input
	if !row.HasInput && len(row.Definition) > 0 {
		input = Input(decode(row.Definition))
	}
	m.Input, m.InputBytes = text(input)
	m.Output, m.OutputBytes = text(row.Output)
	for _, a := range row.Attempts {
		m.Attempts = append(m.Attempts, &apiv1.Attempt{
			Number: a.Number, Host: a.Host, Outcome: OutcomeText(a.Outcome), Error: a.Error, Code: a.Code,
			DispatchedAt: timestamp(a.DispatchedMs), StartedAt: timestamp(a.StartedMs), FinishedAt: timestamp(a.FinishedMs),
		})
	}
	return m
}

func nodeMessage(n *apiv1.NodeRow) *apiv1.NodeState {
	m := &apiv1.NodeState{
		Name: n.Name, Job: n.Job, State: n.State, Error: n.Error, Kept: n.Kept,
		StartedAt: timestamp(n.StartedMs), FinishedAt: timestamp(n.FinishedMs),
	}
	if len(n.Run) > 0 {
		m.Run = runID(n.Run).String()
	}
	return m
}

// text splits bytes into the text field and the bytes field of a message: a
// text must be valid UTF-8.
func text(b []byte) (string, []byte) {
	if utf8.Valid(b) {
		return string(b), nil
	}
	return "", b
}

func timestamp(ms int64) *timestamppb.Timestamp {
	if ms == 0 {
		return nil
	}
	return timestamppb.New(time.UnixMilli(ms))
}

// OutcomeText is the API's word for an outcome; "" while there is none.
func OutcomeText(o apiv1.Outcome) string {
	switch o {
	case apiv1.Outcome_OUTCOME_SUCCEEDED:
		return "succeeded"
	case apiv1.Outcome_OUTCOME_RETRYABLE:
		return "retryable"
	case apiv1.Outcome_OUTCOME_PERMANENT:
		return "permanent"
	case apiv1.Outcome_OUTCOME_TIMED_OUT:
		return "timed_out"
	case apiv1.Outcome_OUTCOME_STOPPED:
		return "stopped"
	case apiv1.Outcome_OUTCOME_HOST_ERROR:
		return "host_error"
	case apiv1.Outcome_OUTCOME_LOST:
		return "lost"
	}
	return ""
}
