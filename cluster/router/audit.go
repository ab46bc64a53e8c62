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

// listAudit merges the pages of the partitions.
func (r *Router) listAudit(ctx context.Context, req *apiv1.ListAuditEventsRequest) (*apiv1.ListAuditEventsResponse, error) {
	asked, err := audit.ParseTokens(req.PageToken)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	pages, err := each(ctx, r, apiv1.Audit_ServiceDesc.ServiceName, "ListAuditEvents", req,
		func(ctx context.Context, c grpc.ClientConnInterface) (*apiv1.ListAuditEventsResponse, error) {
			return apiv1.NewAuditClient(c).ListAuditEvents(ctx, req)
		})
	if err != nil {
		return nil, err
	}
	if req.OldestFirst {
		return audit.MergeOldest(asked, pages, sched.AuditPage(req))
	}
	partitions := r.View.Partitions
	if local := metadata.ValueFromIncomingContext(ctx, localHeader); len(local) > 0 {
		partitions = local
	}
	return audit.MergePages(asked, partitions, pages, sched.AuditPage(req))
}

// verifyAudit verifies the chains of the partitions, with the anchors that the first partition keeps. Another
// server that passes the request on has added them.
func (r *Router) verifyAudit(ctx context.Context, req *apiv1.VerifyAuditRequest) (*apiv1.VerifyAuditResponse, error) {
	if len(metadata.ValueFromIncomingContext(ctx, localHeader)) == 0 {
		kept, err := anchors(ctx, r)
		if err != nil {
			return nil, err
		}
		req = proto.CloneOf(req)
		req.Anchors = append(req.Anchors, kept...)
	}
	parts, err := each(ctx, r, apiv1.Audit_ServiceDesc.ServiceName, "VerifyAudit", req,
		func(ctx context.Context, c grpc.ClientConnInterface) (*apiv1.VerifyAuditResponse, error) {
			return apiv1.NewAuditClient(c).VerifyAudit(ctx, req)
		})
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

// anchors returns the anchors that the first partition keeps.
func anchors(ctx context.Context, r *Router) ([]*apiv1.AuditAnchor, error) {
	first := &gathering[*apiv1.ListAuditAnchorsRequest, *apiv1.ListAuditAnchorsResponse]{
		r: r, service: apiv1.Audit_ServiceDesc.ServiceName, desc: descOf(apiv1.Audit_ServiceDesc.ServiceName, "ListAuditAnchors"),
		req: &apiv1.ListAuditAnchorsRequest{}, only: []string{r.View.Fallback()},
		ask: func(ctx context.Context, c grpc.ClientConnInterface) (*apiv1.ListAuditAnchorsResponse, error) {
			return apiv1.NewAuditClient(c).ListAuditAnchors(ctx, &apiv1.ListAuditAnchorsRequest{})
		},
	}
	answers, err := first.gather(ctx)
	if err != nil || len(answers) != 1 {
		return nil, err
	}
	return answers[0].Anchors, nil
}
