package sched

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"
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

type runKey struct {
	app string
	id  job.RunID
}

type checkpoints struct {
	jobs    map[jobKey]struct{}
	runs    []*job.Run // each once: those with the mark isDirty
	minutes map[*app]map[int64]struct{}
	modules []*apiv1.Module
	// calendars that were changed; nil: deleted.
	calendars map[jobKey]*apiv1.Calendar
	settings  []*apiv1.App
	rows      map[string]*job.Row      // by key: what handlers keep
	dropped   []*job.Row               // rows that go one capture later: see row
	keys      map[string]*apiv1.KeyRow // by app
	ends      []*job.Run               // since the last capture
	// recent holds the runs that have ended and are not in the history yet.
	recent    map[runKey][]byte
	keyChunks []keyChunk // rows of idempotency keys in the store, oldest first
	chunkSeq  uint64

	work    chan *capture // to the writer
	busy    bool          // the writer has one
	full    bool          // the last commit found the disk full
	last    time.Time     // of the last capture
	large   bool          // the last capture had many rows
	applied uint64        // the store includes the records up to here
	wanted  []barrier     // readers that wait for the store
}

type keyChunk struct {
	row  string
	atMs int64 // of its youngest key
}

// barrier is a reader who waits until the store includes a record.
type barrier struct {
	seq   uint64
	ready chan struct{}
}

type capture struct {
	batch *store.Batch
	ends  []runKey
}

func (c *checkpoints) init() {
	c.work = make(chan *capture, 1)
	c.recent = map[runKey][]byte{}
	c.reset()
}

func (c *checkpoints) reset() {
	c.jobs = map[jobKey]struct{}{}
	clear(c.runs)
	c.runs = c.runs[:0]
	c.minutes, c.keys = map[*app]map[int64]struct{}{}, map[string]*apiv1.KeyRow{}
	c.modules, c.ends, c.calendars, c.settings, c.rows = nil, nil, nil, nil, nil
}

func (c *checkpoints) calendar(key jobKey, m *apiv1.Calendar) {
	if c.calendars == nil {
		c.calendars = map[jobKey]*apiv1.Calendar{}
	}
	c.calendars[key] = m
}

func (c *checkpoints) job(app, name string) { c.jobs[jobKey{app, name}] = struct{}{} }

// The marks of runs.
const (
	isDirty  = 1 << iota // it is in checkpoints.runs
	isStored             // the store has a row of it as a live run, which needs a delete
)

func (c *checkpoints) run(r *job.Run) {
	if r.Mark&isDirty == 0 {
		r.Mark |= isDirty
		c.runs = append(c.runs, r)
	}
}

func (c *checkpoints) app(a *app, atMs int64) {
	m := c.minutes[a]
	if m == nil {
		m = map[int64]struct{}{}
		c.minutes[a] = m
	}
	m[atMs/60_000] = struct{}{}
}

func (c *checkpoints) key(app string, hash [16]byte, id job.RunID, atMs int64) {
	k := c.keys[app]
	if k == nil {
		k = &apiv1.KeyRow{}
		c.keys[app] = k
	}
	k.Keys = append(k.Keys, &apiv1.KeyRow_Key{Hash: hash[:], Run: id[:], AtMs: atMs})
}

func (c *checkpoints) ended(r *job.Run, row []byte) {
	c.ends = append(c.ends, r)
	c.recent[runKey{r.App, r.ID}] = row
}

func (c *checkpoints) dirty() bool {
	return len(c.jobs)+len(c.runs)+len(c.modules)+len(c.keys)+len(c.minutes)+len(c.calendars)+len(c.settings)+len(c.rows)+len(c.dropped) > 0
}

// wait returns when the next capture is due.
func (c *checkpoints) wait(now time.Time, every time.Duration) (time.Duration, bool) {
	if c.busy || !c.dirty() {
		return 0, false
	}
	return c.last.Add(c.distance(every)).Sub(now), true
}

// distance is the time between two captures. Under load it is longer: most runs
// then begin and end between two of them, and never become a row.
func (c *checkpoints) distance(every time.Duration) time.Duration {
	if c.large {
		return 10 * every
	}
	return every
}

// manyRows makes a capture large.
const manyRows = 4096

