package router

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Acting calls the API of a cluster for a principal, whose headers the context has as outgoing
// metadata (see [access.Principal.Passed]). An [Interceptor] does not pass such a call on, because
// it takes it for one that was passed on already.
type Acting struct {
	// Self is a connection of this server to itself, with a token that may act for others.
	Self      grpc.ClientConnInterface
	Forwarder *Forwarder
	// Accepts is as in [Interceptor].
	Accepts func(*apiv1.Assignment) bool
}

// Invoke implements [grpc.ClientConnInterface]. It follows a partition that moves meanwhile for a
// few times.
func (a *Acting) Invoke(ctx context.Context, method string, req, reply any, opts ...grpc.CallOption) error {
	err := a.Self.Invoke(ctx, method, req, reply, opts...)
	for range forwardHops {
		to := OwnerIn(err)
		if to == nil || !a.Accepts(to) {
			break
		}
		var answer any
		if answer, err = a.Forwarder.Invoke(ctx, to, method, req); err == nil {
			proto.Merge(reply.(proto.Message), answer.(proto.Message))
		}
	}
	return settled(err)
}

// NewStream implements [grpc.ClientConnInterface]. Operations have no streams.
func (*Acting) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unimplemented, "a server makes no stream for a principal")
}

// listOperations merges the operations of all partitions.
func listOperations(ctx context.Context, r *Router, req *apiv1.ListAllOperationsRequest) (*apiv1.ListOperationsResponse, error) {
	parts, err := each(ctx, r, apiv1.Operations_ServiceDesc.ServiceName, "ListAllOperations", req,
		func(ctx context.Context, c grpc.ClientConnInterface) (*apiv1.ListOperationsResponse, error) {
			return apiv1.NewOperationsClient(c).ListAllOperations(ctx, req)
		})
	if err != nil {
		return nil, err
	}
	all := &apiv1.ListOperationsResponse{}
	for _, p := range parts {
		all.Operations = append(all.Operations, p.Operations...)
	}
	slices.SortFunc(all.Operations, func(a, b *apiv1.Operation) int {
		if n := b.StartedAt.AsTime().Compare(a.StartedAt.AsTime()); n != 0 {
			return n
		}
		return strings.Compare(a.Id, b.Id)
	})
	all.Operations = all.Operations[:min(len(all.Operations), maxOperations)]
	return all, nil
}

// maxOperations bounds the operations of a list.
const maxOperations = 200
