package sched_test

import (
	"cmp"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// facts is the state at the end of a simulation, when all runs have ended.
type facts struct {
	*sim
	runs  map[string]*apiv1.Run
	of    map[string][]*apiv1.Run // by job, without parts, ordered by ID
	parts map[string][]*apiv1.Run // by parent
	execs map[string][]*execution // by run
}

// check compares the events of a simulation with the guarantees of the policies.
func (s *sim) check() {
	f := &facts{
		sim: s, runs: map[string]*apiv1.Run{}, of: map[string][]*apiv1.Run{}, parts: map[string][]*apiv1.Run{}, execs: map[string][]*execution{},
	}
	s.ledger.mu.Lock() // handlers of cancelled runs may still execute
	for _, x := range s.ledger.execs {
		c := *x
		f.execs[x.run] = append(f.execs[x.run], &c)
	}
	s.ledger.mu.Unlock()
	f.readRuns()
	for _, r := range f.runs {
		f.checkRun(r)
		f.checkAttempts(r)
	}
	for _, j := range s.jobs {
		f.checkPlanned(j)
		f.checkOverlap(j)
		f.checkRate(j)
		f.checkCounts(j)
		if j.def.Dependency != nil {
			f.checkFollowed(j)
		}
	}
	f.checkFans()
	f.checkAcked()
	o, err := s.c.cluster.GetOverview(s.t.Context(), &apiv1.GetOverviewRequest{})
	if err != nil || o.Armed+o.Queued+o.Running+o.Waiting != 0 {
		s.t.Errorf("what is live at the end: %v, %v", o, err)
	}
}

func (f *facts) readRuns() {
	req := &apiv1.ListRunsRequest{PageSize: 1000}
	for {
		resp, err := f.c.runs.ListRuns(f.t.Context(), req)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, r := range resp.Runs {
			if other := f.runs[r.Id]; other != nil {
				f.t.Errorf("a run is listed twice:\n%v\n%v", other, r)
			}
			f.runs[r.Id] = r
			if r.Parent != "" {
				f.parts[r.Parent] = append(f.parts[r.Parent], r)
			} else {
				f.of[r.Job] = append(f.of[r.Job], r)
			}
		}
		if req.PageToken = resp.NextPageToken; req.PageToken == "" {
			break
		}
	}
	for _, runs := range f.of {
		slices.SortFunc(runs, func(a, b *apiv1.Run) int { return cmp.Compare(a.Id, b.Id) })
	}
}

// forgot reports whether the power failed between two moments. The restarted server may
// then not know what its predecessor did.
func (f *facts) forgot(from, to time.Time) bool {
	return slices.ContainsFunc(f.restarts, func(r restart) bool {
		return r.power && !from.After(r.to) && !to.Before(r.from)
	})
}

// unheard reports whether the host of x could not report its tasks after a power failure.
// The restarted server may then have given the run to another host.
func (f *facts) unheard(x *execution) bool {
	m := f.machines[slices.IndexFunc(f.machines, func(m *machine) bool { return m.id == x.host })]
	return slices.ContainsFunc(f.restarts, func(r restart) bool {
		return r.power && m.wasAway(r.from, r.to.Add(3*time.Second))
	})
}

// began returns when a run really began for the first time.
func (f *facts) began(r *apiv1.Run) time.Time {
	at := r.StartedAt.AsTime()
	for _, x := range f.execs[r.Id] {
		if x.begin.Before(at) {
			at = x.begin
		}
	}
	return at
}

func (f *facts) checkRun(r *apiv1.Run) {
	state, d := job.State(r.State), f.job(r.Job).def
	switch {
	case !state.Terminal():
		f.t.Errorf("run %s of %s is %s", r.Id, r.Job, r.State)
		return
	case state == job.Skipped && r.Attempt > 0, state == job.Missed && !counted(r).IsZero(), (state == job.Skipped || state == job.Missed) && r.Code == "":
		f.t.Errorf("run %s of %s is %s: attempt %d, code %q", r.Id, r.Job, r.State, r.Attempt, r.Code)
	case r.Code == "overlap" && state != job.Skipped, r.Code == "deadline" && state != job.Missed:
		f.t.Errorf("run %s of %s is %s, with the code %s", r.Id, r.Job, r.State, r.Code)
	}
	if seen := f.ended[r.Id]; seen != nil && !proto.Equal(seen, r) {
		f.t.Errorf("run %s has changed after its end, from\n%v to\n%v", r.Id, seen, r)
	}
	if d.Deadline != "" && r.StartedAt != nil && r.Parent == "" {
		limit, err := time.ParseDuration(d.Deadline)
		if err != nil {
			f.t.Fatal(err)
		}
		due := r.PlannedAt.AsTime()
		if r.Trigger == string(job.ByBackfill) {
			due = r.AcceptedAt.AsTime()
		}
		if late := f.began(r).Sub(due); late > limit && !f.job(r.Job).remade && !f.forgot(due, f.began(r)) { // after a power failure, its host may have had it in time
			f.t.Errorf("run %s of %s started %s late, its deadline was %s", r.Id, r.Job, late, limit)
		}
	}
}

// checkAttempts checks that attempts do not overlap, that at most the last one succeeded,
// and that the executions on the hosts match the attempts.
func (f *facts) checkAttempts(r *apiv1.Run) {
	for i, a := range r.Attempts {
		last := i == len(r.Attempts)-1
		switch {
		case a.Outcome == "":
			f.t.Errorf("attempt %d of run %s has no end: %v", a.Number, r.Id, r)
		case i > 0 && (a.Number <= r.Attempts[i-1].Number || a.DispatchedAt.AsTime().Before(r.Attempts[i-1].FinishedAt.AsTime())):
			f.t.Errorf("attempts %d and %d of run %s overlap: %v", i, i+1, r.Id, r)
		case (a.Outcome == "succeeded") != (last && r.State == string(job.Succeeded)):
			f.t.Errorf("run %s is %s, and its attempt %d %s", r.Id, r.State, a.Number, a.Outcome)
		}
		if d := f.job(r.Job); d.def.GetRouting() != nil && !d.remade && !f.routed(d.def.Routing, a.Host) {
			f.t.Errorf("run %s of %s went to host %s, its routing is %v", r.Id, r.Job, a.Host, d.def.Routing)
		}
	}
	for _, x := range f.execs[r.Id] {
		i := slices.IndexFunc(r.Attempts, func(a *apiv1.Attempt) bool { return a.Number == x.attempt && a.Host == x.host })
		if i < 0 {
			// A run ends without the attempt if it was cancelled before the host reported
			// the attempt.
			if !f.forgot(due(r), x.begin.Add(time.Second)) || !f.unheard(x) && !r.CancelRequested {
				f.t.Errorf("host %s executed attempt %d of run %s from %s on, which it was not given: %v", x.host, x.attempt, r.Id, x.begin, r)
			}
			continue
		}
		a := r.Attempts[i]
		early := x.begin.Truncate(time.Millisecond).Before(a.DispatchedAt.AsTime())
		late := x.end.Truncate(time.Millisecond).After(a.FinishedAt.AsTime()) && a.Outcome != "lost"
		if early && !f.forgot(due(r), a.DispatchedAt.AsTime()) || late {
			f.t.Errorf("host %s executed attempt %d of run %s from %s to %s, the attempt is %v", x.host, x.attempt, r.Id, x.begin, x.end, a)
		}
	}
}

func (f *facts) routed(r *apiv1.Routing, host string) bool {
	m := f.machines[slices.IndexFunc(f.machines, func(m *machine) bool { return m.id == host })]
	return (len(r.Hosts) == 0 || slices.Contains(r.Hosts, host)) && (len(r.Labels) == 0 || r.Labels[0] == "zone="+m.labels["zone"])
}

// checkPlanned checks that the runs of a schedule, the times that they cover and the
// missed ones are exactly its planned times, once each and in order.
func (f *facts) checkPlanned(j *simJob) {
	var runs []*apiv1.Run
	ids := map[string]bool{}
	forgotten := false
	for _, r := range f.of[j.def.Name] {
		if r.Trigger != string(job.BySchedule) {
			continue
		}
		if j.givenUp(r) {
			forgotten = true
			continue
		}
		runs = append(runs, r)
		if at := r.PlannedAt.AsTime().String(); ids[at] {
			f.t.Errorf("%s has two runs for %s", r.Job, at)
		} else {
			ids[at] = true
		}
	}
	if j.delayed() {
		f.checkDelay(j, runs)
		return
	}
	want := j.planned()
	for _, r := range runs {
		n := 1 + int(r.Covers)
		if len(want) < n || !want[0].Equal(r.PlannedAt.AsTime()) {
			f.t.Errorf("%s has a run for %s that covers %d more (%s %s); planned are %s, spans %v, runs about it:",
				r.Job, r.PlannedAt.AsTime(), r.Covers, r.State, r.Code, want[:min(len(want), n+1)], j.spans)
			for _, x := range f.of[r.Job] {
				if d := x.PlannedAt.AsTime().Sub(r.PlannedAt.AsTime()); d.Abs() < 6*time.Second {
					f.t.Log(x)
				}
			}
			return
		}
		want = want[n:]
	}
	if len(want) > 0 && (!forgotten || j.def.Schedule.MaxRuns == 0) {
		f.t.Errorf("%s has no run for %s; its schedule is %v, spans %v", j.def.Name, want, j.def.Schedule, j.spans)
	}
}

func (j *simJob) delayed() bool {
	return slices.ContainsFunc(j.spans, func(sp span) bool { _, ok := sp.plan.AfterEnd(sp.first); return ok })
}

// givenUp reports whether r was skipped or cancelled before its planned time, and its
// schedule was set again before that time. The new schedule plans from the moment of the
// change.
func (j *simJob) givenUp(r *apiv1.Run) bool {
	at, planned := r.FinishedAt.AsTime(), r.PlannedAt.AsTime()
	return slices.ContainsFunc(j.spans, func(sp span) bool {
		return at.Before(planned) && !at.Before(sp.set.Truncate(time.Millisecond)) && at.Before(sp.end.Truncate(time.Millisecond)) && planned.After(sp.end)
	})
}

// planned returns the times that the schedules of a job planned up to the ends of their
// spans.
func (j *simJob) planned() []time.Time {
	var all []time.Time
	planned := map[int]int64{} // number of planned times by life
	for _, sp := range j.spans {
		if sp.first.IsZero() || sp.first.After(sp.end) {
			continue
		}
		times := []time.Time{sp.first}
		until := sp.end.Truncate(time.Millisecond).Add(time.Millisecond) // a time in the last millisecond was due
		if next := sp.first.Add(time.Millisecond); next.Before(until) {
			more, _ := sp.plan.Anchor(sp.first).Between(next, until, 1_000_000)
			times = append(times, more...)
		}
		times = times[:min(int64(len(times)), sp.plan.Left(planned[sp.life]))]
		planned[sp.life] += int64(len(times))
		all = append(all, times...)
	}
	return all
}

// checkDelay checks that each run of a delay schedule is planned at least the delay after
// the end of the previous one, so that no two overlap.
func (f *facts) checkDelay(j *simJob, runs []*apiv1.Run) {
	if j.remade { // an earlier definition may have had another kind of schedule
		return
	}
	delay, err := time.ParseDuration(j.def.Schedule.Delay)
	if err != nil {
		f.t.Fatal(err)
	}
	slices.SortFunc(runs, func(a, b *apiv1.Run) int { return a.PlannedAt.AsTime().Compare(b.PlannedAt.AsTime()) })
	for i := 1; i < len(runs); i++ {
		before, r := runs[i-1], runs[i]
		if r.Code == "skip_next" || before.Code == "skip_next" { // after a skipped run the delay counts from its planned time
			continue
		}
		if wait := r.PlannedAt.AsTime().Sub(before.FinishedAt.AsTime()); wait < delay {
			f.t.Errorf("%s: a run is planned %s after the end of the one before, its delay is %s:\n%v\n%v", r.Job, wait, delay, before, r)
		}
	}
	if limit := j.def.Schedule.MaxRuns; limit > 0 && int64(len(runs)) > limit {
		f.t.Errorf("%s has %d runs, at most %d may be planned", j.def.Name, len(runs), limit)
	}
}

// checkOverlap checks how many runs of a job were in progress at once.
func (f *facts) checkOverlap(j *simJob) {
	limit := 1
	switch o := j.def.Overlap; {
	case o == nil || o.Policy == "parallel" && o.Limit == 0:
		return
	case o.Policy == "parallel":
		limit = int(o.Limit)
	}
	var runs []*apiv1.Run
	for _, r := range f.of[j.def.Name] {
		if r.StartedAt == nil {
			continue
		}
		if at := r.StartedAt.AsTime(); f.began(r).Truncate(time.Millisecond).Before(at) && f.forgot(due(r), at) {
			continue // the restarted server did not know that it ran
		}
		runs = append(runs, r)
	}
	slices.SortFunc(runs, func(a, b *apiv1.Run) int {
		return cmp.Or(a.StartedAt.AsTime().Compare(b.StartedAt.AsTime()), a.FinishedAt.AsTime().Compare(b.FinishedAt.AsTime()))
	})
	for i, r := range runs {
		under := 1
		for _, before := range runs[:i] {
			if before.FinishedAt.AsTime().After(r.StartedAt.AsTime()) {
				under++
			}
		}
		if under > limit {
			f.t.Errorf("%s has %d runs under way at %s, its overlap policy is %v", j.def.Name, under, r.StartedAt.AsTime(), j.def.Overlap)
		}
		if i > 0 && j.def.Overlap.Policy == "queue" && due(runs[i-1]).After(due(r)) && !f.restarted(due(r), r.StartedAt.AsTime()) {
			f.t.Errorf("%s: run %s, due at %s, started after run %s, due at %s:\n%v\n%v\nrestarts: %v", j.def.Name, r.Id, due(r), runs[i-1].Id, due(runs[i-1]), r, runs[i-1], f.restarts)
		}
	}
	for _, r := range f.of[j.def.Name] {
		if r.Code == "overlap" && (j.def.Overlap.Policy == "parallel" || j.def.Overlap.Policy == "queue" && j.def.Overlap.Limit == 0) {
			f.t.Errorf("%s: run %s was skipped, its overlap policy is %v", j.def.Name, r.Id, j.def.Overlap)
		}
	}
}

// due returns when a run became due: at its planned time, or at its acceptance if that
// was later.
func due(r *apiv1.Run) time.Time {
	if at := r.PlannedAt.AsTime(); at.After(r.AcceptedAt.AsTime()) {
		return at
	}
	return r.AcceptedAt.AsTime()
}

func (f *facts) restarted(from, to time.Time) bool {
	return slices.ContainsFunc(f.restarts, func(r restart) bool { return !from.After(r.to) && !to.Before(r.from) })
}

// checkRate checks that no interval has more starts than the rate allows. A restarted
// server begins with a full bucket.
func (f *facts) checkRate(j *simJob) {
	rate := j.def.Rate
	if rate == nil || j.remade {
		return
	}
	per, err := time.ParseDuration(rate.Per)
	if err != nil {
		f.t.Fatal(err)
	}
	var at []time.Time
	for _, r := range f.of[j.def.Name] {
		if start := counted(r); !start.IsZero() && !f.forgot(due(r), start) { // after a power failure it may have been found running
			at = append(at, start)
		}
	}
	slices.SortFunc(at, time.Time.Compare)
	for i := range at {
		for k := i; k < len(at) && !f.restarted(at[i], at[k]); k++ {
			allowed := float64(rate.Max) + float64(at[k].Sub(at[i]))/float64(per)*float64(rate.Max) + 0.01
			if n := k - i + 1; float64(n) > allowed {
				f.t.Errorf("%s started %d runs from %s to %s, its rate is %v", j.def.Name, n, at[i], at[k], rate)
				return
			}
		}
	}
}

// counted returns when a rate counted a run: at the first attempt that may have started
// its handler. An attempt whose host was lost before it reported counts. An attempt that
// was returned before its start does not, and the next one counts. Zero: not counted.
func counted(r *apiv1.Run) time.Time {
	for _, a := range r.Attempts {
		switch {
		case a.StartedAt != nil:
			return a.StartedAt.AsTime()
		case a.Outcome != "stopped":
			return a.DispatchedAt.AsTime()
		}
	}
	if r.StartedAt == nil {
		return time.Time{}
	}
	return r.StartedAt.AsTime()
}

// checkCounts compares the counters of a job with its runs.
func (f *facts) checkCounts(j *simJob) {
	if !j.there || j.remade {
		return
	}
	var succeeded, failed int64
	for _, r := range f.of[j.def.Name] {
		switch job.State(r.State) {
		case job.Succeeded:
			succeeded++
		case job.Skipped:
		default:
			failed++
		}
	}
	got, err := f.c.jobs.GetJob(f.t.Context(), &apiv1.GetJobRequest{Name: j.def.Name})
	if err != nil || got.Stats.Live != 0 || got.Stats.Succeeded != succeeded || got.Stats.Failed != failed {
		f.t.Errorf("%s: %d runs succeeded and %d failed, its counters are %v, %v", j.def.Name, succeeded, failed, got.GetStats(), err)
	}
}

// checkFollowed computes from the ends of the upstream runs how often a dependent job
// must have run. Ends within one millisecond have no known order, so it tries all
// possible orders.
func (f *facts) checkFollowed(j *simJob) {
	d := j.def.Dependency
	var ends []*apiv1.Run
	for _, up := range d.Jobs {
		for _, r := range f.of[up] {
			state := job.State(r.State)
			counts := d.On == "end" || state == job.Succeeded
			if d.On == "failure" {
				counts = state != job.Succeeded && state != job.Skipped
			}
			if counts {
				ends = append(ends, r)
			}
		}
	}
	slices.SortStableFunc(ends, func(a, b *apiv1.Run) int { return a.FinishedAt.AsTime().Compare(b.FinishedAt.AsTime()) })
	got, causes := 0, map[string]bool{}
	for _, r := range f.of[j.def.Name] {
		if r.Trigger != string(job.ByDependency) {
			continue
		}
		got++
		cause := f.runs[r.Cause]
		if causes[r.Cause] || cause == nil || !slices.Contains(ends, cause) || !cause.FinishedAt.AsTime().Equal(r.AcceptedAt.AsTime()) {
			f.t.Errorf("run %s of %s follows %q wrongly: %v", r.Id, r.Job, r.Cause, cause)
			continue
		}
		causes[r.Cause] = true
		full, err := f.c.runs.GetRun(f.t.Context(), &apiv1.GetRunRequest{Id: r.Id})
		if err != nil {
			f.t.Fatal(err)
		}
		upstream, err := f.c.runs.GetRun(f.t.Context(), &apiv1.GetRunRequest{Id: r.Cause})
		if err != nil {
			f.t.Fatal(err)
		}
		if d.PassOutput && full.Input != upstream.Output {
			f.t.Errorf("run %s got the input %q, run %s gave %q", r.Id, full.Input, r.Cause, upstream.Output)
		}
	}
	if d.Need == "any" {
		if got != len(ends) {
			f.t.Errorf("%s followed %d times, %d ends count", j.def.Name, got, len(ends))
		}
		return
	}
	type state struct {
		met  int // one bit for each upstream
		runs int
	}
	all := 1<<len(d.Jobs) - 1
	possible := map[state]bool{{}: true}
	for len(ends) > 0 {
		n := 1
		for n < len(ends) && ends[n].FinishedAt.AsTime().Equal(ends[0].FinishedAt.AsTime()) {
			n++
		}
		left := make([]int, len(d.Jobs))
		for _, r := range ends[:n] {
			left[slices.Index(d.Jobs, r.Job)]++
		}
		after := map[state]bool{}
		var try func(st state, rest int)
		try = func(st state, rest int) {
			if rest == 0 {
				after[st] = true
				return
			}
			for up := range left {
				if left[up] == 0 {
					continue
				}
				left[up]--
				next := state{st.met | 1<<up, st.runs}
				if next.met == all {
					next = state{0, st.runs + 1}
				}
				try(next, rest-1)
				left[up]++
			}
		}
		for st := range possible {
			try(st, n)
		}
		possible, ends = after, ends[n:]
	}
	for st := range possible {
		if st.runs == got {
			return
		}
	}
	f.t.Errorf("%s followed %d times, possible are %v", j.def.Name, got, possible)
}

// checkFans compares parents with their parts.
func (f *facts) checkFans() {
	for _, r := range f.runs {
		if r.Parent != "" || r.Parts == 0 {
			continue
		}
		parts := f.parts[r.Id]
		var succeeded, failed int32
		hosts := map[string]bool{}
		for _, p := range parts {
			if p.State == string(job.Succeeded) {
				succeeded++
			} else {
				failed++
			}
			if p.Host != "" {
				hosts[p.Host] = true
			}
		}
		kept := r.Parts - int32(len(parts)) // parts of a retried parent that succeeded earlier
		if r.Trigger != string(job.ByRetry) && kept != 0 || r.PartsFailed != failed || r.PartsSucceeded != succeeded+kept {
			f.t.Errorf("parent %v has %d parts, of which %d succeeded", r, len(parts), succeeded)
		}
		if (r.State == string(job.Succeeded)) != (failed == 0) {
			f.t.Errorf("parent %s is %s, %d of its parts failed", r.Id, r.State, failed)
		}
		if d := f.job(r.Job); d.def.Fanout.GetMode() == "broadcast" && !d.remade && len(hosts) > len(parts) {
			f.t.Errorf("%d parts of broadcast %s ran on %v", len(parts), r.Id, hosts)
		}
	}
	for id := range f.parts {
		if f.runs[id] == nil {
			f.t.Errorf("there are parts of run %s, which is not there", id)
		}
	}
}

func (f *facts) checkAcked() {
	for id, key := range f.acked {
		if f.runs[id] == nil {
			f.t.Errorf("run %s, with the key %q, was acknowledged and is not there", id, key)
		}
	}
	for id := range f.ended {
		if f.runs[id] == nil {
			f.t.Errorf("run %s had ended and is not there", id)
		}
	}
	for id := range f.execs {
		if r := f.runs[id]; r == nil {
			f.t.Errorf("run %s was executed and is not there", id)
		}
	}
}
