package session

import (
	"context"
	"strings"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

const (
	// While handlers take less than quick on average, a goroutine takes up to quickTake
	// tasks at once: waking a goroutine for each task costs more than the handler.
	quick     = 100 * time.Microsecond
	quickTake = 16
)

// Attempt is a task whose handler is being executed.
type Attempt struct {
	Task *apiv1.Task // read only, and only until Run or RunBatch returns

	w         *Worker
	t         *task
	r         *runner
	start     time.Time     // of the handler
	waited    time.Duration // from the arrival of the task to start
	nap       *nap          // nil: the handler has not slept
	preparing bool          // the handler has not started, see Prepare
}

// Prepare reports that the handler cannot start yet, because its module must be loaded
// first. Start must be called when it can. Until then the attempt counts as waiting;
// without a call of Start it ends as an attempt that never started.
func (a *Attempt) Prepare() {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	a.preparing = true
}

// Start reports that the handler starts now. If it is too late for the task, Start
// returns the result of the task instead.
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

// tooLate returns the result of a task whose start deadline has passed at age; nil: the
// handler may start.
func (t *task) tooLate(age time.Duration) *apiv1.TaskResult {
	if t.msg == nil || t.msg.StartWithinMs <= 0 || age-t.arrived <= time.Duration(t.msg.StartWithinMs)*time.Millisecond {
		return nil
	}
	return &apiv1.TaskResult{Outcome: apiv1.Outcome_OUTCOME_STOPPED, Error: "its deadline passed before its handler could start on the host", Code: "start_deadline"}
}

// Log sends a line of the run's log: level 0 is debug, 1 info, 2 warn, 3 error. It never
// blocks: if lines arrive faster than the server accepts them, they are dropped and
// counted.
func (a *Attempt) Log(level int32, line []byte) { a.t.link.out.log(a.t.key, level, line) }

// Progress sends the progress of the run, which replaces earlier progress; total is 0
// when unknown.
func (a *Attempt) Progress(done, total int64, message string) {
	a.t.link.out.progress(a.t.key, done, total, strings.ToValidUTF8(message, "\uFFFD"))
}

// Settle gives the attempt its result before Run returns, for a handler that ignores its
// context. The slot stays occupied until Run returns, whose result is then ignored. Run
// should return when Left is closed.
func (a *Attempt) Settle(r *apiv1.TaskResult) {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	if a.t.state != running {
		return
	}
	a.w.stuck++
	a.finishLocked(r)
	if a.w.stuck == a.w.cfg.Slots {
		a.w.giveBackLocked(allStuck, "host_stuck")
	}
}

// Left returns a channel that is closed when the Worker ends and all tasks have their
// results.
func (a *Attempt) Left() <-chan struct{} { return a.w.left }

func (a *Attempt) finishLocked(r *apiv1.TaskResult) {
	whole := time.Duration(r.DurationUs) * time.Microsecond
	took := min(whole-a.slept(), time.Second) // one long task does not represent the others
	if a.w.mean == 0 {
		a.w.mean = took
	}
	a.w.mean += (took - a.w.mean) / 16
	if !a.preparing {
		r.StartedMs = a.start.UnixMilli()
	}
	r.WaitedUs, r.SleptUs = a.waited.Microseconds(), a.slept().Microseconds()
	a.w.finishLocked(a.t, r, a.start.Add(whole)) // approximate: reading the clock costs as much as all of this
}

// addRunnerLocked starts one more goroutine that executes tasks; w.mu must be held.
func (w *Worker) addRunnerLocked() {
	w.runners++
	w.executing.Go(func() { w.work(w.handlers) })
}

// work executes tasks until the Worker is drained or has more runners than it needs.
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

// next waits for a slot and for tasks, marks the tasks as running, and determines which
// of them run in one call. It returns none when the runner must end.
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

// takeLocked takes tasks for one free slot. Before that it gives free slots to the tasks
// that have slept and are next in the queue; w.mu must be held.
func (w *Worker) takeLocked(batch []*task) []*task {
	n := 1
	if w.mean > 0 && w.mean < quick {
		// Leave a share to the idle runners.
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

// take marks the start of a task's handler. It returns nil if the task was stopped or
// recalled while it waited in a runner's batch, or if its start deadline has passed.
func (w *Worker) take(r *runner, t *task, cancel context.CancelCauseFunc) *Attempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.state != running {
		return nil
	}
	now := time.Now()
	age := w.age(now)
	if r := t.tooLate(age); r != nil {
		w.finishLocked(t, r, now)
		return nil
	}
	t.cancel = cancel
	t.attempt = Attempt{Task: t.msg, w: w, t: t, r: r, start: now, waited: age - t.arrived}
	return &t.attempt
}

// end gives a task the result of its handler.
func (w *Worker) end(a *Attempt, r *apiv1.TaskResult) {
	m := a.Task
	a.Task = nil
	w.mu.Lock()
	if a.t.state != running { // it already has a result
		w.stuck--
		w.signalLocked() // there is room again
	} else {
		a.finishLocked(r)
	}
	w.mu.Unlock()
	if w.cfg.Free != nil {
		w.cfg.Free(m)
	}
}

// execute runs one task and gives it its result.
func (w *Worker) execute(ctx context.Context, r *runner, t *task) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if a := w.take(r, t, cancel); a != nil {
		w.end(a, w.cfg.Run(ctx, a))
	}
}

// Batched is one of several attempts that are executed in one call.
type Batched struct {
	Ctx     context.Context // as for Run
	Attempt *Attempt
	Result  *apiv1.TaskResult // set by RunBatch
}

// executeBatch runs tasks in one call.
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
