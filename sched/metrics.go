package sched

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/wheelworkhq/wheelwork/job"
)

// metrics has the counters and histograms of the loop. Names and units follow the
// conventions of OpenTelemetry; Prometheus shows the names with underscores.
type metrics struct {
	accepted metric.Int64Counter
	ended    metric.Int64Counter
	lateness metric.Float64Histogram
	turn     metric.Float64Histogram
}

// labels has the counters of an app with their attribute sets. They are made once,
// because making an attribute set costs more than counting. The loop flushes the counters
// once a turn.
type labels struct {
	app     metric.MeasurementOption
	trigger map[job.Trigger]*counter
	state   []*counter // by job.State.Ordinal
	counted bool       // the app is in loop.counted
}

// counter counts the events since the last flush to the metrics.
type counter struct {
	of metric.MeasurementOption
	n  int64
}

func (t *counter) flush(to metric.Int64Counter) {
	if t.n > 0 {
		to.Add(context.Background(), t.n, t.of)
		t.n = 0
	}
}

// count adds one to a counter of an app. A nil counter is that of a trigger or a state
// that only a later version knows, and is ignored.
func (l *loop) count(a *app, t *counter) {
	if t == nil {
		return
	}
	t.n++
	if !a.labels.counted {
		a.labels.counted = true
		l.counted = append(l.counted, a)
	}
}

// flushMetrics adds the counts since its last call to the metrics.
func (l *loop) flushMetrics() {
	for _, a := range l.counted {
		a.labels.counted = false
		for _, t := range a.labels.trigger {
			t.flush(l.metrics.accepted)
		}
		for _, t := range a.labels.state {
			t.flush(l.metrics.ended)
		}
	}
	clear(l.counted)
	l.counted = l.counted[:0]
}

func newLabels(app string) labels {
	a := attribute.String("app", app)
	l := labels{
		app:     metric.WithAttributeSet(attribute.NewSet(a)),
		trigger: map[job.Trigger]*counter{},
	}
	for _, t := range job.Triggers() {
		l.trigger[t] = &counter{of: metric.WithAttributeSet(attribute.NewSet(a, attribute.String("trigger", string(t))))}
	}
	for _, s := range job.States() {
		l.state = append(l.state, &counter{of: metric.WithAttributeSet(attribute.NewSet(a, attribute.String("state", string(s))))})
	}
	return l
}

// latenessBounds are the histogram's bounds in seconds. They are fine below 100 ms, where
// a scheduler is judged.
var latenessBounds = []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .25, .5, 1, 2.5, 5, 10, 60}

func newMetrics(m metric.Meter) (metrics, error) {
	accepted, err1 := m.Int64Counter("wheelwork.runs.accepted", metric.WithDescription("Runs that were armed or triggered."), metric.WithUnit("{run}"))
	ended, err2 := m.Int64Counter("wheelwork.runs.ended", metric.WithDescription("Runs that reached a terminal state."), metric.WithUnit("{run}"))
	lateness, err3 := m.Float64Histogram("wheelwork.schedule.lateness", metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(latenessBounds...),
		metric.WithDescription("From the planned time of a scheduled run to the start of its handler."))
	turn, err4 := m.Float64Histogram("wheelwork.loop.turn", metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(latenessBounds...),
		metric.WithDescription("Time that one turn of the loop took."))
	return metrics{accepted, ended, lateness, turn}, errors.Join(err1, err2, err3, err4)
}

// observe registers the gauges. The meter reads them with a callback, which asks the
// loop.
func (s *Server) observe(m metric.Meter) error {
	live, err1 := m.Int64ObservableGauge("wheelwork.runs.live", metric.WithDescription("Runs that have not ended."), metric.WithUnit("{run}"))
	hosts, err2 := m.Int64ObservableGauge("wheelwork.hosts", metric.WithDescription("Hosts by state."), metric.WithUnit("{host}"))
	journalBytes, err3 := m.Int64ObservableGauge("wheelwork.journal.size", metric.WithDescription("Size of the journal on disk."), metric.WithUnit("By"))
	atHosts, err5 := m.Int64ObservableGauge("wheelwork.runs.at_hosts", metric.WithDescription("Runs that hosts have, by state: dispatched, running or sleeping."), metric.WithUnit("{run}"))
	disk, err4 := m.Int64ObservableGauge("wheelwork.disk.free", metric.WithDescription("Free space of the data directory's disk."), metric.WithUnit("By"))
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return err
	}
	up := metric.WithAttributeSet(attribute.NewSet(attribute.String("state", "up")))
	lost := metric.WithAttributeSet(attribute.NewSet(attribute.String("state", "lost")))
	states := map[job.State]metric.MeasurementOption{}
	for _, st := range []job.State{job.Dispatched, job.Running, job.Sleeping} {
		states[st] = metric.WithAttributeSet(attribute.NewSet(attribute.String("state", string(st))))
	}
	_, err := m.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		type counts struct {
			live, up, lost int
			atHosts        map[job.State]int
		}
		c, err := ask(ctx, s.loop, func(l *loop) (c counts, err error) {
			c.live, c.atHosts = l.live, map[job.State]int{}
			for _, h := range l.hosts {
				if h.connected {
					c.up++
				} else {
					c.lost++
				}
				l.countStates(h, c.atHosts)
			}
			return c, nil
		})
		if err != nil {
			return err
		}
		o.ObserveInt64(live, int64(c.live))
		for st, option := range states {
			o.ObserveInt64(atHosts, int64(c.atHosts[st]), option)
		}
		o.ObserveInt64(hosts, int64(c.up), up)
		o.ObserveInt64(hosts, int64(c.lost), lost)
		o.ObserveInt64(journalBytes, s.cfg.Journal.Bytes())
		o.ObserveInt64(disk, s.cfg.Store.Stats().Free)
		return nil
	}, live, atHosts, hosts, journalBytes, disk)
	return err
}

func (l *loop) countLateness(a *app, d time.Duration) {
	l.late.add(d)
	l.metrics.lateness.Record(context.Background(), d.Seconds(), a.labels.app)
}
