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

// Sender sends a request under grants. It holds them against the address that is
// dialled and against every redirect.
type Sender interface {
	Send(ctx context.Context, g *runtime.Grants, r runtime.Request) (*runtime.Response, error)
}

// HTTP sends the request of a task; the answer's body is the output. See
// [runtime.Executor].
type HTTP struct {
	Sender Sender
	Grants *runtime.Grants // which servers the operator of the host lets jobs call
	Any    bool            // every server on the Internet, beside those of Grants
}

// Codes of results.
const (
	codeBadTask     = "bad_task"
	codeStopped     = "stopped"
	codeDeadline    = "deadline"
	codeOutputLimit = "output_limit"
	codeNotAllowed  = "http_not_allowed"
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

// Run sends the request of a task and waits for the answer.
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
	where := c.Request.Method + " " + u.Scheme + "://" + u.Host + u.EscapedPath() // a query may hold what is nobody's business
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
		if size > limit { // the cut may go through a secret
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

// grants are those of the operator, and the server itself when every one may be
// called. A redirect to a third one is then not followed.
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

// Methods are what a job may send.
var Methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

// request adds what the server can tell tries of one run apart by.
func request(t *runtime.Task) runtime.Request {
	r := t.HTTP.Request
	own := map[string]string{"Wheelwork-Run": t.RunID, "Wheelwork-Attempt": strconv.Itoa(t.Attempt)}
	if t.TraceParent != "" {
		own["Traceparent"] = t.TraceParent
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

// notSent is the result when there is no whole answer.
func (h *HTTP) notSent(ctx context.Context, t *runtime.Task, where string, err error) runtime.Result {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errDeadline):
		return failed(runtime.TimedOut, codeDeadline, "%s: %v", where, cause)
	case errors.Is(cause, errSlow):
		return failed(runtime.Retryable, codeTimeout, "%s: no whole answer within %s", where, t.HTTP.Timeout)
	case cause != nil:
		return failed(runtime.Stopped, codeStopped, "%s: cancelled", where)
	}
	switch {
	case errors.Is(err, runtime.ErrNotGranted) && t.HTTP.Confidential():
		return failed(runtime.Permanent, codeNotGranted, "%s: a secret is sent only where the operator of the host and the owner of the app allow it (`wheelwork module grant builtin:http`): %v", where, err)
	case errors.Is(err, runtime.ErrNotGranted):
		// Not by this host: another one may be allowed to.
		return failed(runtime.HostError, codeNotAllowed, "%s: the operator of this host does not allow it: %v", where, err)
	case errors.Is(err, runtime.ErrInvalid), errors.Is(err, runtime.ErrTooLarge):
		return failed(runtime.Permanent, codeBadTask, "%s: %v", where, err)
	case errors.Is(err, runtime.ErrUnavailable):
		return failed(runtime.Retryable, codeUnreachable, "%s: %v", where, err)
	}
	return failed(runtime.Retryable, codeHTTPFailed, "%s: %v", where, err)
}

func expected(ranges []runtime.StatusRange, status int) bool {
	if len(ranges) == 0 {
		return status >= 200 && status <= 299
	}
	return slices.ContainsFunc(ranges, func(r runtime.StatusRange) bool { return r.First <= status && status <= r.Last })
}

// refused is the result of an answer that is no success. The server's own word
// decides whether another try may help.
func refused(where string, res *runtime.Response, body []byte) runtime.Result {
	r := failed(runtime.Permanent, "http_"+strconv.Itoa(res.Status), "%s: status %d%s", where, res.Status, said(body))
	r.Output = body
	if retryable(res.Status) {
		r.Outcome, r.RetryAfter = runtime.Retryable, retryAfter(res.Header, time.Now())
	}
	return r
}

// said is the beginning of an answer, for a person.
func said(body []byte) string {
	const most = 200
	line := bytes.TrimSpace(body)
	if len(line) == 0 || bytes.IndexByte(line[:min(len(line), most)], 0) >= 0 {
		return ""
	}
	return ": " + process.OneLine(string(line[:min(len(line), most)]))
}

// retryable reports whether a status says that the same request may succeed
// later: timeouts, "too early", "too many", and a server's own trouble, but not
// that it does not know how.
func retryable(status int) bool {
	switch status {
	case 408, 425, 429:
		return true
	case 501, 505:
		return false
	}
	return status >= 500
}

// maxRetryAfter bounds what a server may ask for.
const maxRetryAfter = 24 * time.Hour

// retryAfter reads the header of that name: seconds, or a date.
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
