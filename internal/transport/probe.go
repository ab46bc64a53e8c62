package transport

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"
)

const (
	probeEvery = 10 * time.Second
	probeTime  = 5 * time.Second // limit for one answer
	// probeMisses in a row end the process: a port that has not answered for a minute
	// recovers only in a new process.
	probeMisses = 6
)

// probe sends requests to the process's own port, as a client outside does.
type probe struct {
	ask     func(context.Context) error
	accepts func() uint64 // returns the number of connections that the port has accepted
}

// run returns nil when ctx ends, and an error when the port is dead: when it neither
// answers nor accepts other connections. A port that is only busy accepts them.
func (p probe) run(ctx context.Context) error {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	misses, accepted := 0, p.accepts()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		asking, cancel := context.WithTimeout(ctx, probeTime)
		err := p.ask(asking)
		cancel()
		before := accepted
		if accepted = p.accepts(); err == nil || accepted > before+1 { // one may be the probe's own
			misses = 0
			continue
		}
		if misses++; misses == probeMisses && ctx.Err() == nil {
			return fmt.Errorf("the port answers no connection for %v, the process ends to be started again: %w", probeMisses*probeEvery, err)
		}
	}
}

// livePath is the path that the probe requests; any answer shows that the port works.
const livePath = "/livez"

// asking returns a function that sends one request over a new connection.
func asking(dial func(context.Context) (net.Conn, error), secure bool) func(context.Context) error {
	return func(ctx context.Context) error {
		raw, err := dial(ctx)
		if err != nil {
			return err
		}
		defer context.AfterFunc(ctx, func() { raw.Close() })() //nolint:errcheck // the reader says it
		conn := raw
		if secure {
			// The server is this process, and the request tells it nothing.
			conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}) //nolint:gosec // as said
		}
		defer conn.Close() //nolint:errcheck // the answer has come
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+livePath, nil)
		if err != nil {
			return err
		}
		req.Close = true
		if err := req.Write(conn); err != nil {
			return err
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
}

// toPort returns a function that dials the address of a listener; an unspecified address
// becomes loopback.
func toPort(address net.Addr) func(context.Context) (net.Conn, error) {
	network, target := address.Network(), address.String()
	if t, ok := address.(*net.TCPAddr); ok && t.IP.IsUnspecified() {
		here := *t
		here.IP = net.IPv6loopback
		if t.IP.To4() != nil {
			here.IP = net.IPv4(127, 0, 0, 1)
		}
		target = here.String()
	}
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, target)
	}
}
