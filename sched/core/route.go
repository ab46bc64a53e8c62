package core

import (
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// park keeps an unplaceable run out of the ready queue until a placement timer is due.
func (di *dispatcher) park(r *job.Run) {
	di.unplaceable = append(di.unplaceable, r)
	if di.placementAt == 0 {
		di.retryPlacementAt(di.l.clock.nowMs + parkTime)
	}
}

const (
	// parkTime is how long an unplaceable run is parked at most, in ms. It bounds the
	// delay after a change that wakes no timer: a host connects, or its load falls.
	parkTime = 100
	// minParkTime is how long an unplaceable run is parked at least, in ms: one pass over
	// all parked runs for each result costs too much. With more than maxEagerParked runs
	// only parkTime counts.
	minParkTime    = 10
	maxEagerParked = 1000
)

// placementTimer returns the parked runs to the ready queue. It is valid while at is
// loop.placementAt.
type placementTimer struct{ at int64 }

func (x placementTimer) fire(l *Loop) {
	if x.holds(l, x.at) {
		l.Dispatcher.unpark()
	}
}

func (x placementTimer) holds(l *Loop, _ int64) bool { return x.at == l.Dispatcher.placementAt }

func (di *dispatcher) retryPlacementAt(at int64) {
	di.placementAt = at
	di.l.timing.wheel.add(at, placementTimer{at})
}

// hostFreed brings the placement timer forward when a host gets a free slot: a parked run
// of high priority must not wait for parkTime while a run of lower priority takes the
// slot.
func (di *dispatcher) hostFreed() {
	if at := max(di.l.clock.nowMs, di.placedMs+minParkTime); di.placementAt > at && len(di.unplaceable) <= maxEagerParked {
		di.retryPlacementAt(at)
	}
}

// unpark returns the parked runs to the ready queue.
func (di *dispatcher) unpark() {
	di.placementAt, di.placedMs = 0, di.l.clock.nowMs
	unplaceable := di.unplaceable
	di.unplaceable = nil
	for _, r := range unplaceable {
		if di.l.timing.due(r) {
			di.enqueue(r)
		}
	}
}

// fanOut records the fan-out of a due run into parts. Without a host for a broadcast, or
// without room in the journal, the run waits.
func (di *dispatcher) fanOut(r *job.Run) {
	if di.l.commits.cramped() {
		di.l.timing.after(armWindow, &readmitTimer{r: r})
		return
	}
	f := &apiv1.Fanned{Run: r.ID[:], Parts: r.Policy.Shards}
	if r.Policy.Map {
		f.Parts, f.Window = 1, job.MapWindow
	}
	switch {
	case r.Fan != nil && r.Fan.Parts > 0: // a retry has the same parts as the first attempt
		f.Parts = r.Fan.Parts
	case r.Policy.Broadcast && di.l.Sessions.recoveryLeft() > 0:
		di.l.timing.after(di.l.Sessions.recoveryLeft().Milliseconds()+1, &readmitTimer{r: r})
		return
	case r.Policy.Broadcast:
		cs := di.candidatesOf(r.App)
		for i := range cs.list {
			cs.list[i].Credits = max(cs.list[i].Credits, 1) // a host that is busy now gets its part later
		}
		for i, why := range cs.reasons(r) {
			if why.None() {
				f.Hosts = append(f.Hosts, cs.list[i].ID)
			}
		}
		if f.Parts = int32(len(f.Hosts)); f.Parts == 0 {
			di.park(r)
			return
		}
	}
	if r.Fan != nil {
		f.Only = r.Fan.Only
	}
	di.l.commits.record(r.Slot(), &apiv1.Record{Kind: &apiv1.Record_Fanned{Fanned: f}})
}
