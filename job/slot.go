package job

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/route"
)

// Bounds of the idempotency keys of a slot. Within KeyWindow, the same key means the same
// run.
const (
	KeyWindow = 10 * time.Minute
	MaxKeys   = 1 << 16 // of a slot; the oldest are removed first
)

// ModuleSlot is the slot that holds the modules of an app.
const ModuleSlot uint8 = 0

// Run is one occurrence of a job. Callers outside this package only read a run, on the
// goroutine that owns the slot.
type Run struct {
	ID      RunID
	App     string
	Job     string
	State   State
	Trigger Trigger
	Policy  *Policy

	PlannedMs  int64
	AcceptedMs int64
	StartedMs  int64 // when the first attempt was dispatched; 0: not yet. See HandlerMs
	FinishedMs int64
	RetryMs    int64 // when the next attempt is due, in State Waiting

	Attempt  int32 // Invariant: rises by one with each dispatch, so a late result has a lower number
	Lost     int32 // attempts that do not count as retries: the host was lost or gave the task back
	Host     string
	Session  string
	Attempts []Attempt

	HasInput bool   // false: the run has the input of the definition
	Input    []byte // immutable
	Output   []byte
	Error    string
	Code     string
	Trace    string

	CancelRequested bool
	CancelWhy       string // "": by request
	TraceParent     string // as TraceText makes it
	Revision        int64
	Covers          int64      // number of missed planned times that the run covers besides its own
	By              string     // the caller that requested the run; "": none did
	Cause           RunID      // the run that this one retries or follows, or whose node it is; zero: none
	Node            string     // name of the node of Cause, a run of a workflow; "": none
	Nodes           *Nodes     // nil unless the run is of a workflow and has begun, or continues an earlier run
	Pin             *apiv1.Pin // the version to which the job's alias resolved, or that a retry has chosen; nil: the one that the job names. Immutable
	Fan             *Fan       // nil unless the run is a part, has parts, or was requested with some parts only or for one host

	// Nth is the number of the run among the ended runs of its job; 0: it is live, or the
	// job does not count it.
	Nth int64

	// Mark, Pace, Micros and SetIndex belong to the owner of the slot. Apply ignores
	// them.
	Mark     uint8
	Pace     uint8
	Micros   uint16 // microseconds of the dispatch time beyond its millisecond
	SetIndex uint32 // position in the run set of the host, plus 1; 0: none

	first [1]Attempt // backing array of Attempts: most runs have one attempt
	// owner is the job that counts the run. It is no longer the slot's job of that name
	// if the job was deleted, or deleted and created again, while the run was live.
	owner *Job
	slot  *Slot
	spec
}

// Attempt is one try of a run on one host.
type Attempt struct {
	Number       int32
	Host         string
	DispatchedMs int64
	StartedMs    int64 // when the handler started; 0: it has not started, or the attempt has not ended
	FinishedMs   int64
	Outcome      apiv1.Outcome
	Error        string
	Code         string
}

// Fan is the state of a run in a fan-out, as one of the parts or as their parent; or the host of a run
// that is bound to one.
type Fan struct {
	Parent RunID  // of a part; zero: this run is the parent
	Part   int32  // of a part: its number, from 0
	Parts  int32  // number of parts
	Pinned string // the only host that may run it: of a part of a broadcast, or of a retry that names one

	Only      []int32  // of a parent: numbers of the parts to make; empty: all
	OnlyHosts []string // of a retried broadcast: the host of each part in Only
	Made      int32    // of a parent: number of parts made; 0: none yet
	Succeeded int32
	Failed    int32 // ended in another state
	parts     []*Run

	Map    *Mapping // of a parent that maps
	Depth  int32    // of a part of a run that maps: number of parts between it and the first one
	Mapped int32    // of a part of a run that maps: number of inputs that it has mapped
	Reduce bool     // of a part of a run that maps: it is the part that reduces
	place  int32    // of a part: its index in the parent's parts
}

// Slot returns the slot that holds the run, or held it.
func (r *Run) Slot() *Slot { return r.slot }

// Owner returns the job that counts the run. The slot may have another job of that name,
// or none.
func (r *Run) Owner() *Job { return r.owner }

// IsPart reports whether the run is a part of another run.
func (r *Run) IsPart() bool { return r.Fan != nil && r.Fan.Parent != RunID{} }

// HasParts reports whether the run is divided into parts, which run instead of it.
func (r *Run) HasParts() bool { return r.Fan != nil && r.Fan.Made > 0 }

// Delegates reports whether other runs do the work of this run: its parts or its nodes.
func (r *Run) Delegates() bool { return r.HasParts() || r.HasNodes() }

