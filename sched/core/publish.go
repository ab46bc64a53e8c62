package core

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/event"
	"github.com/wheelworkhq/wheelwork/job"
)

// This file starts jobs by events of other programs (ADR 67). The partition in which an app began
// takes its events, and has all jobs with a trigger.

// turnRuns is the number of runs after which the other events of a message wait for a turn of their own.
const turnRuns = 1_000

// SourceOfEvents returns the definition of an event source; nil: there is none. It is immutable.
func (cm *Commands) SourceOfEvents(app, name string) *apiv1.EventSource {
	a := cm.l.State.apps[app]
	if a == nil || a.gone() || a.primary() != "" {
		return nil
	}
	return a.eventSource(name)
}

// EventMessage is what a sender has sent by an event source, and how much of it has started its jobs.
type EventMessage struct {
	App, Source string
	Events      []event.Event
	TraceParent string

	Runs []string // that the events have started, now or before
	next int      // the event to begin with
}

// StartJobs starts the jobs whose trigger fits the events of a message, as many of them as one turn takes.
// Call it again while done is false. After an error it may have started some of them: the same
// message can be sent again, and starts no job twice.
func (cm *Commands) StartJobs(m *EventMessage) (done bool, err error) {
	started := 0
	for ; m.next < len(m.Events); m.next++ {
		if started >= turnRuns {
			return false, nil
		}
		e := &m.Events[m.next]
		of := slices.Clone(cm.l.relations.startedBy(jobKey{m.App, e.Type}))
		slices.SortFunc(of, func(a, b *job.Job) int { return strings.Compare(a.Name(), b.Name()) })
		for _, j := range of {
			if j.Paused() || !here(j.Slot()) || !j.Event().Fits(m.Source, e.Fields) {
				continue
			}
			t := &Trigger{
				App: m.App, Name: j.Name(), HasInput: true, Input: e.JSON, TraceParent: m.TraceParent, By: "event source " + m.Source, Why: job.ByEvent, job: j,
			}
			t.SetKey(eventKey(m.Source, e))
			id, duplicate, err := cm.TriggerJob(t)
			if err != nil && !duplicate { // an id names an event: one with other data is the same event
				return false, err
			}
			m.Runs = append(m.Runs, id.String())
			started++
		}
	}
	return true, nil
}

// eventKey returns the idempotency key of the runs of an event. Source and id name an event of
// CloudEvents, and event sources do not see each other's.
func eventKey(source string, e *event.Event) string {
	sum := sha256.Sum256([]byte(source + "\x00" + e.Source + "\x00" + e.ID))
	return "event:" + hex.EncodeToString(sum[:])
}

// EventSources returns the event sources of an app by name.
func (cm *Commands) EventSources(app string) (all []*apiv1.EventSource) {
	a := cm.l.State.apps[app]
	if a == nil {
		return nil
	}
	for _, d := range a.slots[job.ModuleSlot].DefinitionsOf(job.KindEventSource) {
		all = append(all, d.(*apiv1.EventSource))
	}
	return all
}
