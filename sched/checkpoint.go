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

// The store is an incremental checkpoint of the state. The loop marks what a
// record changed; every so often, or when a list wants to be read, it captures
// the marked rows together with the sequence of the last record, and a writer
// commits them once that record is durable. A run that begins and ends between
// two captures never touches a row: it goes straight to the history.

type jobKey struct{ app, name string }

type checkpoints struct {
	jobs     []*job.Job // whose definition changed; each once: those with the mark isChanged
	plans    []*job.Job // whose stats have to be in the store with the next capture: those with the mark isMoved
	deferred deferredStats
	pieces   int        // see statsPieces
	runs     []*job.Run // each once: those with the mark isDirty
	bundle   bundle
	minutes  map[*app]map[int64]struct{}
	modules  []*apiv1.Module
	// calendars that were changed; nil: deleted.
	calendars map[jobKey]*apiv1.Calendar
	settings  []*apiv1.App
	// small are small rows by their key, encoded when they are captured; nil: deleted.
	small   map[string]func() proto.Message
	rows    map[string]*job.Row // by key: what handlers keep
	dropped []*job.Row          // rows that go one capture later: see row
	keys    map[*app]*keyRoom
	// ends are the runs that have ended since the last capture, writing those of
	// the capture that the writer has.
	ends, writing finished
	remembered    []keyChunk // idempotency keys in the store, oldest first

	// What the captures before were made of, to be used again: what a capture takes
	// is as much as all else that a run takes, and it would be garbage at once.
	spare    store.Batch
	keyRooms [][]byte
	// bundleRooms are what rows of bundles were written to.
	bundleRooms [][]byte
	roomy       bool // there is such a thing

	work    chan *capture // to the writer
	busy    bool          // the writer has one
	late    bool          // it has nothing but stats that are written late
	full    bool          // the last commit found the disk full
	last    time.Time     // of the last capture
	large   bool          // the last capture had many rows
	applied uint64        // the store includes the records up to here
	length  int64         // of the history
	keysEnd int64         // length of the store's log of idempotency keys
	wanted  []barrier     // readers that wait for the store
}

// finished are runs that have ended and are not in the history yet. Its rows are
// read by the loop and the writer alone, so that their rooms can be used again; the
// other rows of a capture are written there, too.
type finished struct {
	runs  []ended
	rows  map[job.RunID]int // place in runs, of the first ones: whoever looks for one adds the others
	room  []byte            // where the next rows go; the last one of used
	used  [][]byte          // rooms with rows in them
	spare [][]byte          // rooms without

	common [8]common // of the latest runs that began a part which others may share
	next   int       // place there of the next one
}

// common is the part of a row that other runs may share, and a run that has it.
type common struct {
	run  *job.Run
	part []byte
}

func newFinished() finished { return finished{rows: map[job.RunID]int{}} }

// ended is a run with its row, which is shared and then own.
type ended struct {
	run         *job.Run
	shared, own []byte
}

// rowRoom is how much is made at once for the rows of ended runs, bytes.
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

// shared returns the part of a row that others share, which is written once for many.
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

// appender is what has a row of the store that is written by hand.
type appender interface {
	AppendRow(b []byte) ([]byte, error)
}

// statsOf is a job as what has a row of its stats.
type statsOf struct{ *job.Job }

func (s statsOf) AppendRow(b []byte) ([]byte, error) { return s.AppendStats(b) }

// sharedOf and ownOf are a run as what has a part of a row.
type (
	sharedOf struct{ *job.Run }
	ownOf    struct{ *job.Run }
)

func (r sharedOf) AppendRow(b []byte) ([]byte, error) { return r.AppendShared(b), nil }
func (r ownOf) AppendRow(b []byte) ([]byte, error)    { return r.AppendOwn(b) }

// write returns a row, which stays until all is forgotten.
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
	if cap(b) == cap(f.room) { // else it had no room and was moved
		f.room = b
	}
	return b[from:len(b):len(b)], nil
}

func (f *finished) row(app string, id job.RunID) []byte {
	for i := len(f.rows); i < len(f.runs); i++ {
		f.rows[f.runs[i].run.ID] = i
	}
	if i, ok := f.rows[id]; ok && f.runs[i].run.App == app {
		return slices.Concat(f.runs[i].shared, f.runs[i].own)
	}
	return nil
}

