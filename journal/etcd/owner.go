package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Owner describes the server that owns a journal.
type Owner struct {
	Server  string `json:"server"`
	Address string `json:"address,omitempty"`
	Epoch   uint64 `json:"-"`
}

// OwnedError is returned when a journal has another owner.
type OwnedError struct {
	Journal string
	Owner   Owner
}

func (e *OwnedError) Error() string {
	return fmt.Sprintf("the journal %s is owned by the server %s at %s", e.Journal, e.Owner.Server, e.Owner.Address)
}

// Own takes ownership of a journal that has no owner, and creates the journal if it does
// not exist. If another server owns it, the error is an [OwnedError]; [Cluster.Free]
// waits for its end. Own replaces at once an ownership that this server or its former
// process left behind.
func (c *Cluster) Own(ctx context.Context, name string) (*Journal, error) {
	if !validName(name) {
		return nil, fmt.Errorf("%q is no journal's name: 1 to 200 letters, digits and . _ - ~ are", name)
	}
	c.mu.Lock()
	for _, j := range c.journals {
		if j.name == name && j.Err() == nil {
			c.mu.Unlock()
			return nil, fmt.Errorf("this server has the journal %s already", name)
		}
	}
	c.mu.Unlock()
	l, err := c.grant(ctx)
	if err != nil {
		return nil, err
	}
	created, err := c.campaign(ctx, c.key("o", name), l, true)
	if err != nil {
		if held := (*OwnedError)(nil); errors.As(err, &held) {
			held.Journal = name
		}
		return nil, err
	}
	j, err := c.open(ctx, name, created, l)
	if err != nil {
		_ = c.Release(context.WithoutCancel(ctx), name, c.epochOf(created)) // if it fails, the next attempt ends the ownership
		return nil, err
	}
	return j, nil
}

// campaign creates a key of this server under its lease and returns the create revision
// of the key. With replace false, an existing key of this server under the same lease is
// enough. With replace true, such a key is replaced: a transaction that was sent under the
// old epoch, and whose end was not confirmed, may still arrive.
func (c *Cluster) campaign(ctx context.Context, key string, l *lease, replace bool) (int64, error) {
	value, err := json.Marshal(Owner{Server: c.cfg.Server, Address: c.cfg.Address})
	if err != nil {
		return 0, err
	}
	for {
		resp, err := c.nearest().Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
			Then(clientv3.OpPut(key, string(value), clientv3.WithLease(l.id))).
			Else(clientv3.OpGet(key)).Commit()
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			return 0, fmt.Errorf("the server's lease ran out before it owned anything: try again: %w", err)
		case err != nil:
			return 0, fmt.Errorf("ask etcd for the ownership: %w", err)
		case resp.Succeeded:
			return resp.Header.Revision, nil
		}
		kvs := resp.Responses[0].GetResponseRange().Kvs
		if len(kvs) == 0 {
			continue
		}
		holder, err := c.decodeOwner(kvs[0].Value, kvs[0].CreateRevision)
		if err != nil {
			return 0, err
		}
		switch {
		case holder.Server != c.cfg.Server:
			return 0, &OwnedError{Owner: holder}
		case clientv3.LeaseID(kvs[0].Lease) == l.id && !replace:
			return kvs[0].CreateRevision, nil
		}
		if err := c.release(ctx, key, kvs[0].CreateRevision); err != nil {
			return 0, fmt.Errorf("end this server's last ownership: %w", err)
		}
	}
}

// Release ends an ownership of this server for which it has no [Journal]: that of its
// former process, or one whose end etcd did not confirm when the journal was closed. The
// lease does not end such an ownership, because the server renews it for all of its
// journals.
func (c *Cluster) Release(ctx context.Context, name string, epoch uint64) error {
	ctx, cancel := context.WithTimeout(ctx, c.patience())
	defer cancel()
	if err := c.release(ctx, c.key("o", name), int64(epoch)-c.began); err != nil {
		return fmt.Errorf("end the ownership %d of %s: %w", epoch, name, err)
	}
	return nil
}

func (c *Cluster) release(ctx context.Context, key string, created int64) error {
	_, err := c.nearest().Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", created)).
		Then(clientv3.OpDelete(key)).Commit()
	return err
}

func (c *Cluster) decodeOwner(b []byte, created int64) (Owner, error) {
	o := Owner{}
	if err := json.Unmarshal(b, &o); err != nil || o.Server == "" {
		return o, fmt.Errorf("etcd says that %q is an owner, which names no server", b)
	}
	o.Epoch = c.epochOf(created)
	return o, nil
}

