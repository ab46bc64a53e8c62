package core

import (
	"sync"
	"time"

	"github.com/wheelworkhq/wheelwork/access"
	"github.com/wheelworkhq/wheelwork/access/audit"
	"github.com/wheelworkhq/wheelwork/alert/rule"
	alerts "github.com/wheelworkhq/wheelwork/alert/state"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/timeheap"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/schedule"
	"github.com/wheelworkhq/wheelwork/journal"
	"github.com/wheelworkhq/wheelwork/sched/fair"
	"github.com/wheelworkhq/wheelwork/sched/hosts"
	"github.com/wheelworkhq/wheelwork/sched/projection"
	"github.com/wheelworkhq/wheelwork/sched/wheel"
)

// Loop is the scheduler of one partition, see the package comment. It consists of
// components: each owns its fields, and reaches the others through the loop. Only the
// loop's goroutine uses them, unless the comment of a component says otherwise.
type Loop struct {
	cfg   Config
	Hub   *Hub
	Mail  mailbox
	clock clock
	Stats Stats

	State   state            // the apps with their slots
	commits committer        // the batch of this turn, and the batches in flight
	View    *projection.View // the changes for the next projection batch

	timing    timing    // timers, armed runs and clocks that were set back
	Planner   Planner   // parsed schedules and calendars
	relations relations // which jobs name which
	workflows workflows // runs whose change other jobs react to
	admission admission // overlap policies, start deadlines and rates
	limits    limits    // what one app may take of what all share

	Dispatcher dispatcher // ready queues, and the choice of hosts
	Sessions   Sessions   // hosts, and the handling of their reports
	Demand     Demand     // hosts that the partition needs from others

	Commands Commands // changes of jobs and runs by callers
	Catalog  Catalog  // modules and aliases
	Guests   Guests   // calls of handlers, values and secrets
	Moves    Moves    // slots that move between partitions
	Waiters  Waiters  // calls that wait for the end of a run

	ChangeSets ChangeSets // sets of changes that are applied as a whole
	Holds      Holds      // of apps to which a change set is applied
	Alerts     Alerts     // alerts of the apps
	Access     Access     // principals and tokens
	Audit      Audit      // the events of changes
}

// clock is the time of a turn. All decisions of a turn see the same time.
type clock struct {
	now      time.Time
	nowMs    int64     // now in Unix ms
	lastWall time.Time // of the last turn, with its monotonic reading
}

// committer collects the records of a turn in a batch, applies them to the state, gives
// the batch to the journal, and performs its effects once it is durable.
type committer struct {
	l           *Loop
	stage       *stage             // the batch of this turn
	stageNumber uint64             // number of stage; stages are reused, so a tail names one by number
	inflight    []*stage           // batches that the journal has and that are not durable, oldest first
	bodies      [][]byte           // empty buffers for records
	owed        []func(error)      // answers of durable batches; answerDurable empties it
	lastSeq     uint64             // sequence of the last record that was applied
	failure     error              // the error that ends the server; nil: none
	by          *apiv1.Attribution // of the changes of definitions in the current call
	byOf        *apiv1.Attribution // the one that byField has
	byField     []byte             // see attribution
	byShort     *apiv1.Attribution // the one that byField encodes
}

// timing has the timers of the partition: when jobs are armed, when runs are due, and
// which times a clock that was set back has moved.
type timing struct {
	l     *Loop
	wheel *timers
	// sweepAt is the number of timers at which half of them may be stale.
	sweepAt int
	arming  []*job.Job // whose timers have fired; arm empties it, in several turns if there are many
	coming  []*job.Run // whose timers have fired in this turn; admitDue empties it
	ahead   setBack
}

// Planner computes the planned times of jobs. It caches parsed schedules and compiled
// calendars.
type Planner struct {
	l         *Loop
	plans     map[string]schedule.Plan
	calendars map[jobKey]*schedule.Calendar
	calendarN int                   // counts the changes of calendars
	planned   map[jobKey][]*job.Job // by calendar: the jobs whose schedule names it. Entries may be stale
}

// relations has the jobs that name other jobs. Entries may be stale: readers compare them
// with the state.
type relations struct {
	l          *Loop
	dependents map[jobKey][]*job.Job // by job: the jobs that depend on it
	nodeOf     map[jobKey][]*job.Job // by job: the workflows of which it is a node
	started    map[jobKey][]*job.Job // by type of events: the jobs that they start
}

// workflows advances the runs of workflows, and starts the jobs that depend on runs that
// have ended.
type workflows struct {
	l        *Loop
	followed []*job.Run // that have ended; follow empties it
	moved    []*job.Run // runs of workflows to advance; follow empties it
}

