package alerttest

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/http/httptest"
	"net/mail"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/wheelworkhq/wheelwork/alert/channel"
	"github.com/wheelworkhq/wheelwork/alert/notification"
)

// TestMail sends mails in both languages to a mail server, over TLS. Each has the texts of its
// message, as plain text and as HTML.
func TestMail(t *testing.T) {
	dir, address := t.TempDir(), freeAddress(t)
	cert, key, trusted := certificate(t, dir)
	box := filepath.Join(dir, "box")
	start(t, address, "python3-aiosmtpd", "aiosmtpd", "-n", "-l", address, "--tlscert", cert, "--tlskey", key, "-c", "aiosmtpd.handlers.Mailbox", box)

	texts := renderer(t)
	c, err := channel.NewMail(channel.Mail{
		URL: "smtp://" + address, From: "Wheelwork <alerts@example.com>", To: []string{"ann@example.com", "Bo <bo@example.com>"},
		TLS: &tls.Config{RootCAs: trusted}, Dial: loopback.Dial,
	}, texts)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []notification.Language{notification.English, notification.Chinese} {
		for _, m := range notification.Samples(l) {
			if r := deliver(t, c, m); r.Status != 250 || r.Note != "" {
				t.Errorf("%s %s: %+v, want the status 250 without a note", l, m.ID, r)
			}
			got := taken(t, box)
			title, err := texts.Title(m)
			if err != nil {
				t.Fatal(err)
			}
			if got.subject != title {
				t.Errorf("%s %s: subject %q, want %q", l, m.ID, got.subject, title)
			}
			if han := strings.ContainsFunc(got.subject, func(r rune) bool { return unicode.Is(unicode.Han, r) }); han != (l == notification.Chinese) {
				t.Errorf("the subject %q is not in the language %s", got.subject, l)
			}
			text, err := texts.Text(m)
			if err != nil {
				t.Fatal(err)
			}
			if lines(got.parts["text/plain"]) != lines(text) {
				t.Errorf("%s %s: the text is\n%s\nwant\n%s", l, m.ID, got.parts["text/plain"], text)
			}
			html, err := texts.HTML(m)
			if err != nil {
				t.Fatal(err)
			}
			if lines(got.parts["text/html"]) != lines(html) {
				t.Errorf("%s %s: the HTML is\n%s\nwant\n%s", l, m.ID, got.parts["text/html"], html)
			}
			if got.header.Get("To") != `<ann@example.com>, "Bo" <bo@example.com>` || got.header.Get("X-RcptTo") != "ann@example.com, bo@example.com" {
				t.Errorf("%s %s: to %s, the server has %s", l, m.ID, got.header.Get("To"), got.header.Get("X-RcptTo"))
			}
		}
	}
}

// TestMailNeedsTLS: a mail server without TLS gets no mail, unless the channel says that it may.
func TestMailNeedsTLS(t *testing.T) {
	address, box := freeAddress(t), filepath.Join(t.TempDir(), "box")
	start(t, address, "python3-aiosmtpd", "aiosmtpd", "-n", "-l", address, "-c", "aiosmtpd.handlers.Mailbox", box)
	message := notification.Samples(notification.English)[0]
	for _, plain := range []bool{false, true} {
		c, err := channel.NewMail(channel.Mail{URL: "smtp://" + address, Plain: plain, From: "alerts@example.com", To: []string{"ann@example.com"}, Dial: loopback.Dial}, renderer(t))
		if err != nil {
			t.Fatal(err)
		}
		if plain {
			deliver(t, c, message)
			taken(t, box)
			continue
		}
		if r := c.Send(t.Context(), message.Notifications[0].At, message); r.Verdict == channel.Delivered || !strings.Contains(r.Reason, "TLS") {
			t.Errorf("without TLS: %+v, want a reason that names TLS", r)
		}
		if names := mails(t, box); len(names) > 0 {
			t.Errorf("the server has taken %q", names)
		}
	}
}

// certificate writes a certificate for this machine and its key, and returns their files and the pool that trusts it.
func certificate(t *testing.T, dir string) (cert, key string, trusted *x509.CertPool) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	private, err := x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: s.Certificate().Raw},
		key:  {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	trusted = x509.NewCertPool()
	trusted.AddCert(s.Certificate())
	return cert, key, trusted
}

// mails returns the files of the mails that a server has taken.
func mails(t *testing.T, box string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(box, "new", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// read is a mail as its reader sees it.
type read struct {
	header  mail.Header
	subject string
	parts   map[string]string // by type
}

// taken returns the only mail that a server has taken since the last call, and removes it.
func taken(t *testing.T, box string) read {
	t.Helper()
	names := mails(t, box)
	if len(names) != 1 {
		t.Fatalf("the server has taken %q, want one mail", names)
	}
	raw, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(names[0]); err != nil {
		t.Fatal(err)
	}
	m, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		t.Fatalf("%v in\n%s", err, raw)
	}
	r := read{header: m.Header, parts: map[string]string{}}
	if r.subject, err = new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject")); err != nil {
		t.Fatal(err)
	}
	_, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	for parts := multipart.NewReader(m.Body, params["boundary"]); ; {
		p, err := parts.NextRawPart()
		if err == io.EOF {
			return r
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, raw)
		}
		kind, of, err := mime.ParseMediaType(p.Header.Get("Content-Type"))
		if err != nil || !strings.EqualFold(of["charset"], "utf-8") || p.Header.Get("Content-Transfer-Encoding") != "quoted-printable" {
			t.Fatalf("the head of a part is %v (%v)", p.Header, err)
		}
		text, err := io.ReadAll(quotedprintable.NewReader(p))
		if err != nil {
			t.Fatal(err)
		}
		r.parts[kind] = string(text)
	}
}

// lines has the ends of lines of this system, and none at the end.
func lines(s string) string { return strings.TrimRight(strings.ReplaceAll(s, "\r\n", "\n"), "\n") }
