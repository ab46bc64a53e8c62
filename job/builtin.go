package job

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/expr"
	"github.com/wheelworkhq/wheelwork/job/naming"
)

// Limits of an HTTPCall.
const (
	maxURL      = 8 << 10
	maxHeaders  = 64
	maxHTTPText = 16 << 10 // a header, or all of expect
	maxHTTPTime = 24 * time.Hour

	defaultHTTPTime = 30 * time.Second
)

// methods are the methods that an HTTPCall may have.
var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

// checkBuiltin checks the fields of a handler that belong to the builtins. checkHandler
// calls it.
func checkBuiltin(h *apiv1.Handler) error {
	switch {
	case h.Http != nil && h.Name != "builtin:http":
		return errors.New("handler.http goes with the handler builtin:http only")
	case h.Command != "" && h.Name != "builtin:exec":
		return errors.New("handler.command goes with the handler builtin:exec only")
	case h.Module != "":
		return nil
	case h.Name == "builtin:exec" && h.Command == "":
		return errors.New("handler.command is missing: write the name under which the hosts' operator allows the command")
	case h.Name == "builtin:exec":
		return naming.Check("handler.command", h.Command)
	case h.Name == "builtin:http":
		return checkHTTP(h.Http)
	}
	return nil
}

func checkHTTP(c *apiv1.HTTPCall) error {
	if c.GetUrl() == "" {
		return errors.New("handler.http.url is missing")
	}
	if c.Method = strings.ToUpper(c.Method); c.Method != "" && !slices.Contains(methods, c.Method) {
		return fmt.Errorf("handler.http.method: %.40q is not one of %s", c.Method, strings.Join(methods, ", "))
	}
	if err := checkURL(c.Url); err != nil {
		return fmt.Errorf("handler.http.url: %w", err)
	}
	if len(c.Headers) > maxHeaders {
		return fmt.Errorf("handler.http.headers: %d headers, the limit is %d", len(c.Headers), maxHeaders)
	}
	for name, value := range c.Headers {
		if !isHeader(name) || len(value) > maxHTTPText || strings.ContainsAny(value, "\r\n\x00") {
			return fmt.Errorf("handler.http.headers: %.60q is not the name of a header, or its value has a line break or more than %d bytes", name, maxHTTPText)
		}
		if _, err := httpTemplate(value, true); err != nil {
			return fmt.Errorf("handler.http.headers: %s: %w", name, err)
		}
	}
	if len(c.Body) > MaxInput {
		return fmt.Errorf("handler.http.body is %d bytes, the limit is %d", len(c.Body), MaxInput)
	}
	if _, err := httpTemplate(c.Body, true); err != nil {
		return fmt.Errorf("handler.http.body: %w", err)
	}
	if _, err := statusRanges(c.Expect); err != nil {
		return fmt.Errorf("handler.http.expect: %w", err)
	}
	if _, err := httpTimeout(c); err != nil {
		return err
	}
	return nil
}

func httpTimeout(c *apiv1.HTTPCall) (time.Duration, error) {
	if c.GetTimeout() == "" {
		return defaultHTTPTime, nil
	}
	d, err := time.ParseDuration(c.Timeout)
	if err != nil || d < time.Millisecond || d > maxHTTPTime {
		return 0, fmt.Errorf("handler.http.timeout: %q is not a duration from 1ms to 24h: write it as 500ms, 30s or 5m", c.Timeout)
	}
	return d, nil
}

// checkURL requires a literal scheme and host: the input of a run must not choose the
// server to which the host sends a request.
func checkURL(text string) error {
	if len(text) > maxURL {
		return fmt.Errorf("it is longer than %d bytes", maxURL)
	}
	if expr.NamesSecret(text) {
		return errors.New("it names a secret, but logs contain addresses: use a header or the body")
	}
	t, err := httpTemplate(text, false)
	if err != nil {
		return err
	}
	var plain strings.Builder
	for i, p := range t {
		if p.Ref == nil {
			plain.WriteString(p.Text)
			continue
		}
		_, rest, ok := strings.Cut(plain.String(), "://")
		if i == 0 || !ok || !strings.ContainsAny(rest, "/?") {
			return fmt.Errorf("%q has a reference in its scheme or host: write https://HOST/ without references", text)
		}
		plain.WriteString("x")
	}
	u, err := url.Parse(plain.String())
	switch {
	case err != nil:
		return fmt.Errorf("%.200q is not an address", text)
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return fmt.Errorf("%.200q is not an address: write https://HOST/PATH", text)
	case u.User != nil:
		return errors.New("it contains a user name or a password: send them in a header")
	}
	return nil
}

