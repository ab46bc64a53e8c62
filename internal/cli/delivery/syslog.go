package delivery

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/wheelworkhq/wheelwork/sdk"
)

// The priority of a message: facility 13, log audit, with the severity informational or warning.
const (
	auditInfo    = 13*8 + 6
	auditWarning = 13*8 + 4
)

// syslog sends events as messages of RFC 5424 over TCP or TLS, with their length before each (RFC 6587). The
// protocol has no acknowledgement: a sent message counts as delivered.
type syslog struct {
	name, address, host string
	secure              *tls.Config   // nil: TCP
	conn                net.Conn      // nil: none is open
	ended               chan struct{} // closed when the receiver ends conn
}

// NewSyslog returns the receiver at an address, as tls://HOST:PORT or tcp://HOST:PORT.
func NewSyslog(address string) (Receiver, error) {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || u.Port() == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Scheme != "tcp" && u.Scheme != "tls" {
		return nil, fmt.Errorf("--syslog %q: want tls://HOST:PORT, or tcp://HOST:PORT on this machine", address)
	}
	s := &syslog{name: address, address: u.Host}
	if u.Scheme == "tls" {
		s.secure = &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12}
	} else if !isLoopback(u.Hostname()) {
		return nil, fmt.Errorf("--syslog %s: beyond this machine audit events go over TLS: give tls://HOST:PORT, or a relay on this machine", address)
	}
	name, _ := os.Hostname()
	s.host = cmp.Or(name, "-")
	return s, nil
}

// Deliver implements [Receiver].
func (s *syslog) Deliver(ctx context.Context, events []*sdk.AuditEvent) (int, error) {
	var all []byte
	for _, e := range events {
		message, err := s.message(e)
		if err != nil {
			return 0, err
		}
		all = append(append(strconv.AppendInt(all, int64(len(message)), 10), ' '), message...)
	}
	err := s.connect(ctx)
	if err == nil {
		if err = s.conn.SetWriteDeadline(time.Now().Add(requestTimeout)); err == nil {
			_, err = s.conn.Write(all)
		}
	}
	if err != nil {
		s.Close() //nolint:errcheck // the next attempt connects again
		return 0, fmt.Errorf("the receiver %s: %w", s.name, err)
	}
	return len(events), nil
}

func (s *syslog) message(e *sdk.AuditEvent) ([]byte, error) {
	text, err := encode(e)
	if err != nil {
		return nil, err
	}
	priority := auditInfo
	if e.Outcome != "ok" {
		priority = auditWarning
	}
	code := e.Code[:min(len(e.Code), 32)] // the longest MSGID
	head := fmt.Sprintf("<%d>1 %s %s wheelwork - %s - ", priority, e.Time.AsTime().UTC().Format("2006-01-02T15:04:05.000Z"), s.host, cmp.Or(code, "-"))
	return append([]byte(head), text...), nil
}

// connect opens a connection if none is open, or the receiver has ended it.
func (s *syslog) connect(ctx context.Context) (err error) {
	if s.conn != nil {
		select {
		case <-s.ended:
			s.Close() //nolint:errcheck // it has ended
		default:
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var conn net.Conn
	if s.secure != nil {
		conn, err = (&tls.Dialer{Config: s.secure}).DialContext(ctx, "tcp", s.address)
	} else {
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", s.address)
	}
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { // a receiver sends nothing, so a read ends with the connection
		defer close(ended)
		io.Copy(io.Discard, conn) //nolint:errcheck // any end is the end
	}()
	s.conn, s.ended = conn, ended
	return nil
}

// Close implements [Receiver].
func (s *syslog) Close() error {
	if s.conn == nil {
		return nil
	}
	err := s.conn.Close()
	<-s.ended
	s.conn = nil
	return err
}
