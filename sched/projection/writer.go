package projection

import (
	"errors"
	"time"

	"github.com/wheelworkhq/wheelwork/store"
)

// barrier is a reader that waits until the store includes a record.
type barrier struct {
	seq   uint64
	ready chan struct{}
}

// Turn returns a batch if one is due, and serves the readers that wait for records that
// need no batch. applied is the sequence of the last record of the loop. The caller passes
// the batch to Write when that record is durable: the store must never be ahead of the
// journal.
func (v *View) Turn(now time.Time, applied uint64) (*Batch, error) {
	w := &v.writer
	if !v.fresh() && (!w.busy || w.late) {
		v.serve(applied) // readers do not wait for deferred statistics
	}
	early := len(v.wanted) > 0 || v.manyEnded() || len(v.revisions) >= keptRevisions
	v.relax(now)
	if w.busy || !v.Dirty() || (!early && now.Sub(w.last) < v.distance()) {
		return nil, nil
	}
	late := !v.fresh() && len(v.ends.runs) == 0
	b, err := v.batch(now, applied)
	if err != nil {
		return nil, err
	}
	w.busy, w.late = true, late
	return b, nil
}

// Write gives a batch to the writer. It does not block, and is safe for concurrent use with
// the loop.
func (v *View) Write(b *Batch) { v.writer.work <- b }

// fullRetry is the pause between two tries of a commit on a full disk.
const fullRetry = time.Second

// Run is the writer: it commits batches until done is closed, and returns an error if the
// store fails. It passes each outcome to report, which makes the loop call Committed or
// DiskFull.
func (v *View) Run(done <-chan struct{}, report func(func())) error {
	for {
		select {
		case b := <-v.writer.work:
			if err := v.commit(b, done, report); err != nil {
				return err
			}
		case <-done:
			return nil // the journal has the records of a batch that is not committed
		}
	}
}

func (v *View) commit(b *Batch, done <-chan struct{}, report func(func())) error {
	for {
		err := b.write(v.cfg.Store)
		if err == nil {
			report(func() { v.Committed(b) })
		}
		if !errors.Is(err, store.ErrFull) {
			return err
		}
		report(v.diskFull)
		select {
		case <-time.After(fullRetry):
		case <-done:
			return nil
		}
	}
}

// diskFull records that the last commit found the disk full.
func (v *View) diskFull() {
	if !v.writer.full {
		v.cfg.Logger.Error("the disk is full: nothing new is accepted until there is room")
	}
	v.writer.full = true
	v.serve(^uint64(0)) // readers get the older state of the store
}

// Committed records that the store includes a batch.
func (v *View) Committed(b *Batch) {
	w := &v.writer
	w.busy, w.full, w.applied = false, false, b.batch.Applied
	v.measure()
	v.writing.forget()
	v.reuse(b)
	v.serve(w.applied)
}

// Flush commits all changes at once, and bypasses the writer, which must be idle. applied
// is the sequence of the last record. That record must be durable.
func (v *View) Flush(now time.Time, applied uint64) error {
	if !v.Dirty() {
		return nil
	}
	b, err := v.batch(now, applied)
	if err != nil {
		return err
	}
	if err := b.write(v.cfg.Store); err != nil {
		return err
	}
	v.Committed(b)
	return nil
}

// Busy reports whether the writer has a batch, and Full whether its last commit found the
// disk full.
func (v *View) Busy() bool { return v.writer.busy }

// Full reports whether the last commit found the disk full.
func (v *View) Full() bool { return v.writer.full }

// Await returns a channel that is closed when the store includes a record. On a full disk
// it is closed at once, and the reader sees an older state.
func (v *View) Await(seq uint64) <-chan struct{} {
	ready := make(chan struct{})
	if v.writer.full {
		close(ready)
	} else {
		v.wanted = append(v.wanted, barrier{seq, ready})
	}
	return ready
}

// Wait returns the time until the next batch is due, or until relax releases memory. It
// returns false if neither is ahead, or while the writer has a batch.
func (v *View) Wait(now time.Time) (time.Duration, bool) {
	switch {
	case v.writer.busy:
		return 0, false
	case v.Dirty():
		return v.writer.last.Add(v.distance()).Sub(now), true
	case v.rests():
		return v.writer.last.Add(keepRooms).Sub(now), true
	}
	return 0, false
}

