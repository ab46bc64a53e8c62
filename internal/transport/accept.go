package transport

import (
	"container/list"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	minAcceptPause = 5 * time.Millisecond
	maxAcceptPause = time.Second
	// sayAgain is the time between two log messages about a condition that lasts.
	sayAgain = 10 * time.Second
	// loopbackReserve is how many connections from this machine are accepted when
	// the port is full, so that /livez always answers.
	loopbackReserve = 8
	// firstRequest is how long a connection has to show a credential before it may be
	// closed to make room for another connection of its address: all hosts of a machine
	// may reconnect at once.
	firstRequest = time.Second
)

// connections is the listener of one port. It accepts and counts connections. When there
// are too many, it closes the oldest one that has shown no credential. A client with a
// credential shows it in its first request, so its connection is never closed for another
// one.
type connections struct {
	net.Listener
	limits atomic.Pointer[Limits] // in effect; a new connection sees those that were set last
	log    *slog.Logger
	once   sync.Once
	done   chan struct{} // closed with the listener

	mu      sync.Mutex
	open    int
	total   uint64                    // accepted since the start
	unknown list.List                 // *connection without a credential, oldest first
	from    map[netip.Addr]*list.List // the same connections, by address
	calls   map[netip.Addr]int        // open calls without a credential, by address
	full    time.Time                 // when the log last reported that the port is full
}

func newConnections(ln net.Listener, limits Limits, log *slog.Logger) *connections {
	c := &connections{Listener: ln, log: log, done: make(chan struct{}), from: map[netip.Addr]*list.List{}, calls: map[netip.Addr]int{}}
	c.limits.Store(&limits)
	return c
}

// Accept returns the next connection. After a temporary error it closes the oldest
// connection without a credential, pauses and tries again. Any other error is final.
func (c *connections) Accept() (net.Conn, error) {
	var pause time.Duration
	var said time.Time
	for {
		conn, err := c.Listener.Accept()
		if err == nil {
			if pause > 0 {
				c.log.Info("connections are accepted again")
				pause = 0
			}
			if a := c.admit(conn); a != nil {
				return a, nil
			}
			continue
		}
		if !passing(err) {
			return nil, fmt.Errorf("accept a connection: %w", err)
		}
		if time.Since(said) >= sayAgain {
			c.log.Warn("no connection can be accepted now, the server tries again", "error", err)
			said = time.Now()
		}
		c.makeRoom()
		pause = min(max(2*pause, minAcceptPause), maxAcceptPause)
		select {
		case <-time.After(pause):
		case <-c.done:
			return nil, net.ErrClosed
		}
	}
}

// Close implements [net.Listener].
func (c *connections) Close() error {
	c.once.Do(func() { close(c.done) })
	return c.Listener.Close()
}

// passing reports whether an error of accept concerns one connection or a temporary state
// of the system, as accept(2) lists them, and not the listener.
func passing(err error) bool {
	var n syscall.Errno
	if !errors.As(err, &n) {
		return false
	}
	switch n {
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, // no room now
		syscall.ECONNABORTED, syscall.ECONNRESET, syscall.EPROTO, syscall.EPERM, syscall.ENOPROTOOPT, syscall.ETIMEDOUT, // this connection
		syscall.ENETDOWN, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.EHOSTUNREACH,
		syscall.EAGAIN, syscall.EINTR:
		return true
	}
	return false
}

// accepts returns the number of connections accepted so far.
func (c *connections) accepts() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total
}

