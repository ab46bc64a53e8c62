package sched_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/sched/api"
)

// collected holds the services of a server by name. Calls go directly to the
// implementation, as the forwarder of a cluster calls it.
type collected map[string]any

func (c collected) RegisterService(d *grpc.ServiceDesc, impl any) { c[d.ServiceName] = impl }

func (w *world) services() collected {
	c := collected{}
	w.srv.Register(c)
	return c
}

func (c collected) jobs() apiv1.JobsServer {
	return c[apiv1.Jobs_ServiceDesc.ServiceName].(apiv1.JobsServer)
}

func (c collected) runs() apiv1.RunsServer {
	return c[apiv1.Runs_ServiceDesc.ServiceName].(apiv1.RunsServer)
}

// TestTriedTwiceRunsOnce checks that a request which is repeated at the next server,
// because the first one stopped before it answered, finds the runs that it started: live,
// ended, and in the history.
func TestTriedTwiceRunsOnce(t *testing.T) {
	for _, c := range []struct {
		name   string
		before time.Duration // how long the server works before it stops
	}{{"live", 0}, {"ended", 3 * time.Second}, {"in the history", time.Minute}} {
		t.Run(c.name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world, cl *client) {
				w.handlers.byJob["one"] = slowly(time.Second)
				w.handlers.byJob["bad"] = func(context.Context, runtime.Task, runtime.Sink) runtime.Result {
					return runtime.Result{Outcome: runtime.Permanent}
				}
				cl.apply(&apiv1.Job{Name: "one", Labels: map[string]string{"a": "b"}})
				cl.apply(&apiv1.Job{Name: "bad"})
				failed := cl.wait(cl.trigger("bad", "")).Id

				unary, _ := api.WithOnce(t.Context(), time.Now())
				retry, _ := api.WithOnce(t.Context(), time.Now())
				bulk, _ := api.WithOnce(t.Context(), time.Now())
				var ids [2][2]string
				for try := range ids {
					r, err := w.services().jobs().TriggerJob(unary, &apiv1.TriggerJobRequest{Name: "one"})
					if err != nil {
						t.Fatal(err)
					}
					again, err := w.services().runs().RetryRun(retry, &apiv1.RetryRunRequest{Id: failed})
					if err != nil {
						t.Fatal(err)
					}
					if done, err := w.services().jobs().BulkJobs(bulk, &apiv1.BulkJobsRequest{Action: "trigger", Labels: map[string]string{"a": "b"}}); err != nil || done.Changed != 1 {
						t.Fatalf("bulk: %v, %v", done, err)
					}
					ids[try] = [2]string{r.Id, again.Id}
					time.Sleep(c.before)
					w.stopServer()
					w.start()
				}
				if ids[0] != ids[1] {
					t.Errorf("the first try started %v, the second one %v", ids[0], ids[1])
				}
				time.Sleep(2 * time.Minute)
				if one, bad := len(w.handlers.of("one")), len(w.handlers.of("bad")); one != 2 || bad != 2 {
					t.Errorf("%d and %d executions, want 2 (a trigger and a bulk trigger) and 2 (a trigger and a retry)", one, bad)
				}
			})
		})
	}
}

// TestKeyUsedAgainWithOtherInput checks that an idempotency key belongs to one run with
// one input, also after restarts.
func TestKeyUsedAgainWithOtherInput(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		c.apply(&apiv1.Job{Name: "echo", Input: "default"})
		trigger := func(input *string) (string, error) {
			r, err := c.jobs.TriggerJob(t.Context(), &apiv1.TriggerJobRequest{Name: "echo", Input: input, IdempotencyKey: "k"})
			return r.GetId(), err
		}
		first, err := trigger(proto.String("this"))
		if err != nil {
			t.Fatal(err)
		}
		for _, restarted := range []bool{false, true} {
			if restarted {
				time.Sleep(time.Minute) // until the keys are in the store
				c.close()
				w.stopServer()
				w.start()
				c = w.client()
			}
			if id, err := trigger(proto.String("this")); err != nil || id != first {
				t.Errorf("the same input: %s, %v, want %s", id, err, first)
			}
			for _, input := range []*string{proto.String("that"), proto.String(""), nil} {
				if _, err := trigger(input); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), first) {
					t.Errorf("input %v (restarted: %v): %v, want a refusal that names run %s", input, restarted, err, first)
				}
			}
		}
		c.close()
	})
}
