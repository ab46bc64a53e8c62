package sched

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/schedule"
	"github.com/wheelworkhq/wheelwork/journal"
	"github.com/wheelworkhq/wheelwork/sched/wheel/alarm"
)

const (
	// growthRoom is the free space of the journal, in bytes, below which the loop accepts
	// nothing new. endRoom is the free space below which it does not even record the end
	// of a run. Between the two, the runs that were accepted can still end.
	growthRoom = 8 << 20
	endRoom    = 4 << 20
	// maxUnwritten bounds the runs that have ended and are not in the store yet.
	maxUnwritten = 200_000
)

// loop is the state of a server and the one goroutine that owns it, see the package
// comment. Only this goroutine uses the fields, unless the comment of a field names
// another owner.
type loop struct {
	cfg *Config
	hub *hub

	mu        sync.Mutex // guards inbox, hostInbox, internal, flushed and dead
	inbox     []func(*loop)
	hostInbox []func(*loop) // from hosts: results and credits, handled before inbox
	internal  []func(*loop) // from goroutines of the server; drained even while the loop ends
	flushed   []*stage
	dead      bool          // inbox takes no more
	kick      chan struct{} // capacity 1: a queue has an entry
	done      chan struct{} // closed when the loop has ended

	now      time.Time // of this turn
	nowMs    int64
	lastWall time.Time // of the last turn, with its monotonic reading
	since    time.Time // when the loop began to serve, or last refused a host

	apps       map[string]*app
	order      []*app // with runs to dispatch, each once
	spareOrder []*app
	// served is the usage of the app that was served last, see usage.join. picks counts
	// the choices of hosts.
	served time.Duration
	picks  uint64
	paces  paces
	live   int // live runs of all apps
	wheel  *timers
	// sweepAt is the number of timers at which half of them may be stale.
	sweepAt int
	plans   map[string]schedule.Plan
	arming  []*job.Job // whose timers have fired, and that are not armed yet
	coming  []*job.Run // whose timers have fired in this turn
	late    lateness
	rate    decayingRate
	came    int // runs that were accepted in this turn

	metrics metrics
	counted []*app // that have counts for flushMetrics

	results    *resultBatch
	accepted   apiv1.Accepted // reused by triggerJob, with acceptedID
	acceptedID job.RunID

	spareStarts []*apiv1.Started_Run // for reuse

	stage       *stage        // the batch of this turn
	stageNumber uint64        // number of stage; stages are reused, so a tail names one by number
	inflight    []*stage      // batches that the journal has and that are not durable, oldest first
	bodies      [][]byte      // empty buffers for records
	owed        []func(error) // answers of durable batches, which the turn delivers at its end
	lastSeq     uint64        // sequence of the last record that was applied
	failure     error         // the error that ends the server; nil: none

	overlapQueues map[jobKey]*overlapQueue // of jobs with an overlap policy and live runs
	rates         map[jobKey]*bucket       // of jobs with a rate; without a name: of apps
	unplaceable   []*job.Run               // due and parked: no host may take them now
	unsent        []*outbox                // that have tasks of this turn and whose senders flush wakes
	placementAt   int64                    // when the placement timer is due, in Unix ms; 0: no run is parked
	placedMs      int64                    // when the placement timer fired last, in Unix ms
	followed      []*job.Run               // that have ended in this turn: other jobs may depend on them
	moved         []*job.Run               // runs of workflows that this turn advances
	// dependents has, by job, the jobs that depend on it. Entries may be stale: readers
	// compare them with the state.
	dependents map[jobKey][]*job.Job
	// nodeOf has, by job, the workflows of which it is a node. Entries may be stale.
	nodeOf map[jobKey][]*job.Job
	ahead  setBack
	// planned has, by calendar, the jobs whose schedule names it. Entries may be stale.
	planned   map[jobKey][]*job.Job
	calendars map[jobKey]*schedule.Calendar // compiled
	calendarN int                           // counts the changes of calendars
	granted   map[*job.Shape]grants         // the grants of modules in the form that tasks carry

	// suspects are the canaries of which an attempt has failed since they were judged last.
	suspects []jobKey

	departing    map[*job.Slot]*departingSlot // slots that leave for another partition, or wait to
	taking       map[*job.Slot]*byte          // the call of Take that brings an arriving slot
	countedRates []*slotRate                  // that have counts of this turn

	short   map[string]shortage // by app, as of the last report of host demand
	gathers map[string]int64    // by app: when one of its broadcasts last waited for hosts, in Unix ms

	hosts    map[string]*host
	progress map[job.RunID]*apiv1.Progress
	awaited  map[job.RunID][]chan *apiv1.Run // of waiters, by run; each channel has room for its run
	// recovering means that the former owner did not shut down in order and that hosts
	// may still report its tasks. A task reaches its host before the record of the start
	// is durable, so runs with the mark isMaybeDispatched are not sent until recovery ends.
	recovering bool

	view checkpoints
}

