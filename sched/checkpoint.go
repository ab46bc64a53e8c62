package sched

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/store"
)

// The store has a projection of the state (ADR 4). The loop marks what a record changes. At
// intervals, or when a list is read, it makes a projection batch (capture in the code) of
// the marked rows and the sequence of the last record. A writer commits the batch once that
// record is durable. A run that begins and ends between two batches never becomes a row: it
// goes straight to the history.

type jobKey struct{ app, name string }

// checkpoints has the changes for the next projection batch, and the state of the writer.
type checkpoints struct {
	jobs     []*job.Job // with a changed definition, each once: those with the mark isChanged
	plans    []*job.Job // whose stats are written in the next batch, each once: those with the mark isMoved
	deferred deferredStats
	pieces   int        // see statsPieces
	runs     []*job.Run // that have changed, each once: those with the mark isDirty
	bundle   bundle
	minutes  map[*app]map[int64]struct{}
	modules  []*apiv1.Module
	// calendars has the changed calendars; nil: deleted.
	calendars map[jobKey]*apiv1.Calendar
	settings  []*apiv1.App
	// small has the changed small rows by key. The functions are called when the batch is
	// made; a result of nil deletes the row.
	small   map[string]func() proto.Message
	rows    map[string]*job.Row // changed small rows of slots, by key
	dropped []*job.Row          // rows to delete in the next batch, one batch late: see guestRows
	keys    map[*app]*keyRoom
	// ends has the runs that have ended since the last batch, and writing those of the
	// batch that the writer has.
	ends, writing finished
	remembered    []keyChunk // idempotency keys in the store, oldest first

	// Memory of earlier batches, which later ones use again. A batch takes as much memory
	// as all other work for its runs, and would be garbage soon: 1 KB for each run of
	// e2e/batch100 of bench/sched.
	spare    store.Batch
	keyRooms [][]byte
	// bundleRooms has buffers for packed rows.
	bundleRooms [][]byte
	roomy       bool // there may be memory of earlier batches

	work    chan *capture // batches for the writer
	busy    bool          // the writer has a batch
	late    bool          // that batch has only deferred statistics
	full    bool          // the last commit found the disk full
	last    time.Time     // when the last batch was made
	large   bool          // the last batch had many rows
	applied uint64        // the store includes the records up to this sequence
	length  int64         // length of the history, in bytes
	keysEnd int64         // length of the store's log of idempotency keys, in bytes
	wanted  []barrier     // readers that wait for the store
}

// finished has runs that have ended and are not in the history yet. Only the loop and the
// writer read its rows, so their buffers can be used again. Other rows of a batch are
// written to the same buffers.
type finished struct {
	runs  []ended
	rows  map[job.RunID]int // index in runs, of the first len(rows) runs: row adds the others
	room  []byte            // buffer for the next rows: the last one of used
	used  [][]byte          // buffers with rows
	spare [][]byte          // buffers without rows

	common [8]common // the last eight shared parts that were written
	next   int       // number of shared parts that were written, which gives the index of the next one
}

// common is a part of a row that several runs share, and one of these runs.
type common struct {
	run  *job.Run
	part []byte
}

func newFinished() finished { return finished{rows: map[job.RunID]int{}} }

// ended is a run with its row, which is shared followed by own.
type ended struct {
	run         *job.Run
	shared, own []byte
}

// rowRoom is the size of a buffer for rows, in bytes.
const rowRoom = 256 << 10

func (f *finished) add(r *job.Run) error {
	shared, err := f.shared(r)
	if err != nil {
		return err
	}
	own, err := f.write(ownOf{r})
	if err != nil {
		return err
	}
	f.runs = append(f.runs, ended{r, shared, own})
	return nil
}

// shared returns the part of a row that other runs share. It is written once for many runs,
// so that a run takes 0.5 of the bytes of the history (history/bytes of bench/sched, ADR
// 30).
func (f *finished) shared(r *job.Run) ([]byte, error) {
	for i := range f.common {
		if c := &f.common[i]; c.run != nil && c.run.Shares(r) {
			return c.part, nil
		}
	}
	part, err := f.write(sharedOf{r})
	f.common[f.next%len(f.common)] = common{r, part}
	f.next++
	return part, err
}

// appender appends a row of the store that is encoded by hand (ADR 23).
type appender interface {
	AppendRow(b []byte) ([]byte, error)
}

// statsOf appends the row with the stats of a job.
type statsOf struct{ *job.Job }

func (s statsOf) AppendRow(b []byte) ([]byte, error) { return s.AppendStats(b) }

