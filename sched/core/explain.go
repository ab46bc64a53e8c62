package core

import (
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/reason"
	"github.com/wheelworkhq/wheelwork/sched/fair"
	"github.com/wheelworkhq/wheelwork/sched/hosts"
)

// Explain returns the state of a live run, the reason for it and, if the run waits for a
// host, why each host may or may not take it.
func (di *dispatcher) Explain(r *job.Run) *apiv1.ExplainRunResponse {
	resp := &apiv1.ExplainRunResponse{State: string(r.State)}
	var why reason.Reason
	switch {
	case r.HasParts():
		why = reason.New(reason.PartsEnded, "n", number(r.Fan.Succeeded+r.Fan.Failed), "all", number(r.Fan.Parts))
	case r.HasNodes():
		why = explainNodes(r)
	case r.State == job.Running:
		resp.State, why = string(di.l.Sessions.state(r)), di.l.Sessions.whyRunning(r)
	default:
		var state job.State
		state, why = di.whyWaiting(r)
		resp.State = string(state)
		if r.Policy.Workflow { // a workflow needs no host
			if why.None() {
				why = reason.New(reason.WorkflowStarts)
			}
			break
		}
		if forHost := di.explainHosts(r, resp); why.None() {
			why = forHost
		}
	}
	resp.Why, resp.Reason = why.Text(), why.Message()
	return resp
}

// whyWaiting returns the state of a run that has not started, and the reason why it waits, if
// that is not the lack of a host.
func (di *dispatcher) whyWaiting(r *job.Run) (job.State, reason.Reason) {
	oq := di.l.admission.overlapQueues[jobKey{r.App, r.Job}]
	switch {
	case r.State == job.Armed && !di.l.timing.due(r):
		return r.State, di.l.timing.whyArmed(r)
	case r.State == job.Waiting && !di.l.timing.due(r):
		return r.State, reason.New(reason.NextAttempt)
	case oq != nil && slices.Contains(oq.held, r):
		return job.Queued, reason.New(reason.OverlapQueue, "n", strconv.Itoa(len(oq.in)))
	case di.l.admission.rates[jobKey{r.App, ""}] != nil && di.l.admission.rates[jobKey{r.App, ""}].waiting > 0:
		return job.Queued, reason.New(reason.AppRate)
	case r.Policy.Rate > 0 && di.l.admission.rates[jobKey{r.App, r.Job}] != nil && di.l.admission.rates[jobKey{r.App, r.Job}].waiting > 0:
		return job.Queued, reason.New(reason.JobRate, "n", number(r.Policy.Rate), "per", r.Policy.RatePer.String())
	case di.l.commits.cramped():
		return job.Queued, reason.New(reason.DiskFull)
	case ownerOf(r.Slot()).pausedAt(di.l.clock.nowMs) != nil && !r.Policy.Workflow:
		return job.Queued, whyPaused(r.App, ownerOf(r.Slot()).pausedAt(di.l.clock.nowMs))
	case ownerOf(r.Slot()).room(di.l.clock.nowMs) == 0 && !r.Policy.Workflow:
		return job.Queued, reason.New(reason.AppLiveRuns, "n", strconv.Itoa(fairOf(r).AtHosts), "app", r.App)
	case di.l.Sessions.maybeDispatched(r):
		return job.Queued, reason.New(reason.MaybeDispatched)
	case r.Policy.Broadcast && !r.IsPart() && di.l.Sessions.recoveryLeft() > 0:
		return job.Queued, reason.New(reason.BroadcastRecovery)
	case di.l.Demand.awaits(r):
		return job.Queued, reason.New(reason.BroadcastBorrows)
	}
	return job.Queued, reason.Reason{}
}