// app is the state of the sub-app that this partition has.
type app struct {
	name   string
	number int // position in timers.apps, from 1; 0: no timer names it
	slots  [job.Slots]*job.Slot
	ready  ready // queued runs; entries may be stale
	listed bool  // in loop.order, or about to be dispatched
	usage  usage
	coming coming
	live   acceptance // live runs in the order of acceptance
	count  apiv1.CountRow
	// minutes has the roll-ups of the last hour, by minute since 1970.
	minutes   map[int64]*apiv1.MinuteRow
	minuteAt  int64            // the minute of minuteRow
	minuteRow *apiv1.MinuteRow // the roll-up of minutes that was used last
	marked    int64            // the last minute that was marked for the next projection batch; 0: none
	labels    labels
	// tails has, by slot, the open record of accepted runs.
	tails    [job.Slots]tail
	canaries map[string]*job.Tally // of canaries, by name@alias
	trust    trust
	rates    *[job.Slots]slotRate // by slot; nil: nothing was counted
	copied   stamp                // of the last state of the primary partition that was copied here
}

// ownerOf returns the app of a slot.
func ownerOf(s *job.Slot) *app { return s.Owner.(*app) }

func newLoop(cfg *Config) (*loop, error) {
	m, err := newMetrics(cfg.Meter)
	if err != nil {
		return nil, err
	}
	l := &loop{
		cfg: cfg, hub: newHub(), metrics: m,
		kick: make(chan struct{}, 1), done: make(chan struct{}),
		apps: map[string]*app{}, plans: map[string]schedule.Plan{},
		overlapQueues: map[jobKey]*overlapQueue{}, rates: map[jobKey]*bucket{}, dependents: map[jobKey][]*job.Job{}, nodeOf: map[jobKey][]*job.Job{},
		planned: map[jobKey][]*job.Job{}, calendars: map[jobKey]*schedule.Calendar{}, granted: map[*job.Shape]grants{},
		hosts: map[string]*host{}, progress: map[job.RunID]*apiv1.Progress{}, awaited: map[job.RunID][]chan *apiv1.Run{},
	}
	l.view.init(cfg.StatsBatch)
	l.setNow(time.Now())
	l.wheel, l.sweepAt = newTimers(l.nowMs), leastSweep
	l.open()
	return l, nil
}

func (l *loop) setNow(t time.Time) {
	l.now, l.nowMs = t, t.UnixMilli()
}

// do puts f into the inbox, and returns false if the loop has ended. It is safe for
// concurrent use, like doForHost and post.
func (l *loop) do(f func(*loop)) bool { return l.push(&l.inbox, f) }

// doForHost is do for a message of a host.
func (l *loop) doForHost(f func(*loop)) bool { return l.push(&l.hostInbox, f) }

func (l *loop) push(queue *[]func(*loop), f func(*loop)) bool {
	l.mu.Lock()
	dead := l.dead
	if !dead {
		*queue = append(*queue, f)
	}
	l.mu.Unlock()
	if !dead {
		l.wake()
	}
	return !dead
}