// isHeader reports whether name is a token of RFC 9110, of at most MaxName bytes.
func isHeader(name string) bool {
	return name != "" && len(name) <= naming.MaxName && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// httpTemplate reads a text with references to the input and, if secrets is true, to
// secrets.
func httpTemplate(text string, secrets bool) (expr.Template, error) {
	t, refs, err := expr.ReadTemplate(text, secrets)
	if err != nil {
		return nil, err
	}
	for _, r := range refs {
		if r.Name != "" {
			return nil, fmt.Errorf("%s refers to a node of a workflow: a request may refer to ${input}", r)
		}
	}
	return t, nil
}

// statusRanges reads the statuses that an HTTPCall accepts as success. It returns the
// first and the last status of each range; without entries, 200 to 299.
func statusRanges(expect []string) ([][2]int, error) {
	if len(expect) == 0 {
		return [][2]int{{200, 299}}, nil
	}
	if len(expect) > maxHeaders {
		return nil, fmt.Errorf("it has %d entries, the limit is %d", len(expect), maxHeaders)
	}
	var ranges [][2]int
	for _, text := range expect {
		first, last, ok := strings.Cut(text, "-")
		if !ok {
			last = first
		}
		if hundred, ok := strings.CutSuffix(text, "xx"); ok {
			first, last = hundred+"00", hundred+"99"
		}
		a, err1 := strconv.Atoi(first)
		b, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil || len(first) != 3 || len(last) != 3 || a < 100 || b > 599 || a > b {
			return nil, fmt.Errorf(`%.40q is not a status: write "200", "200-204" or "2xx"`, text)
		}
		ranges = append(ranges, [2]int{a, b})
	}
	return ranges, nil
}

// Request is an HTTPCall with its references replaced.
type Request struct {
	Method  string
	URL     string
	Headers map[string]string
	Body    []byte
	Expect  [][2]int
	Timeout time.Duration

	Secret     []string // names of headers whose values hold secrets
	SecretBody bool     // the body contains a secret
}

// secretsOf returns the sorted names of the secrets that a request needs, each once.
func secretsOf(c *apiv1.HTTPCall) []string {
	var names []string
	for _, text := range append(slices.Collect(maps.Values(c.GetHeaders())), c.GetBody()) {
		if t, err := httpTemplate(text, true); err == nil {
			names = append(names, t.Secrets()...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// A SecretError reports the secret for which a request could not be filled.
type SecretError struct {
	Name string
	Err  error // without the value
}

func (e *SecretError) Error() string { return "secret " + e.Name + ": " + e.Err.Error() }
func (e *SecretError) Unwrap() error { return e.Err }

// FillRequest returns the request that a run sends. secret returns a secret by its name,
// and an error of it comes back as *SecretError. All other errors follow from the
// definition or the input, so a retry cannot help. No error contains the value of a
// secret.
func FillRequest(c *apiv1.HTTPCall, input []byte, secret func(name string) ([]byte, error)) (Request, error) {
	s := &expr.Scope{Input: input, Check: CheckInput, Secret: func(name string) ([]byte, error) {
		value, err := secret(name)
		if err != nil {
			return nil, &SecretError{name, err}
		}
		return value, nil
	}}
	r := Request{Headers: map[string]string{}}
	var err error
	if r.Expect, err = statusRanges(c.GetExpect()); err != nil {
		return Request{}, fmt.Errorf("handler.http.expect: %w", err)
	}
	if r.Timeout, err = httpTimeout(c); err != nil {
		return Request{}, err
	}
	if err := checkURL(c.GetUrl()); err != nil { // a server of an older version may have accepted it
		return Request{}, fmt.Errorf("url: %w", err)
	}
	if r.URL, err = fillURL(c.Url, s); err != nil {
		return Request{}, fmt.Errorf("url: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		value, secret, err := fillText(c.Headers[name], s)
		if err != nil {
			return Request{}, fmt.Errorf("header %s: %w", name, err)
		}
		if strings.ContainsAny(string(value), "\r\n\x00") {
			return Request{}, fmt.Errorf("header %s: its filled-in value has a line break", name)
		}
		r.Headers[name] = string(value)
		if secret {
			r.Secret = append(r.Secret, name)
		}
	}
	if r.Body = input; c.Body != "" {
		if r.Body, r.SecretBody, err = fillText(c.Body, s); err != nil {
			return Request{}, fmt.Errorf("body: %w", err)
		}
	}
	byBody := "GET"
	if len(r.Body) > 0 {
		byBody = "POST"
	}
	if r.Method = cmp.Or(c.Method, byBody); c.Body == "" && (r.Method == "GET" || r.Method == "HEAD") {
		r.Body = nil
	}
	return r, nil
}

func fillText(text string, s *expr.Scope) (filled []byte, secret bool, err error) {
	t, err := httpTemplate(text, true)
	if err != nil {
		return nil, false, err
	}
	filled, err = t.Fill(s)
	return filled, len(t.Secrets()) > 0, err
}

// fillURL escapes values of the input, so that each remains one segment of the path or
// one value of the query.
func fillURL(text string, s *expr.Scope) (string, error) {
	t, err := httpTemplate(text, false)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, p := range t {
		if p.Ref == nil {
			b.WriteString(p.Text)
			continue
		}
		value, err := expr.Template{p}.Fill(s)
		if err != nil {
			return "", err
		}
		escaped := strings.ReplaceAll(url.QueryEscape(string(value)), "+", "%20")
		if v := string(value); v == "" || strings.Trim(v, ".") == "" {
			return "", fmt.Errorf("%s is %q, which would change the path of the address", p.Ref, v)
		}
		b.WriteString(escaped)
	}
	if b.Len() > maxURL {
		return "", fmt.Errorf("it is longer than %d bytes", maxURL)
	}
	return b.String(), nil
}
