package job

import (
	"slices"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Job is a definition, what its schedule came to, and what its runs came to.
// There may be a million, most of them asleep, so it is laid out for whoever has
// to look at all of them: the garbage collector sees the three words in front and
// nothing behind, and what few jobs have is elsewhere. Callers outside this
// package read it only, on the goroutine that owns the slot.
type Job struct {
	text  string // the name, and behind it what the definition has of its own: see spec. In the slot's texts
	kind  *kind  // what it has in common with others; never nil
	extra *extra // nil: it has none

	NextMs   int64 // the next planned time that is not armed yet; 0: none
	live     int32 // runs that are not terminal
	revision uint32
	number   uint32 // in the table of the slot
	nameLen  uint8
	last     uint8 // the ordinal of the state of the last run that has ended
	// Mark and Pace are for the owner of the slot. The fold does not look at them, and
	// clears Pace when the job gets another handler.
	Mark      uint8
	Pace      uint8
	Planned   int64 // planned times of the schedule so far, those that did not run included
	succeeded int64
	failed    int64 // neither succeeded nor skipped
	lastEndMs int64 // 0: no run has ended
	lastRun   RunID
	etag      etag
}

// kind is what jobs of a slot have in common whose definitions differ only in
// their own fields. It is shared and not written to.
type kind struct {
	slot   *Slot // that holds the jobs, or held them; nil: the run of a deleted job is all there is of them
	shape  *Shape
	policy *Policy
	gone   bool // they were deleted
}

// extra is what few jobs have, or for a short time.
type extra struct {
	route *RouteState // what the routing strategy remembers; nil when it remembers nothing
	// armed are the runs that were planned and not sent to a host yet.
	// Invariant: each is in Slot.Runs with State Armed.
	armed []*Run
	// met are the jobs whose runs count for the dependency already.
	met []string
	// given are planned times to come that were given up. Few: those that have
	// passed are dropped.
	given []int64
	// scheduled counts the live runs of the schedule, skipped those runs that have
	// ended as such.
	scheduled, skipped int64
}

// extras returns what there is beside, to write to.
func (j *Job) extras() *extra {
	if j.extra == nil {
		j.extra = &extra{}
	}
	return j.extra
}

// tidy drops what there is beside when it has become empty.
func (j *Job) tidy() {
	if x := j.extra; x != nil && x.route == nil && x.scheduled == 0 && x.skipped == 0 && len(x.armed)+len(x.met)+len(x.given) == 0 {
		j.extra = nil
	}
}

// Name is unique in the app. At most [maxName] bytes.
func (j *Job) Name() string { return j.text[:j.nameLen] }

func (j *Job) spec() spec { return spec{j.kind.shape, j.text[j.nameLen:]} }

// Number is the job's in its slot: see [Jobs.At].
func (j *Job) Number() uint32 { return j.number }

// Policy says how its runs behave. It is not written to.
func (j *Job) Policy() *Policy { return j.kind.policy }

// Slot returns the slot that holds the job, or held it.
func (j *Job) Slot() *Slot { return j.kind.slot }

// Current reports whether the job is still the slot's job of its name.
func (j *Job) Current() bool { return j.kind.slot != nil && !j.kind.gone }

// drop says that the slot does not hold the job any more.
func (j *Job) drop() {
	gone := *j.kind
	gone.gone = true
	j.kind = &gone
}

// Live counts the runs that are not terminal.
func (j *Job) Live() int64 { return int64(j.live) }

// Ended counts the runs that have ended.
func (j *Job) Ended() int64 { return j.succeeded + j.failed + j.skipped() }

// skipped counts the runs that were.
func (j *Job) skipped() int64 {
	if j.extra == nil {
		return 0
	}
	return j.extra.skipped
}

// lastState is that of the last run that has ended; "": none has.
func (j *Job) lastState() State {
	if j.lastEndMs == 0 {
		return ""
	}
	return states[j.last]
}

// RouteState is what the routing strategy remembers; nil when it remembers
// nothing. It is not written to.
func (j *Job) RouteState() *RouteState {
	if j.extra == nil {
		return nil
	}
	return j.extra.route
}

// Dependency says on which jobs the job depends; nil: on none. It is not written to.
func (j *Job) Dependency() *Dependency { return j.kind.shape.Dependency }

// Nodes returns the jobs of a workflow's nodes, each once; nil when the job is
// none. It is not written to.
func (j *Job) Nodes() []string { return j.kind.shape.Nodes }

// Labels are those of the definition. They are not written to.
func (j *Job) Labels() map[string]string { return j.kind.shape.Labels }

// Misfire is the misfire policy of the job.
func (j *Job) Misfire() Misfire { return j.kind.shape.Misfire }

// LastEndMs is when a run of the job ended last, in Unix milliseconds; 0: none has.
func (j *Job) LastEndMs() int64 { return j.lastEndMs }

// Revision counts the changes of the definition.
func (j *Job) Revision() int64 { return int64(j.revision) }

// Etag returns the fingerprint of what the job's owner decided.
func (j *Job) Etag() string { return j.etag.String() }

// Schedule returns the schedule of the job as bytes of an apiv1.Schedule.
func (j *Job) Schedule() string { return j.spec().schedule() }

// Calendars returns those that the schedule names.
func (j *Job) Calendars() []string {
	if _, named := j.spec().timing(); !named {
		return nil
	}
	return calendarsOf(j.Definition())
}

// Definition decodes the definition. The caller owns it.
func (j *Job) Definition() *apiv1.Job {
	d := j.spec().decode(j.Slot().App, j.Name())
	d.Revision, d.Etag = j.Revision(), j.Etag()
	return d
}

// armed are the runs that were planned and not sent to a host yet.
func (j *Job) armed() []*Run {
	if j.extra == nil {
		return nil
	}
	return j.extra.armed
}

// Armed reports whether a run was planned and not sent to a host yet.
func (j *Job) Armed() bool { return len(j.armed()) > 0 }

// scheduled counts the live runs of the schedule.
func (j *Job) scheduled() int64 {
	if j.extra == nil {
		return 0
	}
	return j.extra.scheduled
}

// giveUp notes that a planned time does not run, if it is still to come: it must
// not be planned once more when the schedule is set anew.
func (j *Job) giveUp(plannedMs, atMs int64) {
	if plannedMs <= atMs && (j.extra == nil || len(j.extra.given) == 0) {
		return
	}
	x := j.extras()
	x.given = slices.DeleteFunc(x.given, func(ms int64) bool { return ms <= atMs })
	if plannedMs > atMs && !slices.Contains(x.given, plannedMs) {
		x.given = append(x.given, plannedMs)
	}
	j.tidy()
}

// GaveUp reports whether a planned time to come was skipped by request, or its
// run cancelled.
func (j *Job) GaveUp(plannedMs int64) bool {
	return j.extra != nil && slices.Contains(j.extra.given, plannedMs)
}

// Met reports whether a run of upstream counts for the job's dependency already.
func (j *Job) Met(upstream string) bool {
	return j.extra != nil && slices.Contains(j.extra.met, upstream)
}

// forget says that the dependency was completed: it begins anew.
func (j *Job) forget() {
	if j.extra != nil {
		j.extra.met = nil
		j.tidy()
	}
}

// NextArmed returns the first armed run whose time has not come, or nil.
func (j *Job) NextArmed(nowMs int64) *Run {
	var next *Run
	for _, r := range j.armed() {
		if r.PlannedMs > nowMs && (next == nil || r.PlannedMs < next.PlannedMs) {
			next = r
		}
	}
	return next
}

// Scheduled returns how many live runs the schedule has planned, without those
// that are armed and not due.
func (j *Job) Scheduled(nowMs int64) int64 {
	n := j.scheduled()
	for _, r := range j.armed() {
		if r.PlannedMs > nowMs {
			n--
		}
	}
	return n
}

// PlannedBy returns Planned less what is armed and not due: what is left of it
// when that is revoked.
func (j *Job) PlannedBy(nowMs int64) int64 {
	n := j.Planned
	for _, r := range j.armed() {
		if r.PlannedMs > nowMs {
			n -= 1 + r.Covers
		}
	}
	return n
}

// shownNextMs is the next planned time that people see: an armed one counts.
func (j *Job) shownNextMs() int64 {
	next := j.NextMs
	for _, r := range j.armed() {
		if next == 0 || r.PlannedMs < next {
			next = r.PlannedMs
		}
	}
	return next
}

// count counts a run that has ended.
func (j *Job) count(r *Run, atMs int64) {
	switch r.State {
	case Succeeded:
		j.succeeded++
	case Skipped:
		j.extras().skipped++
	default:
		j.failed++
	}
	j.last, j.lastRun, j.lastEndMs = uint8(r.State.Ordinal()), r.ID, atMs
	if j.Current() {
		r.Nth = j.Ended()
	}
}
