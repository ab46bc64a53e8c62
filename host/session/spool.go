package session

import (
	"context"
	"fmt"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// spoolAfter is how long a result may lack an acknowledgement before it is written to the
// spool.
const spoolAfter = 200 * time.Millisecond

// keepSpool writes results that lack an acknowledgement to the spool.
func (w *Worker) keepSpool(ctx context.Context) {
	if w.cfg.Spool == nil {
		return
	}
	tick := time.NewTicker(spoolAfter)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			w.spool(now.Add(-spoolAfter))
		}
	}
}

// spoolAll writes all results to the spool when the Worker ends.
func (w *Worker) spoolAll() error {
	if w.cfg.Spool == nil {
		return nil
	}
	w.spool(time.Now().Add(time.Hour))
	w.keeping.Lock()
	defer w.keeping.Unlock()
	if err := w.cfg.Spool.Sync(); err != nil {
		return fmt.Errorf("sync the spool: %w", err)
	}
	return nil
}

// spool stores the results that were finished before a time.
func (w *Worker) spool(before time.Time) {
	w.keeping.Lock()
	defer w.keeping.Unlock()
	w.mu.Lock()
	var tasks []*task
	var results []*apiv1.TaskResult
	for t := range w.held.all() {
		if t.state == finished && !t.kept && !t.doneAt.After(before) {
			t.kept = true // an acknowledgement from now on waits for the lock keeping
			tasks = append(tasks, t)
			results = append(results, t.withUnit())
		}
	}
	w.mu.Unlock()
	if len(results) == 0 {
		return
	}
	err := w.cfg.Spool.Keep(results)
	if err == nil {
		return
	}
	// The results are still held in memory and will be sent; only a restart
	// would now lose them, and then the server runs them again.
	w.cfg.Logger.Error("results could not be written to the spool", "results", len(results), "error", err)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range tasks {
		t.kept = false
	}
}

// withUnit returns a task's result for the spool: with its partition, by which the next
// process finds the owner. It copies the result, because the sender may be encoding it.
func (t *task) withUnit() *apiv1.TaskResult {
	if t.link.unit == "" {
		return t.result
	}
	r := t.result
	return &apiv1.TaskResult{
		Run: r.Run, App: r.App, Attempt: r.Attempt, Epoch: r.Epoch, Outcome: r.Outcome, Output: r.Output, Error: r.Error, Code: r.Code,
		Trace: r.Trace, StartedMs: r.StartedMs, DurationUs: r.DurationUs, RetryAfterMs: r.RetryAfterMs,
		WaitedUs: r.WaitedUs, SleptUs: r.SleptUs, Unit: t.link.unit,
	}
}

// forget removes acknowledged results from the spool.
func (w *Worker) forget(kept []*apiv1.TaskResult) {
	if len(kept) == 0 {
		return
	}
	w.keeping.Lock()
	defer w.keeping.Unlock()
	for _, r := range kept {
		if err := w.cfg.Spool.Forget(r); err != nil {
			// At worst, the result is sent again after a restart, and the server ignores
			// it.
			w.cfg.Logger.Warn("the spool could not be marked", "error", err)
		}
	}
}