// post is do for goroutines of the server. The loop runs f even while it shuts down.
func (l *loop) post(f func(*loop)) {
	l.mu.Lock()
	l.internal = append(l.internal, f)
	l.mu.Unlock()
	l.wake()
}

// drainInternal runs the functions that goroutines of the server have posted.
func (l *loop) drainInternal() {
	l.mu.Lock()
	posted := l.internal
	l.internal = nil
	l.mu.Unlock()
	for _, f := range posted {
		f(l)
	}
}

// drainDurable releases the batches that have become durable or have failed.
func (l *loop) drainDurable() {
	l.mu.Lock()
	flushed := l.flushed
	l.flushed = nil
	l.mu.Unlock()
	for _, s := range flushed {
		l.release(s)
	}
}

func (l *loop) wake() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

var errEnded = status.Error(codes.Unavailable, "the server is shutting down: try again in a moment")

// ask runs f on the loop, and returns its answer when the state that f has read is
// durable. So no caller learns of a state that a crash could undo.
func ask[T any](ctx context.Context, l *loop, f func(*loop) (T, error)) (T, error) {
	return askDurable(ctx, l, func(l *loop, answer func(T, error)) {
		v, err := f(l)
		l.onDurable(func(lost error) { answer(v, cmp.Or(err, lost)) })
	})
}

// askDurable runs f on the loop and returns what f passes to answer. f calls answer
// exactly once, at once or later. f does not run if the slot of OnSlot is not in this
// partition.
func askDurable[T any](ctx context.Context, l *loop, f func(l *loop, answer func(T, error))) (T, error) {
	type reply struct {
		v   T
		err error
	}
	ch := make(chan reply, 1)
	var zero T
	claim, claims := ctx.Value(claimKey{}).(claim)
	if !l.do(func(l *loop) {
		if claims {
			if err := l.claimed(claim); err != nil {
				ch <- reply{zero, err}
				return
			}
		}
		f(l, func(v T, err error) { ch <- reply{v, err} })
	}) {
		return zero, errEnded
	}
	select {
	case r := <-ch:
		return r.v, r.err
	case <-ctx.Done():
		return zero, status.FromContextError(ctx.Err()).Err()
	case <-l.done:
		select {
		case r := <-ch:
			return r.v, r.err
		default:
			return zero, errEnded
		}
	}
}

// run runs the loop until ctx ends and then shuts it down. It returns early with an error
// if the journal or the store fails.
func (l *loop) run(ctx context.Context) error {
	defer l.end()
	bell := alarm.New()
	defer bell.Stop()
	bell.Set(0)
	l.lastWall = time.Now()
	for {
		select {
		case <-l.kick:
		case <-bell.C:
		case <-ctx.Done():
			return l.finish()
		}
		start := time.Now()
		if err := l.turn(); err != nil {
			return err
		}
		l.metrics.turn.Record(ctx, time.Since(start).Seconds())
		bell.Set(l.sleep())
	}
}

// turn runs one turn, see the package comment. The order of dispatch, answerDurable and
// flush matters, see answerDurable.
func (l *loop) turn() error {
	l.tick()
	l.drainInternal()
	l.drainInbox()
	l.wheel.Advance(l.nowMs, l.fire)
	l.admitDue()
	l.sweep()
	l.arm()
	l.submit()
	l.drainDurable()
	l.submit() // records that the effects of durable batches have caused
	if l.failure == nil {
		l.dispatch()
		l.submit()
	}
	l.answerDurable()
	l.flush()
	if l.failure != nil {
		return l.failure
	}
	l.rate.add(l.now, l.came)
	l.came = 0
	l.publishRates()
	l.flushMetrics()
	l.checkpoint()
	return nil
}

// turnTime bounds the time that one turn spends on calls, so that a burst of commands
// does not delay hosts. hostTurnTime bounds the time that a turn spends on messages of
// hosts, so that many results of one app do not delay due runs of other apps.
const (
	turnTime     = 2 * time.Millisecond
	hostTurnTime = 4 * turnTime
)

