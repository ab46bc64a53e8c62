package node_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/interpreter"
	"github.com/wheelworkhq/wheelwork/internal/scriptkit"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/runtime/script"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// TestTrialWithoutChild: a server that starts no process for uploads tries no script. It says first
// that the interpreter is missing, and checks a dry run all the same.
func TestTrialWithoutChild(t *testing.T) {
	t.Parallel()
	known, _ := script.ByLanguage(script.JavaScript)
	dir, err := interpreter.Dir()
	if err != nil {
		t.Fatal(err)
	}
	quick, err := interpreter.Load(dir, known)
	if errors.Is(err, interpreter.ErrMissing) {
		testkit.Lacks(t, "%v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	code, err := scriptkit.Pack(script.JavaScript, "main.js", map[string]string{"main.js": "export default (ctx) => ctx.text();"})
	if err != nil {
		t.Fatal(err)
	}
	p := dev(t, node.DevConfig{Data: t.TempDir()})
	client, err := sdk.Dial(t.Context(), p.URL, sdk.Options{Token: p.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // a test's
	trial := sdk.Trial{Module: "echo", Code: code, Input: "Ada", Timeout: time.Second}
	if _, err := client.TryScript(t.Context(), trial); err == nil || !strings.Contains(err.Error(), "wheelwork module fetch-interpreter javascript") {
		t.Errorf("without the interpreter: %v", err)
	}
	name, version, _ := strings.Cut(known.Name(), "@")
	if _, _, err := client.PushModule(t.Context(), sdk.Upload{Name: name, Version: version, Code: quick}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.TryScript(t.Context(), trial); err == nil || !strings.Contains(err.Error(), "no process in which it may try a script") {
		t.Errorf("with the interpreter: %v", err)
	}
	if m, result, err := client.PushModule(t.Context(), sdk.Upload{Name: "echo", Version: "1", Code: code, DryRun: true}); err != nil || result != sdk.Checked || m.GetInterpreter() != known.Digest {
		t.Errorf("a dry run: %v, %v, %v", m, result, err)
	}
	if _, err := client.Module(t.Context(), "", "echo@1"); !errors.Is(err, sdk.ErrNotFound) {
		t.Errorf("after a dry run: %v", err)
	}
}
