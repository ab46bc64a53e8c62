package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/journal"
)

// Fn is called for each record that is read. The body is valid until Fn returns.
type Fn = func(seq uint64, slot journal.Slot, body []byte) error

const (
	pageBytes = 8 << 20 // target size of a page of keys, approximate
	maxPage   = 1000
)

// Read implements [journal.Journal].
func (j *Journal) Read(from uint64, fn func(uint64, journal.Slot, []byte) error) error {
	_, err := j.c.read(j.c.ctx, j.name, from, fn)
	return err
}

// Follow implements [journal.Follower].
func (j *Journal) Follow(ctx context.Context, from uint64, fn func(uint64, journal.Slot, []byte) error) error {
	return j.c.Follow(ctx, j.name, from, fn)
}

// Read calls fn for every durable record of a journal with a sequence of at least from,
// whether the journal has an owner or not.
func (c *Cluster) Read(ctx context.Context, name string, from uint64, fn Fn) error {
	_, err := c.read(ctx, name, from, fn)
	return err
}

// read returns the sequence after the last record.
func (c *Cluster) read(ctx context.Context, name string, from uint64, fn Fn) (next uint64, err error) {
	r := &reader{name: name, next: from, from: from, fn: fn}
	_, err = c.scan(ctx, r)
	return r.next, err
}

// scan reads to the end of the journal and returns the revision of etcd at which nothing
// followed. By then the reader may have seen the first parts of a batch.
func (c *Cluster) scan(ctx context.Context, r *reader) (revision int64, err error) {
	name, from := r.name, r.from
	end, mark, err := c.position(ctx, name)
	if err != nil {
		return 0, err
	}
	begin, err := c.begin(ctx, name, mark, end)
	switch {
	case err != nil:
		return 0, err
	case from < begin:
		return 0, fmt.Errorf("%w: %s begins at %d, %d was requested", journal.ErrTrimmed, name, begin, from)
	case from > end.next:
		return 0, fmt.Errorf("the journal %s ends before %d, %d was requested: the disk is of another cluster, or the cluster was restored from a backup", name, end.next, from)
	}
	at, err := c.batchOf(ctx, name, begin, from, end.next)
	if err != nil {
		return 0, err
	}
	r.next = at
	limit := int64(4)
	key, stop := partKey(c.cfg.Prefix, name, at, 0), c.endOf(name)
	for {
		resp, err := c.get(ctx, key, clientv3.WithRange(stop), clientv3.WithLimit(limit))
		if err != nil {
			return 0, fmt.Errorf("read the journal %s: %w", name, err)
		}
		size := 0
		for _, kv := range resp.Kvs {
			size += len(kv.Value)
			if err := c.put(r, kv); err != nil {
				return 0, c.explain(ctx, name, r.next, err)
			}
			key = string(kv.Key) + "\x00"
		}
		if !resp.More {
			return resp.Header.Revision, nil
		}
		limit = max(1, min(maxPage, pageBytes*limit/int64(max(size, 1))))
	}
}

// explain returns ErrTrimmed in place of a gap error if the missing records were trimmed
// during the read.
func (c *Cluster) explain(ctx context.Context, name string, next uint64, err error) error {
	if gap := (*gapError)(nil); errors.As(err, &gap) {
		if end, mark, perr := c.position(ctx, name); perr == nil {
			if begin, berr := c.begin(ctx, name, mark, end); berr == nil && begin > next {
				return fmt.Errorf("%w: %s begins at %d now", journal.ErrTrimmed, name, begin)
			}
		}
	}
	return err
}

// begin returns the sequence of the first record that is left. Keys below the trim
// position do not count. If etcd had no room to store the trim position, the first key
// that is left determines the beginning.
func (c *Cluster) begin(ctx context.Context, name string, mark, end head) (uint64, error) {
	resp, err := c.get(ctx, partKey(c.cfg.Prefix, name, mark.next, 0),
		clientv3.WithRange(partKey(c.cfg.Prefix, name, end.next, 0)), clientv3.WithLimit(1), clientv3.WithKeysOnly())
	if err != nil {
		return 0, fmt.Errorf("read the journal %s: %w", name, err)
	}
	if len(resp.Kvs) == 0 {
		return end.next, nil
	}
	seq, _, err := c.seqOf(name, resp.Kvs[0].Key)
	return seq, err
}

