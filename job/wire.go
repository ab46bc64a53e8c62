package job

import (
	"errors"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/wire"
	"github.com/wheelworkhq/wheelwork/internal/wire/fields"
)

// This file encodes messages of which each run has several. Readers of whole messages use
// proto.Unmarshal. The numbers of the fields come from the descriptors (internal/wire/fields),
// and a test fills every field and decodes the bytes, so a new field cannot be forgotten
// here (ADR 23).
//
// Gain: a row takes 0.1 of the time of making its message and of proto.Marshal
// (BenchmarkAppendRow).

// AppendRecord appends the bytes of a record.
func AppendRecord(b []byte, rec *apiv1.Record) ([]byte, error) {
	if len(rec.Accepts) > 0 {
		return proto.MarshalOptions{}.MarshalAppend(b, rec)
	}
	switch k := rec.Kind.(type) {
	case *apiv1.Record_Started:
		b = wire.Int(b, fields.RecordAtMs, rec.AtMs)
		return nested(b, fields.RecordStarted, func(b []byte) []byte { return appendStarted(b, k.Started) }), nil
	case *apiv1.Record_Finished:
		b = wire.Int(b, fields.RecordAtMs, rec.AtMs)
		return nested(b, fields.RecordFinished, func(b []byte) []byte { return appendFinished(b, k.Finished) }), nil
	}
	return proto.MarshalOptions{}.MarshalAppend(b, rec)
}

// AppendAttribution appends the attribution of a record to its bytes. Its texts are UTF-8.
func AppendAttribution(b []byte, by *apiv1.Attribution) []byte {
	text, err := proto.Marshal(by)
	if err != nil {
		panic("job: an attribution that was checked does not encode: " + err.Error())
	}
	return protowire.AppendBytes(protowire.AppendTag(b, fields.RecordAttribution, protowire.BytesType), text)
}

// AppendAccept appends an accepted run to the bytes of a record. The bytes begin with
// [BeginAccepts].
func AppendAccept(b []byte, a *apiv1.Accepted) ([]byte, error) {
	var err error
	b = nested(b, fields.RecordAccepts, func(b []byte) []byte {
		b, err = appendAccepted(b, a)
		return b
	})
	return b, err
}

// BeginAccepts appends the first bytes of a record of accepted runs: its time.
func BeginAccepts(b []byte, atMs int64) []byte { return wire.Int(b, fields.RecordAtMs, atMs) }

// nested appends a field whose value is a message.
func nested(b []byte, n protowire.Number, write func([]byte) []byte) []byte {
	b, from := wire.Begin(b, n)
	return wire.End(write(b), from)
}

func appendNode(b []byte, n protowire.Number, row *apiv1.NodeRow) ([]byte, error) {
	var err error
	b = nested(b, n, func(b []byte) []byte {
		b, err = proto.MarshalOptions{}.MarshalAppend(b, row)
		return b
	})
	return b, err
}

func appendAccepted(b []byte, a *apiv1.Accepted) ([]byte, error) {
	b = wire.Bytes(b, fields.AcceptedRun, a.Run)
	b = wire.Text(b, fields.AcceptedJob, a.Job)
	b = wire.Bool(b, fields.AcceptedHasInput, a.HasInput)
	b = wire.Bytes(b, fields.AcceptedInput, a.Input)
	b = wire.Bytes(b, fields.AcceptedKeyHash, a.KeyHash)
	b = wire.Text(b, fields.AcceptedTraceParent, a.TraceParent)
	b = wire.Text(b, fields.AcceptedTrigger, a.Trigger)
	b = wire.Bytes(b, fields.AcceptedCause, a.Cause)
	b = wire.Bool(b, fields.AcceptedCompletes, a.Completes)
	b = wire.Ints(b, fields.AcceptedParts, a.Parts)
	b = wire.Text(b, fields.AcceptedNode, a.Node)
	b = wire.Int(b, fields.AcceptedPriority, int64(a.Priority))
	for _, k := range a.Kept {
		var err error
		if b, err = appendNode(b, fields.AcceptedKept, k); err != nil {
			return b, err
		}
	}
	b = appendPin(b, fields.AcceptedPin, a.Pin)
	b = wire.Text(b, fields.AcceptedBy, a.By)
	b = wire.Text(b, fields.AcceptedHost, a.Host)
	b = wire.Text(b, fields.AcceptedFromNode, a.FromNode)
	return wire.Int(b, fields.AcceptedPlannedMs, a.PlannedMs), nil
}

