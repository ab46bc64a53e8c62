package runview

import (
	"testing"

	"github.com/wheelworkhq/wheelwork/sdk"
)

func TestAttempt(t *testing.T) {
	for want, run := range map[string]*sdk.Run{
		"":    {MaxAttempts: 4},
		"2/4": {Attempt: 2, MaxAttempts: 4},
		"3":   {Attempt: 3},
	} {
		if got := Attempt(run); got != want {
			t.Errorf("%v: got %q, want %q", run, got, want)
		}
	}
}

func TestNodesText(t *testing.T) {
	nodes := []*sdk.NodeState{
		{Name: "a", State: "succeeded", Run: "R1", Kept: true},
		{Name: "long", State: "pending"},
		{Name: "c", State: "failed", Run: "R2", Error: "no"},
	}
	if got, want := nodesText(nodes), "a     succeeded  R1 (kept)\nlong  pending\nc     failed     R2 no"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
