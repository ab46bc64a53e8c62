package job

import (
	"slices"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/route"
	"github.com/wheelworkhq/wheelwork/job/schedule"
	"github.com/wheelworkhq/wheelwork/job/trigger"
)

// Job is a definition with the results of its schedule and of its runs. There may be a
// million jobs, most of them idle, so the layout suits loops over all of them: the three
// pointers come first, so that the garbage collector scans no further, and state that few
// jobs have is in extra. With a million jobs a collection took 0.15 of the processor time
// after this change and those of the tables (gctrace of e2e/batch100 in bench/sched, ADR
// 27). Callers outside this package only read a job, on the goroutine
// that owns the slot.
type Job struct {
	text  string // the name, then the definition's own bytes (see spec.own), in the arena of the slot
	kind  *kind  // shared with equal definitions; never nil
	extra *extra // nil: the job has none

	NextMs   int64 // the next planned time that is not armed yet; 0: none
	live     int32 // runs that are not terminal
	revision uint32
	number   uint32 // in the table of the slot, see [Jobs.At]
	nameLen  uint8
	last     uint8 // [State.Ordinal] of the last run that has ended
	// Mark and Pace belong to the owner of the slot. Apply does not read them; it clears
	// Pace when the job gets another handler.
	Mark      uint8
	Pace      uint8
	Planned   int64 // planned times of the schedule so far, including those that did not run
	succeeded int64
	failed    int64 // runs that neither succeeded nor were skipped
	lastEndMs int64 // 0: no run has ended
	lastRun   RunID
	etag      etag
}

// kind is what the jobs of a slot share if their definitions differ only in their own
// fields. It is immutable.
type kind struct {
	slot   *Slot // the slot that holds the jobs, or held them; nil: only a live run of a deleted job remains
	shape  *Shape
	policy *Policy
	gone   bool // the job was deleted
}

// extra is state that few jobs have, or that jobs have only for a short time.
type extra struct {
	route *route.State // state of the routing strategy; nil: none
	// armed are the runs that are planned and have not been dispatched. Invariant: each
	// is in Slot.Runs with State Armed.
	armed []*Run
	// met are the upstream jobs of which a run already counts for the dependency.
	met []string
	// given are future planned times that do not run: see GaveUp. Times that have passed
	// are removed, so there are few.
	given []int64
	// scheduled counts the live runs of the schedule, skipped the runs that ended as
	// skipped.
	scheduled, skipped int64
	// successMs is the end of the last run that succeeded, if the last run did not; 0: none has.
	successMs int64
}

// extras returns the extra of the job, and creates it if needed.
func (j *Job) extras() *extra {
	if j.extra == nil {
		j.extra = &extra{}
	}
	return j.extra
}

// tidy removes the extra of the job if it is empty.
func (j *Job) tidy() {
	if x := j.extra; x != nil && x.route == nil && x.scheduled == 0 && x.skipped == 0 && x.successMs == 0 && len(x.armed)+len(x.met)+len(x.given) == 0 {
		j.extra = nil
	}
}

// Name returns the name of the job, which is unique in the app and has at most [naming.MaxName]
// bytes.
func (j *Job) Name() string { return j.text[:j.nameLen] }

func (j *Job) spec() spec { return spec{j.kind.shape, j.text[j.nameLen:]} }

// Number returns the number of the job in its slot: see [Jobs.At].
func (j *Job) Number() uint32 { return j.number }

// Policy returns the policy of its runs. It is immutable.
func (j *Job) Policy() *Policy { return j.kind.policy }

// Slot returns the slot that holds the job, or held it. It is nil for the owner of a
// restored run whose job was deleted.
func (j *Job) Slot() *Slot { return j.kind.slot }

// Current reports whether the slot still holds the job.
func (j *Job) Current() bool { return j.kind.slot != nil && !j.kind.gone }

// drop records that the slot no longer holds the job.
func (j *Job) drop() {
	gone := *j.kind
	gone.gone = true
	j.kind = &gone
}

// Live counts the runs that are not terminal.
func (j *Job) Live() int64 { return int64(j.live) }

// Ended counts the runs that have ended.
func (j *Job) Ended() int64 { return j.succeeded + j.failed + j.skipped() }

// skipped counts the runs that ended as skipped.
func (j *Job) skipped() int64 {
	if j.extra == nil {
		return 0
	}
	return j.extra.skipped
}

// lastState returns the state of the last run that has ended; "": none has.
func (j *Job) lastState() State {
	if j.lastEndMs == 0 {
		return ""
	}
	return states[j.last]
}

// RouteState returns the state of the routing strategy, or nil if there is none. The
// caller does not modify it.
func (j *Job) RouteState() *route.State {
	if j.extra == nil {
		return nil
	}
	return j.extra.route
}

// Dependency returns the dependency of the job on other jobs; nil: none. It is immutable.
func (j *Job) Dependency() *Dependency { return j.kind.shape.Dependency }

// Event returns which events start the job; nil: none do. It is immutable.
func (j *Job) Event() *trigger.Trigger { return j.kind.shape.Event }

// Alerts returns the alert rules in the document of the job. Callers must not modify them.
func (j *Job) Alerts() []*apiv1.JobAlert { return j.kind.shape.Alerts }

