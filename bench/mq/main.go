// Command mq measures the log: durable appends, compared with the limit of the disk and
// with other logs and queues, reading, opening, and the bytes that reach the device.
// docs/benchmarks.md explains each row.
//
//	go run ./mq [-o json] [--short] [--dir DIR] [--only REGEXP] [--producers 1,16] [--writer NAME]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/wheelworkhq/wheelwork/bench/internal/report"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "mq:", err)
		os.Exit(1)
	}
}

// sizes are the amounts of work behind the rows.
type sizes struct {
	rounds  int           // of each comparison; odd, for a median
	window  time.Duration // of one candidate under one load in one round
	warmUp  time.Duration // before each window; the stores stay open
	raw     int64         // bytes of the file that raw writes
	appends int           // appends of one producer, for the bytes that reach the device
	read    int64         // bytes of the log that is read
	open    int64         // bytes of the log that is opened
}

var (
	full = sizes{
		rounds: 25, window: 100 * time.Millisecond, warmUp: 15 * time.Millisecond,
		raw: 64 << 20, appends: 600, read: 512 << 20, open: 10 << 30,
	}
	short = sizes{
		rounds: 11, window: 40 * time.Millisecond, warmUp: 8 * time.Millisecond,
		raw: 64 << 20, appends: 200, read: 128 << 20, open: 2 << 30,
	}
)

// options holds the choices of the command line.
type options struct {
	size      sizes
	only      *regexp.Regexp // selects rows by name
	producers []int
	writer    string // mq.Config.Writer
}

func run(ctx context.Context, args []string, out, notes io.Writer) error {
	flags := flag.NewFlagSet("mq", flag.ContinueOnError)
	flags.SetOutput(notes)
	format := flags.String("o", "table", "form of the output: table or json")
	small := flags.Bool("short", false, "the same work, smaller")
	parent := flags.String("dir", ".", "directory on the disk to measure; what is made in it is removed")
	only := flags.String("only", "", "measure the rows whose names match this regular expression")
	producers := flags.String("producers", "1,16,64,256,1024", "numbers of producers")
	writer := flags.String("writer", "auto", "the log's writer in the rows append, batch and latency")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if *format != "table" && *format != "json" {
		return fmt.Errorf("-o %q: want table or json", *format)
	}
	o := options{size: full, writer: *writer}
	if *small {
		o.size = short
	}
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		return fmt.Errorf("--only: %w", err)
	}
	if o.producers, err = numbers(*producers); err != nil {
		return fmt.Errorf("--producers %q: %w", *producers, err)
	}
	r, err := measure(ctx, o, *parent, notes)
	if err != nil {
		return err
	}
	if *format == "json" {
		return r.WriteJSON(out)
	}
	return r.WriteTable(out)
}

// maxProducers bounds the goroutines and the Redis connections.
const maxProducers = 4096

func numbers(list string) ([]int, error) {
	var all []int
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 1 || n > maxProducers {
			return nil, fmt.Errorf("want numbers from 1 to %d with commas between them", maxProducers)
		}
		all = append(all, n)
	}
	return all, nil
}

// measure runs the whole benchmark in a new directory below parent.
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
		return nil, fmt.Errorf("%s is in memory (tmpfs), where a sync costs nothing: name one on a disk with --dir", parent)
	}
	b := &bench{options: o, dir: dir, notes: notes, report: &report.Report{Bench: "mq", Machine: machine}}
	for _, step := range []func(context.Context) error{b.appends, b.device, b.read, b.open} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	if len(b.report.Rows) == 0 {
		return nil, fmt.Errorf("--only %q: no row has such a name", o.only)
	}
	return b.report, nil
}

// bench is one run of the benchmark. Its steps run one after another, so that they do not
// disturb each other.
type bench struct {
	options
	dir    string // absolute, on the disk to measure
	notes  io.Writer
	report *report.Report
}

// wants reports whether a row is selected.
func (b *bench) wants(row string) bool { return b.only.MatchString(row) }

func (b *bench) note(format string, args ...any) {
	fmt.Fprintf(b.notes, "mq: "+format+"\n", args...)
}

// skipped is the reason why a row cannot be measured on this machine.
type skipped string

func (s skipped) Error() string { return string(s) }
