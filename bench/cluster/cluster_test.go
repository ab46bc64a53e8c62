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

// TestMeasure runs the whole benchmark with tiny sizes: its own checks must pass, and
// every row must be present.
func TestMeasure(t *testing.T) {
	r, err := measure(t.Context(), sizes{singles: 5, runs: 2_000, warmUp: 100, pair: 500}, t.TempDir(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, row := range r.Rows {
		names = append(names, row.Name)
		if row.Value <= 0 {
			t.Errorf("row %s is %v, want more than nothing", row.Name, row.Value)
		}
	}
	want := []string{
		"append/p50", "append/p50/vs-one", "append/p99", "append/p99/vs-one",
		"throughput/64", "throughput/64/vs-one", "throughput/batch100", "throughput/batch100/vs-one", "throughput/batch100/tls",
	}
	if !slices.Equal(names, want) {
		t.Errorf("rows %q, want %q", names, want)
	}
}

func TestQuantile(t *testing.T) {
	var all []time.Duration
	for i := range 100 {
		all = append(all, time.Duration(100-i))
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 50, 0.99: 99, 1: 100} {
		if got := quantile(all, q); got != want {
			t.Errorf("quantile %v of 1 to 100 = %d, want %d", q, got, want)
		}
	}
}

func TestFixturesMatchTheirSources(t *testing.T) {
	tool, err := exec.LookPath("wat2wasm")
	if err != nil {
		testkit.Lacks(t, "needs wat2wasm (Debian package wabt), which is not installed")
	}
	out := filepath.Join(t.TempDir(), "out.wasm")
	if msg, err := exec.Command(tool, filepath.Join("testdata", "trivial.wat"), "-o", out).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, msg)
	}
	want, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(trivialModule, want) {
		t.Error("testdata/trivial.wasm is not what its source makes: build it again")
	}
}
