package console

import (
	"slices"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// lane is one row of a run's timeline: an event, its start and its duration. A table
// shows the row's numbers; the bars only draw them.
type lane struct {
	Kind    string         // accept, wait, attempt, retry, before, node, parts: a key of the catalogue under lane.
	Name    string         // of the node
	State   string         // of the node
	Run     string         // of the node; "": none
	Attempt *apiv1.Attempt // set for kind attempt
	At      time.Time
	Lasted  string
	Start   string // of an attempt: the time from its dispatch to its start; "": unknown
	Bars    []stretch
}

// barKinds are the kinds of bars of some lanes, in their order, for a legend. That of a running
// attempt is missing: its colour is that of its outcome, which stands beside it.
func barKinds(lanes []lane) []string {
	var kinds []string
	for _, k := range []string{"accept", "wait", "before", "start", "retry"} {
		if slices.ContainsFunc(lanes, func(l lane) bool {
			return slices.ContainsFunc(l.Bars, func(b stretch) bool { return b.Kind == k })
		}) {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// stretch is a bar in percent of the drawing's width.
type stretch struct {
	X, Width float64
	Kind     string // accept, wait, before, start, run, retry: a class of the style sheet
}

// timeline shows the stages of a run on one scale: from its planned time to its acceptance if that
// came later, the wait for a host, every attempt, and the pauses between attempts. It begins at the planned time, because arming the run
// earlier delayed nothing. An unfinished stage lasts until now.
func timeline(r *apiv1.Run, now time.Time) []lane {
	begin := stamp(r.PlannedAt)
	if begin.IsZero() {
		begin = stamp(r.AcceptedAt)
	}
	end := stamp(r.FinishedAt)
	if end.IsZero() {
		end = now
	}
	if begin.IsZero() || begin.After(end) {
		return nil // the run has no stage yet
	}
	s := scaleOf(begin, end)
	if leads(r) {
		return s.led(r, begin, end)
	}
	var lanes []lane
	from, kind := begin, "wait"
	if accepted := stamp(r.AcceptedAt); accepted.Sub(begin) >= time.Millisecond && accepted.Before(firstOf(r, end)) {
		lanes = append(lanes, s.pause("accept", begin, accepted))
		from = accepted
	}
	for _, a := range r.Attempts {
		if sent := stamp(a.DispatchedAt); !sent.IsZero() {
			lanes = append(lanes, s.pause(kind, from, sent))
		}
		l, until := s.attempt(a, end)
		lanes = append(lanes, l)
		from, kind = until, "retry"
	}
	open := r.FinishedAt == nil && (len(r.Attempts) == 0 || r.Attempts[len(r.Attempts)-1].FinishedAt != nil)
	if open || len(r.Attempts) == 0 {
		lanes = append(lanes, s.pause(kind, from, end))
	}
	return lanes
}

// firstOf returns when a run was first sent to a host, or the end of the drawing.
func firstOf(r *apiv1.Run, end time.Time) time.Time {
	if len(r.Attempts) > 0 && r.Attempts[0].DispatchedAt != nil {
		return stamp(r.Attempts[0].DispatchedAt)
	}
	return end
}

// leads reports whether other runs execute a run: its parts, or the nodes of its workflow.
// It waits for no host and has no attempts of its own.
func leads(r *apiv1.Run) bool {
	return len(r.Nodes) > 0 || r.Parts > 0 && r.Parent == ""
}

// led draws a run that other runs execute: its nodes, or one bar for all of its parts.
func (a axis) led(r *apiv1.Run, begin, end time.Time) []lane {
	if len(r.Nodes) == 0 {
		return []lane{{Kind: "parts", State: r.State, At: begin, Lasted: span(end.Sub(begin)), Bars: []stretch{a.bar("run", begin, end)}}}
	}
	var lanes []lane
	first := end
	for _, n := range r.Nodes {
		started, until := stamp(n.StartedAt), stamp(n.FinishedAt)
		if n.Kept || started.IsZero() {
			continue // ended before this run, or has not started
		}
		if until.IsZero() {
			until = end
		}
		if started.Before(first) {
			first = started
		}
		lanes = append(lanes, lane{Kind: "node", Name: n.Name, State: n.State, Run: n.Run, At: started, Lasted: span(until.Sub(started)), Bars: []stretch{a.bar("run", started, until)}})
	}
	return append([]lane{a.pause("before", begin, first)}, lanes...)
}

// axis converts instants to percent.
type axis struct {
	begin time.Time
	whole time.Duration // at least 1 ms
}

func scaleOf(begin, end time.Time) axis {
	return axis{begin: begin, whole: max(end.Sub(begin), time.Millisecond)}
}

// bar stays within the drawing, even if the clocks of the machines differ, and is wide
// enough to be visible.
func (a axis) bar(kind string, from, to time.Time) stretch {
	const thinnest = 0.6
	share := func(t time.Time) float64 {
		return max(0, min(100, 100*float64(t.Sub(a.begin))/float64(a.whole)))
	}
	x := min(share(from), 100-thinnest)
	return stretch{X: x, Width: max(thinnest, share(to)-x), Kind: kind}
}

func (a axis) pause(kind string, from, to time.Time) lane {
	return lane{Kind: kind, At: from, Lasted: span(to.Sub(from)), Bars: []stretch{a.bar(kind, from, to)}}
}

// attempt draws the dispatch to the host and the execution there, and returns the end of
// the attempt.
func (a axis) attempt(t *apiv1.Attempt, end time.Time) (lane, time.Time) {
	sent, started, until := stamp(t.DispatchedAt), stamp(t.StartedAt), stamp(t.FinishedAt)
	if until.IsZero() {
		until = end
	}
	if started.IsZero() { // the host never reported the start
		return lane{Kind: "attempt", Attempt: t, At: sent, Lasted: span(until.Sub(sent)), Bars: []stretch{a.bar("start", sent, until)}}, until
	}
	l := lane{Kind: "attempt", Attempt: t, At: started, Lasted: span(until.Sub(started))}
	if !sent.IsZero() && sent.Before(started) {
		l.Bars = append(l.Bars, a.bar("start", sent, started))
		l.Start = span(started.Sub(sent))
	}
	l.Bars = append(l.Bars, a.bar("run", started, until))
	return l, until
}
