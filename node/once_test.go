package node_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// TestTriggerWithoutKeyAtAnyServer: each server of a cluster takes a trigger without a
// key, and passes it to the owner of the job itself. A client that was redirected to the
// owner could not know whether the first server had already started the run.
func TestTriggerWithoutKeyAtAnyServer(t *testing.T) {
	t.Parallel()
	w := newSeveral(t, 2, "a", "b")
	c := w.client("a", "b")
	w.untilBothOwn(c)
	w.host("h", "a", "b")
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, app := range w.place(c, "a") {
		if _, err := c.Apply(t.Context(), &sdk.Job{App: app, Name: "hello", Handler: &sdk.Handler{Module: "greet@1"}}); err != nil {
			t.Fatal(err)
		}
		for _, server := range []string{"a", "b"} {
			conn, ctx := dial(t, w.all[server], adminToken)
			jobs := apiv1.NewJobsClient(conn)
			seen := map[string]bool{}
			for _, wait := range []string{"", "1m"} {
				r, err := jobs.TriggerJob(ctx, &apiv1.TriggerJobRequest{App: app, Name: "hello", Input: proto.String("you"), Wait: wait})
				if err != nil || wait != "" && r.State != "succeeded" {
					t.Fatalf("%s at %s, waiting %q: %v, %v", app, server, wait, r, err)
				}
				seen[r.Id] = true
			}
			if len(seen) != 2 {
				t.Errorf("two triggers without a key gave the runs %v", seen)
			}
			for want, req := range map[codes.Code]*apiv1.TriggerJobRequest{
				codes.NotFound:        {App: app, Name: "missing"},
				codes.InvalidArgument: {App: app, Name: "hello", Wait: "soon"},
			} {
				if _, err := jobs.TriggerJob(ctx, req); status.Code(err) != want {
					t.Errorf("%v at %s: %v, want %v", req, server, err, want)
				}
			}

			id := postTrigger(t, w.at[server], app, trace)
			run, err := c.Run(t.Context(), app, id)
			if err != nil || !strings.Contains(run.TraceParent, "4bf92f3577b34da6a3ce929d0e0e4736") {
				t.Errorf("the run of a call with the trace %s has %q, %v", trace, run.GetTraceParent(), err)
			}
		}
	}
}

// postTrigger triggers the job hello over HTTP and returns its run.
func postTrigger(t *testing.T, address, app, trace string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/api/v1/apps/"+app+"/jobs/hello:trigger", bytes.NewBufferString(`{"input":"you"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	req.Header.Set("Traceparent", trace)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("a trigger was answered %s %s, %v", resp.Status, body, err)
	}
	var run struct{ ID string }
	if err := json.Unmarshal(body, &run); err != nil {
		t.Fatal(err)
	}
	return run.ID
}
