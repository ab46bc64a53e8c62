package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/testkit"
)

func TestMain(m *testing.M) {
	if os.Getenv(pluginEnv) != "" { // started by TestMeasure
		servePlugin()
		return
	}
	os.Exit(m.Run())
}

// TestMeasure runs the whole benchmark with tiny sizes: its own checks must pass, and
// every row must be present.
func TestMeasure(t *testing.T) {
	tiny := sizes{rounds: 1, round: time.Millisecond, deadlines: 1, loads: 1}
	r, err := measure(t.Context(), tiny, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, row := range r.Rows {
		names = append(names, row.Name)
		if row.Value <= 0 && row.Skipped == "" {
			t.Errorf("row %s is %v, want more than nothing", row.Name, row.Value)
		}
	}
	want := []string{
		"warm/call", "reset/8pages", "reset/8pages/computed", "reset/all", "reset/go", "fresh/small", "fresh/go", "batch/16",
		"metering/c/fnv", "metering/c/crc", "metering/c/sort", "metering/c/fib", "metering/rust/fnv", "metering/rust/sort",
		"metering/c/sort/unmarked", "metering/rust/sort/unmarked", "metering/go/fnv",
		"deadline/overshoot", "gc/stall", "gc/alone", "gc/wait", "load/go/compile", "load/go/cached",
		"warm/extism", "warm/process", "warm/goplugin", "plugin/stream",
	}
	if !slices.Equal(names, want) {
		t.Errorf("rows %q, want %q", names, want)
	}
}

func TestExtismGuestMatchesItsSource(t *testing.T) {
	tool, err := exec.LookPath("wat2wasm")
	if err != nil {
		testkit.Lacks(t, "needs wat2wasm (Debian package wabt), which is not installed")
	}
	out := filepath.Join(t.TempDir(), "out.wasm")
	if msg, err := exec.Command(tool, "guests/extism.wat", "-o", out).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, msg)
	}
	want, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(extismGuest, want) {
		t.Error("guests/extism.wasm is not what its source makes: build it again")
	}
}
