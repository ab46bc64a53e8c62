package outbound

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/runtime"
)

// TestSecretsThatAreThere sends requests that already hold secrets. The secrets reach
// only the permitted destinations, also after redirects. Text in them that looks like the
// name of another secret is not replaced.
func TestSecretsThatAreThere(t *testing.T) {
	w := newWorld(t, Config{})
	g := w.allow(t, true) // granted by the operator
	only := func(paths ...string) *runtime.Grants {
		return &runtime.Grants{HTTP: []runtime.HTTPGrant{{Host: hostOf(t, w.secure), Methods: []string{"POST", "GET"}, Paths: paths, Private: true}}, Secrets: []string{"KEY"}}
	}
	const value = "s3cret {{secret:KEY}}"
	request := func(to *runtime.Grants, address string, redirect url.Values, body bool) runtime.Request {
		r := runtime.Request{
			Method: "POST", URL: address + "?" + redirect.Encode(), Body: []byte("b " + value), SecretBody: body, SecretTo: to,
			Header: http.Header{"X-Key": {value}, "X-Other": {"o"}}, Secret: []string{"x-key"},
		}
		return r
	}
	for _, tt := range []struct {
		name     string
		to       *runtime.Grants
		from     string
		redirect url.Values
		body     bool
		seen     []string // of each request: method, header and body
		refused  bool
	}{
		{"where it may go", only(), w.secure.URL + "/a", nil, true, []string{"POST " + value + " b " + value}, false},
		{"where no secret may go", only("/b"), w.secure.URL + "/a", nil, false, nil, true},
		{"to another server", only(), w.open.URL + "/a", nil, false, nil, true},
		{"to nobody", &runtime.Grants{}, w.secure.URL + "/a", nil, false, nil, true},
		{"without a word", nil, w.secure.URL + "/a", nil, false, nil, true},
		{"along a redirect", only("/a", "/b"), w.secure.URL + "/a", url.Values{"to": {"/b"}, "keep": {"1"}}, true, []string{"POST " + value + " b " + value, "POST " + value + " b " + value}, false},
		{"along a redirect to where it may not", only("/a"), w.secure.URL + "/a", url.Values{"to": {"/b"}, "keep": {"1"}}, false, []string{"POST " + value + " b " + value}, true},
		{"along a redirect to another server", only(), w.secure.URL + "/a", url.Values{"to": {w.open.URL + "/b"}, "keep": {"1"}}, true, []string{"POST " + value + " b " + value}, true},
		{"along a redirect between two that may have it", w.allow(t, true), w.secure.URL + "/a", url.Values{"to": {w.open.URL + "/b"}, "keep": {"1"}}, true, []string{"POST " + value + " b " + value}, true},
		{"left behind with the body", only(), w.secure.URL + "/a", url.Values{"to": {w.open.URL + "/b"}}, true, []string{"POST " + value + " b " + value, "GET  "}, false},
	} {
		w.seen, w.bodies = nil, nil
		_, err := w.send(t, g, request(tt.to, tt.from, tt.redirect, tt.body))
		var seen []string
		for i, h := range w.seen {
			method, body, _ := strings.Cut(w.bodies[i], " ")
			seen = append(seen, method+" "+h.Get("X-Key")+" "+body)
		}
		if !slices.Equal(seen, tt.seen) {
			t.Errorf("%s: the servers saw %q, want %q", tt.name, seen, tt.seen)
		}
		if refused := errors.Is(err, runtime.ErrNotGranted); refused != tt.refused || !refused && err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the error tells the secret: %v", tt.name, err)
		}
	}

	// To the Internet, a secret leaves only over TLS, in a body as in a header.
	far := &runtime.Grants{HTTP: []runtime.HTTPGrant{{Host: "api.invalid", Methods: []string{"POST"}}}}
	r := runtime.Request{Method: "POST", URL: "http://api.invalid/", Body: []byte("s3cret"), SecretBody: true, SecretTo: far}
	if _, err := w.send(t, far, r); !errors.Is(err, runtime.ErrNotGranted) || !strings.Contains(err.Error(), "https") {
		t.Errorf("a secret in a body without TLS: %v", err)
	}
}

// TestSecretWithTheWrongMethod checks that the error says which method the grant lacks.
func TestSecretWithTheWrongMethod(t *testing.T) {
	w := newWorld(t, Config{})
	to := &runtime.Grants{HTTP: []runtime.HTTPGrant{{Host: hostOf(t, w.secure), Private: true}, {Host: "api.example", Methods: []string{"POST"}}}}
	r := runtime.Request{Method: "POST", URL: w.secure.URL + "/a", Body: []byte("s3cret"), SecretBody: true, SecretTo: to}
	_, err := w.send(t, w.allow(t, true), r)
	if !errors.Is(err, runtime.ErrNotGranted) || !strings.HasSuffix(err.Error(), "the method POST: the grant has GET and HEAD there, add methods=GET,HEAD,POST to it") {
		t.Errorf("a POST where GET and HEAD are granted: %v", err)
	}
	r.URL = "https://other.invalid/a"
	if _, err := w.send(t, &runtime.Grants{HTTP: []runtime.HTTPGrant{{Host: "other.invalid", Methods: []string{"POST"}}}}, r); err == nil || strings.Contains(err.Error(), "the grant has") {
		t.Errorf("a server without a grant: %v", err)
	}
}
