package etcd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/wheelworkhq/wheelwork/journal"
)

var (
	journalFenced = journal.ErrFenced
	journalFull   = journal.ErrFull
)

const (
	// maxStaged bounds the bytes of one journal that wait in memory for etcd. Appends
	// beyond it are refused.
	maxStaged = 64 << 20
	// maxStagedFull is the bound while etcd refuses writes. It is not 0, because a caller
	// that read Room just before may rely on its answer.
	maxStagedFull = 16 << 20
	// lazyDelay is the time, at most, that lazy records wait for a batch.
	lazyDelay = 100 * time.Millisecond
)

// Journal is a journal that this server owns. It implements [journal.Journal].
type Journal struct {
	c       *Cluster
	name    string
	created int64 // the create revision of the owner key
	lease   *lease
	tidy    bool // the last owner closed the journal in order, or the journal is empty
	at      time.Time

	known atomic.Bool // tidy, or Settle was called

	mu      sync.Mutex
	appends []appendGroup // staged and in no batch yet, oldest first
	staged  int64         // bytes of appends and of now
	wanted  int           // groups that must be written without further delay
	now     *batch        // the batch that is being written; nil: none
	next    uint64        // sequence of the next record to be staged
	end     head          // the position after the last batch that was cut
	mark    head          // the position up to which the journal is trimmed
	lazy    *time.Timer
	err     error // final; nil while the journal works
	closed  bool

	over    chan struct{} // closed when err is set
	settled chan struct{} // closed when the journal is closed and nothing is staged
	pending []settlement  // answers to deliver, in order
	// telling is true while a goroutine delivers pending.
	telling bool
}

var (
	_ journal.Journal  = (*Journal)(nil)
	_ journal.Refuser  = (*Journal)(nil)
	_ journal.Follower = (*Journal)(nil)
	_ journal.Orderly  = (*Journal)(nil)
)

// appendGroup is the encoded records of one Append. A group without records is a barrier.
type appendGroup struct {
	n    uint64
	b    []byte
	done func(error)
}

// batch is written atomically: it becomes visible with its last part.
type batch struct {
	first   uint64
	after   head
	parts   [][]byte
	sent    int
	appends []appendGroup
	bytes   int64
}

type settlement struct {
	done func(error)
	err  error
}

// Name returns the journal's name.
func (j *Journal) Name() string { return j.name }

// Epoch returns the number of this ownership. It is higher than that of every earlier
// one.
func (j *Journal) Epoch() uint64 { return j.c.epochOf(j.created) }

// Orderly implements [journal.Orderly].
func (j *Journal) Orderly() bool { return j.tidy }

// Opened implements [journal.Orderly].
func (j *Journal) Opened() time.Time { return j.at }

// Settle implements [journal.Orderly].
func (j *Journal) Settle() { j.known.Store(true) }

// Lost returns a channel that is closed when the ownership has ended or the journal has
// failed.
func (j *Journal) Lost() <-chan struct{} { return j.over }

// Err returns why the journal is dead, nil while it works.
func (j *Journal) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// Refuses implements [journal.Refuser]. While it returns an error, Append still accepts
// records as long as there is room.
func (j *Journal) Refuses() error { return j.c.refuses() }

// Append implements [journal.Journal].
func (j *Journal) Append(recs []journal.Record, done func(error)) (uint64, error) {
	return j.stage(recs, done)
}

// AppendLazy implements [journal.Journal].
func (j *Journal) AppendLazy(recs []journal.Record) (uint64, error) { return j.stage(recs, nil) }