// checkpoint captures when it is time to.
func (l *loop) checkpoint() {
	v := &l.view
	if !v.dirty() && !v.busy {
		v.arrive(l.lastSeq)
	}
	if v.busy || !v.dirty() || (len(v.wanted) == 0 && l.now.Sub(v.last) < v.distance(l.cfg.CheckpointEvery)) {
		return
	}
	c, err := l.capture()
	if err != nil {
		l.fail(err)
		return
	}
	v.busy = true
	// The store must never be ahead of the journal: commit when the last record
	// of the capture is durable.
	_, err = l.cfg.Journal.Append(nil, func(err error) {
		if err != nil {
			l.tell(func(l *loop) { l.committed(c, fmt.Errorf("write the journal: %w", err)) })
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
	v.last, v.large = l.now, len(v.runs)+len(v.ends) > manyRows
	c := &capture{batch: &store.Batch{Applied: l.lastSeq}}
	var err error
	marshal := func(m proto.Message) []byte {
		b, e := proto.Marshal(m)
		err = errors.Join(err, e)
		return b
	}
	rowOf := func(r *job.Run) []byte {
		b, e := r.RowBytes()
		err = errors.Join(err, e)
		return b
	}
	for k := range v.jobs {
		row := store.JobRow{App: k.app, Name: k.name}
		if j := l.job(k.app, k.name); j != nil {
			row.Value = marshal(j.Row())
		}
		c.batch.Jobs = append(c.batch.Jobs, row)
	}
	for _, r := range v.runs {
		r.Mark &^= isDirty
		if l.liveRun(r.App, r.ID) == r {
			c.batch.Runs = append(c.batch.Runs, store.RunRow{App: r.App, ID: r.ID, Value: rowOf(r)})
			r.Mark |= isStored
		} else if r.Mark&isStored != 0 {
			c.batch.Runs = append(c.batch.Runs, store.RunRow{App: r.App, ID: r.ID})
			r.Mark &^= isStored
		}
	}
	for _, m := range v.modules {
		c.batch.Modules = append(c.batch.Modules, store.ModuleRow{App: m.App, Name: m.Name, Version: m.Version, Value: marshal(m)})
	}
	for _, a := range v.settings {
		c.batch.Rows = append(c.batch.Rows, store.Row{Key: settingsRow(a.Name), Value: marshal(a)})
	}
	for k, m := range v.calendars {
		row := store.Row{Key: calendarRow(k)}
		if m != nil {
			row.Value = marshal(m)
		}
		c.batch.Rows = append(c.batch.Rows, row)
	}
	c.batch.Rows = append(c.batch.Rows, v.guestRows(marshal)...)
	for _, r := range v.ends {
		k := runKey{r.App, r.ID}
		c.ends = append(c.ends, k)
		c.batch.Finished = append(c.batch.Finished, store.Finished{
			App: r.App, Job: r.Job, Host: r.Host, State: string(r.State), ID: r.ID,
			PlannedMs: r.PlannedMs, FinishedMs: r.FinishedMs, Value: v.recent[k],
		})
	}
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
	}
	for app, k := range v.keys {
		v.chunkSeq++
		row := keysRow(app, v.chunkSeq)
		c.batch.Rows = append(c.batch.Rows, store.Row{Key: row, Value: marshal(k)})
		v.keyChunks = append(v.keyChunks, keyChunk{row, k.Keys[len(k.Keys)-1].AtMs})
	}
	for len(v.keyChunks) > 0 && l.nowMs-v.keyChunks[0].atMs > job.KeyWindow.Milliseconds() {
		c.batch.Rows = append(c.batch.Rows, store.Row{Key: v.keyChunks[0].row})
		v.keyChunks = v.keyChunks[1:]
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
		err := l.cfg.Store.Commit(c.batch)
		if !errors.Is(err, store.ErrFull) {
			if err != nil {
				err = fmt.Errorf("write the store: %w", err)
			}
			l.tell(func(l *loop) { l.committed(c, err) })
			return err
		}
		l.tell((*loop).storeFull)
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
	for _, k := range c.ends {
		delete(v.recent, k)
	}
	v.arrive(v.applied)
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
	for l.hearOwn(); l.view.busy; l.hearOwn() { // the writer still has one
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
	if err := l.cfg.Store.Commit(c.batch); err != nil && !errors.Is(err, store.ErrFull) {
		return fmt.Errorf("write the store: %w", err)
	}
	return nil
}

// snapshots takes one when it is time to and trims the journal behind it.
func (s *Server) snapshots(ctx context.Context) error {
	const look = 5 * time.Second
	last, size := time.Now(), s.cfg.Journal.Bytes()
	trimmed := s.cfg.Store.Applied()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.loop.done:
			return nil
		case <-tick.C:
		}
		grown := s.cfg.Journal.Bytes()-size >= s.cfg.SnapshotBytes
		aged := time.Since(last) >= s.cfg.SnapshotEvery && s.cfg.Store.Applied() != trimmed
		if !grown && !aged {
			continue
		}
		applied, err := s.cfg.Store.Snapshot(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, store.ErrFull):
			continue
		case err != nil:
			return fmt.Errorf("snapshot: %w", err)
		}
		if err := s.cfg.Journal.Trim(applied + 1); err != nil {
			return fmt.Errorf("trim the journal: %w", err)
		}
		last, size, trimmed = time.Now(), s.cfg.Journal.Bytes(), applied
		s.cfg.Logger.Debug("snapshot taken", "applied", applied, "journal_bytes", size)
	}
}

// The small rows of the store. Each has one function to build its key and one
// to read it.

func countRow(app string) string { return "count/" + app }

func minuteRow(app string, minute int64) string { return fmt.Sprintf("minute/%s/%012d", app, minute) }

func keysRow(app string, n uint64) string { return fmt.Sprintf("keys/%s/%016x", app, n) }

func settingsRow(app string) string { return "settings/" + app }

func calendarRow(k jobKey) string { return "calendar/" + k.app + "/" + k.name }

// parseRow splits the key of a small row.
func parseRow(key string) (kind, app, rest string, err error) {
	kind, rest, ok := strings.Cut(key, "/")
	if !ok {
		return "", "", "", fmt.Errorf("the store has a row %q that is none of ours", key)
	}
	app, rest, _ = strings.Cut(rest, "/")
	return kind, app, rest, nil
}

func (l *loop) loadRow(key string, value []byte) error {
	kind, name, rest, err := parseRow(key)
	if err != nil {
		return err
	}
	a := l.app(name)
	switch kind {
	case "count":
		return proto.Unmarshal(value, &a.count)
	case "settings":
		m := &apiv1.App{}
		a.slots[job.ModuleSlot].Settings = m
		return proto.Unmarshal(value, m)
	case "calendar":
		m := &apiv1.Calendar{}
		a.slots[job.ModuleSlot].Calendars[rest] = m
		return proto.Unmarshal(value, m)
	case "minute":
		at, err := strconv.ParseInt(rest, 10, 64)
		if err != nil {
			return fmt.Errorf("row %q: %w", key, err)
		}
		m := &apiv1.MinuteRow{}
		a.minutes[at] = m
		return proto.Unmarshal(value, m)
	case "keys":
		n, err := strconv.ParseUint(rest, 16, 64)
		if err != nil {
			return fmt.Errorf("row %q: %w", key, err)
		}
		keys := &apiv1.KeyRow{}
		if err := proto.Unmarshal(value, keys); err != nil || len(keys.Keys) == 0 {
			return fmt.Errorf("row %q: %w", key, errors.Join(err, errors.New("no keys in it")))
		}
		for _, k := range keys.Keys {
			id := job.RunID(k.Run)
			a.slots[id.Slot()].LoadKey([16]byte(k.Hash), id, k.AtMs)
		}
		l.view.chunkSeq = max(l.view.chunkSeq, n)
		l.view.keyChunks = append(l.view.keyChunks, keyChunk{key, keys.Keys[len(keys.Keys)-1].AtMs})
		return nil
	}
	return l.loadGuestRow(a, kind, rest, key, value)
}

// keyHash is what is kept of an idempotency key.
func keyHash(name, key string) [16]byte {
	h := sha256.New()
	fmt.Fprintf(h, "%d:%s%s", len(name), name, key)
	return [16]byte(h.Sum(nil)[:16])
}
