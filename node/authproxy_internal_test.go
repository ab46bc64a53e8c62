package node

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"testing"

	"github.com/wheelworkhq/wheelwork/internal/transport"
)

// TestAuthProxyHeadersAreRemoved sends the headers from trusted and other addresses: nothing after the handler can
// read them, and the visitor is known only through a proxy, while it is trusted.
func TestAuthProxyHeadersAreRemoved(t *testing.T) {
	limits := transport.Limits{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/32"), netip.MustParsePrefix("fd00::/64")}}
	a := &authProxy{AuthProxy: AuthProxy{Header: "x-forwarded-user", Groups: "X-Forwarded-Groups"}, limits: func() transport.Limits { return limits }}
	ask := func(from string) (user string, through bool) {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		r.RemoteAddr = from
		r.Header.Set("X-Forwarded-User", "jane")
		r.Header.Set("X-Forwarded-Groups", "b, ,a")
		a.handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if len(r.Header) != 0 {
				t.Errorf("from %s: the headers %v are left", from, r.Header)
			}
			by, proxied, err := a.console().Visitor(r)
			if err != nil {
				t.Error(err)
			}
			if through = proxied; by != nil {
				user = by.Name
				if !slices.Equal(by.Groups, []string{"b", "a"}) {
					t.Errorf("the groups %q", by.Groups)
				}
			}
		})).ServeHTTP(httptest.NewRecorder(), r)
		return user, through
	}
	for from, trusted := range map[string]bool{
		"10.0.0.2:1": true, "[::ffff:10.0.0.2]:1": true, "[fd00::5]:1": true,
		"10.0.0.3:1": false, "[fd00:0:0:1::5]:1": false, "127.0.0.1:1": false, "": false, "@": false, "10.0.0.2": false,
	} {
		if user, through := ask(from); through != trusted || (user == "jane") != trusted {
			t.Errorf("from %q: %q, through a proxy %v", from, user, through)
		}
	}
	limits.TrustedProxies = nil // a reload
	if user, through := ask("10.0.0.2:1"); through || user != "" {
		t.Errorf("from a proxy that is no longer trusted: %q, %v", user, through)
	}
}