func (j *Journal) stage(recs []journal.Record, done func(error)) (uint64, error) {
	size := 0
	for i := range recs {
		if n := len(recs[i].Slot.App); n > 255 {
			return 0, fmt.Errorf("journal: the app's name has %d bytes, the limit is 255", n)
		}
		size += 2 + len(recs[i].Slot.App) + binary.MaxVarintLen32 + len(recs[i].Body)
	}
	b := make([]byte, 0, size)
	for i := range recs {
		b = appendRecord(b, &recs[i])
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.err != nil:
		return 0, j.err
	case j.closed:
		return 0, errors.New("journal: it is closed")
	case len(b) > 0 && j.staged+int64(len(b)) > j.c.mayStage():
		return 0, fmt.Errorf("%w: %d MiB wait for etcd", journal.ErrFull, j.staged>>20)
	}
	j.appends = append(j.appends, appendGroup{uint64(len(recs)), b, done})
	j.next += uint64(len(recs))
	j.staged += int64(len(b))
	if done != nil {
		j.wanted++
		j.c.wake()
	} else if j.lazy == nil && len(recs) > 0 {
		j.lazy = time.AfterFunc(lazyDelay, j.flushLazy)
	}
	return j.next - 1, nil
}

func (j *Journal) flushLazy() {
	j.mu.Lock()
	j.lazy = nil
	if len(j.appends) > 0 {
		j.wanted++ // until the next batch is cut
	}
	j.mu.Unlock()
	j.c.wake()
}

// take returns the next parts of the journal's batch for a transaction, at most room
// bytes, and their size. The caller holds the cluster's mutex.
func (j *Journal) take(room int) (pendingAppend, int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return pendingAppend{}, 0
	}
	if j.now == nil {
		j.cut()
	}
	b := j.now
	if b == nil {
		return pendingAppend{}, 0
	}
	to, size := b.sent, 0
	for to < len(b.parts) && size+len(b.parts[to]) <= room {
		size += len(b.parts[to])
		to++
	}
	if to == b.sent {
		return pendingAppend{}, 0 // a part does not fit; the next transaction begins with it
	}
	return pendingAppend{j, b, b.parts[b.sent:to], to == len(b.parts)}, size
}

// records returns the number of records in a batch.
func (b *batch) records() uint64 { return b.after.next - b.first }

// waiting returns the number of staged records.
func (j *Journal) waiting() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.next - j.end.next
}

// cut makes a batch of staged units: as many units as fit into one part, or a single
// larger one. The caller holds j.mu.
func (j *Journal) cut() {
	if j.wanted == 0 {
		return
	}
	const room = maxPart - partHeader - binary.MaxVarintLen64
	n, size, count := 0, 0, uint64(0)
	for _, u := range j.appends {
		if size > 0 && size+len(u.b) > room {
			break
		}
		n, size, count = n+1, size+len(u.b), count+u.n
	}
	appends := j.appends[:n:n]
	j.appends = j.appends[n:]
	if len(j.appends) == 0 {
		j.appends, j.wanted = nil, 0
	}
	if count == 0 { // barriers only, and all records before them are durable
		for _, u := range appends {
			j.settleLocked(u.done, nil)
		}
		j.tellLocked()
		if len(j.appends) > 0 {
			j.cut()
		}
		return
	}
	body := make([]byte, 0, size+binary.MaxVarintLen64)
	body = binary.AppendUvarint(body, count)
	for _, u := range appends {
		body = append(body, u.b...)
	}
	b := &batch{first: j.end.next, appends: appends, bytes: int64(size)}
	for piece := range slices.Chunk(body, maxPart-partHeader) {
		p := part{created: uint64(j.created), before: j.end.bytes, body: piece}
		b.parts = append(b.parts, nil)
		p.last = len(b.parts)*(maxPart-partHeader) >= len(body)
		b.parts[len(b.parts)-1] = p.encode()
	}
	j.end = head{j.end.next + count, j.end.bytes + uint64(len(body))}
	b.after = j.end
	j.now = b
}

// wrote records that the parts of g are in etcd. With the last part, the batch is
// complete and its answers are delivered.
func (j *Journal) wrote(g pendingAppend) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.now != g.b {
		return
	}
	g.b.sent += len(g.parts)
	if !g.final {
		return
	}
	j.now = nil
	j.staged -= g.b.bytes
	for _, u := range g.b.appends {
		j.settleLocked(u.done, nil)
	}
	j.tellLocked()
}

// settleLocked queues an answer; tellLocked starts the delivery of the queued answers.
func (j *Journal) settleLocked(done func(error), err error) {
	if done != nil {
		j.pending = append(j.pending, settlement{done, err})
	}
}

