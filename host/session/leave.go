package session

import (
	"context"
	"errors"
	"sync"
)

// Attendance is an optional interface of the closer of a connection to a partition's
// owner. It reports whether the partition needs the host. A host that is not needed opens
// no stream on the connection, and leaves an open stream in order: it announces that it
// leaves, gets no more tasks, delivers the results of its tasks, and then the server ends
// the stream.
type Attendance interface {
	// Needed reports whether the host should have a session, and returns a channel that
	// is closed when Needed must be called again.
	Needed() (needed bool, changed <-chan struct{})
}

// Notice is an [Attendance] that is set by Tell. The zero value means that the host is
// needed.
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

// Tell sets whether the host is needed.
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
	// errLeft ends the session of a host that is no longer needed.
	errLeft = errors.New("the host has no tasks of this partition now")
	// errBack ends a session that was leaving when the host was needed again.
	errBack = errors.New("the host is needed again")
)

// awaitNeed waits until the host is needed, or holds a task or a result of the link.
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

// holds reports whether the host holds a task that came over the link.
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

// attend announces on the stream that the host leaves once it is no longer needed. If it
// is needed again before it has left, attend ends the session, so that another one
// begins: the server does not withdraw an announced leave.
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

// left reports whether the session that has ended was leaving and ended in order, with no
// task held.
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
	for app, home := range w.homes { // other servers also know the app
		if home == l {
			delete(w.homes, app)
		}
	}
	l.out.signal(l.out.kick)
}
