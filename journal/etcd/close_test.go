package etcd

import (
	"context"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestMemberEndsUnderLoad: a member that is closed while clients send requests ends, and
// no request reads from its closed store.
func TestMemberEndsUnderLoad(t *testing.T) {
	e := begin(t, 1, nil)
	for range 10 {
		if e.members[0] == nil {
			e.start(t, 0)
		}
		if t.Failed() {
			return
		}
		ctx, cancel := context.WithCancel(t.Context())
		var asking, warm sync.WaitGroup
		for range 16 {
			c, err := clientv3.New(clientv3.Config{Endpoints: []string{e.configs[0].ListenClient}})
			if err != nil {
				t.Fatal(err)
			}
			warm.Add(1)
			asking.Go(func() {
				defer c.Close() //nolint:errcheck // its server is gone
				if lease, err := c.Grant(ctx, 10); err == nil {
					c.KeepAlive(ctx, lease.ID) //nolint:errcheck // its server goes
				}
				c.Watch(ctx, "k", clientv3.WithPrefix())
				for i := 0; ctx.Err() == nil; i++ {
					c.Get(ctx, "k", clientv3.WithSerializable())                            //nolint:errcheck // its server goes
					c.Txn(ctx).Then(clientv3.OpPut("k", "v"), clientv3.OpGet("k")).Commit() //nolint:errcheck // its server goes
					if i == 5 {
						warm.Done()
					}
				}
			})
		}
		warm.Wait()
		e.members[0].Close()
		e.members[0] = nil
		cancel()
		asking.Wait()
	}
}
