// Command sched measures the scheduler: its timers compared with other stores of timers,
// the whole server with many jobs, and runs from end to end compared with River and
// Asynq. docs/benchmarks.md explains each row.
//
//	go run ./sched [-o json] [--short] [--dir DIR] [--only REGEXP] [--profile FILE] [--postgres DSN] [--redis HOST:PORT]
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

	"github.com/google/pprof/profile"

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

// sizes are the amounts of work behind the rows.
type sizes struct {
	timers int           // live timers in each row
	costs  int           // rounds of each cost; the minimum of times counts, and the median of the memory
	rounds int           // rounds of each lateness; the racers take turns to be first
	window time.Duration // interval that holds the deadlines of a round
	fires  int           // timers of which none may fire early

	jobs    int           // jobs that are created and updated
	settle  time.Duration // time before the memory of the server is read
	rest    time.Duration // time before it is read again
	herd    int           // jobs that are due in one second
	singles int           // runs, one at a time
	stored  int           // stored jobs of the end-to-end server
	runs    int           // runs of e2e/batch100
	ended   int           // least number of runs in the history when it is read
	waiting int           // runs of e2e/waiting1024
	peers   int           // runs on a peer, one by one
	batches int           // runs on a peer in batches: as many as on Wheelwork
	flood   time.Duration // duration of a run of a flood
	watch   time.Duration // time in which runs beside a flood are measured
	fleet   time.Duration // duration of a run of the flood of a cluster
}

var (
	full = sizes{
		timers: 1_000_000, costs: 9, rounds: 21, window: 300 * time.Millisecond, fires: 10_000_000,
		jobs: 1_000_000, settle: 10 * time.Second, rest: 50 * time.Second, herd: 100_000, singles: 1000,
		stored: 1_000_000, runs: 2_000_000, ended: 10_000_000, waiting: 1_000_000, peers: 50_000, batches: 2_000_000,
		flood: 8 * time.Second, watch: 30 * time.Second, fleet: 25 * time.Second,
	}
	short = sizes{
		timers: 1_000_000, costs: 1, rounds: 3, window: 300 * time.Millisecond, fires: 300_000,
		jobs: 50_000, settle: time.Second, rest: 0, herd: 20_000, singles: 150,
		stored: 100_000, runs: 100_000, ended: 200_000, waiting: 50_000, peers: 4_000, batches: 40_000,
		flood: 2 * time.Second, watch: 2 * time.Second, fleet: 4 * time.Second,
	}
)

// options holds the choices of the command line.
type options struct {
	size     sizes
	full     bool           // apply the goals for memory and time that hold only for the full sizes
	only     *regexp.Regexp // selects rows by name
	profile  string         // file for the profile of the servers; "": no profile
	postgres string         // DSN
	redis    string         // host:port
}

// These are the addresses of the databases that `task peers` starts.
const (
	postgresDefault = "postgres://postgres@127.0.0.1:15432/postgres?sslmode=disable"
	redisDefault    = "127.0.0.1:16379"
)

