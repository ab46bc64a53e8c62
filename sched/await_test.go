package sched_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// slowly returns a handler that takes the given time and succeeds with "got " and its
// input.
func slowly(takes time.Duration) handler {
	return func(ctx context.Context, t runtime.Task, _ runtime.Sink) runtime.Result {
		select {
		case <-time.After(takes):
			return runtime.Result{Outcome: runtime.Succeeded, Output: append([]byte("got "), t.Input...)}
		case <-ctx.Done():
			return runtime.Result{Outcome: runtime.Stopped}
		}
	}
}

// TestTriggerAndWait checks that a call with a wait returns the ended run as GetRun shows
// it.
func TestTriggerAndWait(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		w.handlers.byJob["slow"] = slowly(30 * time.Second)
		c.apply(&apiv1.Job{Name: "slow", Timeout: "1h"})
		c.apply(&apiv1.Job{Name: "quick"})
		call := func(ctx context.Context, name, key, wait string) (*apiv1.Run, time.Duration, error) {
			begin := time.Now()
			r, err := c.jobs.TriggerJob(ctx, &apiv1.TriggerJobRequest{Name: name, Input: proto.String("this"), IdempotencyKey: key, Wait: wait})
			return r, time.Since(begin), err
		}
		same := func(r *apiv1.Run) {
			t.Helper()
			now, err := c.runs.GetRun(t.Context(), &apiv1.GetRunRequest{Id: r.Id})
			if err != nil || !proto.Equal(now, r) {
				t.Errorf("told %v, and it is %v, %v", r, now, err)
			}
		}

		r, took, err := call(t.Context(), "quick", "", "10s")
		if err != nil || r.State != "succeeded" || r.Output != "this" || took > time.Second {
			t.Fatalf("quick: %v, %v, after %v", r, err, took)
		}
		same(r)

		// The run takes longer than the wait of the caller; a retry with the same key
		// finds it.
		r, took, err = call(t.Context(), "slow", "k", "5s")
		if err != nil || r.State != "running" || took < 5*time.Second || took > 6*time.Second {
			t.Fatalf("out of patience: %v, %v, after %v", r, err, took)
		}
		first := r.Id
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := call(impatient, "slow", "k", "1m"); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("a caller who went away: %v", err)
		}
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				r, took, err := call(t.Context(), "slow", "k", "10m")
				if err != nil || r.Id != first || r.State != "succeeded" || r.Output != "got this" || took > 25*time.Second {
					t.Errorf("again: %v, %v, after %v", r, err, took)
				}
			})
		}
		both.Wait()
		r, took, err = call(t.Context(), "slow", "k", "1m")
		if err != nil || r.Id != first || r.State != "succeeded" || took > time.Second {
			t.Errorf("when it had ended: %v, %v, after %v", r, err, took)
		}
		same(r)

		for _, wait := range []string{"soon", "0s", "-1s", "11m"} {
			if _, _, err := call(t.Context(), "quick", "", wait); status.Code(err) != codes.InvalidArgument {
				t.Errorf("wait %q: %v", wait, err)
			}
		}
		if _, _, err := call(t.Context(), "none", "", "1s"); status.Code(err) != codes.NotFound {
			t.Errorf("a job that is not there: %v", err)
		}
		stream, err := apiv1.NewProducerClient(c.conn).Produce(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&apiv1.ProduceRequest{Commands: []*apiv1.Command{{Kind: &apiv1.Command_Trigger{Trigger: &apiv1.TriggerJobRequest{Name: "quick", Wait: "1s"}}}}}); err != nil {
			t.Fatal(err)
		}
		if answer, err := stream.Recv(); err != nil || codes.Code(answer.Results[0].Code) != codes.InvalidArgument {
			t.Errorf("a command that waits: %v, %v", answer, err)
		}
	})
}

// TestWaitWhileTheServerEnds checks that a waiter gets an error when its server stops,
// and that a retry at the next server finds the run.
func TestWaitWhileTheServerEnds(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		w.handlers.byJob["slow"] = slowly(30 * time.Second)
		c.apply(&apiv1.Job{Name: "slow", Timeout: "1h"})
		request := &apiv1.TriggerJobRequest{Name: "slow", IdempotencyKey: "k", Wait: "1m"}
		told := make(chan error, 1)
		go func() {
			_, err := c.jobs.TriggerJob(t.Context(), request)
			told <- err
		}()
		time.Sleep(time.Second)
		w.stopServer()
		if err := <-told; status.Code(err) != codes.Unavailable {
			t.Errorf("the server ended: %v", err)
		}
		w.start()
		c.reconnect(w)
		r, err := c.jobs.TriggerJob(t.Context(), request)
		if err != nil || r.State != "succeeded" {
			t.Errorf("its successor: %v, %v", r, err)
		}
		if n := len(w.handlers.of("slow")); n != 1 {
			t.Errorf("%d executions", n)
		}
	})
}
