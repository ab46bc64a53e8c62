package router

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/wheelworkhq/wheelwork/access/audit"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/sched"
)

// everywhere calls every partition of the cluster.
func everywhere[Q, A proto.Message](ctx context.Context, r *Router, method string, req Q, call func(apiv1.AuditClient, context.Context, Q, ...grpc.CallOption) (A, error)) ([]A, error) {
	service := apiv1.Audit_ServiceDesc.ServiceName
	g := gathering[Q, A]{
		r: r, service: service, desc: descOf(service, method), req: req,
		ask: func(ctx context.Context, c grpc.ClientConnInterface) (A, error) {
			return call(apiv1.NewAuditClient(c), ctx, req)
		},
	}
	return g.gather(ctx)
}

// listAudit merges the pages of the partitions.
func (r *Router) listAudit(ctx context.Context, req *apiv1.ListAuditEventsRequest) (*apiv1.ListAuditEventsResponse, error) {
	asked, err := audit.ParseTokens(req.PageToken)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	pages, err := everywhere(ctx, r, "ListAuditEvents", req, apiv1.AuditClient.ListAuditEvents)
	if err != nil {
		return nil, err
	}
	partitions := r.View.Partitions
	if local := metadata.ValueFromIncomingContext(ctx, localHeader); len(local) > 0 {
		partitions = local
	}
	return audit.MergePages(asked, partitions, pages, sched.AuditPage(req))
}

func (r *Router) verifyAudit(ctx context.Context, req *apiv1.VerifyAuditRequest) (*apiv1.VerifyAuditResponse, error) {
	parts, err := everywhere(ctx, r, "VerifyAudit", req, apiv1.AuditClient.VerifyAudit)
	if err != nil {
		return nil, err
	}
	all := &apiv1.VerifyAuditResponse{}
	for _, p := range parts {
		all.Chains = append(all.Chains, p.Chains...)
	}
	slices.SortFunc(all.Chains, func(a, b *apiv1.AuditChain) int { return strings.Compare(a.Partition, b.Partition) })
	return all, nil
}
