package channel

import (
	"net/http"
	"strings"
	"time"

	"github.com/wheelworkhq/wheelwork/alert/notification"
	"github.com/wheelworkhq/wheelwork/internal/webhook"
)

// Webhook is a receiver of signed requests. Source: Standard Webhooks, the specification
// of the payload, of its signature and of what answers mean.
type Webhook struct {
	URL string
	// Secret is "whsec_" and a key in base64. Several keys, divided by spaces, sign all: the
	// receiver can change its key without a gap.
	Secret string
}

// Kind returns KindWebhook.
func (Webhook) Kind() Kind { return KindWebhook }

// Check returns an error that names the field that is wrong.
func (w Webhook) Check() error {
	if err := checkURL(w.URL); err != nil {
		return err
	}
	_, err := webhook.Keys(w.Secret)
	return err
}

func (w Webhook) secrets() []string { return signedSecrets(w.URL, w.Secret) }

func signedSecrets(address, keys string) []string {
	out := secretsOf(address)
	for secret := range strings.FieldsSeq(keys) {
		out = append(out, secret, strings.TrimPrefix(secret, "whsec_"))
	}
	return out
}

// Payload is the JSON that a webhook and a command receive. Type, timestamp and data are
// those of Standard Webhooks.
type Payload struct {
	Type      string      `json:"type"`      // alert.firing.v1 | alert.resolved.v1 | alert.digest.v1
	Timestamp time.Time   `json:"timestamp"` // of the attempt
	Data      PayloadData `json:"data"`
}

// PayloadData is a message with its texts.
type PayloadData struct {
	ID            string                      `json:"id"` // of the message, the same at every attempt
	Title         string                      `json:"title"`
	Text          string                      `json:"text"`
	Language      notification.Language       `json:"language"`
	Notifications []notification.Notification `json:"notifications"` // several in a digest
}

func (t *texts) payload(now time.Time) ([]byte, error) {
	kind := "alert." + string(t.message.State()) + ".v1"
	if t.message.IsDigest() {
		kind = "alert.digest.v1"
	}
	return encode(Payload{Type: kind, Timestamp: now.UTC(), Data: PayloadData{
		ID: t.message.ID, Title: t.title(), Text: t.text(), Language: t.message.Language(), Notifications: t.message.Notifications,
	}})
}

func (w Webhook) request(now time.Time, t *texts) (*http.Request, error) {
	body, err := t.payload(now)
	if err != nil {
		return nil, err
	}
	req, err := postBytes(w.URL, body)
	if err != nil {
		return nil, err
	}
	return req, signRequest(req, w.Secret, t.message.ID, now, body)
}

// signRequest sets the headers of Standard Webhooks.
func signRequest(req *http.Request, secret, id string, now time.Time, body []byte) error {
	keys, err := webhook.Keys(secret)
	if err != nil {
		return err
	}
	signed := webhook.Sign(id, now, body, keys...)
	req.Header.Set(webhook.IDHeader, signed.ID)
	req.Header.Set(webhook.TimestampHeader, signed.Timestamp)
	req.Header.Set(webhook.SignatureHeader, signed.Signature)
	return nil
}

func (w Webhook) read(now time.Time, a answer) Result { return a.byStatus(now) }
