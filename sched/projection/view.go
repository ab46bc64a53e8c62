package projection

import (
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/store"
)

// View makes the projection batches. The loop of the scheduler owns it. Only Run and Write
// are called by other goroutines.
type View struct {
	cfg Config
	changes
	writer  writer
	pieces  int // see statsPieces
	bundle  bundle
	writing finished   // ended runs in the batch that the writer commits
	stored  []keyChunk // idempotency keys in the store, oldest first
	wanted  []barrier  // readers that wait for the store
	lengths lengths

	// Memory of earlier batches, which later ones use again. A batch takes as much memory
	// as all other work for its runs, and would be garbage soon: 1 KB for each run of
	// e2e/batch100 of bench/sched.
	spare       store.Batch
	bundleRooms [][]byte // for packed rows
	roomy       bool     // there may be memory of earlier batches
}

// changes has the changes since the last batch.
type changes struct {
	jobs     []*job.Job // with a changed definition, each once: those with the mark isChanged
	plans    []*job.Job // whose stats are written in the next batch, each once: those with the mark isMoved
	deferred deferredStats
	runs     []*job.Run // that have changed, each once: those with the mark isDirty
	ends     finished   // the runs that have ended
	minutes  map[*App]map[int64]struct{}
	modules  []moduleChange
	// revisions are the changes of definitions; byText is the encoded attribution of the last
	// one.
	revisions []store.Revision
	by        *apiv1.Attribution
	byText    []byte
	audit     []store.AuditEntry
	removals  []store.Removal
	// calendars has the changed calendars; nil: deleted.
	calendars map[rowKey]*apiv1.Calendar
	settings  []*apiv1.App
	// small has the changed small rows by key. The functions are called when the batch is
	// made; a result of nil deletes the row.
	small    map[string]func() proto.Message
	rows     map[string]*job.Row // changed small rows of slots, by key
	dropped  []*job.Row          // rows to delete in the next batch, one batch late: see guestRows
	keys     map[*App]*keyRoom
	keyRooms [][]byte // of earlier batches, for keys
}

// writer is what the loop knows of the goroutine that commits batches.
type writer struct {
	work    chan *Batch // capacity 1: there is one batch at a time
	busy    bool        // it has a batch
	late    bool        // that batch has only deferred statistics
	full    bool        // the last commit found the disk full
	last    time.Time   // when the last batch was made
	large   bool        // the last batch had many rows
	applied uint64      // the store includes the records up to this sequence
}

// lengths are the lengths of the store's logs, in bytes, as of the last commit.
type lengths struct{ history, keys int64 }

// Config configures a View.
type Config struct {
	Store      *store.Store  // nil in tests of the loop that read and write nothing
	Every      time.Duration // interval between batches
	BundleRuns int           // with more changed live runs a batch packs their rows
	StatsBatch int           // jobs per Every whose deferred statistics are written
	Logger     *slog.Logger
}

// App is what the projection knows of an app. The loop owns it.
type App struct {
	Name  string
	Slots *[job.Slots]*job.Slot
	Count apiv1.CountRow
	// minutes has the roll-ups of the last hour, by minute since 1970.
	minutes   map[int64]*apiv1.MinuteRow
	minuteAt  int64            // the minute of minuteRow
	minuteRow *apiv1.MinuteRow // the roll-up of minutes that was used last
	marked    int64            // the last minute that was marked for the next batch; 0: none
}

// NewApp returns an app without counts. slots are those of the app.
func NewApp(name string, slots *[job.Slots]*job.Slot) App {
	return App{Name: name, Slots: slots, minutes: map[int64]*apiv1.MinuteRow{}}
}

// MinuteOf returns the number of the minute of a time in Unix ms, counted from 1970.
func MinuteOf(ms int64) int64 { return ms / time.Minute.Milliseconds() }

// Minute returns the roll-up of a minute, and makes it if it is missing: then fresh is
// true. A batch drops the old ones.
func (a *App) Minute(at int64) (m *apiv1.MinuteRow, fresh bool) {
	if a.minuteRow != nil && a.minuteAt == at {
		return a.minuteRow, false
	}
	m = a.minutes[at]
	if fresh = m == nil; fresh {
		m = &apiv1.MinuteRow{}
		a.minutes[at] = m
	}
	a.minuteAt, a.minuteRow = at, m
	return m, fresh
}

