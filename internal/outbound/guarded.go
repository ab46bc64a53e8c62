package outbound

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

// Guard lets a server send requests that no grant covers, such as messages of alerts. It
// reaches public addresses, and those of the networks that the operator has named.
type Guard struct {
	Allow []netip.Prefix
	// Only is the name of the flag that fills Allow, for a process that reaches no other
	// addresses than those in Allow, and never those at which clouds serve credentials.
	// "": Allow adds to the public addresses.
	Only    string
	Timeout time.Duration // until the response's headers arrive; default 15 s
}

// Check returns an error for an address that may not be reached.
func (g Guard) Check(a netip.Addr) error {
	a = a.WithZone("").Unmap()
	if v4, ok := embedded(a); ok {
		a = v4
	}
	if g.Only != "" {
		if private.reaches(a) && g.allows(a) {
			return nil
		}
		return fmt.Errorf("%s is not in a network that the operator allows with %s", a, g.Only)
	}
	if public.reaches(a) || private.reaches(a) && g.allows(a) || unlimited.reaches(a) && g.allows(a) {
		return nil
	}
	return NotAllowedError{a}
}

// NotAllowedError is the error of an address that the operator has not allowed.
type NotAllowedError struct{ Addr netip.Addr }

func (e NotAllowedError) Error() string {
	return fmt.Sprintf("%s is not a public address: the operator of the server allows networks with --egress-allow", e.Addr)
}

// NotAllowed says that another attempt is useless until the operator allows the address.
func (NotAllowedError) NotAllowed() bool { return true }

func (g Guard) allows(a netip.Addr) bool {
	return slices.ContainsFunc(g.Allow, func(p netip.Prefix) bool { return p.Contains(a) })
}

// dialer checks the address that is really dialled, because a name can resolve to anything.
func (g Guard) dialer() *net.Dialer {
	return &net.Dialer{
		Timeout:   g.timeout(),
		KeepAlive: 30 * time.Second,
		Control: func(_, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("dial %s: %w", address, err)
			}
			return g.Check(to.Addr())
		},
	}
}

func (g Guard) timeout() time.Duration {
	if g.Timeout == 0 {
		return 15 * time.Second
	}
	return g.Timeout
}

// Dial connects to an address that may be reached.
func (g Guard) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return g.dialer().DialContext(ctx, network, address)
}

// Client returns a client for requests to addresses that may be reached. It ignores the proxies
// of the environment, because a proxy would dial without these checks. The caller closes its
// idle connections.
func (g Guard) Client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext:            g.dialer().DialContext,
		TLSHandshakeTimeout:    g.timeout(),
		ResponseHeaderTimeout:  g.timeout(),
		MaxResponseHeaderBytes: 64 << 10,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           64,
		MaxConnsPerHost:        16,
		IdleConnTimeout:        90 * time.Second,
	}}
}