// Paused reports whether the schedule, the dependency and the trigger of the job start no run.
func (j *Job) Paused() bool { return j.kind.shape.Paused }

// ResumesMs returns when the server ends the pause of the job, in Unix ms; 0: it does not.
func (j *Job) ResumesMs() int64 { return j.kind.shape.ResumesMs }

// Nodes returns the jobs of the nodes of a workflow, each once; nil if the job is not a
// workflow. The caller does not modify it.
func (j *Job) Nodes() []string { return j.kind.shape.Nodes }

// Labels returns the labels of the definition. The caller does not modify them.
func (j *Job) Labels() map[string]string { return j.kind.shape.Labels }

// OwnedBy returns the user or the group that is responsible for the job; "": none is named.
func (j *Job) OwnedBy() string { return j.kind.shape.Owner }

// HasLabels reports whether labels has all entries of wanted.
func HasLabels(labels, wanted map[string]string) bool {
	for k, v := range wanted {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// Misfire returns the misfire policy of the job.
func (j *Job) Misfire() schedule.Misfire { return j.kind.shape.Misfire }

// LastEndMs returns when the last run of the job ended, in Unix milliseconds; 0: none
// has.
func (j *Job) LastEndMs() int64 { return j.lastEndMs }

// Revision counts the changes of the definition.
func (j *Job) Revision() int64 { return int64(j.revision) }

// Etag returns the fingerprint of the definition: see [Etag].
func (j *Job) Etag() string { return j.etag.String() }

// Schedule returns the schedule of the job as bytes of an apiv1.Schedule.
func (j *Job) Schedule() string { return j.spec().schedule() }

// Calendars returns the names of the calendars in the schedule.
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

// armed returns the runs that are planned and have not been dispatched.
func (j *Job) armed() []*Run {
	if j.extra == nil {
		return nil
	}
	return j.extra.armed
}

// Armed reports whether a run is planned and has not been dispatched.
func (j *Job) Armed() bool { return len(j.armed()) > 0 }

// scheduled returns the number of live runs of the schedule.
func (j *Job) scheduled() int64 {
	if j.extra == nil {
		return 0
	}
	return j.extra.scheduled
}

// giveUp records that a planned time does not run, if it is in the future: it must not be
// planned again when the schedule is set again.
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

// GaveUp reports whether a future planned time was skipped by request, or its run
// cancelled.
func (j *Job) GaveUp(plannedMs int64) bool {
	return j.extra != nil && slices.Contains(j.extra.given, plannedMs)
}

// Met reports whether a run of upstream already counts for the job's dependency.
func (j *Job) Met(upstream string) bool {
	return j.extra != nil && slices.Contains(j.extra.met, upstream)
}

// forget clears the upstream runs that count, because the dependency is complete.
func (j *Job) forget() {
	if j.extra != nil {
		j.extra.met = nil
		j.tidy()
	}
}

// NextArmed returns the armed run with the earliest planned time after now, or nil.
func (j *Job) NextArmed(nowMs int64) *Run {
	var next *Run
	for _, r := range j.armed() {
		if r.PlannedMs > nowMs && (next == nil || r.PlannedMs < next.PlannedMs) {
			next = r
		}
	}
	return next
}

// Scheduled returns the number of live runs of the schedule, without armed runs that are
// not due.
func (j *Job) Scheduled(nowMs int64) int64 {
	n := j.scheduled()
	for _, r := range j.armed() {
		if r.PlannedMs > nowMs {
			n--
		}
	}
	return n
}

// PlannedBy returns Planned without the planned times of armed runs that are not due. It
// is the value that Planned has after these runs are revoked.
func (j *Job) PlannedBy(nowMs int64) int64 {
	n := j.Planned
	for _, r := range j.armed() {
		if r.PlannedMs > nowMs {
			n -= 1 + r.Covers
		}
	}
	return n
}

// NextShownMs returns the next planned time for the API, in Unix milliseconds, which includes
// armed runs; 0: there is none.
func (j *Job) NextShownMs(nowMs int64) int64 {
	next := j.NextMs
	for _, r := range j.armed() {
		if next == 0 || r.PlannedMs < next {
			next = r.PlannedMs
		}
	}
	if next <= nowMs {
		return j.NextMs
	}
	return next
}

// count counts a run that has ended and sets its Nth.
func (j *Job) count(r *Run, atMs int64) {
	switch r.State {
	case Succeeded:
		j.succeeded++
	case Skipped:
		j.extras().skipped++
	default:
		j.failed++
	}
	switch {
	case r.State != Succeeded && j.lastState() == Succeeded:
		j.extras().successMs = j.lastEndMs
	case r.State == Succeeded && j.extra != nil:
		j.extra.successMs = 0
	}
	j.last, j.lastRun, j.lastEndMs = uint8(r.State.Ordinal()), r.ID, atMs
	if j.Current() {
		r.Nth = j.Ended()
	}
}

// SuccessMs returns the end of the last run that succeeded, in Unix ms; 0: none has.
func (j *Job) SuccessMs() int64 {
	switch {
	case j.lastState() == Succeeded:
		return j.lastEndMs
	case j.extra != nil:
		return j.extra.successMs
	}
	return 0
}

// Content returns the definition of the job. It shares memory with the job.
func (j *Job) Content() Content { return j.spec().content() }