// Past returns the roll-up of a minute; nil: nothing happened in it, or it is long past.
func (a *App) Past(at int64) *apiv1.MinuteRow { return a.minutes[at] }

// New returns a view without changes.
func New(cfg Config) *View {
	v := &View{changes: changes{ends: newFinished()}, writing: newFinished()}
	v.Configure(cfg)
	v.writer.work = make(chan *Batch, 1)
	v.deferred.groups = make([]statsGroup, 1)
	v.reset()
	return v
}

// Configure replaces the configuration, while neither Run nor the loop runs. The store must
// be the same.
func (v *View) Configure(cfg Config) {
	v.cfg, v.pieces = cfg, min(statsPieces, cfg.StatsBatch)
	if cfg.Store != nil {
		cfg.Store.SetPurge(job.Purge)
	}
}

// reset begins a new batch. It leaves the runs that have ended.
func (c *changes) reset() {
	c.jobs, c.plans = emptied(c.jobs), emptied(c.plans)
	clear(c.runs)
	c.runs = c.runs[:0]
	for a := range c.minutes {
		a.marked = 0
	}
	c.minutes, c.keys = map[*App]map[int64]struct{}{}, map[*App]*keyRoom{}
	c.revisions = emptiedRevisions(c.revisions)
	c.modules, c.calendars, c.settings, c.rows, c.small, c.removals = nil, nil, nil, nil, nil, nil
}

// Unwritten counts the runs that have ended and are not in the history yet.
func (v *View) Unwritten() int { return len(v.ends.runs) + len(v.writing.runs) }

// Recent returns the row of a run that has ended and may not be in the history yet; nil:
// there is none.
func (v *View) Recent(app string, id job.RunID) []byte {
	row := v.recent(app, id)
	if row == nil || v.cfg.Store == nil {
		return row
	}
	row, err := v.cfg.Store.Shown(app, id, row)
	if err != nil {
		return nil // the store has the error too, when it has the row
	}
	return row
}

// HasRecent reports whether Recent has a run, also if it is removed.
func (v *View) HasRecent(app string, id job.RunID) bool { return v.recent(app, id) != nil }

func (v *View) recent(app string, id job.RunID) []byte {
	if row := v.ends.row(app, id); row != nil {
		return row
	}
	return v.writing.row(app, id)
}

// CalendarChanged adds a calendar to the next batch.
func (c *changes) CalendarChanged(x *apiv1.Calendar) { c.calendar(rowKey{x.App, x.Name}, x) }

// CalendarDeleted deletes the row of a calendar in the next batch.
func (c *changes) CalendarDeleted(x *apiv1.Calendar) { c.calendar(rowKey{x.App, x.Name}, nil) }

func (c *changes) calendar(key rowKey, m *apiv1.Calendar) {
	if c.calendars == nil {
		c.calendars = map[rowKey]*apiv1.Calendar{}
	}
	c.calendars[key] = m
}

// ModuleAdded adds a module version to the next batch.
func (c *changes) ModuleAdded(m *apiv1.Module) { c.modules = append(c.modules, moduleChange{m, false}) }

// ModuleDeleted deletes the row of a module version in the next batch.
func (c *changes) ModuleDeleted(m *apiv1.Module) {
	c.modules = append(c.modules, moduleChange{m, true})
}

// Revised adds changes of definitions of an app to the next batch. It does not retain all.
func (c *changes) Revised(app string, all []job.Revision) {
	for i := range all {
		r := &all[i]
		if r.By != c.by || c.byText == nil {
			b, err := proto.Marshal(r.By)
			if err != nil {
				b = nil // not valid UTF-8: the sender is checked, so this is a record of another version
			}
			c.by, c.byText = r.By, b
		}
		c.revisions = append(c.revisions, store.Revision{
			App: app, Kind: r.Kind, Name: r.Name, Number: r.Number, AtMs: r.AtMs, Cause: c.byText,
			Before: store.Content(r.Before), After: store.Content(r.After),
		})
	}
}

// moduleChange is a changed module version; the last change of a version in a batch counts.
type moduleChange struct {
	*apiv1.Module
	deleted bool
}

// AppChanged adds the settings of an app to the next batch.
func (c *changes) AppChanged(a *apiv1.App) { c.settings = append(c.settings, a) }