// tellLocked delivers the answers in order and without holding a mutex, because the
// callbacks may append.
func (j *Journal) tellLocked() {
	if j.closed && j.now == nil && len(j.appends) == 0 && len(j.pending) == 0 && !j.telling {
		j.settleClosedLocked()
	}
	if j.telling || len(j.pending) == 0 {
		return
	}
	j.telling = true
	j.c.wg.Go(func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		for len(j.pending) > 0 {
			line := j.pending
			j.pending = nil
			j.mu.Unlock()
			for _, s := range line {
				s.done(s.err)
			}
			j.mu.Lock()
		}
		j.telling = false
		j.tellLocked()
	})
}

func (j *Journal) settleClosedLocked() {
	select {
	case <-j.settled:
	default:
		close(j.settled)
	}
}

// lost is called when etcd has said that the lease is gone. While a batch is being
// written, lost leaves the journal alone: the transaction, which may have been applied
// before the lease ended, decides.
func (j *Journal) lost() {
	j.mu.Lock()
	writing := j.now != nil
	j.mu.Unlock()
	if !writing {
		j.fail(j.c.fenced(j))
	}
}

// fail ends the journal. The first error is final.
func (j *Journal) fail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return
	}
	j.err = err
	close(j.over)
	j.c.log.Error("the journal has failed", "journal", j.name, "error", err)
	if j.now != nil {
		for _, u := range j.now.appends {
			j.settleLocked(u.done, err)
		}
	}
	for _, u := range j.appends {
		j.settleLocked(u.done, err)
	}
	j.now, j.appends, j.staged = nil, nil, 0
	j.tellLocked()
}

// Next implements [journal.Journal].
func (j *Journal) Next() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.next
}

// Room implements [journal.Journal]. It is the smaller of the bytes that may still wait
// in memory and of the room in etcd.
func (j *Journal) Room() int64 {
	j.mu.Lock()
	staged := j.staged
	j.mu.Unlock()
	if j.c.full.Load() {
		return 0
	}
	return max(0, min(maxStaged-staged, j.c.room.Load()-staged))
}

// Bytes implements [journal.Journal].
func (j *Journal) Bytes() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return int64(j.end.bytes - min(j.mark.bytes, j.end.bytes))
}

// Close waits until the staged records are durable, at most for the time of the lease,
// and ends the ownership, so that another server may take it at once. The callers of
// appends that are not durable by then get an error. If etcd does not confirm the end,
// the ownership may last as long as the server's lease: [Cluster.Owners] shows it, and
// [Cluster.Release] ends it.
func (j *Journal) Close() error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		<-j.settled
		return nil
	}
	j.closed = true
	if len(j.appends) > 0 {
		j.wanted++
	}
	j.tellLocked()
	dead := j.err
	j.mu.Unlock()
	j.c.wake()
	var late error
	select {
	case <-j.settled:
	case <-time.After(j.c.cfg.Lease):
		late = fmt.Errorf("journal: %s was closed before all its records were durable: etcd does not answer", j.name)
		j.fail(late)
		<-j.settled
	}
	j.c.forget(j)
	if dead != nil {
		return nil // the users of the journal know why
	}
	ctx, cancel := context.WithTimeout(j.c.ctx, j.c.patience())
	defer cancel()
	owner := j.c.key("o", j.name)
	leave := []clientv3.Op{clientv3.OpDelete(owner)}
	if late == nil && j.known.Load() {
		leave = append(leave, clientv3.OpPut(j.c.key("e", j.name), strconv.FormatUint(j.Next(), 10)))
	}
	_, err := j.c.nearest().Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(owner), "=", j.created)).
		Then(leave...).Commit()
	if err != nil && late == nil {
		j.c.log.Warn("etcd did not confirm the end of an ownership", "journal", j.name, "error", err)
	}
	j.mu.Lock()
	if j.err == nil {
		j.err = errors.New("journal: it is closed")
		close(j.over)
	}
	j.mu.Unlock()
	return late
}

func (c *Cluster) forget(j *Journal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.journals = slices.DeleteFunc(c.journals, func(x *Journal) bool { return x == j })
}
