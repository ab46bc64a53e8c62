package hosts

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// Outbox is the queue of messages that wait for one host's stream. The loop puts them in,
// and the stream's sender takes them out. Safe for concurrent use.
type Outbox struct {
	mu      sync.Mutex
	tasks   []*apiv1.Task
	cancels []*apiv1.TaskCancel
	recalls []*apiv1.TaskCancel
	fetch   []*apiv1.Prefetch
	unload  []string // digests. Invariant: none is in fetch
	acked   uint64   // the last batch to acknowledge; 0: none
	ackDue  bool     // acked has waited for ackDelay
	cordon  *bool    // nil: no request
	closed  bool
	Kick    chan struct{} // capacity 1

	ackTimer *time.Timer
}

// MaxTasks and maxTaskBytes bound one message to a host.
const (
	MaxTasks     = 128
	maxTaskBytes = 64 << 10
)

// ackDelay is how long an acknowledgement waits for a message that can carry it. A host
// needs it only within 200 ms, because it then spools results that are not acknowledged. An
// acknowledgement sent at once would compete for the processor with the caller that waits
// for the same run.
const ackDelay = 5 * time.Millisecond

// NewOutbox returns an empty outbox.
func NewOutbox() *Outbox {
	o := &Outbox{Kick: make(chan struct{}, 1)}
	o.ackTimer = time.AfterFunc(ackDelay, func() { o.change(func() { o.ackDue = o.acked > 0 }) })
	o.ackTimer.Stop()
	return o
}

func (o *Outbox) change(f func()) {
	o.mu.Lock()
	f()
	o.mu.Unlock()
	o.Flush()
}

// Send adds tasks. If they fill a message, it wakes the sender and returns true. Otherwise
// the caller must call flush.
func (o *Outbox) Send(tasks []*apiv1.Task) (flushed bool) {
	o.mu.Lock()
	o.tasks = append(o.tasks, tasks...)
	flushed = len(o.tasks) >= MaxTasks
	o.mu.Unlock()
	if flushed {
		o.Flush()
	}
	return flushed
}

// Flush wakes the sender.
func (o *Outbox) Flush() {
	select {
	case o.Kick <- struct{}{}:
	default:
	}
}

// Close ends the stream after the messages that wait.
func (o *Outbox) Close() { o.change(func() { o.closed = true }) }

// Ack acknowledges a batch of results and all earlier ones, with the next message or after
// ackDelay.
func (o *Outbox) Ack(batch uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.acked == 0 {
		o.ackTimer.Reset(ackDelay)
	}
	o.acked = max(o.acked, batch)
}

// Cancel asks the host to stop an attempt.
func (o *Outbox) Cancel(id job.RunID, attempt int32) {
	o.change(func() { o.cancels = append(o.cancels, &apiv1.TaskCancel{Run: id[:], Attempt: attempt}) })
}

// Cordon asks the host to store its cordon.
func (o *Outbox) Cordon(on bool) { o.change(func() { o.cordon = &on }) }

// Recall asks the host to give back a task if its handler has not started.
func (o *Outbox) Recall(id job.RunID, attempt int32) {
	o.change(func() { o.recalls = append(o.recalls, &apiv1.TaskCancel{Run: id[:], Attempt: attempt}) })
}

// sizeOf returns the approximate size of an encoded task, in bytes.
func sizeOf(t *apiv1.Task) int {
	if len(t.Args) > 0 || len(t.Env) > 0 || t.Http != nil || t.Command != "" {
		return proto.Size(t)
	}
	const others = 128 // the numbers and short texts of a task
	return others + len(t.Job) + len(t.Module) + len(t.Digest) + len(t.Input) + len(t.Grants)
}

// Take returns the next message; nil: there is none. closed reports whether the outbox was
// closed: the stream ends when there are no more messages.
func (o *Outbox) Take() (m *apiv1.WorkDown, closed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	acks := o.acked > 0 && (o.ackDue || o.closed)
	if len(o.tasks) == 0 && len(o.cancels)+len(o.recalls) == 0 && len(o.fetch) == 0 && len(o.unload) == 0 && o.cordon == nil && !acks {
		return nil, o.closed
	}
	m = &apiv1.WorkDown{Acked: o.acked, Cancels: o.cancels, Recalls: o.recalls, Prefetch: o.fetch, Unload: o.unload, Cordon: o.cordon}
	o.acked, o.ackDue, o.cancels, o.recalls, o.fetch, o.unload, o.cordon = 0, false, nil, nil, nil, nil, nil
	size, n := 0, 0
	for n < len(o.tasks) && n < MaxTasks && size < maxTaskBytes {
		size += sizeOf(o.tasks[n])
		n++
	}
	m.Tasks = o.tasks[:n:n]
	if o.tasks = o.tasks[n:]; len(o.tasks) == 0 {
		o.tasks = nil
	}
	return m, o.closed
}

// Prefetch asks the host to load a module.
func (o *Outbox) Prefetch(p *apiv1.Prefetch) {
	o.change(func() {
		o.unload = slices.DeleteFunc(o.unload, func(d string) bool { return d == p.Digest }) // the version was pushed again
		o.fetch = append(o.fetch, p)
	})
}

// Drop asks the host to drop a module.
func (o *Outbox) Drop(digest string) {
	o.change(func() {
		o.fetch = slices.DeleteFunc(o.fetch, func(p *apiv1.Prefetch) bool { return p.Digest == digest })
		o.unload = append(o.unload, digest)
	})
}
