//go:build wasip1

package guest

import (
	"errors"
	"time"
)

// ErrCancelled is the error of a handler that stopped because Cancelled returned true.
var ErrCancelled = errors.New("cancelled")

// Error is a failure with a code, permanence and delay.
type Error struct {
	Code       string        // for machines, such as "card_declined"; may be empty
	Permanent  bool          // another attempt cannot succeed
	RetryAfter time.Duration // minimum delay before the next attempt; 0 leaves it to the job's policy
	Err        error
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Permanent marks an error that another attempt would meet again.
func Permanent(code string, err error) error {
	return &Error{Code: code, Permanent: true, Err: err}
}

// Retryable marks an error that another attempt may not meet, once the delay after has
// passed. Plain errors are retryable too; Retryable adds a code and a delay.
func Retryable(code string, after time.Duration, err error) error {
	return &Error{Code: code, RetryAfter: after, Err: err}
}

// tell describes the failure to the host and returns the status for it.
func tell(err error) int32 {
	if errors.Is(err, ErrCancelled) {
		return statusCancelled
	}
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{Err: err}
	}
	kind := int32(statusRetryable)
	if e.Permanent {
		kind = statusPermanent
	}
	code, text := []byte(e.Code), []byte(err.Error())
	fail(kind, e.RetryAfter.Milliseconds(), address(code), length(code), address(text), length(text))
	return kind
}
