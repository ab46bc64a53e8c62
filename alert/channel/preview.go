package channel

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/wheelworkhq/wheelwork/alert/notification"
)

// Preview is what a channel would send: a request, a mail, or the input of a command.
type Preview struct {
	Title  string // of the message, as the channel's templates make it
	Method string // of a request; "": it is none
	URL    string // without its key
	// Headers are those of the request, or those of the mail that people see.
	Headers map[string]string
	Body    string // of the request, the text of a mail, or the input of a command
	HTML    string // the other form of a mail
	Note    string // why a built-in text takes the place of a template
}

// Previewer is a channel that shows what it would send.
type Previewer interface {
	Channel
	// Preview makes what Send sends at the time now. It reaches nothing.
	Preview(now time.Time, m notification.Message) (Preview, error)
}

// Preview implements [Previewer].
func (h *HTTP) Preview(now time.Time, m notification.Message) (Preview, error) {
	req, note, err := h.build(now, m)
	if err != nil {
		return Preview{}, err
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return Preview{}, fmt.Errorf("read the body: %w", err)
	}
	p := Preview{Title: h.title(m), Method: req.Method, URL: withoutKey(req.URL), Headers: headersOf(req.Header), Body: string(body), Note: h.hide(note)}
	return p, nil
}

func (h *HTTP) title(m notification.Message) string {
	t := &texts{renderer: h.renderer, message: m}
	return t.title()
}

func headersOf(h http.Header) map[string]string {
	all := make(map[string]string, len(h))
	for name, values := range h {
		all[name] = strings.Join(values, ", ")
	}
	return all
}

// hidden takes the place of a key.
const hidden = "[hidden]"

// withoutKey returns an address without the parts that are keys on some platform: long parts of the
// path, and the values of the query.
func withoutKey(u *url.URL) string {
	parts := strings.Split(u.EscapedPath(), "/")
	for i, part := range parts {
		if len(part) >= 16 {
			parts[i] = hidden
		}
	}
	s := u.Scheme + "://" + u.Host + strings.Join(parts, "/")
	if u.RawQuery == "" {
		return s
	}
	pairs := strings.Split(u.RawQuery, "&")
	for i, pair := range pairs {
		if name, _, ok := strings.Cut(pair, "="); ok {
			pairs[i] = name + "=" + hidden
		} else {
			pairs[i] = hidden
		}
	}
	return s + "?" + strings.Join(pairs, "&")
}

// Preview implements [Previewer].
func (c mailer) Preview(_ time.Time, m notification.Message) (Preview, error) {
	if err := m.Check(); err != nil {
		return Preview{}, err
	}
	t := &texts{renderer: c.renderer, message: m}
	p := Preview{Title: t.title(), URL: c.URL, Body: t.text(), HTML: t.html()}
	p.Headers = map[string]string{"From": c.From, "To": strings.Join(c.recipients(m), ", "), "Subject": p.Title}
	p.Note = t.note()
	return p, nil
}

// Preview implements [Previewer].
func (c commander) Preview(now time.Time, m notification.Message) (Preview, error) {
	if err := m.Check(); err != nil {
		return Preview{}, err
	}
	t := &texts{renderer: c.renderer, message: m}
	input, err := t.payload(now)
	return Preview{Title: t.title(), Body: string(input), Note: t.note()}, err
}
