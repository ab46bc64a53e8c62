package worker

import (
	"errors"
	"time"
)

// Error is a failure with a code, permanence and delay.
type Error struct {
	Code       string        // for machines, such as "card_declined"; may be empty
	Permanent  bool          // another attempt cannot succeed
	RetryAfter time.Duration // minimum delay before the next attempt; 0 leaves it to the job's policy
	Err        error
}

func (e *Error) Error() string {
	if e.Err == nil {
		return e.Code
	}
	return e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Permanent marks an error that another attempt would meet again. It returns nil for nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	e := from(err)
	e.Permanent = true
	return e
}

// RetryAfter marks an error that another attempt may not meet, once the delay after has
// passed. Plain errors are retried too; RetryAfter adds the delay. It returns nil for
// nil.
func RetryAfter(err error, after time.Duration) error {
	if err == nil {
		return nil
	}
	e := from(err)
	e.RetryAfter = after
	return e
}

// WithCode gives an error a code for machines, which the run shows. It returns nil for
// nil.
func WithCode(err error, code string) error {
	if err == nil {
		return nil
	}
	e := from(err)
	e.Code = code
	return e
}

// from returns a new Error around err with the same properties as err.
func from(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return &Error{e.Code, e.Permanent, e.RetryAfter, err}
	}
	return &Error{Err: err}
}
