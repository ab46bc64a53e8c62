package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// peer is a queue of others that runs on a database. Its handlers are functions
// in this process: they have no isolation, and no module to load.
type peer struct {
	name, note string
	batches    bool // it takes many pieces of work at once
	open       func(ctx context.Context, address string) (queue, error)
}

// queue is an open peer, with its workers running.
type queue interface {
	// work does a load and returns how long it took until the database says that
	// all of it has ended.
	work(ctx context.Context, l load) (time.Duration, error)
	// close stops the workers and removes what was written.
	close() error
}

// missing is the reason why a peer cannot be measured here.
type missing string

func (m missing) Error() string { return string(m) }

// peers puts the loads on the peers and compares.
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
			if !b.wants(row) {
				continue
			}
			theirs := l
			theirs.runs = b.size.peers
			if p.batches && l.batch > 1 {
				theirs.runs = b.size.batches
			}
			took, err := b.measurePeer(ctx, p.peer, p.address, theirs)
			var why missing
			switch {
			case errors.As(err, &why):
				b.report.Skip(row, "runs/s", string(why), l.versus)
				continue
			case err != nil:
				return fmt.Errorf("%s: %w", row, err)
			}
			b.report.AddRatio(row, rate, "runs/s", p.name, float64(theirs.runs)/took.Seconds(), l.versus)
			b.report.Note(fmt.Sprintf("%d runs; %s", theirs.runs, p.note))
		}
	}
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
