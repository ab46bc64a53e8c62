package etcd

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// ErrHasRecords is returned when a journal cannot be seeded because it already has an
// owner or records.
var ErrHasRecords = errors.New("the journal has records already")

// Begins returns the sequence of the first record that is left of a journal, or of the
// next record if none is left. A store that lacks earlier records cannot be brought up to
// date from the journal alone.
func (c *Cluster) Begins(ctx context.Context, name string) (uint64, error) {
	first, _, err := c.Span(ctx, name)
	return first, err
}

// Span returns the sequences of the first record that is left of a journal and of the
// next record. They are equal when no record is left.
func (c *Cluster) Span(ctx context.Context, name string) (first, next uint64, err error) {
	end, mark, err := c.position(ctx, name)
	if err != nil {
		return 0, 0, err
	}
	first, err = c.begin(ctx, name, mark, end)
	return first, end.next, err
}

// Seed makes a journal that has no record begin at a sequence: the store of the server
// that creates the journal includes all earlier records. Seed may be repeated, also with
// another sequence, until the journal has an owner or a record.
func (c *Cluster) Seed(ctx context.Context, name string, next uint64) error {
	if !validName(name) || next == 0 {
		return fmt.Errorf("the journal %q cannot begin at %d", name, next)
	}
	begin := head{next: next}.encode()
	for {
		end, mark, err := c.position(ctx, name)
		if err != nil {
			return err
		}
		if end != mark || end.bytes != 0 {
			return fmt.Errorf("%w: %s ends before %d", ErrHasRecords, name, end.next)
		}
		resp, err := c.get(ctx, c.key("h", name))
		if err != nil {
			return fmt.Errorf("read the end of the journal %s from etcd: %w", name, err)
		}
		was := int64(0)
		if len(resp.Kvs) == 1 {
			was = resp.Kvs[0].ModRevision
		}
		txn, err := c.nearest().Txn(ctx).If(
			clientv3.Compare(clientv3.ModRevision(c.key("h", name)), "=", was),
			clientv3.Compare(clientv3.CreateRevision(c.key("o", name)), "=", 0),
			// The head does not count parts of a batch that an owner did not complete.
			clientv3.Compare(clientv3.CreateRevision(c.key("j", name)+"/"), "=", 0).WithPrefix(),
		).Then(
			clientv3.OpPut(c.key("h", name), begin), clientv3.OpPut(c.key("t", name), begin),
		).Else(clientv3.OpGet(c.key("o", name))).Commit()
		switch {
		case err != nil:
			return fmt.Errorf("begin the journal %s: %w", name, err)
		case txn.Succeeded:
			return nil
		}
		if kvs := txn.Responses[0].GetResponseRange().Kvs; len(kvs) == 1 {
			o, err := c.decodeOwner(kvs[0].Value, kvs[0].CreateRevision)
			if err != nil {
				return err
			}
			return fmt.Errorf("%w: %s is owned by the server %s", ErrHasRecords, name, o.Server)
		}
		left, err := c.get(ctx, c.key("j", name)+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return fmt.Errorf("read the journal %s: %w", name, err)
		}
		if left.Count > 0 {
			return fmt.Errorf("%w: %s has %d parts of them", ErrHasRecords, name, left.Count)
		}
	}
}
