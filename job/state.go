package job

// State is where a run stands. The texts are part of the API.
type State string

// The states. A run is live until it reaches a terminal state, and never leaves
// that again.
const (
	Armed   State = "armed"   // planned and durable, ahead of its time
	Queued  State = "queued"  // due, waits for a host
	Running State = "running" // sent to a host; what the API shows of it may be one of the next two
	Waiting State = "waiting" // failed, will be tried again

	// What the API shows of a running run whose host tells starts. They are in no record
	// or row.
	Dispatched State = "dispatched" // its handler has not started, as far as the host has told
	Sleeping   State = "sleeping"   // its handler sleeps, and holds no slot of the host

	Succeeded State = "succeeded"
	Failed    State = "failed"
	TimedOut  State = "timed_out"
	Stopped   State = "stopped"   // ended by request, confirmed by its host
	Cancelled State = "cancelled" // ended by request before it started
	Skipped   State = "skipped"   // not run, as its overlap policy demands
	Missed    State = "missed"    // not run, as its misfire policy demands
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

// States lists every state in the order of a run's life.
func States() []State { return states[:len(states)-1] }

// Ordinal is the place of the state in States; of a state that is none it is
// the place behind them.
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

// Trigger says what caused a run. The texts are part of the API.
type Trigger string

// The triggers.
const (
	BySchedule   Trigger = "schedule"
	ByHand       Trigger = "manual"
	ByBackfill   Trigger = "backfill"   // a planned time of the schedule, made up for
	ByDependency Trigger = "dependency" // a run of another job ended
	ByRetry      Trigger = "retry"      // of a run that had ended
	ByFanout     Trigger = "fanout"     // a part of another run
	ByWorkflow   Trigger = "workflow"   // a node of a run of a workflow
	ByHandler    Trigger = "handler"    // enqueued by the handler of another run
)

// Triggers lists every trigger.
func Triggers() []Trigger {
	return []Trigger{BySchedule, ByHand, ByBackfill, ByDependency, ByRetry, ByFanout, ByWorkflow, ByHandler}
}
