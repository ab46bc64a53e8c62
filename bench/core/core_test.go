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
	tiny := sizes{starts: 1, settle: time.Millisecond, singles: 5, runs: 2_000, warmUp: 100}
	r, err := measure(t.Context(), tiny, t.TempDir(), t.Output())
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
		"binary/size", "start/dev", "rss/idle", "dispatch/idle/p50", "dispatch/idle/p99",
		"complete/idle/p50", "complete/idle/p99", "throughput/64", "throughput/batch100",
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
	for name, code := range map[string][]byte{"trivial": trivialModule} {
		out := filepath.Join(t.TempDir(), "out.wasm")
		if msg, err := exec.Command(tool, filepath.Join("testdata", name+".wat"), "-o", out).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, msg)
		}
		want, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(code, want) {
			t.Errorf("testdata/%s.wasm is not what its source makes: build it again", name)
		}
	}
}
