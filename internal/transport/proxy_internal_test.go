package transport

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/wheelworkhq/wheelwork/access"
)

// TestRequestsBehindAProxy holds requests of one client open behind a trusted proxy: only
// that client is limited, and not one with a credential, nor /livez from this machine.
func TestRequestsBehindAProxy(t *testing.T) {
	limits := Limits{Unknown: 2, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}.withDefaults()
	g := access.New()
	g.Allow("a valid token", access.Worker)
	d := &Server{guard: g, Signed: func(r *http.Request) bool { return r.Header.Get("Cookie") != "" }}
	d.limits.Store(&limits)
	release, inside := make(chan struct{}), make(chan struct{}, 10)
	h := d.bounded(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			inside <- struct{}{}
			<-release
		}
	}))
	conns := newConnections(nil, limits, slog.New(slog.DiscardHandler))
	ask := func(path, client string, headers ...string) int {
		conn := conns.admit(&far{address: "127.0.0.1"})
		defer conn.Close() //nolint:errcheck // a test's
		r := httptest.NewRequestWithContext(context.WithValue(t.Context(), connectionKey{}, conn), "GET", path, nil)
		if client != "" {
			r.Header.Set("X-Forwarded-For", client)
		}
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	ended := make(chan int, 4)
	for range 2 {
		go func() { ended <- ask("/hold", "198.51.100.1") }()
		go func() { ended <- ask("/hold", "") }()
	}
	for range 4 {
		<-inside
	}
	for _, tt := range []struct {
		name string
		code int
		got  int
	}{
		{"the same client", 429, ask("/", "198.51.100.1")},
		{"the same client, that claims another one before it", 429, ask("/", "203.0.113.1, 198.51.100.1")},
		{"another client", 200, ask("/", "198.51.100.2")},
		{"a token", 200, ask("/", "198.51.100.1", "Authorization", "Bearer a valid token")},
		{"a wrong token", 429, ask("/", "198.51.100.1", "Authorization", "Bearer another token")},
		{"a session", 200, ask("/", "198.51.100.1", "Cookie", "x=y")},
		{"livez of another machine", 429, ask("/livez", "198.51.100.1")},
		{"this machine", 429, ask("/", "")},
		{"livez of this machine", 200, ask("/livez", "")},
	} {
		if tt.got != tt.code {
			t.Errorf("%s: %d, want %d", tt.name, tt.got, tt.code)
		}
	}
	close(release)
	for range 4 {
		if code := <-ended; code != 200 {
			t.Errorf("a request within the limit: %d", code)
		}
	}
	if len(conns.calls) != 0 || conns.open != 0 {
		t.Errorf("%d addresses and %d connections are left", len(conns.calls), conns.open)
	}
}
