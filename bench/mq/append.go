package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/wheelworkhq/wheelwork/bench/internal/report"
)

// candidate is a store that makes messages durable.
type candidate struct {
	name string
	open func(ctx context.Context, dir string) (store, error)
	note string // information needed to read the rows against it
}

// row compares the log with an anchor under one load. Both are measured in the same
// round.
type row struct {
	name   string
	load   load
	anchor string // name of a candidate
	of     quantity
	goal   *report.Goal
}

// quantity is one number of a result.
type quantity struct {
	unit string
	in   func(result) float64
}

var (
	rate = quantity{"msg/s", func(r result) float64 { return r.rate }}
	p50  = quantity{"µs", func(r result) float64 { return r.p50 }}
	p99  = quantity{"µs", func(r result) float64 { return r.p99 }}
)

const (
	ours = "mq"
	raw  = "raw"
)

// rows lists the comparisons that the options select.
func (b *bench) rows() []row {
	var all []row
	add := func(name string, l load, anchor string, of quantity, goal *report.Goal) {
		if b.wants(name) {
			all = append(all, row{name, l, anchor, of, goal})
		}
	}
	ofRaw := map[int]*report.Goal{1: report.AtLeast(0.9), 16: report.AtLeast(0.8), 256: report.AtLeast(0.55)}
	for _, n := range b.producers {
		add(fmt.Sprintf("append/%d", n), load{n, 1}, raw, rate, ofRaw[n])
	}
	for _, l := range []load{{256, 16}, {16, 100}} {
		add(fmt.Sprintf("batch/%dx%d", l.producers, l.batch), l, raw, rate, report.AtLeast(0.9))
	}
	for _, n := range []int{1, 256} {
		if !slices.Contains(b.producers, n) {
			continue
		}
		var tail *report.Goal
		if n == 1 {
			tail = report.AtMost(2)
		}
		add(fmt.Sprintf("latency/%d/p50", n), load{n, 1}, raw, p50, nil)
		add(fmt.Sprintf("latency/%d/p99", n), load{n, 1}, raw, p99, tail)
	}
	ofPeer := map[string]*report.Goal{
		pebbleName: report.AtLeast(2), etcdName: report.AtLeast(2),
		badgerName: report.AtLeast(3.5), jetStreamName: report.AtLeast(80),
	}
	for _, n := range []int{256, 16, 1} {
		if !slices.Contains(b.producers, n) {
			continue
		}
		for _, p := range peers {
			var goal *report.Goal
			if n == 256 {
				goal = ofPeer[p.name]
			}
			add(fmt.Sprintf("append/%d/vs-%s", n, p.name), load{n, 1}, p.name, rate, goal)
		}
	}
	return all
}

// appends measures all rows of durable appends. The raw file and the log stay open for
// all loads. Each peer starts with empty data for each load, so that its cleanup of an
// earlier load does not disturb a later one.
func (b *bench) appends(ctx context.Context) (err error) {
	rows := b.rows()
	if len(rows) == 0 {
		return nil
	}
	lasting := newField(filepath.Join(b.dir, "lasting"))
	defer func() { err = errors.Join(err, lasting.close()) }()
	for _, c := range []candidate{{name: raw, open: b.openRaw}, {name: ours, open: b.openLog}} {
		if err := lasting.enter(ctx, c); err != nil {
			return err
		}
	}
	done := map[load]bool{}
	for _, r := range rows {
		if done[r.load] {
			continue
		}
		done[r.load] = true
		b.note("durable appends, %d producers with %d at once", r.load.producers, r.load.batch)
		if err := b.compare(ctx, r.load, rows, lasting.stores); err != nil {
			return err
		}
	}
	return nil
}

// compare measures the rows of one load. In every round, all candidates that the rows
// need get the load one right after another, so that other activity on the machine
// affects all of them.
func (b *bench) compare(ctx context.Context, l load, rows []row, lasting []entrant) (err error) {
	rows = slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return r.load != l })
	needed := func(name string) bool {
		return name == ours || slices.ContainsFunc(rows, func(r row) bool { return r.anchor == name })
	}
	guests := newField(filepath.Join(b.dir, "peers"))
	defer func() { err = errors.Join(err, guests.close()) }()
	for _, c := range peers {
		if needed(c.name) {
			if err := guests.enter(ctx, c); err != nil {
				return err
			}
		}
	}
	stores := slices.Concat(lasting, guests.stores)
	stores = slices.DeleteFunc(stores, func(e entrant) bool { return !needed(e.name) })
	results := map[string][]result{} // by candidate, one for each round
	for round := range b.size.rounds {
		for i := range stores {
			s := stores[(i+round)%len(stores)] // rotate, so that no candidate is always the first
			r, err := b.measured(ctx, s, l)
			if err != nil {
				return fmt.Errorf("%s with %d producers: %w", s.name, l.producers, err)
			}
			results[s.name] = append(results[s.name], r)
		}
	}
	for _, r := range rows {
		if why := guests.missing[r.anchor]; why != "" {
			b.report.Skip(r.name, r.of.unit, string(why), r.goal)
			continue
		}
		value, anchor := median(r.of, results[ours], results[r.anchor])
		b.report.AddRatio(r.name, value, r.of.unit, r.anchor, anchor, r.goal)
		for _, c := range peers {
			if c.name == r.anchor {
				b.report.Note(c.note)
			}
		}
	}
	return nil
}

// measured puts a load on a store: first for the warm-up, then for the measured window.
func (b *bench) measured(ctx context.Context, s entrant, l load) (result, error) {
	if _, err := s.run(ctx, l, b.size.warmUp); err != nil {
		return result{}, err
	}
	return s.run(ctx, l, b.size.window)
}

// median returns both numbers of the round whose ratio is the median.
func median(of quantity, values, anchors []result) (value, anchor float64) {
	rounds := make([]int, len(values))
	for i := range rounds {
		rounds[i] = i
	}
	ratio := func(i int) float64 { return of.in(values[i]) / of.in(anchors[i]) }
	slices.SortFunc(rounds, func(i, j int) int { return cmp.Compare(ratio(i), ratio(j)) })
	mid := rounds[len(rounds)/2]
	return of.in(values[mid]), of.in(anchors[mid])
}

// field holds the open stores of candidates. Each has its own directory below dir.
type field struct {
	dir     string
	stores  []entrant
	missing map[string]skipped // why a candidate could not be opened
}

type entrant struct {
	name string
	store
}

func newField(dir string) *field { return &field{dir: dir, missing: map[string]skipped{}} }

func (f *field) enter(ctx context.Context, c candidate) error {
	dir := filepath.Join(f.dir, c.name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	s, err := c.open(ctx, dir)
	if why := skipped(""); errors.As(err, &why) {
		f.missing[c.name] = why
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", c.name, err)
	}
	f.stores = append(f.stores, entrant{c.name, s})
	return nil
}

func (f *field) close() error {
	var errs []error
	for _, s := range f.stores {
		errs = append(errs, s.close())
	}
	return errors.Join(append(errs, os.RemoveAll(f.dir))...)
}
