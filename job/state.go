package job

// State is where a run stands. The texts are part of the API.
type State string

// The states. A run is live until it reaches a terminal state, and never leaves
// that again.
const (
	Armed   State = "armed"   // planned and durable, ahead of its time
	Queued  State = "queued"  // due, waits for a host
	Running State = "running" // sent to a host
	Waiting State = "waiting" // failed, will be tried again

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

var states = [...]State{Armed, Queued, Running, Waiting, Succeeded, Failed, TimedOut, Stopped, Cancelled, Skipped, Missed, ""}

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
	case Running:
		return 2
	case Waiting:
		return 3
	case Succeeded:
		return 4
	case Failed:
		return 5
	case TimedOut:
		return 6
	case Stopped:
		return 7
	case Cancelled:
		return 8
	case Skipped:
		return 9
	case Missed:
		return 10
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
