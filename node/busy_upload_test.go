package node_test

import (
	"bytes"
	"net/http"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/examples/greet"
)

// TestBusyUploadGateElsewhere: a server that cannot take another upload of an app tells
// that to an HTTP client of another server as it does to its own clients.
func TestBusyUploadGateElsewhere(t *testing.T) {
	t.Parallel()
	w, app := twoOwners(t)
	conn, ctx := dial(t, w.all["b"], adminToken)
	answers := make(chan error, 3)
	for range cap(answers) { // one more than a server takes; two wait for their bytes
		s, err := apiv1.NewModulesClient(conn).PushModule(ctx)
		if err != nil {
			t.Fatal(err)
		}
		head := &apiv1.PushModuleRequest_Head{App: app, Name: "slow", Version: "1"}
		if err := s.Send(&apiv1.PushModuleRequest{Part: &apiv1.PushModuleRequest_Head_{Head: head}}); err != nil {
			t.Fatal(err)
		}
		go func() { answers <- s.RecvMsg(&apiv1.PushModuleResponse{}) }()
	}
	if err := <-answers; status.Code(err) != codes.ResourceExhausted {
		t.Fatal(err)
	}
	for _, name := range []string{"b", "a"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, w.all[name].URL+"/api/v1/apps/"+app+"/modules/greet/versions/1", bytes.NewReader(greet.Module))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+adminToken)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Errorf("at %s: %v", name, err)
			continue
		}
		resp.Body.Close() //nolint:errcheck // not read
		if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "10" {
			t.Errorf("at the server %s: %s, Retry-After %q", name, resp.Status, resp.Header.Get("Retry-After"))
		}
	}
}
