package xxljob

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/wheelworkhq/wheelwork/host/session"
	"github.com/wheelworkhq/wheelwork/sdk/worker"
)

const (
	pollEvery  = 2 * time.Second
	checkEvery = 10 * time.Second
	// lostAfter is how long an executor may say that it has no run of a job before its result
	// counts as lost. It sends a result again when the bridge was away.
	lostAfter = time.Minute
	// lateness is what an executor may take, beyond the timeout, to end a run by itself.
	lateness = 10 * time.Second
	// maxPages bounds the requests for the rest of a log.
	maxPages = 64
)

// execute executes an attempt of a run.
func (b *Bridge) execute(ctx context.Context, group string, t *worker.Task) ([]byte, error) {
	defer b.occupy(group)()
	in, err := parseInput(t.Input)
	if err != nil {
		return nil, worker.WithCode(worker.Permanent(err), "bad_input")
	}
	id, err := b.ids.of(t.App, t.Job)
	if err != nil {
		return nil, err
	}
	a, err := b.take(ctx, &attempt{App: t.App, Job: t.Job, Run: t.Run, Part: t.Part, JobID: id})
	if err != nil {
		return nil, err
	}
	keep := false
	defer func() {
		if err := b.attempts.release(a, keep); err != nil {
			b.log.Error("the file of an attempt", "run", t.Run, "error", err)
		}
	}()
	if len(a.Calls) == 0 {
		if err := b.start(ctx, group, t, in, a); err != nil {
			return nil, err
		}
	} else {
		t.Logf("the bridge was restarted: it waits for the executors that have this run")
	}
	var late <-chan time.Time
	if in.Timeout > 0 {
		timer := time.NewTimer(time.Duration(in.Timeout)*time.Second + lateness)
		defer timer.Stop()
		late = timer.C
	}
	poll, check := time.NewTicker(pollEvery), time.NewTicker(checkEvery)
	defer poll.Stop()
	defer check.Stop()
	for {
		if b.isDone(a) {
			return b.outcome(ctx, t, a)
		}
		select {
		case <-a.changed:
		case <-poll.C:
			b.logs(ctx, t, a, false)
		case <-check.C:
			if err := b.health(ctx, group, a); err != nil {
				return nil, err
			}
		case <-late:
			b.kill(t, a)
			return nil, worker.WithCode(fmt.Errorf("the executor did not end the run within its executorTimeout of %d s and %v more, and was told to kill it", in.Timeout, lateness), "executor_timeout")
		case <-ctx.Done():
			cause := context.Cause(ctx)
			if keep = errors.Is(cause, session.ErrDrained); keep {
				return nil, errors.New("the bridge ends: a later attempt waits for the executor, which continues")
			}
			b.kill(t, a)
			return nil, fmt.Errorf("the executor was told to kill the run: %w", cause)
		}
	}
}