// sharedOf and ownOf append the two parts of the row of a run.
type (
	sharedOf struct{ *job.Run }
	ownOf    struct{ *job.Run }
)

func (r sharedOf) AppendRow(b []byte) ([]byte, error) { return r.AppendShared(b), nil }
func (r ownOf) AppendRow(b []byte) ([]byte, error)    { return r.AppendOwn(b) }

// write encodes a row. The result is valid until forget.
func (f *finished) write(r appender) ([]byte, error) {
	if cap(f.room)-len(f.room) < 1<<10 {
		f.room = nil
		if n := len(f.spare); n > 0 {
			f.room, f.spare = f.spare[n-1], f.spare[:n-1]
		} else {
			f.room = make([]byte, 0, rowRoom)
		}
		f.used = append(f.used, f.room)
	}
	from := len(f.room)
	b, err := r.AppendRow(f.room)
	if err != nil {
		return nil, err
	}
	if cap(b) == cap(f.room) { // otherwise the row did not fit and has an array of its own
		f.room = b
	}
	return b[from:len(b):len(b)], nil
}

// row returns the row of a run; nil: f does not have it.
func (f *finished) row(app string, id job.RunID) []byte {
	for i := len(f.rows); i < len(f.runs); i++ {
		f.rows[f.runs[i].run.ID] = i
	}
	if i, ok := f.rows[id]; ok && f.runs[i].run.App == app {
		return slices.Concat(f.runs[i].shared, f.runs[i].own)
	}
	return nil
}

// forget empties f, and its rows become invalid. It retains the buffers that had rows, and
// releases the others.
func (f *finished) forget() {
	clear(f.runs)
	f.runs, f.room = f.runs[:0], nil
	clear(f.common[:])
	clear(f.rows)
	f.spare, f.used = f.used, emptied(f.spare)
}

// barrier is a reader that waits until the store includes a record.
type barrier struct {
	seq   uint64
	ready chan struct{}
}

// capture is one projection batch.
type capture struct {
	batch   *store.Batch
	ended   []ended  // for batch.Finished. These runs no longer change
	bundled [][]byte // the packed rows in batch.Rows
}

