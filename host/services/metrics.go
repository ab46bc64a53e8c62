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

// maxMetrics bounds the metrics of all handlers of a host, because each is a time series
// that must be stored.
const maxMetrics = 200

var metricName = regexp.MustCompile(`^[a-z][a-z0-9_.]{0,62}$`)

// instruments are the metrics that handlers have recorded, by name.
type instruments struct {
	meter  metric.Meter
	mu     sync.Mutex
	byName map[string]instrument
}

type instrument struct {
	kind   runtime.MetricKind
	record func(ctx context.Context, v float64, o metric.MeasurementOption)
}

// Metric implements [runtime.Services]. The metric is named
// wheelwork.handler.NAME and has the attributes app and job.
func (s *Services) Metric(ctx context.Context, t *runtime.Task, name string, kind runtime.MetricKind, value float64) error {
	if math.IsNaN(value) || math.IsInf(value, 0) || kind == runtime.Counter && value < 0 {
		return fmt.Errorf("%w: metric %q: %v cannot be recorded", runtime.ErrInvalid, name, value)
	}
	i, err := s.meter.get(name, kind)
	if err != nil {
		return err
	}
	i.record(ctx, value, metric.WithAttributeSet(attribute.NewSet(attribute.String("wheelwork.app", t.App), attribute.String("wheelwork.job", t.Job))))
	return nil
}

func (m *instruments) get(name string, kind runtime.MetricKind) (instrument, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
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
	full := "wheelwork.handler." + name
	i.kind = kind
	var err error
	switch kind {
	case runtime.Counter:
		c, e := m.meter.Float64Counter(full)
		err, i.record = e, func(ctx context.Context, v float64, o metric.MeasurementOption) { c.Add(ctx, v, o) }
	case runtime.Gauge:
		g, e := m.meter.Float64Gauge(full)
		err, i.record = e, func(ctx context.Context, v float64, o metric.MeasurementOption) { g.Record(ctx, v, o) }
	case runtime.Histogram:
		h, e := m.meter.Float64Histogram(full)
		err, i.record = e, func(ctx context.Context, v float64, o metric.MeasurementOption) { h.Record(ctx, v, o) }
	default:
		err = fmt.Errorf("%w: metric %q has an unknown kind", runtime.ErrInvalid, name)
	}
	if err == nil {
		m.byName[name] = i
	}
	return i, err
}
