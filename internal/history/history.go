// Package history judges a cluster by what those saw who are outside of it:
// producers, the services that handlers called, the wire to each host, and
// whoever asked for a run. It is pure: a test records, and [Check] says which
// promise was broken. Time and order matter only where a field says so.
package history

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// History is what was seen, from before the first order until every order was
// acknowledged and every run had ended.
type History struct {
	Orders     []Order
	Executions []Execution
	Dispatches []Dispatch // of each host in the order in which they went to it
	Sightings  []Run      // of runs that had ended, at any time and from any server
	Runs       []Run      // the list at the end
	Schedules  []Schedule
	// Reasons are the codes with which a run may end unsuccessfully here. A run
	// that ends so for another reason, or for none, is a violation.
	Reasons []string
	// Once says that nothing happened for which an attempt may be executed twice.
	Once bool
}

// Order is one run that a producer wanted, however often it had to ask.
type Order struct {
	Key, Job string
	// Answers are the runs that it was told, one for each acknowledgement.
	Answers []string
}

// Execution is one call of a handler.
type Execution struct {
	Run     string
	Attempt int
	Token   string // what it answered, and no other one did; "" when it did not come to its end
}

// Dispatch is a task that went to a host.
type Dispatch struct {
	Host  string // one life of its process
	Group string // what has one owner: epochs of different groups do not compare
	Run   string
	// Attempt and Epoch are the task's.
	Attempt int
	Epoch   uint64
	// Taken says that the host executed it: it sent a result or a sign of life.
	Taken bool
}

// Run is what a server told of a run.
type Run struct {
	ID, Job, State, Code string
	Attempt              int
	Output               string
	Planned              time.Time // of a run of a schedule; zero: it has none
	Covers               int64     // planned times that it stands for beside its own, the next ones
}

// Schedule is a job that nobody orders. Its runs lie on the grid of Every.
type Schedule struct {
	Job   string
	Every time.Duration
}

// The rules that [Check] knows.
const (
	RuleOrder    = "order"    // an acknowledged order has one run, and a run one order
	RuleTerminal = "terminal" // every run has ended
	RuleReason   = "reason"   // no run ends unsuccessfully without a reason
	RulePlanned  = "planned"  // a planned time of a job has one run
	RuleMissing  = "missing"  // every planned time is accounted for
	RuleResult   = "result"   // a run has one result, of its own last attempt, and it stays
	RuleTwice    = "twice"    // an attempt is executed once
	RuleEpoch    = "epoch"    // the epochs that a host follows only rise
)

// Violation is a promise that was broken.
type Violation struct{ Rule, Detail string }

func (v Violation) String() string { return v.Rule + ": " + v.Detail }

// ended are the states that do not change any more.
var ended = []string{"succeeded", "failed", "timed_out", "stopped", "cancelled", "skipped", "missed"}

// Check returns every broken promise, the same ones in the same order for the
// same history.
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
	runs  map[string]Run // of the list, by id
	found []Violation
}

func (c *checker) say(rule, format string, args ...any) {
	c.found = append(c.found, Violation{rule, fmt.Sprintf(format, args...)})
}

// list checks each run of the list by itself.
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
	of := map[string]string{} // the key, by run
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

// schedules checks that the planned times of a schedule, from the first one to
// the last, are each accounted for once.
func (c *checker) schedules() {
	for _, s := range c.h.Schedules {
		by := map[int64]string{} // the run that accounts for a planned time, in steps of the grid
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

// results checks that a run has one result: what was once seen of it stays, and
// the output of success is what its last attempt answered.
func (c *checker) results() {
	for _, s := range c.h.Sightings {
		r, there := c.runs[s.ID]
		switch {
		case !slices.Contains(ended, s.State):
			// It was on its way.
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
		if _, there := c.runs[e.Run]; !there {
			c.say(RuleResult, "attempt %d of run %s was executed, which is not in the list", e.Attempt, e.Run)
		}
		a := attempt{e.Run, e.Attempt}
		if seen[a]++; seen[a] == 2 && c.h.Once {
			c.say(RuleTwice, "attempt %d of run %s was executed more than once", e.Attempt, e.Run)
		}
	}
}

// epochs checks that no host follows a server whose ownership has ended: once a
// task of a higher epoch went to it, it takes none of a lower one.
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
