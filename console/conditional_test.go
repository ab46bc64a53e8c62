package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

const totalsPath = "/api/v1/apps/default/jobs/totals"

// TestIfMatch makes conditional changes over HTTP: ETag of the read, If-Match of the
// change, 412.
func TestIfMatch(t *testing.T) {
	s := newSite(t, newFake().populate())
	s.fake.job("totals").Etag = "0123456789abcdef"
	resp, _ := s.do(t, "GET", totalsPath, nil, "Authorization", bearer)
	etag := resp.Header.Get("ETag")
	if etag != `"0123456789abcdef"` {
		t.Fatalf("ETag %q", etag)
	}
	const job = `{"handler":{"module":"totals@1"}}`
	put := func(name, ifMatch string) int {
		t.Helper()
		code, v := s.call(t, "PUT", "/api/v1/apps/default/jobs/"+name, job, "If-Match", ifMatch)
		if code != http.StatusOK && v["message"] == "" {
			t.Errorf("If-Match %s: no message in %v", ifMatch, v)
		}
		return code
	}
	for _, c := range []struct {
		name, ifMatch string
		code          int
	}{
		{"totals", `"ffffffffffffffff"`, http.StatusPreconditionFailed},
		{"totals", etag, http.StatusOK},
		{"totals", "W/" + etag, http.StatusOK},
		{"totals", "*", http.StatusOK},
		{"missing", "*", http.StatusPreconditionFailed},
		{"missing", etag, http.StatusPreconditionFailed},
		{"totals", "0123456789abcdef", http.StatusBadRequest},
		{"totals", etag + ", " + etag, http.StatusBadRequest},
		{"totals", `""`, http.StatusBadRequest},
	} {
		if code := put(c.name, c.ifMatch); code != c.code {
			t.Errorf("PUT %s with If-Match %s: %d, want %d", c.name, c.ifMatch, code, c.code)
		}
	}
	resp, _ = s.do(t, "PUT", totalsPath, strings.NewReader(job), "Authorization", bearer)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("ETag") == "" {
		t.Errorf("PUT: %s with ETag %q", resp.Status, resp.Header.Get("ETag"))
	}
	if code, v := s.call(t, "POST", totalsPath+":trigger", "{}", "If-Match", etag); code != http.StatusBadRequest {
		t.Errorf("a trigger with If-Match: %d %v", code, v)
	}
	if code, _ := s.call(t, "DELETE", totalsPath, "", "If-Match", `"ffffffffffffffff"`); code != http.StatusPreconditionFailed || s.fake.job("totals") == nil {
		t.Errorf("DELETE with another etag: %d", code)
	}
	if code, _ := s.call(t, "DELETE", totalsPath, "", "If-Match", "*"); code != http.StatusOK {
		t.Errorf("DELETE with *: %d", code)
	}
}

// TestDeleteOfWhatIsNamed checks that programs get a conflict, and people a page that
// lists the jobs that need the deleted one.
func TestDeleteOfWhatIsNamed(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	s.fake.namers = []string{"job other"}
	if code, v := s.call(t, "DELETE", totalsPath, ""); code != http.StatusConflict || v["message"] != "the job is named by job other" {
		t.Errorf("DELETE: %d %v", code, v)
	}
	resp, body := s.post(t, "/apps/default/jobs/totals/delete", url.Values{}.Encode())
	if resp.StatusCode != http.StatusConflict || s.fake.job("totals") == nil {
		t.Errorf("the page's deletion: %s", resp.Status)
	}
	for _, part := range []string{"Other jobs need the job totals", `<a href="/apps/default/jobs/other">job other</a>`, `name="force" value="yes"`, "Delete it all the same"} {
		if !strings.Contains(body, part) {
			t.Errorf("the page of the refusal lacks %q", part)
		}
	}
	if code, v := s.call(t, "DELETE", totalsPath+"?force=true", ""); code != http.StatusOK || s.fake.job("totals") != nil {
		t.Errorf("DELETE by force: %d %v", code, v)
	}
}

// TestDeleteAllTheSame sends the form of the page that lists the dependents of a job.
func TestDeleteAllTheSame(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	s.fake.namers = []string{"job other"}
	resp, _ := s.post(t, "/apps/default/jobs/totals/delete", url.Values{"force": {"yes"}}.Encode())
	if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/apps/default/jobs" || s.fake.job("totals") != nil {
		t.Errorf("deletion by force: %s to %q", resp.Status, resp.Header.Get("Location"))
	}
}

// TestOneBody checks that data after the JSON value of a body is refused, and that
// nothing changes.
func TestOneBody(t *testing.T) {
	s := newSite(t, newFake().populate())
	runs := len(s.fake.runs)
	for _, body := range []string{`{"input":"a"} {"input":"b"}`, `{"input":"a"}]`, `{"input":"a"} x`} {
		if code, v := s.call(t, "POST", totalsPath+":trigger", body); code != http.StatusBadRequest || v["message"] == "" {
			t.Errorf("%s: %d %v", body, code, v)
		}
	}
	if len(s.fake.runs) != runs {
		t.Error("a refused body triggered a run")
	}
	for _, body := range []string{"", "{}", "{\"input\":\"a\"}\n \t\n"} {
		if code, v := s.call(t, "POST", totalsPath+":trigger", body); code != http.StatusOK {
			t.Errorf("%q: %d %v", body, code, v)
		}
	}
}

// TestPlainPaths checks that an invalid path is refused and not redirected to another
// one.
func TestPlainPaths(t *testing.T) {
	s := newSite(t, newFake().populate())
	for _, path := range []string{"/api/v1/apps/default/jobs/..", "/api/v1/apps/default/jobs/.", "/api/v1/apps/default/jobs//x", "/api/v1/apps/../version"} {
		req, err := http.NewRequest("PUT", s.URL, strings.NewReader(`{"handler":{"module":"totals@1"}}`))
		if err != nil {
			t.Fatal(err)
		}
		req.URL.Path = path
		req.Header.Set("Authorization", bearer)
		resp, err := s.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("PUT %s: %s", path, resp.Status)
		}
	}
	if code, _ := s.call(t, "GET", "/api/v1/apps/default/kv/b/a%2F%2Fb", ""); code == http.StatusBadRequest {
		t.Error("a key with slashes is no such path")
	}
}
