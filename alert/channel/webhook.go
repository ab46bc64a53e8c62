package channel

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/wheelworkhq/wheelwork/alert/notification"
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
	_, err := w.keys()
	return err
}

// keyBytes are the least and the most bytes of a key. Source: Standard Webhooks, which wants
// 24 to 64.
const (
	minKey = 24
	maxKey = 64
)

func (w Webhook) keys() ([][]byte, error) {
	var out [][]byte
	for secret := range strings.FieldsSeq(w.Secret) {
		text, ok := strings.CutPrefix(secret, "whsec_")
		key, err := base64.StdEncoding.DecodeString(text)
		switch {
		case !ok || err != nil:
			return nil, errors.New(`secret is malformed: it is "whsec_" and a key in base64`)
		case len(key) < minKey || len(key) > maxKey:
			return nil, fmt.Errorf("secret has a key of %d bytes, want %d to %d", len(key), minKey, maxKey)
		}
		out = append(out, key)
	}
	if len(out) == 0 {
		return nil, errors.New(`secret is missing: it is "whsec_" and a key in base64`)
	}
	return out, nil
}

func (w Webhook) secrets() []string {
	out := secretsOf(w.URL)
	for secret := range strings.FieldsSeq(w.Secret) {
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
	keys, err := w.keys()
	if err != nil {
		return nil, err
	}
	Sign(req.Header, t.message.ID, now, body, keys...)
	return req, nil
}

// Sign sets the three headers of Standard Webhooks for a body.
func Sign(h http.Header, id string, now time.Time, body []byte, keys ...[]byte) {
	timestamp := strconv.FormatInt(now.Unix(), 10)
	var signatures []string
	for _, key := range keys {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + timestamp + "."))
		mac.Write(body)
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	h.Set("Webhook-Id", id)
	h.Set("Webhook-Timestamp", timestamp)
	h.Set("Webhook-Signature", strings.Join(signatures, " "))
}

func (w Webhook) read(now time.Time, a answer) Result { return a.byStatus(now) }