func run(ctx context.Context, args []string, out, notes io.Writer) error {
	flags := flag.NewFlagSet("sched", flag.ContinueOnError)
	flags.SetOutput(notes)
	format := flags.String("o", "table", "form of the output: table or json")
	small := flags.Bool("short", false, "the same work, smaller")
	parent := flags.String("dir", ".", "directory on the disk to measure; what is made in it is removed")
	only := flags.String("only", "", "measure the rows whose names match this regular expression")
	o := options{size: full, full: true}
	flags.StringVar(&o.profile, "profile", "",
		"write what the servers did all the time to this file, as a CPU profile; their rows are slower for it, and those of where the time goes are left out")
	flags.StringVar(&o.postgres, "postgres", cmp.Or(os.Getenv("WHEELWORK_BENCH_POSTGRES"), postgresDefault),
		"DSN of the PostgreSQL for River; default $WHEELWORK_BENCH_POSTGRES, or the one of `task peers`")
	flags.StringVar(&o.redis, "redis", cmp.Or(os.Getenv("WHEELWORK_BENCH_REDIS"), redisDefault),
		"HOST:PORT of the Redis for Asynq; default $WHEELWORK_BENCH_REDIS, or the one of `task peers`")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if *format != "table" && *format != "json" {
		return fmt.Errorf("-o %q: want table or json", *format)
	}
	if *small {
		o.size, o.full = short, false
	}
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

// parts run one after another, so that they do not disturb each other.
var parts = []part{
	{[]string{
		"timer/insert/1e6", "timer/insert/1e6/timingwheel", "timer/cancel/1e6", "timer/cancel/1e6/timingwheel", "timer/gc",
		"timer/gc/timingwheel", "timer/bytes", "timer/bytes/AfterFunc", "timer/bytes/timingwheel",
	}, (*bench).cost},
	{[]string{"timer/idle"}, (*bench).idle},
	{[]string{
		"late/5k/p99", "late/5k/p99/absolute", "late/5k/p99/timingwheel", "late/5k/p99/floor", "late/5k/p50", "late/5k/p50/floor",
		"late/100k/p99", "late/100k/p99/timingwheel", "late/100k/p99/floor", "late/100k/p50", "late/100k/p50/floor",
	}, (*bench).late},
	{[]string{"early"}, (*bench).early},
	{[]string{"server/create", "server/update", "server/rss", "server/rss/rest", "server/restart", "server/rss/restarted", "server/rss/restarted/rest"}, (*bench).server},
	{[]string{
		"herd/100k/lost", "herd/100k/doubled", "herd/100k/p50", "herd/100k/p99", "herd/100k/rate", "herd/100k/other/p99",
	}, (*bench).herd},
	{[]string{
		"idle/start/p50", "idle/start/p99", "idle/end/p50", "idle/end/p99",
		"idle/asleep/start/p50", "idle/asleep/start/p99", "idle/asleep/end/p50", "idle/asleep/end/p99",
		"idle/sync/p50", "idle/asleep/sync/p50",
	}, (*bench).singly},
	{slices.Concat([]string{
		"e2e/batch100", "e2e/batch100/cpu", "e2e/batch100/vs-river", "e2e/batch100/vs-river/brief", "e2e/batch100/vs-asynq",
		"e2e/waiting1024", "e2e/waiting1024/cpu", "e2e/waiting1024/vs-river", "e2e/waiting1024/vs-asynq",
	}, where(), history), (*bench).endToEnd},
	{[]string{alertsRow}, (*bench).alerts},
	{[]string{retentionRow}, (*bench).retention},
	{[]string{
		"fair/flood/compute/unknown", "fair/flood/compute/known", "fair/flood/sleep/unknown", "fair/flood/sleep/known",
		"fair/priority", "fair/deadline", "fair/fleet",
	}, (*bench).fair},
}

// measure runs the parts in a new directory below parent. With an error, it returns the
// rows measured before, or nil if there are none.
func measure(ctx context.Context, o options, parent string, notes io.Writer) (_ *report.Report, err error) {
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
	b := &bench{options: o, dir: dir, notes: notes, report: &report.Report{Bench: "sched", Machine: machine}}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		b.note("load average at the start: %s", bytes.TrimSpace(load))
	}
	for _, p := range parts {
		if !b.wants(p.rows...) {
			continue
		}
		if err = cmp.Or(ctx.Err(), p.run(b, ctx)); err != nil {
			break
		}
	}
	err = errors.Join(err, b.writeProfile())
	b.report.Rows = slices.DeleteFunc(b.report.Rows, func(r report.Row) bool { return !b.wants(r.Name) })
	switch {
	case len(b.report.Rows) > 0:
		return b.report, err
	case err == nil:
		err = fmt.Errorf("--only %q: no row has such a name", o.only)
	}
	return nil, err
}

// bench is one run of the benchmark.
type bench struct {
	options
	dir    string // absolute, on the disk to measure
	binary string // empty until it is built
	notes  io.Writer
	report *report.Report

	profiles []*profile.Profile // profiles of processes that have ended
}

// wants reports whether one of the rows is selected.
func (b *bench) wants(rows ...string) bool { return slices.ContainsFunc(rows, b.only.MatchString) }

// atFull returns the goal in the full form, and nil in the short form, for which the goal
// has no meaning.
func (b *bench) atFull(g *report.Goal) *report.Goal {
	if !b.full {
		return nil
	}
	return g
}

func (b *bench) note(format string, args ...any) {
	fmt.Fprintf(b.notes, "sched: "+format+"\n", args...)
}
