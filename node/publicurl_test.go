package node_test

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oauth2-proxy/mockoidc"

	"github.com/wheelworkhq/wheelwork/access/oidc"
	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/sdk"
)

func TestPublicOrigin(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"https://wheel.example":           "https://wheel.example",
		"https://Wheel.Example/":          "https://wheel.example",
		"https://wheel.example:443":       "https://wheel.example",
		"https://wheel.example:08443":     "https://wheel.example:8443",
		"https://10.0.0.5:7700/":          "https://10.0.0.5:7700",
		"https://[2001:DB8::1]":           "https://[2001:db8::1]",
		"https://wheel.example:80":        "https://wheel.example:80",
		"http://localhost:8080":           "http://localhost:8080",
		"http://127.0.0.1:80/":            "http://127.0.0.1",
		"http://[::1]:7700":               "http://[::1]:7700",
		"https://xn--rdbrte-6ya.example/": "https://xn--rdbrte-6ya.example",
	} {
		if got, err := node.PublicOrigin(address); got != want || err != nil {
			t.Errorf("%s: %s, %v, want %s", address, got, err, want)
		}
	}
	for address, why := range map[string]string{
		"":                            "a scheme and a host",
		"wheel.example":               "a scheme and a host",
		"wheel.example:7700":          "a scheme and a host",
		"ftp://wheel.example":         "a scheme and a host",
		"https://:7700":               "a scheme and a host",
		"https://wheel.example:x":     "a scheme and a host",
		"https://ada@wheel.example":   "it has a user",
		"https://wheel.example/app":   "at the root",
		"https://wheel.example//":     "at the root",
		"https://wheel.example?x=1":   "at the root",
		"https://wheel.example/?":     "at the root",
		"https://wheel.example/#":     "at the root",
		"https://whéel.example":       "begins with xn--",
		"https://wheel.example:0":     "1 to 65535",
		"https://wheel.example:99999": "1 to 65535",
		"http://wheel.example":        "unencrypted",
		"http://10.0.0.5:7700":        "unencrypted",
		"http://localhost.example":    "unencrypted",
	} {
		if got, err := node.PublicOrigin(address); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %s, %v, want an error with %q", address, got, err, why)
		}
	}
	err := node.Server(t.Context(), node.ServerConfig{Data: t.TempDir(), People: node.PeopleConfig{PublicURL: "http://wheel.example"}})
	if err == nil || !strings.Contains(err.Error(), "unencrypted") {
		t.Errorf("a server starts with it: %v", err)
	}
}

// TestPublicURL serves without TLS, as behind a proxy that has it: links, cookies and the page of the callback are
// those of the proxy.
func TestPublicURL(t *testing.T) {
	t.Parallel()
	mock, err := mockoidc.Run()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mock.Shutdown() }) //nolint:errcheck // the test is over
	const public = "https://wheel.example"
	links := make(chan string, 1)
	p := launch(t, func(ctx context.Context, ready func(node.Ready)) error {
		return node.Server(ctx, node.ServerConfig{Data: t.TempDir(), Listen: "127.0.0.1:0", Ready: ready, People: node.PeopleConfig{
			PublicURL: "https://Wheel.example:443/", Setup: func(link string) { links <- link }, LegacyTokens: node.LegacyOn,
			OIDC: oidc.Config{Issuer: mock.Issuer(), ClientID: mock.ClientID, ClientSecret: mock.ClientSecret},
		}})
	})
	select {
	case link := <-links:
		if !strings.HasPrefix(link, public+"/setup?code=") {
			t.Errorf("the first administrator is made at %s", link)
		}
	case <-time.After(time.Minute):
		t.Fatal("no link was told")
	}
	login, ours := strings.CutPrefix(p.LoginURL, public)
	if !ours || !strings.HasPrefix(p.URL, "http://127.0.0.1:") {
		t.Fatalf("the login link is %s, the server listens at %s", p.LoginURL, p.URL)
	}
	c, err := sdk.Dial(t.Context(), p.URL, sdk.Options{Token: p.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // a test's
	if got := c.Version().GetPublicUrl(); got != public {
		t.Errorf("the API tells the public URL %q", got)
	}

	b := newBrowser(t, p.URL)
	b.Jar = nil // the jar would not return a secure cookie to an address without TLS
	b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, _ := b.open(login)
	if len(resp.Cookies()) != 1 || resp.Cookies()[0].Name != "__Host-wheelwork_session" || !resp.Cookies()[0].Secure {
		t.Fatalf("the login sets %v", resp.Cookies())
	}
	session := resp.Cookies()[0]
	for origin, want := range map[string]int{"https://evil.example": http.StatusForbidden, "http://wheel.example": http.StatusForbidden, public: http.StatusSeeOther} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL+"/preferences", strings.NewReader("theme=dark"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", origin)
		req.AddCookie(session)
		if resp, _ := b.read(b.Do(req)); resp.StatusCode != want {
			t.Errorf("a form from %s: %d, want %d", origin, resp.StatusCode, want)
		}
	}

	resp, text := b.open("/login/provider")
	to, err := url.Parse(resp.Header.Get("Location"))
	if err != nil || !strings.HasPrefix(to.String(), mock.Issuer()) {
		t.Fatalf("the provider is at %s, %v\n%s", to, err, text)
	}
	if got, want := to.Query().Get("redirect_uri"), "https://Wheel.example:443"+node.CallbackPath; got != want {
		t.Errorf("the provider sends the browser back to %s, want %s", got, want)
	}
}

// TestPublicNameInCertificate verifies the host of the public URL in the certificate of the server.
func TestPublicNameInCertificate(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "server")
	p := launch(t, func(ctx context.Context, ready func(node.Ready)) error {
		return node.Server(ctx, node.ServerConfig{
			Data: data, Listen: "127.0.0.1:0", Ready: ready, Certificates: node.CertificatesConfig{TLS: "on"},
			People: node.PeopleConfig{PublicURL: "https://wheel.example", OIDC: oidc.Config{Issuer: "https://id.example", ClientID: "x", Callback: "https://other.example" + node.CallbackPath}},
		})
	})
	conf := trusting(t, data)
	for name, valid := range map[string]bool{"wheel.example": true, "other.example": true, "localhost": true, "third.example": false} {
		conf.ServerName = name
		conn, err := (&tls.Dialer{Config: conf}).DialContext(t.Context(), "tcp", p.GRPC)
		if err == nil {
			conn.Close() //nolint:errcheck // a test's
		}
		if (err == nil) != valid {
			t.Errorf("the certificate is valid for %s: %v", name, err)
		}
	}
}
