// Command runtime measures one task in one guest: what a call, a reset, a new instance
// and metering cost, and how well limits hold, on one core and beside Extism, a process
// for each job and go-plugin. docs/benchmarks.md explains each row.
//
//	go run ./runtime [-o json] [--short]
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	goruntime "runtime"
	"syscall"
	"time"

	"github.com/wheelworkhq/wheelwork/bench/internal/report"
)

func main() {
	if os.Getenv(pluginEnv) != "" {
		servePlugin()
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "runtime:", err)
		os.Exit(1)
	}
}

// sizes are the amounts of work behind the rows.
type sizes struct {
	rounds    int           // the best round counts, because disturbances only add time
	round     time.Duration // length of one round: short, so that some rounds are undisturbed
	deadlines int           // guests that are stopped at their deadline, and garbage collections
	loads     int           // loads of a module from the cache
}

var (
	full  = sizes{rounds: 400, round: 2 * time.Millisecond, deadlines: 100, loads: 20}
	short = sizes{rounds: 100, round: 2 * time.Millisecond, deadlines: 20, loads: 5}
)

func run(ctx context.Context, args []string, out, notes io.Writer) error {
	flags := flag.NewFlagSet("runtime", flag.ContinueOnError)
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

// measure runs the whole benchmark on one processor.
func measure(ctx context.Context, size sizes, notes io.Writer) (*report.Report, error) {
	dir, err := os.MkdirTemp("", "wheelwork-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	machine, err := report.ReadMachine(dir)
	if err != nil {
		return nil, err
	}
	b := &bench{size: size, dir: dir, notes: notes, report: &report.Report{Bench: "runtime", Machine: machine}}
	b.note("build the Go guests")
	if err := b.buildGuests(ctx); err != nil {
		return nil, err
	}
	defer goruntime.GOMAXPROCS(goruntime.GOMAXPROCS(1))
	for _, step := range []func(context.Context) error{b.calls, b.metering, b.limits, b.loads, b.anchors} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return b.report, nil
}

// bench is one run of the benchmark. Its steps run one after another.
type bench struct {
	size   sizes
	dir    string
	notes  io.Writer
	report *report.Report

	goReactor, goCommand []byte
	warm                 time.Duration // result of the row warm/call
}

func (b *bench) note(format string, args ...any) {
	fmt.Fprintf(b.notes, "runtime: "+format+"\n", args...)
}

// job is an action that is repeated.
type job func() error

// best returns the mean duration of each job in its best round. The rounds of the jobs
// alternate, so that disturbances of the machine affect all jobs.
func (b *bench) best(ctx context.Context, jobs ...job) ([]time.Duration, error) {
	counts := make([]int, len(jobs))
	took := make([]time.Duration, len(jobs))
	for i, do := range jobs {
		n, err := b.fit(do)
		if err != nil {
			return nil, err
		}
		counts[i] = n
	}
	for range b.size.rounds {
		for i, do := range jobs {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			start := time.Now()
			for range counts[i] {
				if err := do(); err != nil {
					return nil, err
				}
			}
			if mean := time.Since(start) / time.Duration(counts[i]); took[i] == 0 || mean < took[i] {
				took[i] = mean
			}
		}
	}
	return took, nil
}

// fit returns how often a job fits into one round. It warms the job up.
func (b *bench) fit(do job) (int, error) {
	for n := 1; ; n *= 4 {
		least := time.Duration(math.MaxInt64)
		for range 3 { // one of them may be disturbed
			start := time.Now()
			for range n {
				if err := do(); err != nil {
					return 0, err
				}
			}
			least = min(least, time.Since(start))
		}
		if least > b.size.round/4 || n >= 1<<24 {
			return max(1, int(float64(n)*float64(b.size.round)/float64(least))), nil
		}
	}
}
