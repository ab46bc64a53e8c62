package sdk

import (
	"testing"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// TestUntracedCostsNothing checks that a call and a command without a trace do not allocate.
func TestUntracedCostsNothing(t *testing.T) {
	ctx := t.Context()
	c := &apiv1.Command{Kind: &apiv1.Command_Trigger{Trigger: &apiv1.TriggerJobRequest{Name: "j"}}}
	n := testing.AllocsPerRun(100, func() {
		if traced(ctx) != ctx {
			t.Error("a call without a trace has another context")
		}
		traceCommand(ctx, c)
	})
	if n > 0 || c.Trace != nil {
		t.Errorf("%v allocations, the command has the trace %v", n, c.Trace)
	}
}
