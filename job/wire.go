package job

import (
	"encoding/binary"
	"fmt"
	"math"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// This file writes the messages of which there are some for each run. It writes
// what proto.Marshal would, for a fifth of its time; whatever reads them uses
// proto.Unmarshal. A test fills every field and compares, so that a new field
// cannot be forgotten here.

// The fields of apiv1.Record that are written here.
const (
	recordAtMs     = 1
	recordStarted  = 7
	recordFinished = 8
	recordAccepts  = 19
)

// AppendRecord appends a record as bytes.
func AppendRecord(b []byte, rec *apiv1.Record) ([]byte, error) {
	if len(rec.Accepts) > 0 {
		return proto.MarshalOptions{}.MarshalAppend(b, rec)
	}
	switch k := rec.Kind.(type) {
	case *apiv1.Record_Started:
		b = putInt(b, recordAtMs, rec.AtMs)
		return nested(b, recordStarted, func(b []byte) []byte { return appendStarted(b, k.Started) }), nil
	case *apiv1.Record_Finished:
		b = putInt(b, recordAtMs, rec.AtMs)
		return nested(b, recordFinished, func(b []byte) []byte { return appendFinished(b, k.Finished) }), nil
	}
	return proto.MarshalOptions{}.MarshalAppend(b, rec)
}

// AppendAccept appends one more accepted run to the bytes of a record. A record
// without any has its time alone: see [BeginAccepts].
func AppendAccept(b []byte, a *apiv1.Accepted) ([]byte, error) {
	var err error
	b = nested(b, recordAccepts, func(b []byte) []byte {
		b, err = appendAccepted(b, a)
		return b
	})
	return b, err
}

// BeginAccepts appends the beginning of a record of accepted runs.
func BeginAccepts(b []byte, atMs int64) []byte { return putInt(b, recordAtMs, atMs) }

func putInt(b []byte, n protowire.Number, v int64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), uint64(v))
}

func putBool(b []byte, n protowire.Number, v bool) []byte {
	if !v {
		return b
	}
	return append(protowire.AppendTag(b, n, protowire.VarintType), 1)
}

func putText(b []byte, n protowire.Number, v string) []byte {
	if v == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), v)
}

func putBytes(b []byte, n protowire.Number, v []byte) []byte {
	if len(v) == 0 {
		return b
	}
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
}

func putInts(b []byte, n protowire.Number, vs []int32) []byte {
	if len(vs) == 0 {
		return b
	}
	return nested(b, n, func(b []byte) []byte {
		for _, v := range vs {
			b = protowire.AppendVarint(b, uint64(int64(v)))
		}
		return b
	})
}

// nested appends a field whose length is known when it has been written: room
// for a short one is left, and a long one is moved.
func nested(b []byte, n protowire.Number, write func([]byte) []byte) []byte {
	b = protowire.AppendTag(b, n, protowire.BytesType)
	b = append(b, 0)
	from := len(b)
	b = write(b)
	size := len(b) - from
	if size < 1<<7 {
		b[from-1] = byte(size)
		return b
	}
	if size > math.MaxInt32 {
		panic(fmt.Sprintf("job: a field of %d bytes", size)) // the doors bound everything far below
	}
	var length [binary.MaxVarintLen64]byte
	head := protowire.AppendVarint(length[:0], uint64(size))
	b = append(b, head[1:]...)
	copy(b[from-1+len(head):], b[from:from+size])
	copy(b[from-1:], head)
	return b
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
	b = putBytes(b, 1, a.Run)
	b = putText(b, 2, a.Job)
	b = putBool(b, 3, a.HasInput)
	b = putBytes(b, 4, a.Input)
	b = putBytes(b, 5, a.KeyHash)
	b = putText(b, 6, a.TraceParent)
	b = putText(b, 7, a.Trigger)
	b = putBytes(b, 8, a.Cause)
	b = putBool(b, 9, a.Completes)
	b = putInts(b, 10, a.Parts)
	b = putText(b, 11, a.Node)
	b = putInt(b, 12, int64(a.Priority))
	for _, k := range a.Kept {
		var err error
		if b, err = appendNode(b, 13, k); err != nil {
			return b, err
		}
	}
	return putInt(appendPin(b, 40, a.Pin), 50, a.PlannedMs), nil
}

func appendPin(b []byte, n protowire.Number, p *apiv1.Pin) []byte {
	if p == nil {
		return b
	}
	return nested(b, n, func(b []byte) []byte {
		b = putText(b, 1, p.Alias)
		b = putText(b, 2, p.Module)
		b = putText(b, 3, p.Digest)
		b = putBool(b, 4, p.Canary)
		for _, need := range p.Needs {
			b = protowire.AppendString(protowire.AppendTag(b, 5, protowire.BytesType), need)
		}
		return b
	})
}

