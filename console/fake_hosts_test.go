package console

import (
	"context"
	"net/url"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

func (f *fakeAPI) CordonHost(ctx context.Context, r *apiv1.CordonHostRequest) (*apiv1.Host, error) {
	return f.cordon(ctx, r.Host, "cordoned", "host.cordoned")
}

func (f *fakeAPI) UncordonHost(ctx context.Context, r *apiv1.UncordonHostRequest) (*apiv1.Host, error) {
	return f.cordon(ctx, r.Host, "up", "host.uncordoned")
}

func (f *fakeAPI) cordon(ctx context.Context, id, state, code string) (*apiv1.Host, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.hosts, func(h *apiv1.Host) bool { return h.Id == id })
	if i < 0 || f.hosts[i].State == "lost" {
		return nil, status.Errorf(codes.NotFound, "host %s is not connected: try again when it is back", id)
	}
	h := proto.CloneOf(f.hosts[i])
	h.State = state
	f.hosts = slices.Clone(f.hosts)
	f.hosts[i] = h
	note := ""
	if sent := metadata.ValueFromIncomingContext(ctx, "wheelwork-note"); len(sent) == 1 {
		var err error
		if note, err = url.PathUnescape(sent[0]); err != nil {
			return nil, err
		}
	}
	f.events = append([]*apiv1.AuditEvent{{Code: code, Object: h.Name, Outcome: "ok", Actor: "ada", Message: note, Time: timestamppb.Now()}}, f.events...)
	return h, nil
}
