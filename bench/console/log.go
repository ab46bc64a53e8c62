package main

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wheelworkhq/wheelwork/bench/internal/report"
	"github.com/wheelworkhq/wheelwork/sdk"
)

const logHeap = "log/heap"

var logRows = []string{logHeap}

// growth is the most that the live heap of the server may grow while it passes on a log,
// in MiB: what it has for other reasons varies by less.
const growth = 4

// after is how long the run goes on after the measurements: a busy machine is late.
const after = 3 * time.Second

// measureLog follows the log of a run, and compares the live heap of the server after a
// while with that before the end.
func (b *bench) measureLog(ctx context.Context) error {
	b.note("live log: %v", b.size.log)
	br, err := b.signIn(ctx)
	if err != nil {
		return err
	}
	run, err := b.dev.TriggerRun(ctx, sdk.Trigger{Job: logJob, Input: []byte((b.size.log + after).String())})
	if err != nil {
		return err
	}
	begin := time.Now()
	over := make(chan error, 1)
	go func() { over <- b.follow(ctx, br, run.GetId()) }()
	var heap [2]float64
	for i, at := range []time.Duration{b.size.warm, b.size.log * 9 / 10} {
		select {
		case <-time.After(time.Until(begin.Add(at))):
		case err := <-over:
			return fmt.Errorf("the log ended early: %w", err)
		case <-ctx.Done():
			return ctx.Err()
		}
		if heap[i], err = b.heap(ctx); err != nil {
			return err
		}
	}
	select {
	case err := <-over:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	b.report.Add(logHeap, heap[1]-heap[0], "MiB", report.AtMost(growth))
	b.report.Note(fmt.Sprintf("from %.1f MiB at %v to %.1f MiB at %v, %d lines a second", heap[0], b.size.warm, heap[1], b.size.log*9/10, b.size.lines))
	return nil
}

// heap returns the live heap of the server in MiB: the median of some readings, each after
// a collection.
func (b *bench) heap(ctx context.Context) (float64, error) {
	var all []float64
	for range 5 {
		n, err := b.heapOnce(ctx)
		if err != nil {
			return 0, err
		}
		all = append(all, n)
	}
	slices.Sort(all)
	return all[len(all)/2] / (1 << 20), nil
}

func (b *bench) heapOnce(ctx context.Context) (float64, error) {
	resp, err := b.dev.Profile(ctx, "heap?gc=1&debug=1")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), "# HeapAlloc = "); ok {
			return strconv.ParseFloat(text, 64)
		}
	}
	return 0, fmt.Errorf("the heap profile of the server has no line HeapAlloc: %w", lines.Err())
}