// forget empties it; its rows must not be read any more. It keeps as many rooms as
// it took.
func (f *finished) forget() {
	clear(f.runs)
	f.runs, f.room = f.runs[:0], nil
	clear(f.common[:])
	clear(f.rows)
	f.spare, f.used = f.used, emptied(f.spare)
}

// barrier is a reader who waits until the store includes a record.
type barrier struct {
	seq   uint64
	ready chan struct{}
}

// fetchAtOnce is how many jobs or runs are fetched together: as many as the cache next to the
// processor has room for, with what is written meanwhile.
const fetchAtOnce = 32

type capture struct {
	batch   *store.Batch
	ended   []ended  // what is to be in batch.Finished. They do not change any more
	bundled [][]byte // rows of batch.Rows that are the bundle
}

// write commits the capture. It is not the loop that calls it, but for the last one.
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

// reset begins a new capture, but for the ends.
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

// emptied keeps the room of a list, unless there was much in it once.
func emptied[T any](list []T) []T {
	if cap(list) > 1<<16 {
		return nil
	}
	clear(list)
	return list[:0]
}

// unwritten counts the runs that have ended and are not in the history yet.
func (c *checkpoints) unwritten() int { return len(c.ends.runs) + len(c.writing.runs) }

// recent returns the row of a run that has ended and may not be in the history
// yet; nil when there is none.
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
	isCounted             // it is in a group of deferredStats, and its stats were not written since
	hasStats              // the store has a row of its stats
	isSeen                // this sweep of the wheel has found a timer of it that holds
)

// job notes that a definition has to be written, or removed. One whose stats
// have a row needs a new one of these, too: it says what is planned next.
func (c *checkpoints) job(j *job.Job) {
	if j.Mark&isChanged == 0 {
		j.Mark |= isChanged
		c.jobs = append(c.jobs, j)
	}
	if j.Mark&hasStats != 0 {
		c.moved(j)
	}
}

// moved notes that the stats of a job have to be written.
func (c *checkpoints) moved(j *job.Job) {
	if j.Mark&isMoved == 0 {
		j.Mark |= isMoved
		c.plans = append(c.plans, j)
	}
}

// planned notes that what is planned next has to be written, which a definition
// that is written anyway says as well.
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
	isStored                      // the store has a row of it as a live run, which needs a delete
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

// fresh reports whether there is something that has to be written soon.
func (c *checkpoints) fresh() bool {
	return len(c.jobs)+len(c.plans)+len(c.runs)+len(c.modules)+len(c.keys)+len(c.minutes)+len(c.calendars)+len(c.settings)+len(c.rows)+len(c.small)+len(c.dropped) > 0
}

// wait returns when the next capture is due, or what captures were made of is let go.
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

// keepRooms is for how long after a capture there is room for the next.
const keepRooms = 3 * time.Second

// rests reports whether there is room for captures, and nothing to capture.
func (c *checkpoints) rests() bool {
	return c.roomy && !c.busy && !c.dirty() && c.unwritten() == 0
}

// relax lets go of the room for the next capture, if there was none for long.
func (c *checkpoints) relax(now time.Time) {
	if !c.rests() || now.Sub(c.last) < keepRooms {
		return
	}
	c.roomy, c.spare, c.keyRooms, c.bundleRooms = false, store.Batch{}, nil, nil
	c.jobs, c.plans, c.runs, c.bundle.runs = nil, nil, nil, nil
	c.ends, c.writing = newFinished(), newFinished()
}

// distance is the time between two captures. Under load it is longer: most runs
// then begin and end between two of them, and never become a row. Of stats alone
// there are many small ones: who asks the loop for something waits for one at most.
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

// statsPieces is into how many pieces the stats are cut that are written late in
// the time between two captures, when there is nothing else to write. Beside other
// rows a capture takes some pieces at once, so that they do not wait for ever.
const statsPieces = 40

// soonRuns is how many ended runs are captured without waiting for the distance:
// far below what makes the server refuse new ones, and enough that few are live then:
// those are written, and removed again by the next capture.
const soonRuns = maxUnwritten / 4

// manyEnded reports whether enough runs have ended to write them without further delay.
func (c *checkpoints) manyEnded() bool {
	n := len(c.ends.runs)
	return n >= 2*soonRuns || n >= soonRuns && !c.manyLive()
}

