// Command cluster measures three servers that share a journal in three members of
// etcd, with four hosts, all processes of their own on this machine, beside one
// `wheelwork dev` under the same load. docs/benchmarks.md says what each row means.
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
	ctx, stop := untilTold(context.Background())
	defer stop()
	err := error(nil)
	if conf := os.Getenv(memberEnv); conf != "" {
		err = member(ctx, conf)
	} else {
		err = run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

// untilTold ends with the process's interruption.
func untilTold(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}

// sizes say how much work the rows are measured over.
type sizes struct {
	singles int // appends, one at a time
	runs    int // of each throughput row
	warmUp  int // runs before it
}

var (
	full  = sizes{singles: 1000, runs: 200_000, warmUp: 10_000}
	short = sizes{singles: 200, runs: 30_000, warmUp: 3_000}
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

// figures are what is measured of an installation.
type figures struct {
	appends []time.Duration // until a trigger was acknowledged
	runs    map[string]float64
}

// measure runs the whole benchmark in a directory of its own below parent.
func measure(ctx context.Context, size sizes, parent string, notes io.Writer) (_ *report.Report, err error) {
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
	one, err := b.figuresOf(ctx, "one machine", b.startOne)
	if err != nil {
		return nil, err
	}
	many, err := b.figuresOf(ctx, "three servers, four hosts", b.startCluster)
	if err != nil {
		return nil, err
	}
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
	return r, nil
}

const oneMachine = "one-machine"

// loads are the rows of throughput.
var loads = []struct {
	name    string
	pending int // triggers of one producer that are not acknowledged
	goal    *report.Goal
}{
	{"throughput/64", 1, report.AtLeast(10_000)},
	{"throughput/batch100", 100, report.AtLeast(10_000)},
}

// build makes the binary as a release is made: in its own module, with the
// versions of its dependencies that the module names.
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

// figuresOf starts an installation, measures it, and ends it.
func (b *bench) figuresOf(ctx context.Context, name string, start func(context.Context, *installation) error) (_ *figures, err error) {
	in := &installation{bench: b}
	defer func() { err = errors.Join(err, in.stop()) }()
	b.note("%s: start", name)
	if err := start(ctx, in); err != nil {
		return nil, err
	}
	c, err := sdk.Dial(ctx, in.url, sdk.Options{Token: in.token})
	if err != nil {
		return nil, err
	}
	defer c.Close() //nolint:errcheck // every answer has come
	if err := in.await(ctx, c); err != nil {
		return nil, err
	}
	if _, _, err := c.PushModule(ctx, sdk.Upload{Name: "trivial", Version: "1", Code: trivialModule}); err != nil {
		return nil, err
	}
	f := &figures{runs: map[string]float64{}}
	b.note("%s: %d appends, one at a time", name, b.size.singles)
	if f.appends, err = singles(ctx, c, b.size.singles); err != nil {
		return nil, err
	}
	for _, l := range loads {
		b.note("%s: %s, %d runs", name, l.name, b.size.runs)
		job := strings.ReplaceAll(l.name, "/", "-")
		if _, err := load(ctx, c, job+"-warm", b.size.warmUp, l.pending); err != nil {
			return nil, fmt.Errorf("%s: %w", l.name, err)
		}
		took, err := load(ctx, c, job, b.size.runs, l.pending)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.name, err)
		}
		f.runs[l.name] = float64(b.size.runs) / took.Seconds()
	}
	return f, nil
}

// quantile returns the least of the durations that a share q of them does not exceed.
func quantile(all []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[max(int(math.Ceil(q*float64(len(sorted)))), 1)-1]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
