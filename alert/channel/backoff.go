package channel

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"
)

// Backoff plans the attempts for one message.
type Backoff struct {
	// Delays are those after the first, second, … attempt that failed. An attempt that fails
	// after the last of them makes the message a dead letter.
	Delays []time.Duration
	// Age bounds the time from the first attempt in all: a platform that limits the rate for
	// ever does not use up attempts.
	Age time.Duration
}

// DefaultBackoff makes nine attempts in about a day. The first ones come soon because most
// failures are short, and an alert is worth most in its first minutes.
func DefaultBackoff() Backoff {
	return Backoff{
		Delays: []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour},
		Age:    24 * time.Hour,
	}
}

// jitterShare is the part of a delay that is spread: messages that failed together are not
// tried together.
const jitterShare = 0.2

// Next decides after an attempt that has not delivered a message: at which time to try
// again, or that the message is a dead letter. failed counts the attempts that ended with
// Retry, this one included. The time follows from the arguments alone, so that it is the
// same after a restart.
func (b Backoff) Next(id string, failed int, first, now time.Time, r Result) (at time.Time, dead bool) {
	switch r.Verdict {
	case RateLimited:
		// All messages of the channel wait for the same time: spread them over a second.
		at = r.Until.Add(jitter(id, failed, time.Second))
		if !r.Until.After(now) {
			at = now.Add(pause)
		}
	case Retry:
		if failed < 1 || failed > len(b.Delays) {
			return time.Time{}, true
		}
		d := b.Delays[failed-1]
		at = now.Add(d + jitter(id, failed, time.Duration(float64(d)*jitterShare)))
	default:
		return time.Time{}, true
	}
	if b.Age > 0 && at.Sub(first) > b.Age {
		return time.Time{}, true
	}
	return at, false
}

// jitter returns a duration from 0 up to span, in milliseconds, that follows from an id and
// a number.
func jitter(id string, n int, span time.Duration) time.Duration {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d:%s", n, id))
	ms := uint64(max(span.Milliseconds(), 1))
	return time.Duration(binary.BigEndian.Uint64(sum[:8])%ms) * time.Millisecond
}
