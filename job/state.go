package job

// State is the state of a run. The texts are part of the API.
type State string

// The states. A run is live until it reaches a terminal state, which it never leaves.
const (
	Armed   State = "armed"   // its planned time is durable and in the future
	Queued  State = "queued"  // due, and waits for a host
	Running State = "running" // dispatched to a host; the API may show one of the next two states instead
	Waiting State = "waiting" // an attempt failed, and another one follows

	// States that the API shows for a run in State Running whose host reports starts. No
	// record or row contains them.
	Dispatched State = "dispatched" // the handler has not started, as far as the host has reported
	Sleeping   State = "sleeping"   // the handler sleeps and has lent its execution slot

	Succeeded State = "succeeded"
	Failed    State = "failed"
	TimedOut  State = "timed_out"
	Stopped   State = "stopped"   // ended by request after it was started
	Cancelled State = "cancelled" // ended by request before it started
	Skipped   State = "skipped"   // not run because of its overlap policy
	Missed    State = "missed"    // not run because of its misfire policy
)

// Terminal reports whether a run in this state has ended.
func (s State) Terminal() bool {
	switch s {
	case Succeeded, Failed, TimedOut, Stopped, Cancelled, Skipped, Missed:
		return true
	}
	return false
}

var states = [...]State{Armed, Queued, Dispatched, Running, Sleeping, Waiting, Succeeded, Failed, TimedOut, Stopped, Cancelled, Skipped, Missed, ""}

// States returns all states in the order of a run's life.
func States() []State { return states[:len(states)-1] }

// Ordinal is the index of the state in States, or the length of States for an unknown
// state.
func (s State) Ordinal() int {
	switch s {
	case Armed:
		return 0
	case Queued:
		return 1
	case Dispatched:
		return 2
	case Running:
		return 3
	case Sleeping:
		return 4
	case Waiting:
		return 5
	case Succeeded:
		return 6
	case Failed:
		return 7
	case TimedOut:
		return 8
	case Stopped:
		return 9
	case Cancelled:
		return 10
	case Skipped:
		return 11
	case Missed:
		return 12
	}
	return len(states) - 1
}

// Trigger is what caused a run. The texts are part of the API.
type Trigger string

// The triggers.
const (
	BySchedule   Trigger = "schedule"
	ByHand       Trigger = "manual"
	ByBackfill   Trigger = "backfill"   // a planned time of the schedule, requested later
	ByDependency Trigger = "dependency" // a run of another job ended
	ByRetry      Trigger = "retry"      // a retry of a run that had ended
	ByFanout     Trigger = "fanout"     // a part of another run
	ByWorkflow   Trigger = "workflow"   // the run of a node of a workflow
	ByHandler    Trigger = "handler"    // enqueued by the handler of another run
	ByEvent      Trigger = "event"      // an event of another program
)

// Triggers returns all triggers.
func Triggers() []Trigger {
	return []Trigger{BySchedule, ByHand, ByBackfill, ByDependency, ByRetry, ByFanout, ByWorkflow, ByHandler, ByEvent}
}
