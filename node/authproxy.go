package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/access/audit"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/console"
	"github.com/wheelworkhq/wheelwork/internal/transport"
)

// AuthProxy says in which headers an authenticating proxy names the visitors of the console. They count on
// connections from a trusted proxy alone.
type AuthProxy struct {
	Header string // the name of a user; "": there is no such proxy
	Groups string // the groups of the user, with commas; "": none
}

// headerName is the form of the headers of a proxy. Many proxies drop a header with an underscore, or take it
// for one with a hyphen.
var headerName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]{0,63}$`)

// takenHeaders have another meaning for this server, for proxies or for browsers; takenPrefixes begin such
// names.
var (
	takenHeaders = []string{
		"Authorization", "Cache-Control", "Connection", "Cookie", "Date", "Expect", "Forwarded", "Host", "Idempotency-Key", "Keep-Alive", "Origin",
		"Pragma", "Priority", "Purpose", "Range", "Referer", "Set-Cookie", "Te", "Traceparent", "Tracestate", "Trailer", "Transfer-Encoding",
		"Upgrade", "Upgrade-Insecure-Requests", "User-Agent", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Port", "X-Forwarded-Proto", "X-Real-Ip",
	}
	takenPrefixes = []string{"Accept", "Access-Control-", "Content-", "Grpc-", "Hx-", "If-", "Proxy-", "Sec-", "Wheelwork-"}
)

// Check returns an error if the headers cannot be those of a proxy, or if no proxy is trusted.
func (a AuthProxy) Check(trusted []netip.Prefix) error {
	if a.Header == "" {
		if a.Groups != "" {
			return errors.New("--auth-proxy-groups-header needs --auth-proxy-header, the header with the name of the user")
		}
		return nil
	}
	for _, x := range []struct{ flag, name string }{{"--auth-proxy-header", a.Header}, {"--auth-proxy-groups-header", cmp.Or(a.Groups, "X-Unused")}} {
		name := http.CanonicalHeaderKey(x.name)
		switch {
		case !headerName.MatchString(x.name):
			return fmt.Errorf("%s %.80q: want the name of a header, of letters, digits and hyphens, as X-Forwarded-User", x.flag, x.name)
		case slices.Contains(takenHeaders, name) || slices.ContainsFunc(takenPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }):
			return fmt.Errorf("%s %s: this header has another meaning: let the proxy set another one, as X-Forwarded-User", x.flag, name)
		}
	}
	if strings.EqualFold(a.Header, a.Groups) {
		return errors.New("--auth-proxy-header and --auth-proxy-groups-header name the same header: give two")
	}
	if len(trusted) == 0 {
		return errors.New("--auth-proxy-header needs --trusted-proxy, the address of the proxy: the header of any other client is ignored")
	}
	for _, p := range trusted {
		if p.Bits() == 0 {
			return fmt.Errorf("--trusted-proxy %s is every address: with --auth-proxy-header any client could sign in as any user; name the addresses of the proxy", p)
		}
	}
	return nil
}

const (
	maxUserHeader   = 64       // bytes of the name of a user
	maxGroupsHeader = 16 << 10 // bytes of the header with groups
)

// authProxy takes the names of visitors from a proxy.
type authProxy struct {
	AuthProxy
	limits  func() transport.Limits // in effect
	signIn  func(context.Context, console.Proxied) (token string, err error)
	refused *audit.Refusals
}

// said is what a trusted proxy says about the visitor of a request. It is in the context of the request.
type said struct {
	by  *console.Proxied // nil: it names no visitor
	err error
}

type saidKey struct{}

// handler moves the headers of the proxy to the context of a request. They are removed from every request,
// so that nothing else reads them, and nothing reads those of a client that is no trusted proxy.
func (a *authProxy) handler(next http.Handler) http.Handler {
	if a == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var x said
		through := a.limits().FromProxy(r)
		if through {
			x.by, x.err = a.read(r.Header)
		}
		r.Header.Del(a.Header)
		r.Header.Del(a.Groups)
		if through {
			r = r.WithContext(context.WithValue(r.Context(), saidKey{}, x))
		}
		next.ServeHTTP(w, r)
	})
}

// read returns the visitor that the headers of a proxy name; nil: they name none.
func (a *authProxy) read(h http.Header) (*console.Proxied, error) {
	names := h.Values(a.Header)
	if len(names) == 0 {
		return nil, nil
	}
	name, err := only(a.Header, names, maxUserHeader)
	if err == nil && name == "" {
		err = status.Errorf(codes.InvalidArgument, "the header %s is empty: the proxy must name a user in it, or leave it out", a.Header)
	}
	if err != nil {
		return nil, err
	}
	by := &console.Proxied{Name: name}
	if a.Groups == "" {
		return by, nil
	}
	groups, err := only(a.Groups, h.Values(a.Groups), maxGroupsHeader)
	if err != nil {
		return nil, err
	}
	for group := range strings.SplitSeq(groups, ",") {
		if group = strings.TrimSpace(group); group != "" {
			by.Groups = append(by.Groups, group)
		}
	}
	return by, nil
}

// only returns the value of a header that may come once. A second one could be of the client, beside that
// of the proxy.
func only(header string, values []string, longest int) (string, error) {
	refuse := func(why string) (string, error) {
		return "", status.Errorf(codes.InvalidArgument, "the header %s %s", header, why)
	}
	switch {
	case len(values) == 0:
		return "", nil
	case len(values) > 1:
		return refuse("came several times: the proxy must replace what the client sends")
	case len(values[0]) > longest:
		return refuse(fmt.Sprintf("has %d bytes, more than %d", len(values[0]), longest))
	case !utf8.ValidString(values[0]) || strings.ContainsFunc(values[0], unicode.IsControl):
		return refuse("has control characters, or is not UTF-8")
	}
	return values[0], nil
}

// console returns what the console needs; nil: there is no proxy.
func (a *authProxy) console() *console.Proxy {
	if a == nil {
		return nil
	}
	return &console.Proxy{
		Visitor: func(r *http.Request) (*console.Proxied, bool, error) {
			x, through := r.Context().Value(saidKey{}).(said)
			return x.by, through, x.err
		},
		SignIn: a.signIn,
		Refused: func(from netip.Addr, name string, err error) {
			a.refused.Add(&apiv1.Attribution{Address: from.String()}, audit.Row{Code: "session.refused", Object: name, Outcome: audit.Denied, Message: status.Convert(err).Message()})
		},
	}
}
