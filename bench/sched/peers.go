package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wheelworkhq/wheelwork/bench/internal/report"
)

// peer is another job queue that uses a database. Its handlers are functions in this
// process: they have no isolation and load no module.
type peer struct {
	name, note string
	batches    bool // it accepts many pieces of work at once
	open       func(ctx context.Context, address string) (queue, error)
}

// queue is an open peer with running workers.
type queue interface {
	// work runs a load and returns the time until the database shows that all of it has
	// ended.
	work(ctx context.Context, l load) (time.Duration, error)
	// close stops the workers and removes the written data.
	close() error
}

// missing is the reason why a peer cannot be measured on this machine.
type missing string

func (m missing) Error() string { return string(m) }

// peers puts the loads on the peers and compares the rates.
func (b *bench) peers(ctx context.Context, ours map[string]float64) error {
	for _, l := range b.loads() {
		rate, ok := ours[l.row]
		if !ok {
			continue
		}
		for _, p := range []struct {
			peer
			address string
		}{{riverPeer, b.postgres}, {asynqPeer, b.redis}} {
			row := l.row + "/vs-" + p.name
			rows := []versus{{row, b.size.peers, l.versus}}
			if p.batches && l.batch > 1 {
				// The second row shows that a peer is faster while its tables are small.
				rows = []versus{{row, b.size.batches, l.versus}, {row + "/brief", b.size.peers, nil}}
			}
			for _, v := range rows {
				if err := b.compare(ctx, p.peer, p.address, l, v, rate); err != nil {
					return fmt.Errorf("%s: %w", v.row, err)
				}
			}
		}
	}
	return nil
}

// versus is a comparison with a peer over the given number of runs.
type versus struct {
	row  string
	runs int
	goal *report.Goal
}

func (b *bench) compare(ctx context.Context, p peer, address string, l load, v versus, ours float64) error {
	if !b.wants(v.row) {
		return nil
	}
	l.runs = v.runs
	took, err := b.measurePeer(ctx, p, address, l)
	var why missing
	if errors.As(err, &why) {
		b.report.Skip(v.row, "runs/s", string(why), v.goal)
		return nil
	}
	if err != nil {
		return err
	}
	b.report.AddRatio(v.row, ours, "runs/s", p.name, float64(v.runs)/took.Seconds(), v.goal)
	b.report.Note(fmt.Sprintf("%d runs; %s", v.runs, p.note))
	return nil
}

func (b *bench) measurePeer(ctx context.Context, p peer, address string, l load) (took time.Duration, err error) {
	b.note("%s with %s: %d", l.row, p.name, l.runs)
	q, err := p.open(ctx, address)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, q.close()) }()
	warm := l
	warm.runs = max(l.runs/warmShare, 1)
	if _, err := q.work(ctx, warm); err != nil {
		return 0, err
	}
	return q.work(ctx, l)
}
