package sched

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
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
func (s *Server) triggerAndWait(ctx context.Context, t *trigger, wait time.Duration) (*apiv1.Run, error) {
	ended := make(chan *apiv1.Run, 1)
	live := false // set on the loop, before it answers
	id, err := ask(ctx, s.loop, func(l *loop) (job.RunID, error) {
		id, _, err := l.triggerJob(t)
		if live = err == nil && l.liveRun(t.app, id) != nil; live {
			l.awaited[id] = append(l.awaited[id], ended)
		}
		return id, err
	})
	if err != nil {
		return nil, err
	}
	told := !live
	defer func() {
		if !told {
			s.loop.do(func(l *loop) { l.giveUp(id, ended) })
		}
	}()
	over, look := time.NewTimer(wait), time.NewTicker(lookAgain)
	defer over.Stop()
	defer look.Stop()
	inTime := true
	for atOnce := !live; ; atOnce = false { // a run that is not live here is read at once
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
			case <-s.loop.done:
				return nil, errEnded
			}
		}
		run, err := s.run(ctx, t.app, id)
		if err != nil || !inTime || job.State(run.State).Terminal() {
			return run, err
		}
	}
}

// tellEnd sends a run that has ended to its waiters. They are woken at the end of the turn,
// after the tasks of the turn were sent: see [loop.answerDurable].
func (l *loop) tellEnd(r *job.Run) {
	waiting, ok := l.awaited[r.ID]
	if !ok {
		return
	}
	delete(l.awaited, r.ID)
	for _, ended := range waiting {
		run := l.message(r) // each waiter owns its message
		l.owed = append(l.owed, func(error) { ended <- run })
	}
}

// giveUp removes a waiter whose call has ended.
func (l *loop) giveUp(id job.RunID, ended chan *apiv1.Run) {
	left := slices.DeleteFunc(l.awaited[id], func(c chan *apiv1.Run) bool { return c == ended })
	if len(left) == 0 {
		delete(l.awaited, id)
		return
	}
	l.awaited[id] = left
}