// Definition decodes the definition as it was when the run was accepted; for an armed
// run, the current one. The caller owns the result.
func (r *Run) Definition() *apiv1.Job { return r.decode(r.App, r.Job) }

// Shape returns the shared part of the run's definition.
func (r *Run) Shape() *Shape { return r.shape }

// MaxAttempts is the number of the last attempt that the policy allows.
func (r *Run) MaxAttempts() int32 { return r.Policy.Retries + 1 + r.Lost }

// Shared returns the result of Definition from a cache. All callers share it, so they do
// not modify it.
func (r *Run) Shared() *apiv1.Job { return r.slot.shared(r.Job, r.spec) }

// maxDecoded bounds the decoded definitions in the cache of a slot. It holds those of
// running workflows.
const maxDecoded = 1024

// named is the key of a definition in the cache.
type named struct {
	name string
	spec
}

// shared returns a decoded definition, from the cache if possible.
func (s *Slot) shared(name string, sp spec) *apiv1.Job {
	k := named{name, sp}
	if d := s.decoded[k]; d != nil {
		return d
	}
	if len(s.decoded) >= maxDecoded {
		clear(s.decoded)
	}
	d := sp.decode(s.App, name)
	k.name, k.own = strings.Clone(name), strings.Clone(sp.own) // copies, because an entry must not retain a slab of the arena
	s.decoded[k] = d
	return d
}

func decode(def []byte) *apiv1.Job {
	d := &apiv1.Job{}
	if err := proto.Unmarshal(def, d); err != nil {
		panic("job: a definition that this process encoded does not decode: " + err.Error())
	}
	return d
}

// encode encodes labels in one order, so that the same definition has the same content.
func encode(d *apiv1.Job) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(d)
	if err != nil {
		panic("job: a validated definition does not encode: " + err.Error())
	}
	return b
}

func born(d *apiv1.Job) int64 { return d.GetCreatedAt().AsTime().UnixNano() }

// Slot is the state of one of the 16 hash slices of an app's jobs, the result of its
// records. It is not safe for concurrent use; one loop owns it.
type Slot struct {
	App     string
	Index   uint8
	Jobs    Jobs
	Runs    Runs                     // live runs
	Modules map[string]*apiv1.Module // by name@version; only in ModuleSlot
	// Aliases are the aliases of the app by module@name; only in ModuleSlot. They are
	// immutable.
	Aliases map[string]*apiv1.Alias
	// Settings are the settings of the app; nil: none. Only in ModuleSlot. They are
	// immutable.
	Settings *apiv1.App
	// Calendars are the calendars of the app by name; only in ModuleSlot. They are
	// immutable.
	Calendars map[string]*apiv1.Calendar

	// Ownership is the stage of the slot in its last move. It is zero for a slot that has
	// never moved.
	Ownership SlotOwnership
	// Home is the primary partition of the app; "": this one. Only in ModuleSlot.
	Home string
	// Limits are the limits of the app that differ from the defaults; nil: none. Only in
	// ModuleSlot. They are immutable.
	Limits *apiv1.AppLimits
	// Pause is the last pause of the app, which may have ended; nil: none. Only in ModuleSlot. It
	// is immutable.
	Pause *apiv1.AppPause
	// Usage counts what the slot has. The slots of an app may share one.
	Usage *Usage

	// Owner belongs to the owner of the slot. Apply ignores it.
	Owner any

	guests    guests     // see guest.go
	changeSet *ChangeSet // see changeset.go; only in ModuleSlot
	// lastSet is the last change set that reached the slot in a partition that is not the
	// primary one; nil: none. Immutable.
	lastSet *apiv1.ChangeSetShared
	// revisions are those of the records since the last TakeRevisions.
	revisions []Revision
	live      [len(states)]int // number of Runs by state

	decoded  map[named]*apiv1.Job
	shapes   map[string]*Shape  // by their text; those in use, and some former ones
	policies map[Policy]*Policy // those in use, and some former ones
	kinds    map[kind]*kind     // likewise, of jobs whose schedule has a delay
	unborn   *kind              // kind of a job before it has a definition
	uses     map[use]int        // number of jobs by the handler that they name
	refer    int                // number of jobs that refer to others
	pinned   map[pinKey]pinned
	names    names
	keys     keys
	texts    texts
}

// NewSlot returns an empty slot.
func NewSlot(app string, index uint8) *Slot {
	s := &Slot{
		App: app, Index: index, Usage: &Usage{},
		Modules:   map[string]*apiv1.Module{},
		Calendars: map[string]*apiv1.Calendar{},
		decoded:   map[named]*apiv1.Job{},
		shapes:    map[string]*Shape{},
		policies:  map[Policy]*Policy{},
		kinds:     map[kind]*kind{},
		Aliases:   map[string]*apiv1.Alias{},
		uses:      map[use]int{},
		pinned:    map[pinKey]pinned{},
	}
	s.unborn = &kind{slot: s}
	return s
}