// admit adds a connection to the counts. If there is no room for it, admit closes it and
// returns nil.
func (c *connections) admit(conn net.Conn) *connection {
	a := &connection{Conn: conn, of: c, address: addressOf(conn.RemoteAddr()), since: time.Now()}
	limits := c.limits.Load()
	c.mu.Lock()
	c.total++
	room := true
	var leaving []*connection
	if limits.proxied(a.address) { // the clients of a proxy are counted by their own addresses
		a.shown.Store(true)
	} else {
		leaving = c.tooMany(groupOf(a.address), limits.Unknown)
	}
	if c.open >= limits.Connections {
		if time.Since(c.full) >= sayAgain {
			c.full = time.Now()
			c.log.Warn("the port has as many connections as it may: the oldest without a credential are closed for new ones (--max-connections)", "connections", c.open)
		}
		if last := c.take(c.unknown.Front()); last != nil {
			leaving = append(leaving, last)
		} else if !a.address.IsLoopback() || c.open >= limits.Connections+loopbackReserve {
			room = false
		}
	}
	if room {
		c.open++
		if !a.shown.Load() {
			c.add(a)
		}
	}
	c.mu.Unlock()
	for _, l := range leaving {
		l.Conn.Close() //nolint:errcheck // it makes room
	}
	if !room {
		conn.Close() //nolint:errcheck // the client sees the end of the connection
		return nil
	}
	return a
}

// add appends a connection to those without a credential. The caller holds mu.
func (c *connections) add(a *connection) {
	group := groupOf(a.address)
	mine := c.from[group]
	if mine == nil {
		mine = list.New()
		c.from[group] = mine
	}
	a.spot, a.mine = c.unknown.PushBack(a), mine.PushBack(a)
}

// tooMany removes the oldest connections of an address from the counts until there is
// room for one more below limit. The caller holds mu, and closes the returned connections.
func (c *connections) tooMany(group netip.Addr, limit int) (leaving []*connection) {
	mine := c.from[group]
	if mine == nil {
		return nil
	}
	for mine.Len() >= limit {
		oldest := mine.Front().Value.(*connection)
		if time.Since(oldest.since) < firstRequest {
			break
		}
		leaving = append(leaving, c.take(oldest.spot))
	}
	return leaving
}

// take removes a connection from the counts. The caller holds mu, and closes the
// connection.
func (c *connections) take(e *list.Element) *connection {
	if e == nil {
		return nil
	}
	a := e.Value.(*connection)
	c.identify(a)
	a.gone = true
	c.open--
	return a
}

// identify removes a connection from those without a credential. The caller holds mu.
func (c *connections) identify(a *connection) {
	if a.spot == nil {
		return
	}
	group := groupOf(a.address)
	c.unknown.Remove(a.spot)
	c.from[group].Remove(a.mine)
	if c.from[group].Len() == 0 {
		delete(c.from, group)
	}
	a.spot, a.mine = nil, nil
}

// enter counts a call without a credential, unless its address already has limit such
// calls open. The caller calls leave when the call ends.
func (c *connections) enter(address netip.Addr, limit int) (leave func(), ok bool) {
	group := groupOf(address)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[group] >= limit {
		return nil, false
	}
	c.calls[group]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.calls[group]--; c.calls[group] == 0 {
			delete(c.calls, group)
		}
	}, true
}

// makeRoom closes the oldest connection that has shown no credential.
func (c *connections) makeRoom() {
	c.mu.Lock()
	last := c.take(c.unknown.Front())
	c.mu.Unlock()
	if last != nil {
		last.Conn.Close() //nolint:errcheck // it makes room
	}
}

// connection is a connection that a port has accepted.
type connection struct {
	net.Conn
	of      *connections
	address netip.Addr  // of the remote end
	shown   atomic.Bool // a valid credential was shown, or the remote end is a trusted proxy
	since   time.Time

	// of.mu guards the fields below.
	spot *list.Element // in of.unknown
	mine *list.Element // in the list of its address
	gone bool          // no longer counted
}

// identified records that a valid credential came on the connection.
func (a *connection) identified() {
	if a.shown.Load() {
		return
	}
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	a.shown.Store(true)
	a.of.identify(a)
}

// Close implements [net.Conn].
func (a *connection) Close() error {
	a.of.mu.Lock()
	a.of.identify(a)
	if !a.gone {
		a.gone = true
		a.of.open--
	}
	a.of.mu.Unlock()
	return a.Conn.Close()
}

// addressOf returns the IP address of an endpoint; the zero Addr if it is not TCP.
func addressOf(a net.Addr) netip.Addr {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return t.AddrPort().Addr().Unmap().WithZone("")
}

// groupOf returns the address that an address counts as. With IPv6 that is its /64
// prefix: one customer has 2^64 addresses.
func groupOf(a netip.Addr) netip.Addr {
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return a
}
