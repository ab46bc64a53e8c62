package job

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/wire"
)

// This file encodes messages of which each run has several. The bytes equal those of
// proto.Marshal and take a fifth of its time; readers of whole messages use
// proto.Unmarshal. A test fills every field and compares the bytes, so a new field cannot
// be forgotten here.

// The fields of apiv1.Record that this file writes.
const (
	recordAtMs     = 1
	recordStarted  = 7
	recordFinished = 8
	recordAccepts  = 19
)

// AppendRecord appends the bytes of a record.
func AppendRecord(b []byte, rec *apiv1.Record) ([]byte, error) {
	if len(rec.Accepts) > 0 {
		return proto.MarshalOptions{}.MarshalAppend(b, rec)
	}
	switch k := rec.Kind.(type) {
	case *apiv1.Record_Started:
		b = wire.Int(b, recordAtMs, rec.AtMs)
		return nested(b, recordStarted, func(b []byte) []byte { return appendStarted(b, k.Started) }), nil
	case *apiv1.Record_Finished:
		b = wire.Int(b, recordAtMs, rec.AtMs)
		return nested(b, recordFinished, func(b []byte) []byte { return appendFinished(b, k.Finished) }), nil
	}
	return proto.MarshalOptions{}.MarshalAppend(b, rec)
}

// AppendAccept appends an accepted run to the bytes of a record. The bytes begin with
// [BeginAccepts].
func AppendAccept(b []byte, a *apiv1.Accepted) ([]byte, error) {
	var err error
	b = nested(b, recordAccepts, func(b []byte) []byte {
		b, err = appendAccepted(b, a)
		return b
	})
	return b, err
}

// BeginAccepts appends the first bytes of a record of accepted runs: its time.
func BeginAccepts(b []byte, atMs int64) []byte { return wire.Int(b, recordAtMs, atMs) }

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
	b = wire.Bytes(b, 1, a.Run)
	b = wire.Text(b, 2, a.Job)
	b = wire.Bool(b, 3, a.HasInput)
	b = wire.Bytes(b, 4, a.Input)
	b = wire.Bytes(b, 5, a.KeyHash)
	b = wire.Text(b, 6, a.TraceParent)
	b = wire.Text(b, 7, a.Trigger)
	b = wire.Bytes(b, 8, a.Cause)
	b = wire.Bool(b, 9, a.Completes)
	b = wire.Ints(b, 10, a.Parts)
	b = wire.Text(b, 11, a.Node)
	b = wire.Int(b, 12, int64(a.Priority))
	for _, k := range a.Kept {
		var err error
		if b, err = appendNode(b, 13, k); err != nil {
			return b, err
		}
	}
	return wire.Int(appendPin(b, 40, a.Pin), 50, a.PlannedMs), nil
}

func appendPin(b []byte, n protowire.Number, p *apiv1.Pin) []byte {
	if p == nil {
		return b
	}
	return nested(b, n, func(b []byte) []byte {
		b = wire.Text(b, 1, p.Alias)
		b = wire.Text(b, 2, p.Module)
		b = wire.Text(b, 3, p.Digest)
		b = wire.Bool(b, 4, p.Canary)
		return wire.Texts(b, 5, p.Needs)
	})
}

func appendStarted(b []byte, s *apiv1.Started) []byte {
	b = wire.Text(b, 1, s.Host)
	b = wire.Text(b, 2, s.Session)
	for _, r := range s.Runs {
		b = nested(b, 3, func(b []byte) []byte {
			return wire.Int(wire.Bytes(b, 1, r.Run), 2, int64(r.Attempt))
		})
	}
	return b
}

