package sched

import (
	"fmt"
	"slices"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/pool"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/journal"
)

// stageBytes is the size, in bytes, at which a turn gives its batch to the journal before
// it has handled all of its input.
const stageBytes = 1 << 20

// stage is a batch: the records that one turn has decided, their effects, and the answers
// that callers get when the records are durable.
type stage struct {
	number uint64 // see loop.stageNumber
	recs   []journal.Record
	bytes  int
	fx     []job.Effect
	acks   []func(error)
	err    error
}

// Batches and the buffers of their records are reused: they take as much memory as all
// else that a run needs, and would be garbage at once. The garbage collector gets those
// that a burst has made large. With this and the other reuse of ADR 27 a run allocates 0.67
// of the bytes (e2e/batch100 of bench/sched).
var stages pool.Pool[stage]

const (
	maxSpareFx     = 32 << 10    // effects of a batch
	maxSpareBody   = 2 * maxTail // bytes of a buffer
	maxSpareBodies = 128         // buffers of a loop
)

// open begins the next batch.
func (l *loop) open() {
	l.stageNumber++
	l.stage = stages.Get()
	l.stage.number = l.stageNumber
}

// recycle clears a batch and makes it available for reuse. The caller has no further use
// for it.
func (s *stage) recycle() {
	if cap(s.fx) > maxSpareFx {
		return
	}
	clear(s.recs)
	clear(s.fx)
	clear(s.acks)
	*s = stage{recs: s.recs[:0], fx: s.fx[:0], acks: s.acks[:0]}
	stages.Release(s)
}

// buffer returns an empty buffer for a record.
func (l *loop) buffer() []byte {
	n := len(l.bodies)
	if n == 0 {
		return make([]byte, 0, 256)
	}
	b := l.bodies[n-1]
	l.bodies = l.bodies[:n-1]
	return b
}

// handed takes back the buffers of records that the journal has copied.
func (l *loop) handed(recs []journal.Record) {
	for i := range recs {
		if b := recs[i].Body; cap(b) <= maxSpareBody && len(l.bodies) < maxSpareBodies {
			l.bodies = append(l.bodies, b[:0])
		}
	}
	clear(recs)
}

// tail names an open record: it is in the batch of this turn, and its slot has no later
// record.
type tail struct {
	stage uint64 // number of its batch; 0: there is no open record
	rec   int    // index in stage.recs
}

// record adds rec to the batch of this turn and applies it to the state of its slot at
// once. The effects of rec happen when the batch is durable, see release.
func (l *loop) record(s *job.Slot, rec *apiv1.Record) {
	rec.AtMs = l.nowMs
	l.pin(s, rec)
	body, err := job.AppendRecord(l.buffer(), rec)
	if err != nil {
		l.fail(fmt.Errorf("encode record: %w", err))
		return
	}
	ownerOf(s).tails[s.Index] = tail{}
	l.append(s, body)
	from := len(l.stage.fx)
	l.stage.fx = s.Apply(rec, l.stage.fx)
	l.account(l.stage.fx[from:])
}

func (l *loop) append(s *job.Slot, body []byte) {
	l.stage.recs = append(l.stage.recs, journal.Record{Slot: journal.Slot{App: s.App, Index: s.Index}, Body: body})
	l.stage.bytes += len(body)
}

// maxTail is the size, in bytes, at which an open record of accepted runs takes no more.
const maxTail = 64 << 10

// accept is record for an accepted run. Consecutive accepted runs of a slot share a
// record, because there may be 100 000 a second.
func (l *loop) accept(j *job.Job, acc *apiv1.Accepted) {
	s := j.Slot()
	t := &ownerOf(s).tails[s.Index]
	if t.stage != l.stage.number || len(l.stage.recs[t.rec].Body) >= maxTail {
		*t = tail{l.stage.number, len(l.stage.recs)}
		l.append(s, job.BeginAccepts(l.buffer(), l.nowMs))
	}
	l.pinAccepted(s, acc)
	rec := &l.stage.recs[t.rec]
	before := len(rec.Body)
	body, err := job.AppendAccept(rec.Body, acc)
	if err != nil {
		l.fail(fmt.Errorf("encode record: %w", err))
		return
	}
	rec.Body = body
	l.stage.bytes += len(body) - before
	from := len(l.stage.fx)
	l.stage.fx = s.Accept(j, acc, l.nowMs, l.stage.fx)
	l.account(l.stage.fx[from:])
}

// onDurable calls fn on the loop when all records so far are durable, or with the error
// because of which they never will be.
func (l *loop) onDurable(fn func(error)) {
	l.stage.acks = append(l.stage.acks, fn)
}

// submit gives the batch of this turn to the journal and begins the next one. The answers
// of a batch without records wait for the last batch in flight.
func (l *loop) submit() {
	l.follow()
	s := l.stage
	if len(s.recs) == 0 {
		if len(s.acks) == 0 {
			return
		}
		l.open()
		if n := len(l.inflight); n > 0 { // they rest on records in flight
			l.inflight[n-1].acks = append(l.inflight[n-1].acks, s.acks...)
		} else {
			for _, ack := range s.acks {
				ack(l.failure)
			}
		}
		s.recycle()
		return
	}
	l.open()
	l.inflight = append(l.inflight, s)
	last, err := l.cfg.Journal.Append(s.recs, func(err error) {
		l.mu.Lock()
		s.err = err
		l.flushed = append(l.flushed, s)
		l.mu.Unlock()
		l.wake()
	})
	if err != nil {
		// The disk is not full, because refuse and cramped check for room before a record
		// is made: the journal has failed, and the state is ahead of it.
		l.fail(fmt.Errorf("append to the journal: %w", err))
		l.release(s)
		return
	}
	l.lastSeq = last
	l.handed(s.recs)
	s.recs = s.recs[:0]
}

// submitLazy gives the records of this turn to the journal, which may write them up to a
// tenth of a second later. No caller waits for them, and their effects have happened.
func (l *loop) submitLazy() {
	s := l.stage
	if len(s.recs) == 0 {
		return
	}
	last, err := l.cfg.Journal.AppendLazy(s.recs)
	l.handed(s.recs)
	s.recs, s.bytes = s.recs[:0], 0
	if err != nil {
		l.fail(err)
		return
	}
	l.lastSeq = last
}

// release performs the effects of a durable batch and queues its answers. If the batch
// has failed, the server ends and the answers are the error.
func (l *loop) release(s *stage) {
	if s.err != nil {
		l.fail(fmt.Errorf("write the journal: %w", s.err))
	}
	l.inflight = slices.DeleteFunc(l.inflight, func(x *stage) bool { return x == s })
	l.owed = append(l.owed, s.acks...)
	if l.failure == nil {
		for fx := range job.EachEffect(s.fx) {
			l.perform(fx)
		}
	}
	s.recycle()
}

// answerDurable answers the calls whose records are durable. It comes after the dispatch,
// because waking a goroutine takes longer than queueing a task, and callers do not notice
// the difference. flush, which wakes the senders of tasks, comes after it, because the
// runtime schedules the last readied goroutine first.
func (l *loop) answerDurable() {
	for _, ack := range l.owed {
		ack(l.failure)
	}
	clear(l.owed)
	l.owed = l.owed[:0]
}

// flush wakes the senders of the outboxes into which the turn has put tasks.
func (l *loop) flush() {
	for _, out := range l.unsent {
		out.flush()
	}
	clear(l.unsent)
	l.unsent = l.unsent[:0]
}
