package history

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

var begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// good is a history without a violation. It has two orders: one was sent twice and needed
// two attempts, the other failed for a permitted reason. The second run of its schedule
// covers two planned times.
func good() *History {
	return &History{
		Once:    []string{"work"},
		Reasons: []string{"host_lost"},
		Orders: []Order{
			{Key: "k1", Job: "work", Answers: []string{"r1"}},
			{Key: "k2", Job: "work", Answers: []string{"r2", "r2"}},
			{Key: "k3", Job: "work", Answers: []string{"r3"}},
		},
		Executions: []Execution{
			{"r1", 1, "t1"},
			{"r2", 1, ""},
			{"r2", 2, "t2"},
			{"r3", 1, ""},
			{"s1", 1, "t3"},
			{"s2", 1, "t4"},
			{"s3", 1, "t5"},
		},
		Dispatches: []Dispatch{
			{"h1", "g", "r1", 1, 5, true},
			{"h1", "other", "x", 1, 2, true},
			{"h1", "g", "r2", 1, 5, true},
			{"h2", "g", "r2", 2, 7, true},
			{"h1", "g", "r3", 1, 7, true},
			{"h1", "g", "r9", 1, 5, false}, // refused by the host
		},
		Sightings: []Run{
			{ID: "r2", Job: "work", State: "running", Attempt: 1},
			{ID: "r2", Job: "work", State: "succeeded", Attempt: 2, Output: "t2"},
		},
		Runs: []Run{
			{ID: "r1", Job: "work", State: "succeeded", Attempt: 1, Output: "t1"},
			{ID: "r2", Job: "work", State: "succeeded", Attempt: 2, Output: "t2"},
			{ID: "r3", Job: "work", State: "failed", Code: "host_lost", Attempt: 6},
			{ID: "s3", Job: "tick", State: "succeeded", Attempt: 1, Output: "t5", Planned: begin.Add(3 * time.Second)},
			{ID: "s1", Job: "tick", State: "succeeded", Attempt: 1, Output: "t3", Planned: begin},
			{ID: "s2", Job: "tick", State: "succeeded", Attempt: 1, Output: "t4", Planned: begin.Add(time.Second), Covers: 1},
		},
		Schedules: []Schedule{{Job: "tick", Every: time.Second}},
	}
}

func TestGood(t *testing.T) {
	if found := Check(good()); len(found) > 0 {
		t.Errorf("a history without a fault: %v", found)
	}
}

// TestCheck breaks one thing of a good history at a time.
func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(h *History)
		rule string
		says string
	}{
		{"an order without an answer", func(h *History) { h.Orders[0].Answers = nil }, RuleOrder, "k1 was never acknowledged"},
		{"two runs of one key", func(h *History) { h.Orders[1].Answers[1] = "r1" }, RuleOrder, "was run r2 and then run r1"},
		{"one run of two keys", func(h *History) { h.Orders[0].Answers[0] = "r2" }, RuleOrder, "orders k1 and k2"},
		{"a lost run", func(h *History) { h.Runs = h.Runs[1:] }, RuleOrder, "r1 of order k1 is not in the list"},
		{"a lost run of a second answer", func(h *History) { h.Orders[1].Answers[1] = "gone" }, RuleOrder, "gone of order k2 is not in the list"},
		{"another job's run", func(h *History) { h.Orders[0].Job = "other" }, RuleOrder, "is of job work, which was ordered of other"},
		{"a run too many", func(h *History) {
			h.Runs = append(h.Runs, Run{ID: "r4", Job: "work", State: "failed", Code: "host_lost"})
		}, RuleOrder, "r4 of job work is nobody's order"},
		{"a run twice", func(h *History) { h.Runs = append(h.Runs, h.Runs[0]) }, RuleOrder, "r1 is in the list twice"},
		{"a run that goes on", func(h *History) { h.Runs[2].State = "queued" }, RuleTerminal, "r3 of job work is still queued"},
		{"no reason", func(h *History) { h.Runs[2].Code = "" }, RuleReason, `r3 of job work is failed with the code ""`},
		{"another reason", func(h *History) { h.Runs[2].Code = "trap" }, RuleReason, `"trap"`},
		{"a time twice", func(h *History) { h.Runs[5].Planned, h.Runs[5].Covers = begin, 0 }, RulePlanned, "runs s1 and s2"},
		{"a time covered twice", func(h *History) { h.Runs[5].Covers = 2 }, RulePlanned, "runs s3 and s2"},
		{"beside the grid", func(h *History) { h.Runs[3].Planned = begin.Add(3500 * time.Millisecond) }, RulePlanned, "500ms beside the grid"},
		{"a time without a run", func(h *History) { h.Runs[5].Covers = 0 }, RuleMissing, "03:04:07"},
		{"a schedule that never fired", func(h *History) { h.Runs = h.Runs[:3] }, RuleMissing, "tick was never planned"},
		{"a result that changes", func(h *History) { h.Sightings[1].State = "failed" }, RuleResult, "r2 was seen failed"},
		{"an attempt that changes", func(h *History) { h.Sightings[1].Attempt = 1 }, RuleResult, "r2 was seen succeeded with attempt 1"},
		{"an output that changes", func(h *History) { h.Sightings[1].Output = "t9" }, RuleResult, `"t9"`},
		{"a code that changes", func(h *History) { h.Sightings[1].Code = "x" }, RuleResult, `code "x"`},
		{"a result that vanishes", func(h *History) { h.Sightings[1].ID = "gone" }, RuleResult, "gone was seen succeeded and is not in the list"},
		{"a result of nobody", func(h *History) { h.Runs[0].Output = "t9" }, RuleResult, "no such execution"},
		{"a result of an earlier attempt", func(h *History) { h.Executions[2].Attempt = 1 }, RuleResult, "succeeded with attempt 2"},
		{"a result of another run", func(h *History) { h.Executions[2].Run = "r1" }, RuleResult, "r2 of job work succeeded"},
		{"an execution that did not end", func(h *History) { h.Executions[0].Token = "" }, RuleResult, "r1 of job work succeeded"},
		{"an execution of nobody's run", func(h *History) { h.Executions[3].Run = "gone" }, RuleResult, "gone was executed"},
		{"a token twice", func(h *History) { h.Executions[1].Token = "t2" }, RuleResult, `two executions answered "t2"`},
		{"an attempt twice", func(h *History) { h.Executions = append(h.Executions, Execution{"r2", 1, ""}) }, RuleTwice, "attempt 1 of run r2"},
		{"a host that goes back", func(h *History) { h.Dispatches[5].Taken = true }, RuleEpoch, "host h1 executed attempt 1 of run r9 of the epoch 5 after one of 7"},
		{"a host that goes back after it refused once", func(h *History) {
			h.Dispatches = append(h.Dispatches, Dispatch{"h1", "g", "r8", 1, 6, true})
		}, RuleEpoch, "r8 of the epoch 6 after one of 7"},
		{"no epoch", func(h *History) { h.Dispatches[3].Epoch = 0 }, RuleEpoch, "without an epoch"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := good()
			tt.do(h)
			found := Check(h)
			if !slices.ContainsFunc(found, func(v Violation) bool { return v.Rule == tt.rule && strings.Contains(v.Detail, tt.says) }) {
				t.Errorf("found %v, want %s: …%s…", found, tt.rule, tt.says)
			}
			for _, v := range found {
				if v.String() != v.Rule+": "+v.Detail {
					t.Errorf("%q", v)
				}
			}
		})
	}
}