// take waits until no other task has the attempt.
func (b *Bridge) take(ctx context.Context, fresh *attempt) (*attempt, error) {
	for {
		a, wait := b.attempts.take(fresh)
		if a != nil {
			return a, nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// start chooses executors and sends them the run. It fails if no executor has it.
func (b *Bridge) start(ctx context.Context, group string, t *worker.Task, in Input, a *attempt) error {
	addresses := b.registry.executors(group)
	if len(addresses) > 0 {
		addresses = b.router.choose(ctx, in.Route, a.JobID, addresses, b.caller.beat, func(ctx context.Context, address string) bool {
			return b.caller.idle(ctx, address, a.JobID)
		})
	}
	if len(addresses) == 0 {
		return worker.WithCode(fmt.Errorf("no executor of the group %s is registered and fits the route strategy %s", group, in.Route), "no_executor")
	}
	if err := b.attempts.begin(a, addresses); err != nil {
		return fmt.Errorf("store the attempt: %w", err)
	}
	return each(a.Calls, func(c *call) error {
		got, err := b.caller.call(ctx, c.Address, "/run", runRequest{
			JobID: a.JobID, Handler: in.Handler, Params: in.Params, Block: in.Block, Timeout: in.Timeout, GlueType: in.GlueType,
			LogID: c.LogID, LogDateTime: c.Began, BroadcastIndex: c.Index, BroadcastTotal: len(a.Calls),
		})
		switch {
		case errors.Is(err, errNotSent):
			_, err = b.attempts.settle(c.LogID, codeFail, fmt.Sprintf("the executor %s cannot be reached: %v", c.Address, err))
		case err != nil:
			// The executor may have the run: its callback or its answer to idleBeat tells.
			t.Log().Warn(fmt.Sprintf("the executor %s did not answer: %v", c.Address, err))
			err = nil
		case got.Code != codeSuccess:
			_, err = b.attempts.settle(c.LogID, codeFail, fmt.Sprintf("the executor %s refuses the run: %s", c.Address, or(got.text(), "without a reason")))
		default:
			t.Logf("the executor %s has the run as logId %d of jobId %d", c.Address, c.LogID, a.JobID)
		}
		if err != nil {
			return fmt.Errorf("store the attempt: %w", err)
		}
		return nil
	})
}

// each calls do for calls, several at a time.
func each(calls []*call, do func(*call) error) error {
	if len(calls) == 1 {
		return do(calls[0])
	}
	var all sync.WaitGroup
	errs := make([]error, len(calls))
	room := make(chan struct{}, 32)
	for i, c := range calls {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			errs[i] = do(c)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func (b *Bridge) isDone(a *attempt) (done bool) {
	b.attempts.read(func() { done = a.done() })
	return done
}

// open returns the calls without results.
func (b *Bridge) open(a *attempt) (list []*call) {
	b.attempts.read(func() {
		for _, c := range a.Calls {
			if !c.Done {
				list = append(list, c)
			}
		}
	})
	return list
}

// logs reads new lines of the logs; with all, to their ends.
func (b *Bridge) logs(ctx context.Context, t *worker.Task, a *attempt, all bool) {
	_ = each(a.Calls, func(c *call) error { // a call returns no error
		prefix := ""
		if len(a.Calls) > 1 {
			prefix = fmt.Sprintf("[%d] ", c.Index)
		}
		for n := 0; n < maxPages && b.page(ctx, t, c, prefix) && all; n++ {
		}
		return nil
	})
}

// page reads new lines of a log. It reports whether there may be more.
func (b *Bridge) page(ctx context.Context, t *worker.Task, c *call, prefix string) bool {
	if c.quiet {
		return false
	}
	page, err := b.caller.log(ctx, c.Address, c)
	if err != nil {
		if ctx.Err() == nil && !c.noLog {
			c.noLog = true
			t.Log().Warn(fmt.Sprintf("%sthe executor %s does not show its log: %v", prefix, c.Address, err))
		}
		return false
	}
	if page.To < c.Line || page.Content == "" {
		return false
	}
	b.attempts.read(func() { c.Line = page.To + 1 })
	c.quiet = page.End
	for line := range strings.Lines(page.Content) {
		t.Logf("%s%s", prefix, strings.TrimRight(line, "\r\n"))
	}
	return true
}

// health gives calls a result whose executors have gone or have forgotten them.
func (b *Bridge) health(ctx context.Context, group string, a *attempt) error {
	return each(b.open(a), func(c *call) error {
		got, err := b.caller.call(ctx, c.Address, "/idleBeat", jobRequest{a.JobID})
		msg := ""
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && b.registry.lost(group, c.Address):
			msg = fmt.Sprintf("the executor %s is lost: it does not answer and has not registered for %v", c.Address, expiry)
		case err != nil || got.Code != codeSuccess:
			c.idleSince = time.Time{}
		case c.idleSince.IsZero():
			c.idleSince = time.Now()
		case time.Since(c.idleSince) >= lostAfter:
			msg = fmt.Sprintf("the result is lost: for %v the executor %s has had no run of the job, and has sent no callback", lostAfter, c.Address)
		}
		if msg == "" {
			return nil
		}
		if _, err := b.attempts.settle(c.LogID, codeFail, msg); err != nil {
			return fmt.Errorf("store the result: %w", err)
		}
		return nil
	})
}

// kill tells the executors to end the run. The context of the attempt has ended.
func (b *Bridge) kill(t *worker.Task, a *attempt) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	_ = each(b.open(a), func(c *call) error { // an error is logged
		if err := b.caller.kill(ctx, c.Address, a.JobID); err != nil {
			b.log.Warn("an executor does not kill a run", "executor", c.Address, "run", t.Run, "error", err)
		}
		return nil
	})
	b.logs(ctx, t, a, true)
}

// shard is a line of the output of a broadcast.
type shard struct {
	Index    int    `json:"index"`
	Executor string `json:"executor"`
	Code     int    `json:"code"`
	Msg      string `json:"msg,omitempty"`
}

// outcome turns the results of all calls into that of the attempt.
func (b *Bridge) outcome(ctx context.Context, t *worker.Task, a *attempt) ([]byte, error) {
	b.logs(ctx, t, a, true)
	var shards []shard
	b.attempts.read(func() {
		for _, c := range a.Calls {
			shards = append(shards, shard{c.Index, c.Address, c.Code, c.Msg})
		}
	})
	var failed []shard
	for _, s := range shards {
		if s.Code != codeSuccess {
			failed = append(failed, s)
			if len(shards) > 1 {
				t.Log().Log(ctx, slog.LevelError, fmt.Sprintf("[%d] %s: code %d: %s", s.Index, s.Executor, s.Code, s.Msg))
			}
		}
	}
	switch {
	case len(failed) > 0:
		code, msg := "executor_failed", or(failed[0].Msg, "the executor reports a failure without a message")
		if failed[0].Code == codeTimeout {
			code = "executor_timeout"
		}
		if len(shards) > 1 {
			msg = fmt.Sprintf("%d of %d executors failed; the first is %s: %s", len(failed), len(shards), failed[0].Executor, msg)
		}
		return nil, worker.WithCode(errors.New(msg), code)
	case len(shards) == 1:
		return []byte(shards[0].Msg), nil
	}
	return json.Marshal(shards)
}
