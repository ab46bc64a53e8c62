package core

import (
	"context"
	"errors"
	"slices"
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
	events   metric.Int64Counter
}

// labels has the counters of an app with their attribute sets. They are made once,
// because making an attribute set costs more than counting. The loop flushes the counters
// once a turn.
type labels struct {
	app     metric.MeasurementOption
	Trigger map[job.Trigger]*counter
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

// CountEvents counts events of other programs, or one message whose events were not read. It is safe for
// concurrent use.
func (ss *Stats) CountEvents(result string, n int) {
	ss.metrics.events.Add(context.Background(), int64(n), metric.WithAttributes(attribute.String("result", result)))
}

// count adds one to a counter of an app. A nil counter is that of a trigger or a state
// that only a later version knows, and is ignored.
func (ss *Stats) count(a *app, t *counter) {
	if t == nil {
		return
	}
	t.n++
	if !a.labels.counted {
		a.labels.counted = true
		ss.counted = append(ss.counted, a)
	}
}

// endTurn adds the counts of a turn to the rate and the metrics.
func (ss *Stats) endTurn(now time.Time) {
	ss.rate.add(now, ss.came)
	ss.came = 0
	ss.flushMetrics()
}

// flushMetrics adds the counts since its last call to the metrics.
func (ss *Stats) flushMetrics() {
	for _, a := range ss.counted {
		a.labels.counted = false
		for _, t := range a.labels.Trigger {
			t.flush(ss.metrics.accepted)
		}
		for _, t := range a.labels.state {
			t.flush(ss.metrics.ended)
		}
	}
	clear(ss.counted)
	ss.counted = ss.counted[:0]
}

func newLabels(app string) labels {
	a := attribute.String("app", app)
	l := labels{
		app:     metric.WithAttributeSet(attribute.NewSet(a)),
		Trigger: map[job.Trigger]*counter{},
	}
	for _, t := range job.Triggers() {
		l.Trigger[t] = &counter{of: metric.WithAttributeSet(attribute.NewSet(a, attribute.String("trigger", string(t))))}
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
	events, err5 := m.Int64Counter("wheelwork.events", metric.WithDescription("Events that other programs have sent, by result: accepted, or why they were refused."), metric.WithUnit("{event}"))
	return metrics{accepted, ended, lateness, turn, events}, errors.Join(err1, err2, err3, err4, err5)
}

func (ss *Stats) countLateness(a *app, d time.Duration) {
	ss.late.add(d)
	ss.metrics.lateness.Record(context.Background(), d.Seconds(), a.labels.app)
}

// lateness has the lateness of the last scheduled runs: the time from the planned time to
// the start of the handler.
type lateness struct {
	last [1024]time.Duration
	n    int
}

func (l *lateness) add(d time.Duration) {
	l.last[l.n%len(l.last)] = d
	l.n++
}

// quantiles returns the 50th and the 99th percentile; 0: no run was measured.
func (l *lateness) quantiles() (p50, p99 time.Duration) {
	n := min(l.n, len(l.last))
	if n == 0 {
		return 0, 0
	}
	sorted := slices.Sorted(slices.Values(l.last[:n]))
	return sorted[n/2], sorted[n*99/100]
}
