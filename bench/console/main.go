// Command console measures the web console with many jobs and runs: the time of each
// page, what a first load and a refresh weigh, several tabs at once, and a live log.
// docs/benchmarks.md explains each row.
//
//	go run ./console [-o json] [--short] [--dir DIR] [--only REGEXP] [--jobs N] [--runs N] [--log DURATION]
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"

	"github.com/wheelworkhq/wheelwork/bench/internal/report"
	"github.com/wheelworkhq/wheelwork/bench/internal/server"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "console:", err)
		os.Exit(1)
	}
}

// sizes are the amounts of work behind the rows.
type sizes struct {
	jobs     int           // stored jobs
	runs     int           // ended runs
	failures int           // runs that failed, in addition
	rounds   int           // requests of each page
	tabs     time.Duration // time for which eight tabs are live
	load     int           // runs a second beside them
	log      time.Duration // time for which a run writes lines
	warm     time.Duration // time of the log before its memory is read first
	lines    int           // lines a second of that run, which may write 1 MiB in all
}

var (
	full = sizes{
		jobs: 20_000, runs: 10_000_000, failures: 5_000, rounds: 200,
		tabs: time.Minute, load: 500, log: 30 * time.Minute, warm: time.Minute, lines: 9,
	}
	short = sizes{
		jobs: 20_000, runs: 200_000, failures: 500, rounds: 20,
		tabs: 10 * time.Second, load: 500, log: 20 * time.Second, warm: 5 * time.Second, lines: 50,
	}
)

// options holds the choices of the command line.
type options struct {
	size sizes
	only *regexp.Regexp // selects rows by name
}

func run(ctx context.Context, args []string, out, notes io.Writer) error {
	flags := flag.NewFlagSet("console", flag.ContinueOnError)
	flags.SetOutput(notes)
	format := flags.String("o", "table", "form of the output: table or json")
	small := flags.Bool("short", false, "the same work, smaller")
	parent := flags.String("dir", ".", "directory on the disk to measure; what is made in it is removed")
	only := flags.String("only", "", "measure the rows whose names match this regular expression")
	jobs := flags.Int("jobs", 0, "number of stored jobs instead of the usual one")
	runs := flags.Int("runs", 0, "number of ended runs instead of the usual one")
	lasts := flags.Duration("log", 0, "duration of the live log instead of the usual one")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if *format != "table" && *format != "json" {
		return fmt.Errorf("-o %q: want table or json", *format)
	}
	if *jobs < 0 || *runs < 0 || *lasts < 0 {
		return errors.New("--jobs, --runs and --log: want more than nothing")
	}
	o := options{size: full}
	if *small {
		o.size = short
	}
	o.size.jobs = cmp.Or(*jobs, o.size.jobs)
	o.size.runs = cmp.Or(*runs, o.size.runs)
	o.size.log = cmp.Or(*lasts, o.size.log)
	o.size.warm = min(o.size.warm, o.size.log/3)
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		return fmt.Errorf("--only: %w", err)
	}
	// Rows that were measured before a failure are reported too.
	r, err := measure(ctx, o, *parent, notes)
	if r == nil {
		return err
	}
	if *format == "json" {
		return errors.Join(err, r.WriteJSON(out))
	}
	return errors.Join(err, r.WriteTable(out))
}

// part is a selectable piece of the benchmark.
type part struct {
	rows []string // all rows that it adds
	run  func(*bench, context.Context) error
}

// parts returns the pieces, which run one after another on the same server.
func parts() []part {
	return []part{
		{pageRows(), (*bench).measurePages},
		{tabRows, (*bench).measureTabs},
		{logRows, (*bench).measureLog},
	}
}

// measure starts a server in a new directory below parent, fills it, and runs the parts.
// With an error, it returns the rows measured before, or nil if there are none.
func measure(ctx context.Context, o options, parent string, notes io.Writer) (_ *report.Report, err error) {
	wanted := slices.DeleteFunc(parts(), func(p part) bool { return !slices.ContainsFunc(p.rows, o.only.MatchString) })
	if len(wanted) == 0 {
		return nil, fmt.Errorf("--only %q: no row has such a name", o.only)
	}
	dir, err := os.MkdirTemp(parent, "wheelwork-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	machine, err := report.ReadMachine(dir)
	if err != nil {
		return nil, err
	}
	if machine.DiskFS == "tmpfs" {
		return nil, fmt.Errorf("%s is in memory (tmpfs), where nothing is durable: name one on a disk with --dir", parent)
	}
	b := &bench{options: o, notes: notes, report: &report.Report{Bench: "console", Machine: machine}}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		b.note("load average at the start: %s", bytes.TrimSpace(load))
	}
	b.note("build the binary")
	binary, err := server.Build(ctx, dir)
	if err != nil {
		return nil, err
	}
	if b.dev, err = server.Start(ctx, binary, filepath.Join(dir, "data")); err != nil {
		return nil, err
	}
	defer b.dev.Stop(&err)
	if err := b.fill(ctx); err != nil {
		return nil, err
	}
	err = b.withWorker(ctx, func(ctx context.Context) error {
		if err := b.finish(ctx); err != nil {
			return err
		}
		for _, p := range wanted {
			if err := cmp.Or(ctx.Err(), p.run(b, ctx)); err != nil {
				return err
			}
		}
		return nil
	})
	b.report.Rows = slices.DeleteFunc(b.report.Rows, func(r report.Row) bool { return !o.only.MatchString(r.Name) })
	if len(b.report.Rows) == 0 {
		return nil, err
	}
	return b.report, err
}

// bench is one run of the benchmark.
type bench struct {
	options
	dev    *server.Dev
	notes  io.Writer
	report *report.Report
	world  world
}

// wants reports whether one of the rows is selected.
func (b *bench) wants(rows ...string) bool { return slices.ContainsFunc(rows, b.only.MatchString) }

func (b *bench) note(format string, args ...any) {
	fmt.Fprintf(b.notes, "console: "+format+"\n", args...)
}
