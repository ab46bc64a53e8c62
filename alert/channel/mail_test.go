package channel_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"math/big"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net"
	"net/http"
	"net/mail"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/alert/channel"
	"github.com/wheelworkhq/wheelwork/alert/notification"
)

// mailServer is a mail server in memory, for one connection at a time.
type mailServer struct {
	config   *tls.Config
	noTLS    bool
	implicit bool
	answers  map[string]string // to commands that begin with the key, in place of the usual answer

	mu       sync.Mutex
	commands []string // without the ends of lines
	mails    []string
	secure   bool // the last mail came over TLS
	done     sync.WaitGroup
}

func (s *mailServer) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	s.done.Go(func() {
		defer server.Close()
		if s.implicit {
			s.serve(tls.Server(server, s.config), true)
		} else {
			s.serve(server, false)
		}
	})
	return client, nil
}

func (s *mailServer) serve(conn net.Conn, secure bool) {
	in := bufio.NewReader(conn)
	say := func(line string) { _, _ = io.WriteString(conn, line+"\r\n") }
	say("220 mail.example ready")
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimRight(line, "\r\n")
		s.mu.Lock()
		s.commands = append(s.commands, line)
		s.mu.Unlock()
		if answer := s.answer(line); answer != "" {
			say(answer)
			continue
		}
		verb, _, _ := strings.Cut(line, " ")
		switch strings.ToUpper(verb) {
		case "EHLO":
			say("250-mail.example")
			if !secure && !s.noTLS {
				say("250-STARTTLS")
			}
			say("250 AUTH PLAIN")
		case "STARTTLS":
			say("220 go ahead")
			t := tls.Server(conn, s.config)
			s.serveAfter(t)
			return
		case "AUTH":
			say("235 welcome")
		case "DATA":
			say("354 go ahead")
			var text strings.Builder
			for {
				line, err := in.ReadString('\n')
				if err != nil {
					return
				}
				if line == ".\r\n" {
					break
				}
				text.WriteString(strings.TrimPrefix(line, "."))
			}
			s.mu.Lock()
			s.mails, s.secure = append(s.mails, text.String()), secure
			s.mu.Unlock()
			say("250 queued as 4F1A")
		case "QUIT":
			say("221 bye")
			return
		default:
			say("250 ok")
		}
	}
}

// serveAfter goes on after STARTTLS: the server does not greet again.
func (s *mailServer) serveAfter(conn net.Conn) {
	s.serve(&greeted{Conn: conn}, true)
}

// greeted drops the first line that a server says.
type greeted struct {
	net.Conn
	once bool
}

func (g *greeted) Write(p []byte) (int, error) {
	if !g.once {
		g.once = true
		return len(p), nil
	}
	return g.Conn.Write(p)
}

func (s *mailServer) answer(line string) string {
	for prefix, answer := range s.answers {
		if strings.HasPrefix(line, prefix) {
			return answer
		}
	}
	return ""
}

func newMailServer(t *testing.T) (*mailServer, *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"mail.example"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(certificate)
	s := &mailServer{config: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}}
	t.Cleanup(s.done.Wait)
	return s, &tls.Config{RootCAs: roots}
}

func mailTo(t *testing.T, s *mailServer, trust *tls.Config, change func(*channel.Mail)) channel.Result {
	t.Helper()
	conf := channel.Mail{
		URL: "smtp://mail.example", Username: "wheelwork", Password: "secret-of-mail", From: "Wheelwork <alerts@wheelwork.example>",
		To: []string{"ops@example.com", "李雷 <li@example.com>"}, TLS: trust, Dial: s.dial,
	}
	if change != nil {
		change(&conf)
	}
	c, err := channel.NewMail(conf, renderer(t))
	if err != nil {
		t.Fatal(err)
	}
	r := c.Send(context.Background(), now, messages(notification.Chinese)["firing"])
	s.done.Wait()
	if text := fmt.Sprintf("%+v", r); strings.Contains(text, "secret-of-mail") {
		t.Errorf("the result has the password: %s", text)
	}
	return r
}