// maxPolicies bounds the shared policies of a slot.
const maxPolicies = 4096

// policy returns the shared policy of a definition.
func (s *Slot) policy(d *apiv1.Job) *Policy {
	p := policyOf(d)
	if shared := s.policies[p]; shared != nil {
		return shared
	}
	if len(s.policies) >= maxPolicies {
		clear(s.policies) // jobs and runs still hold the policies in use
	}
	shared := p
	shared.Route, _ = route.New(d.GetRouting()) // Validate accepted it; one that this version cannot read counts as none
	s.policies[p] = &shared
	return &shared
}

// Change is the kind of an [Effect].
type Change uint8

// The changes. A comment describes the change, or what the owner of the slot does about it
// when the record is durable.
const (
	JobChanged      Change = iota + 1 // its definition changed; JobPlanned follows if NextMs has a new value
	JobMoved                          // its planned times, dependency or routing state changed, but not its definition
	JobCounted                        // a run of it has ended, and Run.Nth counts it
	JobPlanned                        // arm it ahead of NextMs, and end its pause at ResumesMs
	JobDepends                        // it depends on other jobs, also as nodes, on calendars or on events
	JobBounded                        // its overlap policy now bounds the admitted runs, and did not when live runs of it were accepted
	JobDeleted                        // Job holds its last state
	ModuleAdded                       // Module
	ModuleDeleted                     // Module holds its last state
	RunArmed                          // fires at PlannedMs
	RunChanged                        // an armed run got a new definition
	RunAccepted                       // queued: dispatch it
	RunRequeued                       // queued again after its host went away or was drained
	RunStarted                        // sent to Run.Host
	RunWaiting                        // try again at RetryMs
	RunStopping                       // tell Run.Host to stop it
	RunEnded                          // terminal, and no longer in the slot
	RunRevoked                        // was armed, and was removed without a row
	RunPassed                         // terminal without having been live
	KeyAdded                          // Key maps to Run
	AppChanged                        // App
	CalendarChanged                   // Calendar
	CalendarDeleted                   // Calendar holds its last state
	RowChanged                        // Row
	AliasChanged                      // Alias
	AliasDeleted                      // Alias holds its last state
	RunCame                           // live, and arrived with its slot from another partition: see move.go
	RunResumed                        // its whole slot has arrived: what the run waits for continues
	RunDeleted                        // of Run, which has ended, only ID, App and the slot are set
	RunPurged                         // likewise: its payload was deleted
)

// Effect is one consequence of a record. Change says which other fields are set.
type Effect struct {
	Change   Change
	Job      *Job
	Run      *Run
	Module   *apiv1.Module
	Calendar *apiv1.Calendar
	Alias    *apiv1.Alias
	App      *apiv1.App
	Row      *Row
	Key      [16]byte
	Input    uint32 // [InputSum] at the first use of Key
	AtMs     int64  // the time of the record
}