func appendFinished(b []byte, f *apiv1.Finished) []byte {
	for _, e := range f.Ends {
		b = nested(b, 1, func(b []byte) []byte {
			b = wire.Bytes(b, 1, e.Run)
			b = wire.Int(b, 2, int64(e.Attempt))
			b = wire.Text(b, 3, e.Host)
			b = wire.Int(b, 4, int64(e.Outcome))
			b = wire.Bytes(b, 5, e.Output)
			b = wire.Text(b, 6, e.Error)
			b = wire.Text(b, 7, e.Code)
			b = wire.Text(b, 8, e.Trace)
			b = wire.Int(b, 9, e.StartedMs)
			b = wire.Int(b, 10, e.DurationUs)
			b = wire.Text(b, 11, e.State)
			b = wire.Int(b, 12, e.RetryMs)
			return wire.Int(b, 13, e.JobNextMs)
		})
	}
	return b
}

// AppendRow appends the definition as the store holds it: the bytes of an apiv1.JobRow,
// see [Job.Row].
func (j *Job) AppendRow(b []byte) ([]byte, error) {
	b = wire.Int(b, 2, j.NextMs)
	b = wire.Int(b, 10, j.Planned)
	b = wire.Text(b, 14, j.kind.shape.text)
	b = wire.Text(b, 15, j.spec().own)
	b = wire.Int(b, 16, int64(j.Revision()))
	return wire.Bytes(b, 17, j.etag[:]), nil
}

// AppendStats appends the statistics of the job as the store holds them: the bytes of an
// apiv1.JobStatsRow, see [Job.StatsRow].
func (j *Job) AppendStats(b []byte) ([]byte, error) {
	b = wire.Int(b, 1, j.NextMs)
	b = wire.Int(b, 2, j.Planned)
	b = wire.Int(b, 3, j.succeeded)
	b = wire.Int(b, 4, j.failed)
	b = wire.Int(b, 5, j.skipped())
	b = wire.Text(b, 6, string(j.lastState()))
	if j.lastEndMs > 0 {
		b = wire.Bytes(b, 7, j.lastRun[:])
	}
	b = wire.Int(b, 8, j.lastEndMs)
	x := j.extra
	if x == nil {
		return b, nil
	}
	var err error
	if x.route != nil {
		b = nested(b, 9, func(b []byte) []byte {
			b, err = proto.MarshalOptions{}.MarshalAppend(b, routeRow(x.route))
			return b
		})
	}
	b = wire.Texts(b, 10, x.met)
	return wire.Longs(b, 11, x.given), err
}

// AppendLive appends the run as an entry of an apiv1.LiveRow.
func (r *Run) AppendLive(b []byte) ([]byte, error) {
	b, from := wire.Begin(b, 1)
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
	return r.App == o.App && r.State == o.State && r.Trigger == o.Trigger && r.MaxAttempts() == o.MaxAttempts() &&
		r.Host == o.Host && r.Session == o.Session && r.HandlerName() == o.HandlerName() &&
		(r.shape == o.shape || r.shape.Digest == o.shape.Digest && r.shape.Handler.GetModule() == o.shape.Handler.GetModule())
}

// AppendShared appends the fields of a row that many runs have in common. They are most
// of the row of a run without output or error.
func (r *Run) AppendShared(b []byte) []byte {
	b = wire.Text(b, 2, r.App)
	b = wire.Text(b, 4, string(r.State))
	b = wire.Text(b, 5, string(r.Trigger))
	b = wire.Int(b, 12, int64(r.MaxAttempts()))
	b = wire.Text(b, 13, r.Host)
	b = wire.Text(b, 14, r.Session)
	b = wire.Text(b, 15, r.shape.Handler.GetModule())
	b = wire.Text(b, 16, r.HandlerName())
	return wire.Text(b, 17, r.shape.Digest)
}

