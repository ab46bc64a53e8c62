package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/wheelworkhq/wheelwork/mq"
)

// openLog opens the log as its users do. It trims durable messages every 20 ms, so that
// segments are reused, as in a log in long use.
func (b *bench) openLog(ctx context.Context, dir string) (store, error) {
	l, err := mq.Open(mq.Config{Dir: dir, Writer: b.writer})
	if err != nil {
		return store{}, err
	}
	b.note("the log writes with %s", l.Stats().Writer)
	if err := awaitSpare(ctx, l); err != nil {
		return store{}, errors.Join(err, l.Close())
	}
	stop := make(chan struct{})
	var trimmer sync.WaitGroup
	var trimErr error
	trimmer.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for trimErr == nil {
			select {
			case <-tick.C:
				trimErr = l.Trim(l.Durable())
			case <-stop:
				return
			}
		}
	})
	return store{
		run: closedLoop(func(i int, bodies [][]byte) producer {
			recs := records(bodies)
			return func() error {
				_, err := l.Write(recs)
				return err
			}
		}),
		close: func() error {
			close(stop)
			trimmer.Wait()
			if trimErr != nil {
				trimErr = fmt.Errorf("trim: %w", trimErr)
			}
			return errors.Join(trimErr, l.Close())
		},
	}, nil
}

// awaitSpare returns when the log has filled its next segment. A log does that only once:
// later segments are reused.
func awaitSpare(ctx context.Context, l *mq.Log) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for l.Stats().Spares == 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the log prepares no segment: %w", ctx.Err())
		}
	}
	return nil
}

func records(bodies [][]byte) []mq.Record {
	recs := make([]mq.Record, len(bodies))
	for i, body := range bodies {
		recs[i] = mq.Record{Queue: 7, Type: 1, Body: body}
	}
	return recs
}