// Apply applies one record to the slot and appends its effects to fx. It is pure: the
// result depends only on the state and the record. A record that does not fit the state
// (a late result, a second end) changes nothing.
func (s *Slot) Apply(rec *apiv1.Record, fx []Effect) []Effect {
	from := len(fx)
	if s.Ownership.State != Here && !allowedWhileFrozen(rec) {
		return fx
	}
	for _, a := range rec.Accepts {
		fx = s.accept(s.Jobs.Get(a.Job), a, rec.AtMs, fx)
	}
	switch k := rec.Kind.(type) {
	case *apiv1.Record_JobPut:
		if k.JobPut.GetJob() != nil {
			fx = s.putJob(k.JobPut, rec.AtMs, fx)
		}
	case *apiv1.Record_JobDelete:
		fx = s.deleteJob(k.JobDelete.GetName(), rec.AtMs, fx)
	case *apiv1.Record_ModulePut:
		if m := k.ModulePut.GetModule(); m != nil {
			s.Modules[m.Name+"@"+m.Version] = m
			fx = append(fx, Effect{Change: ModuleAdded, Module: m})
		}
	case *apiv1.Record_Armed:
		for _, a := range k.Armed.GetRuns() {
			fx = s.arm(a, rec.AtMs, fx)
		}
	case *apiv1.Record_Accepted:
		fx = s.accept(s.Jobs.Get(k.Accepted.Job), k.Accepted, rec.AtMs, fx)
	case *apiv1.Record_Started:
		for _, a := range k.Started.GetRuns() {
			fx = s.start(a, k.Started.Host, k.Started.Session, rec.AtMs, fx)
		}
	case *apiv1.Record_Adopted:
		for _, a := range k.Adopted.GetRuns() {
			fx = s.start(a, k.Adopted.Host, k.Adopted.Session, rec.AtMs, fx)
		}
	case *apiv1.Record_Finished:
		for _, e := range k.Finished.GetEnds() {
			fx = s.finish(e, rec.AtMs, fx)
		}
	case *apiv1.Record_CancelRequested:
		if r := s.Runs.Get(runID(k.CancelRequested.GetRun())); r != nil {
			fx = s.cancel(r, k.CancelRequested, rec.AtMs, fx)
		}
	case *apiv1.Record_Passed:
		fx = s.pass(k.Passed, rec.AtMs, fx)
	case *apiv1.Record_Ended:
		for _, e := range k.Ended.GetRuns() {
			if r := s.Runs.Get(runID(e.GetRun())); r != nil && State(e.State).Terminal() {
				r.Error, r.Code = e.Error, e.Code
				fx = s.end(r, State(e.State), e.JobNextMs, rec.AtMs, fx)
			}
		}
	case *apiv1.Record_RunsRemoved:
		fx = s.removeEnded(k.RunsRemoved, fx)
	case *apiv1.Record_Resumed:
		fx = s.resume(k.Resumed, fx)
	case *apiv1.Record_Fanned:
		fx = s.fan(k.Fanned, rec.AtMs, fx)
	case *apiv1.Record_Advanced:
		fx = s.advance(k.Advanced, rec.AtMs, fx)
	case *apiv1.Record_Met:
		if j := s.Jobs.Get(k.Met.GetJob()); j != nil && !j.Met(k.Met.Upstream) {
			x := j.extras()
			x.met = append(x.met, k.Met.Upstream)
			fx = append(fx, Effect{Change: JobMoved, Job: j})
		}
	case *apiv1.Record_AliasPut:
		if a := k.AliasPut.GetAlias(); a != nil {
			fx = s.putAlias(a, fx)
		}
	case *apiv1.Record_AliasDelete:
		fx = s.deleteAlias(k.AliasDelete, fx)
	case *apiv1.Record_AppPut:
		if a := k.AppPut.GetApp(); a != nil {
			revise(s, KindApp, s.App, s.Settings, a)
			s.Settings = a
			fx = append(fx, Effect{Change: AppChanged, App: a})
		}
	case *apiv1.Record_CalendarPut:
		if c := k.CalendarPut.GetCalendar(); c != nil {
			revise(s, KindCalendar, c.Name, s.Calendars[c.Name], c)
			s.Calendars[c.Name] = c
			fx = append(fx, Effect{Change: CalendarChanged, Calendar: c})
		}
	case *apiv1.Record_CalendarDelete:
		if c := s.Calendars[k.CalendarDelete.GetName()]; c != nil {
			revise(s, KindCalendar, c.Name, c, nil)
			delete(s.Calendars, c.Name)
			fx = append(fx, Effect{Change: CalendarDeleted, Calendar: c})
		}
	case *apiv1.Record_SlotLeaving:
		fx = s.leave(k.SlotLeaving, fx)
	case *apiv1.Record_SlotLeft:
		fx = s.left(k.SlotLeft, fx)
	case *apiv1.Record_SlotComing:
		fx = s.come(k.SlotComing, rec.AtMs, fx)
	case *apiv1.Record_AppHomed:
		if s.Home != k.AppHomed.GetUnit() {
			s.Home = k.AppHomed.GetUnit()
			fx = s.changed(fx, rowHome, "", &apiv1.HomeRow{Unit: s.Home})
		}
	default:
		fx = s.applyGuest(rec, fx)
	}
	for i := from; i < len(fx); i++ {
		fx[i].AtMs = rec.AtMs
	}
	for i := range s.revisions {
		s.revisions[i].AtMs, s.revisions[i].By = rec.AtMs, rec.Attribution
	}
	return fx
}

// removeEnded applies the removal of ended runs. The slot has no ended runs, so this is an effect alone.
func (s *Slot) removeEnded(m *apiv1.RunsRemoved, fx []Effect) []Effect {
	change := RunDeleted
	if m.PayloadOnly {
		change = RunPurged
	}
	one := func(text []byte) {
		id := runID(text)
		if len(text) == len(id) && s.Runs.Get(id) == nil {
			fx = append(fx, Effect{Change: change, Run: &Run{ID: id, App: s.App, slot: s}})
		}
	}
	for _, text := range m.Runs {
		one(text)
	}
	one(m.Run)
	return fx
}

