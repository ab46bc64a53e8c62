package core

import (
	"time"
)

func newMailbox() mailbox {
	return mailbox{kick: make(chan struct{}, 1), Done: make(chan struct{})}
}

// Do adds a call, and returns false if the loop has ended.
func (m *mailbox) Do(f func(*Loop)) bool { return m.push(&m.waiting.calls, f) }

// DoForHost is do for a message of a host.
func (m *mailbox) DoForHost(f func(*Loop)) bool { return m.push(&m.waiting.fromHosts, f) }

func (m *mailbox) push(queue *[]func(*Loop), f func(*Loop)) bool {
	m.mu.Lock()
	dead := m.dead
	if !dead {
		*queue = append(*queue, f)
	}
	m.mu.Unlock()
	if !dead {
		m.wake()
	}
	return !dead
}

// post is do for goroutines of the server. The loop runs f even while it shuts down.
func (m *mailbox) post(f func(*Loop)) {
	m.mu.Lock()
	m.waiting.posted = append(m.waiting.posted, f)
	m.mu.Unlock()
	m.wake()
}

// written adds a batch that the journal has written, or has failed to write.
func (m *mailbox) written(s *stage, err error) {
	m.mu.Lock()
	s.err = err
	m.flushed = append(m.flushed, s)
	m.mu.Unlock()
	m.wake()
}

// wake makes the loop run a turn soon.
func (m *mailbox) wake() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// take removes and returns the inputs.
func (m *mailbox) take() inputs {
	m.mu.Lock()
	defer m.mu.Unlock()
	in := m.waiting
	m.waiting = inputs{}
	return in
}

// putBack returns inputs for which a turn had no time. They come before those that have
// arrived since.
func (m *mailbox) putBack(in inputs) {
	if len(in.fromHosts)+len(in.calls) == 0 {
		return
	}
	m.mu.Lock()
	if !m.dead {
		m.waiting.fromHosts = append(in.fromHosts, m.waiting.fromHosts...)
		m.waiting.calls = append(in.calls, m.waiting.calls...)
	}
	m.mu.Unlock()
	m.wake()
}

// takeWritten removes and returns the batches that the journal has written.
func (m *mailbox) takeWritten() []*stage {
	m.mu.Lock()
	defer m.mu.Unlock()
	flushed := m.flushed
	m.flushed = nil
	return flushed
}

// shut drops the calls and the messages of hosts that wait, and refuses further ones. The
// callers get ErrEnded.
func (m *mailbox) shut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead, m.waiting.calls, m.waiting.fromHosts = true, nil, nil
}

// turnTime bounds the time that one turn spends on calls, so that a burst of commands
// does not delay hosts. hostTurnTime bounds the time that a turn spends on messages of
// hosts, so that many results of one app do not delay due runs of other apps.
const (
	turnTime     = 2 * time.Millisecond
	hostTurnTime = 4 * turnTime
)
