package fault

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// withoutStarts is the last commit whose hosts do not report starts and whose servers do
// not recall tasks.
const withoutStarts = "ffe8ffdc7085"

// TestHostsOfAnotherVersion runs hosts and servers of different versions together, from
// both sides of the change of the Work protocol in which hosts report starts. They
// execute each other's runs, including runs that wait and runs that sleep. Building the
// older program takes a minute.
func TestHostsOfAnotherVersion(t *testing.T) {
	if !formOf(t) {
		t.Skip("builds an older program, in the long form only")
	}
	old, current := olderProgram(t, withoutStarts), program(t)
	for name, c := range map[string]struct {
		server, host string
		states       []string // the states that live runs may have
	}{
		"older host":   {current, old, []string{"queued", "running"}},
		"older server": {old, current, []string{"queued", "running"}},
		"same":         {current, current, []string{"queued", "dispatched", "running", "sleeping"}},
	} {
		t.Run(name, func(t *testing.T) {
			client := pair(t, c.server, c.host)
			ctx := t.Context()
			for module, timeout := range map[string]string{"compute": "1s", "sleep": "1s", "trivial": "10s"} {
				code, err := os.ReadFile(filepath.Join("..", "..", "bench", "sched", "testdata", module+".wasm"))
				if err != nil {
					t.Fatal(err)
				}
				if _, _, err := client.PushModule(ctx, sdk.Upload{Name: module, Version: "1", Code: code}); err != nil {
					t.Fatal(err)
				}
				if _, err := client.Apply(ctx, &sdk.Job{Name: module, Handler: &sdk.Handler{Module: module + "@1"}, Timeout: timeout}); err != nil {
					t.Fatal(err)
				}
			}
			const each = 10
			for range each {
				for _, job := range []string{"compute", "sleep", "trivial"} {
					if _, err := client.Trigger(ctx, sdk.Trigger{Job: job}); err != nil {
						t.Fatal(err)
					}
				}
			}
			seen := map[string]int{}
			until(t, "the runs to end", time.Minute, func() bool {
				ended := 0
				for run, err := range client.Runs(ctx, sdk.RunQuery{}) {
					if err != nil {
						t.Fatal(err)
					}
					seen[run.GetState()]++
					if run.GetFinishedAt() == nil {
						continue
					}
					ended++
					if want := map[string]string{"trivial": "succeeded"}[run.GetJob()]; want != "" && run.GetState() != want || want == "" && run.GetState() != "timed_out" {
						t.Errorf("run %s of %s is %s: %s", run.GetId(), run.GetJob(), run.GetState(), run.GetError())
					}
					if took := run.GetFinishedAt().AsTime().Sub(run.GetStartedAt().AsTime()); run.GetStartedAt() == nil || run.GetAttempt() != 1 || took < 0 {
						t.Errorf("run %s of %s took %v in %d attempts", run.GetId(), run.GetJob(), took, run.GetAttempt())
					}
				}
				return ended == 3*each
			}, func() string { return "" })
			for _, state := range c.states {
				delete(seen, state)
			}
			delete(seen, "succeeded")
			delete(seen, "timed_out")
			if len(seen) > 0 {
				t.Errorf("runs had the states %v", seen)
			}
		})
	}
}

// pair starts a server and a host with four execution slots, and returns a client of the
// server.
func pair(t *testing.T, server, host string) *sdk.Client {
	t.Helper()
	dir, at := t.TempDir(), testkit.FreeAddress(t)
	tokens, ready := filepath.Join(dir, "tokens"), filepath.Join(dir, "ready")
	if err := os.WriteFile(tokens, []byte("a-secret-that-server-and-host-share\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{
		{server, "server", "--data", filepath.Join(dir, "server"), "--listen", at, "--token-file", tokens, "--ready-file", ready},
		{host, "host", "--data", filepath.Join(dir, "host"), "--server", at, "--token-file", tokens, "--slots", "4"},
	} {
		cmd := exec.Command(command[0], command[1:]...)
		var said strings.Builder
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may have ended
			if err := cmd.Wait(); err != nil || t.Failed() {
				t.Logf("%s: %v\n%s", strings.Join(command, " "), err, said.String())
			}
		})
	}
	var info struct{ URL, Token string }
	until(t, "the server to be ready", time.Minute, func() bool {
		text, err := os.ReadFile(ready)
		return err == nil && json.Unmarshal(text, &info) == nil
	}, func() string { return "" })
	client, err := sdk.Dial(context.Background(), info.URL, sdk.Options{Token: info.Token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() }) //nolint:errcheck // a test's
	return client
}
