package session

import (
	"context"
	"errors"
	"sync"
)

// Attendance is what the closer of a connection to a unit may be as well: it
// knows whether the worker has anything to do for the unit. One that has not opens
// no stream on the connection, and ends the one that it has in order: it says
// that it leaves, gets nothing more, brings what it was sent, and is let go by the
// server.
type Attendance interface {
	// Needed reports whether the worker is to have a session, and returns a channel
	// that is closed when that is to be asked again.
	Needed() (needed bool, changed <-chan struct{})
}

// Notice is an [Attendance] that is told. Its zero value says that the worker is needed.
type Notice struct {
	mu      sync.Mutex
	away    bool
	changed chan struct{}
}

// Needed implements [Attendance].
func (n *Notice) Needed() (needed bool, changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.changed == nil {
		n.changed = make(chan struct{})
	}
	return !n.away, n.changed
}

// Tell says whether the worker is needed.
func (n *Notice) Tell(needed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.away != needed {
		return
	}
	n.away = !needed
	if n.changed != nil {
		close(n.changed)
		n.changed = nil
	}
}

var (
	// errLeft ends a session that is not needed any more.
	errLeft = errors.New("the worker has nothing to do for the unit now")
	// errBack ends one that was about to be left.
	errBack = errors.New("the worker is needed again")
)

// awaitNeed waits until the worker is needed, or has something to bring.
func (l *link) awaitNeed(ctx context.Context, a Attendance) error {
	for {
		needed, changed := a.Needed()
		if needed || l.holds() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// holds reports whether the worker holds a task that came over the link.
func (l *link) holds() bool {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	for t := range l.w.held.all() {
		if t.link == l {
			return true
		}
	}
	return false
}

// attend says on the session's stream that the worker leaves once it is not needed
// any more. When it is needed again before it has left, it ends the session, so
// that another one begins: a server believes one who leaves.
func (l *link) attend(ctx context.Context, a Attendance, end context.CancelCauseFunc) {
	for left := false; ; {
		needed, changed := a.Needed()
		switch {
		case needed && left:
			end(errBack)
			return
		case !needed && !left:
			left = true
			l.sayLeaving()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// left reports whether the session that has ended was one to leave, and in order:
// nothing is held of it.
func (l *link) left() bool {
	if l.holds() {
		return false
	}
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return l.leaving
}

func (l *link) sayLeaving() {
	w := l.w
	w.mu.Lock()
	defer w.mu.Unlock()
	l.leaving = true
	for app, home := range w.homes { // others know the app as well
		if home == l {
			delete(w.homes, app)
		}
	}
	l.out.signal(l.out.kick)
}
