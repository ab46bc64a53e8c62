// Package memconn provides network connections within a process, for tests in fake time
// (testing/synctest).
//
// gRPC has such connections too (test/bufconn), but each of them creates two timers that
// expire at once. When two such timers are in one bubble, the runtime of Go 1.26 runs
// their functions with one context of the race detector, possibly on two processors at
// the same time. The detector then ends the process (see TestDialsAtOnce). The
// connections of this package have no timers, and therefore no deadlines.
package memconn

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Listener accepts the connections that its own DialContext makes. It is safe for
// concurrent use.
type Listener struct {
	size  int
	conns chan net.Conn
	once  sync.Once
	done  chan struct{} // closed with the listener
}

// Listen returns a listener whose connections buffer up to size bytes in each direction.
func Listen(size int) *Listener {
	return &Listener{size: size, conns: make(chan net.Conn), done: make(chan struct{})}
}

// Accept implements [net.Listener].
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener]. Existing connections stay open.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// Addr implements [net.Listener].
func (l *Listener) Addr() net.Addr { return address{} }

// DialContext returns a connection once the listener has accepted it.
func (l *Listener) DialContext(ctx context.Context) (net.Conn, error) {
	there, back := newPipe(l.size), newPipe(l.size)
	select {
	case l.conns <- &conn{in: there, out: back}:
		return &conn{in: back, out: there}, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Dial is DialContext without a time limit.
func (l *Listener) Dial() (net.Conn, error) { return l.DialContext(context.Background()) }

// conn is one end of a connection.
type conn struct{ in, out *pipe }

func (c *conn) Read(b []byte) (int, error)  { return c.in.read(b) }
func (c *conn) Write(b []byte) (int, error) { return c.out.write(b) }

// Close implements [net.Conn]. Bytes that were written before still arrive.
func (c *conn) Close() error {
	c.in.close(true)
	c.out.close(false)
	return nil
}

func (c *conn) LocalAddr() net.Addr              { return address{} }
func (c *conn) RemoteAddr() net.Addr             { return address{} }
func (c *conn) SetDeadline(time.Time) error      { return errors.ErrUnsupported }
func (c *conn) SetReadDeadline(time.Time) error  { return errors.ErrUnsupported }
func (c *conn) SetWriteDeadline(time.Time) error { return errors.ErrUnsupported }

type address struct{}

func (address) Network() string { return "memory" }
func (address) String() string  { return "memory" }

// pipe carries bytes in one direction.
type pipe struct {
	mu      sync.Mutex
	changed sync.Cond
	buf     []byte // written and not yet read
	size    int
	ended   bool // the writer has closed its end
	gone    bool // the reader has closed its end
}

func newPipe(size int) *pipe {
	p := &pipe{size: size}
	p.changed.L = &p.mu
	return p
}

func (p *pipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.buf) == 0 || p.gone {
		switch {
		case p.gone:
			return 0, net.ErrClosed
		case p.ended:
			return 0, io.EOF
		}
		p.changed.Wait()
	}
	n := copy(b, p.buf)
	if p.buf = p.buf[n:]; len(p.buf) == 0 {
		p.buf = nil
	}
	p.changed.Broadcast()
	return n, nil
}

func (p *pipe) write(b []byte) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(b) > 0 {
		switch free := p.size - len(p.buf); {
		case p.ended:
			return n, net.ErrClosed
		case p.gone:
			return n, io.ErrClosedPipe
		case free <= 0:
			p.changed.Wait()
		default:
			k := min(free, len(b))
			p.buf = append(p.buf, b[:k]...)
			n, b = n+k, b[k:]
			p.changed.Broadcast()
		}
	}
	return n, nil
}

// close closes one side of the pipe.
func (p *pipe) close(reader bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if reader {
		p.gone, p.buf = true, nil
	} else {
		p.ended = true
	}
	p.changed.Broadcast()
}
