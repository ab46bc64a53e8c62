package cli

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/sdk"
	"github.com/wheelworkhq/wheelwork/sdk/sdktest"
)

// TestRunDelete deletes runs and payloads by their ids.
func TestRunDelete(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := sdktest.NewServer(sdktest.Config{})
	t.Cleanup(server.Close)
	go server.Serve(l) //nolint:errcheck // ends with the server
	address := "http://" + l.Addr().String()
	c, err := sdk.Dial(t.Context(), address, sdk.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // a test's
	if _, err := c.Apply(t.Context(), &sdk.Job{Name: "a", Handler: &sdk.Handler{Module: "m@1"}}); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for range 3 {
		made, err := c.Trigger(t.Context(), sdk.Trigger{Job: "a", Input: []byte("in")})
		if err == nil {
			_, err = c.Wait(t.Context(), "", made.RunID)
		}
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, made.RunID)
	}
	for _, tc := range []struct {
		args []string
		code int
		out  string // a part of what it prints
	}{
		{[]string{"--dry-run", ids[0], ids[1]}, exitOK, `"matched": 2`},
		{[]string{"--payload", "--yes", ids[0]}, exitOK, `"changed": 1`},
		{[]string{"--yes", ids[1], ids[2]}, exitOK, `"changed": 2`},
		{[]string{"--yes", ids[1]}, exitFail, "not_found"},
		{[]string{}, exitUsage, "say which runs"},
		{[]string{"--state", "failed"}, exitUsage, "say which runs"},
		{[]string{"--job", "a", ids[0]}, exitUsage, "IDs exclude"},
		{[]string{"--detach", ids[0]}, exitUsage, "IDs exclude"},
		{[]string{"--job", "a", "--all"}, exitUsage, "exclude each other"},
	} {
		var out, errOut strings.Builder
		code := execute(context.Background(), append([]string{"run", "delete", "-o", "json"}, tc.args...), strings.NewReader(""), &out, &errOut, func(name string) string {
			return map[string]string{"WHEELWORK_URL": address}[name]
		})
		if said := out.String() + errOut.String(); code != tc.code || !strings.Contains(said, tc.out) {
			t.Errorf("%v: exit code %d, want %d, with\n%s", tc.args, code, tc.code, said)
		}
	}
	if run, err := c.Run(t.Context(), "", ids[0]); err != nil || run.GetPayloadDeletedAt() == nil || run.GetInput() != "" {
		t.Errorf("the purged run: %v, %v", run, err)
	}
}
