package core

import (
	"fmt"
	"slices"
	"strings"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched/hosts"
)

// Limits of a result, in bytes. The hosts of the program wheelwork respect them, but the
// server does not trust a host to do so.
const (
	maxOutput = 1 << 20
	maxText   = 64 << 10
	// maxBatchOutput is the size of the outputs at which a result batch is recorded, in bytes.
	maxBatchOutput = 1 << 20
)

// bounded enforces the limits on a result.
func bounded(t *apiv1.TaskResult) {
	if n := len(t.Output); n > maxOutput {
		t.Output, t.Outcome, t.Code = nil, apiv1.Outcome_OUTCOME_PERMANENT, "output_limit"
		t.Error = fmt.Sprintf("the output is %d bytes, the limit is %d", n, maxOutput)
	}
	for _, s := range []*string{&t.Error, &t.Code, &t.Trace} {
		if len(*s) > maxText {
			*s = strings.ToValidUTF8((*s)[:maxText], "")
		}
	}
}

func (se *Sessions) resultBatch() *resultBatch {
	if se.results == nil {
		se.results = &resultBatch{l: se.l, bySlot: map[*job.Slot]*apiv1.Finished{}}
	}
	return se.results
}

// message returns an empty message, which may have been part of an earlier record. Applying
// a record copies the values of a message and retains no pointer to it.
func (e *resultBatch) message() *apiv1.Finished_End {
	n := len(e.free)
	if n == 0 {
		return &apiv1.Finished_End{}
	}
	m := e.free[n-1]
	e.free = e.free[:n-1]
	// Reset would also store the message's type, at the cost of cache misses.
	*m = apiv1.Finished_End{}
	return m
}

// add decides the outcome of the current attempt of r by its result.
func (e *resultBatch) add(r *job.Run, t *apiv1.TaskResult) {
	l := e.l
	v := job.Settle(r, t.Outcome, time.Duration(t.RetryAfterMs)*time.Millisecond)
	if l.Sessions.cameTooLate(r, t) {
		v.State, t.Code, t.Error = job.Missed, "deadline", whyMissed(r)
	}
	end := e.message()
	end.Run, end.Attempt, end.Host, end.Outcome = r.ID[:], r.Attempt, r.Host, t.Outcome
	// The run may retain them for long, and without a copy they would retain the whole message.
	end.Output, end.Error, end.Code, end.Trace = slices.Clone(t.Output), strings.Clone(t.Error), strings.Clone(t.Code), strings.Clone(t.Trace)
	h := l.Sessions.hosts[r.Host]
	end.StartedMs, end.DurationUs, end.State = l.Sessions.startedBy(h, r, t), t.DurationUs, string(v.State)
	if v.State == job.Waiting {
		end.RetryMs = l.clock.nowMs + v.RetryIn.Milliseconds()
	}
	if v.State.Terminal() {
		end.JobNextMs = l.Commands.delayNext(r)
	}
	s := r.Slot()
	f := e.bySlot[s]
	if f == nil {
		f = &apiv1.Finished{}
		e.bySlot[s] = f
	}
	if len(f.Ends) == 0 {
		e.order = append(e.order, s)
	}
	f.Ends = append(f.Ends, end)
	r.Mark |= isInResultBatch
	e.runs = append(e.runs, r)
	took := time.Duration(t.DurationUs) * time.Microsecond
	l.Dispatcher.paces.Learn(r, took, t.Outcome)
	if h != nil {
		l.Dispatcher.drop(h, r, took-time.Duration(t.SleptUs)*time.Microsecond)
	}
	if e.bytes += len(t.Output) + len(t.Error) + len(t.Trace); e.bytes >= maxBatchOutput {
		e.record()
	}
}

// record appends the results to the batch of the journal, and empties the result batch.
func (e *resultBatch) record() {
	for _, s := range e.order {
		f := e.bySlot[s]
		e.l.commits.record(s, &apiv1.Record{Kind: &apiv1.Record_Finished{Finished: f}})
		e.free = append(e.free, f.Ends...)
		clear(f.Ends)
		f.Ends = f.Ends[:0]
	}
	for _, r := range e.runs {
		r.Mark &^= isInResultBatch
	}
	if e.l.commits.stage.bytes >= stageBytes {
		e.l.commits.submit()
	}
	clear(e.runs)
	e.order, e.runs, e.bytes = e.order[:0], e.runs[:0], 0
	if len(e.free) > hosts.MaxTasks*32 {
		e.free = nil
	}
}
