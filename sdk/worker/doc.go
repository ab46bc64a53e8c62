// Package worker makes a Go program a host: functions of the program are
// handlers of jobs, beside modules and under the same policies.
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
// Its runs go to the workers that have the function, chosen by the job's
// routing. Schedules, retries, overlap, deadlines, fan-out and workflows are the
// server's and work as for modules.
//
// # What a function is told and what it says
//
// A function's context ends when the run is cancelled, when its timeout has
// passed and when the program drains. A function that goes on regardless keeps
// its place among Concurrency; after Patience its run is given up without it. Go
// cannot end a function from outside, and a handler that must not outlive its
// limits belongs in a module.
//
// An error makes the attempt fail, and the job's retry policy decides what
// follows. [Permanent] says that another attempt cannot help, [RetryAfter] asks
// for a time. A panic fails the attempt with its stack, and the program goes on.
//
// # Once or more
//
// A run may be executed more than once: when the program is killed, or when it
// is cut off for longer than the lease of hosts, the server sends its runs
// elsewhere. [Task.Run] is the same in all attempts of a run: use it as the key
// of what must not happen twice. A result is sent until a server has
// acknowledged it; with Dir set also after the program was started again.
package worker