// TestMails checks the mail of each state and language against files.
func TestMails(t *testing.T) {
	s, trust := newMailServer(t)
	for _, l := range []notification.Language{notification.English, notification.Chinese} {
		for name, m := range messages(l) {
			c, err := channel.NewMail(channel.Mail{
				URL: "smtp://mail.example", From: "Wheelwork <alerts@wheelwork.example>", To: []string{"ops@example.com", "李雷 <li@example.com>"}, TLS: trust, Dial: s.dial,
			}, renderer(t))
			if err != nil {
				t.Fatal(err)
			}
			s.mails = nil
			r := c.Send(context.Background(), now, m)
			s.done.Wait()
			if r.Verdict != channel.Delivered || r.Note != "" || len(s.mails) != 1 {
				t.Fatalf("%s %s: %+v, %d mails", name, l, r, len(s.mails))
			}
			golden(t, filepath.Join("testdata", "mail", name+"-"+string(l)+".eml"), strings.ReplaceAll(s.mails[0], "\r\n", "\n"))
			readable(t, s.mails[0], m)
		}
	}
}

// readable checks that a mail program gets the texts back.
func readable(t *testing.T, text string, m notification.Message) {
	t.Helper()
	msg, err := mail.ReadMessage(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	title, err := renderer(t).Title(m)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "Subject:") && len(strings.TrimSpace(line)) < len("Subject: x") || len(line) > 1000 {
			t.Errorf("line %q", line)
		}
	}
	if subject, err := new(mime.WordDecoder).DecodeHeader(msg.Header.Get("Subject")); err != nil || subject != title {
		t.Errorf("subject %q, %v, want %q", subject, err, title)
	}
	if id := msg.Header.Get("Message-ID"); id != "<"+m.ID+"@wheelwork.example>" {
		t.Errorf("message id %s", id)
	}
	if to, err := msg.Header.AddressList("To"); err != nil || len(to) != 2 || to[1].Name != "李雷" {
		t.Errorf("to %v, %v", to, err)
	}
	kind, params, err := mime.ParseMediaType(msg.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/alternative" {
		t.Fatalf("type %s, %v", kind, err)
	}
	want, err := renderer(t).Text(m)
	if err != nil {
		t.Fatal(err)
	}
	parts := multipart.NewReader(msg.Body, params["boundary"])
	for i, kind := range []string{"text/plain", "text/html"} {
		part, err := parts.NextRawPart()
		if err != nil {
			t.Fatal(err)
		}
		if have, _, err := mime.ParseMediaType(part.Header.Get("Content-Type")); err != nil || have != kind {
			t.Errorf("part %d is %s, %v", i, have, err)
		}
		body, err := io.ReadAll(quotedprintable.NewReader(part))
		if have := strings.ReplaceAll(string(body), "\r\n", "\n"); err != nil || i == 0 && strings.TrimSpace(have) != want || i == 1 && !strings.Contains(have, "<h2") {
			t.Errorf("part %d, %v:\n%s", i, err, have)
		}
	}
}

// TestMailIsSecure checks TLS of both forms: without it nothing is sent unless the operator
// allows it, and the password never is.
func TestMailIsSecure(t *testing.T) {
	s, trust := newMailServer(t)
	plain := "AUTH PLAIN " + base64.StdEncoding.EncodeToString([]byte("\x00wheelwork\x00secret-of-mail"))
	r := mailTo(t, s, trust, nil)
	if r.Verdict != channel.Delivered || r.RequestID != "queued as 4F1A" || !s.secure || !strings.Contains(strings.Join(s.commands, "\n"), plain) {
		t.Errorf("%+v, secure %v, %q", r, s.secure, s.commands)
	}
	if got := strings.Join(s.commands, "\n"); !strings.Contains(got, "RCPT TO:<ops@example.com>") || !strings.Contains(got, "RCPT TO:<li@example.com>") {
		t.Errorf("commands %s", got)
	}

	s, trust = newMailServer(t)
	s.implicit = true
	r = mailTo(t, s, trust, func(c *channel.Mail) { c.URL = "smtps://mail.example:465" })
	if r.Verdict != channel.Delivered || !s.secure || !strings.Contains(strings.Join(s.commands, "\n"), plain) {
		t.Errorf("%+v, secure %v, %q", r, s.secure, s.commands)
	}

	s, trust = newMailServer(t)
	s.noTLS = true
	if r := mailTo(t, s, trust, nil); r.Verdict == channel.Delivered || len(s.mails) != 0 {
		t.Errorf("without STARTTLS: %+v", r)
	}
	if r := mailTo(t, s, trust, func(c *channel.Mail) { c.Plain = true }); r.Verdict == channel.Delivered || strings.Contains(strings.Join(s.commands, "\n"), "AUTH PLAIN ") {
		t.Errorf("the password was sent without TLS: %+v", r)
	}
	if r := mailTo(t, s, trust, func(c *channel.Mail) { c.Plain, c.Username, c.Password = true, "", "" }); r.Verdict != channel.Delivered || s.secure {
		t.Errorf("allowed without TLS: %+v", r)
	}

	s, _ = newMailServer(t)
	if r := mailTo(t, s, nil, nil); r.Verdict != channel.Retry || len(s.mails) != 0 || !strings.Contains(r.Reason, "certificate") {
		t.Errorf("an unknown certificate: %+v", r)
	}
}

