package job

import (
	"slices"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"google.golang.org/protobuf/proto"
)

// Bounds of what a slot remembers of idempotency keys. The window is the time
// within which the same key means the same run.
const (
	KeyWindow = 10 * time.Minute
	MaxKeys   = 1 << 16 // a slot; the oldest are forgotten first
)

// ModuleSlot is the slot that holds the modules of an app.
const ModuleSlot uint8 = 0

// Job is a definition and what its schedule came to.
type Job struct {
	Name     string
	Revision int64
	Etag     string
	NextMs   int64 // the next planned time that is not armed yet; 0: none
	Policy   Policy

	Live      int64 // runs that are not terminal
	Succeeded int64
	Failed    int64 // ended otherwise
	LastState State
	LastRun   RunID
	LastEndMs int64

	// def is the definition as bytes: a million jobs are a million small
	// allocations, and most of them sleep. It is shared with runs and never
	// written to.
	def  []byte
	slot *Slot
	born int64 // when it was created: tells it from an earlier job of its name
	// armed are the runs that were planned and not sent to a host yet.
	// Invariant: each is in Slot.Runs with State Armed.
	armed []*Run
}

// Slot returns the slot that holds the job, or held it.
func (j *Job) Slot() *Slot { return j.slot }

// Current reports whether the job is still the slot's job of its name.
func (j *Job) Current() bool { return j.slot != nil && j.slot.Jobs[j.Name] == j }

// Definition decodes the definition. The caller owns it.
func (j *Job) Definition() *apiv1.Job { return decode(j.def) }

// Run is one occurrence of a job. Callers outside this package read it only,
// on the goroutine that owns the slot.
type Run struct {
	ID      RunID
	App     string
	Job     string
	State   State
	Trigger Trigger
	Policy  Policy

	PlannedMs  int64
	AcceptedMs int64
	StartedMs  int64 // first attempt sent; 0: none yet
	FinishedMs int64
	RetryMs    int64 // when Waiting

	Attempt  int32 // Invariant: rises by one with each dispatch; the fence against late results
	Lost     int32 // attempts that ended because their host went away or was drained: no retries
	Host     string
	Session  string
	Attempts []*apiv1.AttemptRow

	HasInput bool   // false: the input of the definition
	Input    []byte // not written to
	Output   []byte
	Error    string
	Code     string
	Trace    string

	CancelRequested bool
	TraceParent     string
	Revision        int64

	// owner counts the run. It is not the slot's job of that name when the job
	// was deleted, or deleted and created again, while the run was live.
	owner *Job
	def   []byte
}

// Definition decodes the definition as it was when the run was accepted (for an
// armed run: as it is now). The caller owns it.
func (r *Run) Definition() *apiv1.Job { return decode(r.def) }

// MaxAttempts is the number of the last attempt that the policy allows.
func (r *Run) MaxAttempts() int32 { return r.Policy.Retries + 1 + r.Lost }

func decode(def []byte) *apiv1.Job {
	d := &apiv1.Job{}
	if err := proto.Unmarshal(def, d); err != nil {
		panic("job: a definition that this process encoded does not decode: " + err.Error())
	}
	return d
}

func encode(d *apiv1.Job) []byte {
	b, err := proto.Marshal(d)
	if err != nil {
		panic("job: a validated definition does not encode: " + err.Error())
	}
	return b
}

func born(d *apiv1.Job) int64 { return d.GetCreatedAt().AsTime().UnixNano() }

type key struct {
	hash [16]byte
	run  RunID
	atMs int64
}

// Slot is the state of a fixed slice of an app's jobs: the fold of its records.
// It is not safe for concurrent use; one loop owns it.
type Slot struct {
	App     string
	Index   uint8
	Jobs    map[string]*Job
	Runs    map[RunID]*Run           // live runs
	Modules map[string]*apiv1.Module // by name@version; only in ModuleSlot

	// Live counts Runs by state.
	Live map[State]int

	keys map[[16]byte]RunID
	ring []key // oldest first; Invariant: each of keys is in it exactly once
}

// NewSlot returns an empty slot.
func NewSlot(app string, index uint8) *Slot {
	return &Slot{
		App: app, Index: index,
		Jobs:    map[string]*Job{},
		Runs:    map[RunID]*Run{},
		Modules: map[string]*apiv1.Module{},
		Live:    map[State]int{},
		keys:    map[[16]byte]RunID{},
	}
}

// Change says what kind of thing an [Effect] reports.
type Change uint8

// The changes. Each names the noun that changed and what the owner of the slot
// has to see to once the record is durable.
const (
	JobChanged  Change = iota + 1 // anything of it; JobPlanned follows when NextMs has a new value
	JobPlanned                    // arm it ahead of NextMs
	JobDeleted                    // Job holds what it was
	ModuleAdded                   // Module
	RunArmed                      // fires at PlannedMs
	RunChanged                    // an armed run got a new definition
	RunAccepted                   // queued: dispatch it
	RunRequeued                   // queued again after its host went away or was drained
	RunStarted                    // sent to Run.Host
	RunWaiting                    // try again at RetryMs
	RunStopping                   // tell Run.Host to end it
	RunEnded                      // terminal, and out of the slot
	RunRevoked                    // was armed, is gone without a trace
	KeyAdded                      // Key maps to Run
)

