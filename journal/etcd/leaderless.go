package etcd

import (
	"context"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// leaderlessTries is how many members are asked until one knows of a leader. There are
// at most so many in an ensemble that can lose two.
const leaderlessTries = 5

// passLeaderless has a member that knows of no leader refuse at once, and asks the next
// one: the client takes them in turn. Otherwise a member that is cut off from the others,
// and that clients reach, would hold each request that comes to it until it times out. A
// member that refuses so has done nothing, so a change may be sent to the next one. What
// is asked of one member alone, its state, stays with it.
func passLeaderless(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) (err error) {
	if !strings.HasPrefix(method, "/etcdserverpb.KV/") && !strings.HasPrefix(method, "/etcdserverpb.Lease/") {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	ctx = clientv3.WithRequireLeader(ctx)
	for range leaderlessTries {
		if err = invoke(ctx, method, req, reply, cc, opts...); rpctypes.Error(err) != rpctypes.ErrNoLeader {
			return err
		}
	}
	return err
}