func appendPin(b []byte, n protowire.Number, p *apiv1.Pin) []byte {
	if p == nil {
		return b
	}
	return nested(b, n, func(b []byte) []byte {
		b = wire.Text(b, fields.PinAlias, p.Alias)
		b = wire.Text(b, fields.PinModule, p.Module)
		b = wire.Text(b, fields.PinDigest, p.Digest)
		b = wire.Bool(b, fields.PinCanary, p.Canary)
		return wire.Texts(b, fields.PinNeeds, p.Needs)
	})
}

func appendStarted(b []byte, s *apiv1.Started) []byte {
	b = wire.Text(b, fields.StartedHost, s.Host)
	b = wire.Text(b, fields.StartedSession, s.Session)
	for _, r := range s.Runs {
		b = nested(b, fields.StartedRuns, func(b []byte) []byte {
			b = wire.Bytes(b, fields.StartedRunRun, r.Run)
			return wire.Int(b, fields.StartedRunAttempt, int64(r.Attempt))
		})
	}
	return b
}

func appendFinished(b []byte, f *apiv1.Finished) []byte {
	for _, e := range f.Ends {
		b = nested(b, fields.FinishedEnds, func(b []byte) []byte {
			b = wire.Bytes(b, fields.FinishedEndRun, e.Run)
			b = wire.Int(b, fields.FinishedEndAttempt, int64(e.Attempt))
			b = wire.Text(b, fields.FinishedEndHost, e.Host)
			b = wire.Int(b, fields.FinishedEndOutcome, int64(e.Outcome))
			b = wire.Bytes(b, fields.FinishedEndOutput, e.Output)
			b = wire.Text(b, fields.FinishedEndError, e.Error)
			b = wire.Text(b, fields.FinishedEndCode, e.Code)
			b = wire.Text(b, fields.FinishedEndTrace, e.Trace)
			b = wire.Int(b, fields.FinishedEndStartedMs, e.StartedMs)
			b = wire.Int(b, fields.FinishedEndDurationUs, e.DurationUs)
			b = wire.Text(b, fields.FinishedEndState, e.State)
			b = wire.Int(b, fields.FinishedEndRetryMs, e.RetryMs)
			return wire.Int(b, fields.FinishedEndJobNextMs, e.JobNextMs)
		})
	}
	return b
}

// AppendRow appends the definition as the store holds it: the bytes of an apiv1.JobRow,
// see [Job.Row].
func (j *Job) AppendRow(b []byte) ([]byte, error) {
	b = wire.Int(b, fields.JobRowNextMs, j.NextMs)
	b = wire.Int(b, fields.JobRowPlanned, j.Planned)
	b = wire.Text(b, fields.JobRowShape, j.kind.shape.text)
	b = wire.Text(b, fields.JobRowOwn, j.spec().own)
	b = wire.Int(b, fields.JobRowRevision, int64(j.Revision()))
	return wire.Bytes(b, fields.JobRowEtag, j.etag[:]), nil
}

// AppendStats appends the statistics of the job as the store holds them: the bytes of an
// apiv1.JobStatsRow, see [Job.StatsRow].
func (j *Job) AppendStats(b []byte) ([]byte, error) {
	b = wire.Int(b, fields.JobStatsRowNextMs, j.NextMs)
	b = wire.Int(b, fields.JobStatsRowPlanned, j.Planned)
	b = wire.Int(b, fields.JobStatsRowSucceeded, j.succeeded)
	b = wire.Int(b, fields.JobStatsRowFailed, j.failed)
	b = wire.Int(b, fields.JobStatsRowSkipped, j.skipped())
	b = wire.Text(b, fields.JobStatsRowLastState, string(j.lastState()))
	if j.lastEndMs > 0 {
		b = wire.Bytes(b, fields.JobStatsRowLastRun, j.lastRun[:])
	}
	b = wire.Int(b, fields.JobStatsRowLastEndMs, j.lastEndMs)
	x := j.extra
	if x == nil {
		return b, nil
	}
	var err error
	if x.route != nil {
		b = nested(b, fields.JobStatsRowRoute, func(b []byte) []byte {
			b, err = proto.MarshalOptions{}.MarshalAppend(b, routeRow(x.route))
			return b
		})
	}
	b = wire.Texts(b, fields.JobStatsRowMet, x.met)
	b = wire.Longs(b, fields.JobStatsRowGivenMs, x.given)
	return wire.Int(b, fields.JobStatsRowLastSuccessMs, x.successMs), err
}

