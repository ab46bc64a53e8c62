// Package outbound sends HTTP requests on behalf of jobs. It is the only path by which a
// handler's request leaves the host. It checks the grants against the request as written,
// against every redirect, and against the address that is really dialled, because a name
// can resolve to anything.
//
// Without a grant that says private, no request reaches this machine, the networks around
// it, or the addresses where clouds serve credentials. The client ignores the proxies of
// the environment, because a proxy would dial without these checks.
package outbound

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/wheelworkhq/wheelwork/runtime"
)

// Config bounds requests. A zero field means the default named beside it.
type Config struct {
	RequestBytes  int64         // body of a request, default 4 MiB
	ResponseBytes int64         // body of a response, default 16 MiB
	HeaderBytes   int64         // headers of either, default 64 KiB
	Redirects     int           // maximum number followed, default 5; negative: none
	Timeout       time.Duration // until the response's headers arrive, default 30 s
	UserAgent     string        // default "wheelwork"
	TLS           *tls.Config   // default: the system's
}

func (c Config) withDefaults() Config {
	c.RequestBytes = cmp.Or(c.RequestBytes, 4<<20)
	c.ResponseBytes = cmp.Or(c.ResponseBytes, 16<<20)
	c.HeaderBytes = cmp.Or(c.HeaderBytes, 64<<10)
	c.Redirects = cmp.Or(c.Redirects, 5)
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	c.UserAgent = cmp.Or(c.UserAgent, "wheelwork")
	return c
}

// Client sends requests. It is safe for concurrent use.
type Client struct {
	cfg     Config
	clients [classes]*http.Client
}

// New returns a client. The caller closes it to end its idle connections.
func New(cfg Config) *Client {
	c := &Client{cfg: cfg.withDefaults()}
	for i := range c.clients {
		c.clients[i] = c.client(class(i))
	}
	return c
}

// Close ends idle connections. Open bodies stay readable.
func (c *Client) Close() error {
	for _, client := range c.clients {
		client.CloseIdleConnections()
	}
	return nil
}