// TestTwiceWhereItMayBe accepts a second execution of an attempt after a host was lost
// with its server.
func TestTwiceWhereItMayBe(t *testing.T) {
	h := good()
	h.Once = []string{"tick"}
	h.Executions = append(h.Executions, Execution{"r2", 1, ""})
	if found := Check(h); len(found) > 0 {
		t.Errorf("found %v", found)
	}
}

// TestAnyHistory generates valid histories of any length, and then loses or doubles one
// entry.
func TestAnyHistory(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		h := random(rnd)
		if found := Check(h); len(found) > 0 {
			t.Fatalf("seed %d: a history without a fault: %v", seed, found)
		}
		i := rnd.IntN(len(h.Runs))
		r := &h.Runs[i]
		what := rnd.IntN(5)
		switch what {
		case 0:
			if r.Job == "tick" && (i == len(h.Runs)-1 || h.Runs[i+1].Job != "tick" || i == 0 || h.Runs[i-1].Job != "tick") {
				continue // a loss at either end of a schedule cannot be detected
			}
			h.Runs = slices.Delete(h.Runs, i, i+1)
		case 1:
			h.Runs = append(h.Runs, *r)
		case 2:
			r.State = "running"
		case 3:
			r.Output = "of nobody"
			if r.State != "succeeded" {
				continue
			}
		case 4:
			r.ID += "'"
		}
		if len(Check(h)) == 0 {
			t.Fatalf("seed %d: change %d of run %d of %+v was not found", seed, what, i, h)
		}
	}
}

func random(rnd *rand.Rand) *History {
	h := &History{Once: []string{"work", "tick"}, Reasons: []string{"because"}, Schedules: []Schedule{{"tick", time.Minute}}}
	run := func(job string) *Run {
		r := Run{ID: fmt.Sprint("r", len(h.Runs)), Job: job, Attempt: 1 + rnd.IntN(3)}
		for a := 1; a < r.Attempt; a++ {
			h.Executions = append(h.Executions, Execution{r.ID, a, ""})
		}
		token := "t" + r.ID
		if r.State = "succeeded"; rnd.IntN(5) == 0 {
			r.State, r.Code, token = "failed", "because", ""
		}
		r.Output = token
		h.Executions = append(h.Executions, Execution{r.ID, r.Attempt, token})
		h.Runs = append(h.Runs, r)
		return &h.Runs[len(h.Runs)-1]
	}
	for i := range 1 + rnd.IntN(20) {
		r := run("work")
		o := Order{Key: fmt.Sprint("k", i), Job: "work"}
		for range 1 + rnd.IntN(2) {
			o.Answers = append(o.Answers, r.ID)
		}
		h.Orders = append(h.Orders, o)
	}
	at := begin
	for range 1 + rnd.IntN(20) {
		r := run("tick")
		r.Planned, r.Covers = at, int64(rnd.IntN(3))
		at = at.Add(time.Duration(1+r.Covers) * time.Minute)
	}
	return h
}
