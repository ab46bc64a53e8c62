// Package history checks the promises of a cluster against the observations of its users:
// producers, the services that handlers called, the connection to each host, and readers
// of runs. It is pure: a test records a [History], and [Check] returns the broken
// promises. Time and order matter only where the comment of a field says so.
package history

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// History is what a test observed, from before the first order until every order was
// acknowledged and every run had ended.
type History struct {
	Orders     []Order
	Executions []Execution
	Dispatches []Dispatch // of each host in the order of sending
	Sightings  []Run      // observations of ended runs, at any time and from any server
	Runs       []Run      // the list of runs at the end
	Schedules  []Schedule
	// Reasons are the codes with which a run of this test may end unsuccessfully. Any
	// other reason, or a missing one, is a violation.
	Reasons []string
	// Once names the jobs for which no event permits a second execution of an attempt.
	Once []string
}

// Order is one run that a producer wanted, however many requests it took.
type Order struct {
	Key, Job string
	// Answers holds the run id of each acknowledgement.
	Answers []string
}

// Execution is one call of a handler.
type Execution struct {
	Run     string
	Attempt int
	Token   string // the answer, unique to this call; "" when the call did not finish
}

// Dispatch is a task that was sent to a host.
type Dispatch struct {
	Host  string // identifies one life of the host's process
	Group string // the partition: epochs of different groups do not compare
	Run   string
	// Attempt and Epoch are those of the task.
	Attempt int
	Epoch   uint64
	// Taken reports that the host executed the task: it sent a result or a heartbeat.
	Taken bool
}

// Run is a run as a server reported it.
type Run struct {
	ID, Job, State, Code string
	Attempt              int
	Output               string
	Planned              time.Time // for a scheduled run; zero: none
	Covers               int64     // number of further planned times, the next ones, that this run covers in addition to its own
}

// Schedule is a job that no producer triggers. Its planned times lie on the grid of
// Every.
type Schedule struct {
	Job   string
	Every time.Duration
}

// Names of the rules that [Check] applies.
const (
	RuleOrder    = "order"    // an acknowledged order has one run, and a run has one order
	RuleTerminal = "terminal" // every run has ended
	RuleReason   = "reason"   // no run ends unsuccessfully without a reason
	RulePlanned  = "planned"  // a planned time of a job has one run
	RuleMissing  = "missing"  // every planned time is accounted for
	RuleResult   = "result"   // a run has one result, from its own last attempt, and the result never changes
	RuleTwice    = "twice"    // an attempt is executed once
	RuleEpoch    = "epoch"    // the epochs that a host follows only increase
)

// Violation is a broken promise.
type Violation struct{ Rule, Detail string }

func (v Violation) String() string { return v.Rule + ": " + v.Detail }

// ended lists the terminal states.
var ended = []string{"succeeded", "failed", "timed_out", "stopped", "cancelled", "skipped", "missed"}

// Check returns every broken promise, in the same order for the same history.
func Check(h *History) []Violation {
	c := &checker{h: h, runs: map[string]Run{}}
	c.list()
	c.orders()
	c.schedules()
	c.results()
	c.executions()
	c.epochs()
	return c.found
}

type checker struct {
	h     *History
	runs  map[string]Run // the final list, by id
	found []Violation
}

func (c *checker) say(rule, format string, args ...any) {
	c.found = append(c.found, Violation{rule, fmt.Sprintf(format, args...)})
}

// list checks each run of the final list separately.
func (c *checker) list() {
	for _, r := range c.h.Runs {
		if _, twice := c.runs[r.ID]; twice {
			c.say(RuleOrder, "run %s is in the list twice", r.ID)
			continue
		}
		c.runs[r.ID] = r
		switch {
		case !slices.Contains(ended, r.State):
			c.say(RuleTerminal, "run %s of job %s is still %s", r.ID, r.Job, r.State)
		case r.State != "succeeded" && !slices.Contains(c.h.Reasons, r.Code):
			c.say(RuleReason, "run %s of job %s is %s with the code %q", r.ID, r.Job, r.State, r.Code)
		}
	}
}

func (c *checker) orders() {
	of := map[string]string{} // key by run
	for _, o := range c.h.Orders {
		if len(o.Answers) == 0 {
			c.say(RuleOrder, "order %s was never acknowledged", o.Key)
			continue
		}
		for _, id := range o.Answers {
			if id != o.Answers[0] {
				c.say(RuleOrder, "order %s was run %s and then run %s", o.Key, o.Answers[0], id)
			}
			if other, taken := of[id]; taken && other != o.Key {
				c.say(RuleOrder, "run %s was answered to the orders %s and %s", id, other, o.Key)
			}
			of[id] = o.Key
			switch r, there := c.runs[id]; {
			case !there:
				c.say(RuleOrder, "run %s of order %s is not in the list", id, o.Key)
			case r.Job != o.Job:
				c.say(RuleOrder, "run %s of order %s is of job %s, which was ordered of %s", id, o.Key, r.Job, o.Job)
			}
		}
	}
	for _, r := range c.h.Runs {
		if _, ordered := of[r.ID]; !ordered && !c.scheduled(r.Job) {
			c.say(RuleOrder, "run %s of job %s is nobody's order", r.ID, r.Job)
		}
	}
}

