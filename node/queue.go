package node

import (
	"context"
	"fmt"
	"log/slog"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/wheelworkhq/wheelwork/mq/queue"
	"github.com/wheelworkhq/wheelwork/sched/core"
)

// deadLetters returns the function that is called for messages that could not be
// delivered: it counts them, to alert on, and logs each.
func deadLetters(meter metric.Meter, log *slog.Logger) (func(queue.Dead), error) {
	count, err := meter.Int64Counter("wheelwork.dead_letters", metric.WithDescription("Messages that became dead letters"))
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return func(d queue.Dead) {
		count.Add(context.Background(), 1, metric.WithAttributes(attribute.String("topic", d.Topic), attribute.String("reason", d.Reason.String())))
		log.Error("a message became a dead letter: see `wheelwork mq dlq show`", "id", d.ID, "topic", d.Topic, "key", d.Key,
			"reason", d.Reason.String(), "attempts", d.Attempts, "error", d.LastError)
	}, nil
}

// watchQueue exports the state of a queue as metrics.
func watchQueue(meter metric.Meter, q *queue.Queue) error {
	dead, err := meter.Int64ObservableGauge("wheelwork.queue.dead_letters", metric.WithDescription("Dead letters that were neither replayed nor dropped"))
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	lag, err := meter.Int64ObservableGauge("wheelwork.queue.lag", metric.WithDescription("Messages that a group has not acknowledged"))
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	used, err := meter.Float64ObservableGauge("wheelwork.disk.used", metric.WithDescription("Share of the file system in use, 0 to 1"))
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	_, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		st := q.Stats()
		o.ObserveInt64(dead, int64(st.Dead))
		o.ObserveFloat64(used, float64(st.DiskUsed)/100)
		for _, t := range st.Topics {
			for _, g := range t.Groups {
				o.ObserveInt64(lag, int64(g.Lag), metric.WithAttributes(attribute.String("topic", t.Name), attribute.String("group", g.Name)))
			}
		}
		return nil
	}, dead, lag, used)
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}

// conditionsOf returns how the disk and the queue of this process are, for alert rules.
func conditionsOf(q *queue.Queue) core.Conditions {
	st := q.Stats()
	c := core.Conditions{DiskUsed: st.DiskUsed, DeadLetters: st.Dead}
	for _, t := range st.Topics {
		for _, g := range t.Groups {
			c.QueueAge = max(c.QueueAge, g.Oldest)
		}
	}
	return c
}
