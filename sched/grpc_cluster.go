package sched

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/version"
	"github.com/wheelworkhq/wheelwork/job"
)

type clusterAPI struct {
	apiv1.UnimplementedClusterServer
	s *Server
}

func (a *clusterAPI) GetVersion(context.Context, *apiv1.GetVersionRequest) (*apiv1.Version, error) {
	return version.Message(), nil
}

func (a *clusterAPI) ListHosts(ctx context.Context, _ *apiv1.ListHostsRequest) (*apiv1.ListHostsResponse, error) {
	return ask(ctx, a.s.loop, func(l *loop) (*apiv1.ListHostsResponse, error) {
		resp := &apiv1.ListHostsResponse{}
		for _, h := range l.hosts {
			resp.Hosts = append(resp.Hosts, h.message(l.cfg.ID))
		}
		slices.SortFunc(resp.Hosts, func(a, b *apiv1.Host) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Id, b.Id))
		})
		return resp, nil
	})
}

func (h *host) message(server string) *apiv1.Host {
	m := &apiv1.Host{
		Id: h.hello.Host, Name: h.hello.Name, State: "up", Labels: h.hello.Labels, Apps: h.hello.Apps, Version: h.hello.Version,
		Slots: int32(h.hello.Slots), Running: int32(h.running()), Sleeping: int32(h.held.asleep), Waiting: int32(len(h.held.runs) - h.held.asleep - h.running()), Credits: int32(h.credits),
		LastSeenAt: timestamppb.New(h.seenAt), Cpu: h.load.GetCpu(), MemoryBytes: int64(h.load.GetMemoryBytes()), Server: server, Abi: h.hello.Abi,
	}
	switch {
	case !h.connected:
		m.State = "lost"
	case h.draining:
		m.State = "draining"
	}
	if !h.joinedAt.IsZero() {
		m.ConnectedAt = timestamppb.New(h.joinedAt)
	}
	return m
}

func (a *clusterAPI) GetOverview(ctx context.Context, req *apiv1.GetOverviewRequest) (*apiv1.Overview, error) {
	o, err := ask(ctx, a.s.loop, func(l *loop) (*apiv1.Overview, error) { return l.overview(appOf(req.App)), nil })
	if err != nil {
		return nil, err
	}
	st := a.s.cfg.Store.Stats()
	o.Disk = &apiv1.Disk{
		TotalBytes: st.Total, FreeBytes: st.Free,
		JournalBytes: a.s.cfg.Journal.Bytes(), HistoryBytes: st.History + st.Keys + st.Logs,
	}
	return o, nil
}

// overview reads counters. Only the dispatched and sleeping runs of the app are counted one
// by one, over the runs of the hosts.
func (l *loop) overview(name string) *apiv1.Overview {
	o := &apiv1.Overview{ServerTime: timestamppb.New(l.now), Writable: true}
	if err := l.refuse(); err != nil {
		o.Writable, o.NotWritableReason = false, status.Convert(err).Message()
	}
	for _, h := range l.hosts {
		switch {
		case !h.serves(name):
		case h.connected:
			o.HostsUp++
		default:
			o.HostsLost++
		}
	}
	p50, p99 := l.late.quantiles()
	o.LatenessP50Ms, o.LatenessP99Ms = float64(p50)/1e6, float64(p99)/1e6
	a := l.apps[name]
	if a == nil {
		a = &app{}
	}
	for _, s := range a.slots {
		if s == nil {
			continue
		}
		o.Jobs += int64(s.Jobs.Len())
		o.Armed += int64(s.Live(job.Armed))
		o.Queued += int64(s.Live(job.Queued))
		o.Running += int64(s.Live(job.Running))
		o.Waiting += int64(s.Live(job.Waiting))
	}
	o.Dispatched, o.Sleeping = l.atHosts(a)
	o.Armed -= int64(a.ready.armed) // armed runs whose time has come count as queued
	o.Queued += int64(a.ready.armed)
	o.SucceededTotal, o.FailedTotal = a.count.Succeeded, a.count.Failed
	const shown = 60
	for at := l.nowMs/60_000 - shown + 1; at <= l.nowMs/60_000; at++ {
		m := a.minutes[at]
		o.Minutes = append(o.Minutes, &apiv1.Minute{
			Start: timestamppb.New(time.Unix(at*60, 0)), Accepted: m.GetAccepted(), Succeeded: m.GetSucceeded(), Failed: m.GetFailed(),
		})
	}
	return o
}

// TraceParent returns the W3C trace context of a call, in the format of the traceparent
// header: that of the server's span, or else the one that the caller sent; "": none.
func TraceParent(ctx context.Context) string {
	if trace.SpanContextFromContext(ctx).IsValid() {
		carrier := propagation.MapCarrier{}
		propagation.TraceContext{}.Inject(ctx, carrier)
		return carrier["traceparent"]
	}
	if v := metadata.ValueFromIncomingContext(ctx, "traceparent"); len(v) == 1 && len(v[0]) == 55 {
		return v[0]
	}
	return ""
}