// open reads the position of the journal and removes the parts of a batch that its last
// owner did not complete.
func (c *Cluster) open(ctx context.Context, name string, created int64, l *lease) (*Journal, error) {
	j := &Journal{
		c: c, name: name, created: created, lease: l, at: time.Now(),
		over: make(chan struct{}), settled: make(chan struct{}),
	}
	var err error
	if j.end, j.mark, err = c.position(ctx, name); err != nil {
		return nil, err
	}
	j.next = j.end.next
	owner := c.key("o", name)
	resp, err := c.nearest().Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(owner), "=", created)).
		Then(
			clientv3.OpDelete(partKey(c.cfg.Prefix, name, j.end.next, 0), clientv3.WithRange(c.endOf(name))),
			clientv3.OpDelete(c.key("e", name), clientv3.WithPrevKV()),
		).Commit()
	if err != nil {
		return nil, fmt.Errorf("tidy the end of the journal %s: %w", name, err)
	}
	if !resp.Succeeded {
		return nil, c.fenced(j)
	}
	j.tidy = j.end.next == 1
	if ended := resp.Responses[1].GetResponseDeleteRange().PrevKvs; len(ended) == 1 {
		j.tidy = string(ended[0].Value) == strconv.FormatUint(j.end.next, 10)
	}
	j.known.Store(j.tidy)
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-l.gone:
		return nil, c.fenced(j)
	default:
	}
	c.journals = append(c.journals, j)
	return j, nil
}

// endOf returns the key after the last record that a journal can have.
func (c *Cluster) endOf(name string) string {
	return clientv3.GetPrefixRangeEnd(c.cfg.Prefix + "j/" + name + "/")
}

// position returns the head and the trim position of a journal, from one revision of
// etcd.
func (c *Cluster) position(ctx context.Context, name string) (end, mark head, err error) {
	end, mark = head{next: 1}, head{next: 1}
	resp, err := ask(c, func(to *clientv3.Client) (*clientv3.TxnResponse, error) {
		return to.Txn(ctx).Then(clientv3.OpGet(c.key("h", name)), clientv3.OpGet(c.key("t", name))).Commit()
	})
	if err != nil {
		return end, mark, fmt.Errorf("ask etcd where the journal %s stands: %w", name, err)
	}
	for i, h := range []*head{&end, &mark} {
		if kvs := resp.Responses[i].GetResponseRange().Kvs; len(kvs) == 1 {
			if *h, err = decodeHead(kvs[0].Value); err != nil {
				return end, mark, fmt.Errorf("the journal %s: %w", name, err)
			}
		}
	}
	if mark.next > end.next {
		return end, mark, fmt.Errorf("the journal %s was trimmed up to %d and ends before %d: another program than a server has changed it", name, mark.next, end.next)
	}
	return end, mark, nil
}

// Owner returns the owner of a journal; ok is false when there is none.
func (c *Cluster) Owner(ctx context.Context, name string) (o Owner, ok bool, err error) {
	return c.owner(ctx, c.key("o", name))
}

func (c *Cluster) owner(ctx context.Context, key string) (o Owner, ok bool, err error) {
	resp, err := c.get(ctx, key)
	if err != nil {
		return o, false, fmt.Errorf("ask etcd for the owner of %s: %w", key, err)
	}
	if len(resp.Kvs) == 0 {
		return o, false, nil
	}
	o, err = c.decodeOwner(resp.Kvs[0].Value, resp.Kvs[0].CreateRevision)
	return o, err == nil, err
}

// Depose ends the ownership of a journal, whichever server has it, as the end of its
// lease would: the former owner finds that it is fenced. It is for operators and tests: a
// server that is suspended otherwise keeps its journals until its lease ends.
func (c *Cluster) Depose(ctx context.Context, name string) error {
	if _, err := c.nearest().Delete(ctx, c.key("o", name)); err != nil {
		return fmt.Errorf("end the ownership of %s: %w", name, err)
	}
	return nil
}

// Free waits until a journal has no owner.
func (c *Cluster) Free(ctx context.Context, name string) error {
	key := c.key("o", name)
	for {
		resp, err := c.get(ctx, key)
		if err != nil {
			return fmt.Errorf("ask etcd for the owner of %s: %w", name, err)
		}
		if len(resp.Kvs) == 0 {
			return nil
		}
		if err := c.await(ctx, key, resp.Header.Revision+1); err != nil {
			return err
		}
	}
}

// await returns at the next change of a key, or when the caller should read the key again
// because the watch ended.
func (c *Cluster) await(ctx context.Context, key string, from int64) error {
	to, within, done := c.steady(ctx)
	defer done()
	for resp := range to.Watch(within, key, clientv3.WithRev(from)) {
		if len(resp.Events) > 0 || resp.Err() != nil {
			break
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return nil
}

// Owners calls fn with the owners of all journals, by journal, now and after each change,
// until ctx ends. After an error the owners are unknown.
func (c *Cluster) Owners(ctx context.Context, fn func(map[string]Owner)) error {
	prefix := c.key("o", "")
	for {
		resp, err := c.get(ctx, prefix, clientv3.WithPrefix())
		if err != nil {
			return fmt.Errorf("ask etcd for the owners: %w", err)
		}
		owners := map[string]Owner{}
		for _, kv := range resp.Kvs {
			o, err := c.decodeOwner(kv.Value, kv.CreateRevision)
			if err != nil {
				return err
			}
			owners[strings.TrimPrefix(string(kv.Key), prefix)] = o
		}
		fn(owners)
		to, within, done := c.steady(ctx)
		for w := range to.Watch(within, prefix, clientv3.WithPrefix(), clientv3.WithRev(resp.Header.Revision+1)) {
			if len(w.Events) > 0 || w.Err() != nil {
				break
			}
		}
		done()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}
