package main

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// bodyBytes is the size of a message.
const bodyBytes = 256

// load describes the producers: each appends batch messages at once, and continues when
// they are durable.
type load struct{ producers, batch int }

// runner puts a load on a store for the given time.
type runner func(context.Context, load, time.Duration) (result, error)

// store is an open candidate.
type store struct {
	run   runner
	close func() error
}

// result is the outcome of one candidate under one load.
type result struct {
	rate     float64 // durable messages per second
	p50, p99 float64 // waiting time of a producer in µs
}

// summary computes a result from the waiting times of batches of n messages.
func summary(waits []time.Duration, n int, elapsed time.Duration) result {
	slices.Sort(waits)
	at := func(q float64) float64 {
		if len(waits) == 0 {
			return 0
		}
		return float64(waits[max(int(math.Ceil(q*float64(len(waits)))), 1)-1]) / float64(time.Microsecond)
	}
	return result{rate: float64(len(waits)*n) / elapsed.Seconds(), p50: at(0.5), p99: at(0.99)}
}

// producer makes a batch of messages durable. Only one goroutine may use it.
type producer func() error

// closedLoop runs the producers of a load, each with at most one batch in flight.
// newProducer receives the number of the producer and the bodies of its batch.
func closedLoop(newProducer func(i int, bodies [][]byte) producer) runner {
	return func(ctx context.Context, l load, window time.Duration) (result, error) {
		var stop atomic.Bool
		waits := make([][]time.Duration, l.producers)
		producers := make([]producer, l.producers)
		for i := range producers {
			producers[i] = newProducer(i, bodies(i, l.batch))
		}
		group, running := errgroup.WithContext(ctx)
		begin := time.Now()
		for i, produce := range producers {
			group.Go(func() error {
				last := time.Now()
				for !stop.Load() {
					if err := produce(); err != nil {
						return err
					}
					now := time.Now()
					waits[i] = append(waits[i], now.Sub(last))
					last = now
				}
				return nil
			})
		}
		end := time.NewTimer(window)
		defer end.Stop()
		select {
		case <-end.C:
		case <-running.Done(): // interrupted, or a producer has failed
		}
		stop.Store(true)
		err := group.Wait()
		elapsed := time.Since(begin)
		if err == nil {
			err = ctx.Err()
		}
		return summary(slices.Concat(waits...), l.batch, elapsed), err
	}
}

// bodies returns n bodies of random bytes, which cannot be compressed.
func bodies(producer, n int) [][]byte {
	random := rand.New(rand.NewPCG(uint64(producer), 1))
	all := make([][]byte, n)
	for i := range all {
		all[i] = make([]byte, bodyBytes)
		for j := range all[i] {
			all[i][j] = byte(random.Uint32())
		}
	}
	return all
}
