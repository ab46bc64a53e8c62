package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A table holds a few facts that all servers of a cluster see: which servers are up,
// where each partition belongs. It is not for records, and not for many rows: every
// server that watches a table has all of it in memory.

// Fact is a row of a table, or the deletion of one. A deleted row has no value.
type Fact struct {
	Key, Value string
	Deleted    bool
}

func (c *Cluster) row(table, key string) string { return c.cfg.Prefix + "m/" + table + "/" + key }

// Note sets a row. A leased row is deleted when the lease of this server ends: see
// [Config].
func (c *Cluster) Note(ctx context.Context, table, key, value string, leased bool) error {
	var opts []clientv3.OpOption
	if leased {
		l, err := c.grant(ctx)
		if err != nil {
			return err
		}
		opts = append(opts, clientv3.WithLease(l.id))
	}
	if _, err := c.nearest().Put(ctx, c.row(table, key), value, opts...); err != nil {
		return fmt.Errorf("write %s of %s to etcd: %w", key, table, err)
	}
	return nil
}

// First sets a row that does not exist, and returns the value of the row afterwards: the
// first value stays.
func (c *Cluster) First(ctx context.Context, table, key, value string) (string, error) {
	at := c.row(table, key)
	resp, err := c.nearest().Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(at), "=", 0)).
		Then(clientv3.OpPut(at, value)).
		Else(clientv3.OpGet(at)).Commit()
	if err != nil {
		return "", fmt.Errorf("write %s of %s to etcd: %w", key, table, err)
	}
	if resp.Succeeded {
		return value, nil
	}
	if kvs := resp.Responses[0].GetResponseRange().Kvs; len(kvs) == 1 {
		return string(kvs[0].Value), nil
	}
	return "", fmt.Errorf("write %s of %s to etcd: it was deleted meanwhile", key, table)
}

// Forget deletes a row.
func (c *Cluster) Forget(ctx context.Context, table, key string) error {
	if _, err := c.nearest().Delete(ctx, c.row(table, key)); err != nil {
		return fmt.Errorf("delete %s of %s in etcd: %w", key, table, err)
	}
	return nil
}

// Facts calls fn with all rows of a table, where whole is true, and then with the changes
// as they occur, until ctx ends. After a broken watch it calls fn with all rows again.
// After an error the rows are unknown.
func (c *Cluster) Facts(ctx context.Context, table string, fn func(facts []Fact, whole bool)) error {
	prefix := c.row(table, "")
	for {
		resp, err := c.get(ctx, prefix, clientv3.WithPrefix())
		if err != nil {
			return fmt.Errorf("read the table %s from etcd: %w", table, err)
		}
		var all []Fact
		for _, kv := range resp.Kvs {
			all = append(all, Fact{Key: strings.TrimPrefix(string(kv.Key), prefix), Value: string(kv.Value)})
		}
		fn(all, true)
		c.changes(ctx, prefix, resp.Header.Revision+1, fn)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// changes returns when the table must be read again.
func (c *Cluster) changes(ctx context.Context, prefix string, from int64, fn func([]Fact, bool)) {
	to, within, done := c.steady(ctx)
	defer done()
	for w := range to.Watch(within, prefix, clientv3.WithPrefix(), clientv3.WithRev(from)) {
		if w.Err() != nil {
			return
		}
		facts := make([]Fact, 0, len(w.Events))
		for _, e := range w.Events {
			facts = append(facts, Fact{strings.TrimPrefix(string(e.Kv.Key), prefix), string(e.Kv.Value), e.Type == clientv3.EventTypeDelete})
		}
		if len(facts) > 0 {
			fn(facts, false)
		}
	}
}

// Elect reports whether this server is elected for the work of that name, and the elected
// server. This server stays elected while its lease lasts.
func (c *Cluster) Elect(ctx context.Context, work string) (bool, Owner, error) {
	if !validName(work) {
		return false, Owner{}, fmt.Errorf("%q is not a name: use 1 to 200 letters, digits and . _ - ~", work)
	}
	l, err := c.grant(ctx)
	if err != nil {
		return false, Owner{}, err
	}
	// Most of the time a server is elected, and a read is cheaper than an attempt.
	if o, ok, err := c.Elected(ctx, work); err != nil || ok && o.Server != c.cfg.Server {
		return false, o, err
	}
	_, err = c.campaign(ctx, c.key("b", work), l, false)
	held := (*OwnedError)(nil)
	switch {
	case err == nil:
		return true, Owner{Server: c.cfg.Server, Address: c.cfg.Address}, nil
	case errors.As(err, &held):
		return false, held.Owner, nil
	}
	return false, Owner{}, err
}

// Elected returns the server that is elected for a work; ok is false when there is none.
func (c *Cluster) Elected(ctx context.Context, work string) (o Owner, ok bool, err error) {
	return c.owner(ctx, c.key("b", work))
}

// End returns the sequence of the next record of a journal, whether it has an owner or
// not.
func (c *Cluster) End(ctx context.Context, name string) (uint64, error) {
	end, _, err := c.position(ctx, name)
	return end.next, err
}

// Standbys returns the ids of the servers that follow a journal, sorted.
func (c *Cluster) Standbys(ctx context.Context, name string) ([]string, error) {
	prefix := c.key("f", name) + "/"
	resp, err := c.get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, fmt.Errorf("ask etcd for the standbys of %s: %w", name, err)
	}
	var ids []string
	for _, kv := range resp.Kvs {
		ids = append(ids, strings.TrimPrefix(string(kv.Key), prefix))
	}
	slices.Sort(ids)
	return ids, nil
}

// Unfollow deletes the [Cluster.Checkpoint] of this server: the owner of a journal is not
// a standby of it.
func (c *Cluster) Unfollow(ctx context.Context, name string) error {
	_, err := c.nearest().Delete(ctx, c.key("f", name)+"/"+c.cfg.Server)
	if err != nil && !errors.Is(err, rpctypes.ErrNoSpace) {
		return fmt.Errorf("remove a checkpoint of the journal %s: %w", name, err)
	}
	return nil
}

// Refuses returns why the server should start nothing new now; nil when it may.
func (c *Cluster) Refuses() error { return c.refuses() }
