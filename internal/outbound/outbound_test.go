package outbound

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/runtime"
)

func TestReaches(t *testing.T) {
	for address, want := range map[string]class{
		"1.1.1.1": public, "8.8.8.8": public, "2606:4700::1111": public, "64:ff9b::8.8.8.8": public, "::ffff:8.8.8.8": public, "172.32.0.1": public,
		"127.0.0.1": private, "127.9.9.9": private, "::1": private, "0.0.0.0": private, "::": private, "0.1.2.3": private,
		"10.0.0.1": private, "172.16.0.1": private, "172.31.255.255": private, "192.168.1.1": private, "100.64.0.1": private, "fc00::1": private, "fd12::1": private,
		"198.18.0.1": private, "240.0.0.1": private, "2001:db8::1": private, "fec0::1": private,
		"::ffff:10.0.0.1": private, "::ffff:127.0.0.1": private, "::127.0.0.1": private, "64:ff9b::10.0.0.1": private, "2002:a00:1::": private, "2001:0:1::": private,
		"169.254.169.254": unlimited, "fe80::1": unlimited, "fe80::1%eth0": unlimited, "fd00:ec2::254": unlimited, "100.100.100.200": unlimited,
		"::ffff:169.254.169.254": unlimited, "64:ff9b::169.254.169.254": unlimited,
		"224.0.0.1": classes, "255.255.255.255": classes, "ff02::1": classes,
	} {
		a := netip.MustParseAddr(address)
		for c := public; c < classes; c++ {
			if got := c.reaches(a); got != (c >= want) {
				t.Errorf("class %d reaches %s: %v", c, address, got)
			}
		}
	}
	if unlimited.reaches(netip.Addr{}) {
		t.Error("no address at all is reached")
	}
}

// world has one server with TLS and one without, both on loopback.
type world struct {
	secure, open *httptest.Server
	client       *Client
	seen         []http.Header
	bodies       []string
}

func newWorld(t *testing.T, cfg Config) *world {
	w := &world{}
	handler := http.HandlerFunc(func(res http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		w.seen = append(w.seen, req.Header.Clone())
		w.bodies = append(w.bodies, req.Method+" "+string(body))
		if to := req.URL.Query().Get("to"); to != "" {
			status := http.StatusFound
			if req.URL.Query().Has("keep") {
				status = http.StatusTemporaryRedirect
			}
			http.Redirect(res, req, to, status)
			return
		}
		if n := len(req.URL.Query().Get("size")); n > 0 {
			_, _ = res.Write(bytes.Repeat([]byte("x"), n))
			return
		}
		if req.URL.Path == "/flood" {
			res.Header().Set("X-Flood", strings.Repeat("f", 300<<10))
		}
		if req.URL.Path == "/hang" {
			res.(http.Flusher).Flush()
			<-req.Context().Done()
			return
		}
		_, _ = io.WriteString(res, "answer")
	})
	w.secure, w.open = httptest.NewTLSServer(handler), httptest.NewServer(handler)
	pool := x509.NewCertPool()
	pool.AddCert(w.secure.Certificate())
	cfg.TLS = &tls.Config{RootCAs: pool, ServerName: "example.com"} // the name in the test's certificate
	w.client = New(cfg)
	t.Cleanup(func() {
		_ = w.client.Close()
		w.secure.Close()
		w.open.Close()
	})
	return w
}

