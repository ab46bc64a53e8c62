package builtin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/outbound"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// guarded sends with the client of package outbound, which checks every address.
type guarded struct{ c *outbound.Client }

func (g guarded) Send(ctx context.Context, grants *runtime.Grants, r runtime.Request) (*runtime.Response, error) {
	return g.c.Send(ctx, grants, nil, r)
}

// caller returns an executor that may call a new test server, and the URL of that server.
func caller(t *testing.T, h http.HandlerFunc) (*HTTP, string) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := outbound.New(outbound.Config{})
	t.Cleanup(func() { c.Close() })
	return &HTTP{Sender: guarded{c}, Grants: &runtime.Grants{HTTP: []runtime.HTTPGrant{{Host: u.Host, Methods: Methods, Private: true}}}}, s.URL
}

type quiet struct{ lines []string }

func (q *quiet) Log(_ runtime.Level, line []byte) { q.lines = append(q.lines, string(line)) }
func (*quiet) Progress(int64, int64, string)      {}
func call(method, to, body string) *runtime.HTTPCall {
	return &runtime.HTTPCall{Request: runtime.Request{Method: method, URL: to, Body: []byte(body)}, Timeout: 10 * time.Second}
}

func TestHTTP(t *testing.T) {
	x, to := caller(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch r.URL.Path {
		case "/echo":
			fmt.Fprintf(w, "%s %s %s run=%s/%s type=%s trace=%s own=%s", r.Method, r.URL.RawQuery, body, r.Header.Get("Wheelwork-Run"), r.Header.Get("Wheelwork-Attempt"),
				r.Header.Get("Content-Type"), r.Header.Get("Traceparent"), r.Header.Get("X-Own"))
		case "/large":
			w.Write(make([]byte, 1<<20+1))
		case "/exact":
			w.Write(make([]byte, 1<<20))
		case "/busy":
			w.Header().Set("Retry-After", "7")
			http.Error(w, "come back\nlater", http.StatusServiceUnavailable)
		case "/moved":
			http.Redirect(w, r, "http://169.254.169.254/latest/meta-data", http.StatusFound)
		case "/cut":
			w.Header().Set("Content-Length", "100")
			w.Write([]byte("too short"))
		default:
			http.NotFound(w, r)
		}
	})
	for _, tt := range []struct {
		method, path, body string
		want               runtime.Outcome
		code, text         string // of the output, or the error
	}{
		{"GET", "/echo?a=b", "", runtime.Succeeded, "", "GET a=b  run=r1/2 type= trace=00-1 own="},
		{"POST", "/echo", `{"a":1}`, runtime.Succeeded, "", `POST  {"a":1} run=r1/2 type=application/json trace=00-1 own=`},
		{"GET", "/exact", "", runtime.Succeeded, "", "\x00"},
		{"GET", "/large", "", runtime.Permanent, codeOutputLimit, "more than 1048576 bytes"},
		{"GET", "/none", "", runtime.Permanent, "http_404", "status 404: 404 page not found"},
		{"GET", "/busy", "", runtime.Retryable, "http_503", "status 503: come back"},
		{"GET", "/moved", "", runtime.Permanent, codeNotGranted, "does not allow it"},
		{"GET", "/cut", "", runtime.Retryable, codeHTTPFailed, "unexpected EOF"},
	} {
		q := &quiet{}
		r := x.Run(t.Context(), runtime.Task{RunID: "r1", Attempt: 2, TraceParent: "00-1", HTTP: call(tt.method, to+tt.path, tt.body)}, q)
		text := r.Error
		if r.Outcome == runtime.Succeeded {
			text = string(r.Output)
		}
		if r.Outcome != tt.want || r.Code != tt.code || !strings.Contains(text, tt.text) {
			t.Errorf("%s: %v %s %.100q", tt.path, r.Outcome, r.Code, text)
		}
		if (r.RetryAfter == 7*time.Second) != (tt.path == "/busy") {
			t.Errorf("%s: retry after %s", tt.path, r.RetryAfter)
		}
		if strings.Contains(strings.Join(q.lines, ""), "a=b") {
			t.Errorf("%s: the query is in the log: %q", tt.path, q.lines)
		}
	}
	own := call("PUT", to+"/echo", "x")
	own.Request.Header = map[string][]string{"content-type": {"text/plain"}, "X-Own": {"1"}}
	if r := x.Run(t.Context(), runtime.Task{HTTP: own}, &quiet{}); !strings.Contains(string(r.Output), "type=text/plain") || !strings.Contains(string(r.Output), "own=1") {
		t.Errorf("own headers: %s %s", r.Output, r.Error)
	}
	odd := call("GET", to+"/none", "")
	odd.Expect = []runtime.StatusRange{{First: 200, Last: 204}, {First: 404, Last: 404}}
	if r := x.Run(t.Context(), runtime.Task{HTTP: odd}, &quiet{}); r.Outcome != runtime.Succeeded {
		t.Errorf("404 is expected: %+v", r)
	}
	if r := x.Run(t.Context(), runtime.Task{}, &quiet{}); r.Outcome != runtime.Permanent || r.Code != codeBadTask {
		t.Errorf("no request: %+v", r)
	}
}

