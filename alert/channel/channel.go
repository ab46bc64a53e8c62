package channel

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/wheelworkhq/wheelwork/alert/notification"
)

// Kind is a kind of channel.
type Kind string

// Kinds of channels.
const (
	KindWebhook      Kind = "webhook"
	KindWeCom        Kind = "wecom"
	KindDingTalk     Kind = "dingtalk"
	KindFeishu       Kind = "feishu"
	KindLark         Kind = "lark"
	KindSlack        Kind = "slack"
	KindTeams        Kind = "teams"
	KindDiscord      Kind = "discord"
	KindTelegram     Kind = "telegram"
	KindPagerDuty    Kind = "pagerduty"
	KindAlertmanager Kind = "alertmanager"
	KindMail         Kind = "mail"
	KindCommand      Kind = "command"
	KindCloudEvents  Kind = "cloudevents"
)

// Kinds returns all kinds.
func Kinds() []Kind {
	return []Kind{
		KindWebhook, KindWeCom, KindDingTalk, KindFeishu, KindLark, KindSlack, KindTeams, KindDiscord, KindTelegram,
		KindPagerDuty, KindAlertmanager, KindMail, KindCommand, KindCloudEvents,
	}
}

// Verdict says what an attempt means for a message.
type Verdict string

// Verdicts.
const (
	Delivered   Verdict = "delivered"    // the platform has the message
	RateLimited Verdict = "rate_limited" // no message of the channel before Until
	Refused     Verdict = "refused"      // the same message will never be taken: a wrong key, a malformed request
	Retry       Verdict = "retry"        // it may be taken later
)

// Result is what became of one attempt. Its texts have no secret and no address with one.
type Result struct {
	Verdict   Verdict   `json:"verdict"`
	Status    int       `json:"status,omitempty"`     // of HTTP or SMTP, or the exit code of a command
	Code      string    `json:"code,omitempty"`       // the platform's own
	Reason    string    `json:"reason,omitempty"`     // for people, at most 500 bytes
	RequestID string    `json:"request_id,omitempty"` // by which the platform knows the request
	Until     time.Time `json:"until,omitzero"`       // of RateLimited
	Note      string    `json:"note,omitempty"`       // what went wrong although the message was sent, such as a template that failed
	// Rest are the recipients of a mail that are left for the next attempt, because the others
	// have the mail; empty: all. See [Partial].
	Rest []string `json:"rest,omitempty"`
}

// Bounds of an attempt.
const (
	Timeout   = 15 * time.Second // until an answer is complete
	maxAnswer = 64 << 10         // bytes of an answer that are read
	maxReason = 500              // bytes of a reason, a code or a note
	maxBlock  = 24 * time.Hour   // that an answer may block a channel
	pause     = time.Minute      // after an answer that names no time
	redirects = 3                // followed on the same host
)

// Channel sends messages to one receiver. It is safe for concurrent use.
type Channel interface {
	Kind() Kind
	// Send makes one attempt, at the time now.
	Send(ctx context.Context, now time.Time, m notification.Message) Result
}

// Partial is a channel that may deliver a message to a part of its recipients.
type Partial interface {
	Channel
	// Only returns the same channel for those of its recipients that are in rest.
	Only(rest []string) Channel
}

// Endpoint is the receiver of a kind that takes HTTP requests.
type Endpoint interface {
	Kind() Kind
	// Check returns an error that names the field that is wrong.
	Check() error
	// request returns the request for a message.
	request(now time.Time, t *texts) (*http.Request, error)
	// read says what an answer means.
	read(now time.Time, a answer) Result
	// secrets are texts that no error may contain.
	secrets() []string
}

// HTTP is a channel over HTTP.
type HTTP struct {
	endpoint Endpoint
	client   http.Client
	renderer *notification.Renderer
}

// Over returns a channel to an endpoint. The client decides which addresses may be reached;
// the channel follows no redirect to another host.
func Over(client *http.Client, e Endpoint, r *notification.Renderer) (*HTTP, error) {
	if err := e.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", e.Kind(), err)
	}
	h := &HTTP{endpoint: e, client: *client, renderer: r}
	h.client.CheckRedirect = sameHost
	return h, nil
}

