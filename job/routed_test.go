package job

import (
	"slices"
	"testing"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// TestRouted checks what a route sees of a run: which attempts count against a host, and
// the input of the definition where the run has none.
func TestRouted(t *testing.T) {
	s := NewSlot("a", 0)
	r := &Run{App: "a", Job: "j", Attempt: 7}
	for i, o := range []apiv1.Outcome{
		apiv1.Outcome_OUTCOME_RETRYABLE, apiv1.Outcome_OUTCOME_LOST, apiv1.Outcome_OUTCOME_TIMED_OUT,
		apiv1.Outcome_OUTCOME_HOST_ERROR, apiv1.Outcome_OUTCOME_PERMANENT, apiv1.Outcome_OUTCOME_STOPPED, apiv1.Outcome_OUTCOME_SUCCEEDED,
	} {
		r.Attempts = append(r.Attempts, Attempt{Number: int32(i + 1), Host: string(rune('a' + i)), Outcome: o})
	}
	r.spec = s.spec(&apiv1.Job{Input: "of the definition"})
	r.Policy = s.kindOf(r.spec).policy
	got := r.Routed()
	if !slices.Equal(got.Failed, []string{"a", "b", "c", "d", "e"}) {
		t.Errorf("it failed on %v", got.Failed)
	}
	if in := string(got.Input.Given()); in != "of the definition" {
		t.Errorf("its input is %q", in)
	}
	if r.HasInput, r.Input = true, []byte("its own"); string(got.Input.Given()) != "its own" {
		t.Errorf("its input is %q", got.Input.Given())
	}
	if got.ID != r.ID || got.App != "a" || got.Job != "j" || got.Attempt != 7 {
		t.Errorf("%+v", got)
	}
}

// TestRoutingWithoutEffect checks that a routing without any effect is dropped, so that
// equal definitions are equal, and no other one.
func TestRoutingWithoutEffect(t *testing.T) {
	for _, m := range []*apiv1.Routing{nil, {}, {Strategy: "least_loaded"}} {
		d := &apiv1.Job{Routing: m}
		if err := checkRouting(d); err != nil || d.Routing != nil {
			t.Errorf("%v stays in the definition as %v: %v", m, d.Routing, err)
		}
	}
	d := &apiv1.Job{Routing: &apiv1.Routing{MaxHosts: 1}}
	if err := checkRouting(d); err != nil || d.Routing == nil {
		t.Errorf("a limit of hosts is dropped: %v", err)
	}
	if err := checkRouting(&apiv1.Job{Routing: &apiv1.Routing{MaxHosts: -1}}); err == nil {
		t.Error("a negative limit of hosts is accepted")
	}
}
