package channel

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	netmail "net/mail"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/wneessen/go-mail"
	"github.com/wneessen/go-mail/smtp"

	"github.com/wheelworkhq/wheelwork/alert/notification"
)

// Mail is a list of people that a mail server reaches. Source: RFC 5321 (answers of a
// server), RFC 5322 (Message-ID and References), RFC 8314 (TLS) and RFC 3834
// (Auto-Submitted).
type Mail struct {
	// URL is smtp://HOST[:587], with TLS by STARTTLS, or smtps://HOST[:465], with TLS from the
	// start.
	URL string
	// Plain sends without TLS if the server does not offer it, and never sends the password
	// then. It is for a server on the same machine or network.
	Plain    bool
	Username string // "": the server wants no sign-in
	Password string
	From     string
	To       []string
	ToOwner  bool        // whether the owners of the jobs get a message too, if they are mail addresses
	TLS      *tls.Config // default: that of the system
	// Dial guards what may be reached; default: no guard.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// maxRecipients bounds the recipients of a channel: RFC 5321 promises that a server takes
// 100.
const maxRecipients = 100

// Check returns an error that names the field that is wrong.
func (c Mail) Check() error {
	if _, _, _, err := c.server(); err != nil {
		return err
	}
	if _, err := address(c.From); err != nil {
		return errors.New("from is not an address: " + err.Error())
	}
	if len(c.To) == 0 || len(c.To) > maxRecipients {
		return fmt.Errorf("to has %d addresses, want 1 to %d", len(c.To), maxRecipients)
	}
	for _, to := range c.To {
		if _, err := address(to); err != nil {
			return fmt.Errorf("to has %q, which is not an address: %w", to, err)
		}
	}
	if c.Username == "" && c.Password != "" {
		return errors.New("password has no username")
	}
	return nil
}

// address parses an address, with or without a name.
func address(s string) (*netmail.Address, error) {
	a, err := netmail.ParseAddress(s)
	if err != nil {
		return nil, err
	}
	if strings.ContainsAny(a.Address, "\r\n<>") {
		return nil, errors.New("it has a character that no address has")
	}
	return a, nil
}

// server returns the host and the port, and whether TLS begins with the connection.
func (c Mail) server() (host string, port int, implicit bool, err error) {
	u, err := url.Parse(c.URL)
	if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || strings.Trim(u.Path, "/") != "" {
		return "", 0, false, errors.New("url is malformed: it is smtp://HOST or smtps://HOST, with a port or without")
	}
	switch u.Scheme {
	case "smtp":
		port = 587
	case "smtps":
		port, implicit = 465, true
	default:
		return "", 0, false, errors.New("url is malformed: it begins with smtp:// or smtps://")
	}
	if p := u.Port(); p != "" {
		if port, err = strconv.Atoi(p); err != nil || port < 1 || port > 65535 {
			return "", 0, false, errors.New("url has a port that is none")
		}
	}
	return u.Hostname(), port, implicit, nil
}

// mailer is a channel of mails.
type mailer struct {
	Mail
	renderer *notification.Renderer
	only     []string // a part of the recipients; empty: all
}

// NewMail returns a channel that sends mails.
func NewMail(c Mail, r *notification.Renderer) (Channel, error) {
	if err := c.Check(); err != nil {
		return nil, fmt.Errorf("mail: %w", err)
	}
	return mailer{c, r, nil}, nil
}

// Kind returns KindMail.
func (c mailer) Kind() Kind { return KindMail }

// Only returns the channel for a part of the recipients.
func (c mailer) Only(rest []string) Channel {
	c.only = rest
	return c
}

// recipients returns those of To, and the owners of the jobs of a message, each address once and
// at most as many as a server takes.
func (c mailer) recipients(m notification.Message) (all []string) {
	seen := map[string]bool{}
	add := func(s string) {
		a, err := address(s)
		if err != nil || len(all) >= maxRecipients || seen[strings.ToLower(a.Address)] {
			return
		}
		seen[strings.ToLower(a.Address)] = true
		if len(c.only) == 0 || slices.Contains(c.only, s) {
			all = append(all, s)
		}
	}
	for _, to := range c.To {
		add(to)
	}
	if c.ToOwner {
		for i := range m.Notifications {
			for _, owner := range m.Notifications[i].Owners {
				add(owner)
			}
		}
	}
	return all
}

// Send makes one attempt. If the server takes the mail for some recipients, those that it
// refuses for ever are in Note, and those that it may take later in Rest, so that another
// attempt does not reach the others twice.
func (c mailer) Send(ctx context.Context, now time.Time, m notification.Message) Result {
	r := c.send(ctx, now, m)
	secrets := []string{c.Password}
	r.Reason, r.Note, r.RequestID = hide(r.Reason, secrets), hide(r.Note, secrets), hide(r.RequestID, secrets)
	return r
}

func (c mailer) send(ctx context.Context, now time.Time, m notification.Message) Result {
	if err := m.Check(); err != nil {
		return Result{Verdict: Refused, Reason: err.Error()}
	}
	msg, note, err := c.message(now, m)
	if err != nil {
		return Result{Verdict: Refused, Reason: "make the mail: " + err.Error()}
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	client, err := c.dial(ctx)
	if err != nil {
		return smtpResult("connect", err)
	}
	defer func() { _ = client.Quit() }() // the answer to the mail has come, or will not
	from, err := address(c.From)
	if err == nil {
		err = client.Mail("<" + from.Address + ">")
	}
	if err != nil {
		return smtpResult("sender", err)
	}
	var refused, later []string
	var final, last error
	recipients := c.recipients(m)
	for _, s := range recipients {
		to, err := address(s)
		if err == nil {
			err = client.Rcpt("<" + to.Address + ">")
		}
		switch {
		case err == nil:
		case smtpResult("", err).Verdict == Refused:
			refused, final = append(refused, s), err
		default:
			later, last = append(later, s), err
		}
	}
	if len(refused) == len(recipients) {
		return smtpResult("recipients", final)
	}
	if len(refused) > 0 {
		note = strings.TrimPrefix(note+"; ", "; ") + "the server refuses " + strings.Join(refused, ", ") + ": " + final.Error()
	}
	if len(refused)+len(later) == len(recipients) {
		r := smtpResult("recipients", last)
		r.Verdict, r.Note, r.Rest = Retry, note, later
		return r
	}
	w, err := client.Data()
	if err != nil {
		return smtpResult("data", err)
	}
	if _, err := msg.WriteTo(w); err != nil {
		return Result{Verdict: Retry, Reason: "send the mail: " + err.Error()}
	}
	if err := w.Close(); err != nil {
		return smtpResult("data", err)
	}
	r := Result{Verdict: Delivered, Status: 250, Note: note}
	if d, ok := w.(*smtp.DataCloser); ok {
		r.RequestID = d.ServerResponse() // most servers name their id of the mail
	}
	if len(later) > 0 {
		r.Verdict, r.Rest, r.Reason = Retry, later, "the server may take the mail for some recipients later: "+last.Error()
	}
	return r
}

// smtpResult reads the answer of a server: 4yz is for a time, 5yz is final.
func smtpResult(what string, err error) Result {
	r := Result{Verdict: verdictOf(err), Reason: what + ": " + err.Error()}
	var answer *textproto.Error
	if errors.As(err, &answer) {
		r.Status = answer.Code
		if answer.Code >= 500 {
			r.Verdict = Refused
		}
	}
	return r
}

// dial connects and signs in. The connection ends with ctx.
func (c mailer) dial(ctx context.Context) (*smtp.Client, error) {
	host, port, implicit, err := c.server()
	if err != nil {
		return nil, err
	}
	config := &tls.Config{}
	if c.TLS != nil {
		config = c.TLS.Clone()
	}
	config.ServerName = cmp.Or(config.ServerName, host)
	config.MinVersion = max(config.MinVersion, tls.VersionTLS12)
	dial := c.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	policy := mail.TLSMandatory
	if implicit || c.Plain {
		policy = mail.TLSOpportunistic // with implicit TLS a server offers no second one
	}
	options := []mail.Option{
		mail.WithPort(port), mail.WithTimeout(Timeout), mail.WithTLSConfig(config), mail.WithTLSPolicy(policy),
		mail.WithDialContextFunc(func(setup context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(setup, network, address)
			if err != nil {
				return nil, err
			}
			context.AfterFunc(ctx, func() { _ = conn.Close() })
			if !implicit {
				return conn, nil
			}
			secure := tls.Client(conn, config)
			if err := secure.HandshakeContext(setup); err != nil {
				return nil, err
			}
			return secure, nil
		}),
	}
	if c.Username != "" {
		options = append(options, mail.WithSMTPAuth(mail.SMTPAuthAutoDiscover), mail.WithUsername(c.Username), mail.WithPassword(c.Password))
	}
	client, err := mail.NewClient(host, options...)
	if err != nil {
		return nil, err
	}
	return client.DialToSMTPClientWithContext(ctx)
}

// message returns the mail with both parts. Its id and its boundary follow from the id of
// the message, so a mail that is sent twice is the same mail.
func (c mailer) message(now time.Time, m notification.Message) (*mail.Msg, string, error) {
	t := &texts{renderer: c.renderer, message: m}
	msg := mail.NewMsg(mail.WithNoDefaultUserAgent())
	if err := errors.Join(msg.From(c.From), msg.To(c.recipients(m)...)); err != nil {
		return nil, "", err
	}
	from, err := address(c.From)
	if err != nil {
		return nil, "", err
	}
	_, domain, _ := strings.Cut(from.Address, "@")
	msg.SetGenHeaderPreformatted(mail.HeaderSubject, subject(t.title()))
	msg.SetDateWithValue(now)
	msg.SetMessageIDWithValue(mailID(m.ID) + "@" + domain)
	if !m.IsDigest() { // mail programs show the mails of one alert together
		msg.SetGenHeader("References", "<"+mailID("alert-"+m.Notifications[0].Alert)+"@"+domain+">")
	}
	msg.SetGenHeader("Auto-Submitted", "auto-generated")
	sum := sha256.Sum256([]byte(m.ID))
	msg.SetBoundary("wheelwork-" + hex.EncodeToString(sum[:12]))
	msg.SetBodyString(mail.TypeTextPlain, t.text())
	msg.AddAlternativeString(mail.TypeTextHTML, t.html())
	return msg, t.note(), nil
}

// subject returns the header of a title. A title with other characters than those of ASCII
// goes into encoded words of RFC 2047, each short enough for its line, also the first: a
// header that begins with a line break has a space in front of its text in some mail
// programs.
func subject(title string) string {
	const most = 36 // bytes of a word: 60 characters when encoded
	if !strings.ContainsFunc(title, func(r rune) bool { return r < ' ' || r > '~' }) && len(title) <= 60 && !strings.Contains(title, "=?") {
		return title
	}
	var lines []string
	word := ""
	flush := func() {
		if word != "" {
			lines = append(lines, "=?utf-8?B?"+base64.StdEncoding.EncodeToString([]byte(word))+"?=")
		}
		word = ""
	}
	for _, r := range title {
		if len(word)+utf8.RuneLen(r) > most {
			flush()
		}
		word += string(r)
	}
	flush()
	return strings.Join(lines, "\r\n ")
}

// mailID makes an id the left side of a Message-ID.
func mailID(id string) string {
	plain := func(r rune) bool {
		return r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}
	if id != "" && len(id) <= 64 && strings.IndexFunc(id, plain) < 0 {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}
