package api

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched/core"
)

const (
	// maxWait bounds how long one call waits for the end of a run.
	maxWait = 10 * time.Minute
	// lookAgain is the interval at which a waiting call reads its run. The run may have
	// moved to another partition, whose loop does not notify the waiters of this one.
	lookAgain = 2 * time.Second
)

// WaitTime parses how long a trigger waits for the end of its run: a Go duration above 0
// and at most 10 minutes. It fails with the code InvalidArgument.
func WaitTime(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 || d > maxWait {
		return 0, status.Errorf(codes.InvalidArgument, `wait: %q is no time between 0 and %v: write "30s", and call again with the same idempotency_key to wait on`, s, maxWait)
	}
	return d, nil
}

// triggerAndWait starts a run, or finds the run of the idempotency key. It returns the run
// when its end is durable, or after wait in its current state.
func (s *Services) triggerAndWait(ctx context.Context, t *core.Trigger, wait time.Duration) (*apiv1.Run, error) {
	var ended chan *apiv1.Run // set on the loop, before it answers; nil: the run is not live here
	id, err := core.Ask(ctx, s.loop, func(l *core.Loop) (job.RunID, error) {
		id, _, err := l.Commands.TriggerJob(t)
		if err == nil {
			ended = l.Waiters.Await(t.App, id)
		}
		return id, err
	})
	if err != nil {
		return nil, err
	}
	told := ended == nil
	defer func() {
		if !told {
			s.loop.Mail.Do(func(l *core.Loop) { l.Waiters.GiveUp(id, ended) })
		}
	}()
	over, look := time.NewTimer(wait), time.NewTicker(lookAgain)
	defer over.Stop()
	defer look.Stop()
	inTime := true
	for atOnce := ended == nil; ; atOnce = false { // a run that is not live here is read at once
		if !atOnce {
			select {
			case run := <-ended:
				told = true
				return run, nil
			case <-look.C:
			case <-over.C:
				inTime = false
			case <-ctx.Done():
				return nil, status.FromContextError(ctx.Err()).Err()
			case <-s.loop.Mail.Done:
				return nil, core.ErrEnded
			}
		}
		run, err := s.run(ctx, t.App, id)
		if err != nil || !inTime || job.State(run.State).Terminal() {
			return run, err
		}
	}
}
