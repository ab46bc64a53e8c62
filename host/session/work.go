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

	w         *Worker
	t         *task
	r         *runner
	start     time.Time     // of the handler
	waited    time.Duration // from the arrival of the task to start
	nap       *nap          // nil: the handler has not slept
	preparing bool          // the handler has not started, see Prepare
}

// Prepare says that the handler does not start yet: its module has to be loaded. Start must
// be called when it does. What is prepared counts as waiting, and ends as what never
// started if Start is not called.
func (a *Attempt) Prepare() {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	a.preparing = true
}

// Start says that the handler starts now. It returns a result instead when that is too late
// for the task.
func (a *Attempt) Start() *apiv1.TaskResult {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	now := time.Now()
	if r := a.t.tooLate(a.w.age(now)); r != nil {
		return r
	}
	a.start, a.waited, a.preparing = now, a.w.age(now)-a.t.arrived, false
	a.w.watch.startLocked()
	return nil
}

// tooLate returns the result of a task whose handler is too late; nil: it may.
func (t *task) tooLate(age time.Duration) *apiv1.TaskResult {
	if t.msg == nil || t.msg.StartWithinMs <= 0 || age-t.arrived <= time.Duration(t.msg.StartWithinMs)*time.Millisecond {
		return nil
	}
	return &apiv1.TaskResult{Outcome: apiv1.Outcome_OUTCOME_STOPPED, Error: "its deadline passed before its handler could start on the host", Code: "start_deadline"}
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
	took := min(whole-a.slept(), time.Second) // one long task says little of the others
	if a.w.mean == 0 {
		a.w.mean = took
	}
	a.w.mean += (took - a.w.mean) / 16
	if !a.preparing {
		r.StartedMs = a.start.UnixMilli()
	}
	r.WaitedUs, r.SleptUs = a.waited.Microseconds(), a.slept().Microseconds()
	a.w.settleLocked(a.t, r, a.start.Add(whole)) // about now: to ask takes as long as the rest of this
}

// addRunnerLocked begins one more goroutine that executes tasks; w.mu must be held.
func (w *Worker) addRunnerLocked() {
	w.runners++
	w.executing.Go(func() { w.work(w.handlers) })
}

// work runs tasks until the worker is drained, or has more runners than it needs.
func (w *Worker) work(ctx context.Context) {
	var batch []*task
	r := &runner{}
	for {
		if batch = w.next(r, batch[:0]); len(batch) == 0 {
			return
		}
		for i := 0; i < len(batch); {
			n := 1
			for i+n < len(batch) && batch[i+n].joins {
				n++
			}
			if n == 1 {
				w.execute(ctx, r, batch[i])
			} else {
				w.executeBatch(ctx, r, batch[i:i+n])
			}
			i += n
		}
	}
}

// next waits for a slot and for tasks, marks these running, and says which go in one
// call. It returns none when the runner is to end.
func (w *Worker) next(r *runner, batch []*task) []*task {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slots.vacate(r)
	for {
		if w.slots.used < w.slots.all {
			if batch = w.takeLocked(batch); len(batch) > 0 {
				break
			}
		}
		if w.closed && w.queue.len() == 0 || w.runners > w.slots.all+w.slots.asleep {
			w.runners--
			return nil
		}
		w.ready.Wait()
	}
	w.slots.occupy(r, batch[0])
	for i, t := range batch {
		t.state = running
		t.joins = i > 0 && w.cfg.RunBatch != nil && w.cfg.Together(batch[i-1].msg, t.msg)
	}
	w.watch.startLocked()
	return batch
}

// takeLocked takes tasks for one slot that is free, and gives tasks that have slept the
// slots before that; w.mu must be held.
func (w *Worker) takeLocked(batch []*task) []*task {
	n := 1
	if w.mean > 0 && w.mean < quick {
		// Leave a share to the runners that are idle.
		n = min(quickTake, max(w.queue.len()/w.slots.all, 1))
	}
	var age time.Duration
	for w.slots.used < w.slots.all && w.queue.len() > 0 {
		if age == 0 && w.queue.timed() {
			age = w.age(time.Now())
		}
		batch = w.queue.take(batch, n, age, &w.slots)
		if len(batch) != 1 || batch[0].sleep != waking {
			break
		}
		w.resumeLocked(batch[0])
		batch = batch[:0]
	}
	return batch
}

// take marks the start of a task's handler. It returns nil when the task was
// stopped or recalled while it stood in a runner's batch, or comes too late.
func (w *Worker) take(r *runner, t *task, cancel context.CancelCauseFunc) *Attempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.state != running {
		return nil
	}
	now := time.Now()
	age := w.age(now)
	if r := t.tooLate(age); r != nil {
		w.settleLocked(t, r, now)
		return nil
	}
	t.cancel = cancel
	t.attempt = Attempt{Task: t.msg, w: w, t: t, r: r, start: now, waited: age - t.arrived}
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
func (w *Worker) execute(ctx context.Context, r *runner, t *task) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if a := w.take(r, t, cancel); a != nil {
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
func (w *Worker) executeBatch(ctx context.Context, r *runner, tasks []*task) {
	var batch []*Batched
	for _, t := range tasks {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		if a := w.take(r, t, cancel); a != nil {
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