func (c *Client) client(reach class) *http.Client {
	dialer := &net.Dialer{
		Timeout:   c.cfg.Timeout,
		KeepAlive: 30 * time.Second,
		Control: func(_, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("dial %s: %w", address, err)
			}
			if !reach.reaches(to.Addr()) {
				return fmt.Errorf("%w: the name resolves to %s, which is not a public address", runtime.ErrNotGranted, to.Addr())
			}
			return nil
		},
	}
	var config *tls.Config
	if c.cfg.TLS != nil {
		config = c.cfg.TLS.Clone()
	}
	return &http.Client{
		Transport: &http.Transport{
			DialContext:            dialer.DialContext,
			TLSClientConfig:        config,
			TLSHandshakeTimeout:    c.cfg.Timeout,
			ResponseHeaderTimeout:  c.cfg.Timeout,
			MaxResponseHeaderBytes: c.cfg.HeaderBytes,
			DisableCompression:     true, // the guest gets the bytes as sent, and no decompression bomb unpacks here
			ForceAttemptHTTP2:      true,
			MaxIdleConns:           64,
			MaxConnsPerHost:        64,
			IdleConnTimeout:        90 * time.Second,
		},
		// Send follows redirects itself, because each one needs a grant.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Secrets returns the value of a granted secret.
type Secrets func(ctx context.Context, name string) ([]byte, error)

// Send sends a request under the grants and returns the head of the response. The caller
// closes the body, which is bound to ctx; reading more of it than allowed gives
// runtime.ErrTooLarge. Send replaces {{secret:NAME}} in header values; secrets may be nil
// when there are none. No error contains a secret.
func (c *Client) Send(ctx context.Context, g *runtime.Grants, secrets Secrets, r runtime.Request) (*runtime.Response, error) {
	h, err := c.begin(ctx, g, secrets, r)
	if err != nil {
		return nil, err
	}
	for redirects := 0; ; redirects++ {
		res, err := c.hop(ctx, g, h)
		if err != nil {
			return nil, err
		}
		location := res.Header.Get("Location")
		if !redirect(res.StatusCode) || location == "" || redirects >= c.cfg.Redirects {
			return &runtime.Response{
				Status: res.StatusCode, Header: res.Header,
				Body: &bounded{res.Body, c.cfg.ResponseBytes},
			}, nil
		}
		_ = res.Body.Close() // the next request replaces this response
		if h, err = h.follow(res.StatusCode, location); err != nil {
			return nil, err
		}
	}
}

func redirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// hop is one request of a chain of redirects.
type hop struct {
	method string
	url    *url.URL
	header http.Header
	secret []string // names of the headers that hold a secret
	body   []byte

	secretBody bool            // the body holds a secret
	confined   bool            // its secrets may leave only to the destinations that "to" allows
	to         *runtime.Grants // see runtime.Request.SecretTo
}

// holdsSecret reports whether the request contains a secret.
func (h *hop) holdsSecret() bool { return len(h.secret) > 0 || h.secretBody }

func (c *Client) begin(ctx context.Context, g *runtime.Grants, secrets Secrets, r runtime.Request) (*hop, error) {
	u, err := url.Parse(r.URL)
	if err != nil {
		return nil, fmt.Errorf("%w: the address is malformed", runtime.ErrInvalid)
	}
	u.Fragment, u.RawFragment = "", ""
	h := &hop{
		method: cmp.Or(r.Method, http.MethodGet), url: u, header: http.Header{}, body: r.Body,
		secretBody: r.SecretBody, confined: r.SecretBody || len(r.Secret) > 0, to: r.SecretTo,
	}
	if g.Request(h.method, u) == nil { // checked before any secret is looked up for the request
		return nil, notGranted(h.method, u)
	}
	if int64(len(r.Body)) > c.cfg.RequestBytes {
		return nil, fmt.Errorf("%w: the body has %d bytes, at most %d are sent", runtime.ErrTooLarge, len(r.Body), c.cfg.RequestBytes)
	}
	h.header.Set("User-Agent", c.cfg.UserAgent)
	size := int64(0)
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		if ownHeader(name) {
			return nil, fmt.Errorf("%w: the header %.60q is set by the host", runtime.ErrInvalid, name)
		}
		key := http.CanonicalHeaderKey(name)
		h.header.Del(key)
		known := slices.ContainsFunc(r.Secret, func(s string) bool { return http.CanonicalHeaderKey(s) == key })
		for _, value := range r.Header[name] {
			filled, secret := value, known
			if !known { // a value that is already filled may hold anything
				if filled, secret, err = fill(ctx, g, secrets, value); err != nil {
					return nil, err
				}
			}
			if secret {
				h.secret = append(h.secret, key)
			}
			h.header.Add(key, filled)
			size += int64(len(name) + len(filled) + 4)
		}
	}
	if size > c.cfg.HeaderBytes {
		return nil, fmt.Errorf("%w: the headers have %d bytes, at most %d are sent", runtime.ErrTooLarge, size, c.cfg.HeaderBytes)
	}
	return h, nil
}

// ownHeader reports whether a header describes the connection, which the guest does not
// control, or names another host than the granted one.
func ownHeader(name string) bool {
	name = strings.ToLower(name)
	switch name {
	case "host", "connection", "keep-alive", "transfer-encoding", "content-length", "te", "trailer", "upgrade", "expect":
		return true
	}
	return strings.HasPrefix(name, "proxy-")
}

var placeholder = regexp.MustCompile(`\{\{secret:([^{}]*)\}\}`)

// fill replaces the secrets in a header's value.
func fill(ctx context.Context, g *runtime.Grants, secrets Secrets, value string) (filled string, secret bool, err error) {
	filled = placeholder.ReplaceAllStringFunc(value, func(match string) string {
		secret = true
		name := placeholder.FindStringSubmatch(match)[1]
		switch {
		case err != nil:
			return ""
		case !g.Secret(name) || secrets == nil:
			err = fmt.Errorf("%w: the secret %.60q", runtime.ErrNotGranted, name)
			return ""
		}
		var found []byte
		if found, err = secrets(ctx, name); err != nil {
			err = fmt.Errorf("the secret %.60q: %w", name, err)
		}
		return string(found)
	})
	return filled, secret, err
}

