package fault

import (
	"net"
	"sync"
	"testing"
)

// link is the way between two parts of a cluster: it forwards connections from its
// address to another address. It can be cut.
type link struct {
	ln  net.Listener
	to  string
	tap func() *tap // observes a connection; nil: no observer
	// from names the part that dialled a connection; nil: only the bytes show it.
	from func(net.Conn) string

	mu    sync.Mutex
	moved *sync.Cond
	cut   map[string]cut // by the part that dials; "": all parts
	conns map[*connection]bool
}

// cut is how a link is cut.
type cut int

const (
	whole  cut = iota
	silent     // nothing comes through and no error is reported, as when packets are dropped
	loud       // connections break and new ones are refused
)

// connection is an incoming connection and the outgoing one that it is forwarded to.
type connection struct {
	in, out net.Conn // out is nil until it is made
	who     string   // the part that dialled; "": not known yet
}

func newLink(t testing.TB, to string, tap func() *tap) *link {
	t.Helper()
	return newLinkFrom(t, to, tap, nil)
}

// newLinkFrom is newLink with a function that names the part that dialled a connection.
func newLinkFrom(t testing.TB, to string, tap func() *tap, from func(net.Conn) string) *link {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{ln: ln, to: to, tap: tap, from: from, cut: map[string]cut{}, conns: map[*connection]bool{}}
	l.moved = sync.NewCond(&l.mu)
	go func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			go l.serve(in)
		}
	}()
	t.Cleanup(func() {
		ln.Close() //nolint:errcheck // nobody listens any more
		l.sever(loud, "")
	})
	return l
}

func (l *link) address() string { return l.ln.Addr().String() }

// sever cuts the link for one part that dials it, or for all parts with "".
func (l *link) sever(how cut, who string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut[who] = how
	if how == loud {
		for c := range l.conns {
			if who == "" || c.who == who {
				c.close()
			}
		}
	}
	l.moved.Broadcast()
}

// heal takes a cut back. Bytes that were held back then come through if both ends are
// still connected.
func (l *link) heal(who string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.cut, who)
	l.moved.Broadcast()
}

// close ends both sides. The caller holds the link's mu.
func (c *connection) close() {
	c.in.Close() //nolint:errcheck // it is cut
	if c.out != nil {
		c.out.Close() //nolint:errcheck // it is cut
	}
}

// pass waits while the link is silent for a connection. It returns false when the
// connection must break.
func (l *link) pass(c *connection) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		how := max(l.cut[""], l.cut[c.who])
		if how == loud {
			c.close()
		}
		if how != silent {
			return how == whole && l.conns[c]
		}
		l.moved.Wait()
	}
}

func (l *link) serve(in net.Conn) {
	c := &connection{in: in}
	if l.from != nil {
		c.who = l.from(in)
	}
	l.mu.Lock()
	l.conns[c] = true
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.conns, c)
		c.close()
		l.moved.Broadcast()
	}()
	if !l.pass(c) {
		return
	}
	out, err := net.Dial("tcp", l.to)
	if err != nil {
		return
	}
	l.mu.Lock()
	c.out = out
	l.mu.Unlock()
	var ear *tap
	if l.tap != nil {
		ear = l.tap()
	}
	back := make(chan struct{})
	go func() {
		defer close(back)
		defer in.Close() //nolint:errcheck // the other end has gone
		buf := make([]byte, 64<<10)
		for {
			n, err := out.Read(buf)
			if n > 0 {
				if !l.pass(c) {
					return
				}
				if ear != nil {
					ear.hearDown(buf[:n])
				}
				if _, err := in.Write(buf[:n]); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := in.Read(buf)
		if n > 0 {
			if ear != nil {
				if who := ear.hearUp(buf[:n]); who != "" {
					l.mu.Lock()
					c.who = who
					l.mu.Unlock()
				}
			}
			if !l.pass(c) {
				break
			}
			if _, err := out.Write(buf[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	out.Close() //nolint:errcheck // the other end has gone
	<-back
}
