package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/wheelworkhq/wheelwork/sdk/worker"
)

// withWorker calls a function while this process is a host that executes the jobs.
func (d *dev) withWorker(ctx context.Context, do func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return worker.Run(ctx, worker.Options{
			Address: d.URL, Token: d.HostToken, Name: "worker-eu-1", Labels: map[string]string{"zone": "eu-1"}, Version: "1.4.0",
			Concurrency: 16, DrainTimeout: time.Second, Patience: time.Second, Logger: slog.New(slog.DiscardHandler),
		}, worker.Handle("settle", settle), worker.Handle("export", export), worker.Handle("charge", charge),
			worker.Handle("index", index), worker.Handle("resize", resize))
	})
	group.Go(func() error {
		defer stop()
		return do(ctx)
	})
	return group.Wait()
}

func settle(ctx context.Context, t *worker.Task) ([]byte, error) {
	n := 120 + rand.IntN(900)
	t.Logf("read %d open orders", n)
	if err := work(ctx, 20); err != nil {
		return nil, err
	}
	t.Log().Warn(fmt.Sprintf("%d orders have no invoice; they stay open", n%7))
	t.Logf("settled %d orders", n-n%7)
	return fmt.Appendf(nil, `{"orders": %d, "settled": %d, "currency": "EUR"}`, n, n-n%7), nil
}

func export(ctx context.Context, t *worker.Task) ([]byte, error) {
	t.Logf("export to the warehouse")
	return []byte(`{"rows": 48210}`), work(ctx, 60)
}

// charge fails most of the time.
func charge(ctx context.Context, t *worker.Task) ([]byte, error) {
	id := 10_000 + rand.IntN(90_000)
	t.Logf("charge the card of order %d", id)
	if err := work(ctx, 10); err != nil {
		return nil, err
	}
	switch rand.IntN(4) {
	case 0:
		return nil, worker.Permanent(worker.WithCode(fmt.Errorf("order %d: the issuer declined the card", id), "DECLINED"))
	case 1:
		return nil, worker.Permanent(errors.New("dial tcp 10.3.1.17:5432: connection refused"))
	case 2:
		return nil, worker.Permanent(fmt.Errorf("order %d: the gateway answered 503 after %d ms", id, 900+rand.IntN(400)))
	}
	return []byte(`{"charged": true}`), nil
}

// index reports progress until its context ends.
func index(ctx context.Context, t *worker.Task) ([]byte, error) {
	const total = 250_000
	for done := int64(96_000); ; done = min(done+40, total-1) {
		t.Progress(done, total, "products")
		t.Logf("indexed products %d to %d", done-40, done)
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// resize is a part of a fan-out; a few parts fail.
func resize(ctx context.Context, t *worker.Task) ([]byte, error) {
	if t.Part%23 == 11 {
		return nil, worker.Permanent(fmt.Errorf("image %d is no JPEG", t.Part))
	}
	t.Logf("resized the images of shelf %d", t.Part)
	return nil, work(ctx, 15)
}

// work takes about so many milliseconds.
func work(ctx context.Context, ms int) error {
	select {
	case <-time.After(time.Duration(ms+rand.IntN(ms+1)) * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