// explainHosts adds to resp why each host may or may not take a run, and returns the reason
// that follows for the run.
func (di *dispatcher) explainHosts(r *job.Run, resp *apiv1.ExplainRunResponse) reason.Reason {
	cs := di.candidatesOf(r.App)
	able := 0
	for i, why := range cs.reasons(r) {
		if why.None() {
			why = di.whyNot(cs.hosts[i], r)
		}
		resp.Hosts = append(resp.Hosts, &apiv1.HostVerdict{
			Host: cs.list[i].ID, Name: cs.list[i].Name, Able: why.None(), Why: why.Text(), Reason: why.Message(),
		})
		if why.None() {
			able++
		}
	}
	if able > 0 {
		return reason.New(reason.BehindOthers)
	}
	if called := di.l.Demand.called(r); !called.None() {
		return called
	}
	if host := pinnedTo(r); host != "" && !r.IsPart() {
		return di.l.Sessions.whyBound(host)
	}
	if len(cs.list) == 0 {
		return reason.New(reason.NoHost)
	}
	return reason.New(reason.NoneAble)
}

func number(n int32) string { return strconv.Itoa(int(n)) }

// maxNamedNodes bounds the nodes that a reason names.
const maxNamedNodes = 10

// explainNodes returns the progress of a run of a workflow.
func explainNodes(r *job.Run) reason.Reason {
	over := 0
	var now []string
	for _, n := range r.Nodes.Rows {
		switch s := job.State(n.State); {
		case s.Terminal():
			over++
		case s == job.Running:
			now = append(now, n.Name)
		}
	}
	ended, all := strconv.Itoa(over), strconv.Itoa(len(r.Nodes.Rows))
	if len(now) == 0 {
		return reason.New(reason.NodesEnded, "n", ended, "all", all)
	}
	if len(now) > maxNamedNodes {
		now = append(now[:maxNamedNodes], "…")
	}
	return reason.New(reason.NodesUnderWay, "n", ended, "all", all, "names", strings.Join(now, ", "))
}

// whyNot returns why a host that could execute a run is not sent it; no reason if the host
// admits the run.
func (di *dispatcher) whyNot(h *hosts.Host, r *job.Run) reason.Reason {
	pace := di.paces.Of(r)
	switch {
	case di.admits(h, r, pace):
		return reason.Reason{}
	case rated(r) && h.Held.Busy() >= int(h.Hello.Slots):
		return reason.New(reason.NoSlotRate)
	case fair.IsQuick(pace):
		return reason.New(reason.HoldsEnough)
	case h.Held.Busy() >= int(h.Hello.Slots) && pace == 0:
		return reason.New(reason.NoSlotNotMeasured)
	case h.Held.Busy() >= int(h.Hello.Slots):
		return reason.New(reason.NoSlotSlow)
	case pace == 0:
		return reason.New(reason.ReservedNotMeasured)
	}
	return reason.New(reason.ReservedSlow)
}

// whyBound returns why a run waits that only one host may execute, and that this host does not take.
func (se *Sessions) whyBound(id string) reason.Reason {
	h := se.hosts[id]
	if h == nil {
		return reason.New(reason.BoundHostUnknown, "host", id)
	}
	return reason.New(reason.BoundHost, "host", h.Hello.Name)
}

// whyRunning returns where a run is that a host has, and what it waits for.
func (se *Sessions) whyRunning(r *job.Run) reason.Reason {
	h, attempt := se.hosts[r.Host], number(r.Attempt)
	if h == nil {
		return reason.New(reason.OnHost, "attempt", attempt, "host", r.Host)
	}
	on := func(code string, more ...string) reason.Reason {
		return reason.New(code, append(more, "attempt", attempt, "host", h.Hello.Name)...)
	}
	if !h.Connected {
		return on(reason.OnLostHost, "lease", se.l.cfg.HostLease.String())
	}
	state := se.state(r)
	module := h.Modules[r.Shape().Digest]
	switch {
	case state == job.Sleeping:
		return on(reason.Sleeps)
	case state != job.Dispatched && h.Hello.GetRecalls():
		return on(reason.OnHost)
	case module.GetState() == "compiling":
		return on(reason.ModuleCompiles)
	case state != job.Dispatched:
		return on(reason.OnHost)
	case r.Mark&isRecalled != 0:
		return on(reason.Recalled)
	case h.Held.Slow >= int(h.Hello.Slots) && h.Hello.Slots > 0:
		return on(reason.WaitsForSlot, "n", strconv.Itoa(int(h.Hello.Slots)))
	}
	return on(reason.StartNotReported)
}