// write commits the batch. The writer calls it; the loop does so only for the last batch.
func (c *capture) write(s *store.Store) error {
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

func (c *checkpoints) init(statsBatch int) {
	c.work = make(chan *capture, 1)
	c.ends, c.writing = newFinished(), newFinished()
	c.deferred.groups = make([]statsGroup, 1)
	c.pieces = min(statsPieces, statsBatch)
	c.reset()
}

// reset begins a new batch. It leaves the runs that have ended.
func (c *checkpoints) reset() {
	c.jobs, c.plans = emptied(c.jobs), emptied(c.plans)
	clear(c.runs)
	c.runs = c.runs[:0]
	for a := range c.minutes {
		a.marked = 0
	}
	c.minutes, c.keys = map[*app]map[int64]struct{}{}, map[*app]*keyRoom{}
	c.modules, c.calendars, c.settings, c.rows, c.small = nil, nil, nil, nil, nil
}

// emptied clears a list so that its memory can be used again. It returns nil if the list
// has room for more than 65,536 entries.
func emptied[T any](list []T) []T {
	if cap(list) > 1<<16 {
		return nil
	}
	clear(list)
	return list[:0]
}

// unwritten counts the runs that have ended and are not in the history yet.
func (c *checkpoints) unwritten() int { return len(c.ends.runs) + len(c.writing.runs) }

// recent returns the row of a run that has ended and may not be in the history yet; nil:
// there is none.
func (c *checkpoints) recent(app string, id job.RunID) []byte {
	if row := c.ends.row(app, id); row != nil {
		return row
	}
	return c.writing.row(app, id)
}

func (c *checkpoints) calendar(key jobKey, m *apiv1.Calendar) {
	if c.calendars == nil {
		c.calendars = map[jobKey]*apiv1.Calendar{}
	}
	c.calendars[key] = m
}

// The marks of jobs.
const (
	isChanged = 1 << iota // it is in checkpoints.jobs
	isMoved               // it is in checkpoints.plans
	isCounted             // it is in a group of deferredStats, and its stats have not been written since
	hasStats              // the store has a row of its stats
	isSeen                // the current sweep has found the timer that the job needs
)

// job adds a definition that has changed or was deleted to the next batch. If the store has
// a row with the job's stats, it adds that row too, because it has the next planned time.
func (c *checkpoints) job(j *job.Job) {
	if j.Mark&isChanged == 0 {
		j.Mark |= isChanged
		c.jobs = append(c.jobs, j)
	}
	if j.Mark&hasStats != 0 {
		c.moved(j)
	}
}

// moved adds the stats of a job to the next batch.
func (c *checkpoints) moved(j *job.Job) {
	if j.Mark&isMoved == 0 {
		j.Mark |= isMoved
		c.plans = append(c.plans, j)
	}
}

// planned adds the next planned time of a job to the next batch, unless its definition is
// already there, which has it too.
func (c *checkpoints) planned(j *job.Job) {
	if j.Mark&isChanged == 0 {
		c.moved(j)
	}
}

// counted adds a job to the deferred stats.
func (c *checkpoints) counted(j *job.Job) {
	if j.Mark&isCounted != 0 {
		return
	}
	j.Mark |= isCounted
	d := &c.deferred
	d.n++
	last := len(d.groups) - 1
	d.groups[last].jobs = append(d.groups[last].jobs, j)
}

// The marks of runs.
const (
	isDirty           = 1 << iota // it is in checkpoints.runs
	isStored                      // the store has a row of the live run, which must be deleted when the run ends
	isMaybeDispatched             // it was due when recovery began: see loop.recovering
	isRecalled                    // its host was asked to give it back
)

func (c *checkpoints) run(r *job.Run) {
	if r.Mark&isDirty == 0 {
		r.Mark |= isDirty
		c.runs = append(c.runs, r)
	}
}

func (c *checkpoints) app(a *app, atMs int64) {
	at := atMs / 60_000
	if a.marked == at {
		return
	}
	a.marked = at
	m := c.minutes[a]
	if m == nil {
		m = map[int64]struct{}{}
		c.minutes[a] = m
	}
	m[at] = struct{}{}
}

func (c *checkpoints) key(a *app, hash [16]byte, id job.RunID, atMs int64, input uint32) {
	k := c.keys[a]
	if k == nil {
		k = &keyRoom{}
		if n := len(c.keyRooms); n > 0 {
			k.bytes, c.keyRooms = c.keyRooms[n-1], c.keyRooms[:n-1]
		}
		c.keys[a] = k
	}
	k.bytes, k.atMs = job.AppendKey(k.bytes, hash, id, atMs, input), atMs
	k.slots |= 1 << id.Slot()
}

func (c *checkpoints) ended(r *job.Run) error { return c.ends.add(r) }

func (c *checkpoints) dirty() bool {
	return c.fresh() || c.deferred.n > 0 || c.bundle.rows > 0
}

// fresh reports whether there are changes that must be written soon: all but deferred
// statistics and the packed rows of the last batch.
func (c *checkpoints) fresh() bool {
	return len(c.jobs)+len(c.plans)+len(c.runs)+len(c.modules)+len(c.keys)+len(c.minutes)+len(c.calendars)+len(c.settings)+len(c.rows)+len(c.small)+len(c.dropped) > 0
}

// wait returns the time until the next batch is due, or until relax releases memory. It
// returns false if neither is ahead, or while the writer has a batch.
func (c *checkpoints) wait(now time.Time, every time.Duration) (time.Duration, bool) {
	switch {
	case c.busy:
		return 0, false
	case c.dirty():
		return c.last.Add(c.distance(every)).Sub(now), true
	case c.rests():
		return c.last.Add(keepRooms).Sub(now), true
	}
	return 0, false
}

// keepRooms is how long the memory of a batch is retained for the next one.
const keepRooms = 3 * time.Second

// rests reports whether memory is retained for batches and there is nothing to write.
func (c *checkpoints) rests() bool {
	return c.roomy && !c.busy && !c.dirty() && c.unwritten() == 0
}

// relax releases the memory that is retained for the next batch, if there was no batch for
// keepRooms.
func (c *checkpoints) relax(now time.Time) {
	if !c.rests() || now.Sub(c.last) < keepRooms {
		return
	}
	c.roomy, c.spare, c.keyRooms, c.bundleRooms = false, store.Batch{}, nil, nil
	c.jobs, c.plans, c.runs, c.bundle.runs = nil, nil, nil, nil
	c.ends, c.writing = newFinished(), newFinished()
}

// distance returns the time between two batches. Under load it is longer, so that most runs
// begin and end between two batches and never become a row. Deferred statistics alone are
// written in many small batches, because a call to the loop may have to wait for one.
func (c *checkpoints) distance(every time.Duration) time.Duration {
	switch {
	case c.manyLive():
		return 20 * every
	case c.large:
		return 10 * every
	case !c.fresh():
		return every / time.Duration(c.pieces)
	}
	return every
}

// statsPieces is the number of batches over which the deferred statistics of one
// Config.CheckpointEvery are spread if there is nothing else to write. A batch with other
// rows takes several such pieces at once, so that the statistics do not wait forever.
const statsPieces = 40

// soonRuns is the number of ended runs with which a batch does not wait for the distance.
// It is far below the number at which the server refuses new runs, and so large that few
// other runs are live at that moment: each of these costs a row that a later batch deletes.
const soonRuns = maxUnwritten / 4

// manyEnded reports whether enough runs have ended to write them without further delay.
func (c *checkpoints) manyEnded() bool {
	n := len(c.ends.runs)
	return n >= 2*soonRuns || n >= soonRuns && !c.manyLive()
}

// manyLive reports whether a batch would write very many live runs, for example because
// they were due at the same time. It is better to wait: most of them will have ended in a
// moment, and their rows would have to be deleted again.
func (c *checkpoints) manyLive() bool { return len(c.runs)-len(c.ends.runs) > 2*manyRows }

// manyRows is the number of rows above which a batch is large.
const manyRows = 4096

// checkpoint makes a projection batch if one is due, and hands it to the writer.
func (l *loop) checkpoint() {
	v := &l.view
	if !v.fresh() && (!v.busy || v.late) {
		v.arrive(l.lastSeq) // readers do not wait for deferred statistics
	}
	early := len(v.wanted) > 0 || v.manyEnded()
	v.relax(l.now)
	if v.busy || !v.dirty() || (!early && l.now.Sub(v.last) < v.distance(l.cfg.CheckpointEvery)) {
		return
	}
	late := !v.fresh() && len(v.ends.runs) == 0
	c, err := l.capture()
	if err != nil {
		l.fail(err)
		return
	}
	v.busy, v.late = true, late
	// The store must never be ahead of the journal: commit when the last record of the
	// batch is durable.
	_, err = l.cfg.Journal.Append(nil, func(err error) {
		if err != nil {
			l.post(func(l *loop) { l.committed(c, fmt.Errorf("write the journal: %w", err)) })
			return
		}
		v.work <- c // does not block: there is one batch at a time
	})
	if err != nil {
		l.fail(fmt.Errorf("flush the journal: %w", err))
	}
}

// capture makes a projection batch of all changes since the last one.
func (l *loop) capture() (*capture, error) {
	v := &l.view
	since := l.now.Sub(v.last)
	v.last, v.large = l.now, len(v.runs)+len(v.ends.runs) > manyRows
	late := l.cfg.StatsBatch / v.pieces // deferred statistics to write
	switch {
	case v.large:
		late = min(l.cfg.StatsBatch, v.deferred.overdue(v.length, since))
	case v.fresh():
		late = l.cfg.StatsBatch / max(v.pieces/4, 1)
	}
	batch := v.spare
	v.spare, batch.Applied = store.Batch{}, l.lastSeq
	c := &capture{batch: &batch}
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
				v.moved(now) // its stats replace those of the deleted job
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
	err = errors.Join(err, l.captureRuns(c))
	for _, m := range v.modules {
		c.batch.Modules = append(c.batch.Modules, store.ModuleRow{App: m.App, Name: m.Name, Version: m.Version, Value: marshal(m)})
	}
	for _, a := range v.settings {
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
	v.deferred.begin(v.length)
	c.ended = v.ends.runs
	v.ends, v.writing = v.writing, v.ends // v.writing is empty: the last batch was committed
	for a, minutes := range v.minutes {
		c.batch.Rows = append(c.batch.Rows, store.Row{Key: countRow(a.name), Value: marshal(&a.count)})
		for at := range minutes {
			if m := a.minutes[at]; m != nil {
				c.batch.Rows = append(c.batch.Rows, store.Row{Key: minuteRow(a.name, at), Value: marshal(m)})
			}
		}
		for at := range a.minutes { // older minutes are not shown
			if at < l.nowMs/60_000-65 {
				delete(a.minutes, at)
				c.batch.Rows = append(c.batch.Rows, store.Row{Key: minuteRow(a.name, at)})
			}
		}
		a.minuteAt, a.minuteRow = 0, nil
	}
	for a, k := range v.keys {
		c.batch.Keys = append(c.batch.Keys, store.Keys{App: a.name, Value: k.bytes})
		v.remembered = append(v.remembered, k.chunk(a, v.keysEnd))
	}
	for len(v.remembered) > 1 && v.remembered[0].over(l.nowMs) {
		v.remembered = v.remembered[1:]
		c.batch.Forgotten = v.remembered[0].at
	}
	v.reset()
	return c, err
}

// writeCheckpoints is the writer: it commits batches until the loop has ended.
func (l *loop) writeCheckpoints() error {
	for {
		select {
		case c := <-l.view.work:
			if err := l.commit(c); err != nil {
				return err
			}
		case <-l.done:
			return nil // the journal has the records of a batch that is not committed
		}
	}
}

// fullRetry is the pause between two tries of a commit on a full disk.
const fullRetry = time.Second

func (l *loop) commit(c *capture) error {
	for {
		err := c.write(l.cfg.Store)
		if !errors.Is(err, store.ErrFull) {
			if err != nil {
				err = fmt.Errorf("write the store: %w", err)
			}
			l.post(func(l *loop) { l.committed(c, err) })
			return err
		}
		l.post((*loop).storeFull)
		select {
		case <-time.After(fullRetry):
		case <-l.done:
			return nil
		}
	}
}

func (l *loop) storeFull() {
	if !l.view.full {
		l.cfg.Logger.Error("the disk is full: nothing new is accepted until there is room")
	}
	l.view.full = true
	l.view.arrive(^uint64(0)) // readers get the older state of the store
}

func (l *loop) committed(c *capture, err error) {
	v := &l.view
	v.busy, v.full = false, false
	if err != nil {
		l.fail(err)
		return
	}
	v.applied = c.batch.Applied
	v.measure(l.cfg.Store)
	v.writing.forget()
	v.reuse(c)
	v.arrive(v.applied)
}

// measure reads the lengths of the store's logs. It is called between two commits.
func (c *checkpoints) measure(s *store.Store) {
	c.length, c.keysEnd = s.HistoryLength(), s.KeysLength()
}

// reuse retains the memory of a batch that was committed.
func (c *checkpoints) reuse(done *capture) {
	c.roomy = true
	b := done.batch
	c.spare = store.Batch{
		Jobs: emptied(b.Jobs), Stats: emptied(b.Stats), Runs: emptied(b.Runs), Modules: emptied(b.Modules),
		Rows: emptied(b.Rows), Finished: emptied(b.Finished),
	}
	c.keyRooms = c.keyRooms[:0]
	for _, k := range b.Keys {
		if len(k.Value) >= cap(k.Value)/4 { // otherwise it is much larger than it has to be
			c.keyRooms = append(c.keyRooms, k.Value[:0])
		}
	}
	c.spare.Keys = emptied(b.Keys)
	c.bundleRooms = c.bundleRooms[:0]
	for _, room := range done.bundled {
		if cap(room) <= 4*bundleBytes { // otherwise one run was very large
			c.bundleRooms = append(c.bundleRooms, room[:0])
		}
	}
}

// arrive wakes the readers that wait for a record up to seq.
func (c *checkpoints) arrive(seq uint64) {
	rest := c.wanted[:0]
	for _, b := range c.wanted {
		if b.seq <= seq {
			close(b.ready)
		} else {
			rest = append(rest, b)
		}
	}
	c.wanted = rest
}

// caughtUp waits until the store includes all records that were decided before the call. On
// a full disk it returns at once, and the reader sees an older state.
func (l *loop) caughtUp(ctx context.Context) error {
	ready := make(chan struct{})
	if !l.do(func(l *loop) {
		if l.view.full {
			close(ready)
			return
		}
		l.submit()
		l.view.wanted = append(l.view.wanted, barrier{l.lastSeq, ready})
	}) {
		return errEnded
	}
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-l.done:
		return errEnded
	}
}

// lastCheckpoint commits the remaining changes when the loop ends.
func (l *loop) lastCheckpoint() error {
	for l.drainInternal(); l.view.busy; l.drainInternal() { // the writer still has a batch
		if l.view.full {
			return nil // the next start replays the journal
		}
		<-l.kick
	}
	if l.failure != nil {
		return l.failure
	}
	if !l.view.dirty() {
		return nil
	}
	c, err := l.capture()
	if err != nil {
		return err
	}
	durable := make(chan error, 1)
	if _, err := l.cfg.Journal.Append(nil, func(err error) { durable <- err }); err != nil {
		return err
	}
	if err := <-durable; err != nil {
		return err
	}
	if err := c.write(l.cfg.Store); err != nil && !errors.Is(err, store.ErrFull) {
		return fmt.Errorf("write the store: %w", err)
	}
	return nil
}
