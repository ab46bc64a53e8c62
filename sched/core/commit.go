package core

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/access"
	"github.com/wheelworkhq/wheelwork/access/audit"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/pool"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/journal"
	"github.com/wheelworkhq/wheelwork/sched/projection"
)

// stageBytes is the size, in bytes, at which a turn gives its batch to the journal before
// it has handled all of its input.
const stageBytes = 1 << 20

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
func (co *committer) open() {
	co.stageNumber++
	co.stage = stages.Get()
	co.stage.number = co.stageNumber
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
func (co *committer) buffer() []byte {
	n := len(co.bodies)
	if n == 0 {
		return make([]byte, 0, 256)
	}
	b := co.bodies[n-1]
	co.bodies = co.bodies[:n-1]
	return b
}

// handed takes back the buffers of records that the journal has copied.
func (co *committer) handed(recs []journal.Record) {
	for i := range recs {
		if b := recs[i].Body; cap(b) <= maxSpareBody && len(co.bodies) < maxSpareBodies {
			co.bodies = append(co.bodies, b[:0])
		}
	}
	clear(recs)
}

// record adds rec to the batch of this turn and applies it to the state of its slot at
// once. The effects of rec happen when the batch is durable, see release.
func (co *committer) record(s *job.Slot, rec *apiv1.Record) {
	rec.AtMs = co.l.clock.nowMs
	co.l.Catalog.pin(s, rec)
	changes := revises(rec)
	if changes {
		s.NumberRevision(rec)
	}
	body, err := job.AppendRecord(co.buffer(), rec)
	if err != nil {
		co.fail(fmt.Errorf("encode record: %w", err))
		return
	}
	if changes {
		body = append(body, co.attribution()...)
		rec.Attribution = co.byShort
	}
	ownerOf(s).tails[s.Index] = tail{}
	co.append(s, body)
	from := len(co.stage.fx)
	co.stage.fx = s.Apply(rec, co.stage.fx)
	co.l.account(co.stage.fx[from:])
	revisions := s.TakeRevisions()
	co.l.View.Revised(s.App, revisions)
	if changes {
		co.l.Audit.revised(co.by, s.App, revisions)
	} else {
		co.l.Audit.recorded(s.App, rec)
	}
}

// unnamedSlot is the slot of the records of no app: those of the access state, and audit events.
var unnamedSlot = journal.Slot{}

// isUnnamed reports whether a record is of no app.
func isUnnamed(slot journal.Slot) bool { return slot.App == "" }

// recordUnnamed adds a record of the access state, or one with audit events, to the batch of this
// turn.
func (co *committer) recordUnnamed(rec *apiv1.Record) {
	rec.AtMs = co.l.clock.nowMs
	body, err := job.AppendRecord(co.buffer(), rec)
	if err != nil {
		co.fail(fmt.Errorf("encode record: %w", err))
		return
	}
	co.stage.recs = append(co.stage.recs, journal.Record{Slot: unnamedSlot, Body: body})
	co.stage.bytes += len(body)
}

// ChangeAccess records changes of the access state that decide makes. They hold when they are durable.
func (l *Loop) ChangeAccess(decide func(*access.State) ([]access.Change, error)) error {
	if err := l.commits.refuse(); err != nil {
		return err
	}
	changes, err := decide(l.Access.State)
	if err != nil {
		return err
	}
	for _, c := range changes {
		rec := c.Record()
		l.commits.recordUnnamed(rec)
		l.Audit.recorded("", rec)
		l.Access.apply(c)
	}
	l.commits.onDurable(func(err error) {
		if err == nil {
			l.Access.publish()
		}
	})
	return nil
}

// Note adds an audit event about something that no record of the journal describes. If the disk is
// full, it goes to the log of the server instead.
func (l *Loop) Note(by *apiv1.Attribution, e audit.Row) {
	if l.commits.cramped() {
		l.cfg.Logger.Error("the disk is full: an audit event is lost", "code", e.Code, "actor", by.GetAuthor(), "app", e.App, "object", e.Object)
		return
	}
	l.Audit.add(by, e)
}

// attribution returns the field of a record with the attribution of the current call, without what
// the audit event says of the caller. It is
// encoded once for consecutive changes of one caller, because it would be a third of the time
// in which a changed job is encoded.
func (co *committer) attribution() []byte {
	if co.byField == nil || co.byOf != co.by {
		co.byOf = co.by
		co.byShort = &apiv1.Attribution{Author: co.by.GetAuthor(), Cause: co.by.GetCause(), Note: co.by.GetNote(), Rollback: co.by.GetRollback()}
		co.byField = job.AppendAttribution(nil, co.byShort)
	}
	return co.byField
}

func (co *committer) append(s *job.Slot, body []byte) {
	co.stage.recs = append(co.stage.recs, journal.Record{Slot: journal.Slot{App: s.App, Index: s.Index}, Body: body})
	co.stage.bytes += len(body)
}

// maxTail is the size, in bytes, at which an open record of accepted runs takes no more.
const maxTail = 64 << 10

// accept is record for an accepted run. Consecutive accepted runs of a slot share a
// record, because there may be 100 000 a second.
func (co *committer) accept(j *job.Job, acc *apiv1.Accepted) {
	s := j.Slot()
	t := &ownerOf(s).tails[s.Index]
	if t.stage != co.stage.number || len(co.stage.recs[t.rec].Body) >= maxTail {
		*t = tail{co.stage.number, len(co.stage.recs)}
		co.append(s, job.BeginAccepts(co.buffer(), co.l.clock.nowMs))
	}
	co.l.Catalog.pinAccepted(s, acc)
	rec := &co.stage.recs[t.rec]
	before := len(rec.Body)
	body, err := job.AppendAccept(rec.Body, acc)
	if err != nil {
		co.fail(fmt.Errorf("encode record: %w", err))
		return
	}
	rec.Body = body
	co.stage.bytes += len(body) - before
	if acc.Trigger != "" {
		co.l.Audit.accepted(j, acc)
	}
	from := len(co.stage.fx)
	co.stage.fx = s.Accept(j, acc, co.l.clock.nowMs, co.stage.fx)
	co.l.account(co.stage.fx[from:])
}

// onDurable calls fn on the loop when all records so far are durable, or with the error
// because of which they never will be.
func (co *committer) onDurable(fn func(error)) {
	co.stage.acks = append(co.stage.acks, fn)
}

// submit gives the batch of this turn to the journal and begins the next one. The answers
// of a batch without records wait for the last batch in flight.
func (co *committer) submit() {
	co.l.workflows.follow()
	co.l.Alerts.follow()
	co.l.Audit.close()
	s := co.stage
	if len(s.recs) == 0 {
		if len(s.acks) == 0 {
			return
		}
		co.open()
		if n := len(co.inflight); n > 0 { // they rest on records in flight
			co.inflight[n-1].acks = append(co.inflight[n-1].acks, s.acks...)
		} else {
			for _, ack := range s.acks {
				ack(co.failure)
			}
		}
		s.recycle()
		return
	}
	co.open()
	co.inflight = append(co.inflight, s)
	if co.failure != nil { // a record of the batch may be missing: a change must not be durable without its event
		co.release(s)
		return
	}
	last, err := co.l.cfg.Journal.Append(s.recs, func(err error) { co.l.Mail.written(s, err) })
	if err != nil {
		// The disk is not full, because refuse and cramped check for room before a record
		// is made: the journal has failed, and the state is ahead of it.
		co.fail(fmt.Errorf("append to the journal: %w", err))
		co.release(s)
		return
	}
	co.lastSeq = last
	co.handed(s.recs)
	s.recs = s.recs[:0]
}

// submitLazy gives the records of this turn to the journal, which may write them up to a
// tenth of a second later. No caller waits for them, and their effects have happened.
func (co *committer) submitLazy() {
	s := co.stage
	if len(s.recs) == 0 {
		return
	}
	if co.failure != nil { // see submit
		s.recs, s.bytes = s.recs[:0], 0
		return
	}
	last, err := co.l.cfg.Journal.AppendLazy(s.recs)
	co.handed(s.recs)
	s.recs, s.bytes = s.recs[:0], 0
	if err != nil {
		co.fail(err)
		return
	}
	co.lastSeq = last
}

// release performs the effects of a durable batch and queues its answers. If the batch
// has failed, the server ends and the answers are the error.
func (co *committer) release(s *stage) {
	if s.err != nil {
		co.fail(fmt.Errorf("write the journal: %w", s.err))
	}
	co.inflight = slices.DeleteFunc(co.inflight, func(x *stage) bool { return x == s })
	co.owed = append(co.owed, s.acks...)
	if co.failure == nil {
		for fx := range job.EachEffect(s.fx) {
			co.l.perform(fx)
		}
	}
	s.recycle()
}

// answerAtEnd calls fn at the end of the turn, like the answers of durable batches.
func (co *committer) answerAtEnd(fn func(error)) { co.owed = append(co.owed, fn) }

// answerDurable answers the calls whose records are durable. It comes after the dispatch,
// because waking a goroutine takes longer than queueing a task, and callers do not notice
// the difference. flush, which wakes the senders of tasks, comes after it, because the
// runtime schedules the last readied goroutine first.
func (co *committer) answerDurable() {
	for _, ack := range co.owed {
		ack(co.failure)
	}
	clear(co.owed)
	co.owed = co.owed[:0]
}

const (
	// growthRoom is the free space of the journal, in bytes, below which the loop accepts
	// nothing new. endRoom is the free space below which it does not even record the end
	// of a run. Between the two, the runs that were accepted can still end.
	growthRoom = 8 << 20
	endRoom    = 4 << 20
)

// releaseWritten releases the batches that have become durable or have failed.
func (co *committer) releaseWritten() {
	for _, s := range co.l.Mail.takeWritten() {
		co.release(s)
	}
}

// fail makes the server end. Only the first error counts, and it is final.
func (co *committer) fail(err error) {
	if co.failure == nil {
		co.failure = status.Error(codes.Unavailable, err.Error())
		co.l.cfg.Logger.Error("the server stops: the journal failed", "error", err)
	}
}

// refuse returns the reason why the server accepts nothing new now; nil: it does.
func (co *committer) refuse() error {
	if r, ok := co.l.cfg.Journal.(journal.Refuser); ok && co.failure == nil {
		switch err := r.Refuses(); {
		case errors.Is(err, journal.ErrFull):
			return status.Error(codes.ResourceExhausted, err.Error())
		case err != nil:
			return status.Error(codes.Unavailable, err.Error())
		}
	}
	switch {
	case co.failure != nil:
		return co.failure
	case co.l.cfg.Journal.Room()-int64(co.stage.bytes) < growthRoom || co.l.View.Full():
		return errFull
	case co.l.View.Unwritten() > projection.MaxUnwritten:
		return status.Error(codes.ResourceExhausted, "the server's disk does not keep up: try again in a moment")
	}
	return nil
}

// cramped reports whether the journal has so little room that not even accepted runs can
// go on. Before a function writes a record it calls cramped or refuse, because an append
// that finds no room ends the server.
func (co *committer) cramped() bool {
	return co.l.cfg.Journal.Room()-int64(co.stage.bytes) < endRoom
}

// refuseChange returns the reason why no record at all can be written now; nil: one can.
func (co *committer) refuseChange() error {
	if co.failure == nil && co.cramped() {
		return errFull
	}
	return co.failure
}

var errFull = status.Error(codes.ResourceExhausted, "the server's disk is full: free space on it, or move its data directory to a larger one; nothing that was accepted is lost")
