package etcd

import (
	"context"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// leaderlessTries is how many members are tried until one knows a leader. A cluster of
// etcd that can lose two members has five.
const leaderlessTries = 5

// passLeaderless makes a member that knows no leader refuse at once, and sends the
// request to the next member: the client takes the members in turn. Otherwise a member
// that clients reach, but that is cut off from the other members, would hold each request
// until it times out. A refusing member has done nothing, so a change may be sent again.
// Requests for the state of one member are not redirected.
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
