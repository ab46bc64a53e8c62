package transport

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// Limits bound the resources that callers of a port may take. A zero field means the
// default named beside it.
type Limits struct {
	Body        int64         // bytes of an HTTP request's body, except uploads of modules; default 4 MiB
	Inflated    int64         // bytes of a decompressed gRPC message of a person or a program; default 4 MiB
	Header      int           // bytes of the headers of a request; default 64 KiB
	Streams     int           // open gRPC calls of an address that show no credential; default 256
	Connections int           // of the port; default 10 000, and never more than half the file descriptors
	Unknown     int           // connections of an address that have shown no credential; default 128
	Idle        time.Duration // how long a connection may stay without a request; default 2 min
	BodyRate    int64         // bytes a second at which a body must arrive, after 10 s; default 4 KiB

	// TrustedProxies are the addresses of proxies whose X-Forwarded-For names the client.
	TrustedProxies []netip.Prefix
}

func (l Limits) withDefaults() Limits {
	l.Body = cmp.Or(l.Body, 4<<20)
	l.Inflated = cmp.Or(l.Inflated, 4<<20)
	l.Header = cmp.Or(l.Header, 64<<10)
	l.Streams = cmp.Or(l.Streams, 256)
	l.Connections = min(cmp.Or(l.Connections, 10_000), max(openFiles()/2, 1))
	l.Unknown = cmp.Or(l.Unknown, 128)
	l.Idle = cmp.Or(l.Idle, 2*time.Minute)
	l.BodyRate = cmp.Or(l.BodyRate, 4<<10)
	return l
}

// Check refuses negative limits, which would let no caller in.
func (l Limits) Check() error {
	for _, x := range []struct {
		name  string
		value int64
	}{
		{"bytes of a body", l.Body},
		{"bytes of a message", l.Inflated},
		{"bytes of headers", int64(l.Header)},
		{"streams of a connection", int64(l.Streams)},
		{"connections", int64(l.Connections)},
		{"connections of an address", int64(l.Unknown)},
		{"idle time", int64(l.Idle)},
		{"bytes of a body a second", l.BodyRate},
	} {
		if x.value < 0 {
			return fmt.Errorf("the limit of the %s is negative: want a positive one", x.name)
		}
	}
	return nil
}

// proxied reports whether an address belongs to a trusted proxy.
func (l Limits) proxied(a netip.Addr) bool {
	for _, p := range l.TrustedProxies {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// client returns the address of the client that sends a request over a connection from an
// address. Behind a trusted proxy it is the last address in X-Forwarded-For that is not a
// trusted proxy itself: the client could have written everything before it.
func (l Limits) client(from netip.Addr, forwarded []string) netip.Addr {
	hops := strings.Split(strings.Join(forwarded, ","), ",")
	for i := len(hops) - 1; i >= 0 && l.proxied(from); i-- {
		a, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		from = a.Unmap().WithZone("")
	}
	return from
}

// ClientOf returns the address of the client that sends a request.
func (l Limits) ClientOf(r *http.Request) netip.Addr {
	from, _ := netip.ParseAddrPort(r.RemoteAddr) // the zero address if there is none
	return l.client(from.Addr().Unmap().WithZone(""), r.Header.Values("X-Forwarded-For"))
}

// FromProxy reports whether a request comes over a connection from a trusted proxy.
func (l Limits) FromProxy(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && l.proxied(from.Addr().Unmap().WithZone(""))
}

// enoughFiles is the number of open files beyond which a limit has no effect.
const enoughFiles = 1 << 20
