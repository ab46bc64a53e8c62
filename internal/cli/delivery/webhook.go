package delivery

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

const (
	// MaxBody bounds the body of a request, in bytes. A larger event is sent alone.
	MaxBody = 1 << 20
	// requestTimeout bounds one request with its answer.
	requestTimeout = 30 * time.Second
	// maxReason bounds the part of an answer that is read, in bytes.
	maxReason = 300

	// minSecret is the least length of a secret, in bytes, that Standard Webhooks has.
	minSecret    = 24
	secretPrefix = "whsec_"
)

// webhook posts events to a URL, with the headers of Standard Webhooks
// (https://www.standardwebhooks.com).
type webhook struct {
	url    string
	name   string // of the receiver, without what may be a secret
	secret []byte // nil: the requests are not signed
	client *http.Client
}

// NewWebhook returns the receiver at a URL. secret is the content of the file of a secret; "": there is none.
// dial makes the connections; nil: the default.
func NewWebhook(address, secret string, dial func(ctx context.Context, network, address string) (net.Conn, error)) (Receiver, error) {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" {
		return nil, errors.New("--webhook is not the address of a receiver: want https://host/path, without a user")
	}
	if u.Scheme == "http" && !isLoopback(u.Hostname()) {
		return nil, fmt.Errorf("--webhook http://%s: beyond this machine audit events go over https", u.Host)
	}
	key, err := keyOf(secret)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dial, ForceAttemptHTTP2: true, TLSHandshakeTimeout: requestTimeout, MaxIdleConns: 1, IdleConnTimeout: time.Minute,
	}
	return &webhook{url: address, name: u.Scheme + "://" + u.Host, secret: key, client: &http.Client{
		Transport: transport, Timeout: requestTimeout,
		// A redirect could lead the events to another receiver.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func isLoopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// keyOf returns the key of a secret: of one with the prefix whsec_ the decoded rest, and otherwise the text.
func keyOf(secret string) ([]byte, error) {
	if secret == "" {
		return nil, nil
	}
	key := []byte(secret)
	if text, ok := strings.CutPrefix(secret, secretPrefix); ok {
		var err error
		if key, err = base64.StdEncoding.DecodeString(text); err != nil {
			return nil, errors.New("--webhook-secret-file: the text behind whsec_ is not base64")
		}
	}
	if len(key) < minSecret {
		return nil, fmt.Errorf("--webhook-secret-file: the secret has %d bytes, at least %d are needed", len(key), minSecret)
	}
	return key, nil
}

// signature returns the header webhook-signature.
func signature(key []byte, id, timestamp string, body []byte) string {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(id + "." + timestamp + "."))
	h.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(h.Sum(nil))
}

// Deliver implements [Receiver]. It posts as many events as fit in one request, as a JSON array.
func (w *webhook) Deliver(ctx context.Context, events []*sdk.AuditEvent) (n int, err error) {
	body := []byte{'['}
	for _, e := range events {
		one, err := encode(e)
		if err != nil {
			return 0, err
		}
		if n > 0 {
			if len(body)+len(one)+2 > MaxBody {
				break
			}
			body = append(body, ',')
		}
		body = append(body, one...)
		n++
	}
	if err := w.post(ctx, append(body, ']')); err != nil {
		return 0, err
	}
	return n, nil
}

func (w *webhook) post(ctx context.Context, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return final("--webhook: %v", err)
	}
	// The same events have the same id, so that a receiver can drop a request that it has.
	sum := sha256.Sum256(body)
	id, timestamp := "aud_"+hex.EncodeToString(sum[:16]), strconv.FormatInt(time.Now().Unix(), 10)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "wheelwork")
	req.Header.Set("Webhook-Id", id)
	req.Header.Set("Webhook-Timestamp", timestamp)
	if w.secret != nil {
		req.Header.Set("Webhook-Signature", signature(w.secret, id, timestamp, body))
	}
	resp, err := w.client.Do(req)
	if err != nil {
		var of *url.Error
		if errors.As(err, &of) { // its text has the whole URL
			err = of.Err
		}
		return fmt.Errorf("the receiver %s: %w", w.name, err)
	}
	defer resp.Body.Close() //nolint:errcheck // the status has come
	reason, _ := io.ReadAll(io.LimitReader(resp.Body, maxReason))
	return w.judge(resp, strings.TrimSpace(string(reason)))
}

// judge returns the error of an answer.
func (w *webhook) judge(resp *http.Response, reason string) error {
	text := fmt.Sprintf("the receiver %s answered %d %s", w.name, resp.StatusCode, http.StatusText(resp.StatusCode))
	if reason != "" {
		text += ": " + output.Printable(strings.Join(strings.Fields(reason), " "))
	}
	switch code := resp.StatusCode; {
	case code >= 200 && code < 300:
		return nil
	case code == http.StatusRequestTimeout, code == http.StatusTooEarly, code == http.StatusTooManyRequests, code >= 500:
		return &laterError{errors.New(text), retryAfter(resp.Header.Get("Retry-After"), time.Now())}
	case code < 400:
		return final("%s, and events are not sent to another address than that of --webhook: give the address that answers", text)
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return final("%s: check --webhook-secret-file and what the receiver accepts", text)
	case code == http.StatusNotFound, code == http.StatusMethodNotAllowed, code == http.StatusGone:
		return final("%s: check the address of --webhook", text)
	case code == http.StatusRequestEntityTooLarge:
		return final("%s: give a smaller --batch", text)
	}
	return final("%s: it does not accept these events, and its log says why. Mend it and start the command again: it continues with them", text)
}

// retryAfter reads the header of this name; 0: there is none.
func retryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}

// Close implements [Receiver].
func (w *webhook) Close() error {
	w.client.CloseIdleConnections()
	return nil
}
