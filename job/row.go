package job

import (
	"cmp"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/route"
)

// This file converts jobs and runs to the rows of the store, and rows to the messages of
// the API. Messages are always made from a row, so a live run and an old one look the
// same.

// Row returns the definition as the store holds it.
func (j *Job) Row() *apiv1.JobRow {
	return &apiv1.JobRow{
		Shape: []byte(j.kind.shape.text), Own: []byte(j.spec().own), Revision: j.Revision(), Etag: j.etag[:], NextMs: j.NextMs, Planned: j.Planned,
	}
}

// StatsRow returns the statistics of the job and the state of its schedule, dependency
// and routing, as the store holds them.
func (j *Job) StatsRow() *apiv1.JobStatsRow {
	r := &apiv1.JobStatsRow{
		NextMs: j.NextMs, Planned: j.Planned, Succeeded: j.succeeded, Failed: j.failed, Skipped: j.skipped(),
		LastState: string(j.lastState()), LastEndMs: j.lastEndMs,
	}
	if x := j.extra; x != nil {
		r.Met, r.GivenMs, r.LastSuccessMs = slices.Clone(x.met), slices.Clone(x.given), x.successMs
		if x.route != nil {
			r.Route = routeRow(x.route)
		}
	}
	if j.lastEndMs > 0 {
		r.LastRun = slices.Clone(j.lastRun[:])
	}
	return r
}

// LoadJob restores a job from its row and returns it.
func (s *Slot) LoadJob(name string, row *apiv1.JobRow) (*Job, error) {
	j := &Job{NextMs: row.NextMs, Planned: row.Planned}
	if err := s.loadDefinition(j, name, row); err != nil {
		return nil, err
	}
	j.revision = uint32(row.Revision)
	copy(j.etag[:], row.Etag)
	s.recount(nil, j.kind.shape)
	s.Jobs.add(j)
	s.Usage.Jobs++
	return j, nil
}

// LoadStats restores the statistics of a job, which [Slot.LoadJob] has loaded before.
func (j *Job) LoadStats(row *apiv1.JobStatsRow) {
	j.NextMs, j.Planned = row.NextMs, row.Planned
	j.succeeded, j.failed = row.Succeeded, row.Failed
	j.last, j.lastEndMs = uint8(State(row.LastState).Ordinal()), row.LastEndMs
	copy(j.lastRun[:], row.LastRun)
	if row.Route != nil || row.Skipped > 0 || row.LastSuccessMs > 0 || len(row.Met)+len(row.GivenMs) > 0 {
		x := j.extras()
		x.met, x.given, x.skipped, x.successMs = row.Met, row.GivenMs, row.Skipped, row.LastSuccessMs
		if row.Route != nil {
			x.route = routeState(row.Route)
		}
	}
}

// Recount counts a run that ended before the restart, if the stored statistics do not
// include it. It reports whether it counted the run.
func (j *Job) Recount(e Ending) bool {
	if e.Nth <= j.Ended() || e.FinishedMs*1e6 < j.spec().born() { // the second: of an earlier job of that name
		return false
	}
	j.count(&Run{ID: e.ID, State: e.State}, e.FinishedMs)
	return true
}

// Row returns the run as the store holds it. It shares slices with r.
func (r *Run) Row() *apiv1.RunRow {
	row := &apiv1.RunRow{}
	row.Id, row.App, row.Job, row.State, row.Trigger = r.ID[:], r.App, r.Job, string(r.State), string(r.Trigger)
	row.PlannedMs, row.AcceptedMs, row.StartedMs, row.FinishedMs, row.RetryMs = r.PlannedMs, r.AcceptedMs, r.StartedMs, r.FinishedMs, r.RetryMs
	row.Attempt, row.Lost, row.MaxAttempts, row.Host, row.Session = r.Attempt, r.Lost, r.MaxAttempts(), r.Host, r.Session
	row.Module, row.Handler, row.Digest, row.Labels = r.shape.Handler.GetModule(), r.HandlerName(), r.shape.Digest, r.shape.Labels
	row.HasInput, row.Input, row.Output, row.Error, row.Code, row.Trace = r.HasInput, r.Input, r.Output, r.Error, r.Code, r.Trace
	row.TriggeredBy = r.By
	row.CancelRequested, row.CancelWhy, row.TraceParent, row.JobRevision, row.Covers = r.CancelRequested, r.CancelWhy, r.TraceParent, r.Revision, r.Covers
	for i := range r.Attempts {
		a := &r.Attempts[i]
		row.Attempts = append(row.Attempts, &apiv1.AttemptRow{
			Number: a.Number, Host: a.Host, DispatchedMs: a.DispatchedMs, StartedMs: a.StartedMs, FinishedMs: a.FinishedMs,
			Outcome: a.Outcome, Error: a.Error, Code: a.Code,
		})
	}
	row.Nth = r.Nth
	if r.Cause != (RunID{}) {
		row.Cause = r.Cause[:]
	}
	row.Node, row.Pin = r.Node, r.Pin
	if n := r.Nodes; n != nil {
		row.Nodes = append(slices.Clone(n.Rows), n.Kept...) // at most one of the two has entries
		row.FromNode = n.From
	}
	if f := r.Fan; f != nil {
		row.Part, row.Parts, row.PartsMade, row.Only, row.Pinned = f.Part, f.Parts, f.Made, f.Only, f.Pinned
		row.OnlyHosts = f.OnlyHosts
		row.PartsSucceeded, row.PartsFailed = f.Succeeded, f.Failed
		row.Map, row.Depth, row.Mapped, row.Reduce, row.Role = f.Map.row(), f.Depth, f.Mapped, f.Reduce, r.Role()
		if r.HasParts() {
			row.Fanout = r.Policy.Fanout()
		}
		if r.IsPart() {
			row.Parent = f.Parent[:]
		}
	}
	if r.State.Terminal() {
		if !r.HasInput {
			row.Input = []byte(r.defined())
		}
		if len(row.Input) > MaxInput { // of the part that reduces: the outputs of other parts, which have rows of their own
			row.Input = nil
		}
	} else {
		row.Definition = r.bytes()
	}
	return row
}