func notGranted(method string, u *url.URL) error {
	return fmt.Errorf("%w: %.20s %.200s", runtime.ErrNotGranted, method, u.Scheme+"://"+u.Host+u.EscapedPath())
}

// hop sends one request if it is granted.
func (c *Client) hop(ctx context.Context, g *runtime.Grants, h *hop) (*http.Response, error) {
	grant := g.Request(h.method, h.url)
	if grant == nil {
		return nil, notGranted(h.method, h.url)
	}
	reach := reachOf(grant, h.url)
	if h.holdsSecret() && h.url.Scheme != "https" && reach == public {
		return nil, fmt.Errorf("%w: secrets are sent over https only", runtime.ErrNotGranted)
	}
	if h.holdsSecret() && h.confined && h.to.Request(h.method, h.url) == nil {
		if methods := h.to.MethodsFor(h.url); len(methods) > 0 {
			return nil, fmt.Errorf("%w: the method %.20s: the grant has %s there, add methods=%s,%.20s to it", runtime.ErrNotGranted, h.method,
				strings.Join(methods, " and "), strings.Join(methods, ","), h.method)
		}
		return nil, notGranted(h.method, h.url)
	}
	req, err := http.NewRequestWithContext(ctx, h.method, h.url.String(), bytes.NewReader(h.body))
	if err != nil {
		return nil, fmt.Errorf("%w: the method or the address is malformed", runtime.ErrInvalid)
	}
	req.Header = h.header.Clone()
	res, err := c.clients[reach].Do(req)
	if err != nil {
		return nil, plain(err)
	}
	return res, nil
}

// reachOf returns the class of a grant. Only a grant that names a link-local address
// itself reaches link-local addresses: a name must not lead there.
func reachOf(g *runtime.HTTPGrant, u *url.URL) class {
	if !g.Private {
		return public
	}
	if _, err := netip.ParseAddr(u.Hostname()); err == nil {
		return unlimited
	}
	return private
}

// plain removes the address from an error, because it may have a query. It marks network
// errors as ErrUnavailable, because a later attempt may succeed.
func plain(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	var network net.Error
	var lookup *net.DNSError
	switch {
	case errors.Is(err, runtime.ErrNotGranted), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.As(err, &lookup): // omits the address of the resolver
		return fmt.Errorf("%w: look up %.200s: %s", runtime.ErrUnavailable, lookup.Name, lookup.Err)
	case errors.As(err, &network):
		return fmt.Errorf("%w: %w", runtime.ErrUnavailable, err)
	}
	return fmt.Errorf("send the request: %w", err)
}

// follow returns the next request of a redirect. It removes headers, secrets and a body
// that another host must not receive.
func (h *hop) follow(status int, location string) (*hop, error) {
	to, err := h.url.Parse(location)
	if err != nil {
		return nil, fmt.Errorf("follow a redirect: the address it leads to is malformed")
	}
	to.Fragment, to.RawFragment = "", ""
	next := &hop{method: h.method, url: to, header: h.header.Clone(), secret: h.secret, body: h.body, secretBody: h.secretBody, confined: h.confined, to: h.to}
	if status != http.StatusTemporaryRedirect && status != http.StatusPermanentRedirect && h.method != http.MethodHead {
		next.method, next.body, next.secretBody = http.MethodGet, nil, false
		next.header.Del("Content-Type")
	}
	if to.Scheme != h.url.Scheme || to.Host != h.url.Host {
		for _, name := range append([]string{"Authorization", "Cookie"}, h.secret...) {
			next.header.Del(name)
		}
		next.secret = nil
		if next.secretBody {
			return nil, fmt.Errorf("%w: a redirect to another server would take a secret there", runtime.ErrNotGranted)
		}
	}
	return next, nil
}

// bounded is a body of which the caller may read a limited number of bytes.
type bounded struct {
	body io.ReadCloser
	left int64
}

// Read distinguishes a body that is exactly as long as allowed from a longer one.
func (b *bounded) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if b.left == 0 {
		var one [1]byte
		n, err := io.ReadFull(b.body, one[:])
		if n > 0 {
			return 0, fmt.Errorf("%w: the response's body", runtime.ErrTooLarge)
		}
		return 0, err
	}
	n, err := b.body.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

func (b *bounded) Close() error { return b.body.Close() }
