package builtin

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/process"
)

// Sender sends a request if the grants allow it. It checks the address that it dials and
// every redirect.
type Sender interface {
	Send(ctx context.Context, g *runtime.Grants, r runtime.Request) (*runtime.Response, error)
}

// HTTP sends the request of a task. The body of the response is the output. See
// [runtime.Executor].
type HTTP struct {
	Sender Sender
	Grants *runtime.Grants // the servers that the operator of the host allows jobs to call
	Any    bool            // allow every server on the Internet, in addition to Grants
}

// Codes of results.
const (
	codeBadTask     = "bad_task"
	codeStopped     = "stopped"
	codeDeadline    = "deadline"
	codeOutputLimit = "output_limit"
	codeNotGranted  = "not_granted"
	codeUnreachable = "http_unreachable"
	codeTimeout     = "http_timeout"
	codeHTTPFailed  = "http_failed"
)

const defaultOutputBytes = 1 << 20

func failed(o runtime.Outcome, code, format string, args ...any) runtime.Result {
	return runtime.Result{Outcome: o, Code: code, Error: process.OneLine(fmt.Sprintf(format, args...))}
}

var (
	errDeadline = errors.New("the timeout passed")
	errSlow     = errors.New("the answer took too long")
)

// Run sends the request of a task and waits for the response.
func (h *HTTP) Run(ctx context.Context, t runtime.Task, sink runtime.Sink) runtime.Result {
	start := time.Now()
	r := h.run(ctx, &t, sink)
	r.Duration = time.Since(start)
	return r
}

func (h *HTTP) run(ctx context.Context, t *runtime.Task, sink runtime.Sink) runtime.Result {
	c := t.HTTP
	if c == nil {
		return failed(runtime.Permanent, codeBadTask, "the task has no request: define handler.http")
	}
	u, err := url.Parse(c.Request.URL)
	if err != nil {
		return failed(runtime.Permanent, codeBadTask, "the address is malformed")
	}
	if !t.Deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, t.Deadline, errDeadline)
		defer cancel()
	}
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.Timeout, errSlow)
		defer cancel()
	}
	where := c.Request.Method + " " + u.Scheme + "://" + u.Host + u.EscapedPath() // without the query, which may be confidential
	start := time.Now()
	res, err := h.Sender.Send(ctx, h.grants(c.Request.Method, u), request(t))
	if err != nil {
		return h.notSent(ctx, t, where, err)
	}
	limit := cmp.Or(t.Limits.OutputBytes, defaultOutputBytes)
	body, err := io.ReadAll(io.LimitReader(res.Body, limit+1))
	err = errors.Join(err, res.Body.Close())
	size := int64(len(body))
	if c.Redact != nil {
		if size > limit { // the limit may have cut a secret in two, which Redact would not find
			body = nil
		}
		body = c.Redact(body)
	}
	sink.Log(runtime.LevelInfo, fmt.Appendf(nil, "%s: status %d, %d bytes, %s", where, res.Status, min(size, limit), time.Since(start).Round(time.Millisecond)))
	switch {
	case !expected(c.Expect, res.Status):
		return refused(where, res, body[:min(int64(len(body)), limit)])
	case size > limit, errors.Is(err, runtime.ErrTooLarge):
		return failed(runtime.Permanent, codeOutputLimit, "%s: the answer has more than %d bytes: ask for less or raise the limit", where, limit)
	case err != nil:
		return h.notSent(ctx, t, where, err)
	}
	return runtime.Result{Outcome: runtime.Succeeded, Output: body}
}

// grants returns the grants of the operator. If Any is set and they do not cover the
// request, it adds the host of the request. A redirect to a third host is then not
// followed.
func (h *HTTP) grants(method string, u *url.URL) *runtime.Grants {
	if !h.Any || h.Grants.Request(method, u) != nil {
		return h.Grants
	}
	var g runtime.Grants
	if h.Grants != nil {
		g.HTTP = slices.Clone(h.Grants.HTTP)
	}
	g.HTTP = append(g.HTTP, runtime.HTTPGrant{Host: u.Host, Methods: Methods})
	return &g
}

// Methods are the methods that a job may use.
var Methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

// request adds headers by which the called server can distinguish the attempts of one
// run.
func request(t *runtime.Task) runtime.Request {
	r := t.HTTP.Request
	own := map[string]string{"Wheelwork-Run": t.RunID, "Wheelwork-Attempt": strconv.Itoa(t.Attempt)}
	if t.TraceParent != "" {
		own["Traceparent"] = t.TraceParent
		if t.TraceState != "" {
			own["Tracestate"] = t.TraceState
		}
	}
	if len(r.Body) > 0 {
		own["Content-Type"] = "application/json"
	}
	r.SecretTo = t.Grants
	header := map[string][]string{}
	for name, values := range r.Header {
		header[name] = values
		for k := range own {
			if strings.EqualFold(k, name) {
				delete(own, k)
			}
		}
	}
	for name, value := range own {
		header[name] = []string{value}
	}
	r.Header = header
	return r
}