// Accept is Apply for a record with one accepted run, of a job that the caller has looked
// up. It retains the slices of a.
func (s *Slot) Accept(j *Job, a *apiv1.Accepted, atMs int64, fx []Effect) []Effect {
	from := len(fx)
	if s.Ownership.State != Here || j.Slot() != s || !j.Current() {
		return fx
	}
	fx = s.accept(j, a, atMs, fx)
	for i := from; i < len(fx); i++ {
		fx[i].AtMs = atMs
	}
	return fx
}

// sameHandler reports whether two shapes execute the same handler of the same version.
func sameHandler(a, b *Shape) bool {
	return a == b || a != nil && b != nil && a.Digest == b.Digest && proto.Equal(a.Handler, b.Handler)
}

func (s *Slot) putJob(p *apiv1.JobPut, atMs int64, fx []Effect) []Effect {
	j := s.Jobs.Get(p.Job.Name)
	fresh := j == nil
	if fresh {
		j = &Job{kind: s.unborn}
	}
	planned := p.NextMs > 0 && p.NextMs != j.NextMs
	before := j.kind
	r := Revision{Kind: KindJob, Name: p.Job.Name, Number: p.Job.Revision}
	if !fresh {
		r.Before = j.Content()
	}
	s.define(j, p.Job)
	if r.After = j.Content(); r.After != r.Before { // a changed calendar or alias plans the job anew
		s.revisions = append(s.revisions, r)
	}
	j.revision, j.etag, j.NextMs = uint32(p.Job.Revision), parseEtag(p.Job.Etag), p.NextMs
	if fresh {
		s.Jobs.add(j) // it has its name now
		s.Usage.Jobs++
	}
	s.recount(before.shape, j.kind.shape)
	if !sameHandler(before.shape, j.kind.shape) {
		j.Pace = 0
	}
	if x := j.extra; x != nil {
		x.met = slices.DeleteFunc(x.met, func(up string) bool { return !slices.Contains(p.Job.GetDependency().GetJobs(), up) })
		if j.Policy().Route == nil {
			x.route = nil // of the former strategy
		}
		j.tidy()
	}
	if _, named := j.spec().timing(); named || j.kind.shape.refers() || j.Event() != nil {
		fx = append(fx, Effect{Change: JobDepends, Job: j})
	}
	if p.Rescheduled {
		fx = s.revoke(j, atMs, fx)
	}
	if p.Renewed {
		j.Planned = 0
	}
	for _, r := range j.armed() { // armed runs get the new definition
		if r.PlannedMs > atMs {
			r.spec, r.Policy, r.Revision = j.spec(), j.Policy(), j.Revision()
			s.repin(r, j, p.Pin)
			fx = append(fx, Effect{Change: RunChanged, Run: r, Job: j})
		}
	}
	fx = append(fx, Effect{Change: JobChanged, Job: j})
	if before.policy != nil && !before.policy.Bounded() && j.Policy().Bounded() && j.live > 0 {
		fx = append(fx, Effect{Change: JobBounded, Job: j})
	}
	if planned {
		fx = append(fx, Effect{Change: JobPlanned, Job: j})
	}
	return fx
}

// Live returns the number of runs in a state that is not terminal.
func (s *Slot) Live(st State) int { return s.live[st.Ordinal()] }

// add adds a live run to the slot.
func (s *Slot) add(r *Run) {
	s.Runs.add(r)
	s.Usage.Bytes += int64(len(r.Input))
	s.live[r.State.Ordinal()]++
	r.owner.live++
	if r.Trigger != BySchedule {
		return
	}
	x := r.owner.extras()
	x.scheduled++
	if r.State == Armed {
		x.armed = append(x.armed, r)
	}
}

// move changes the state of a live run.
func (s *Slot) move(r *Run, to State) {
	if r.State == Armed {
		if x := r.owner.extra; x != nil {
			x.armed = slices.DeleteFunc(x.armed, func(a *Run) bool { return a == r })
		}
	}
	s.live[r.State.Ordinal()]--
	s.live[to.Ordinal()]++
	r.State = to
}

// remove removes a live run from the slot.
func (s *Slot) remove(r *Run) {
	s.Runs.remove(r.ID)
	s.Usage.Bytes -= int64(len(r.Input))
	s.live[r.State.Ordinal()]--
	r.owner.live--
	if r.Trigger == BySchedule {
		r.owner.extra.scheduled--
		r.owner.tidy()
	}
}

// revoke removes the armed runs of a job that are not due. No client or host knows them.
func (s *Slot) revoke(j *Job, atMs int64, fx []Effect) []Effect {
	armed := j.armed()
	if len(armed) == 0 {
		return fx
	}
	kept := armed[:0]
	for _, r := range armed {
		if r.PlannedMs <= atMs {
			kept = append(kept, r)
			continue
		}
		s.remove(r)
		j.Planned -= 1 + r.Covers // as if they had not been planned
		r.State = Cancelled       // for callers that still hold the run
		fx = append(fx, Effect{Change: RunRevoked, Run: r, Job: j})
	}
	clear(armed[len(kept):])
	j.extra.armed = kept
	j.tidy()
	return fx
}

