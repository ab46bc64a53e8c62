package console

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestCompression checks which requests get compressed pages and files, and that these have the same
// content.
func TestCompression(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	plain := func(path string, headers ...string) (*http.Response, string) {
		return s.do(t, "GET", path, nil, append([]string{"Accept-Encoding", "identity"}, headers...)...)
	}
	for _, path := range []string{"/cluster", "/static/console.css", "/static/vendor/htmx.min.js", "/api/v1/openapi.json"} {
		_, want := plain(path)
		resp, body := s.do(t, "GET", path, nil, "Accept-Encoding", "br, gzip;q=0.5")
		if resp.Header.Get("Content-Encoding") != "gzip" || !strings.Contains(resp.Header.Get("Vary"), "Accept-Encoding") || 2*len(body) > len(want) {
			t.Errorf("%s: encoding %q, vary %q, %d of %d bytes", path, resp.Header.Get("Content-Encoding"), resp.Header.Get("Vary"), len(body), len(want))
			continue
		}
		z, err := gzip.NewReader(strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(z)
		if err != nil || path != "/cluster" && !bytes.Equal(got, []byte(want)) { // a page contains the time
			t.Errorf("%s: another content, %v", path, err)
		}
	}
	for _, refused := range []string{"", "identity", "gzip;q=0", "br"} {
		if resp, _ := s.do(t, "GET", "/cluster", nil, "Accept-Encoding", refused); resp.Header.Get("Content-Encoding") != "" {
			t.Errorf("Accept-Encoding %q: %s", refused, resp.Header.Get("Content-Encoding"))
		}
	}
	// Another site must not learn lengths of compressed pages.
	for site, want := range map[string]string{"same-origin": "gzip", "none": "gzip", "cross-site": "", "same-site": ""} {
		if resp, _ := s.do(t, "GET", "/cluster", nil, "Accept-Encoding", "gzip", "Sec-Fetch-Site", site); resp.Header.Get("Content-Encoding") != want {
			t.Errorf("a page for %s: %q, want %q", site, resp.Header.Get("Content-Encoding"), want)
		}
	}
	s.c.secure = true
	if s.c.mayCompress(&http.Request{Header: http.Header{"Accept-Encoding": {"gzip"}}}) {
		t.Error("over TLS a browser that does not name the site gets a compressed page")
	}
}

// TestAssetsAreRevalidated checks that a browser does not fetch again what it has.
func TestAssetsAreRevalidated(t *testing.T) {
	s := newSite(t, newFake())
	seen := map[string]bool{}
	for _, encoding := range []string{"gzip", "identity"} {
		resp, _ := s.do(t, "GET", "/static/stream.js", nil, "Accept-Encoding", encoding)
		tag := resp.Header.Get("ETag")
		if tag == "" || seen[tag] {
			t.Errorf("%s: ETag %q", encoding, tag)
		}
		seen[tag] = true
		resp, body := s.do(t, "GET", "/static/stream.js", nil, "Accept-Encoding", encoding, "If-None-Match", tag)
		if resp.StatusCode != http.StatusNotModified || body != "" {
			t.Errorf("%s: %s with %d bytes", encoding, resp.Status, len(body))
		}
	}
	if resp, _ := s.do(t, "GET", "/static/stream.js", nil, "If-None-Match", `"other"`); resp.StatusCode != http.StatusOK {
		t.Errorf("another version: %s", resp.Status)
	}
}
