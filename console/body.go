package console

import (
	"cmp"
	"errors"
	"io"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// body is the body of a request with a limit.
type body struct {
	io.ReadCloser
	over *http.MaxBytesError // set once the limit is exceeded
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	errors.As(err, &b.over)
	return n, err
}

// bound returns a function that returns the limit in effect, or the default where that is 0 or
// there is no function.
func bound(limit func() int64, otherwise int64) func() int64 {
	return func() int64 {
		if limit == nil {
			return otherwise
		}
		return cmp.Or(limit(), otherwise)
	}
}

// limited bounds the bodies that a handler reads.
func limited(most func() int64, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		limit := most()
		if r.Body != nil && r.Body != http.NoBody {
			r.Body = &body{ReadCloser: http.MaxBytesReader(w, r.Body, limit)}
			if r.ContentLength > limit {
				r.Body.(*body).over = &http.MaxBytesError{Limit: limit}
			}
		}
		next(w, r)
	}
}

// tooLarge returns the limit that the body of a request exceeds, otherwise nil.
func tooLarge(r *http.Request) *http.MaxBytesError {
	b, _ := r.Body.(*body)
	if b == nil {
		return nil
	}
	return b.over
}

// admitted lets the API read the body of a request only when its headers contain a
// credential and do not announce a body over the limit.
func (c *console) admitted(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody { // the API itself refuses a call without a body
			if err := c.admit(r); err != nil {
				writeAPIError(w, err)
				return
			}
		}
		if over := tooLarge(r); over != nil {
			writeTooLarge(w, r, over)
			return
		}
		next(w, r)
	}
}

func writeTooLarge(w http.ResponseWriter, r *http.Request, over *http.MaxBytesError) {
	if r.Pattern == uploadPattern {
		writeAPIError(w, readError(over))
		return
	}
	if r.Pattern == eventsPattern {
		writeAPIStatus(w, http.StatusRequestEntityTooLarge, status.Newf(codes.ResourceExhausted, "the body of the request is larger than %d bytes, the limit of events: send fewer at a time", over.Limit))
		return
	}
	writeAPIStatus(w, http.StatusRequestEntityTooLarge, status.Newf(codes.ResourceExhausted,
		"the body of the request is larger than %d bytes, the limit of the server: send less at a time, or raise --max-body", over.Limit))
}