// Effect is one consequence of a record.
type Effect struct {
	Change Change
	Job    *Job
	Run    *Run
	Module *apiv1.Module
	Key    [16]byte
	AtMs   int64 // the time of the record
}

// Apply folds one record into the slot and appends its effects to fx.
// It is pure: the result depends on the state and the record alone. A record
// that fits nothing (a late result, a second end) changes nothing.
func (s *Slot) Apply(rec *apiv1.Record, fx []Effect) []Effect {
	from := len(fx)
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
		fx = s.accept(k.Accepted, rec.AtMs, fx)
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
		fx = s.cancel(k.CancelRequested, rec.AtMs, fx)
	}
	for i := from; i < len(fx); i++ {
		fx[i].AtMs = rec.AtMs
	}
	return fx
}

func (s *Slot) putJob(p *apiv1.JobPut, atMs int64, fx []Effect) []Effect {
	j := s.Jobs[p.Job.Name]
	if j == nil {
		j = &Job{Name: p.Job.Name, slot: s, born: born(p.Job)}
		s.Jobs[j.Name] = j
	}
	j.def = encode(p.Job)
	planned := p.NextMs > 0 && p.NextMs != j.NextMs
	j.Revision, j.Etag, j.NextMs, j.Policy = p.Job.Revision, p.Job.Etag, p.NextMs, PolicyOf(p.Job)
	if p.Rescheduled {
		fx = s.revoke(j, atMs, fx)
	}
	for _, r := range j.armed { // what is armed runs with the new definition
		if r.PlannedMs > atMs {
			r.def, r.Policy, r.Revision = j.def, j.Policy, j.Revision
			fx = append(fx, Effect{Change: RunChanged, Run: r, Job: j})
		}
	}
	fx = append(fx, Effect{Change: JobChanged, Job: j})
	if planned {
		fx = append(fx, Effect{Change: JobPlanned, Job: j})
	}
	return fx
}

// add puts a live run in.
func (s *Slot) add(r *Run) {
	s.Runs[r.ID] = r
	s.Live[r.State]++
	r.owner.Live++
	if r.State == Armed {
		r.owner.armed = append(r.owner.armed, r)
	}
}

// move changes the state of a live run.
func (s *Slot) move(r *Run, to State) {
	if r.State == Armed {
		r.owner.armed = slices.DeleteFunc(r.owner.armed, func(a *Run) bool { return a == r })
	}
	s.Live[r.State]--
	s.Live[to]++
	r.State = to
}

// remove takes a live run out.
func (s *Slot) remove(r *Run) {
	delete(s.Runs, r.ID)
	s.Live[r.State]--
	r.owner.Live--
}

// revoke takes back what is armed and not due: nobody was told of it.
func (s *Slot) revoke(j *Job, atMs int64, fx []Effect) []Effect {
	kept := j.armed[:0]
	for _, r := range j.armed {
		if r.PlannedMs <= atMs {
			kept = append(kept, r)
			continue
		}
		s.remove(r)
		fx = append(fx, Effect{Change: RunRevoked, Run: r, Job: j})
	}
	clear(j.armed[len(kept):])
	j.armed = kept
	return fx
}

func (s *Slot) deleteJob(name string, atMs int64, fx []Effect) []Effect {
	j := s.Jobs[name]
	if j == nil {
		return fx
	}
	fx = s.revoke(j, atMs, fx)
	delete(s.Jobs, name)
	return append(fx, Effect{Change: JobDeleted, Job: j})
}

func (s *Slot) arm(a *apiv1.Armed_Run, atMs int64, fx []Effect) []Effect {
	j := s.Jobs[a.Job]
	if j == nil {
		return fx
	}
	j.NextMs = a.NextMs
	fx = append(fx, Effect{Change: JobChanged, Job: j})
	if j.NextMs > 0 {
		fx = append(fx, Effect{Change: JobPlanned, Job: j})
	}
	id := NewRunID(s.App, a.Job, time.UnixMilli(a.PlannedMs), "")
	if s.Runs[id] != nil {
		return fx
	}
	r := &Run{
		ID: id, App: s.App, Job: j.Name, State: Armed, Trigger: BySchedule, Policy: j.Policy,
		PlannedMs: a.PlannedMs, AcceptedMs: atMs, TraceParent: a.TraceParent, Revision: j.Revision, owner: j, def: j.def,
	}
	s.add(r)
	return append(fx, Effect{Change: RunArmed, Run: r, Job: j})
}