func TestHTTPEnds(t *testing.T) {
	here := make(chan struct{}, 4)
	x, to := caller(t, func(_ http.ResponseWriter, r *http.Request) {
		here <- struct{}{}
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-here; cancel() }()
	if r := x.Run(ctx, runtime.Task{HTTP: call("GET", to, "")}, &quiet{}); r.Outcome != runtime.Stopped {
		t.Errorf("cancelled: %+v", r)
	}
	if r := x.Run(t.Context(), runtime.Task{HTTP: call("GET", to, ""), Deadline: time.Now().Add(50 * time.Millisecond)}, &quiet{}); r.Outcome != runtime.TimedOut {
		t.Errorf("late: %+v", r)
	}
	slow := call("GET", to, "")
	slow.Timeout = 50 * time.Millisecond
	if r := x.Run(t.Context(), runtime.Task{HTTP: slow}, &quiet{}); r.Outcome != runtime.Retryable || r.Code != codeTimeout {
		t.Errorf("slow: %+v", r)
	}
}

func TestHTTPGuard(t *testing.T) {
	x, to := caller(t, func(http.ResponseWriter, *http.Request) {})
	x.Any, x.Grants = true, nil // Any covers the Internet only, and the test server is on loopback
	for _, to := range []string{to, "http://localhost:1/", "http://[::1]:1/", "http://169.254.169.254/", "http://10.0.0.1/"} {
		if r := x.Run(t.Context(), runtime.Task{HTTP: call("GET", to, "")}, &quiet{}); r.Outcome != runtime.Permanent || r.Code != codeNotGranted || !strings.Contains(r.Error, "--http-allow") || strings.Count(r.Error, to) != 1 {
			t.Errorf("%s: %+v", to, r)
		}
	}
	x.Any = false
	if r := x.Run(t.Context(), runtime.Task{HTTP: call("GET", "https://example.com/", "")}, &quiet{}); r.Code != codeNotGranted || strings.Count(r.Error, "example.com") != 1 {
		t.Errorf("nothing is allowed: %+v", r)
	}
	x, to = caller(t, nil)
	x.Any = true
	gone := strings.Replace(to, "http://", "ftp://", 1)
	if r := x.Run(t.Context(), runtime.Task{HTTP: call("GET", gone, "")}, &quiet{}); r.Outcome == runtime.Succeeded {
		t.Errorf("ftp: %+v", r)
	}
}

// failing is a sender that always returns an error.
type failing struct{ err error }

func (f failing) Send(context.Context, *runtime.Grants, runtime.Request) (*runtime.Response, error) {
	return nil, f.err
}

func TestHTTPNotSent(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want runtime.Outcome
	}{
		{fmt.Errorf("x: %w", runtime.ErrUnavailable), runtime.Retryable},
		{runtime.ErrNotGranted, runtime.Permanent},
		{runtime.ErrInvalid, runtime.Permanent},
		{runtime.ErrTooLarge, runtime.Permanent},
		{errors.New("odd"), runtime.Retryable},
	} {
		if r := (&HTTP{Sender: failing{tt.err}}).Run(t.Context(), runtime.Task{HTTP: call("GET", "https://a.example/", "")}, &quiet{}); r.Outcome != tt.want || r.Error == "" {
			t.Errorf("%v: %+v", tt.err, r)
		}
	}
}

func TestRetryable(t *testing.T) {
	for status, want := range map[int]bool{301: false, 400: false, 401: false, 404: false, 408: true, 409: false, 425: true, 429: true, 500: true, 501: false, 502: true, 503: true, 504: true, 505: false} {
		if retryable(status) != want {
			t.Errorf("%d: %v", status, !want)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 3, 8, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "5": 5 * time.Second, " 5 ": 5 * time.Second, "-5": 0, "99999999999": maxRetryAfter, "soon": 0, "99999999999999999999": 0,
		"Sun, 08 Mar 2026 12:01:00 GMT": time.Minute, "Sun, 08 Mar 2026 11:00:00 GMT": 0, "Sun, 08 Mar 2099 11:00:00 GMT": maxRetryAfter,
	} {
		if got := retryAfter(map[string][]string{"Retry-After": {text}}, now); got != want {
			t.Errorf("%q: %s", text, got)
		}
	}
	if retryAfter(nil, now) != 0 {
		t.Error("without the header")
	}
}
