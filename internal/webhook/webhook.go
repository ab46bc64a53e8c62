// Package webhook signs and verifies messages as Standard Webhooks says: with HMAC-SHA256 over the id,
// the time and the body. Source: the specification of Standard Webhooks.
package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The headers of a signed message, as HTTP compares them: without regard to case.
const (
	IDHeader        = "webhook-id"
	TimestampHeader = "webhook-timestamp"
	SignatureHeader = "webhook-signature"
)

// keyPrefix begins the text of a key.
const keyPrefix = "whsec_"

// Bounds of a key, in bytes. Source: Standard Webhooks, which wants 24 to 64.
const (
	minKey = 24
	maxKey = 64
)

// Tolerance is how far the time of a message may be from that of the receiver.
const Tolerance = 5 * time.Minute

// maxSignatures bounds the signatures of a message: one for each key of the sender.
const maxSignatures = 16

// Headers are the values of the headers of a message.
type Headers struct{ ID, Timestamp, Signature string }

// Keys reads keys, each "whsec_" and base64, divided by spaces: a receiver that has several admits all
// of them, so a key changes without a gap.
func Keys(text string) (keys [][]byte, err error) {
	for secret := range strings.FieldsSeq(text) {
		encoded, ok := strings.CutPrefix(secret, keyPrefix)
		key, err := base64.StdEncoding.DecodeString(encoded)
		switch {
		case !ok || err != nil:
			return nil, errors.New(`secret is malformed: it is "whsec_" and a key in base64`)
		case len(key) < minKey || len(key) > maxKey:
			return nil, fmt.Errorf("secret has a key of %d bytes, want %d to %d", len(key), minKey, maxKey)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, errors.New(`secret is missing: it is "whsec_" and a key in base64`)
	}
	return keys, nil
}

// Sign returns the headers of a message, with one signature for each key.
func Sign(id string, now time.Time, body []byte, keys ...[]byte) Headers {
	h := Headers{ID: id, Timestamp: strconv.FormatInt(now.Unix(), 10)}
	var signatures []string
	for _, key := range keys {
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(h.sum(key, body)))
	}
	h.Signature = strings.Join(signatures, " ")
	return h
}

func (h Headers) sum(key, body []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(h.ID + "." + h.Timestamp + "."))
	mac.Write(body)
	return mac.Sum(nil)
}

// ErrSignature is the error of a message that no key has signed.
var ErrSignature = errors.New("no signature of the message is by a key of the receiver")

// TimeError is the error of a message that is signed, but too old or too new.
type TimeError struct{ Off time.Duration } // from the time of the receiver; negative: it is old

func (e *TimeError) Error() string {
	return fmt.Sprintf("the time of the message differs by %s from that of the receiver, the limit is %s: set the clock, and sign each attempt again", e.Off.Abs().Round(time.Second), Tolerance)
}

// Verify returns nil if one of the keys has signed the message, now or up to [Tolerance] before or
// after. How long it takes depends on the number of keys and on the size of the message alone, and
// not on whether a signature is right.
func (h Headers) Verify(now time.Time, body []byte, keys ...[]byte) error {
	var sums [][]byte
	for _, key := range keys {
		sums = append(sums, h.sum(key, body))
	}
	right := 0
	n := 0
	for text := range strings.FieldsSeq(h.Signature) {
		if n++; n > maxSignatures {
			break
		}
		encoded, ok := strings.CutPrefix(text, "v1,")
		given, err := base64.StdEncoding.DecodeString(encoded)
		if !ok || err != nil {
			continue // of another version
		}
		for _, sum := range sums {
			if hmac.Equal(sum, given) {
				right++
			}
		}
	}
	if right == 0 || h.ID == "" {
		return ErrSignature
	}
	seconds, err := strconv.ParseInt(h.Timestamp, 10, 64)
	if err != nil {
		return ErrSignature
	}
	if off := time.Unix(seconds, 0).Sub(now); off > Tolerance || off < -Tolerance {
		return &TimeError{off}
	}
	return nil
}
