// Command core measures Wheelwork from end to end as a user gets it: it builds the real
// binary, starts it as a process with its data on a disk, and calls it through the SDK.
// docs/benchmarks.md explains each row.
//
//	go run ./core [-o json] [--short] [--data DIR]
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/wheelworkhq/wheelwork/bench/internal/report"
	"github.com/wheelworkhq/wheelwork/bench/internal/server"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "core:", err)
		os.Exit(1)
	}
}

// sizes are the amounts of work behind the rows.
type sizes struct {
	starts  int           // of an empty dev
	settle  time.Duration // time before the memory of an idle dev is read
	singles int           // runs, one at a time
	runs    int           // of each throughput row
	warmUp  int           // warm-up runs before each throughput row
}

var (
	full  = sizes{starts: 9, settle: 10 * time.Second, singles: 1000, runs: 400_000, warmUp: 20_000}
	short = sizes{starts: 3, settle: 3 * time.Second, singles: 200, runs: 60_000, warmUp: 5_000}
)

func run(ctx context.Context, args []string, out, notes io.Writer) error {
	flags := flag.NewFlagSet("core", flag.ContinueOnError)
	flags.SetOutput(notes)
	format := flags.String("o", "table", "form of the output: table or json")
	small := flags.Bool("short", false, "the same work, smaller")
	parent := flags.String("data", os.TempDir(), "directory on the disk to measure; what is made in it is removed")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *format != "table" && *format != "json" {
		return fmt.Errorf("-o %q: want table or json", *format)
	}
	size := full
	if *small {
		size = short
	}
	r, err := measure(ctx, size, *parent, notes)
	if err != nil {
		return err
	}
	if *format == "json" {
		return r.WriteJSON(out)
	}
	return r.WriteTable(out)
}

// measure runs the whole benchmark in a new directory below parent.
func measure(ctx context.Context, size sizes, parent string, notes io.Writer) (*report.Report, error) {
	dir, err := os.MkdirTemp(parent, "wheelwork-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	machine, err := report.ReadMachine(dir)
	if err != nil {
		return nil, err
	}
	if machine.DiskFS == "tmpfs" {
		fmt.Fprintln(notes, "core: the data is in memory (tmpfs), so nothing is durable: name a directory on a disk with --data")
	}
	b := &bench{size: size, dir: dir, notes: notes, report: &report.Report{Bench: "core", Machine: machine}}
	for _, step := range []func(context.Context) error{b.build, b.starts, b.idle, b.latency, b.throughput} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return b.report, nil
}

// bench is one run of the benchmark. Its steps run one after another, so that they do not
// disturb each other.
type bench struct {
	size   sizes
	dir    string
	notes  io.Writer
	binary string
	report *report.Report
}

func (b *bench) note(format string, args ...any) {
	fmt.Fprintf(b.notes, "core: "+format+"\n", args...)
}

// build builds the binary like a release: in its own module, with the dependency versions
// that go.mod requires.
func (b *bench) build(ctx context.Context) error {
	b.note("build the binary")
	binary, err := server.Build(ctx, b.dir)
	if err != nil {
		return err
	}
	b.binary = binary
	info, err := os.Stat(b.binary)
	if err != nil {
		return err
	}
	b.report.Add("binary/size", float64(info.Size())/1e6, "MB", report.AtMost(60))
	return nil
}

// starts measures the time that a new user waits for a dev with an empty directory and
// all defaults.
func (b *bench) starts(ctx context.Context) error {
	b.note("start dev %d times", b.size.starts)
	var took []time.Duration
	for i := range b.size.starts {
		d, err := startDev(ctx, b.binary, filepath.Join(b.dir, fmt.Sprintf("start-%d", i)), true)
		if err != nil {
			return err
		}
		took = append(took, d.took)
		if err := d.stop(); err != nil {
			return err
		}
	}
	b.report.Add("start/dev", quantile(took, 0.5).Seconds(), "s", report.AtMost(1))
	return nil
}

// idle measures the memory of a dev without calls.
func (b *bench) idle(ctx context.Context) (err error) {
	b.note("leave dev alone for %v", b.size.settle)
	d, err := startDev(ctx, b.binary, filepath.Join(b.dir, "idle"), false)
	if err != nil {
		return err
	}
	defer d.stopInto(&err)
	select {
	case <-time.After(b.size.settle):
	case <-ctx.Done():
		return ctx.Err()
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.ready.PID))
	if err != nil {
		return err
	}
	b.report.Add("rss/idle", float64(report.Kilobytes(status, "VmRSS"))/(1<<20), "MiB", report.AtMost(120))
	return nil
}
