package cli

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/sdk"
	"github.com/wheelworkhq/wheelwork/sdk/sdktest"
)

// TestRunListSaysWhatItLacks: one line on standard error says that damage kept runs from
// the list, and standard output has the others.
func TestRunListSaysWhatItLacks(t *testing.T) {
	for blocks, want := range map[int]string{0: "", 2: "warning: the list lacks runs: 2 damaged blocks of the history were passed over"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := sdktest.NewServer(sdktest.Config{UnreadableBlocks: blocks})
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
		if _, err := c.Trigger(t.Context(), sdk.Trigger{Job: "a"}); err != nil {
			t.Fatal(err)
		}
		for _, format := range []string{"table", "json"} {
			var out, errOut strings.Builder
			code := execute(context.Background(), []string{"run", "list", "-o", format}, strings.NewReader(""), &out, &errOut, func(name string) string {
				return map[string]string{"WHEELWORK_URL": address}[name]
			})
			if said := errOut.String(); code != exitOK || !strings.HasPrefix(said, want) || want == "" && said != "" || want != "" && strings.Count(said, "\n") != 1 {
				t.Errorf("%d damaged blocks, %s: exit code %d, standard error %q", blocks, format, code, said)
			}
			var runs []map[string]any
			if err := json.Unmarshal([]byte(out.String()), &runs); format == "json" && (err != nil || len(runs) != 1) {
				t.Errorf("%d damaged blocks: standard output %q: %v", blocks, out.String(), err)
			}
		}
	}
}