func (s *Slot) deleteJob(name string, atMs int64, fx []Effect) []Effect {
	j := s.Jobs.Get(name)
	if j == nil {
		return fx
	}
	fx = s.revoke(j, atMs, fx)
	s.recount(j.kind.shape, nil)
	s.revisions = append(s.revisions, Revision{Kind: KindJob, Name: name, Number: j.Revision() + 1, Before: j.Content()})
	s.Jobs.remove(name)
	s.Usage.Jobs--
	s.erased(j)
	j.drop()
	return append(fx, Effect{Change: JobDeleted, Job: j})
}

func (s *Slot) arm(a *apiv1.Armed_Run, atMs int64, fx []Effect) []Effect {
	j := s.Jobs.Get(a.Job)
	if j == nil {
		return fx
	}
	j.NextMs = a.NextMs
	j.Planned += 1 + a.Covers
	fx = append(fx, Effect{Change: JobMoved, Job: j})
	if j.NextMs > 0 {
		fx = append(fx, Effect{Change: JobPlanned, Job: j})
	}
	id := OccurrenceID(s.App, a.Job, time.UnixMilli(a.PlannedMs), "")
	if s.Runs.Get(id) != nil {
		return fx
	}
	r := &Run{
		ID: id, App: s.App, Job: j.Name(), State: Armed, Trigger: BySchedule, Policy: j.Policy(),
		PlannedMs: a.PlannedMs, AcceptedMs: atMs, TraceParent: a.TraceParent, Revision: j.Revision(), Covers: a.Covers, owner: j, slot: s, spec: j.spec(),
	}
	s.pin(r, a.Pin)
	s.add(r)
	return append(fx, Effect{Change: RunArmed, Run: r, Job: j})
}

func (s *Slot) accept(j *Job, a *apiv1.Accepted, atMs int64, fx []Effect) []Effect {
	if j == nil || s.Runs.Get(runID(a.Run)) != nil {
		return fx
	}
	r := &Run{
		ID: runID(a.Run), App: s.App, Job: j.Name(), State: Queued, Trigger: ByHand, Policy: j.Policy(),
		PlannedMs: runID(a.Run).Planned().UnixMilli(), AcceptedMs: atMs,
		HasInput: a.HasInput, Input: a.Input, TraceParent: a.TraceParent, Revision: j.Revision(),
		By: s.names.shared(a.By), Cause: runID(a.Cause), owner: j, slot: s, spec: j.spec(),
	}
	if a.Trigger != "" {
		r.Trigger = Trigger(a.Trigger)
	}
	r.Node = a.Node
	if a.PlannedMs > 0 {
		r.PlannedMs = a.PlannedMs
	}
	if a.Priority != 0 && r.Policy.Priority == 0 {
		d := j.Definition()
		d.Priority = a.Priority
		r.spec = s.spec(d)
		r.Policy = s.kindOf(r.spec).policy
	}
	s.pin(r, a.Pin)
	if r.Policy.Workflow && (len(a.Kept) > 0 || a.FromNode != "") {
		r.Nodes = &Nodes{Kept: a.Kept, From: a.FromNode}
	}
	if len(a.Parts) > 0 {
		r.Fan = &Fan{Only: a.Parts}
	}
	if a.Host != "" && !r.Policy.Workflow && !r.Policy.Fans() {
		r.Fan = &Fan{Pinned: a.Host}
	}
	change := RunAccepted
	if r.PlannedMs > atMs && r.Trigger == ByHandler { // the run was requested ahead of its time
		r.State, change = Armed, RunArmed
	}
	s.add(r)
	if a.Completes {
		j.forget()
		fx = append(fx, Effect{Change: JobMoved, Job: j})
	}
	if len(a.KeyHash) == 16 {
		k := key{hash: [16]byte(a.KeyHash), run: r.ID, atMs: atMs, input: InputSum(a.HasInput, a.Input)}
		s.keys.add(k)
		fx = append(fx, Effect{Change: KeyAdded, Run: r, Key: k.hash, Input: k.input})
	}
	return append(fx, Effect{Change: change, Run: r, Job: j})
}

// KeyNumbers returns the range of numbers of the idempotency keys in the slot: from
// first, up to and without next, modulo 2³².
func (s *Slot) KeyNumbers() (first, next uint32) { return s.keys.next - uint32(s.keys.n), s.keys.next }

