package node

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
	// sayAgain is how often the log tells of what goes on.
	sayAgain = 10 * time.Second
	// loopbackReserve is how many connections from this machine are accepted when
	// the port is full, so that /livez always answers.
	loopbackReserve = 8
	// firstRequest is how long a connection has to show a credential before it may
	// have to make room for others of its address: all hosts of a machine may come
	// back at once.
	firstRequest = time.Second
)

// connections are those of one port. It accepts them, counts them, and closes
// the oldest that has shown no credential when there are too many: a caller with
// a credential shows it with its first request and is never closed for others.
type connections struct {
	net.Listener
	limits Limits
	log    *slog.Logger
	once   sync.Once
	done   chan struct{} // closed with the listener

	mu      sync.Mutex
	open    int
	total   uint64                    // since the start
	unknown list.List                 // *connection that have shown no credential, the oldest first
	from    map[netip.Addr]*list.List // the same, by address
	calls   map[netip.Addr]int        // open without a credential, by address
	full    time.Time                 // when the log told last that the port is full
}

func newConnections(ln net.Listener, limits Limits, log *slog.Logger) *connections {
	return &connections{Listener: ln, limits: limits, log: log, done: make(chan struct{}), from: map[netip.Addr]*list.List{}, calls: map[netip.Addr]int{}}
}

// Accept returns the next connection. An error that passes is waited out; any
// other one is final.
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

// passing reports whether an error of accept says something of one connection or
// of the moment, as accept(2) lists them, and not of the listener.
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

// accepts is how many connections were accepted so far.
func (c *connections) accepts() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total
}

// admit counts a connection in. It returns nil after it closed one for which
// there is no room.
func (c *connections) admit(conn net.Conn) *connection {
	a := &connection{Conn: conn, of: c, address: addressOf(conn.RemoteAddr()), since: time.Now()}
	c.mu.Lock()
	c.total++
	var leaving []*connection
	if c.limits.proxied(a.address) { // its clients are counted by their own addresses
		a.shown.Store(true)
	} else {
		leaving = c.tooMany(groupOf(a.address))
	}
	if c.open >= c.limits.Connections {
		if time.Since(c.full) >= sayAgain {
			c.full = time.Now()
			c.log.Warn("the port has as many connections as it may: the oldest without a credential are closed for new ones (--max-connections)", "connections", c.open)
		}
		if last := c.take(c.unknown.Front()); last != nil {
			leaving = append(leaving, last)
		} else if !a.address.IsLoopback() || c.open >= c.limits.Connections+loopbackReserve {
			c.mu.Unlock()
			conn.Close() //nolint:errcheck // there is no room for it
			return nil
		}
	}
	c.open++
	if !a.shown.Load() {
		c.add(a)
	}
	c.mu.Unlock()
	for _, l := range leaving {
		l.Conn.Close() //nolint:errcheck // it makes room
	}
	return a
}

// add puts a connection to those without a credential. The caller holds mu.
func (c *connections) add(a *connection) {
	group := groupOf(a.address)
	mine := c.from[group]
	if mine == nil {
		mine = list.New()
		c.from[group] = mine
	}
	a.spot, a.mine = c.unknown.PushBack(a), mine.PushBack(a)
}

// tooMany counts those connections of an address out for which there is no room
// beside one more. The caller holds mu, and closes them.
func (c *connections) tooMany(group netip.Addr) (leaving []*connection) {
	mine := c.from[group]
	if mine == nil {
		return nil
	}
	for mine.Len() >= c.limits.Unknown {
		oldest := mine.Front().Value.(*connection)
		if time.Since(oldest.since) < firstRequest {
			break
		}
		leaving = append(leaving, c.take(oldest.spot))
	}
	return leaving
}

// take counts a connection out that is to be closed. The caller holds mu.
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

// identify takes a connection from those without a credential. The caller holds mu.
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

// enter counts a call without a credential in, unless its address has limit of
// them open. The caller ends it with leave.
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

// connection is one that a port has accepted.
type connection struct {
	net.Conn
	of      *connections
	address netip.Addr  // of the other end
	shown   atomic.Bool // a credential, at any time; or it is a trusted proxy's
	since   time.Time

	// of.mu guards these.
	spot *list.Element // in of.unknown
	mine *list.Element // in the list of its address
	gone bool          // no longer counted
}

// identified says that a valid credential came on the connection.
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

// addressOf is the address of an end; not valid for one without an address.
func addressOf(a net.Addr) netip.Addr {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return t.AddrPort().Addr().Unmap().WithZone("")
}

// groupOf is what counts as one address: with IPv6 a customer has 2^64 of them.
func groupOf(a netip.Addr) netip.Addr {
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return a
}