func appendStarted(b []byte, s *apiv1.Started) []byte {
	b = putText(b, 1, s.Host)
	b = putText(b, 2, s.Session)
	for _, r := range s.Runs {
		b = nested(b, 3, func(b []byte) []byte {
			return putInt(putBytes(b, 1, r.Run), 2, int64(r.Attempt))
		})
	}
	return b
}

func appendFinished(b []byte, f *apiv1.Finished) []byte {
	for _, e := range f.Ends {
		b = nested(b, 1, func(b []byte) []byte {
			b = putBytes(b, 1, e.Run)
			b = putInt(b, 2, int64(e.Attempt))
			b = putText(b, 3, e.Host)
			b = putInt(b, 4, int64(e.Outcome))
			b = putBytes(b, 5, e.Output)
			b = putText(b, 6, e.Error)
			b = putText(b, 7, e.Code)
			b = putText(b, 8, e.Trace)
			b = putInt(b, 9, e.StartedMs)
			b = putInt(b, 10, e.DurationUs)
			b = putText(b, 11, e.State)
			b = putInt(b, 12, e.RetryMs)
			return putInt(b, 13, e.JobNextMs)
		})
	}
	return b
}

// AppendRow appends the run as the store keeps it: the bytes of an apiv1.RunRow,
// see Row.
func (r *Run) AppendRow(b []byte) ([]byte, error) {
	b = putBytes(b, 1, r.ID[:])
	b = putText(b, 2, r.App)
	b = putText(b, 3, r.Job)
	b = putText(b, 4, string(r.State))
	b = putText(b, 5, string(r.Trigger))
	b = putInt(b, 6, r.PlannedMs)
	b = putInt(b, 7, r.AcceptedMs)
	b = putInt(b, 8, r.StartedMs)
	b = putInt(b, 9, r.FinishedMs)
	b = putInt(b, 10, int64(r.Attempt))
	b = putInt(b, 11, int64(r.Lost))
	b = putInt(b, 12, int64(r.MaxAttempts()))
	b = putText(b, 13, r.Host)
	b = putText(b, 14, r.Session)
	b = putText(b, 15, r.shape.Handler.GetModule())
	b = putText(b, 16, r.HandlerName())
	b = putText(b, 17, r.shape.Digest)
	b = putBool(b, 18, r.HasInput)
	terminal := r.State.Terminal()
	switch {
	case terminal && !r.HasInput:
		b = putText(b, 19, r.input())
	case terminal && len(r.Input) > MaxInput: // see Row
	default:
		b = putBytes(b, 19, r.Input)
	}
	b = putBytes(b, 20, r.Output)
	b = putText(b, 21, r.Error)
	b = putText(b, 22, r.Code)
	b = putText(b, 23, r.Trace)
	for i := range r.Attempts {
		b = nested(b, 24, r.Attempts[i].append)
	}
	b = putInt(b, 25, r.RetryMs)
	b = putBool(b, 26, r.CancelRequested)
	b = putText(b, 27, r.TraceParent)
	b = putInt(b, 28, r.Revision)
	if !terminal {
		b = nested(b, 29, func(b []byte) []byte { return append(append(b, r.shape.text...), r.own...) })
	}
	b = putInt(b, 30, r.Covers)
	if f := r.Fan; f != nil {
		if r.IsPart() {
			b = putBytes(b, 31, f.Parent[:])
		}
		b = putInt(b, 32, int64(f.Part))
		b = putInt(b, 33, int64(f.Parts))
		b = putInt(b, 34, int64(f.Made))
		b = putInt(b, 35, int64(f.Succeeded))
		b = putInt(b, 36, int64(f.Failed))
		b = putText(b, 37, f.Pinned)
		b = putInts(b, 39, f.Only)
	}
	if r.Cause != (RunID{}) {
		b = putBytes(b, 38, r.Cause[:])
	}
	b = putText(b, 40, r.CancelWhy)
	b = putText(b, 41, r.Node)
	if n := r.Nodes; n != nil {
		for _, rows := range [][]*apiv1.NodeRow{n.Rows, n.Kept} { // one of them is empty
			for _, row := range rows {
				var err error
				if b, err = appendNode(b, 42, row); err != nil {
					return b, err
				}
			}
		}
	}
	return r.appendMap(appendPin(putInt(b, 43, r.Nth), 60, r.Pin))
}

// AppendKey appends an idempotency key to the bytes of an apiv1.KeyRow.
func AppendKey(b []byte, hash [16]byte, run RunID, atMs int64) []byte {
	return nested(b, 1, func(b []byte) []byte {
		return putInt(putBytes(putBytes(b, 1, hash[:]), 2, run[:]), 3, atMs)
	})
}

func (a *Attempt) append(b []byte) []byte {
	b = putInt(b, 1, int64(a.Number))
	b = putText(b, 2, a.Host)
	b = putInt(b, 3, a.DispatchedMs)
	b = putInt(b, 4, a.StartedMs)
	b = putInt(b, 5, a.FinishedMs)
	b = putInt(b, 6, int64(a.Outcome))
	b = putText(b, 7, a.Error)
	return putText(b, 8, a.Code)
}