// drainInbox handles messages of hosts and then calls, for at most hostTurnTime and
// turnTime.
func (l *loop) drainInbox() {
	l.mu.Lock()
	fromHosts, inbox := l.hostInbox, l.inbox
	l.hostInbox, l.inbox = nil, nil
	l.mu.Unlock()
	l.drainQueue(&l.hostInbox, fromHosts, hostTurnTime)
	l.drainQueue(&l.inbox, inbox, turnTime)
}

// drainQueue runs the functions that came from a queue for about the time most, and puts
// the rest back at the front of the queue.
func (l *loop) drainQueue(queue *[]func(*loop), came []func(*loop), most time.Duration) {
	start := time.Now()
	for i, f := range came {
		f(l)
		if l.stage.bytes >= stageBytes {
			l.submit()
		}
		if rest := came[i+1:]; len(rest) > 0 && time.Since(start) > most {
			l.mu.Lock()
			*queue = append(rest, *queue...)
			l.mu.Unlock()
			l.wake()
			return
		}
	}
}

// tick reads the clock. After the wall clock was set back, the wheel is ahead of it and
// would fire new entries early, so tick rebuilds the timers.
func (l *loop) tick() {
	now := time.Now()
	wall, mono := now.Round(0).Sub(l.lastWall.Round(0)), now.Sub(l.lastWall)
	l.lastWall = now
	l.setNow(now)
	if drift := wall - mono; drift < -10*time.Millisecond {
		l.cfg.Logger.Warn("the clock was set back: cron, daily and at schedules wait until it shows their next times, and all others go on", "by", -drift)
		l.turnBack((-drift).Milliseconds())
		l.rebuildTimers()
	}
}

// sleep returns how long the loop may wait if all queues are empty.
func (l *loop) sleep() time.Duration {
	wait := time.Hour
	if at, ok := l.wheel.Next(); ok {
		wait = time.Until(time.UnixMilli(at))
	}
	if d, ok := l.view.wait(l.now, l.cfg.CheckpointEvery); ok {
		wait = min(wait, d)
	}
	return max(wait, 0)
}

// fail makes the server end. Only the first error counts, and it is final.
func (l *loop) fail(err error) {
	if l.failure == nil {
		l.failure = status.Error(codes.Unavailable, err.Error())
		l.cfg.Logger.Error("the server stops: the journal failed", "error", err)
	}
}

// refuse returns the reason why the server accepts nothing new now; nil: it does.
func (l *loop) refuse() error {
	if r, ok := l.cfg.Journal.(journal.Refuser); ok && l.failure == nil {
		switch err := r.Refuses(); {
		case errors.Is(err, journal.ErrFull):
			return status.Error(codes.ResourceExhausted, err.Error())
		case err != nil:
			return status.Error(codes.Unavailable, err.Error())
		}
	}
	switch {
	case l.failure != nil:
		return l.failure
	case l.cfg.Journal.Room()-int64(l.stage.bytes) < growthRoom || l.view.full:
		return errFull
	case l.view.unwritten() > maxUnwritten:
		return status.Error(codes.ResourceExhausted, "the server's disk does not keep up: try again in a moment")
	}
	return nil
}

// cramped reports whether the journal has so little room that not even accepted runs can
// go on. Before a function writes a record it calls cramped or refuse, because an append
// that finds no room ends the server.
func (l *loop) cramped() bool {
	return l.cfg.Journal.Room()-int64(l.stage.bytes) < endRoom
}

// refuseChange returns the reason why no record at all can be written now; nil: one can.
func (l *loop) refuseChange() error {
	if l.failure == nil && l.cramped() {
		return errFull
	}
	return l.failure
}

var errFull = status.Error(codes.ResourceExhausted, "the server's disk is full: free space on it, or move its data directory to a larger one; nothing that was accepted is lost")