// sameHost follows a redirect that keeps the method, the body and the receiver. The client
// returns any other redirect as the answer.
func sameHost(to *http.Request, via []*http.Request) error {
	from := via[0]
	if len(via) > redirects || to.Method != from.Method || to.URL.Host != from.URL.Host || to.URL.Scheme != from.URL.Scheme {
		return http.ErrUseLastResponse
	}
	return nil
}

// Kind returns the kind of the endpoint.
func (h *HTTP) Kind() Kind { return h.endpoint.Kind() }

// Request returns the request that Send sends, to show or to test it.
func (h *HTTP) Request(now time.Time, m notification.Message) (*http.Request, error) {
	req, _, err := h.build(now, m)
	return req, err
}

func (h *HTTP) build(now time.Time, m notification.Message) (*http.Request, string, error) {
	if err := m.Check(); err != nil {
		return nil, "", err
	}
	t := &texts{renderer: h.renderer, message: m}
	req, err := h.endpoint.request(now, t)
	if err != nil {
		return nil, "", err
	}
	req.Header.Set("User-Agent", "wheelwork")
	return req, t.note(), nil
}

// Send makes one attempt.
func (h *HTTP) Send(ctx context.Context, now time.Time, m notification.Message) Result {
	req, note, err := h.build(now, m)
	if err != nil {
		return Result{Verdict: Refused, Reason: h.hide("make the request: " + err.Error())}
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	r := h.exchange(req.WithContext(ctx), now)
	r.Reason, r.Code, r.RequestID, r.Note = h.hide(r.Reason), h.hide(r.Code), h.hide(r.RequestID), h.hide(note)
	if r.Verdict == RateLimited {
		if !r.Until.After(now) {
			r.Until = now.Add(pause)
		}
		if latest := now.Add(maxBlock); r.Until.After(latest) {
			r.Until = latest
		}
	}
	return r
}

func (h *HTTP) exchange(req *http.Request, now time.Time) Result {
	resp, err := h.client.Do(req)
	if err != nil {
		return Result{Verdict: verdictOf(err), Reason: withoutURL(err).Error()}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return Result{Verdict: Retry, Status: resp.StatusCode, Reason: "read the answer: " + withoutURL(err).Error()}
	}
	if resp.StatusCode/100 == 3 {
		return Result{Verdict: Refused, Status: resp.StatusCode, Reason: "the answer is a redirect that is not followed"}
	}
	r := h.endpoint.read(now, answer{status: resp.StatusCode, header: resp.Header, body: body})
	r.Status = resp.StatusCode
	for _, name := range []string{"X-Request-Id", "Request-Id", "X-Slack-Req-Id", "X-Tt-Logid", "X-Ms-Request-Id", "Cf-Ray"} {
		r.RequestID = cmp.Or(r.RequestID, resp.Header.Get(name))
	}
	return r
}

// verdictOf says what an error without an answer means: an address that the operator of the server
// does not allow stays refused until the operator restarts the server with another flag.
func verdictOf(err error) Verdict {
	var x interface {
		error
		NotAllowed() bool
	}
	if errors.As(err, &x) && x.NotAllowed() {
		return Refused
	}
	return Retry
}

// withoutURL returns the cause of an error of the client: the error itself has the address.
func withoutURL(err error) error {
	for {
		var u *url.Error
		if !errors.As(err, &u) {
			return err
		}
		err = u.Err
	}
}

// hide bounds a text and removes secrets from it, also as they are in an address.
func (h *HTTP) hide(s string) string { return hide(s, h.endpoint.secrets()) }

func hide(s string, secrets []string) string {
	for _, secret := range secrets {
		if secret == "" {
			continue
		}
		for _, form := range []string{secret, url.QueryEscape(secret), url.PathEscape(secret)} {
			s = strings.ReplaceAll(s, form, "[hidden]")
		}
	}
	return notification.Cut(strings.Join(strings.Fields(s), " "), maxReason)
}

// secretsOf returns the parts of an address that no error may contain: its path, its query
// and its user. Robots have their key in one of them.
func secretsOf(address string) []string {
	out := []string{address}
	u, err := url.Parse(address)
	if err != nil {
		return out
	}
	if password, ok := u.User.Password(); ok {
		out = append(out, password)
	}
	if u.RawQuery != "" {
		out = append(out, u.RawQuery)
	}
	if len(u.EscapedPath()) > 1 {
		out = append(out, u.EscapedPath(), u.Path)
	}
	for _, values := range u.Query() {
		for _, v := range values {
			if len(v) >= 8 { // a shorter one is a flag, and would hide words
				out = append(out, v)
			}
		}
	}
	for segment := range strings.SplitSeq(u.Path, "/") {
		if len(segment) >= 16 {
			out = append(out, segment)
		}
	}
	return out
}

// checkURL returns an error for an address that no request can have. It does not repeat
// the address, which may have a key in it.
func checkURL(address string) error {
	u, err := url.Parse(address)
	switch {
	case address == "":
		return errors.New("url is missing")
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return errors.New("url is malformed: it begins with https:// or http:// and a host")
	case u.Fragment != "":
		return errors.New("url has a fragment, which no request can have")
	}
	return nil
}

// texts renders a message and collects the errors of the operator's templates.
type texts struct {
	renderer *notification.Renderer
	message  notification.Message
	errs     []error
}

func (t *texts) title() string { return t.take(t.renderer.Title(t.message)) }
func (t *texts) text() string  { return t.take(t.renderer.Text(t.message)) }
func (t *texts) html() string  { return t.take(t.renderer.HTML(t.message)) }

func (t *texts) markdown(d notification.Dialect) string {
	return t.take(t.renderer.Markdown(t.message, d))
}

func (t *texts) take(s string, err error) string {
	if err != nil {
		t.errs = append(t.errs, err)
	}
	return s
}

func (t *texts) note() string {
	if len(t.errs) == 0 {
		return ""
	}
	return "the built-in text was sent: " + t.errs[0].Error()
}

// fit returns whole lines of a text, as [notification.FitBy].
func (t *texts) fit(s string, limit int, size func(string) int) string {
	return notification.FitBy(s, limit, t.message.Language(), size)
}

// answer is what a platform has answered.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// byStatus reads an answer whose status says all.
func (a answer) byStatus(now time.Time) Result {
	text := strings.ToValidUTF8(string(a.body), "�")
	switch {
	case a.status/100 == 2:
		return Result{Verdict: Delivered}
	case a.status == http.StatusTooManyRequests, a.status == http.StatusServiceUnavailable && a.header.Get("Retry-After") != "":
		return Result{Verdict: RateLimited, Until: a.retryAfter(now), Reason: text}
	case a.status == http.StatusRequestTimeout, a.status == http.StatusTooEarly, a.status >= 500:
		return Result{Verdict: Retry, Reason: cmp.Or(text, http.StatusText(a.status))}
	}
	return Result{Verdict: Refused, Reason: cmp.Or(text, http.StatusText(a.status))}
}

// retryAfter returns the time of the header Retry-After: seconds or a date, as in RFC 9110.
// Zero: the answer names none.
func (a answer) retryAfter(now time.Time) time.Time {
	value := strings.TrimSpace(a.header.Get("Retry-After"))
	if seconds, err := strconv.ParseFloat(value, 64); err == nil && seconds >= 0 {
		return after(now, seconds)
	}
	if at, err := http.ParseTime(value); err == nil {
		return at
	}
	return time.Time{}
}

// after returns the time in some seconds, rounded up to milliseconds.
func after(now time.Time, seconds float64) time.Time {
	seconds = min(seconds, maxBlock.Seconds())
	return now.Add(time.Duration(seconds*1000+0.999) * time.Millisecond)
}

// post returns a request with a JSON body.
func post(address string, body any) (*http.Request, error) {
	text, err := encode(body)
	if err != nil {
		return nil, err
	}
	return postBytes(address, text)
}

func postBytes(address string, body []byte) (*http.Request, error) {
	req, err := http.NewRequest(http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("the address is malformed")
	}
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	return req, nil
}

// encode returns JSON without escapes for HTML, which would count against the limits of
// platforms.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// jsonSize returns the bytes that a text has in JSON.
func jsonSize(s string) int {
	text, err := encode(s)
	if err != nil {
		return len(s)
	}
	return len(text) - 2
}