// The marks of jobs.
const (
	isChanged = 1 << iota // it is in View.jobs
	isMoved               // it is in View.plans
	isCounted             // it is in a group of deferredStats, and its stats have not been written since
	hasStats              // the store has a row of its stats

	// FreeJobMark is the first bit of [job.Job.Mark] that this package does not use.
	FreeJobMark
)

// JobChanged adds a definition that has changed or was deleted to the next batch. If the store has
// a row with the job's stats, it adds that row too, because it has the next planned time.
func (c *changes) JobChanged(j *job.Job) {
	if j.Mark&isChanged == 0 {
		j.Mark |= isChanged
		c.jobs = append(c.jobs, j)
	}
	if j.Mark&hasStats != 0 {
		c.JobMoved(j)
	}
}

// JobMoved adds the stats of a job to the next batch.
func (c *changes) JobMoved(j *job.Job) {
	if j.Mark&isMoved == 0 {
		j.Mark |= isMoved
		c.plans = append(c.plans, j)
	}
}

// JobPlanned adds the next planned time of a job to the next batch, unless its definition is
// already there, which has it too.
func (c *changes) JobPlanned(j *job.Job) {
	if j.Mark&isChanged == 0 {
		c.JobMoved(j)
	}
}

// JobCounted adds a job to the deferred stats.
func (c *changes) JobCounted(j *job.Job) {
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
	isDirty  = 1 << iota // it is in View.runs
	isStored             // the store has a row of the live run, which must be deleted when the run ends

	// FreeRunMark is the first bit of [job.Run.Mark] that this package does not use.
	FreeRunMark
)

// RunChanged adds a run to the next batch.
func (c *changes) RunChanged(r *job.Run) {
	if r.Mark&isDirty == 0 {
		r.Mark |= isDirty
		c.runs = append(c.runs, r)
	}
}

// AppCounted adds the counts of an app, and its roll-up of the minute of a time in Unix ms,
// to the next batch.
func (c *changes) AppCounted(a *App, atMs int64) {
	at := MinuteOf(atMs)
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

// KeyAdded adds an idempotency key to the next batch.
func (c *changes) KeyAdded(a *App, hash [16]byte, id job.RunID, atMs int64, input uint32) {
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

// RunEnded adds a run that has ended to the history of the next batch.
func (c *changes) RunEnded(r *job.Run) error { return c.ends.add(r) }

// RunRemoved removes a run that has ended from the history with the next batch, or its payload if the
// time of that, in Unix ms, is not 0.
func (c *changes) RunRemoved(r *job.Run, payloadMs int64) {
	c.removals = append(c.removals, store.Removal{App: r.App, ID: r.ID, PayloadMs: payloadMs})
}

// HideRun hides a removed run, or its payload, from readers before the next batch. The record of the
// removal is durable.
func (v *View) HideRun(r *job.Run, payloadMs int64) {
	v.cfg.Store.Hide(store.Removal{App: r.App, ID: r.ID, PayloadMs: payloadMs})
}

// HideRemoved is HideRun for all removals of the next batch, after a replay.
func (v *View) HideRemoved() {
	for _, r := range v.removals {
		v.cfg.Store.Hide(r)
	}
}

// Dirty reports whether there is anything to write.
func (v *View) Dirty() bool {
	return v.fresh() || v.deferred.n > 0 || v.bundle.rows > 0
}

// fresh reports whether there are changes that must be written soon: all but deferred
// statistics and the packed rows of the last batch.
func (c *changes) fresh() bool {
	return len(c.revisions)+len(c.jobs)+len(c.plans)+len(c.runs)+len(c.modules)+len(c.keys)+len(c.minutes)+len(c.calendars)+len(c.settings)+len(c.rows)+len(c.small)+len(c.dropped)+len(c.removals) > 0
}

// rowKey identifies an object of an app.
type rowKey struct{ app, name string }

// keptRevisions is the number of revisions with which a batch does not wait for the distance,
// and for which a list retains its memory: each takes 152 bytes, and definitions change in
// bursts.
const keptRevisions = 4096

// emptiedRevisions is emptied for revisions.
func emptiedRevisions(list []store.Revision) []store.Revision {
	if cap(list) > keptRevisions {
		return nil
	}
	return emptied(list)
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