// admission decides whether a due run may be dispatched: by the overlap policy, the start
// deadline and the rates of its job and its app.
type admission struct {
	l             *Loop
	overlapQueues map[jobKey]*overlapQueue // of jobs with an overlap policy and live runs
	rates         map[jobKey]*bucket       // of jobs with a rate; without a name: of apps
}

// limits decides whether an app may take more of what all apps share.
type limits struct{ l *Loop }

// dispatcher sends runs from the ready queues of the apps to hosts.
type dispatcher struct {
	l          *Loop
	order      []*fair.App // with runs to dispatch, each once
	spareOrder []*fair.App
	// served is the usage of the app that was served last, see usage.join. picks counts
	// the choices of hosts.
	served      time.Duration
	picks       uint64
	paces       fair.Paces
	unplaceable []*job.Run           // due and parked: no host may take them now; unpark empties it
	placementAt int64                // when the placement timer is due, in Unix ms; 0: no run is parked
	placedMs    int64                // when the placement timer fired last, in Unix ms
	unsent      []*hosts.Outbox      // that have tasks of this turn; flush wakes their senders and empties it
	spareStarts []*apiv1.Started_Run // for reuse
}

// Demand finds the apps that need hosts of other partitions.
type Demand struct {
	l       *Loop
	short   map[string]shortage // by app, as of the last report
	gathers map[string]int64    // by app: when one of its broadcasts last waited for hosts, in Unix ms
}

// Sessions has the hosts, connected or lost, and handles their reports.
type Sessions struct {
	l        *Loop
	hosts    map[string]*hosts.Host // by id
	results  *resultBatch
	progress map[job.RunID]*apiv1.Progress
	// recovering means that the former owner did not shut down in order and that hosts
	// may still report its tasks. A task reaches its host before the record of the start
	// is durable, so runs with the mark isMaybeDispatched are not sent until recovery ends.
	recovering bool
	since      time.Time // when the loop began to serve, or last refused a host
}

// Commands decides the changes that callers request of jobs and runs.
type Commands struct {
	l          *Loop
	accepted   apiv1.Accepted // reused by TriggerJob, with acceptedID
	acceptedID job.RunID
	entropy    [9]byte // of the last id; a field, because a variable would be allocated for each run
}

// Catalog has the modules of apps and their aliases.
type Catalog struct {
	l        *Loop
	suspects []jobKey // canaries of which an attempt has failed since they were judged last; judge empties it
}

// Guests serves the calls of handlers, and the values and secrets of apps.
type Guests struct {
	l       *Loop
	granted map[*job.Shape]grants // the grants of modules in the form that tasks carry
	recent  *job.Shape            // that grantsOf was called with last; nil: none
	given   grants                // of recent
}

// Moves has the slots that leave for another partition or arrive from one.
type Moves struct {
	l            *Loop
	departing    map[*job.Slot]*departingSlot // slots that leave, or wait to
	taking       map[*job.Slot]*byte          // the call of Take that brings an arriving slot
	countedRates []*slotRate                  // that have counts of this turn; publishRates empties it
}

// ChangeSets checks and applies sets of changes.
type ChangeSets struct{ l *Loop }

// Holds has the apps to which a change set is applied. Other changes of their definitions wait.
type Holds struct {
	l  *Loop
	of map[string]*hold // by app
}

// hold keeps the definitions of an app for one change set. Calls that change definitions wait
// until it ends.
type hold struct {
	app     string
	waiting []func(*Loop)
	changes bool // a message of a producer waits that changes definitions
}

// Access has the principals and tokens of the installation. The first partition has them, in the
// slot of an app without a name.
type Access struct {
	l         *Loop
	State     *access.State
	published bool // the guard has the state
}

// Audit makes the audit events of a turn, which become durable in one batch with the changes that
// they describe.
type Audit struct {
	l      *Loop
	chain  audit.Chain
	events audit.Builder // of this turn
}

// Waiters has the calls that wait for the end of a run.
type Waiters struct {
	l       *Loop
	awaited map[job.RunID][]chan *apiv1.Run // by run; each channel has room for its run
}

// Stats counts what happens, for metrics and for the load that the server reports.
type Stats struct {
	metrics metrics
	counted []*app // that have counts; flushMetrics empties it
	late    lateness
	rate    decayingRate
	came    int // runs that were accepted in this turn
}

// state is what the records have made: the apps of the partition with their slots.
type state struct {
	apps   map[string]*app
	recent *app // that find has returned last; nil: none
	live   int  // live runs of all apps
}

// mailbox has what waits for the loop: functions of callers, hosts and goroutines of the
// server, and batches that the journal has written. It is safe for concurrent use.
type mailbox struct {
	mu      sync.Mutex // guards all fields but the channels
	waiting inputs
	flushed []*stage      // batches that the journal has written, or has failed to write
	dead    bool          // no calls and no messages of hosts come any longer
	kick    chan struct{} // capacity 1: there is something for the loop
	Done    chan struct{} // closed when the loop has ended
}