// TestMailAnswers checks what the answers of a server mean.
func TestMailAnswers(t *testing.T) {
	for name, tt := range map[string]struct {
		answers map[string]string
		want    channel.Verdict
		status  int
		note    string
	}{
		"a wrong password":       {map[string]string{"AUTH": "535 no"}, channel.Refused, 535, ""},
		"a server that is busy":  {map[string]string{"MAIL": "451 later"}, channel.Retry, 451, ""},
		"a refused sender":       {map[string]string{"MAIL": "550 no"}, channel.Refused, 550, ""},
		"one refused recipient":  {map[string]string{"RCPT TO:<ops": "550 no such user"}, channel.Delivered, 250, "refuses ops@example.com"},
		"no accepted recipient":  {map[string]string{"RCPT": "550 no such user"}, channel.Refused, 550, ""},
		"greylisted recipients":  {map[string]string{"RCPT": "450 later"}, channel.Retry, 450, ""},
		"refused and later":      {map[string]string{"RCPT TO:<ops": "550 no", "RCPT TO:<li": "450 later"}, channel.Retry, 450, "refuses ops@example.com"},
		"a mail that is too big": {map[string]string{"DATA": "552 too big"}, channel.Refused, 552, ""},
	} {
		s, trust := newMailServer(t)
		s.answers = tt.answers
		r := mailTo(t, s, trust, nil)
		if r.Verdict != tt.want || r.Status != tt.status || !strings.Contains(r.Note, tt.note) {
			t.Errorf("%s: %+v, want %s", name, r, tt.want)
		}
	}
}

// TestGreylistedRecipient checks that the next attempt reaches only the recipient that the
// server has put off.
func TestGreylistedRecipient(t *testing.T) {
	s, trust := newMailServer(t)
	s.answers = map[string]string{"RCPT TO:<li": "450 later"}
	c, err := channel.NewMail(channel.Mail{
		URL: "smtp://mail.example", From: "a@b.example", To: []string{"ops@example.com", "li@example.com"}, TLS: trust, Dial: s.dial,
	}, renderer(t))
	if err != nil {
		t.Fatal(err)
	}
	r := c.Send(context.Background(), now, messages(notification.English)["firing"])
	s.done.Wait()
	if r.Verdict != channel.Retry || len(r.Rest) != 1 || r.Rest[0] != "li@example.com" || len(s.mails) != 1 {
		t.Fatalf("%+v, %d mails", r, len(s.mails))
	}
	s.answers, s.commands = nil, nil
	partial, ok := c.(channel.Partial)
	if !ok {
		t.Fatal("a mail channel is not partial")
	}
	r = partial.Only(r.Rest).Send(context.Background(), now, messages(notification.English)["firing"])
	s.done.Wait()
	if got := strings.Join(s.commands, "\n"); r.Verdict != channel.Delivered || len(r.Rest) != 0 || strings.Contains(got, "ops@") || !strings.Contains(got, "RCPT TO:<li@") {
		t.Errorf("%+v, commands %s", r, got)
	}
}