// AppendLive appends the run as an entry of an apiv1.LiveRow.
func (r *Run) AppendLive(b []byte) ([]byte, error) {
	b, from := wire.Begin(b, fields.LiveRowRuns)
	b, err := r.AppendRow(b)
	if err != nil {
		return nil, err
	}
	return wire.End(b, from), nil
}

// AppendRow appends the run as the store holds it: the bytes of an apiv1.RunRow, see
// [Run.Row].
func (r *Run) AppendRow(b []byte) ([]byte, error) { return r.AppendOwn(r.AppendShared(b)) }

// Shares reports whether [Run.AppendShared] appends the same bytes for two runs.
func (r *Run) Shares(o *Run) bool {
	return r.App == o.App && r.State == o.State && r.Trigger == o.Trigger && r.By == o.By && r.MaxAttempts() == o.MaxAttempts() &&
		r.Host == o.Host && r.Session == o.Session && r.HandlerName() == o.HandlerName() &&
		(r.shape == o.shape || r.shape.Digest == o.shape.Digest && r.shape.Handler.GetModule() == o.shape.Handler.GetModule() &&
			maps.Equal(r.shape.Labels, o.shape.Labels))
}

// AppendShared appends the fields of a row that many runs have in common. They are most
// of the row of a run without output or error. A run takes 0.5 of the bytes of the history
// because these fields are written once for several runs, and e2e/batch100 of bench/sched
// was 1.04 times as high in seven pairs (ADR 30).
func (r *Run) AppendShared(b []byte) []byte {
	b = wire.Text(b, fields.RunRowApp, r.App)
	b = wire.Text(b, fields.RunRowState, string(r.State))
	b = wire.Text(b, fields.RunRowTrigger, string(r.Trigger))
	b = wire.Int(b, fields.RunRowMaxAttempts, int64(r.MaxAttempts()))
	b = wire.Text(b, fields.RunRowHost, r.Host)
	b = wire.Text(b, fields.RunRowSession, r.Session)
	b = wire.Text(b, fields.RunRowModule, r.shape.Handler.GetModule())
	b = wire.Text(b, fields.RunRowHandler, r.HandlerName())
	b = wire.Text(b, fields.RunRowDigest, r.shape.Digest)
	b = wire.Text(b, fields.RunRowTriggeredBy, r.By)
	if len(r.shape.Labels) > 0 { // without the check, runs without labels would pay for a sort
		b = appendLabels(b, fields.RunRowLabels, r.shape.Labels)
	}
	return b
}

// appendLabels appends a map field, in the order of its keys.
func appendLabels(b []byte, n protowire.Number, labels map[string]string) []byte {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		b = nested(b, n, func(b []byte) []byte {
			return wire.Text(wire.Text(b, 1, key), 2, labels[key])
		})
	}
	return b
}