// perform acts on an effect whose record is durable.
func (l *loop) perform(e *job.Effect) {
	switch e.Change {
	case job.JobPlanned:
		if e.Job.Current() && e.Job.NextMs > 0 {
			l.wheel.Add(armAt(l.ahead.next(e.Job)), e.Job)
		}
	case job.JobBounded:
		l.queueAccepted(e.Job)
	case job.RunArmed:
		l.wheel.Add(e.Run.PlannedMs, e.Run)
	case job.RunAccepted, job.RunRequeued:
		l.admit(e.Run)
	case job.RunWaiting:
		l.wheel.Add(e.Run.RetryMs, e.Run)
	case job.RunStopping:
		if h := l.hosts[e.Run.Host]; h != nil {
			h.out.cancel(e.Run.ID, e.Run.Attempt)
		}
	case job.RunEnded, job.RunRevoked:
		l.dequeue(e.Run)
		l.tellEnd(e.Run)
	case job.RunResumed:
		if here(e.Run.Slot()) {
			l.resumeRun(e.Run)
		}
	}
	if e.Run != nil {
		l.hub.notify(e.Run.ID)
	}
}

// account updates counters and indexes, and marks the rows that the next projection batch
// writes. Like [job.Slot.Apply] it runs once for each record, in a replay too, so a
// replay leads to the same counts.
func (l *loop) account(fx []job.Effect) {
	for i := range fx {
		e := &fx[i]
		if len(l.ahead.runs)+len(l.ahead.jobs) > 0 {
			l.ahead.account(e)
		}
		switch e.Change {
		case job.JobChanged, job.JobDeleted:
			l.view.job(e.Job)
		case job.JobMoved:
			l.view.moved(e.Job)
		case job.JobPlanned:
			l.view.planned(e.Job)
		case job.RunResumed: // its row has not changed
		case job.JobCounted:
			l.view.counted(e.Job)
		case job.ModuleAdded:
			l.view.modules = append(l.view.modules, e.Module)
			clear(l.granted)
		case job.AliasChanged, job.AliasDeleted:
			l.accountAlias(e)
		case job.AppChanged:
			l.view.settings = append(l.view.settings, e.App)
			delete(l.rates, jobKey{e.App.Name, ""}) // the next run makes a new bucket
		case job.CalendarChanged:
			l.view.calendar(jobKey{e.Calendar.App, e.Calendar.Name}, e.Calendar)
			l.forgetCalendar(e.Calendar)
		case job.CalendarDeleted:
			l.view.calendar(jobKey{e.Calendar.App, e.Calendar.Name}, nil)
			l.forgetCalendar(e.Calendar)
		case job.RowChanged:
			l.view.row(e.Row)
			if e.Row.Grants() {
				clear(l.granted)
			}
		case job.JobDepends:
			l.depends(e.Job)
		case job.JobBounded: // see perform
		case job.KeyAdded:
			l.view.key(ownerOf(e.Run.Slot()), e.Key, e.Run.ID, e.AtMs, e.Input)
		default:
			l.accountRun(e)
		}
	}
}

func (l *loop) accountRun(e *job.Effect) {
	a := ownerOf(e.Run.Slot())
	m := a.minute(e.AtMs)
	l.tally(a, e)
	switch e.Change {
	case job.RunArmed, job.RunAccepted:
		m.Accepted++
		a.live.push(e.Run)
		l.came++
		l.countSlot(a, e.Run.Slot().Index)
		l.count(a, a.labels.trigger[e.Run.Trigger])
		l.live++
	case job.RunCame: // the partition that accepted it has counted it
		a.live.push(e.Run)
		l.live++
		l.view.run(e.Run)
		return
	case job.RunRevoked:
		l.live--
	case job.RunEnded, job.RunPassed:
		if e.Change == job.RunEnded {
			l.live--
		}
		switch e.Run.State {
		case job.Succeeded:
			m.Succeeded++
			a.count.Succeeded++
		case job.Skipped: // counts as neither
		default:
			m.Failed++
			a.count.Failed++
		}
		delete(l.progress, e.Run.ID)
		if err := l.view.ended(e.Run); err != nil {
			l.fail(fmt.Errorf("encode run: %w", err))
		}
		l.count(a, a.labels.state[e.Run.State.Ordinal()])
		if !e.Run.IsPart() {
			l.followed = append(l.followed, e.Run)
		}
	case job.RunStopping:
		if e.Run.HasNodes() {
			l.moved = append(l.moved, e.Run)
		}
	case job.RunStarted:
		delete(l.progress, e.Run.ID)
	}
	l.view.run(e.Run)
	l.view.app(a, e.AtMs)
}

