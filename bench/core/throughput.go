package main

import (
	"context"
	_ "embed"
	"fmt"
	"path/filepath"

	"github.com/wheelworkhq/wheelwork/bench/internal/drive"
	"github.com/wheelworkhq/wheelwork/bench/internal/report"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// trivialModule does nothing and succeeds.
//
//go:embed testdata/trivial.wasm
var trivialModule []byte

// throughput measures whole runs: triggered by 64 producers, executed, and durably ended.
// Producers, server and host share the processors of the machine.
func (b *bench) throughput(ctx context.Context) (err error) {
	d, err := startDev(ctx, b.binary, filepath.Join(b.dir, "throughput"), false)
	if err != nil {
		return err
	}
	defer d.stopInto(&err)
	c, err := d.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // every answer has come
	for _, row := range []struct {
		name, job string
		pending   int // unacknowledged triggers of one producer, at most
		goal      *report.Goal
	}{
		{"throughput/64", "single", 1, report.AtLeast(20_000)},
		{"throughput/batch100", "batch", 100, nil},
	} {
		b.note("%s: %d runs", row.name, b.size.runs)
		warm := row.job + "-warm"
		if err := putJob(ctx, c, warm, trivialModule); err != nil {
			return err
		}
		if err := putJob(ctx, c, row.job, trivialModule); err != nil {
			return err
		}
		if _, err := drive.Load(ctx, c, warm, b.size.warmUp, row.pending); err != nil {
			return fmt.Errorf("%s: %w", row.name, err)
		}
		took, err := drive.Load(ctx, c, row.job, b.size.runs, row.pending)
		if err != nil {
			return fmt.Errorf("%s: %w", row.name, err)
		}
		b.report.Add(row.name, float64(b.size.runs)/took.Seconds(), "runs/s", row.goal)
	}
	return nil
}

// putJob applies a job without a schedule, and a module version with the name of the job.
func putJob(ctx context.Context, c *sdk.Client, job string, code []byte) error {
	if _, _, err := c.PushModule(ctx, sdk.Upload{Name: job, Version: "1", Code: code}); err != nil {
		return err
	}
	_, err := c.Apply(ctx, &sdk.Job{Name: job, Handler: &sdk.Handler{Module: job + "@1"}})
	return err
}
