package session

import (
	"context"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// TestTasksAreFreed: Free gets the task of an attempt once, and only after its Run has
// returned, even if the attempt had its result earlier.
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
		r := &runner{}
		held := w.next(r, nil)[0]
		w.execute(t.Context(), r, held)
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

// TestResultsAreFreed: FreeResults gets a result once, when the server has acknowledged
// it, unless the result is in the spool, which still holds it.
func TestResultsAreFreed(t *testing.T) {
	for _, kept := range []bool{false, true} {
		m := &apiv1.Task{Run: make([]byte, 16), App: "a", Job: "j", Attempt: 1}
		var freed []*apiv1.TaskResult
		spool := &memory{}
		w, err := New(Config{
			ID:          "h",
			Connect:     func(context.Context) (grpc.ClientConnInterface, io.Closer, error) { return nil, nil, context.Canceled },
			Run:         func(context.Context, *Attempt) *apiv1.TaskResult { return &apiv1.TaskResult{Code: "mine"} },
			FreeResults: func(r []*apiv1.TaskResult) { freed = append(freed, r...) },
			Spool:       spool,
		})
		if err != nil {
			t.Fatal(err)
		}
		l := w.links[0]
		l.accept([]*apiv1.Task{m})
		r := &runner{}
		w.execute(t.Context(), r, w.next(r, nil)[0])
		up, _ := l.out.next(0, false)
		if kept {
			w.spool(time.Now())
			if spool.keeps() != 1 {
				t.Fatal("the spool has no result")
			}
		}
		if len(up.Results) != 1 || up.Results[0].Code != "mine" || len(freed) > 0 {
			t.Fatalf("kept %v: %d results are sent, %d were freed before the server has them", kept, len(up.Results), len(freed))
		}
		l.ack(up.Batch)
		l.ack(up.Batch)
		if n := len(freed); kept && n != 0 || !kept && (n != 1 || freed[0] != up.Results[0]) {
			t.Errorf("kept %v: freed %d results: %v", kept, n, freed)
		}
		if spool.keeps() != 0 {
			t.Errorf("kept %v: the spool was not told that the server has it", kept)
		}
	}
}