// RunOfKey returns the run of an idempotency key. same reports whether the first use of
// the key had the given [InputSum]; it is true if the first sum is unknown.
func (s *Slot) RunOfKey(hash [16]byte, input uint32) (id RunID, same, ok bool) {
	return s.keys.runOf(hash, input)
}

func (s *Slot) start(a *apiv1.Started_Run, host, session string, atMs int64, fx []Effect) []Effect {
	r := s.Runs.Get(runID(a.Run))
	if r == nil || a.Attempt <= r.Attempt {
		return fx
	}
	s.move(r, Running)
	r.Attempt, r.Host, r.Session, r.RetryMs = a.Attempt, host, session, 0
	if r.StartedMs == 0 {
		r.StartedMs = atMs
	}
	if r.Attempts == nil {
		r.Attempts = r.first[:0]
	}
	r.Attempts = append(r.Attempts, Attempt{Number: a.Attempt, Host: host, DispatchedMs: atMs})
	s.note(r.owner, host)
	return append(fx, Effect{Change: RunStarted, Run: r, Job: r.owner})
}

// HandlerMs returns when the handler first started, for a run that has ended or that has
// another attempt; for a run without attempts of its own, when the run started. 0: not
// yet, or its hosts did not report it.
func (r *Run) HandlerMs() int64 {
	if len(r.Attempts) == 0 && r.Attempt == 0 {
		return r.StartedMs
	}
	for i := range r.Attempts {
		if at := r.Attempts[i].StartedMs; at > 0 {
			return at
		}
	}
	return 0
}

// The codes of attempts that a host gave back before it started their handler.
const (
	CodeRecalled      = "recalled"       // the server asked for the task
	CodeStartDeadline = "start_deadline" // the handler could not start within the time in the task
)

// CodeTerminated is the code of an attempt that was ended without the confirmation of its
// host.
const CodeTerminated = "terminated"

func givenBack(e *apiv1.Finished_End) bool {
	return e.Outcome == apiv1.Outcome_OUTCOME_STOPPED && e.StartedMs == 0 && (e.Code == CodeRecalled || e.Code == CodeStartDeadline)
}

// Untouched reports whether no attempt of a run that has ended started its handler.
func (r *Run) Untouched() bool {
	return !slices.ContainsFunc(r.Attempts, func(a Attempt) bool {
		return a.FinishedMs > 0 && (a.Outcome != apiv1.Outcome_OUTCOME_STOPPED || a.StartedMs > 0)
	})
}

// Current reports whether a result belongs to the current attempt of the run. Other
// results change nothing.
func (r *Run) Current(attempt int32, host string) bool {
	return r.State == Running && r.Attempt == attempt && r.Host == host
}

func (s *Slot) finish(e *apiv1.Finished_End, atMs int64, fx []Effect) []Effect {
	r := s.Runs.Get(runID(e.Run))
	if r == nil || !r.Current(e.Attempt, e.Host) {
		return fx
	}
	if a := &r.Attempts[len(r.Attempts)-1]; a.Number == e.Attempt {
		a.StartedMs, a.FinishedMs, a.Outcome, a.Error, a.Code = e.StartedMs, atMs, e.Outcome, e.Error, e.Code
	}
	if e.Outcome == apiv1.Outcome_OUTCOME_LOST || (e.Outcome == apiv1.Outcome_OUTCOME_STOPPED && !r.CancelRequested) {
		r.Lost++
	}
	r.Output, r.Error, r.Code, r.Trace = e.Output, e.Error, e.Code, e.Trace
	to := State(e.State)
	if to == Queued && givenBack(e) { // the handler did not start, and the number of such attempts is unbounded
		r.Attempts = r.Attempts[:len(r.Attempts)-1]
	}
	if to.Terminal() {
		return s.end(r, to, e.JobNextMs, atMs, fx)
	}
	s.move(r, to)
	switch to {
	case Waiting:
		r.RetryMs = e.RetryMs
		return append(fx, Effect{Change: RunWaiting, Run: r, Job: r.owner})
	default:
		return append(fx, Effect{Change: RunRequeued, Run: r, Job: r.owner})
	}
}

func (s *Slot) cancel(r *Run, c *apiv1.CancelRequested, atMs int64, fx []Effect) []Effect {
	if r.CancelRequested || r.State.Terminal() {
		return fx
	}
	r.CancelRequested, r.CancelWhy = true, c.Why
	if r.HasParts() { // the run ends with its last part
		r.giveUpParts()
		for _, part := range r.Fan.inOrder() {
			fx = s.cancel(part, c, atMs, fx)
		}
		return fx
	}
	if r.State == Running {
		return append(fx, Effect{Change: RunStopping, Run: r, Job: r.owner})
	}
	to := Cancelled
	if r.Attempt > 0 { // it has started before
		to = Stopped
	}
	return s.end(r, to, c.JobNextMs, atMs, fx)
}

