package operation

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

const (
	maxOfApp    = 4              // operations of an app that run at once
	maxOfServer = 16             // operations of a server that run at once
	maxEnded    = 1000           // ended operations that a registry knows
	keepEnded   = 24 * time.Hour // how long it knows them
	maxErrors   = 20             // errors that it keeps of an operation
	maxError    = 500            // bytes of an error
	maxFound    = 500            // runs that it keeps of a search
)

// The states of an operation. The texts are part of the API.
const (
	running   = "running"
	done      = "done"
	cancelled = "cancelled"
	failed    = "failed"
)

var (
	errCancelled = errors.New("the operation was cancelled")
	errClosed    = errors.New("this server stops, or the app goes to another server: start the operation again, and it goes on")
)

// Places bounds the operations that run on a server, in all its registries. The zero value is
// ready for use. Safe for concurrent use.
type Places struct{ taken atomic.Int32 }

func (p *Places) take() bool {
	if p.taken.Add(1) <= maxOfServer {
		return true
	}
	p.taken.Add(-1)
	return false
}

func (p *Places) free() { p.taken.Add(-1) }

// Work makes the changes of an operation. It ends early when ctx ends. An error means that it
// could not go on.
type Work func(ctx context.Context, p *Progress) error

// Registry knows operations in memory. It is safe for concurrent use.
type Registry struct {
	places *Places

	mu     sync.Mutex
	known  []*entry // the oldest first
	closed bool
}

// NewRegistry returns a registry without operations. Registries of a server share places.
func NewRegistry(places *Places) *Registry { return &Registry{places: places} }

// entry is an operation with what only its registry needs.
type entry struct {
	Progress
	key    string // idempotency key of the caller
	cancel context.CancelCauseFunc
}

// Start begins an operation of an app, a kind and a caller. An operation with the same key, app
// and caller is returned instead; a key of "" equals no other. work gets the id, before Start returns.
func (r *Registry) Start(of *apiv1.Operation, key string, work func(id string) Work) (*apiv1.Operation, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.forget(now)
	if r.closed {
		return nil, status.Error(codes.Unavailable, errClosed.Error())
	}
	live := 0
	for _, e := range r.known {
		was := e.Snapshot()
		if was.App != of.App {
			continue
		}
		if key != "" && e.key == key && was.Caller == of.Caller {
			return was, nil
		}
		if was.State == running {
			live++
		}
	}
	if live >= maxOfApp {
		return nil, status.Errorf(codes.ResourceExhausted, "%d operations of the app %s are running, which is the limit: wait until one has ended, or cancel one", live, of.App)
	}
	if !r.places.take() {
		return nil, status.Errorf(codes.ResourceExhausted, "%d operations are running on this server, which is the limit: wait until one has ended", maxOfServer)
	}
	e := &entry{key: key}
	e.op = proto.CloneOf(of)
	e.op.Id, e.op.State, e.op.StartedAt = "op_"+strings.ToLower(rand.Text()[:16]), running, timestamppb.New(now)
	ctx, cancel := context.WithCancelCause(context.Background())
	e.cancel = cancel
	r.known = append(r.known, e)
	do := work(e.op.Id)
	go func() {
		defer r.places.free()
		e.end(ctx, do(ctx, &e.Progress))
		cancel(nil)
	}()
	return e.Snapshot(), nil
}

// forget drops operations that ended too long ago, and the oldest ended ones beyond their bound.
// The caller holds mu.
func (r *Registry) forget(now time.Time) {
	ended := 0
	for _, e := range slices.Backward(r.known) {
		if e.endedBefore(now.Add(time.Nanosecond)) {
			ended++
		}
	}
	r.known = slices.DeleteFunc(r.known, func(e *entry) bool {
		if !e.endedBefore(now.Add(time.Nanosecond)) {
			return false
		}
		drop := ended > maxEnded || e.endedBefore(now.Add(-keepEnded))
		if drop {
			ended--
		}
		return drop
	})
}

// List returns the operations that keep accepts, the newest first.
func (r *Registry) List(keep func(*apiv1.Operation) bool) (all []*apiv1.Operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(time.Now())
	for _, e := range slices.Backward(r.known) {
		if op := e.Snapshot(); keep(op) {
			all = append(all, op)
		}
	}
	return all
}

