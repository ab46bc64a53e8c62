// Command cluster measures a cluster of three servers with embedded etcd and four hosts,
// as `wheelwork cluster up` starts them, with TLS and without, and one `wheelwork dev` under
// the same load. All
// of them are separate processes on this machine. docs/benchmarks.md explains each row.
//
//	go run ./cluster [-o json] [--short] [--data DIR]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/wheelworkhq/wheelwork/bench/internal/report"
	"github.com/wheelworkhq/wheelwork/sdk"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

// sizes are the amounts of work behind the rows.
type sizes struct {
	singles int // appends, one at a time
	runs    int // of each throughput row
	warmUp  int // before each load
	pair    int // runs of each load of the clusters with TLS and without
	// rest is the time before each of them, in which servers finish the work that the load before leaves:
	// flushes of stores and of the standbys.
	rest time.Duration
}

var (
	full  = sizes{singles: 1000, runs: 200_000, warmUp: 10_000, pair: 600_000, rest: 5 * time.Second}
	short = sizes{singles: 200, runs: 30_000, warmUp: 3_000, pair: 30_000, rest: 2 * time.Second}
)

func run(ctx context.Context, args []string, out, notes io.Writer) error {
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
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

// bench is one run of the benchmark.
type bench struct {
	size   sizes
	dir    string
	notes  io.Writer
	binary string
}

func (b *bench) note(format string, args ...any) {
	fmt.Fprintf(b.notes, "cluster: "+format+"\n", args...)
}

// figures are the measurements of one installation.
type figures struct {
	appends []time.Duration // until each trigger was acknowledged
	runs    map[string]float64
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
		fmt.Fprintln(notes, "cluster: the data is in memory (tmpfs), so nothing is durable: name a directory on a disk with --data")
	}
	b := &bench{size: size, dir: dir, notes: notes}
	if err := b.build(ctx); err != nil {
		return nil, err
	}
	var all []*figures
	for i, in := range installations() {
		f, err := b.figuresOf(ctx, in, filepath.Join(dir, fmt.Sprint("data-", i)))
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	plain, secure, err := b.pairs(ctx)
	if err != nil {
		return nil, err
	}
	one, many := all[0], all[1]
	r := &report.Report{Bench: "cluster", Machine: machine}
	for _, q := range []struct {
		name string
		q    float64
		goal *report.Goal
	}{{"append/p50", 0.5, report.AtMost(5)}, {"append/p99", 0.99, nil}} {
		r.Add(q.name, milliseconds(quantile(many.appends, q.q)), "ms", q.goal)
		r.AddRatio(q.name+"/vs-one", milliseconds(quantile(many.appends, q.q)), "ms", oneMachine, milliseconds(quantile(one.appends, q.q)), nil)
	}
	for _, l := range loads {
		r.Add(l.name, many.runs[l.name], "runs/s", l.goal)
		r.AddRatio(l.name+"/vs-one", many.runs[l.name], "runs/s", oneMachine, one.runs[l.name], nil)
	}
	r.AddRatio(batches.name+"/tls", secure, "runs/s", withoutTLS, plain, report.AtLeast(0.95))
	r.Note(fmt.Sprintf("medians of %d pairs of loads", loadPairs))
	return r, nil
}

// The anchors of ratios.
const (
	oneMachine = "one-machine"
	withoutTLS = "without-tls"
)

// throughput is a load of many producers, and its row.
type throughput struct {
	name    string
	pending int // unacknowledged triggers of one producer, at most
	goal    *report.Goal
}

var (
	waiting = throughput{"throughput/64", 1, report.AtLeast(10_000)}
	batches = throughput{"throughput/batch100", 100, report.AtLeast(10_000)}
	loads   = []throughput{waiting, batches}
)

// build builds the binary like a release: in its own module, with the dependency versions
// that go.mod requires.
func (b *bench) build(ctx context.Context) error {
	b.note("build the binary")
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/wheelworkhq/wheelwork").Output()
	if err != nil {
		return fmt.Errorf("find the sources of wheelwork (run this in the folder bench): %w", err)
	}
	b.binary = filepath.Join(b.dir, "wheelwork")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", b.binary, "./cmd/wheelwork")
	cmd.Dir = strings.TrimSpace(string(root))
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the binary: %w\n%s", err, text)
	}
	return nil
}

// figuresOf starts an installation, measures it, and stops it.
func (b *bench) figuresOf(ctx context.Context, in *installation, data string) (_ *figures, err error) {
	name := in.name
	b.note("%s: start", name)
	if err := in.start(ctx, b.binary, data); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.stop()) }()
	c, err := in.client(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close() //nolint:errcheck // every answer has come
	f := &figures{runs: map[string]float64{}}
	b.note("%s: %d appends, one at a time", name, b.size.singles)
	if f.appends, err = singles(ctx, c, b.size.singles); err != nil {
		return nil, err
	}
	for _, l := range loads {
		b.note("%s: %s, %d runs", name, l.name, b.size.runs)
		if f.runs[l.name], err = b.throughput(ctx, c, l, l.name, b.size.runs); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// throughput returns how many runs a second an installation does under a load of runs. Their job is called after name, which no
// other load of the installation has.
func (b *bench) throughput(ctx context.Context, c *sdk.Client, l throughput, name string, runs int) (float64, error) {
	job := strings.ReplaceAll(name, "/", "-")
	if _, err := load(ctx, c, job+"-warm", b.size.warmUp, l.pending); err != nil {
		return 0, fmt.Errorf("%s: %w", l.name, err)
	}
	took, err := load(ctx, c, job, runs, l.pending)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", l.name, err)
	}
	return float64(runs) / took.Seconds(), nil
}

// quantile returns the q-quantile: the smallest of the durations that at least a share q
// of them does not exceed.
func quantile(all []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[max(int(math.Ceil(q*float64(len(sorted)))), 1)-1]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
