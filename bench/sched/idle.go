package main

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/wheelworkhq/wheelwork/bench/internal/report"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// clockModule puts out the wall clock as the first thing it does.
//
//go:embed testdata/clock.wasm
var clockModule []byte

// singly measures single runs of an idle server, one each 10 ms.
func (b *bench) singly(ctx context.Context) (err error) {
	b.note("%d runs, one at a time", b.size.singles)
	d, err := b.start(ctx, "idle")
	if err != nil {
		return err
	}
	defer d.stop(&err)
	if err := d.push(ctx, "", "clock", clockModule); err != nil {
		return err
	}
	if _, err := d.Apply(ctx, &sdk.Job{Name: "clock", Handler: &sdk.Handler{Module: "clock@1"}}); err != nil {
		return err
	}
	var starts, ends []time.Duration
	pace := time.NewTicker(10 * time.Millisecond) // longer than a run, so that each finds everything asleep
	defer pace.Stop()
	const warmUp = 50 // the module is compiled, the connections are open
	for i := range warmUp + b.size.singles {
		if err := await(ctx, pace.C); err != nil {
			return err
		}
		start, end, err := d.single(ctx)
		if err != nil {
			return err
		}
		if i >= warmUp {
			starts, ends = append(starts, start), append(ends, end)
		}
	}
	slices.Sort(starts)
	slices.Sort(ends)
	b.report.Add("idle/start/p50", quantile(starts, 0.5), "ms", report.AtMost(0.5))
	b.report.Add("idle/start/p99", quantile(starts, 0.99), "ms", report.AtMost(2))
	b.report.Add("idle/end/p50", quantile(ends, 0.5), "ms", report.AtMost(0.8))
	b.report.Add("idle/end/p99", quantile(ends, 0.99), "ms", nil)
	return nil
}

// single returns what one run took from before the producer's call: until the
// first instruction of its handler, and until the producer was told that its end
// is durable.
func (d *dev) single(ctx context.Context) (start, end time.Duration, err error) {
	begin := time.Now()
	answer, err := d.Trigger(ctx, sdk.Trigger{Job: "clock"})
	if err != nil {
		return 0, 0, err
	}
	for _, err := range d.Watch(ctx, "", answer.RunID) { // ends with the run
		if err != nil {
			return 0, 0, err
		}
	}
	ended := time.Now()
	run, err := d.Run(ctx, "", answer.RunID)
	if err != nil {
		return 0, 0, err
	}
	output := run.GetOutputBytes()
	if len(output) == 0 { // it happened to be text
		output = []byte(run.GetOutput())
	}
	if run.GetState() != sdk.Succeeded || len(output) != 8 {
		return 0, 0, fmt.Errorf("run %s: %s with %d bytes of output, want succeeded with 8: %s",
			answer.RunID, run.GetState(), len(output), run.GetError())
	}
	started := time.Unix(0, int64(binary.LittleEndian.Uint64(output)))
	if started.Before(begin.Round(0)) || started.After(ended.Round(0)) {
		return 0, 0, errors.New("the wall clock was set while it was measured with: try again")
	}
	return started.Sub(begin.Round(0)), ended.Sub(begin), nil
}
