package session

import (
	"context"
	"io"
	"testing"

	"google.golang.org/grpc"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// TestTasksAreFreed: the task of an attempt is given back once, when its Run has
// returned and not before, also when it had its result before that.
func TestTasksAreFreed(t *testing.T) {
	for _, settled := range []bool{false, true} {
		m := &apiv1.Task{Run: make([]byte, 16), App: "a", Job: "j", Attempt: 1, Epoch: 7}
		running, freed := false, 0
		w, err := New(Config{
			ID:      "h",
			Connect: func(context.Context) (grpc.ClientConnInterface, io.Closer, error) { return nil, nil, context.Canceled },
			Run: func(_ context.Context, a *Attempt) *apiv1.TaskResult {
				running = true
				if settled {
					a.Settle(&apiv1.TaskResult{Outcome: apiv1.Outcome_OUTCOME_TIMED_OUT})
				}
				if a.Task != m || freed > 0 {
					t.Errorf("settled %v: the handler has no task", settled)
				}
				running = false
				return &apiv1.TaskResult{Outcome: apiv1.Outcome_OUTCOME_SUCCEEDED}
			},
			Free: func(free *apiv1.Task) {
				if free != m || running {
					t.Errorf("settled %v: freed while the handler runs: %v", settled, running)
				}
				freed++
				free.Reset()
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		w.links[0].accept([]*apiv1.Task{m})
		held := w.next(nil)[0]
		w.execute(t.Context(), held)
		if freed != 1 {
			t.Errorf("settled %v: freed %d times", settled, freed)
		}
		want := apiv1.Outcome_OUTCOME_SUCCEEDED
		if settled {
			want = apiv1.Outcome_OUTCOME_TIMED_OUT
		}
		if r := held.result; r.Outcome != want || r.App != "a" || r.Attempt != 1 || r.Epoch != 7 {
			t.Errorf("settled %v: the result is %v", settled, r)
		}
	}
}