func hostOf(t *testing.T, s *httptest.Server) string {
	t.Helper()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// allow grants every request to both servers.
func (w *world) allow(t *testing.T, private bool) *runtime.Grants {
	all := []string{"GET", "HEAD", "POST"}
	return &runtime.Grants{
		HTTP: []runtime.HTTPGrant{
			{Host: hostOf(t, w.secure), Methods: all, Private: private},
			{Host: hostOf(t, w.open), Methods: all, Private: private},
		},
		Secrets: []string{"KEY"},
	}
}

func secret(_ context.Context, name string) ([]byte, error) { return []byte("s3cret-" + name), nil }

func (w *world) send(t *testing.T, g *runtime.Grants, r runtime.Request) (string, error) {
	t.Helper()
	res, err := w.client.Send(t.Context(), g, secret, r)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return string(body), err
}

func TestSend(t *testing.T) {
	w := newWorld(t, Config{})
	body, err := w.send(t, w.allow(t, true), runtime.Request{
		Method: "POST", URL: w.secure.URL + "/x#fragment", Body: []byte("hello"),
		Header: http.Header{"authorization": {"Bearer {{secret:KEY}}"}, "X-Two": {"a", "b"}},
	})
	if err != nil || body != "answer" {
		t.Fatalf("%q, %v", body, err)
	}
	if got := w.seen[0].Get("Authorization"); got != "Bearer s3cret-KEY" || len(w.seen[0]["X-Two"]) != 2 || w.bodies[0] != "POST hello" || w.seen[0].Get("User-Agent") != "wheelwork" {
		t.Errorf("the server saw %v and %q", w.seen[0], w.bodies[0])
	}
}

func TestAddressesAreRefused(t *testing.T) {
	w := newWorld(t, Config{})
	if _, err := w.send(t, w.allow(t, true), runtime.Request{URL: w.open.URL}); err != nil {
		t.Fatal(err)
	}
	// The client now has an idle connection; without the grant it must not use it.
	if _, err := w.send(t, w.allow(t, false), runtime.Request{URL: w.open.URL}); !errors.Is(err, runtime.ErrNotGranted) {
		t.Errorf("loopback without its grant: %v", err)
	}
	_, port, _ := strings.Cut(hostOf(t, w.open), ":")
	for _, host := range []string{"localhost:" + port, "[::1]:" + port, "0.0.0.0:" + port, "[::ffff:127.0.0.1]:" + port, "169.254.169.254", "[fe80::1]"} {
		g := &runtime.Grants{HTTP: []runtime.HTTPGrant{{Host: host}}}
		if _, err := w.send(t, g, runtime.Request{URL: "http://" + host + "/"}); !errors.Is(err, runtime.ErrNotGranted) {
			t.Errorf("%s: %v", host, err)
		}
	}
	if len(w.seen) != 1 {
		t.Errorf("the server was reached %d times, want once", len(w.seen))
	}
}

func TestWhatIsWrittenIsChecked(t *testing.T) {
	w := newWorld(t, Config{HeaderBytes: 1000, RequestBytes: 10})
	g := w.allow(t, true)
	for name, tt := range map[string]struct {
		r    runtime.Request
		want error
	}{
		"another host":           {runtime.Request{URL: "https://other.example/"}, runtime.ErrNotGranted},
		"another method":         {runtime.Request{Method: "DELETE", URL: w.open.URL}, runtime.ErrNotGranted},
		"another scheme":         {runtime.Request{URL: "file:///etc/passwd"}, runtime.ErrNotGranted},
		"no address":             {runtime.Request{}, runtime.ErrNotGranted},
		"a broken address":       {runtime.Request{URL: "http://[::1"}, runtime.ErrInvalid},
		"the host header":        {runtime.Request{URL: w.open.URL, Header: http.Header{"host": {"internal"}}}, runtime.ErrInvalid},
		"the length":             {runtime.Request{URL: w.open.URL, Header: http.Header{"Content-Length": {"0"}}}, runtime.ErrInvalid},
		"the framing":            {runtime.Request{URL: w.open.URL, Header: http.Header{"Transfer-Encoding": {"chunked"}}}, runtime.ErrInvalid},
		"a proxy header":         {runtime.Request{URL: w.open.URL, Header: http.Header{"Proxy-Authorization": {"x"}}}, runtime.ErrInvalid},
		"too many headers":       {runtime.Request{URL: w.open.URL, Header: http.Header{"X": {strings.Repeat("x", 1001)}}}, runtime.ErrTooLarge},
		"too long a body":        {runtime.Request{Method: "POST", URL: w.open.URL, Body: make([]byte, 11)}, runtime.ErrTooLarge},
		"a secret of others":     {runtime.Request{URL: w.secure.URL, Header: http.Header{"X": {"{{secret:OTHER}}"}}}, runtime.ErrNotGranted},
		"a secret with no name":  {runtime.Request{URL: w.secure.URL, Header: http.Header{"X": {"{{secret:}}"}}}, runtime.ErrNotGranted},
		"one good, one bad":      {runtime.Request{URL: w.secure.URL, Header: http.Header{"X": {"{{secret:OTHER}}{{secret:KEY}}"}}}, runtime.ErrNotGranted},
		"a header that is two":   {runtime.Request{URL: w.open.URL, Header: http.Header{"X": {"a\r\nY: b"}}}, nil},
		"a name with a line end": {runtime.Request{URL: w.open.URL, Header: http.Header{"X\r\nY": {"b"}}}, nil},
	} {
		_, err := w.send(t, g, tt.r)
		if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	if len(w.seen) != 0 {
		t.Errorf("the server was reached: %v", w.seen)
	}
}

func TestSecretsLeaveOverTLSOnly(t *testing.T) {
	w := newWorld(t, Config{})
	g := &runtime.Grants{HTTP: []runtime.HTTPGrant{{Host: "api.invalid"}}, Secrets: []string{"KEY"}}
	r := runtime.Request{URL: "http://api.invalid/", Header: http.Header{"X": {"{{secret:KEY}}"}}}
	if _, err := w.send(t, g, r); !errors.Is(err, runtime.ErrNotGranted) || !strings.Contains(err.Error(), "https") || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("a secret without TLS: %v", err)
	}
	failing := func(context.Context, string) ([]byte, error) { return nil, runtime.ErrNoEntry }
	r.URL = w.secure.URL
	if _, err := w.client.Send(t.Context(), w.allow(t, true), failing, r); !errors.Is(err, runtime.ErrNoEntry) {
		t.Errorf("a secret that is not there: %v", err)
	}
}

func TestRedirects(t *testing.T) {
	w := newWorld(t, Config{})
	g := w.allow(t, true)
	with := func(from, to string, keep bool) runtime.Request {
		q := url.Values{"to": {to}}
		if keep {
			q.Set("keep", "1")
		}
		return runtime.Request{
			Method: "POST", URL: from + "/?" + q.Encode(), Body: []byte("data"),
			Header: http.Header{"X-Key": {"{{secret:KEY}}"}, "Cookie": {"c"}, "Authorization": {"a"}, "X-Other": {"o"}, "Content-Type": {"text/plain"}},
		}
	}
	// To the same host: headers, secrets and body go along.
	if _, err := w.send(t, g, with(w.secure.URL, "/end", true)); err != nil {
		t.Fatal(err)
	}
	last := func() (http.Header, string) { return w.seen[len(w.seen)-1], w.bodies[len(w.bodies)-1] }
	if h, b := last(); h.Get("X-Key") != "s3cret-KEY" || h.Get("Cookie") == "" || b != "POST data" {
		t.Errorf("after a redirect to the same host: %v %q", h, b)
	}
	// To another host: no secret, and no body after a 302.
	if _, err := w.send(t, g, with(w.secure.URL, w.open.URL+"/end", false)); err != nil {
		t.Fatal(err)
	}
	if h, b := last(); h.Get("X-Key") != "" || h.Get("Cookie") != "" || h.Get("Authorization") != "" || h.Get("Content-Type") != "" || h.Get("X-Other") != "o" || b != "GET " {
		t.Errorf("after a redirect to another host: %v %q", h, b)
	}
	// To an address without a grant.
	before := len(w.seen)
	for _, to := range []string{"https://other.example/", "http://169.254.169.254/latest/meta-data", "file:///etc/passwd", "//other.example", "http://[::1"} {
		if _, err := w.send(t, g, with(w.secure.URL, to, false)); err == nil {
			t.Errorf("a redirect to %s was followed", to)
		}
	}
	// To a private address of which only the name is granted.
	g.HTTP[1].Private = false
	if _, err := w.send(t, g, with(w.secure.URL, w.open.URL, false)); !errors.Is(err, runtime.ErrNotGranted) {
		t.Errorf("a redirect to a private address: %v", err)
	}
	// A redirect loop.
	if res, err := w.client.Send(t.Context(), g, nil, runtime.Request{URL: w.secure.URL + "/?to=%2F%3Fto%3D%252F%253Fto%253D%25252F"}); err != nil || res.Status != 200 {
		t.Errorf("three redirects: %v", err)
	}
	loop := httptest.NewServer(http.HandlerFunc(func(res http.ResponseWriter, req *http.Request) { http.Redirect(res, req, "/", http.StatusFound) }))
	defer loop.Close()
	g.HTTP[1] = runtime.HTTPGrant{Host: hostOf(t, loop), Private: true}
	if res, err := w.client.Send(t.Context(), g, nil, runtime.Request{URL: loop.URL}); err != nil || res.Status != http.StatusFound {
		t.Errorf("redirects without end: %v %v, want the last one", res, err)
	}
	if n := len(w.seen) - before; n != 5+1+4 {
		t.Errorf("the servers saw %d requests, want 10", n)
	}
}

func TestResponsesAreBounded(t *testing.T) {
	w := newWorld(t, Config{ResponseBytes: 6})
	g := w.allow(t, true)
	if body, err := w.send(t, g, runtime.Request{URL: w.open.URL}); err != nil || body != "answer" {
		t.Errorf("a body as long as allowed: %q, %v", body, err)
	}
	if body, err := w.send(t, g, runtime.Request{URL: w.open.URL + "/?size=1234567"}); !errors.Is(err, runtime.ErrTooLarge) || body != "xxxxxx" {
		t.Errorf("a body one byte too long: %q, %v", body, err)
	}
	if _, err := w.send(t, g, runtime.Request{URL: w.open.URL + "/flood"}); err == nil {
		t.Error("headers without end were read")
	}
}

func TestABodyEndsWithTheContext(t *testing.T) {
	w := newWorld(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	res, err := w.client.Send(ctx, w.allow(t, true), nil, runtime.Request{URL: w.open.URL + "/hang"})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := res.Body.Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("read: %v", err)
	}
	if _, err := w.client.Send(ctx, w.allow(t, true), nil, runtime.Request{URL: w.open.URL}); !errors.Is(err, context.Canceled) {
		t.Errorf("send: %v", err)
	}
}

// TestErrorsTellNothingOfTheNetwork checks that errors, which readers of the run's log
// see, describe nothing of the network.
func TestErrorsTellNothingOfTheNetwork(t *testing.T) {
	err := plain(&url.Error{Op: "Get", URL: "https://a.example/?token=hidden", Err: &net.OpError{
		Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "a.example", Server: "10.1.2.3:53", IsNotFound: true},
	}})
	if !errors.Is(err, runtime.ErrUnavailable) || !strings.Contains(err.Error(), "look up a.example: no such host") || strings.Contains(err.Error(), "10.1.2.3") {
		t.Errorf("a name that is not known: %v", err)
	}
}

func TestNobodyThere(t *testing.T) {
	w := newWorld(t, Config{})
	g := w.allow(t, true)
	w.open.Close()
	if _, err := w.send(t, g, runtime.Request{URL: w.open.URL + "/?token=hidden"}); !errors.Is(err, runtime.ErrUnavailable) || strings.Contains(err.Error(), "hidden") {
		t.Errorf("no server: %v", err)
	}
}