// end makes a run terminal and removes it from the slot.
func (s *Slot) end(r *Run, to State, jobNextMs, atMs int64, fx []Effect) []Effect {
	wasArmed := r.State == Armed && r.Trigger == BySchedule
	if wasArmed {
		r.owner.giveUp(r.PlannedMs, atMs)
	}
	s.move(r, to)
	s.remove(r)
	r.FinishedMs, r.RetryMs = atMs, 0
	fx = s.dropMap(r, s.dropCheckpoint(r, fx))
	if r.CancelRequested && r.Error == "" && (to == Stopped || to == Cancelled) {
		r.Error = r.CancelWhy
	}
	j := r.owner
	if r.IsPart() { // the job counts the parent
		fx = append(fx, Effect{Change: RunEnded, Run: r, Job: j})
		return s.endPart(r, jobNextMs, atMs, fx)
	}
	j.count(r, atMs)
	if j.Current() {
		what := JobCounted
		if wasArmed || j.Policy().Route != nil { // a given-up time and the routing state are only in the row that JobMoved writes
			what = JobMoved
		}
		fx = append(fx, Effect{Change: what, Job: j})
		if jobNextMs > 0 && j.scheduled() == 0 { // a delay counts from the last end
			j.NextMs = jobNextMs
			fx = append(fx, Effect{Change: JobPlanned, Job: j})
		}
	}
	return append(fx, Effect{Change: RunEnded, Run: r, Job: j})
}

// pass adds one terminal run for planned times that do not run.
func (s *Slot) pass(p *apiv1.Passed, atMs int64, fx []Effect) []Effect {
	j := s.Jobs.Get(p.Job)
	if j == nil || !State(p.State).Terminal() {
		return fx
	}
	j.NextMs = p.NextMs
	j.Planned += p.Count
	j.giveUp(p.FirstMs, atMs)
	r := &Run{
		ID: OccurrenceID(s.App, p.Job, time.UnixMilli(p.FirstMs), p.State), App: s.App, Job: j.Name(),
		State: State(p.State), Trigger: BySchedule, Policy: j.Policy(),
		PlannedMs: p.FirstMs, AcceptedMs: atMs, FinishedMs: atMs, Covers: p.Count - 1, Error: p.Error, Code: p.Code,
		Revision: j.Revision(), owner: j, slot: s, spec: j.spec(),
	}
	j.count(r, atMs)
	fx = append(fx, Effect{Change: JobMoved, Job: j})
	if j.NextMs > 0 {
		fx = append(fx, Effect{Change: JobPlanned, Job: j})
	}
	return append(fx, Effect{Change: RunPassed, Run: r, Job: j})
}

// note records in the routing state of the job to which host a run was dispatched.
func (s *Slot) note(j *Job, host string) {
	if route := j.Policy().Route; route != nil {
		x := j.extras()
		x.route = route.Note(x.route, host)
	}
}

// NumberRevision sets the number of the revision that a record makes, in the definition that
// it puts. Definitions that are copies of another partition keep their numbers.
func (s *Slot) NumberRevision(rec *apiv1.Record) {
	if s.Home != "" {
		return
	}
	switch k := rec.Kind.(type) {
	case *apiv1.Record_CalendarPut:
		m := k.CalendarPut.GetCalendar()
		m.Revision = next(s.Calendars[m.GetName()], m)
	case *apiv1.Record_AliasPut:
		m := k.AliasPut.GetAlias()
		m.Revision = next(s.Aliases[AliasRef(m)], m)
	case *apiv1.Record_GrantsPut:
		m := k.GrantsPut.GetGrants()
		m.Revision = next(s.guests.grants[m.GetModule()], m)
	case *apiv1.Record_DefinitionPut:
		s.numberDefinition(k.DefinitionPut.GetDefinition())
	case *apiv1.Record_AppPut:
		m := k.AppPut.GetApp()
		m.Revision = next(s.Settings, m)
	}
}

// revise adds the revision of a definition that is no job. old or now may be nil.
func revise[D definition](s *Slot, kind, name string, old, now D) {
	var none D
	r := Revision{Kind: kind, Name: strings.Clone(name)}
	if old != none {
		r.Before, r.Number = ContentOf(old), old.GetRevision()+1
	}
	if now != none {
		r.After, r.Number = ContentOf(now), now.GetRevision()
	}
	if s.Home == "" && r.Before != r.After {
		s.revisions = append(s.revisions, r)
	}
}

// TakeRevisions returns the revisions of the records that were applied since the last call.
// They are valid until the next record.
func (s *Slot) TakeRevisions() []Revision {
	all := s.revisions
	s.revisions = s.revisions[:0]
	return all
}
