package verifier

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/internal/scriptkit"
	"github.com/wheelworkhq/wheelwork/runtime/script"
	"github.com/wheelworkhq/wheelwork/sched"
)

// TestTryScript executes handlers in the child. Nothing of one trial is there in the next.
func TestTryScript(t *testing.T) {
	v := New(Config{Command: childCommand(t), CodeDir: t.TempDir()})
	_ = v.Probe() // the walls that the system has
	const manifest = `{"handlers":[{"name":"main"}],"capabilities":{"kv":["state"],"secrets":["key"],"http":["example.com"],"enqueue":["other"]}}`
	for name, c := range map[string]struct {
		source, want string // of outcome, output, error, code and log
	}{
		"output":                   {"export default (ctx) => 'hello ' + ctx.text();", "succeeded hello Ada"},
		"log":                      {"export default (ctx) => { ctx.log.warn('a', 1); console.log('b'); };", "[warn a 1] [info b]"},
		"a failure":                {"import { Permanent } from 'wheelwork';\nexport default () => { throw new Permanent('no_name', 'give a name'); };", "permanent  give a name no_name"},
		"an error":                 {"export default () => {\n  return none.x;\n};", "main.js:2"},
		"a loop":                   {"export default () => { for (;;); };", "timed_out"},
		"memory":                   {"export default () => { const a = []; for (;;) a.push(new Uint8Array(1 << 20)); };", "out of memory"},
		"output that is too large": {"export default () => 'x'.repeat(1 << 20);", "output_limit"},
		"keys":                     {"export default (ctx) => { const b = ctx.kv('state'); const was = b.get('n'); b.put('n', '1'); return String(was) + b.get('n'); };", "succeeded undefined"},
		"a secret":                 {"export default (ctx) => String(ctx.secret('key'));", "succeeded undefined"},
		"network":                  {"export default (ctx) => ctx.http({url: 'https://example.com/'}).text();", "NotServed"},
		"ungranted":                {"export default (ctx) => ctx.kv('other').get('n');", "NotGranted"},
	} {
		_, quick := scriptAndInterpreter(t, script.JavaScript, c.source)
		code, err := scriptkit.Pack(script.JavaScript, "main.js", map[string]string{"main.js": c.source})
		if err != nil {
			t.Fatal(err)
		}
		upload := uploadOf(t, code)
		if _, err := v.Inspect(t.Context(), upload, manifest); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for range 2 {
			r, err := v.TryScript(t.Context(), upload, quick, sched.Trial{App: "default", Module: "m", Input: []byte("Ada"), Timeout: time.Second})
			got := fmt.Sprint(r.Outcome, " ", string(r.Output[:min(len(r.Output), 100)]), " ", r.Error, " ", r.Code, " ", r.Trace)
			for _, line := range r.Log {
				got += fmt.Sprintf(" [%s %s]", line.Level, line.Text)
			}
			if err != nil || !strings.Contains(got, c.want) {
				t.Errorf("%s: %s, %v, want %q", name, got, err, c.want)
			}
		}
	}
}

// TestTryScriptIsRefused: a script with a mistake, and a verifier without a process, execute nothing.
func TestTryScriptIsRefused(t *testing.T) {
	upload, quick := scriptAndInterpreter(t, script.JavaScript, "export default () => (;")
	trial := sched.Trial{App: "default", Module: "m", Timeout: time.Second}
	v := New(Config{Command: childCommand(t), CodeDir: t.TempDir()})
	if _, err := v.TryScript(t.Context(), upload, quick, trial); err == nil || !strings.Contains(err.Error(), "main.js:1:23: SyntaxError") {
		t.Errorf("an error of syntax: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := v.TryScript(ended, upload, quick, trial); err == nil {
		t.Error("a call that was ended has a result")
	}
	if _, err := New(Config{}).TryScript(t.Context(), upload, quick, trial); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("without a process: %v", err)
	}
}
