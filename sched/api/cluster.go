package api

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"

	"github.com/wheelworkhq/wheelwork/access"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/version"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched/core"
)

type clusterAPI struct {
	apiv1.UnimplementedClusterServer
	s *Services
}

func (a *clusterAPI) GetVersion(context.Context, *apiv1.GetVersionRequest) (*apiv1.Version, error) {
	v := version.Message()
	v.PublicUrl = a.s.cfg.PublicURL
	return v, nil
}

func (a *clusterAPI) ListHosts(ctx context.Context, _ *apiv1.ListHostsRequest) (*apiv1.ListHostsResponse, error) {
	return core.Ask(ctx, a.s.loop, func(l *core.Loop) (*apiv1.ListHostsResponse, error) {
		resp := &apiv1.ListHostsResponse{Hosts: access.SeenHosts(ctx, l.HostMessages())}
		slices.SortFunc(resp.Hosts, func(a, b *apiv1.Host) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Id, b.Id))
		})
		return resp, nil
	})
}

func (a *clusterAPI) CordonHost(ctx context.Context, req *apiv1.CordonHostRequest) (*apiv1.Host, error) {
	return a.cordon(ctx, req.Host, true, req.Drain)
}

func (a *clusterAPI) UncordonHost(ctx context.Context, req *apiv1.UncordonHostRequest) (*apiv1.Host, error) {
	return a.cordon(ctx, req.Host, false, false)
}

func (a *clusterAPI) cordon(ctx context.Context, host string, on, drain bool) (*apiv1.Host, error) {
	return core.Ask(ctx, a.s.loop, func(l *core.Loop) (*apiv1.Host, error) {
		h, err := l.Sessions.Cordon(host, on, drain)
		if err != nil {
			return nil, err
		}
		return h.Message(a.s.cfg.ID), nil
	})
}

func (a *clusterAPI) GetOverview(ctx context.Context, req *apiv1.GetOverviewRequest) (*apiv1.Overview, error) {
	o, err := core.Ask(ctx, a.s.loop, func(l *core.Loop) (*apiv1.Overview, error) { return l.Overview(core.AppOf(req.App)), nil })
	if err != nil {
		return nil, err
	}
	st := a.s.cfg.Store.Stats()
	o.Disk = &apiv1.Disk{
		TotalBytes: st.Total, FreeBytes: st.Free,
		JournalBytes: a.s.cfg.Journal.Bytes(), HistoryBytes: st.History + st.Keys + st.Revisions + st.Logs,
	}
	return o, nil
}

// TraceParent returns the W3C trace context of a call, as [job.TraceText] makes it: that of
// the server's span, or else the one that the caller sent; "": none.
func TraceParent(ctx context.Context) string {
	if trace.SpanContextFromContext(ctx).IsValid() {
		carrier := propagation.MapCarrier{}
		propagation.TraceContext{}.Inject(ctx, carrier)
		return job.TraceText(carrier["traceparent"], carrier["tracestate"])
	}
	parent := metadata.ValueFromIncomingContext(ctx, "traceparent")
	if len(parent) != 1 {
		return ""
	}
	// A tracestate may come in several headers, which the W3C recommendation joins.
	return job.TraceText(parent[0], strings.Join(metadata.ValueFromIncomingContext(ctx, "tracestate"), ","))
}
