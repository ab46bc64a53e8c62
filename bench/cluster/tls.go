package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/wheelworkhq/wheelwork/sdk"
)

// loadPairs is the number of loads of each of two clusters.
const loadPairs = 7

// contender is a cluster that is compared with another one.
type contender struct {
	in    *installation
	c     *sdk.Client
	owner string // the server that owns its partition
	loads int
	rates []float64 // runs/s
}

// pairs returns the median throughput of batches of a cluster without TLS and of one with TLS, which do the same loads in
// turn, so that both see the same minutes of the machine.
//
// A cluster does more if the owner of the partition is the leader of etcd too, and which server etcd elects differs from
// start to start. So each of the servers owns the partition once before the pairs, and in them the one that did most.
func (b *bench) pairs(ctx context.Context) (plain, secure float64, err error) {
	both := []*contender{{in: up("without TLS", "17700", "--split-rate=-1")}, {in: up("with TLS", "17800", "--split-rate=-1", "--tls")}}
	for i, x := range both {
		b.note("%s: start, and find the best owner", x.in.name)
		if err := x.in.start(ctx, b.binary, filepath.Join(b.dir, fmt.Sprint("pair-", i))); err != nil {
			return 0, 0, err
		}
		defer func() { err = errors.Join(err, x.in.stop()) }()
		if x.c, err = x.in.client(ctx); err != nil {
			return 0, 0, err
		}
		defer x.c.Close() //nolint:errcheck // every answer has come
		if err := b.place(ctx, x); err != nil {
			return 0, 0, err
		}
	}
	for n := range loadPairs {
		b.note("pair %d of %d: %s, %d runs", n+1, loadPairs, batches.name, b.size.pair)
		for i := range both {
			x := both[(i+n)%2] // each is the first of every second pair
			rate, err := b.loadOf(ctx, x)
			if err != nil {
				return 0, 0, err
			}
			b.note("%s: %.0f runs/s", x.in.name, rate)
			x.rates = append(x.rates, rate)
		}
	}
	return median(both[0].rates), median(both[1].rates), nil
}

// place finds the best owner of a cluster's partition.
func (b *bench) place(ctx context.Context, x *contender) error {
	servers, err := x.in.servers(ctx, x.c, 3)
	if err != nil {
		return err
	}
	best, most := "", 0.0
	for _, s := range servers {
		x.owner = s.GetId()
		rate, err := b.loadOf(ctx, x)
		if err != nil {
			return err
		}
		b.note("%s: owner %s, %.0f runs/s", x.in.name, x.owner, rate)
		if rate > most {
			best, most = x.owner, rate
		}
	}
	x.owner = best
	return nil
}

func (b *bench) loadOf(ctx context.Context, x *contender) (float64, error) {
	if err := x.in.place(ctx, x.c, x.owner); err != nil {
		return 0, err
	}
	if !wait(ctx, b.size.rest) {
		return 0, ctx.Err()
	}
	x.loads++
	return b.throughput(ctx, x.c, batches, fmt.Sprint("load-", x.loads), b.size.pair)
}

func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}
