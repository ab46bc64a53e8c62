// Command sched measures the scheduler's timers beside those of others, in one
// run on one machine. docs/benchmarks.md says what each row means.
//
//	go run ./sched [-o json] [--short]
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/wheelworkhq/wheelwork/bench/internal/report"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "sched:", err)
		os.Exit(1)
	}
}

// sizes say how much work the rows are measured over.
type sizes struct {
	timers int           // that are live in each row
	rounds int           // of each lateness; the parties take turns
	window time.Duration // over which the deadlines of a round lie
	fires  int           // that none may be early of
}

var (
	full  = sizes{timers: 1_000_000, rounds: 21, window: 300 * time.Millisecond, fires: 10_000_000}
	short = sizes{timers: 1_000_000, rounds: 5, window: 300 * time.Millisecond, fires: 1_000_000}
)

func run(ctx context.Context, args []string, out, notes io.Writer) error {
	flags := flag.NewFlagSet("sched", flag.ContinueOnError)
	flags.SetOutput(notes)
	format := flags.String("o", "table", "form of the output: table or json")
	small := flags.Bool("short", false, "the same work, smaller")
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
	r, err := measure(ctx, size, notes)
	if err != nil {
		return err
	}
	if *format == "json" {
		return r.WriteJSON(out)
	}
	return r.WriteTable(out)
}

// measure runs the parts of the benchmark, one after another, so that none
// disturbs another.
func measure(ctx context.Context, size sizes, notes io.Writer) (*report.Report, error) {
	machine, err := report.ReadMachine(os.TempDir())
	if err != nil {
		return nil, err
	}
	b := &bench{size: size, notes: notes, report: &report.Report{Bench: "sched", Machine: machine}}
	for _, part := range []func(context.Context) error{b.cost, b.idle, b.late, b.early} {
		if err := part(ctx); err != nil {
			return nil, err
		}
	}
	return b.report, nil
}

// bench is one run of the benchmark.
type bench struct {
	size   sizes
	notes  io.Writer
	report *report.Report
}

func (b *bench) note(format string, args ...any) {
	fmt.Fprintf(b.notes, "sched: "+format+"\n", args...)
}