// AppendOwn appends the fields of a row that AppendShared does not append.
func (r *Run) AppendOwn(b []byte) ([]byte, error) {
	b = wire.Bytes(b, 1, r.ID[:])
	b = wire.Text(b, 3, r.Job)
	b = wire.Int(b, 6, r.PlannedMs)
	b = wire.Int(b, 7, r.AcceptedMs)
	b = wire.Int(b, 8, r.StartedMs)
	b = wire.Int(b, 9, r.FinishedMs)
	b = wire.Int(b, 10, int64(r.Attempt))
	b = wire.Int(b, 11, int64(r.Lost))
	b = wire.Bool(b, 18, r.HasInput)
	terminal := r.State.Terminal()
	switch {
	case terminal && !r.HasInput:
		b = wire.Text(b, 19, r.defined())
	case terminal && len(r.Input) > MaxInput: // see [Run.Row]
	default:
		b = wire.Bytes(b, 19, r.Input)
	}
	b = wire.Bytes(b, 20, r.Output)
	b = wire.Text(b, 21, r.Error)
	b = wire.Text(b, 22, r.Code)
	b = wire.Text(b, 23, r.Trace)
	for i := range r.Attempts {
		b = nested(b, 24, r.Attempts[i].append)
	}
	b = wire.Int(b, 25, r.RetryMs)
	b = wire.Bool(b, 26, r.CancelRequested)
	b = wire.Text(b, 27, r.TraceParent)
	b = wire.Int(b, 28, r.Revision)
	if !terminal {
		b = nested(b, 29, func(b []byte) []byte { return append(append(b, r.shape.text...), r.own...) })
	}
	b = wire.Int(b, 30, r.Covers)
	if f := r.Fan; f != nil {
		if r.IsPart() {
			b = wire.Bytes(b, 31, f.Parent[:])
		}
		b = wire.Int(b, 32, int64(f.Part))
		b = wire.Int(b, 33, int64(f.Parts))
		b = wire.Int(b, 34, int64(f.Made))
		b = wire.Int(b, 35, int64(f.Succeeded))
		b = wire.Int(b, 36, int64(f.Failed))
		b = wire.Text(b, 37, f.Pinned)
		b = wire.Ints(b, 39, f.Only)
		b = wire.Texts(b, 76, f.OnlyHosts)
	}
	if r.Cause != (RunID{}) {
		b = wire.Bytes(b, 38, r.Cause[:])
	}
	b = wire.Text(b, 40, r.CancelWhy)
	b = wire.Text(b, 41, r.Node)
	if n := r.Nodes; n != nil {
		for _, rows := range [][]*apiv1.NodeRow{n.Rows, n.Kept} { // at most one of the two has entries
			for _, row := range rows {
				var err error
				if b, err = appendNode(b, 42, row); err != nil {
					return b, err
				}
			}
		}
	}
	return r.appendMap(appendPin(wire.Int(b, 43, r.Nth), 60, r.Pin))
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
// that restarts under a heavy load reads a million rows.
func ReadEnding(row []byte) (Ending, error) {
	var e Ending
	r := wire.NewReader(row)
	for r.Next() {
		switch r.Field {
		case 1:
			e.ID = runID(r.Bytes())
		case 2:
			e.App = r.Text()
		case 3:
			e.Job = r.Text()
		case 4:
			e.State = State(r.Text())
		case 9:
			e.FinishedMs = r.Int()
		case 43:
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
	return nested(b, 1, func(b []byte) []byte {
		b = wire.Int(wire.Bytes(wire.Bytes(b, 1, hash[:]), 2, run[:]), 3, atMs)
		return wire.Int(b, 4, int64(input))
	})
}

func (a *Attempt) append(b []byte) []byte {
	b = wire.Int(b, 1, int64(a.Number))
	b = wire.Text(b, 2, a.Host)
	b = wire.Int(b, 3, a.DispatchedMs)
	b = wire.Int(b, 4, a.StartedMs)
	b = wire.Int(b, 5, a.FinishedMs)
	b = wire.Int(b, 6, int64(a.Outcome))
	b = wire.Text(b, 7, a.Error)
	return wire.Text(b, 8, a.Code)
}
