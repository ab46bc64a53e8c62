package console

import (
	"context"
	"sync"
	"time"
)

const (
	// sliceTime bounds the work of one request for a sweep, apart from the call that is under way
	// when it has passed.
	sliceTime = 50 * time.Millisecond
	// sweepLife is the age at which the result of a sweep is made again.
	sweepLife = time.Minute
	// maxSweeps bounds the sweeps that one session holds.
	maxSweeps = 3
)

// source is work that may be too much for one request.
type source interface {
	// step makes one call and takes in its answer until the deadline. A step after the deadline goes
	// on with that answer. done: all is taken in.
	step(ctx context.Context, deadline time.Time) (done bool, err error)
	// probe makes a call that fails when the caller may not see the result.
	probe(ctx context.Context) error
}

// sweep is the work of several requests of one session. Each request does a slice of it.
type sweep struct {
	mu    sync.Mutex
	key   string
	ready source // complete; nil: none is yet
	next  source // incomplete; nil: none is under way
	began time.Time
}

// sweeps are the sweeps of a session, which belong to it because its token may see less than another
// one.
type sweeps struct {
	mu  sync.Mutex
	all []*sweep // the one that was used last is the last; at most maxSweeps
}

// of returns the sweep with a key.
func (s *sweeps) of(key string) *sweep {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := &sweep{key: key}
	for i, x := range s.all {
		if x.key == key {
			found = x
			s.all = append(s.all[:i:i], s.all[i+1:]...)
			break
		}
	}
	if len(s.all) == maxSweeps {
		s.all = s.all[1:]
	}
	s.all = append(s.all, found)
	return found
}

// advance does a slice of the work. Without work it asks whether the caller may still see the result.
func (w *sweep) advance(ctx context.Context) error {
	if w.next == nil {
		return w.ready.probe(ctx)
	}
	for deadline := time.Now().Add(sliceTime); ; {
		done, err := w.next.step(ctx, deadline)
		switch {
		case err != nil && ctx.Err() == nil:
			w.next = nil // a page token may be void: the next request begins again
			return err
		case err != nil:
			return err // the browser has disconnected
		case done:
			w.ready, w.next = w.next, nil
			return nil
		case time.Now().After(deadline):
			return nil
		}
	}
}

// advanceSweep does a slice of a sweep, and calls show with the newest complete state, or with the
// incomplete one when there is no other. begin makes the source of a sweep that begins. show must
// not keep its argument, because the next request changes it.
func advanceSweep[S source](v *visit, key string, begin func() S, show func(s S, done bool)) error {
	w := v.session.sweeps.of(key)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.next == nil && (w.ready == nil || time.Since(w.began) > sweepLife) {
		w.next, w.began = begin(), time.Now()
	}
	if err := w.advance(v.ctx); err != nil {
		return err
	}
	if w.ready != nil {
		show(w.ready.(S), true)
		return nil
	}
	show(w.next.(S), false)
	return nil
}