// notSent returns the result when there is no complete response.
func (h *HTTP) notSent(ctx context.Context, t *runtime.Task, where string, err error) runtime.Result {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errDeadline):
		return failed(runtime.TimedOut, codeDeadline, "%s: %v", where, cause)
	case errors.Is(cause, errSlow):
		return failed(runtime.Retryable, codeTimeout, "%s: no complete answer within %s", where, t.HTTP.Timeout)
	case cause != nil:
		return failed(runtime.Stopped, codeStopped, "%s: cancelled", where)
	}
	switch {
	case errors.Is(err, runtime.ErrNotGranted):
		return refusedSend(t, where, err)
	case errors.Is(err, runtime.ErrInvalid), errors.Is(err, runtime.ErrTooLarge):
		return failed(runtime.Permanent, codeBadTask, "%s: %v", where, err)
	case errors.Is(err, runtime.ErrUnavailable):
		return failed(runtime.Retryable, codeUnreachable, "%s: %v", where, err)
	}
	return failed(runtime.Retryable, codeHTTPFailed, "%s: %v", where, err)
}

// refusedSend is the result of a request that no grant covers. Another attempt would be
// refused as well.
func refusedSend(t *runtime.Task, where string, err error) runtime.Result {
	why := "the operator of this host does not allow it: a host allows a server with --http-allow, and one on its machine or network with --http-allow-private"
	if t.HTTP.Confidential() {
		why = fmt.Sprintf("a secret is sent only where the operator of the host (--http-allow) and the owner of the app (`wheelwork module grant builtin:http --app %s`) allow it", t.App)
	}
	// The request itself is in where; a redirect leads to another one.
	if _, what, ok := strings.Cut(err.Error(), runtime.ErrNotGranted.Error()+": "); ok && what != where {
		why += ": " + what
	}
	return failed(runtime.Permanent, codeNotGranted, "%s: %s", where, why)
}

func expected(ranges []runtime.StatusRange, status int) bool {
	if len(ranges) == 0 {
		return status >= 200 && status <= 299
	}
	return slices.ContainsFunc(ranges, func(r runtime.StatusRange) bool { return r.First <= status && status <= r.Last })
}

// refused returns the result of a response whose status is not a success. The status
// decides whether another attempt may succeed.
func refused(where string, res *runtime.Response, body []byte) runtime.Result {
	r := failed(runtime.Permanent, "http_"+strconv.Itoa(res.Status), "%s: status %d%s", where, res.Status, said(body))
	r.Output = body
	if retryable(res.Status) {
		r.Outcome, r.RetryAfter = runtime.Retryable, retryAfter(res.Header, time.Now())
	}
	return r
}

// said returns the beginning of the body for the error text.
func said(body []byte) string {
	const most = 200
	line := bytes.TrimSpace(body)
	if len(line) == 0 || bytes.IndexByte(line[:min(len(line), most)], 0) >= 0 {
		return ""
	}
	return ": " + process.OneLine(string(line[:min(len(line), most)]))
}

// retryable reports whether the same request may succeed later. This holds for the
// statuses 408 (timeout), 425 (too early) and 429 (too many requests), and for server
// errors but 501 and 505, which say that the server does not support the request.
func retryable(status int) bool {
	switch status {
	case 408, 425, 429:
		return true
	case 501, 505:
		return false
	}
	return status >= 500
}

// maxRetryAfter bounds the delay that a server may ask for.
const maxRetryAfter = 24 * time.Hour

// retryAfter parses the header Retry-After: seconds or a date. It returns 0 if there is
// none.
func retryAfter(header map[string][]string, now time.Time) time.Duration {
	values := header["Retry-After"]
	if len(values) == 0 {
		return 0
	}
	text := strings.TrimSpace(values[0])
	if seconds, err := strconv.ParseInt(text, 10, 64); err == nil {
		return time.Duration(min(max(seconds, 0), int64(maxRetryAfter/time.Second))) * time.Second
	}
	const imfFixdate = "Mon, 02 Jan 2006 15:04:05 GMT"
	if at, err := time.Parse(imfFixdate, text); err == nil {
		return min(max(at.Sub(now), 0), maxRetryAfter)
	}
	return 0
}