// keepRooms is how long the memory of a batch is retained for the next one.
const keepRooms = 3 * time.Second

// rests reports whether memory is retained for batches and there is nothing to write.
func (v *View) rests() bool {
	return v.roomy && !v.writer.busy && !v.Dirty() && v.Unwritten() == 0
}

// relax releases the memory that is retained for the next batch, if there was no batch for
// keepRooms.
func (v *View) relax(now time.Time) {
	if !v.rests() || now.Sub(v.writer.last) < keepRooms {
		return
	}
	v.roomy, v.spare, v.keyRooms, v.bundleRooms = false, store.Batch{}, nil, nil
	v.jobs, v.plans, v.runs, v.bundle.runs, v.revisions = nil, nil, nil, nil, nil
	v.ends, v.writing = newFinished(), newFinished()
}

// distance returns the time between two batches. Under load it is longer, so that most runs
// begin and end between two batches and never become a row. Deferred statistics alone are
// written in many small batches, because a call to the loop may have to wait for one.
func (v *View) distance() time.Duration {
	every := v.cfg.Every
	switch {
	case v.manyLive():
		return 20 * every
	case v.writer.large:
		return 10 * every
	case !v.fresh():
		return every / time.Duration(v.pieces)
	}
	return every
}

// MaxUnwritten is the number of runs that have ended and are not in the store yet, see
// [View.Unwritten], with which the loop must accept no further run.
const MaxUnwritten = 200_000

// statsPieces is the number of batches over which the deferred statistics of one
// Config.CheckpointEvery are spread if there is nothing else to write. A batch with other
// rows takes several such pieces at once, so that the statistics do not wait forever.
const statsPieces = 40

// soonRuns is the number of ended runs with which a batch does not wait for the distance.
// It is far below the number at which the server refuses new runs, and so large that few
// other runs are live at that moment: each of these costs a row that a later batch deletes.
const soonRuns = MaxUnwritten / 4

// manyEnded reports whether enough runs have ended to write them without further delay.
func (c *changes) manyEnded() bool {
	n := len(c.ends.runs)
	return n >= 2*soonRuns || n >= soonRuns && !c.manyLive()
}

// manyLive reports whether a batch would write very many live runs, for example because
// they were due at the same time. It is better to wait: most of them will have ended in a
// moment, and their rows would have to be deleted again.
func (c *changes) manyLive() bool { return len(c.runs)-len(c.ends.runs) > 2*manyRows }

// manyRows is the number of rows above which a batch is large.
const manyRows = 4096

// measure reads the lengths of the store's logs. It is called between two commits.
func (v *View) measure() {
	v.lengths = lengths{v.cfg.Store.HistoryLength(), v.cfg.Store.KeysLength()}
}

// reuse retains the memory of a batch that was committed.
func (v *View) reuse(done *Batch) {
	v.roomy = true
	b := done.batch
	v.spare = store.Batch{
		Jobs: emptied(b.Jobs), Stats: emptied(b.Stats), Runs: emptied(b.Runs), Modules: emptied(b.Modules),
		Rows: emptied(b.Rows), Finished: emptied(b.Finished), Revisions: emptiedRevisions(b.Revisions),
	}
	v.keyRooms = v.keyRooms[:0]
	for _, k := range b.Keys {
		if len(k.Value) >= cap(k.Value)/4 { // otherwise it is much larger than it has to be
			v.keyRooms = append(v.keyRooms, k.Value[:0])
		}
	}
	v.spare.Keys = emptied(b.Keys)
	v.bundleRooms = v.bundleRooms[:0]
	for _, room := range done.bundled {
		if cap(room) <= 4*bundleBytes { // otherwise one run was very large
			v.bundleRooms = append(v.bundleRooms, room[:0])
		}
	}
}

// serve wakes the readers that wait for a record up to seq.
func (v *View) serve(seq uint64) {
	rest := v.wanted[:0]
	for _, b := range v.wanted {
		if b.seq <= seq {
			close(b.ready)
		} else {
			rest = append(rest, b)
		}
	}
	v.wanted = rest
}
