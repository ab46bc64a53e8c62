package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/bench/internal/report"
)

// tiny runs the whole benchmark with the smallest amounts of work.
var tiny = sizes{
	rounds: 1, window: 5 * time.Millisecond, warmUp: time.Millisecond,
	raw: 2 << 20, appends: 5, read: 1 << 20, open: 1 << 20,
}

// diskDir returns a directory on a disk. The directory for temporary files may be in
// memory.
func diskDir(t *testing.T) string {
	t.Helper()
	for _, parent := range []string{os.TempDir(), "."} {
		dir, err := os.MkdirTemp(parent, "wheelwork-bench-test-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			left, err := filepath.Glob(filepath.Join(dir, "*"))
			if err != nil || len(left) > 0 {
				t.Errorf("the benchmark left %q (%v)", left, err)
			}
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		})
		if m, err := report.ReadMachine(dir); err != nil {
			t.Fatal(err)
		} else if m.DiskFS != "tmpfs" {
			return dir
		}
	}
	t.Skip("needs a directory that is not in memory; the one for temporary files and this one are tmpfs")
	return ""
}

// TestMeasure runs the whole benchmark and checks that each row is present, and has
// consistent numbers or a reason for being skipped.
func TestMeasure(t *testing.T) {
	o := options{size: tiny, only: regexp.MustCompile(""), producers: []int{1, 16, 256}, writer: "auto"}
	r, err := measure(t.Context(), o, diskDir(t), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Bench string
		Rows  []struct {
			Name, Unit, Skipped string
			Value               float64
			Anchor, Goal        *string
			AnchorValue         *float64 `json:"anchor_value"`
			Ratio               *float64
			Met                 *bool
		}
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Bench != "mq" {
		t.Errorf("bench %q, want mq", got.Bench)
	}
	_, redisErr := exec.LookPath("redis-server")
	var names []string
	for _, row := range got.Rows {
		names = append(names, row.Name)
		switch {
		case row.Skipped != "":
			missing := strings.HasSuffix(row.Name, "-"+redisName) && redisErr != nil
			if !missing && !strings.HasPrefix(row.Name, "device-bytes/") { // the file system may not support the writers mmap and direct
				t.Errorf("row %s was skipped: %s", row.Name, row.Skipped)
			}
		case row.Value <= 0 || row.Unit == "":
			t.Errorf("row %s is %v %s, want more than nothing", row.Name, row.Value, row.Unit)
		case row.Anchor != nil && math.Abs(*row.Ratio - row.Value / *row.AnchorValue) > 1e-9:
			t.Errorf("row %s: ratio %v of %v to %v", row.Name, *row.Ratio, row.Value, *row.AnchorValue)
		case (row.Goal == nil) != (row.Met == nil):
			t.Errorf("row %s: a goal and its judgement come together", row.Name)
		}
	}
	want := []string{
		"batch/16x100", "batch/256x16", "device-bytes/append/direct", "device-bytes/append/mmap", "device-bytes/append/pwrite",
		"latency/1/p50", "latency/1/p99", "latency/256/p50", "latency/256/p99", "open/" + gibibytes(tiny.open), "recover/read",
	}
	for _, n := range o.producers {
		want = append(want, fmt.Sprintf("append/%d", n))
		for _, p := range peers {
			want = append(want, fmt.Sprintf("append/%d/vs-%s", n, p.name))
		}
	}
	slices.Sort(names)
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("rows %q, want %q", names, want)
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := options{size: tiny, only: regexp.MustCompile("^append/1$"), producers: []int{1}, writer: "auto"}
	if _, err := measure(ctx, o, diskDir(t), t.Output()); !errors.Is(err, context.Canceled) {
		t.Errorf("the interrupted benchmark ends with %v, want %v", err, context.Canceled)
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{
		{"-o", "xml"},
		{"--only", "("},
		{"--producers", ""},
		{"--producers", "1,x"},
		{"--producers", "0"},
		{"--producers", "5000"},
		{"--dir", "/nowhere"},
		{"--only", "no such row", "--dir", diskDir(t)},
		{"--writer", "pen", "--only", "append/1$", "--dir", diskDir(t)},
	} {
		var out bytes.Buffer
		if err := run(t.Context(), args, &out, t.Output()); err == nil {
			t.Errorf("%q is accepted", args)
		}
		if out.Len() > 0 {
			t.Errorf("%q prints %q", args, &out)
		}
	}
}

func TestMedian(t *testing.T) {
	rates := func(all ...float64) (rs []result) {
		for _, r := range all {
			rs = append(rs, result{rate: r})
		}
		return rs
	}
	// The ratios are 1, 3 and 2, so the third round is the median.
	if value, anchor := median(rate, rates(10, 30, 8), rates(10, 10, 4)); value != 8 || anchor != 4 {
		t.Errorf("the median is %v of %v, want 8 of 4", value, anchor)
	}
}

func TestSummary(t *testing.T) {
	var waits []time.Duration
	for i := range 100 {
		waits = append(waits, time.Duration(100-i)*time.Microsecond)
	}
	if got, want := summary(waits, 3, 2*time.Second), (result{rate: 150, p50: 50, p99: 99}); got != want {
		t.Errorf("summary %+v, want %+v", got, want)
	}
	if got := summary(nil, 3, time.Second); got != (result{}) {
		t.Errorf("summary of nothing %+v", got)
	}
}

// TestGroup checks that put returns the result of the write that carried its message, and
// that closeBefore closes the store.
func TestGroup(t *testing.T) {
	failure := errors.New("no")
	written := map[string]bool{}
	g := newGroup(func(bodies [][]byte) error {
		for _, b := range bodies {
			written[string(b)] = true
		}
		if written["bad"] {
			return failure
		}
		return nil
	})
	results := make(chan error, 50)
	for i := range cap(results) {
		go func() { results <- g.put(i, fmt.Append(nil, i)) }()
	}
	for range cap(results) {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if err := g.put(0, []byte("bad")); !errors.Is(err, failure) {
		t.Errorf("a failed write ends with %v, want %v", err, failure)
	}
	closed := false
	if err := g.closeBefore(func() error { closed = true; return failure })(); !closed || !errors.Is(err, failure) {
		t.Errorf("the store below was closed: %v, with %v", closed, err)
	}
	if len(written) != cap(results)+1 {
		t.Errorf("%d messages were written, want %d", len(written), cap(results)+1)
	}
}
