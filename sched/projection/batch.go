package projection

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/store"
)

// Batch is one projection batch.
type Batch struct {
	batch   *store.Batch
	ended   []ended  // for batch.Finished. These runs no longer change
	bundled [][]byte // the packed rows in batch.Rows
}

// write commits the batch. The writer calls it; the loop does so only for the last batch.
func (c *Batch) write(s *store.Store) error {
	b := c.batch
	b.Finished = slices.Grow(b.Finished[:0], len(c.ended))
	for _, e := range c.ended {
		r := e.run
		b.Finished = append(b.Finished, store.Finished{
			App: r.App, Job: r.Job, Host: r.Host, State: string(r.State), ID: r.ID,
			PlannedMs: r.PlannedMs, FinishedMs: r.FinishedMs, Shared: e.shared, Value: e.own,
		})
	}
	return s.Commit(b)
}

// batch makes a batch of all changes since the last one. applied is the sequence of the
// last record that they are of.
func (v *View) batch(now time.Time, applied uint64) (*Batch, error) {
	since := now.Sub(v.writer.last)
	v.writer.last, v.writer.large = now, len(v.runs)+len(v.ends.runs) > manyRows
	late := v.cfg.StatsBatch / v.pieces // deferred statistics to write
	switch {
	case v.writer.large:
		late = min(v.cfg.StatsBatch, v.deferred.overdue(v.lengths.history, since))
	case v.fresh():
		late = v.cfg.StatsBatch / max(v.pieces/4, 1)
	}
	nowMs, batch := now.UnixMilli(), v.spare
	v.spare, batch.Applied = store.Batch{}, applied
	batch.Revisions, v.revisions = v.revisions, batch.Revisions
	batch.Audit, v.audit = v.audit, nil
	batch.Removals = v.removals
	c := &Batch{batch: &batch}
	var err error
	marshal := func(m proto.Message) []byte {
		b, e := proto.Marshal(m)
		err = errors.Join(err, e)
		return b
	}
	stats := func(j *job.Job) {
		b, e := v.ends.write(statsOf{j})
		err = errors.Join(err, e)
		c.batch.Stats = append(c.batch.Stats, store.JobRow{App: j.Slot().App, Name: j.Name(), Value: b})
		j.Mark |= hasStats
		j.Mark &^= isCounted
	}
	for _, j := range v.jobs {
		j.Mark &^= isChanged
		row := store.JobRow{App: j.Slot().App, Name: j.Name()}
		if j.Current() {
			b, e := v.ends.write(j)
			err = errors.Join(err, e)
			row.Value = b
		} else if now := j.Slot().Jobs.Get(j.Name()); now != nil { // created again: v.jobs has the new job too
			if j.Mark&hasStats != 0 {
				v.JobMoved(now) // its stats replace those of the deleted job
			}
			continue
		} else if j.Mark&hasStats != 0 {
			c.batch.Stats = append(c.batch.Stats, row)
		}
		c.batch.Jobs = append(c.batch.Jobs, row)
	}
	c.batch.Stats = slices.Grow(c.batch.Stats, len(v.plans))
	for _, j := range job.EachJob(v.plans) {
		if j.Mark &^= isMoved; j.Current() {
			stats(j)
		}
	}
	err = errors.Join(err, v.addRuns(c))
	for _, m := range v.modules {
		row := store.ModuleRow{App: m.App, Name: m.Name, Version: m.Version}
		if !m.deleted {
			row.Value = marshal(m.Module)
		}
		c.batch.Modules = append(c.batch.Modules, row)
	}
	for _, a := range v.settings {
		v.retain(a)
		c.batch.Rows = append(c.batch.Rows, store.Row{Key: settingsRow(a.Name), Value: marshal(a)})
	}
	for key, value := range v.small {
		row := store.Row{Key: key}
		if m := value(); m != nil {
			row.Value = marshal(m)
		}
		c.batch.Rows = append(c.batch.Rows, row)
	}
	for k, m := range v.calendars {
		row := store.Row{Key: calendarRow(k)}
		if m != nil {
			row.Value = marshal(m)
		}
		c.batch.Rows = append(c.batch.Rows, row)
	}
	c.batch.Rows = append(c.batch.Rows, v.guestRows(marshal)...)
	if from := v.deferred.write(late, stats); from != v.deferred.from {
		v.deferred.from = from
		c.batch.Rows = append(c.batch.Rows, store.Row{Key: statsStartRow, Value: binary.AppendUvarint(nil, uint64(from))})
	}
	batch.Settled = v.deferred.from
	v.deferred.begin(v.lengths.history)
	c.ended = v.ends.runs
	v.ends, v.writing = v.writing, v.ends // v.writing is empty: the last batch was committed
	for a, minutes := range v.minutes {
		c.batch.Rows = append(c.batch.Rows, store.Row{Key: countRow(a.Name), Value: marshal(&a.Count)})
		for at := range minutes {
			if m := a.minutes[at]; m != nil {
				c.batch.Rows = append(c.batch.Rows, store.Row{Key: minuteRow(a.Name, at), Value: marshal(m)})
			}
		}
		for at := range a.minutes { // older minutes are not shown
			if at < MinuteOf(nowMs)-65 {
				delete(a.minutes, at)
				c.batch.Rows = append(c.batch.Rows, store.Row{Key: minuteRow(a.Name, at)})
			}
		}
		a.minuteAt, a.minuteRow = 0, nil
	}
	for a, k := range v.keys {
		c.batch.Keys = append(c.batch.Keys, store.Keys{App: a.Name, Value: k.bytes})
		v.stored = append(v.stored, k.chunk(a, v.lengths.keys))
	}
	for len(v.stored) > 1 && v.stored[0].over(nowMs) {
		v.stored = v.stored[1:]
		c.batch.Forgotten = v.stored[0].at
	}
	v.reset()
	return c, err
}
