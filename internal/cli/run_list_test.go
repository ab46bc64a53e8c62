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

// TestRunListByPayload checks the flags that select by inputs and outputs.
func TestRunListByPayload(t *testing.T) {
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
	for _, input := range []string{"customer 41", "customer 42"} {
		if _, err := c.Trigger(t.Context(), sdk.Trigger{Job: "a", Input: []byte(input)}); err != nil {
			t.Fatal(err)
		}
	}
	list := func(args ...string) (code int, out, errOut strings.Builder) {
		code = execute(context.Background(), append([]string{"run", "list", "-o", "json"}, args...), strings.NewReader(""), &out, &errOut, func(name string) string {
			return map[string]string{"WHEELWORK_URL": address}[name]
		})
		return code, out, errOut
	}
	for text, want := range map[string]int{"customer": 2, "customer 42": 1, "customer 43": 0} {
		code, out, errOut := list("--since", "1h", "--in-input", text)
		var runs []map[string]any
		if err := json.Unmarshal([]byte(out.String()), &runs); code != exitOK || err != nil || len(runs) != want {
			t.Errorf("%q: exit code %d, %s%s, %v; want %d runs", text, code, out.String(), errOut.String(), err, want)
		}
	}
	for args, want := range map[string]string{
		"--in-input x":                                   "add --since, as in --since 24h",
		"--output-value a=b":                             "add --since, as in --since 24h",
		"--input-value a --since 1h":                     "want PATH=VALUE, as data.country=DE",
		"--input-value =a --since 1h":                    "want PATH=VALUE",
		"--input-value a=1 --input-value a=2 --since 1h": "two values for a",
	} {
		code, _, errOut := list(strings.Fields(args)...)
		if code != exitUsage || !strings.Contains(errOut.String(), want) {
			t.Errorf("%s: exit code %d, %q, want %q", args, code, errOut.String(), want)
		}
	}
}
