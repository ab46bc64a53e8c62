package job

import (
	"slices"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

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
	Cause           RunID      // the run that this one retries or follows, or whose node it is; zero: none
	Node            string     // name of the node of Cause, a run of a workflow; "": none
	Nodes           *Nodes     // nil unless the run is of a workflow and has begun, or continues an earlier run
	Pin             *apiv1.Pin // the version to which the job's alias resolved; nil: the job names no alias. Immutable
	Fan             *Fan       // nil unless the run is a part, has parts, or was requested with some parts only

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

// Fan is the state of a run in a fan-out, as one of the parts or as their parent.
type Fan struct {
	Parent RunID  // of a part; zero: this run is the parent
	Part   int32  // of a part: its number, from 0
	Parts  int32  // number of parts
	Pinned string // of a part of a broadcast: the host that runs it

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