func (s *Slot) accept(a *apiv1.Accepted, atMs int64, fx []Effect) []Effect {
	j := s.Jobs[a.Job]
	if j == nil || s.Runs[runID(a.Run)] != nil {
		return fx
	}
	r := &Run{
		ID: runID(a.Run), App: s.App, Job: j.Name, State: Queued, Trigger: ByHand, Policy: j.Policy,
		PlannedMs: runID(a.Run).Planned().UnixMilli(), AcceptedMs: atMs,
		HasInput: a.HasInput, Input: a.Input, TraceParent: a.TraceParent, Revision: j.Revision, owner: j, def: j.def,
	}
	s.add(r)
	if len(a.KeyHash) == 16 {
		k := key{hash: [16]byte(a.KeyHash), run: r.ID, atMs: atMs}
		s.remember(k)
		fx = append(fx, Effect{Change: KeyAdded, Run: r, Key: k.hash})
	}
	return append(fx, Effect{Change: RunAccepted, Run: r, Job: j})
}

func (s *Slot) remember(k key) {
	for len(s.ring) > 0 && (len(s.ring) >= MaxKeys || k.atMs-s.ring[0].atMs > KeyWindow.Milliseconds()) {
		delete(s.keys, s.ring[0].hash)
		s.ring = s.ring[1:]
	}
	if _, ok := s.keys[k.hash]; ok {
		return
	}
	s.keys[k.hash] = k.run
	s.ring = append(s.ring, k)
}

// RunOfKey returns the run that an idempotency key stands for.
func (s *Slot) RunOfKey(hash [16]byte) (RunID, bool) {
	id, ok := s.keys[hash]
	return id, ok
}

func (s *Slot) start(a *apiv1.Started_Run, host, session string, atMs int64, fx []Effect) []Effect {
	r := s.Runs[runID(a.Run)]
	if r == nil || a.Attempt <= r.Attempt {
		return fx
	}
	s.move(r, Running)
	r.Attempt, r.Host, r.Session, r.RetryMs = a.Attempt, host, session, 0
	if r.StartedMs == 0 {
		r.StartedMs = atMs
	}
	r.Attempts = append(r.Attempts, &apiv1.AttemptRow{Number: a.Attempt, Host: host, DispatchedMs: atMs})
	return append(fx, Effect{Change: RunStarted, Run: r, Job: r.owner})
}

// Current reports whether an end belongs to the attempt that the run is on. Any
// other end is history: it changes nothing.
func (r *Run) Current(attempt int32, host string) bool {
	return r.State == Running && r.Attempt == attempt && r.Host == host
}

func (s *Slot) finish(e *apiv1.Finished_End, atMs int64, fx []Effect) []Effect {
	r := s.Runs[runID(e.Run)]
	if r == nil || !r.Current(e.Attempt, e.Host) {
		return fx
	}
	if a := r.Attempts[len(r.Attempts)-1]; a.Number == e.Attempt {
		a.StartedMs, a.FinishedMs, a.Outcome, a.Error, a.Code = e.StartedMs, atMs, e.Outcome, e.Error, e.Code
	}
	if e.Outcome == apiv1.Outcome_OUTCOME_LOST || (e.Outcome == apiv1.Outcome_OUTCOME_STOPPED && !r.CancelRequested) {
		r.Lost++
	}
	r.Output, r.Error, r.Code, r.Trace = e.Output, e.Error, e.Code, e.Trace
	to := State(e.State)
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

func (s *Slot) cancel(c *apiv1.CancelRequested, atMs int64, fx []Effect) []Effect {
	r := s.Runs[runID(c.Run)]
	if r == nil || r.CancelRequested {
		return fx
	}
	r.CancelRequested = true
	if r.State == Running {
		return append(fx, Effect{Change: RunStopping, Run: r, Job: r.owner})
	}
	to := Cancelled
	if r.Attempt > 0 { // it was tried: it has been started
		to = Stopped
	}
	return s.end(r, to, c.JobNextMs, atMs, fx)
}

// end makes a run terminal and takes it out of the slot.
func (s *Slot) end(r *Run, to State, jobNextMs, atMs int64, fx []Effect) []Effect {
	s.move(r, to)
	s.remove(r)
	delete(s.Live, to) // only live states are counted
	r.FinishedMs, r.RetryMs = atMs, 0
	j := r.owner
	if to == Succeeded {
		j.Succeeded++
	} else {
		j.Failed++
	}
	j.LastState, j.LastRun, j.LastEndMs = to, r.ID, atMs
	if j.Current() {
		fx = append(fx, Effect{Change: JobChanged, Job: j})
		if jobNextMs > 0 {
			j.NextMs = jobNextMs
			fx = append(fx, Effect{Change: JobPlanned, Job: j})
		}
	}
	return append(fx, Effect{Change: RunEnded, Run: r, Job: j})
}

// shownNextMs is the next planned time that people see: an armed one counts.
func (j *Job) shownNextMs() int64 {
	next := j.NextMs
	for _, r := range j.armed {
		if next == 0 || r.PlannedMs < next {
			next = r.PlannedMs
		}
	}
	return next
}
