package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"time"

	"github.com/wheelworkhq/wheelwork/bench/internal/report"
	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/wasm"
)

// input is the input of every guest that echoes, and answer is the expected output.
var (
	input  = append([]byte{'w'}, make([]byte, 63)...)
	answer = uint64(len(input))<<32 | 'w'
)

// task returns a job that runs one task as a host does: with a deadline, from input to
// output.
func task(ctx context.Context, e *wasm.Engine, digest, handler string) job {
	t := runtime.Task{Digest: digest, Handler: handler, App: "bench", Input: input, Deadline: time.Now().Add(time.Hour)}
	return func() error {
		r := e.Run(ctx, t, silent{})
		if r.Outcome != runtime.Succeeded {
			return fmt.Errorf("handler %q: %s", handler, r.Error)
		}
		if len(r.Output) != 8 || binary.LittleEndian.Uint64(r.Output) != answer {
			return fmt.Errorf("handler %q answers %x", handler, r.Output)
		}
		return nil
	}
}

// calls measures whole tasks in instances that are shared, reset or new.
func (b *bench) calls(ctx context.Context) (err error) {
	b.note("measure calls")
	e, err := wasm.New(ctx, wasm.Config{})
	if err != nil {
		return err
	}
	defer e.Close(ctx) //nolint:errcheck // frees memory
	rows := []struct {
		name, handler string
		code          []byte
		manifest      string
		unit          time.Duration
		goal          float64
		note          string
	}{
		{"warm/call", "echo", cGuest, manifest("shared"), time.Microsecond, 1, "with a deadline, 64 bytes in, 8 out"},
		{"reset/8pages", "pages", cGuest, manifest("reset"), time.Microsecond, 0.8, "call and reset, 8 pages of 4 KiB written to"},
		{"reset/8pages/computed", "pages", farGuest, manifest("reset"), time.Microsecond, 0.8, "the same, where the addresses are not in the code"},
		{"reset/all", "all", cGuest, manifest("reset"), time.Microsecond, 10, "call and reset, 128 KiB of memory compared"},
		{"reset/go", "", b.goReactor, "", time.Microsecond, 80, "call and reset of a Go reactor"},
		{"fresh/small", "echo", cGuest, manifest("fresh"), time.Microsecond, 40, "a new instance for the call"},
		{"fresh/go", "", b.goCommand, "", time.Millisecond, 3, "a WASI command built by Go"},
	}
	var jobs []job
	for _, row := range rows {
		digest, err := load(ctx, e, row.code, row.manifest)
		if err != nil {
			return fmt.Errorf("%s: %w", row.name, err)
		}
		jobs = append(jobs, task(ctx, e, digest, row.handler))
	}
	digest, err := load(ctx, e, cGuest, manifest("shared"))
	if err != nil {
		return err
	}
	took, err := b.best(ctx, append(jobs, batch(ctx, e, digest))...)
	if err != nil {
		return err
	}
	b.warm = took[0]
	for i, row := range rows {
		unit := "us"
		if row.unit == time.Millisecond {
			unit = "ms"
		}
		b.report.Add(row.name, float64(took[i])/float64(row.unit), unit, report.AtMost(row.goal))
		b.report.Note(row.note)
	}
	b.report.Add("batch/16", float64(took[len(rows)])/batchSize, "ns/job", report.AtMost(250))
	b.report.Note("16 tasks in one call of the guest")
	return nil
}

// batchSize is the number of tasks that a host takes at once.
const batchSize = 16

// batch returns a job that runs a batch of tasks in one call, each with its own deadline,
// input and output.
func batch(ctx context.Context, e *wasm.Engine, digest string) job {
	deadline := time.Now().Add(time.Hour)
	items := make([]*runtime.Item, batchSize)
	for i := range items {
		items[i] = &runtime.Item{Ctx: ctx, Sink: silent{}, Task: runtime.Task{Digest: digest, Handler: "echo", App: "bench", Input: input, Deadline: deadline}}
	}
	return func() error {
		e.RunBatch(items)
		for _, item := range items {
			if item.Result.Outcome != runtime.Succeeded {
				return fmt.Errorf("a task of a batch: %s", item.Result.Error)
			}
			if err := checkAnswer(item.Result.Output); err != nil {
				return err
			}
		}
		return nil
	}
}

// loads measures how long a restarted host takes to load a module that it compiled
// before.
func (b *bench) loads(ctx context.Context) error {
	b.note("load %d times", b.size.loads)
	dir := filepath.Join(b.dir, "compiled")
	least := time.Duration(0)
	for i := range b.size.loads + 1 {
		e, err := wasm.New(ctx, wasm.Config{CacheDir: dir})
		if err != nil {
			return err
		}
		info, err := wasm.Inspect(b.goReactor)
		if err != nil {
			return err
		}
		start := time.Now()
		err = e.Load(ctx, info.Digest, b.goReactor)
		took := time.Since(start)
		if err != nil {
			return err
		}
		if err := e.Close(ctx); err != nil {
			return err
		}
		if i == 0 { // the first load fills the cache
			b.report.Add("load/go/compile", took.Seconds()*1e3, "ms", nil)
			b.report.Note("one processor")
			continue
		}
		if least == 0 || took < least {
			least = took
		}
	}
	b.report.Add("load/go/cached", least.Seconds()*1e3, "ms", report.AtMost(50))
	b.report.Note(fmt.Sprintf("a Go reactor of %.1f MB", float64(len(b.goReactor))/1e6))
	return nil
}