// minute returns the roll-up of the minute of a time, and makes it if it is missing. A
// projection batch drops the old ones.
func (a *app) minute(atMs int64) *apiv1.MinuteRow {
	at := atMs / 60_000
	if a.minuteRow != nil && a.minuteAt == at {
		return a.minuteRow
	}
	m := a.minutes[at]
	if m == nil {
		m = &apiv1.MinuteRow{}
		a.minutes[at] = m
		a.coming.forget(at)
	}
	a.minuteAt, a.minuteRow = at, m
	return m
}

// app returns the app of that name, and makes it if it is missing.
func (l *loop) app(name string) *app {
	a := l.apps[name]
	if a == nil {
		a = &app{name: name, minutes: map[int64]*apiv1.MinuteRow{}, labels: newLabels(name), canaries: map[string]*job.Tally{}}
		for i := range a.slots {
			a.slots[i] = job.NewSlot(name, uint8(i))
			a.slots[i].Owner = a
		}
		l.apps[name] = a
	}
	return a
}

// job returns a job; nil: there is none.
func (l *loop) job(app, name string) *job.Job {
	if a := l.apps[app]; a != nil {
		return a.slots[job.SlotOf(name)].Jobs.Get(name)
	}
	return nil
}

// liveRun returns a live run; nil: there is none.
func (l *loop) liveRun(app string, id job.RunID) *job.Run {
	if a := l.apps[app]; a != nil {
		return a.slots[id.Slot()].Runs.Get(id)
	}
	return nil
}

func (l *loop) slotOf(r *job.Run) *job.Slot { return r.Slot() }

// finish shuts the loop down in order: it waits until all batches are durable and writes
// the last projection batch. It drops the functions that wait in the inboxes; their
// callers get errEnded.
func (l *loop) finish() error {
	l.mu.Lock()
	l.dead, l.inbox, l.hostInbox = true, nil, nil
	l.mu.Unlock()
	l.submit()
	for l.drainDurable(); len(l.inflight) > 0; l.drainDurable() {
		<-l.kick
	}
	l.answerDurable()
	if l.failure != nil {
		return l.failure
	}
	return l.lastCheckpoint()
}

// end wakes all callers that wait for the loop, and closes the streams of the hosts.
func (l *loop) end() {
	l.mu.Lock()
	l.dead = true
	l.mu.Unlock()
	close(l.done)
	for _, h := range l.hosts {
		h.out.close()
	}
}

func (l *loop) load() Load {
	ld := Load{ScheduleRate: l.rate.value(l.now)}
	zones := map[string]int{}
	for _, h := range l.hosts {
		if h.connected {
			ld.Hosts++
			if zone := h.hello.Labels["zone"]; zone != "" {
				zones[zone]++
			}
		}
	}
	for zone, n := range zones {
		if m := zones[ld.Zone]; n > m || n == m && zone < ld.Zone {
			ld.Zone = zone
		}
	}
	for name, a := range l.apps {
		if a.home() == "" {
			ld.Apps = append(ld.Apps, name)
		}
	}
	slices.Sort(ld.Apps)
	return ld
}

// decayingRate is a number of events a second in which an event loses half of its weight
// each rateHalfLife. It measures the present load: a total since the start would keep
// work away from a server that has been idle since yesterday.
type decayingRate struct {
	rate float64
	at   time.Time
}

const rateHalfLife = 30 * time.Second

func (r *decayingRate) add(now time.Time, n int) {
	if n == 0 {
		return
	}
	r.rate = r.value(now) + float64(n)*math.Ln2/rateHalfLife.Seconds()
	r.at = now
}

func (r *decayingRate) value(now time.Time) float64 {
	if r.at.IsZero() {
		return 0
	}
	return r.rate * math.Exp2(-now.Sub(r.at).Seconds()/rateHalfLife.Seconds())
}
