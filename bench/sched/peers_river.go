package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"golang.org/x/sync/errgroup"
)

// riverPeer uses its own schema, which it drops at the end.
var riverPeer = peer{name: "river", note: "PostgreSQL, InsertManyFast for a batch", batches: true, open: openRiver}

type riverQueue struct {
	pool   *pgxpool.Pool
	schema string
	client *river.Client[pgx.Tx]
	worked atomic.Int64 // handlers that have returned
	ended  int64        // runs of the earlier loads
}

type riverArgs struct {
	N int `json:"n"`
}

func (riverArgs) Kind() string { return "trivial" }

// riverConns is the number of connections for producers, workers and River itself.
const riverConns = 32

func openRiver(ctx context.Context, dsn string) (_ queue, err error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("--postgres: %w", err)
	}
	config.MaxConns = riverConns
	config.ConnConfig.ConnectTimeout = 2 * time.Second
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			pool.Close()
		}
	}()
	if err := pool.Ping(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, missing("no PostgreSQL at " + config.ConnConfig.Host + ": `task peers` starts one")
	}
	for _, setting := range []string{"fsync", "synchronous_commit"} {
		var value string
		if err := pool.QueryRow(ctx, "SHOW "+setting).Scan(&value); err != nil {
			return nil, err
		}
		if value != "on" {
			return nil, missing("the PostgreSQL has " + setting + "=" + value + ": its answers are not durable")
		}
	}
	q := &riverQueue{pool: pool, schema: "wheelwork_bench_" + strings.ToLower(rand.Text()[:8])}
	if _, err := pool.Exec(ctx, "CREATE SCHEMA "+q.schema); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, q.drop())
		}
	}()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Schema: q.schema, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(context.Context, *river.Job[riverArgs]) error {
		q.worked.Add(1)
		return nil
	}))
	q.client, err = river.NewClient(riverpgxv5.New(pool), &river.Config{
		Schema: q.schema, Logger: slog.New(slog.DiscardHandler), Workers: workers,
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1000}},
		FetchCooldown: time.Millisecond, FetchPollInterval: 5 * time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	return q, q.client.Start(ctx)
}

func (q *riverQueue) work(ctx context.Context, l load) (time.Duration, error) {
	var left atomic.Int64
	left.Store(int64(l.runs))
	begin := time.Now()
	group, producing := errgroup.WithContext(ctx)
	for range l.producers {
		group.Go(func() error {
			batch := make([]river.InsertManyParams, 0, l.batch)
			for {
				batch = batch[:0]
				for len(batch) < l.batch && left.Add(-1) >= 0 {
					batch = append(batch, river.InsertManyParams{Args: riverArgs{N: len(batch)}})
				}
				var err error
				switch len(batch) {
				case 0:
					return nil
				case 1:
					_, err = q.client.Insert(producing, batch[0].Args, nil)
				default:
					_, err = q.client.InsertManyFast(producing, batch)
				}
				if err != nil {
					return err
				}
			}
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	want := q.ended + int64(l.runs)
	q.ended = want
	return awaitPeer(ctx, begin, func() (bool, error) {
		if q.worked.Load() < want { // counting rows is expensive, so only when the work may be complete
			return false, nil
		}
		var n int64
		err := q.pool.QueryRow(ctx, "SELECT count(*) FROM "+q.schema+".river_job WHERE state = 'completed'").Scan(&n)
		return n >= want, err
	})
}

func (q *riverQueue) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := q.client.StopAndCancel(ctx)
	err = errors.Join(err, q.drop())
	q.pool.Close()
	return err
}

func (q *riverQueue) drop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := q.pool.Exec(ctx, "DROP SCHEMA "+q.schema+" CASCADE")
	return err
}

// awaitPeer returns the time since begin when a peer has done its work.
func awaitPeer(ctx context.Context, begin time.Time, ended func() (bool, error)) (time.Duration, error) {
	produced := time.Now()
	err := poll(ctx, 5*time.Millisecond, func() (bool, error) {
		yes, err := ended()
		if !yes && err == nil && time.Since(produced) > 5*patience {
			err = fmt.Errorf("the work was not done %v after all of it was handed in", 5*patience)
		}
		return yes, err
	})
	return time.Since(begin), err
}
