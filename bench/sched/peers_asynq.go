package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// asynqPeer uses a database that must be empty, and empties it at the end.
var asynqPeer = peer{name: "asynq", note: "Redis, appendfsync always; it has no batches", open: openAsynq}

type asynqQueue struct {
	admin     *redis.Client
	client    *asynq.Client
	inspector *asynq.Inspector
	server    *asynq.Server
	worked    atomic.Int64 // handlers that have returned
	ended     int64        // runs of the earlier loads
}

const (
	asynqDB    = 15 // the last database of a Redis with default settings
	asynqConns = 64
)

func openAsynq(ctx context.Context, address string) (_ queue, err error) {
	admin := redis.NewClient(&redis.Options{Addr: address, DB: asynqDB, DialTimeout: 2 * time.Second, MaxRetries: -1})
	defer func() {
		if err != nil {
			err = errors.Join(err, admin.Close())
		}
	}()
	if err := admin.Ping(ctx).Err(); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, missing("no Redis at " + address + ": `task peers` starts one")
	}
	for setting, want := range map[string]string{"appendonly": "yes", "appendfsync": "always"} {
		got, err := admin.ConfigGet(ctx, setting).Result()
		if err != nil {
			return nil, err
		}
		if got[setting] != want {
			return nil, missing("the Redis has " + setting + " " + got[setting] + ": its answers are not durable")
		}
	}
	n, err := admin.DBSize(ctx).Result()
	if err != nil {
		return nil, err
	}
	if n != 0 {
		return nil, missing(fmt.Sprintf("database %d of the Redis holds %d keys that are not ours", asynqDB, n))
	}
	conn := asynq.RedisClientOpt{Addr: address, DB: asynqDB, PoolSize: asynqConns}
	q := &asynqQueue{admin: admin, client: asynq.NewClient(conn), inspector: asynq.NewInspector(conn)}
	q.server = asynq.NewServer(conn, asynq.Config{
		Concurrency: asynqConns, LogLevel: asynq.FatalLevel, TaskCheckInterval: 10 * time.Millisecond,
	})
	return q, q.server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		q.worked.Add(1)
		return nil
	}))
}

func (q *asynqQueue) work(ctx context.Context, l load) (time.Duration, error) {
	var left atomic.Int64
	left.Store(int64(l.runs))
	task := asynq.NewTask("trivial", []byte(strings.Repeat("x", 16)))
	begin := time.Now()
	group, producing := errgroup.WithContext(ctx)
	for range min(l.producers*l.batch, 1024) { // the unacknowledged work, at most 1024: more would only wait for a connection
		group.Go(func() error {
			for left.Add(-1) >= 0 {
				if _, err := q.client.EnqueueContext(producing, task, asynq.Retention(0)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	want := q.ended + int64(l.runs)
	q.ended = want
	return awaitPeer(ctx, begin, func() (bool, error) {
		if q.worked.Load() < want {
			return false, nil
		}
		info, err := q.inspector.GetQueueInfo("default")
		if err != nil {
			return false, err
		}
		return info.Size == 0, nil
	})
}

func (q *asynqQueue) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	q.server.Shutdown()
	err := errors.Join(q.client.Close(), q.inspector.Close(), q.admin.FlushDB(ctx).Err())
	return errors.Join(err, q.admin.Close())
}