// batchOf returns the sequence at which the batch of record seq begins, for first ≤ seq ≤
// end. etcd can only return the first key from a given one on, so batchOf bisects. In
// most cases seq is the beginning of a batch.
func (c *Cluster) batchOf(ctx context.Context, name string, first, seq, end uint64) (uint64, error) {
	// Invariant: a batch begins at low, which is ≤ seq; none begins in [high, seq].
	low, high := first, seq+1
	step := uint64(1)
	for low+1 < high {
		var mid uint64
		if high > step && high-step > low {
			mid = high - step // the beginning is near seq: batches are short
			step *= 4
		} else {
			mid = low + (high-low)/2
		}
		resp, err := c.get(ctx, partKey(c.cfg.Prefix, name, mid, 0),
			clientv3.WithRange(c.endOf(name)), clientv3.WithLimit(1), clientv3.WithKeysOnly())
		if err != nil {
			return 0, fmt.Errorf("look for record %d of the journal %s: %w", seq, name, err)
		}
		found := end
		if len(resp.Kvs) == 1 {
			if found, _, err = c.seqOf(name, resp.Kvs[0].Key); err != nil {
				return 0, err
			}
		}
		if found <= seq {
			low = found
		} else {
			high = mid
		}
	}
	return low, nil
}

func (c *Cluster) seqOf(name string, key []byte) (uint64, int, error) {
	return parseKey(string(key[min(len(key), len(c.cfg.Prefix)+len("j/")+len(name)+1):]))
}

func (c *Cluster) put(r *reader, kv *mvccpb.KeyValue) error {
	seq, index, err := c.seqOf(r.name, kv.Key)
	if err != nil {
		return err
	}
	return r.put(seq, index, kv.Value)
}

// reader decodes the parts of a journal, in order, into records.
type reader struct {
	name string
	next uint64 // the sequence of the next batch
	from uint64 // records below from are skipped
	fn   Fn
	a    assembler
}

type gapError struct {
	name       string
	next, have uint64
}

func (e *gapError) Error() string {
	return fmt.Sprintf("the journal %s has a batch at %d where %d is next: records are missing", e.name, e.have, e.next)
}

func (r *reader) put(seq uint64, index int, value []byte) error {
	if seq != r.next {
		return &gapError{r.name, r.next, seq}
	}
	p, err := decodePart(value)
	if err != nil {
		return fmt.Errorf("the journal %s: part %d of the batch at %d %w", r.name, index, seq, err)
	}
	whole, err := r.a.add(seq, index, p)
	if err != nil {
		return fmt.Errorf("the journal %s: %w", r.name, err)
	}
	if !whole {
		return nil
	}
	var told error
	n, err := decodeBatch(r.a.body, func(i uint64, slot journal.Slot, body []byte) error {
		if seq+i < r.from {
			return nil
		}
		told = r.fn(seq+i, slot, body)
		return told
	})
	switch {
	case told != nil:
		return told
	case err != nil:
		return fmt.Errorf("the journal %s: the batch at %d %w", r.name, seq, err)
	}
	r.next = seq + n
	return nil
}

// Follow calls fn for every durable record of a journal with a sequence of at least from,
// and for each record that becomes durable later, until ctx ends or fn fails. It skips
// batches that their owner did not complete. While etcd is out of reach it waits.
func (c *Cluster) Follow(ctx context.Context, name string, from uint64, fn Fn) error {
	for {
		r := &reader{name: name, next: from, from: from, fn: fn}
		revision, err := c.scan(ctx, r)
		from = max(from, r.next)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !passing(err):
			return err
		case err != nil:
			c.log.Warn("etcd does not answer a standby", "journal", name, "error", err)
			c.pause(maxPause)
			continue
		}
		err = c.watch(ctx, r, revision)
		from = max(from, r.next)
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// passing reports whether an error is of the connection to etcd and may pass, rather than
// of the stored data.
func passing(err error) bool {
	code := status.Code(err)
	if e := (rpctypes.EtcdError{}); errors.As(err, &e) {
		code = e.Code()
	}
	return code == codes.Unavailable || errors.Is(err, context.DeadlineExceeded) || clientv3.IsConnCanceled(err)
}

// watch passes the records after a revision to a reader that has seen all earlier ones.
// It returns nil when the journal must be read again: the history that it needs is
// compacted, the connection to etcd broke, or a record is missing.
func (c *Cluster) watch(ctx context.Context, r *reader, revision int64) error {
	to, within, done := c.steady(ctx)
	defer done()
	prefix := c.cfg.Prefix + "j/" + r.name + "/"
	changes := to.Watch(within, prefix, clientv3.WithPrefix(), clientv3.WithRev(revision+1), clientv3.WithFilterDelete())
	for resp := range changes {
		if resp.Err() != nil {
			return nil
		}
		for _, e := range resp.Events {
			if err := c.put(r, e.Kv); err != nil {
				if gap := (*gapError)(nil); errors.As(err, &gap) {
					return nil // the next scan reports the error, if there is one
				}
				return err
			}
		}
	}
	return nil
}
