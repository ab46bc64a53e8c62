package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// tiny returns options with the smallest amounts of work.
func tiny(only string) options {
	return options{size: sizes{
		jobs: 100, runs: 500, failures: 20, rounds: 1,
		tabs: 2500 * time.Millisecond, load: 100, log: 500 * time.Millisecond, warm: 100 * time.Millisecond, lines: 100,
	}, only: regexp.MustCompile(only)}
}

// disk returns a directory that is on a disk if the sources are.
func disk(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(".", "test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("it left %v: %v", left, err)
		}
		_ = os.RemoveAll(dir)
	})
	return dir
}

// TestMeasure runs every part: its own checks must pass, each page must be there, and each
// row must have a number.
func TestMeasure(t *testing.T) {
	r, err := measure(t.Context(), tiny(""), disk(t), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, row := range r.Rows {
		names = append(names, row.Name)
		if row.Goal == nil || row.Unit == "" {
			t.Errorf("%+v", row)
		}
		if nothing := strings.HasPrefix(row.Name, "refresh/") || row.Name == worstRefresh || row.Name == logHeap; row.Value <= 0 && !nothing {
			t.Errorf("%s: %g", row.Name, row.Value)
		}
	}
	for _, p := range parts() {
		for _, row := range p.rows {
			if !strings.HasPrefix(row, "refresh/") && !slices.Contains(names, row) {
				t.Errorf("no row %s", row)
			}
		}
	}
	if !slices.Contains(names, "refresh/jobs") || slices.Contains(names, "refresh/job/edit") {
		t.Errorf("rows of refreshes: %q", names)
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"-o", "xml"}, {"--nothing"}, {"--only", "("}, {"--only", "^nothing$"}, {"--runs", "-1"}, {"--dir", "/nowhere/at/all"}} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%q was taken", args)
		}
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := measure(ctx, options{size: full, only: regexp.MustCompile("")}, disk(t), io.Discard); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
}

// TestFixtureIsThatOfTheCore compares the module with that of bench/core, whose source a
// test of that package compiles.
func TestFixtureIsThatOfTheCore(t *testing.T) {
	want, err := os.ReadFile("../core/testdata/trivial.wasm")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(trivialModule, want) {
		t.Error("testdata/trivial.wasm differs from bench/core/testdata/trivial.wasm: copy it")
	}
}
