package sched

import (
	"fmt"
	"slices"
	"sync"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/journal"
)

// stageBytes is the size at which a turn of the loop hands its records to
// the journal before it has seen all of its inbox.
const stageBytes = 1 << 20

// stage is what one turn has decided: records, their effects, and the answers
// that wait for their durability.
type stage struct {
	number uint64 // of the loop's stages
	recs   []journal.Record
	bytes  int
	fx     []job.Effect
	acks   []func(error)
	err    error
}

// A stage's lists, and the buffers of its records, are as much as all else that
// a run takes, and would be garbage at once: they are used again. What a burst
// made large is left to the collector.
var stages = sync.Pool{New: func() any { return &stage{} }}

const (
	maxSpareFx     = 32 << 10    // effects of a stage
	maxSpareBody   = 2 * maxTail // bytes of a buffer
	maxSpareBodies = 128         // buffers of a loop
)

// open begins the next stage.
func (l *loop) open() {
	l.stageNumber++
	l.stage = stages.Get().(*stage)
	l.stage.number = l.stageNumber
}

// recycle takes back a stage that nobody needs any more.
func (s *stage) recycle() {
	if cap(s.fx) > maxSpareFx {
		return
	}
	clear(s.recs)
	clear(s.fx)
	clear(s.acks)
	*s = stage{recs: s.recs[:0], fx: s.fx[:0], acks: s.acks[:0]}
	stages.Put(s)
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

// handed takes the buffers of records back that the journal has copied.
func (l *loop) handed(recs []journal.Record) {
	for i := range recs {
		if b := recs[i].Body; cap(b) <= maxSpareBody && len(l.bodies) < maxSpareBodies {
			l.bodies = append(l.bodies, b[:0])
		}
	}
	clear(recs)
}

// tail is a record of a stage that was not submitted yet, to which no other
// record of its slot has come since.
type tail struct {
	stage uint64 // its number; 0: there is none
	rec   int
}

// record decides: it puts rec on its way to the journal and folds it in.
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

// maxTail is the size at which a record of accepted runs takes no more, bytes.
const maxTail = 64 << 10

// accept is record for an accepted run. Those that come one after another share
// a record: there may be 100 000 a second.
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

// onDurable calls fn when everything that was decided so far is durable, or
// with the error that says that it never will be.
func (l *loop) onDurable(fn func(error)) {
	l.stage.acks = append(l.stage.acks, fn)
}

// submit hands the turn's records to the journal.
func (l *loop) submit() {
	l.follow()
	s := l.stage
	if len(s.recs) == 0 {
		if len(s.acks) == 0 {
			return
		}
		l.open()
		if n := len(l.inflight); n > 0 { // wait for what it rests on
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
		// Room was asked for before anything was decided, so this is not a full
		// disk: the journal is dead, and the state is ahead of it.
		l.fail(fmt.Errorf("append to the journal: %w", err))
		l.release(s)
		return
	}
	l.lastSeq = last
	l.handed(s.recs)
	s.recs = s.recs[:0]
}

// submitLazy hands the turn's records to the journal, which may keep them for a
// while. Nobody waits for them, and their effects are visible already.
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

// release lets what a durable stage decided become visible.
func (l *loop) release(s *stage) {
	if s.err != nil {
		l.fail(fmt.Errorf("write the journal: %w", s.err))
	}
	l.inflight = slices.DeleteFunc(l.inflight, func(x *stage) bool { return x == s })
	l.owed = append(l.owed, s.acks...)
	if l.failure == nil {
		var runs [fetchAtOnce]*job.Run
		for part := range slices.Chunk(s.fx, fetchAtOnce) {
			for i := range part {
				runs[i] = part[i].Run
			}
			job.FetchRuns(runs[:len(part)])
			for i := range part {
				l.perform(&part[i])
			}
		}
	}
	s.recycle()
}

// answerDurable answers the calls whose commands are durable. It comes after the dispatch:
// to wake a goroutine takes longer than to send a task, and the callers lose no time by it.
// The goroutines that send short outboxes are woken after it, in flush, because the runtime
// runs the last goroutine that another one has woken first.
func (l *loop) answerDurable() {
	for _, ack := range l.owed {
		ack(l.failure)
	}
	clear(l.owed)
	l.owed = l.owed[:0]
}

// flush has sent what the turn has put into the outboxes of hosts.
func (l *loop) flush() {
	for _, out := range l.unsent {
		out.flush()
	}
	clear(l.unsent)
	l.unsent = l.unsent[:0]
}