// Get returns an operation of an app.
func (r *Registry) Get(app, id string) (*apiv1.Operation, error) {
	e, err := r.find(app, id)
	if err != nil {
		return nil, err
	}
	return e.whole(), nil
}

// Cancel stops an operation of an app for a caller. first reports whether it ran and no call had cancelled
// it before. An operation that has ended stays as it is.
func (r *Registry) Cancel(app, id, caller string) (op *apiv1.Operation, first bool, err error) {
	e, err := r.find(app, id)
	if err != nil {
		return nil, false, err
	}
	first = e.cancelledBy(caller)
	e.cancel(errCancelled)
	return e.Snapshot(), first, nil
}

func (r *Registry) find(app, id string) (*entry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(time.Now())
	for _, e := range r.known {
		if e.op.Id == id && e.op.App == app { // neither changes
			return e, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "the app %s has no operation %.40q: it ended more than 24 hours ago, or with the server that ran it", app, id)
}

// Close stops all operations and refuses further ones. It does not wait for their last changes.
func (r *Registry) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for _, e := range r.known {
		e.cancel(errClosed)
	}
}

// Progress is how far an operation has come. It is safe for concurrent use.
type Progress struct {
	mu    sync.Mutex
	op    *apiv1.Operation  // without found; its id and its app do not change
	found []*apiv1.FoundRun // they do not change
}

// whole returns the operation as it is now, with the runs that it has found.
func (p *Progress) whole() *apiv1.Operation {
	p.mu.Lock()
	defer p.mu.Unlock()
	op := proto.CloneOf(p.op)
	op.Found = slices.Clone(p.found)
	return op
}

// Snapshot returns the operation as it is now, without the runs that it has found.
func (p *Progress) Snapshot() *apiv1.Operation {
	p.mu.Lock()
	defer p.mu.Unlock()
	return proto.CloneOf(p.op)
}

// Counted sets the number of the objects.
func (p *Progress) Counted(total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.op.Total = &total
}

// Changed counts an object that the operation has changed.
func (p *Progress) Changed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.op.Done++
}

// Found adds runs that a search has found; read is how many it has read since its start.
func (p *Progress) Found(runs []object, read int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.op.Done += int64(len(runs))
	p.op.Skipped = max(0, read-p.op.Done)
	for _, o := range runs[:min(len(runs), maxFound-len(p.found))] {
		p.found = append(p.found, &apiv1.FoundRun{Id: o.run.Id, Job: o.run.Job, State: o.run.State, PlannedAt: o.run.PlannedAt, FinishedAt: o.run.FinishedAt})
	}
}

// Skipped counts an object that needed no change.
func (p *Progress) Skipped() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.op.Skipped++
}

// Refused counts an object whose change was refused.
func (p *Progress) Refused(object string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.op.Failed++
	if len(p.op.Errors) < maxErrors {
		p.op.Errors = append(p.op.Errors, object+": "+sentence(err))
	}
}

// sentence returns the text of an error, at most maxError bytes of it.
func sentence(err error) string {
	text := status.Convert(err).Message()
	if len(text) > maxError {
		text = strings.ToValidUTF8(text[:maxError], "") + "…"
	}
	return text
}

// end records the result of the work, whose context was ctx.
func (p *Progress) end(ctx context.Context, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.op.EndedAt = timestamppb.Now()
	switch {
	case err == nil:
		p.op.State = done
	case errors.Is(context.Cause(ctx), errCancelled):
		p.op.State = cancelled
	case ctx.Err() != nil:
		p.op.State, p.op.Error = failed, context.Cause(ctx).Error()
	default:
		p.op.State, p.op.Error = failed, sentence(err)
	}
	if p.op.State != cancelled {
		p.op.CancelledBy = ""
	}
}

// cancelledBy notes the first caller that cancels a running operation. It reports whether caller is the first.
func (p *Progress) cancelledBy(caller string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.op.State != running || p.op.CancelledBy != "" {
		return false
	}
	p.op.CancelledBy = caller
	return true
}

// endedBefore reports whether the operation ended before a time.
func (p *Progress) endedBefore(t time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.op.EndedAt != nil && p.op.EndedAt.AsTime().Before(t)
}