// manyLive reports whether a capture would write very many runs as live ones, as
// when they are due at once. Most will have ended in a moment, and would have to be
// removed again: it is worth to wait for that.
func (c *checkpoints) manyLive() bool { return len(c.runs)-len(c.ends.runs) > 2*manyRows }

// manyRows makes a capture large.
const manyRows = 4096

// checkpoint captures when it is time to.
func (l *loop) checkpoint() {
	v := &l.view
	if !v.fresh() && (!v.busy || v.late) {
		v.arrive(l.lastSeq) // nobody waits for stats that are written late
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
	// The store must never be ahead of the journal: commit when the last record
	// of the capture is durable.
	_, err = l.cfg.Journal.Append(nil, func(err error) {
		if err != nil {
			l.post(func(l *loop) { l.committed(c, fmt.Errorf("write the journal: %w", err)) })
			return
		}
		v.work <- c // has room: one capture at a time
	})
	if err != nil {
		l.fail(fmt.Errorf("flush the journal: %w", err))
	}
}

func (l *loop) capture() (*capture, error) {
	v := &l.view
	since := l.now.Sub(v.last)
	v.last, v.large = l.now, len(v.runs)+len(v.ends.runs) > manyRows
	late := l.cfg.StatsBatch / v.pieces // stats that are written
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
		} else if now := j.Slot().Jobs.Get(j.Name()); now != nil { // created again, which is a change of its own
			if j.Mark&hasStats != 0 {
				v.moved(now) // in place of what is there
			}
			continue
		} else if j.Mark&hasStats != 0 {
			c.batch.Stats = append(c.batch.Stats, row)
		}
		c.batch.Jobs = append(c.batch.Jobs, row)
	}
	c.batch.Stats = slices.Grow(c.batch.Stats, len(v.plans))
	for near := range slices.Chunk(v.plans, fetchAtOnce) {
		job.Fetch(near)
		for _, j := range near {
			if j.Mark &^= isMoved; j.Current() {
				stats(j)
			}
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
	v.ends, v.writing = v.writing, v.ends // the writer has forgotten those before
	for a, minutes := range v.minutes {
		c.batch.Rows = append(c.batch.Rows, store.Row{Key: countRow(a.name), Value: marshal(&a.count)})
		for at := range minutes {
			if m := a.minutes[at]; m != nil {
				c.batch.Rows = append(c.batch.Rows, store.Row{Key: minuteRow(a.name, at), Value: marshal(m)})
			}
		}
		for at := range a.minutes { // the hour before is not shown any more
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

// writeCheckpoints commits captures until the loop has ended.
func (l *loop) writeCheckpoints() error {
	for {
		select {
		case c := <-l.view.work:
			if err := l.commit(c); err != nil {
				return err
			}
		case <-l.done:
			return nil // the journal has what is not committed
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
	l.view.arrive(^uint64(0)) // readers get what there is
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

// measure notes how long the logs of the store are, between two commits.
func (c *checkpoints) measure(s *store.Store) {
	c.length, c.keysEnd = s.HistoryLength(), s.KeysLength()
}

// reuse keeps what a capture was made of, once it is written.
func (c *checkpoints) reuse(done *capture) {
	c.roomy = true
	b := done.batch
	c.spare = store.Batch{
		Jobs: emptied(b.Jobs), Stats: emptied(b.Stats), Runs: emptied(b.Runs), Modules: emptied(b.Modules),
		Rows: emptied(b.Rows), Finished: emptied(b.Finished),
	}
	c.keyRooms = c.keyRooms[:0]
	for _, k := range b.Keys {
		if len(k.Value) >= cap(k.Value)/4 { // else there was much in it once
			c.keyRooms = append(c.keyRooms, k.Value[:0])
		}
	}
	c.spare.Keys = emptied(b.Keys)
	c.bundleRooms = c.bundleRooms[:0]
	for _, room := range done.bundled {
		if cap(room) <= 4*bundleBytes { // else one run had much to say
			c.bundleRooms = append(c.bundleRooms, room[:0])
		}
	}
}

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

// caughtUp waits until the store includes everything that was decided before
// the call. On a full disk it returns at once: the reader sees what there is.
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

// lastCheckpoint commits what is left when the loop ends.
func (l *loop) lastCheckpoint() error {
	for l.drainInternal(); l.view.busy; l.drainInternal() { // the writer still has one
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
