package console

import (
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
)

// TestCreateJob creates a job by POST: it must be new, and its path is in the response.
func TestCreateJob(t *testing.T) {
	s := newSite(t, newFake().populate())
	const path, job = "/api/v1/apps/default/jobs", `{"name":"fresh","handler":{"module":"totals@1"}}`
	resp, body := s.do(t, "POST", path, strings.NewReader(job), "Authorization", bearer, "Content-Type", "application/json")
	if resp.StatusCode != http.StatusCreated || !strings.Contains(body, `"result":"created"`) || !strings.Contains(body, `"name":"fresh"`) {
		t.Fatalf("%s %s", resp.Status, body)
	}
	if resp.Header.Get("Location") != path+"/fresh" || resp.Header.Get("ETag") == "" || resp.Header.Get("Content-Type") != "application/json" {
		t.Errorf("the headers are %v", resp.Header)
	}
	if code, v := s.call(t, "POST", path, job); code != http.StatusConflict || v["code"] != float64(codes.AlreadyExists) || !strings.Contains(v["message"].(string), "exists") {
		t.Errorf("a second time: %d %v", code, v)
	}
	// PUT answers 200 in any case.
	if code, v := s.call(t, "PUT", path+"/other", job); code != http.StatusOK || v["result"] != "created" {
		t.Errorf("put: %d %v", code, v)
	}
}

// TestMediaTypes sends bodies of several types. Only JSON is read, and a form never
// becomes a query.
func TestMediaTypes(t *testing.T) {
	const job = `{"name":"fresh","handler":{"module":"totals@1"}}`
	for _, c := range []struct {
		kind, body string
		code       int
	}{
		{"application/json", job, http.StatusCreated},
		{"application/json; charset=utf-8", job, http.StatusCreated},
		{"application/merge-patch+json", job, http.StatusCreated},
		{"", job, http.StatusCreated},
		{"application/x-www-form-urlencoded", job, http.StatusCreated}, // curl -d
		{"application/x-www-form-urlencoded", " \n\t" + job, http.StatusCreated},
		{"application/x-www-form-urlencoded", "page_size=1", http.StatusUnsupportedMediaType},
		{"application/x-www-form-urlencoded", strings.Repeat(" ", 2000) + job, http.StatusUnsupportedMediaType},
		{"application/x-www-form-urlencoded", "  ", http.StatusBadRequest},
		{"multipart/form-data; boundary=x", "--x--", http.StatusUnsupportedMediaType},
		{"application/yaml", "name: fresh", http.StatusUnsupportedMediaType},
		{"text/plain", job, http.StatusUnsupportedMediaType},
		{"application", job, http.StatusUnsupportedMediaType},
		{"application/json", "name: fresh", http.StatusBadRequest},
	} {
		s := newSite(t, newFake().populate())
		code, v := s.call(t, "POST", "/api/v1/apps/default/jobs", c.body, "Content-Type", c.kind)
		if code != c.code {
			t.Errorf("%q as %q: %d %v, want %d", c.body, c.kind, code, v, c.code)
		}
		if _, list := v["jobs"]; list {
			t.Errorf("%q as %q is answered with a list", c.body, c.kind)
		}
		if code == http.StatusUnsupportedMediaType && !strings.Contains(v["message"].(string), "Content-Type: application/json") {
			t.Errorf("%q as %q: the message is %q", c.body, c.kind, v["message"])
		}
	}
	// A request without a body needs no type.
	s := newSite(t, newFake().populate())
	if code, v := s.call(t, "POST", "/api/v1/apps/default/jobs/totals:pause", "", "Content-Type", "text/plain"); code != http.StatusOK {
		t.Errorf("pause: %d %v", code, v)
	}
}

// TestWrongMethods checks that a path refuses the methods that it does not have, and
// names those that it has.
func TestWrongMethods(t *testing.T) {
	s := newSite(t, newFake().populate())
	for _, c := range []struct{ method, path, allow string }{
		{"PATCH", "/api/v1/apps/default/jobs/totals", "GET, PUT, DELETE"},
		{"POST", "/api/v1/apps/default/jobs/totals", "GET, PUT, DELETE"},
		{"DELETE", "/api/v1/apps/default/jobs", "GET, POST"},
		{"PUT", "/api/v1/apps/default/jobs:bulk", "POST"},
		{"POST", "/api/v1/apps/default/modules/m/versions/1", "GET, PUT, DELETE"},
		{"DELETE", "/api/v1/apps/default/kv", "GET"},
		{"POST", "/api/v1/apps/default/kv/b/a/key/with/parts", "GET, PUT, DELETE"},
		{"POST", "/api/v1/openapi.json", "GET"},
		{"OPTIONS", "/api/v1/hosts", "GET"},
	} {
		resp, body := s.do(t, c.method, c.path, strings.NewReader(""), "Authorization", bearer)
		if resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != c.allow || !strings.Contains(body, c.method) {
			t.Errorf("%s %s: %s, Allow %q, want %q: %s", c.method, c.path, resp.Status, resp.Header.Get("Allow"), c.allow, body)
		}
	}
	for _, path := range []string{"/api/v1/nothing", "/api/", "/api/v2/hosts", "/api/v1/apps/default/jobs/totals/more"} {
		code, v := s.call(t, "GET", path, "")
		if code != http.StatusNotFound || v["code"] != float64(codes.NotFound) || !strings.Contains(v["message"].(string), "openapi.json") {
			t.Errorf("%s: %d %v", path, code, v)
		}
	}
}
