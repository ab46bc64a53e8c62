package job

import (
	"slices"
	"testing"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

func TestCounts(t *testing.T) {
	for _, s := range States() {
		if !s.Terminal() {
			continue
		}
		for on, want := range map[string]bool{
			"success": s == Succeeded,
			"failure": s != Succeeded && s != Skipped,
			"end":     true,
		} {
			if got := (&Dependency{On: on}).Counts(s); got != want {
				t.Errorf("on %s, an end as %s counts: %v", on, s, got)
			}
		}
	}
}

// TestMetAndCompletes ends upstream runs in an order. Each step has whether it starts a
// run.
func TestMetAndCompletes(t *testing.T) {
	for _, c := range []struct {
		name  string
		need  string
		jobs  []string
		ends  string // one letter for each upstream end
		start string // y or n for each end
	}{
		{"one", "", []string{"a"}, "aaa", "yyy"},
		{"all", "all", []string{"a", "b"}, "abab", "nyny"},
		{"any order", "", []string{"a", "b"}, "baab", "nyny"},
		{"the same again", "", []string{"a", "b"}, "aaabb", "nnnyn"},
		{"three", "", []string{"a", "b", "c"}, "acbcba", "nnynny"},
		{"any", "any", []string{"a", "b"}, "aab", "yyy"},
	} {
		s := NewSlot("app", 0)
		put := func(jobs []string) {
			s.Apply(&apiv1.Record{AtMs: 1, Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{Job: &apiv1.Job{
				App: "app", Name: "down", Dependency: &apiv1.Dependency{Jobs: jobs, Need: c.need},
			}}}}, nil)
		}
		put(c.jobs)
		j := s.Jobs.Get("down")
		var got string
		for i := range len(c.ends) {
			up := c.ends[i : i+1]
			if !j.Completes(up) {
				got += "n"
				s.Apply(&apiv1.Record{AtMs: 2, Kind: &apiv1.Record_Met{Met: &apiv1.Met{Job: "down", Upstream: up}}}, nil)
				continue
			}
			got += "y"
			id := RunID{15: byte(i + 1)}
			s.Apply(&apiv1.Record{AtMs: 2, Kind: &apiv1.Record_Accepted{Accepted: &apiv1.Accepted{
				Run: id[:], Job: "down", Trigger: string(ByDependency), Completes: !j.Dependency().Any,
			}}}, nil)
			if r := s.Runs.Get(id); r == nil || r.Trigger != ByDependency {
				t.Errorf("%s: the run is %+v", c.name, r)
			}
		}
		if got != c.start {
			t.Errorf("%s: ends %s start %s, want %s", c.name, c.ends, got, c.start)
		}
	}
}

// TestMetSurvivesAChange checks that a change of the job keeps a met upstream job that
// remains upstream.
func TestMetSurvivesAChange(t *testing.T) {
	s := NewSlot("app", 0)
	put := func(jobs ...string) []Effect {
		return s.Apply(&apiv1.Record{AtMs: 1, Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{Job: &apiv1.Job{
			App: "app", Name: "down", Dependency: &apiv1.Dependency{Jobs: jobs},
		}}}}, nil)
	}
	meet := func(up string) int {
		return len(s.Apply(&apiv1.Record{AtMs: 2, Kind: &apiv1.Record_Met{Met: &apiv1.Met{Job: "down", Upstream: up}}}, nil))
	}
	if fx := put("a", "b", "c"); !slices.ContainsFunc(fx, func(e Effect) bool { return e.Change == JobDepends }) {
		t.Errorf("nobody is told of the dependency: %v", fx)
	}
	if a, again, b := meet("a"), meet("a"), meet("b"); a != 1 || again != 0 || b != 1 {
		t.Errorf("effects of a, a again, and b: %d, %d, %d", a, again, b)
	}
	put("b", "c")
	if j := s.Jobs.Get("down"); j.Met("a") || !j.Met("b") || j.Met("c") || !j.Completes("c") {
		t.Errorf("after a is no longer upstream: met %q", j.extra.met)
	}
	if n := len(s.Apply(&apiv1.Record{Kind: &apiv1.Record_Met{Met: &apiv1.Met{Job: "gone", Upstream: "a"}}}, nil)); n != 0 {
		t.Errorf("a job that is not there has %d effects", n)
	}
}

// TestOtherRunsLeaveMetAlone checks that a trigger by hand does not use up met upstream
// jobs.
func TestOtherRunsLeaveMetAlone(t *testing.T) {
	s := NewSlot("app", 0)
	s.Apply(&apiv1.Record{Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{Job: &apiv1.Job{
		App: "app", Name: "down", Dependency: &apiv1.Dependency{Jobs: []string{"a", "b"}},
	}}}}, nil)
	s.Apply(&apiv1.Record{Kind: &apiv1.Record_Met{Met: &apiv1.Met{Job: "down", Upstream: "a"}}}, nil)
	id := RunID{1}
	s.Apply(&apiv1.Record{Kind: &apiv1.Record_Accepted{Accepted: &apiv1.Accepted{Run: id[:], Job: "down"}}}, nil)
	if j := s.Jobs.Get("down"); !j.Met("a") || !j.Completes("b") || j.Completes("a") {
		t.Errorf("met %q", j.extra.met)
	}
}
