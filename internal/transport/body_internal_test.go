package transport

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wheelworkhq/wheelwork/access"
)

// pipes is a listener whose connections have deadlines in fake time.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func newPipes() *pipes { return &pipes{make(chan net.Conn), make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { close(p.done); return nil }

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	p.conns <- there
	return here, nil
}

// TestSlowBodies sends bodies at a byte a second, to a handler that reads them and to one
// that does not, and one that is slow but fast enough.
func TestSlowBodies(t *testing.T) {
	for _, tt := range []struct {
		name   string
		reads  bool
		every  time.Duration
		chunk  int
		pause  time.Duration // of the handler
		served bool
	}{
		{"too slow", true, time.Second, 1, 0, false},
		{"silent", true, time.Hour, 1, 0, false},
		{"too slow and not read", false, time.Second, 1, 0, false},
		{"quick enough", true, time.Second, 2000, 0, true},
		{"quick, and the handler is slow", true, time.Millisecond, 5000, time.Hour, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const size = 100_000
				d, limits := &Server{guard: access.New()}, Limits{BodyRate: 1000}.withDefaults()
				d.limits.Store(&limits)
				read := make(chan error, 1)
				server := &http.Server{Handler: d.bounded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if !tt.reads {
						return
					}
					head := make([]byte, 1)
					_, err := io.ReadFull(r.Body, head)
					time.Sleep(tt.pause)
					if err == nil {
						_, err = io.Copy(io.Discard, r.Body)
					}
					read <- err
				}))}
				ln := newPipes()
				go server.Serve(ln) //nolint:errcheck // ends with the test
				conn, err := ln.dial(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				written := make(chan struct{})
				go func() {
					defer close(written)
					fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", size)
					for sent := 0; sent < size; sent += tt.chunk {
						time.Sleep(tt.every)
						if _, err := io.WriteString(conn, strings.Repeat("a", tt.chunk)); err != nil {
							return // the server has closed the connection
						}
					}
				}()
				in := bufio.NewReader(conn)
				if tt.reads {
					if err := <-read; (err == nil) != tt.served {
						t.Errorf("the handler read until: %v", err)
					} else if err != nil && !strings.Contains(err.Error(), "slower than 1000 bytes a second") {
						t.Errorf("the handler is told: %v", err)
					}
				}
				if !tt.served {
					_, _ = io.Copy(io.Discard, in) // until the connection ends
					if after := time.Since(begin); after > time.Minute {
						t.Errorf("a slow body holds a connection for %v", after)
					}
				}
				conn.Close()   //nolint:errcheck // a test's
				server.Close() //nolint:errcheck // a test's
				<-written
			})
		})
	}
}