// LoadRun restores a live run from its row. The jobs must have been loaded before.
func (s *Slot) LoadRun(row *apiv1.RunRow) error {
	d := &apiv1.Job{}
	if err := proto.Unmarshal(row.Definition, d); err != nil {
		return fmt.Errorf("decode the definition of a run: %w", err)
	}
	r := &Run{
		ID: runID(row.Id), App: row.App, Job: row.Job, State: State(row.State), Trigger: Trigger(row.Trigger), Policy: s.policy(d),
		PlannedMs: row.PlannedMs, AcceptedMs: row.AcceptedMs, StartedMs: row.StartedMs, RetryMs: row.RetryMs,
		Attempt: row.Attempt, Lost: row.Lost, Host: row.Host, Session: row.Session,
		HasInput: row.HasInput, Input: row.Input, Output: row.Output, Error: row.Error, Code: row.Code, Trace: row.Trace,
		CancelRequested: row.CancelRequested, CancelWhy: row.CancelWhy, TraceParent: row.TraceParent, Revision: row.JobRevision,
		Covers: row.Covers, By: s.names.shared(row.TriggeredBy), Cause: runID(row.Cause), slot: s, spec: s.spec(d),
	}
	for _, a := range row.Attempts {
		r.Attempts = append(r.Attempts, Attempt{
			Number: a.Number, Host: a.Host, DispatchedMs: a.DispatchedMs, StartedMs: a.StartedMs, FinishedMs: a.FinishedMs,
			Outcome: a.Outcome, Error: a.Error, Code: a.Code,
		})
	}
	if len(row.Parent) > 0 || row.PartsMade > 0 || len(row.Only) > 0 || row.Map != nil || row.Pinned != "" {
		r.Fan = &Fan{
			Parent: runID(row.Parent), Part: row.Part, Parts: row.Parts, Pinned: row.Pinned, Only: row.Only, OnlyHosts: row.OnlyHosts,
			Made: row.PartsMade, Succeeded: row.PartsSucceeded, Failed: row.PartsFailed,
			Map: mappingOf(row.Map), Depth: row.Depth, Mapped: row.Mapped, Reduce: row.Reduce,
		}
	}
	r.Node, r.Pin = row.Node, row.Pin
	switch {
	case d.Workflow != nil && r.State == Running:
		r.Nodes = &Nodes{Rows: row.Nodes, From: row.FromNode}
	case len(row.Nodes) > 0 || row.FromNode != "":
		r.Nodes = &Nodes{Kept: row.Nodes, From: row.FromNode}
	}
	if r.owner = s.Jobs.Get(r.Job); r.owner == nil || r.owner.spec().born() != born(d) {
		// The job was deleted while the run was live.
		r.owner = &Job{text: r.Job + r.own, nameLen: uint8(len(r.Job)), kind: &kind{shape: r.shape, policy: r.Policy}}
	}
	s.add(r)
	return nil
}

// Loaded links parts to their parents. The caller has loaded all live runs.
func (s *Slot) Loaded() {
	for r := range s.Runs.All() {
		if !r.IsPart() {
			continue
		}
		if parent := s.Runs.Get(r.Fan.Parent); parent != nil {
			parent.Fan.join(r)
		}
	}
	for r := range s.Runs.All() {
		if r.HasParts() {
			r.Fan.parts = r.Fan.inOrder()
			for i, part := range r.Fan.parts {
				part.Fan.place = int32(i)
			}
		}
	}
}

func routeRow(s *route.State) *apiv1.RouteRow {
	row := &apiv1.RouteRow{LastHost: s.LastHost, Seq: s.Seq}
	for _, u := range s.Uses {
		row.Uses = append(row.Uses, &apiv1.RouteRow_Use{Host: u.Host, Count: u.Count, Seq: u.Seq})
	}
	return row
}

