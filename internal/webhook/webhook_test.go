package webhook_test

import (
	"encoding/base64"
	"errors"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/webhook"
)

// The vectors were computed with openssl:
//
//	printf '%s' 'ID.TIME.BODY' | openssl dgst -sha256 -mac HMAC -macopt hexkey:KEY -binary | base64
const (
	secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	other  = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
)

var vectors = []struct {
	id, body  string
	at        int64
	signature string
}{
	{"msg_p5jXN8AQM9LWM0D4loKWxJek", `{"test": 2432232314}`, 1614265330, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="},
	{"evt-1", `{"a":"é"}`, 1700000000, "v1,6fn2YJ/6V+trQoOzwl2gZ8NaL5ZS/GziTHqZyJ/96y8="},
}

func keys(t *testing.T, text string) [][]byte {
	t.Helper()
	all, err := webhook.Keys(text)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestVectors(t *testing.T) {
	for _, v := range vectors {
		h := webhook.Sign(v.id, time.Unix(v.at, 0), []byte(v.body), keys(t, secret)...)
		if h.Signature != v.signature {
			t.Errorf("%s: the signature is %s, want %s", v.id, h.Signature, v.signature)
		}
		if err := h.Verify(time.Unix(v.at, 0), []byte(v.body), keys(t, secret)...); err != nil {
			t.Errorf("%s: %v", v.id, err)
		}
	}
}

func TestVerify(t *testing.T) {
	body, now := []byte("body"), time.Unix(1_700_000_000, 0)
	signed := webhook.Sign("1", now, body, keys(t, secret)...)
	change := func(f func(*webhook.Headers)) webhook.Headers {
		h := signed
		f(&h)
		return h
	}
	for _, tt := range []struct {
		name string
		h    webhook.Headers
		keys string
		off  time.Duration
		body string
		want error // nil: it is accepted; &TimeError{}: any
	}{
		{"right", signed, secret, 0, "body", nil},
		{"by the previous key", signed, other + " " + secret, 0, "body", nil},
		{"several signatures", change(func(h *webhook.Headers) { h.Signature = "v1a,xx v1,AAAA " + h.Signature }), secret, 0, "body", nil},
		{"oldest", signed, secret, webhook.Tolerance, "body", nil},
		{"newest", signed, secret, -webhook.Tolerance, "body", nil},
		{"too old", signed, secret, webhook.Tolerance + time.Second, "body", &webhook.TimeError{}},
		{"too new", signed, secret, -webhook.Tolerance - time.Second, "body", &webhook.TimeError{}},
		{"another key", signed, other, 0, "body", webhook.ErrSignature},
		{"no key", signed, "", 0, "body", webhook.ErrSignature},
		{"another body", signed, secret, 0, "Body", webhook.ErrSignature},
		{"another id", change(func(h *webhook.Headers) { h.ID = "2" }), secret, 0, "body", webhook.ErrSignature},
		{"another time", change(func(h *webhook.Headers) { h.Timestamp = "1700000001" }), secret, 0, "body", webhook.ErrSignature},
		{"no signature", change(func(h *webhook.Headers) { h.Signature = "" }), secret, 0, "body", webhook.ErrSignature},
		{"another version", change(func(h *webhook.Headers) { h.Signature = "v2" + h.Signature[2:] }), secret, 0, "body", webhook.ErrSignature},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var of [][]byte
			if tt.keys != "" {
				of = keys(t, tt.keys)
			}
			err := tt.h.Verify(now.Add(tt.off), []byte(tt.body), of...)
			var late *webhook.TimeError
			if _, wantsTime := tt.want.(*webhook.TimeError); wantsTime {
				if !errors.As(err, &late) {
					t.Errorf("Verify = %v, want an error about the time", err)
				}
			} else if !errors.Is(err, tt.want) {
				t.Errorf("Verify = %v, want %v", err, tt.want)
			}
		})
	}
}

func TestEmptyIDAndTextAsTime(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	if err := webhook.Sign("", now, nil, keys(t, secret)...).Verify(now, nil, keys(t, secret)...); !errors.Is(err, webhook.ErrSignature) {
		t.Errorf("a message without an id is accepted: %v", err)
	}
}

func TestKeys(t *testing.T) {
	short := "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 23))
	for _, text := range []string{"", " ", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_%", short, secret + " x"} {
		if _, err := webhook.Keys(text); err == nil {
			t.Errorf("Keys(%q) gives no error", text)
		}
	}
	if got := keys(t, secret+" "+other); len(got) != 2 {
		t.Errorf("two keys are read as %d", len(got))
	}
}
