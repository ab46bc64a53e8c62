package services

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/wheelworkhq/wheelwork/runtime"
)

// Bounds of the metrics of all handlers of a host. A reader stores each series, which is a
// metric with one pair of app and job.
const (
	maxMetrics = 200
	// maxSeries bounds the series with an app or a job of their own. Beyond it a value goes
	// to the series of its metric whose app and job are [otherSeries].
	maxSeries = 1500
	// maxAppSeries bounds those of one app, so that an app with many jobs does not take the
	// series of all others. Beyond it only the job is [otherSeries].
	maxAppSeries = 500
)

// otherSeries is the app or the job of the series that has the values of all further ones. No app
// and no job can have that name.
const otherSeries = "_other"

var metricName = regexp.MustCompile(`^[a-z][a-z0-9_.]{0,62}$`)

// instruments are the metrics that handlers have recorded, by name.
type instruments struct {
	meter  metric.Meter
	mu     sync.Mutex
	byName map[string]instrument
	series map[series]metric.MeasurementOption // without those whose app is otherSeries
	ofApp  map[string]int                      // how many of them an app has
}

// series is one time series of a handler's metric.
type series struct{ metric, app, job string }

func newInstruments(m metric.Meter) instruments {
	return instruments{meter: m, byName: map[string]instrument{}, series: map[series]metric.MeasurementOption{}, ofApp: map[string]int{}}
}

type instrument struct {
	kind   runtime.MetricKind
	record func(ctx context.Context, v float64, o metric.MeasurementOption)
}

// Metric implements [runtime.Services]. The metric is named wheelwork.handler.NAME and has
// the attributes app and job, within the bounds of the series.
func (s *Services) Metric(ctx context.Context, t *runtime.Task, name string, kind runtime.MetricKind, value float64) error {
	if math.IsNaN(value) || math.IsInf(value, 0) || kind == runtime.Counter && value < 0 {
		return fmt.Errorf("%w: metric %q: %v cannot be recorded", runtime.ErrInvalid, name, value)
	}
	i, labels, err := s.meter.get(name, kind, t)
	if err != nil {
		return err
	}
	i.record(ctx, value, labels)
	return nil
}

// get returns the instrument of a metric, and the labels of the series that a task records to.
func (m *instruments) get(name string, kind runtime.MetricKind, t *runtime.Task) (instrument, metric.MeasurementOption, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, err := m.instrument(name, kind)
	if err != nil {
		return i, nil, err
	}
	return i, m.labels(series{name, t.App, t.Job}), nil
}

// labels returns the labels of a series, or of the one that has its values.
func (m *instruments) labels(s series) metric.MeasurementOption {
	if labels, ok := m.series[s]; ok {
		return labels
	}
	if m.ofApp[s.app] >= maxAppSeries {
		s.job = otherSeries
		if labels, ok := m.series[s]; ok {
			return labels
		}
	}
	if len(m.series) >= maxSeries {
		return metric.WithAttributeSet(attribute.NewSet(attribute.String("app", otherSeries), attribute.String("job", otherSeries)))
	}
	labels := metric.WithAttributeSet(attribute.NewSet(attribute.String("app", s.app), attribute.String("job", s.job)))
	m.series[s] = labels
	m.ofApp[s.app]++
	return labels
}

func (m *instruments) instrument(name string, kind runtime.MetricKind) (instrument, error) {
	i, ok := m.byName[name]
	switch {
	case ok && i.kind == kind:
		return i, nil
	case ok:
		return i, fmt.Errorf("%w: metric %q already has another kind", runtime.ErrInvalid, name)
	case !metricName.MatchString(name):
		return i, fmt.Errorf("%w: metric %q is not a name: use small letters, digits, '_' and '.', at most 63, and begin with a letter", runtime.ErrInvalid, name)
	case len(m.byName) >= maxMetrics:
		return i, fmt.Errorf("%w: the handlers of this host have %d metrics", runtime.ErrTooLarge, maxMetrics)
	}
	full, about := "wheelwork.handler."+name, metric.WithDescription(fmt.Sprintf("Recorded by handlers as %s", name))
	i.kind = kind
	var err error
	switch kind {
	case runtime.Counter:
		c, e := m.meter.Float64Counter(full, about)
		err, i.record = e, func(ctx context.Context, v float64, o metric.MeasurementOption) { c.Add(ctx, v, o) }
	case runtime.Gauge:
		g, e := m.meter.Float64Gauge(full, about)
		err, i.record = e, func(ctx context.Context, v float64, o metric.MeasurementOption) { g.Record(ctx, v, o) }
	case runtime.Histogram:
		h, e := m.meter.Float64Histogram(full, about)
		err, i.record = e, func(ctx context.Context, v float64, o metric.MeasurementOption) { h.Record(ctx, v, o) }
	default:
		err = fmt.Errorf("%w: metric %q has an unknown kind", runtime.ErrInvalid, name)
	}
	if err == nil {
		m.byName[name] = i
	}
	return i, err
}