// TestMailToOwners: with to_owner a mail goes to the owners of all its jobs, each once, and to at most 100 people.
func TestMailToOwners(t *testing.T) {
	s, trust := newMailServer(t)
	conf := channel.Mail{URL: "smtp://mail.example", From: "a@b.example", To: []string{"ops@example.com"}, TLS: trust, Dial: s.dial}
	first, second := firing(notification.English), resolved(notification.English)
	first.Owners = []string{"Ann <ann@example.com>", "OPS@example.com", "no address @", "bo@example.com"}
	second.Alert, second.Owners = "a-2", []string{"ann@example.com", "cy@example.com"}
	m := notification.Digest([]notification.Notification{first, second})
	send := func(m notification.Message, only ...string) (channel.Result, []string) {
		t.Helper()
		c, err := channel.NewMail(conf, renderer(t))
		if err != nil {
			t.Fatal(err)
		}
		if len(only) > 0 {
			c = c.(channel.Partial).Only(only)
		}
		s.commands, s.mails = nil, nil
		r := c.Send(context.Background(), now, m)
		s.done.Wait()
		var to []string
		for _, line := range s.commands {
			if rest, ok := strings.CutPrefix(line, "RCPT TO:<"); ok {
				to = append(to, rest[:strings.Index(rest, ">")])
			}
		}
		return r, to
	}
	if _, to := send(m); !slices.Equal(to, []string{"ops@example.com"}) {
		t.Errorf("without to_owner: %v", to)
	}
	conf.ToOwner = true
	r, to := send(m)
	if r.Verdict != channel.Delivered || !slices.Equal(to, []string{"ops@example.com", "ann@example.com", "bo@example.com", "cy@example.com"}) || len(s.mails) != 1 {
		t.Fatalf("%+v, to %v, %d mails", r, to, len(s.mails))
	}
	golden(t, filepath.Join("testdata", "mail", "owners-en.eml"), strings.ReplaceAll(s.mails[0], "\r\n", "\n"))
	s.answers = map[string]string{"RCPT TO:<bo": "450 later"}
	if r, _ = send(m); r.Verdict != channel.Retry || !slices.Equal(r.Rest, []string{"bo@example.com"}) {
		t.Fatalf("%+v", r)
	}
	s.answers = nil
	if r, to = send(m, r.Rest...); r.Verdict != channel.Delivered || !slices.Equal(to, []string{"bo@example.com"}) {
		t.Errorf("%+v, to %v", r, to)
	}
	first.Owners = nil
	for i := range 150 {
		first.Owners = append(first.Owners, fmt.Sprintf("owner-%03d@example.com", i))
	}
	if _, to := send(notification.Single(first)); len(to) != 100 {
		t.Errorf("%d recipients", len(to))
	}
}

// TestMailEnds checks that an attempt ends with its context, also while the server is
// silent.
func TestMailEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	c, err := channel.NewMail(channel.Mail{
		URL: "smtp://mail.example", From: "a@b.example", To: []string{"ops@example.com"},
		Dial: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			t.Cleanup(func() { server.Close() })
			cancel()
			return client, nil
		},
	}, renderer(t))
	if err != nil {
		t.Fatal(err)
	}
	if r := c.Send(ctx, now, messages(notification.English)["firing"]); r.Verdict != channel.Retry {
		t.Errorf("%+v", r)
	}
}

// notAllowed is the error of a guard.
type notAllowed struct{}

func (notAllowed) Error() string    { return "127.0.0.1 is not a public address: --egress-allow" }
func (notAllowed) NotAllowed() bool { return true }

// RoundTrip implements [http.RoundTripper].
func (e notAllowed) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: e}
}

// TestAddressIsNotAllowed: a message to an address that the operator does not allow is refused at once.
func TestAddressIsNotAllowed(t *testing.T) {
	r, err := notification.NewRenderer(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	mails, err := channel.NewMail(channel.Mail{
		URL: "smtp://mail.example", From: "a@b.example", To: []string{"ops@example.com"},
		Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: notAllowed{}}
		},
	}, r)
	if err != nil {
		t.Fatal(err)
	}
	hook, err := channel.Over(&http.Client{Transport: notAllowed{}}, channel.Slack{URL: "https://slack.example/hook"}, r)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []channel.Channel{mails, hook} {
		if got := c.Send(t.Context(), now, notification.Single(firing(notification.English))); got.Verdict != channel.Refused || !strings.Contains(got.Reason, "--egress-allow") {
			t.Errorf("%s: %+v", c.Kind(), got)
		}
	}
}

// TestMailChecks checks that each wrong field is refused.
func TestMailChecks(t *testing.T) {
	for want, change := range map[string]func(*channel.Mail){
		"url is malformed":         func(c *channel.Mail) { c.URL = "https://mail.example" },
		"smtp://HOST or":           func(c *channel.Mail) { c.URL = "smtp://user:secret@mail.example" },
		"port":                     func(c *channel.Mail) { c.URL = "smtp://mail.example:99999" },
		"from":                     func(c *channel.Mail) { c.From = "alerts" },
		"to has 0":                 func(c *channel.Mail) { c.To = nil },
		"not an address":           func(c *channel.Mail) { c.To = []string{"a@b.example\r\nRCPT TO:<x@y>"} },
		"password has no username": func(c *channel.Mail) { c.Password = "secret" },
	} {
		conf := channel.Mail{URL: "smtp://mail.example", From: "a@b.example", To: []string{"c@d.example"}}
		change(&conf)
		if _, err := channel.NewMail(conf, renderer(t)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
}