// AppendOwn appends the fields of a row that AppendShared does not append.
func (r *Run) AppendOwn(b []byte) ([]byte, error) {
	b = wire.Bytes(b, fields.RunRowId, r.ID[:])
	b = wire.Text(b, fields.RunRowJob, r.Job)
	b = wire.Int(b, fields.RunRowPlannedMs, r.PlannedMs)
	b = wire.Int(b, fields.RunRowAcceptedMs, r.AcceptedMs)
	b = wire.Int(b, fields.RunRowStartedMs, r.StartedMs)
	b = wire.Int(b, fields.RunRowFinishedMs, r.FinishedMs)
	b = wire.Int(b, fields.RunRowAttempt, int64(r.Attempt))
	b = wire.Int(b, fields.RunRowLost, int64(r.Lost))
	b = wire.Bool(b, fields.RunRowHasInput, r.HasInput)
	terminal := r.State.Terminal()
	switch {
	case terminal && !r.HasInput:
		b = wire.Text(b, fields.RunRowInput, r.defined())
	case terminal && len(r.Input) > MaxInput: // see [Run.Row]
	default:
		b = wire.Bytes(b, fields.RunRowInput, r.Input)
	}
	b = wire.Bytes(b, fields.RunRowOutput, r.Output)
	b = wire.Text(b, fields.RunRowError, r.Error)
	b = wire.Text(b, fields.RunRowCode, r.Code)
	b = wire.Text(b, fields.RunRowTrace, r.Trace)
	for i := range r.Attempts {
		b = nested(b, fields.RunRowAttempts, r.Attempts[i].append)
	}
	b = wire.Int(b, fields.RunRowRetryMs, r.RetryMs)
	b = wire.Bool(b, fields.RunRowCancelRequested, r.CancelRequested)
	b = wire.Text(b, fields.RunRowTraceParent, r.TraceParent)
	b = wire.Int(b, fields.RunRowJobRevision, r.Revision)
	if !terminal {
		b = nested(b, fields.RunRowDefinition, func(b []byte) []byte { return append(append(b, r.shape.text...), r.own...) })
	}
	b = wire.Int(b, fields.RunRowCovers, r.Covers)
	if f := r.Fan; f != nil {
		if r.IsPart() {
			b = wire.Bytes(b, fields.RunRowParent, f.Parent[:])
		}
		b = wire.Int(b, fields.RunRowPart, int64(f.Part))
		b = wire.Int(b, fields.RunRowParts, int64(f.Parts))
		b = wire.Int(b, fields.RunRowPartsMade, int64(f.Made))
		b = wire.Int(b, fields.RunRowPartsSucceeded, int64(f.Succeeded))
		b = wire.Int(b, fields.RunRowPartsFailed, int64(f.Failed))
		b = wire.Text(b, fields.RunRowPinned, f.Pinned)
		b = wire.Ints(b, fields.RunRowOnly, f.Only)
		b = wire.Texts(b, fields.RunRowOnlyHosts, f.OnlyHosts)
	}
	if r.Cause != (RunID{}) {
		b = wire.Bytes(b, fields.RunRowCause, r.Cause[:])
	}
	b = wire.Text(b, fields.RunRowCancelWhy, r.CancelWhy)
	b = wire.Text(b, fields.RunRowNode, r.Node)
	if n := r.Nodes; n != nil {
		for _, rows := range [][]*apiv1.NodeRow{n.Rows, n.Kept} { // at most one of the two has entries
			for _, row := range rows {
				var err error
				if b, err = appendNode(b, fields.RunRowNodes, row); err != nil {
					return b, err
				}
			}
		}
		b = wire.Text(b, fields.RunRowFromNode, n.From)
	}
	b = wire.Int(b, fields.RunRowNth, r.Nth)
	return r.appendMap(appendPin(b, fields.RunRowPin, r.Pin))
}

// Ending is the part of the row of an ended run that the statistics need.
type Ending struct {
	ID         RunID
	App, Job   string
	State      State
	FinishedMs int64
	Nth        int64 // number among the ended runs of its job; 0: the job does not count it
}

// ReadEnding reads the bytes of an apiv1.RunRow. It skips most fields, because a server
// that restarts under a heavy load reads a million rows. It takes 0.25 of the time of
// proto.Unmarshal (BenchmarkReadEnding).
func ReadEnding(row []byte) (Ending, error) {
	var e Ending
	r := wire.NewReader(row)
	for r.Next() {
		switch r.Field {
		case fields.RunRowId:
			e.ID = runID(r.Bytes())
		case fields.RunRowApp:
			e.App = r.Text()
		case fields.RunRowJob:
			e.Job = r.Text()
		case fields.RunRowState:
			e.State = State(r.Text())
		case fields.RunRowFinishedMs:
			e.FinishedMs = r.Int()
		case fields.RunRowNth:
			e.Nth = r.Int()
		default:
			r.Skip()
		}
	}
	if r.Failed() {
		return Ending{}, errors.New("the row of a run that has ended is damaged")
	}
	return e, nil
}

// AppendKey appends an idempotency key to the bytes of an apiv1.KeyRow.
func AppendKey(b []byte, hash [16]byte, run RunID, atMs int64, input uint32) []byte {
	return nested(b, fields.KeyRowKeys, func(b []byte) []byte {
		b = wire.Bytes(b, fields.KeyRowKeyHash, hash[:])
		b = wire.Bytes(b, fields.KeyRowKeyRun, run[:])
		b = wire.Int(b, fields.KeyRowKeyAtMs, atMs)
		return wire.Int(b, fields.KeyRowKeyInput, int64(input))
	})
}

func (a *Attempt) append(b []byte) []byte {
	b = wire.Int(b, fields.AttemptRowNumber, int64(a.Number))
	b = wire.Text(b, fields.AttemptRowHost, a.Host)
	b = wire.Int(b, fields.AttemptRowDispatchedMs, a.DispatchedMs)
	b = wire.Int(b, fields.AttemptRowStartedMs, a.StartedMs)
	b = wire.Int(b, fields.AttemptRowFinishedMs, a.FinishedMs)
	b = wire.Int(b, fields.AttemptRowOutcome, int64(a.Outcome))
	b = wire.Text(b, fields.AttemptRowError, a.Error)
	return wire.Text(b, fields.AttemptRowCode, a.Code)
}