func (c *checker) scheduled(job string) bool {
	return slices.ContainsFunc(c.h.Schedules, func(s Schedule) bool { return s.Job == job })
}

// schedules checks that each planned time of a schedule, from the first to the last, is
// accounted for once.
func (c *checker) schedules() {
	for _, s := range c.h.Schedules {
		by := map[int64]string{} // the run that accounts for a planned time, by the time's index on the grid
		var first time.Time
		for _, r := range c.h.Runs {
			if r.Job == s.Job && (first.IsZero() || r.Planned.Before(first)) {
				first = r.Planned
			}
		}
		if first.IsZero() {
			c.say(RuleMissing, "job %s was never planned", s.Job)
			continue
		}
		for _, r := range c.h.Runs {
			if r.Job != s.Job {
				continue
			}
			if off := r.Planned.Sub(first) % s.Every; off != 0 {
				c.say(RulePlanned, "run %s of job %s is planned %v beside the grid", r.ID, s.Job, off)
				continue
			}
			step := int64(r.Planned.Sub(first) / s.Every)
			for at := step; at <= step+r.Covers; at++ {
				if other, taken := by[at]; taken {
					c.say(RulePlanned, "the time %v of job %s is that of the runs %s and %s", first.Add(time.Duration(at)*s.Every), s.Job, other, r.ID)
				}
				by[at] = r.ID
			}
		}
		for at := range slices.Max(slices.Collect(maps.Keys(by))) {
			if by[at] == "" {
				c.say(RuleMissing, "the time %v of job %s has no run", first.Add(time.Duration(at)*s.Every), s.Job)
			}
		}
	}
}

// results checks that a run has one result: an observed result does not change, and the
// output of a successful run is the answer of its last attempt.
func (c *checker) results() {
	for _, s := range c.h.Sightings {
		r, there := c.runs[s.ID]
		switch {
		case !slices.Contains(ended, s.State):
			// The attempt had not finished.
		case !there:
			c.say(RuleResult, "run %s was seen %s and is not in the list", s.ID, s.State)
		case s.State != r.State || s.Attempt != r.Attempt || s.Output != r.Output || s.Code != r.Code:
			c.say(RuleResult, "run %s was seen %s with attempt %d, output %q and code %q, and is %s with attempt %d, output %q and code %q",
				s.ID, s.State, s.Attempt, s.Output, s.Code, r.State, r.Attempt, r.Output, r.Code)
		}
	}
	by := map[string]Execution{}
	for _, e := range c.h.Executions {
		if e.Token == "" {
			continue
		}
		if _, twice := by[e.Token]; twice {
			c.say(RuleResult, "two executions answered %q", e.Token)
		}
		by[e.Token] = e
	}
	for _, r := range c.h.Runs {
		if r.State != "succeeded" {
			continue
		}
		if e, there := by[r.Output]; !there || e.Run != r.ID || e.Attempt != r.Attempt {
			c.say(RuleResult, "run %s of job %s succeeded with attempt %d and the output %q, which no such execution answered", r.ID, r.Job, r.Attempt, r.Output)
		}
	}
}

type attempt struct {
	run    string
	number int
}

func (c *checker) executions() {
	seen := map[attempt]int{}
	for _, e := range c.h.Executions {
		r, there := c.runs[e.Run]
		if !there {
			c.say(RuleResult, "attempt %d of run %s was executed, which is not in the list", e.Attempt, e.Run)
		}
		a := attempt{e.Run, e.Attempt}
		if seen[a]++; seen[a] == 2 && slices.Contains(c.h.Once, r.Job) {
			c.say(RuleTwice, "attempt %d of run %s was executed more than once", e.Attempt, e.Run)
		}
	}
}

// epochs checks that no host obeys a former owner: after a task with a higher epoch, a
// host executes none with a lower one.
func (c *checker) epochs() {
	type of struct{ host, group string }
	highest := map[of]uint64{}
	for _, d := range c.h.Dispatches {
		k := of{d.Host, d.Group}
		if d.Epoch < highest[k] && d.Taken {
			c.say(RuleEpoch, "host %s executed attempt %d of run %s of the epoch %d after one of %d", d.Host, d.Attempt, d.Run, d.Epoch, highest[k])
		}
		if d.Epoch == 0 {
			c.say(RuleEpoch, "attempt %d of run %s went to host %s without an epoch", d.Attempt, d.Run, d.Host)
		}
		highest[k] = max(highest[k], d.Epoch)
	}
}