func routeState(row *apiv1.RouteRow) *route.State {
	s := &route.State{LastHost: row.LastHost, Seq: row.Seq}
	for _, u := range row.Uses {
		s.Uses = append(s.Uses, route.Use{Host: u.Host, Count: u.Count, Seq: u.Seq})
	}
	return s
}

// LoadKey restores an idempotency key. The caller loads keys oldest first.
func (s *Slot) LoadKey(hash [16]byte, run RunID, atMs int64, input uint32) {
	s.keys.add(key{hash: hash, run: run, atMs: atMs, input: input})
}

// Message returns the job as the API shows it. An armed planned time at or before now is
// not shown as the next one.
func (j *Job) Message(now time.Time) *apiv1.Job {
	d := j.Definition()
	d.NextAt = timestamp(j.NextShownMs(now.UnixMilli()))
	d.ChangedBy = cmp.Or(d.ChangedBy, d.CreatedBy)
	d.Stats = &apiv1.JobStats{
		Live: j.Live(), Succeeded: j.succeeded, Failed: j.failed, LastState: string(j.lastState()), LastFinishedAt: timestamp(j.lastEndMs),
	}
	if j.lastEndMs > 0 {
		d.Stats.LastRun = j.lastRun.String()
	}
	return d
}

// RunMessage returns a run as the API shows it. An armed run whose planned time is not
// after now is shown as queued.
func RunMessage(row *apiv1.RunRow, now time.Time) *apiv1.Run {
	traceParent, _ := SplitTrace(row.TraceParent)
	m := &apiv1.Run{
		Id: runID(row.Id).String(), App: row.App, Job: row.Job, State: row.State, Trigger: row.Trigger,
		PlannedAt: timestamp(row.PlannedMs), AcceptedAt: timestamp(row.AcceptedMs),
		StartedAt: timestamp(handlerMs(row)), FinishedAt: timestamp(row.FinishedMs), NextAttemptAt: timestamp(row.RetryMs),
		Attempt: row.Attempt, MaxAttempts: row.MaxAttempts, Host: row.Host,
		Module: row.Module, Handler: row.Handler, Digest: row.Digest,
		Error: row.Error, Code: row.Code, Trace: row.Trace,
		CancelRequested: row.CancelRequested, TraceParent: traceParent, JobRevision: row.JobRevision,
		Covers: row.Covers, Labels: row.Labels, TriggeredBy: row.TriggeredBy,
		PayloadDeletedAt: timestamp(row.PayloadDeletedMs), BoundHost: row.Pinned, FromNode: row.FromNode,
	}
	if len(row.Cause) > 0 {
		m.Cause = runID(row.Cause).String()
	}
	if len(row.Parent) > 0 {
		m.Parent, m.Part, m.Parts = runID(row.Parent).String(), row.Part, row.Parts
	} else if row.PartsMade > 0 { // a retry knows the number of its parts before it starts
		m.Parts = row.Parts
		m.PartsSucceeded, m.PartsFailed = row.PartsSucceeded, row.PartsFailed
	}
	m.Fanout, m.Role = row.Fanout, row.Role
	if State(row.State) == Armed && row.PlannedMs <= now.UnixMilli() {
		m.State = string(Queued)
	}
	m.Node, m.Alias, m.Canary = row.Node, row.Pin.GetAlias(), row.Pin.GetCanary()
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
			Number: a.Number, Host: a.Host, Outcome: outcomeText(a.Outcome), Error: a.Error, Code: a.Code,
			DispatchedAt: timestamp(a.DispatchedMs), StartedAt: timestamp(a.StartedMs), FinishedAt: timestamp(a.FinishedMs),
		})
	}
	return m
}

// handlerMs is [Run.HandlerMs] for a row.
func handlerMs(row *apiv1.RunRow) int64 {
	if len(row.Attempts) == 0 && row.Attempt == 0 {
		return row.StartedMs
	}
	for _, a := range row.Attempts {
		if a.StartedMs > 0 {
			return a.StartedMs
		}
	}
	return 0
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

// text returns the bytes for the text field of a message, or for its bytes field if they
// are not valid UTF-8.
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

// outcomeText returns the name of an outcome in the API; "" for none.
func outcomeText(o apiv1.Outcome) string {
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

// Purge returns the row of an ended run, or the part of it that runs do not share, without its
// payload. atMs is the time of the deletion. To purge a row twice at one time changes nothing.
func Purge(value []byte, atMs int64) ([]byte, error) {
	row := &apiv1.RunRow{}
	if err := proto.Unmarshal(value, row); err != nil {
		return nil, fmt.Errorf("decode the row of a run: %w", err)
	}
	row.HasInput, row.Input, row.Output, row.Definition = false, nil, nil, nil
	for _, n := range row.Nodes {
		purgeNode(n)
	}
	row.PayloadDeletedMs = atMs
	return proto.MarshalOptions{Deterministic: true}.Marshal(row)
}

func purgeNode(n *apiv1.NodeRow) {
	n.Output = nil
	for _, nested := range n.Nodes {
		purgeNode(nested)
	}
}
