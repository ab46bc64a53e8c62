package session

import (
	"context"
	"strings"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

const (
	// A goroutine takes several tasks at once while handlers are this quick:
	// waking it for each costs more than the handler.
	quick     = 100 * time.Microsecond
	quickTake = 16
)

// Attempt is a task that is executed.
type Attempt struct {
	Task *apiv1.Task // read only, and until Run or RunBatch returns

	w     *Worker
	t     *task
	start time.Time
}

// Log sends a line of the run's log: level 0 is debug, 1 info, 2 warn, 3 error.
// It never blocks: lines that come faster than the server takes them are
// dropped and counted.
func (a *Attempt) Log(level int32, line []byte) { a.t.link.out.log(a.t.key, level, line) }

// Progress sends the latest state of the run; total is 0 when unknown.
func (a *Attempt) Progress(done, total int64, message string) {
	a.t.link.out.progress(a.t.key, done, total, strings.ToValidUTF8(message, "\uFFFD"))
}

// Settle gives the attempt its result before Run returns, for a handler that
// does not heed its context. Its slot stays taken until Run returns; what Run
// returns then does not count. Run should return when Left is closed.
func (a *Attempt) Settle(r *apiv1.TaskResult) {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	if a.t.state != running {
		return
	}
	a.w.stuck++
	a.settleLocked(r)
	if a.w.stuck == a.w.cfg.Slots {
		a.w.giveBackLocked(allStuck, "host_stuck")
	}
}

// Left is closed when the worker ends and waits for nothing but its goroutines.
func (a *Attempt) Left() <-chan struct{} { return a.w.left }

func (a *Attempt) settleLocked(r *apiv1.TaskResult) {
	whole := time.Duration(r.DurationUs) * time.Microsecond
	took := min(whole, time.Second) // one long task says little of the others
	if a.w.mean == 0 {
		a.w.mean = took
	}
	a.w.mean += (took - a.w.mean) / 16
	r.StartedMs = a.start.UnixMilli()
	a.w.settleLocked(a.t, r, a.start.Add(whole)) // about now: to ask takes as long as the rest of this
}

// work runs tasks until the worker is drained.
func (w *Worker) work(ctx context.Context) {
	var batch []*task
	for {
		if batch = w.next(batch[:0]); len(batch) == 0 {
			return
		}
		for i := 0; i < len(batch); {
			n := 1
			for i+n < len(batch) && batch[i+n].joins {
				n++
			}
			if n == 1 {
				w.execute(ctx, batch[i])
			} else {
				w.executeBatch(ctx, batch[i:i+n])
			}
			i += n
		}
	}
}

// next waits for tasks, marks them running, and says which go in one call.
func (w *Worker) next(batch []*task) []*task {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.queue.len() == 0 && !w.closed {
		w.ready.Wait()
	}
	n := 1
	if w.mean > 0 && w.mean < quick {
		// Leave a share to the workers that are idle.
		n = min(quickTake, max(w.queue.len()/w.cfg.Slots, 1))
	}
	batch = w.queue.take(batch, n)
	for i, t := range batch {
		t.state = running
		t.joins = i > 0 && w.cfg.RunBatch != nil && w.cfg.Together(batch[i-1].msg, t.msg)
	}
	return batch
}

// take marks the start of a task's handler. It returns nil when the task was
// stopped while it stood in a goroutine's batch.
func (w *Worker) take(t *task, cancel context.CancelCauseFunc) *Attempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.state != running {
		return nil
	}
	t.cancel = cancel
	t.attempt = Attempt{Task: t.msg, w: w, t: t, start: time.Now()}
	return &t.attempt
}

// end gives a task the result that its handler came to.
func (w *Worker) end(a *Attempt, r *apiv1.TaskResult) {
	m := a.Task
	a.Task = nil
	w.mu.Lock()
	if a.t.state != running { // it was settled before
		w.stuck--
		w.signalLocked() // there is room again
	} else {
		a.settleLocked(r)
	}
	w.mu.Unlock()
	if w.cfg.Free != nil {
		w.cfg.Free(m)
	}
}

// execute runs one task to its result.
func (w *Worker) execute(ctx context.Context, t *task) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if a := w.take(t, cancel); a != nil {
		w.end(a, w.cfg.Run(ctx, a))
	}
}

// Batched is one attempt of several that are executed in one call.
type Batched struct {
	Ctx     context.Context // as of Run
	Attempt *Attempt
	Result  *apiv1.TaskResult // set by RunBatch
}

// executeBatch runs tasks that go in one call.
func (w *Worker) executeBatch(ctx context.Context, tasks []*task) {
	var batch []*Batched
	for _, t := range tasks {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		if a := w.take(t, cancel); a != nil {
			batch = append(batch, &Batched{Ctx: ctx, Attempt: a})
		}
	}
	if len(batch) == 0 {
		return
	}
	w.cfg.RunBatch(batch)
	for _, b := range batch {
		w.end(b.Attempt, b.Result)
	}
}
