package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"google.golang.org/grpc/peer"
)

// nearClient returns a client of a member in this process.
//
// The calls of such a client are function calls with the caller's context, in which the member looks for the peer of a
// gRPC call: where clients need certificates, it takes the name of the user from there. The context of a request that
// this process serves has the peer of that request, which is another program, with authentication that etcd does not
// know and panics at. So no context with a peer reaches the member.
func nearClient(m *Member) *clientv3.Client {
	c := v3client.New(m.etcd.Server)
	c.KV, c.Lease, c.Watcher = nearKV{c.KV}, nearLease{c.Lease}, nearWatcher{c.Watcher}
	return c
}

// withoutPeer returns a context for a call of the member, in which there is no peer.
func withoutPeer(ctx context.Context) context.Context {
	if _, ok := peer.FromContext(ctx); !ok {
		return ctx
	}
	return peer.NewContext(ctx, &peer.Peer{})
}

type nearKV struct{ clientv3.KV }

func (k nearKV) Put(ctx context.Context, key, val string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	return k.KV.Put(withoutPeer(ctx), key, val, opts...)
}

func (k nearKV) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return k.KV.Get(withoutPeer(ctx), key, opts...)
}

func (k nearKV) Delete(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	return k.KV.Delete(withoutPeer(ctx), key, opts...)
}

func (k nearKV) Compact(ctx context.Context, rev int64, opts ...clientv3.CompactOption) (*clientv3.CompactResponse, error) {
	return k.KV.Compact(withoutPeer(ctx), rev, opts...)
}

func (k nearKV) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	return k.KV.Do(withoutPeer(ctx), op)
}

func (k nearKV) Txn(ctx context.Context) clientv3.Txn { return k.KV.Txn(withoutPeer(ctx)) }

type nearLease struct{ clientv3.Lease }

func (l nearLease) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	return l.Lease.Grant(withoutPeer(ctx), ttl)
}

func (l nearLease) Revoke(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	return l.Lease.Revoke(withoutPeer(ctx), id)
}

func (l nearLease) TimeToLive(ctx context.Context, id clientv3.LeaseID, opts ...clientv3.LeaseOption) (*clientv3.LeaseTimeToLiveResponse, error) {
	return l.Lease.TimeToLive(withoutPeer(ctx), id, opts...)
}

func (l nearLease) Leases(ctx context.Context) (*clientv3.LeaseLeasesResponse, error) {
	return l.Lease.Leases(withoutPeer(ctx))
}

func (l nearLease) KeepAlive(ctx context.Context, id clientv3.LeaseID) (<-chan *clientv3.LeaseKeepAliveResponse, error) {
	return l.Lease.KeepAlive(withoutPeer(ctx), id)
}

func (l nearLease) KeepAliveOnce(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseKeepAliveResponse, error) {
	return l.Lease.KeepAliveOnce(withoutPeer(ctx), id)
}

type nearWatcher struct{ clientv3.Watcher }

func (w nearWatcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	return w.Watcher.Watch(withoutPeer(ctx), key, opts...)
}

func (w nearWatcher) RequestProgress(ctx context.Context) error {
	return w.Watcher.RequestProgress(withoutPeer(ctx))
}
