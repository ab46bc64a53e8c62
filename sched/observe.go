package sched

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched/core"
)

// observe registers the gauges. The meter reads them with a callback, which asks the
// loop.
func (s *Server) observe(m metric.Meter) error {
	live, err1 := m.Int64ObservableGauge("wheelwork.runs.live", metric.WithDescription("Runs that have not ended."), metric.WithUnit("{run}"))
	hosts, err2 := m.Int64ObservableGauge("wheelwork.hosts", metric.WithDescription("Hosts by state."), metric.WithUnit("{host}"))
	journalBytes, err3 := m.Int64ObservableGauge("wheelwork.journal.size", metric.WithDescription("Size of the journal on disk."), metric.WithUnit("By"))
	atHosts, err5 := m.Int64ObservableGauge("wheelwork.runs.at_hosts", metric.WithDescription("Runs that hosts have, by state: dispatched, running or sleeping."), metric.WithUnit("{run}"))
	disk, err4 := m.Int64ObservableGauge("wheelwork.disk.free", metric.WithDescription("Free space of the data directory's disk."), metric.WithUnit("By"))
	limits, err6 := m.Float64ObservableGauge("wheelwork.app.limit.used", metric.WithDescription("Part of a limit that an app has used."))
	alerts, err7 := m.Int64ObservableGauge("wheelwork.alerts.firing", metric.WithDescription("Alerts that fire."), metric.WithUnit("{alert}"))
	if err := errors.Join(err1, err2, err3, err4, err5, err6, err7); err != nil {
		return err
	}
	up := metric.WithAttributeSet(attribute.NewSet(attribute.String("state", "up")))
	lost := metric.WithAttributeSet(attribute.NewSet(attribute.String("state", "lost")))
	states := map[job.State]metric.MeasurementOption{}
	for _, st := range []job.State{job.Dispatched, job.Running, job.Sleeping} {
		states[st] = metric.WithAttributeSet(attribute.NewSet(attribute.String("state", string(st))))
	}
	_, err := m.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		var firing []core.Firing
		c, err := core.Ask(ctx, s.loop, func(l *core.Loop) (core.Counts, error) {
			firing = l.Alerts.Firing()
			return l.Counts(), nil
		})
		if err != nil {
			return err
		}
		o.ObserveInt64(live, int64(c.Live))
		for st, option := range states {
			o.ObserveInt64(atHosts, int64(c.AtHosts[st]), option)
		}
		for _, u := range c.Used {
			o.ObserveFloat64(limits, u.Part, metric.WithAttributes(attribute.String("app", u.App), attribute.String("limit", u.Limit)))
		}
		for _, f := range firing {
			o.ObserveInt64(alerts, int64(f.Alerts), metric.WithAttributes(attribute.String("app", f.App), attribute.String("severity", f.Severity)))
		}
		o.ObserveInt64(hosts, int64(c.Up), up)
		o.ObserveInt64(hosts, int64(c.Lost), lost)
		o.ObserveInt64(journalBytes, s.cfg.Journal.Bytes())
		o.ObserveInt64(disk, s.cfg.Store.Stats().Free)
		return nil
	}, live, atHosts, hosts, journalBytes, disk, limits, alerts)
	return err
}