// inputs are the functions that wait for a turn, in the order in which a turn runs them.
type inputs struct {
	posted    []func(*Loop) // from goroutines of the server; they run even while the loop ends
	fromHosts []func(*Loop) // results and credits
	calls     []func(*Loop)
}

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

// departingSlot is a slot that leaves when its tasks at hosts have ended. Until then its
// due runs are not dispatched; triggers and schedules go on.
type departingSlot struct {
	parked []*job.Run // due, in the order in which they would have been dispatched
}

// shortage is the state of an app with runs that no host here takes.
type shortage struct {
	since    int64 // Unix ms
	hopeless bool  // no host here can ever take one of the runs
}

// grants has the capabilities that a module may use, and their encoding for tasks.
type grants struct {
	*apiv1.Grants
	encoded []byte
}

// resultBatch collects the results in one message of a host, in a record for each slot. The
// loop has one, which is empty between two messages.
type resultBatch struct {
	l      *Loop
	bySlot map[*job.Slot]*apiv1.Finished // with results for the slots in order; the others are empty
	order  []*job.Slot
	runs   []*job.Run // the runs with the mark isInResultBatch
	bytes  int        // size of the outputs, errors and traces in the batch
	free   []*apiv1.Finished_End
}

// timer is a value with a deadline in the wheel. It may be stale: what it was added for
// may have happened, or may no longer be wanted.
type timer interface {
	// fire acts when the timer is due. A stale timer does nothing.
	fire(l *Loop)
	// holds reports whether a timer that is due at that time, in Unix ms, is still needed.
	holds(l *Loop, due int64) bool
}

// timers is the timing wheel of the loop. The wheel has numbers and no pointers, so that
// the garbage collector does not scan it: in the order of their deadlines, a million jobs
// are spread all over the memory. With the tables of job, a collection with a million jobs
// takes 0.15 of the processor time (gctrace of e2e/batch100 of bench/sched, ADR 27). It is
// not safe for concurrent use.
//
// A jobTimer is stored as the number of the job in its slot. When the job is deleted,
// another job may get the number and with it a stale timer.
type timers struct {
	wheel *wheel.Wheel[uint64]
	apps  []*app   // by app.number-1
	rest  []timer  // the timers of other kinds, by their number; nil: the number is free
	free  []uint32 // the free numbers of rest
}

// Session is one stream of a host.
type Session struct {
	h          *hosts.Host
	generation uint64
}

// Alerts has the alerts of the apps that have rules or channels.
type Alerts struct {
	l       *Loop
	serves  bool   // the loop owns the partition; a replay sees records whose alerts are records too
	touched []*app // with something to fold; follow empties it
	// deadLetters is their number at the last check, if there was one: further ones are an event.
	deadLetters int
	checked     bool
	notify      func() // see Notify
}

// limitPause is the time, in ms, in which further refusals by the same limit are no events.
const limitPause = 60_000

// appAlerts is the alerts of one app.
type appAlerts struct {
	al    *Alerts
	a     *app
	state *alerts.State
	own   jobAlerts // the jobs with alerts of their own
	stale bool      // a definition or a calendar has changed
	// seen are the events of this turn, touched means that the app is in Alerts.touched.
	seen    []seen
	touched bool
	timerMs int64 // the time of the timer that counts; 0: there is none
	// byJob caches the rules that select a job. Jobs that have run since the last change of rules are in it.
	byJob map[*job.Job][]*alerts.Rule
	// limited has, by the flag of a limit, when a refusal was an event last, in Unix ms.
	limited map[string]int64
	// Some rule lists the event.
	late, long, paused bool
	watch              watches
}

// jobAlerts are the jobs of an app that have alerts in their documents, by name.
type jobAlerts map[string][]*apiv1.JobAlert

// seen is an event that waits to be folded.
type seen struct {
	change job.Change
	run    *job.Run
	job    *job.Job
	event  *rule.Event // of no run; nil: change says what it is
}

// watches are what an app waits for.
type watches struct {
	of    *appAlerts
	queue timeheap.Heap[watch]
	// jobs has the pairs of rule and job that are in the queue for no_success_since.
	jobs map[watchedJob]bool
	scan *watchScan // of the jobs of the app; nil: none is under way
}

type watchedJob struct {
	rule string
	job  *job.Job
}

// watch is one thing that is due at a time unless it happens before. It may be stale.
type watch struct {
	rule string
	run  *job.Run // late_start and running_longer_than
	job  *job.Job // no_success_since
	what string   // the event
}

// watchScan goes through all jobs of the app, a slice in each turn.
type watchScan struct {
	rules []watchRule
	jobs  []*job.Job // that are left
}

// watchRule is what a scan asks of each job for one rule.
type watchRule struct {
	rule string
	day  time.Time // of not_finished_by: the deadline; zero: for no_success_since
}
