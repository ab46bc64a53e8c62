package life

import (
	"context"
	"fmt"
)

// Phase is a state of a partition on one server.
type Phase uint8

// The phases. A partition begins as a standby.
const (
	Standby   Phase = iota // the server follows the journal of another owner
	Taking                 // it requests the ownership from etcd
	Restoring              // it owns the partition, and reads the rest of the journal
	Declaring              // its scheduler runs, and no call reaches it yet
	Serving                // calls reach the scheduler
	Leaving                // the scheduler takes nothing new and writes what it has taken
	Reopening              // the store drops records that the journal has refused
	Stopped                // the end
	phases    = int(Stopped) + 1
)

var phaseNames = [phases]string{"standby", "taking", "restoring", "declaring", "serving", "leaving", "reopening", "stopped"}

// String returns the name of the phase.
func (p Phase) String() string { return phaseNames[p] }

// Event is the reason why a partition leaves a phase.
type Event uint8

// The events. The package comment says when each of them occurs.
const (
	Elected Event = iota
	Granted
	Refused
	Restored
	Declared
	HandOver
	Lost
	Ended
	Left
	Fenced
	Reopened
	Halted
	Failed
	events = int(Failed) + 1
)

var eventNames = [events]string{"elected", "granted", "refused", "restored", "declared", "hand-over", "lost", "ended", "left", "fenced", "reopened", "halted", "failed"}

// String returns the name of the event.
func (e Event) String() string { return eventNames[e] }

// table has the next phase for the events that a phase may have.
var table = [phases]map[Event]Phase{
	Standby:   {Elected: Taking, Halted: Stopped, Failed: Stopped},
	Taking:    {Granted: Restoring, Refused: Standby},
	Restoring: {Restored: Declaring, Lost: Standby, Halted: Stopped, Failed: Stopped},
	Declaring: {Declared: Serving, Lost: Leaving, Ended: Leaving, Halted: Leaving},
	Serving:   {HandOver: Leaving, Lost: Leaving, Ended: Leaving, Halted: Leaving},
	Leaving:   {Left: Standby, Fenced: Reopening, Failed: Stopped},
	Reopening: {Reopened: Standby, Failed: Stopped},
}

// Next returns the phase after an event. ok is false if the phase cannot have the event.
func Next(p Phase, e Event) (next Phase, ok bool) {
	next, ok = table[p][e]
	return next, ok
}

// Effects are the actions of a server in the phases of a partition. Each method works until it
// can return an event of its phase. An error stands for the event Failed.
type Effects interface {
	// Follow follows the journal: Elected or Halted.
	Follow(context.Context) (Event, error)
	// Take requests the ownership: Granted or Refused.
	Take(context.Context) (Event, error)
	// Restore starts the scheduler: Restored, Lost or Halted.
	Restore(context.Context) (Event, error)
	// Declare writes the apps of the partition to etcd: Declared, Lost, Ended or Halted.
	Declare(context.Context) (Event, error)
	// Serve lets calls reach the scheduler: HandOver, Lost, Ended or Halted.
	Serve(context.Context) (Event, error)
	// Leave stops the scheduler and gives up the ownership: Left or Fenced. It does not
	// end early with its context.
	Leave(context.Context) (Event, error)
	// Reopen opens the store again as after a crash: Reopened.
	Reopen(context.Context) (Event, error)
}

// Run carries a partition through its life. It returns when the partition is stopped, with
// the error that stopped it; nil: the process ends.
func Run(ctx context.Context, e Effects) error {
	effects := [Stopped]func(context.Context) (Event, error){
		Standby: e.Follow, Taking: e.Take, Restoring: e.Restore, Declaring: e.Declare, Serving: e.Serve, Leaving: e.Leave, Reopening: e.Reopen,
	}
	for phase := Standby; ; {
		event, err := effects[phase](ctx)
		if err != nil {
			event = Failed
		}
		next, ok := Next(phase, event)
		switch {
		case !ok && err != nil:
			return err
		case !ok:
			return fmt.Errorf("a partition cannot have the event %q in the phase %q: this is an error of the program", event, phase)
		case next == Stopped:
			return err
		}
		phase = next
	}
}
