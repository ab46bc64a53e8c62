package core

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched/fair"
	"github.com/wheelworkhq/wheelwork/sched/hosts"
)

// Plural returns one if n is 1, and otherwise the format many with n in it.
func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return fmt.Sprintf(many, n)
}

// haveEnded returns a text such as "2 of its 3 parts have ended".
func haveEnded(n, all int, what string) string {
	verb := "have"
	if n == 1 {
		verb = "has"
	}
	if all != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d of its %d %s %s ended", n, all, what, verb)
}

// Explain returns the state of a live run, the reason for it and, if the run waits for a
// host, why each host may or may not take it.
func (di *dispatcher) Explain(r *job.Run) *apiv1.ExplainRunResponse {
	resp := &apiv1.ExplainRunResponse{State: string(r.State)}
	oq := di.l.admission.overlapQueues[jobKey{r.App, r.Job}]
	switch {
	case r.HasParts():
		resp.Why = haveEnded(int(r.Fan.Succeeded+r.Fan.Failed), int(r.Fan.Parts), "part")
		return resp
	case r.HasNodes():
		resp.Why = explainNodes(r)
		return resp
	case r.State == job.Running:
		resp.State, resp.Why = string(di.l.Sessions.state(r)), di.l.Sessions.whyRunning(r)
		return resp
	case r.State == job.Armed && !di.l.timing.due(r):
		resp.Why = di.l.timing.whyArmed(r)
	case r.State == job.Waiting && !di.l.timing.due(r):
		resp.Why = "it waits for its next attempt"
	case oq != nil && slices.Contains(oq.held, r):
		resp.State, resp.Why = string(job.Queued), plural(len(oq.in), "1 run of the job is under way, and its overlap policy holds this one behind it", "%d runs of the job are under way, and its overlap policy holds this one behind them")
	case di.l.admission.rates[jobKey{r.App, ""}] != nil && di.l.admission.rates[jobKey{r.App, ""}].waiting > 0:
		resp.State, resp.Why = string(job.Queued), "the jobs of the app start no more often than its rate allows"
	case r.Policy.Rate > 0 && di.l.admission.rates[jobKey{r.App, r.Job}] != nil && di.l.admission.rates[jobKey{r.App, r.Job}].waiting > 0:
		resp.State, resp.Why = string(job.Queued), "the job starts at most "+plural(int(r.Policy.Rate), "once", "%d times")+" in "+r.Policy.RatePer.String()
	case di.l.commits.cramped():
		resp.State, resp.Why = string(job.Queued), "the server's disk is full: nothing starts until there is space on it"
	case di.l.Sessions.maybeDispatched(r):
		resp.State, resp.Why = string(job.Queued), "the server before this one may have sent it to a host, which has a moment to say so"
	case r.Policy.Broadcast && !r.IsPart() && di.l.Sessions.recoveryLeft() > 0:
		resp.State, resp.Why = string(job.Queued), "the server has just started, and a broadcast waits until its hosts are back"
	case di.l.Demand.awaits(r):
		resp.State, resp.Why = string(job.Queued), "a broadcast waits until the hosts of the app are here that work for other partitions of the cluster: they have been called"
	default:
		resp.State = string(job.Queued)
	}
	if r.Policy.Workflow { // a workflow needs no host
		resp.Why = cmp.Or(resp.Why, "it begins as soon as the server has room")
		return resp
	}
	cs := di.candidatesOf(r.App)
	able := 0
	for i, why := range cs.reasons(r) {
		if why == "" {
			why = di.whyNot(cs.hosts[i], r)
		}
		resp.Hosts = append(resp.Hosts, &apiv1.HostVerdict{Host: cs.list[i].ID, Name: cs.list[i].Name, Able: why == "", Why: why})
		if why == "" {
			able++
		}
	}
	switch {
	case resp.Why != "":
	case len(cs.list) == 0 && di.l.Demand.called(r) != "":
		resp.Why = di.l.Demand.called(r)
	case len(cs.list) == 0:
		resp.Why = "there is no host: start one with `wheelwork host`"
	case able == 0 && di.l.Demand.called(r) != "":
		resp.Why = di.l.Demand.called(r)
	case able == 0:
		resp.Why = "no host may take it now"
	default:
		resp.Why = "its turn has not come: other runs are before it"
	}
	return resp
}

// explainNodes returns a text with the progress of a run of a workflow.
func explainNodes(r *job.Run) string {
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
	why := haveEnded(over, len(r.Nodes.Rows), "node")
	if len(now) > 0 {
		more := ""
		if n := len(now) - 10; n > 0 {
			now, more = now[:10], fmt.Sprintf(" and %d more", n)
		}
		why += "; under way: " + strings.Join(now, ", ") + more
	}
	return why
}

// whyNot returns a text that explains why a host that could execute a run is not sent it;
// "" if the host admits the run.
func (di *dispatcher) whyNot(h *hosts.Host, r *job.Run) string {
	pace := di.paces.Of(r)
	switch {
	case di.admits(h, r, pace):
		return ""
	case rated(r) && h.Held.Busy() >= int(h.Hello.Slots):
		return "has no free slot, and the job has a rate: its runs wait at the server"
	case fair.IsQuick(pace):
		return "has the work that it may hold"
	case h.Held.Busy() >= int(h.Hello.Slots) && pace == 0:
		return "has no free slot, and the job was not measured yet: its runs wait at the server"
	case h.Held.Busy() >= int(h.Hello.Slots):
		return "has no free slot, and the job is slow: its runs wait at the server"
	case pace == 0:
		return "keeps its last slots for other apps and quick jobs, and this one was not measured yet"
	}
	return "keeps its last slots for other apps and quick jobs, and this one is slow"
}

// whyRunning returns a text that says where a run is that a host has, and what it waits
// for.
func (se *Sessions) whyRunning(r *job.Run) string {
	h := se.hosts[r.Host]
	if h == nil {
		return fmt.Sprintf("attempt %d is on host %s", r.Attempt, r.Host)
	}
	on := fmt.Sprintf("attempt %d is on host %s", r.Attempt, h.Hello.Name)
	if !h.Connected {
		return fmt.Sprintf("%s, which is not connected: it is lost if the host is not back within %s", on, se.l.cfg.HostLease)
	}
	state := se.state(r)
	module := h.Modules[r.Shape().Digest]
	switch {
	case state == job.Sleeping:
		return on + ", its handler sleeps and holds no slot"
	case state != job.Dispatched && h.Hello.GetRecalls():
		return on
	case module.GetState() == "compiling":
		return on + ", which fetches and compiles its module"
	case state != job.Dispatched:
		return on
	case r.Mark&isRecalled != 0:
		return on + " and was called back, because others there take longer than expected"
	case h.Held.Slow >= int(h.Hello.Slots) && h.Hello.Slots > 0:
		return fmt.Sprintf("%s, where it waits for one of %d slots", on, h.Hello.Slots)
	}
	return on + ", and has not run for 100 ms: its start is told with its result, or then"
}
