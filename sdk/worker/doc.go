// Package worker makes a Go program a host: functions of the program are handlers of
// jobs, beside modules and under the same policies.
//
//	err := worker.Run(ctx, worker.Options{Address: "http://127.0.0.1:7700", Token: token},
//		worker.Handle("settle", func(ctx context.Context, t *worker.Task) ([]byte, error) {
//			t.Logf("settling %s", t.Input)
//			return settle(ctx, t.Input)
//		}),
//	)
//
// A job names such a function as native:NAME and no module:
//
//	{"name": "settle-orders", "handler": {"name": "native:settle"}, "schedule": {"every": "1m"}}
//
// Its runs go to the workers that have the function, chosen by the job's routing. The
// server handles schedules, retries, overlap, deadlines, fan-out and workflows as for
// modules.
//
// # Contexts and errors of a function
//
// A function's context ends when the run is cancelled, when its timeout has passed and
// when the program drains. A function that continues regardless occupies its execution slot
// of Concurrency. After Patience the worker gives up the run without it. Go cannot end a
// function from outside, so a handler that must not outlive its limits belongs in a
// module.
//
// An error fails the attempt, and the job's retry policy decides whether another attempt
// follows. [Permanent] marks an error that another attempt would meet again, and
// [RetryAfter] sets the delay. A panic fails the attempt with its stack, and the program
// continues.
//
// # Repeated executions
//
// A run may be executed more than once. When the program is killed, or cut off for longer
// than the lease of hosts, the server sends its runs to other hosts. [Task.Run] is the
// same in all attempts of a run: use it as the idempotency key of side effects. The
// worker sends a result until a server has acknowledged it; with Dir set, also after a
// restart of the program.
package worker
