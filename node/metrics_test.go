package node_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/node"
)

// TestHostMetrics runs a module that records metrics on a host beside its server, and reads them from the host.
func TestHostMetrics(t *testing.T) {
	module, err := os.ReadFile("testdata/metrics/metrics.wasm")
	if err != nil {
		t.Fatal(err)
	}
	srv := launch(t, func(ctx context.Context, ready func(node.Ready)) error {
		return node.Server(ctx, node.ServerConfig{Data: t.TempDir(), Listen: "127.0.0.1:0", TokenFile: hostToken(t), Ready: ready})
	})
	address := testkit.FreeAddress(t)
	launch(t, func(ctx context.Context, ready func(node.Ready)) error {
		return node.Host(ctx, node.HostConfig{Data: t.TempDir(), Server: srv.GRPC, TokenFile: hostToken(t), Slots: 2, MetricsListen: address, Ready: ready})
	})
	conn, ctx := dial(t, srv, srv.Token)
	if err := push(t, ctx, conn, "metrics", "1", module); err != nil {
		t.Fatal(err)
	}
	jobs := apiv1.NewJobsClient(conn)
	if _, err := jobs.ApplyJob(ctx, &apiv1.ApplyJobRequest{Job: &apiv1.Job{Name: "orders", Handler: &apiv1.Handler{Module: "metrics@1"}}}); err != nil {
		t.Fatal(err)
	}
	run, err := jobs.TriggerJob(ctx, &apiv1.TriggerJobRequest{Name: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	if r := await(t, ctx, conn, run.Id); r.State != "succeeded" {
		t.Fatalf("run: %v", r)
	}
	get := func(path string) (int, string) {
		t.Helper()
		resp, err := http.Get("http://" + address + path) //nolint:gosec // an address of this test
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close() //nolint:errcheck // it was read
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	if code, text := get("/livez"); code != http.StatusOK || text != "ok\n" {
		t.Errorf("/livez: %d %q", code, text)
	}
	code, text := get("/metrics")
	if code != http.StatusOK {
		t.Fatalf("/metrics: %d %s", code, text)
	}
	for _, want := range []string{
		`wheelwork_handler_orders_total{app="default",job="orders"} 2`,
		`wheelwork_handler_seconds_count{app="default",job="orders"} 1`,
		"# HELP wheelwork_handler_orders_total Recorded by handlers as orders",
		"process_resident_memory_bytes", "go_goroutines",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	for _, path := range []string{"/", "/debug/pprof/", "/api/v1/jobs", "/metrics/"} {
		if code, _ := get(path); code != http.StatusNotFound {
			t.Errorf("%s: %d, want 404", path, code)
		}
	}
}

// TestMetricsListenRefuses checks that a host whose metrics cannot be served does not start.
func TestMetricsListenRefuses(t *testing.T) {
	for address, want := range map[string]string{"9464": "is not HOST:PORT", "192.0.2.1:9464": "choose another address"} {
		err := node.Host(t.Context(), node.HostConfig{Data: t.TempDir(), Server: "127.0.0.1:1", Token: "a-token-of-a-host", MetricsListen: address})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--metrics-listen %s: %v, want it to say %q", address, err, want)
		}
	}
}

// hostToken returns a file with the token of the hosts of a test.
func hostToken(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("a-shared-secret-of-this-test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
