package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Error is a refusal by the server, or its absence. It matches the sentinel of
// its code:
//
//	if errors.Is(err, sdk.ErrNotFound) { … }
type Error struct {
	Code    codes.Code
	Message string // one sentence for people; never empty but in the sentinels

	// Names are of what names the thing that was not deleted, as "job totals" or "alias greet@prod": the first 100. Empty for
	// other errors, and for commands that were not a call of their own.
	Names []string
	// Etag is what a job has now whose etag was another one than the caller's; "" if it is not there.
	Etag string
}

func (e *Error) Error() string {
	if e.Message == "" {
		return strings.ToLower(e.Code.String())
	}
	return e.Message
}

// Is reports whether target is the sentinel of the same code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Message == "" && t.Code == e.Code
}

// The sentinels, for errors.Is.
var (
	ErrInvalid         = &Error{Code: codes.InvalidArgument}    // the request can never succeed as it is
	ErrNotFound        = &Error{Code: codes.NotFound}           // no such job, run, module or app
	ErrConflict        = &Error{Code: codes.AlreadyExists}      // for example other bytes under a version that exists
	ErrPrecondition    = &Error{Code: codes.FailedPrecondition} // for example a run that has ended, or a job to delete that others name
	ErrUnauthenticated = &Error{Code: codes.Unauthenticated}    // the token is missing or wrong
	ErrDenied          = &Error{Code: codes.PermissionDenied}   // the token does not allow it
	ErrExhausted       = &Error{Code: codes.ResourceExhausted}  // a quota or a disk is full; later it may succeed
	ErrChanged         = &Error{Code: codes.Aborted}            // a value has another version than the expected one, a job another etag
	ErrUnavailable     = &Error{Code: codes.Unavailable}        // the server cannot be reached
)

// ErrClosed says that the client was closed before the command was answered.
var ErrClosed = errors.New("the client is closed")

// ErrFull says that there is no room for another command now: see [Options].
var ErrFull = errors.New("as many commands as the client may hold are not answered yet: try again when some are, or raise MaxPending")

// ErrUnknown says that a command was sent and that no server said what became
// of it: it may have been carried out, or still be. It comes together with the cause. An
// error without it is certain: the command was not carried out and will not be.
// This is so for commands, whatever their form, and not for other calls such as
// [Client.TriggerRun].
//
// To find out what happened, send the command again: applying and deleting
// twice is harmless, and a trigger with a Key of your own starts no second run
// within the window of the server, see [Trigger].
var ErrUnknown = errors.New("whether the server carried it out is unknown")

func unknown(cause error) error { return fmt.Errorf("%w: %w", ErrUnknown, cause) }

func notSent(cause error) error { return fmt.Errorf("it was not sent: %w", cause) }

// callError turns the error of a call into what the caller reads. Errors that
// the caller's own context caused stay recognisable as such.
func (c *Client) callError(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	if cause := ctx.Err(); cause != nil {
		return fmt.Errorf("%s: %w", op, cause)
	}
	s := status.Convert(err)
	// A deadline of the call may fire on the wire just before it does here.
	if s.Code() == codes.DeadlineExceeded {
		return fmt.Errorf("%s: %w", op, context.DeadlineExceeded)
	}
	return fmt.Errorf("%s: %w", op, c.statusError(s))
}

func (c *Client) statusError(s *status.Status) *Error {
	message := s.Message()
	switch {
	case s.Code() == codes.Unavailable && strings.Contains(message, "connection"):
		message = "cannot reach " + c.servers.String() + ": " + dialReason(message)
	case message == "":
		message = "the server answered " + strings.ToLower(s.Code().String())
	}
	err := &Error{Code: s.Code(), Message: message}
	for _, d := range s.Details() {
		if r, ok := d.(*apiv1.Refusal); ok {
			err.Names, err.Etag = r.Names, r.Etag
		}
	}
	return err
}

// unavailable names the break of a stream by what it means to the caller.
func unavailable(err error) *status.Status {
	if status.Code(err) == codes.Unavailable {
		return status.Convert(err)
	}
	return status.New(codes.Unavailable, "the server ended the connection")
}

// dialReason keeps what a person can act on of the transport's nested report:
// "connection error: desc = \"transport: Error while dialing: dial tcp …: connect: connection refused\"".
func dialReason(message string) string {
	if _, rest, ok := strings.Cut(message, "Error while dialing: "); ok {
		message = rest
	} else if _, rest, ok := strings.Cut(message, `desc = "`); ok {
		message = rest
	}
	return strings.TrimSuffix(strings.TrimPrefix(message, "transport: "), `"`)
}

// refused reports whether a stream that answered nothing was turned away before
// a server looked at what it carried.
func refused(err error) bool {
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented:
		return true
	}
	return false
}

// broken reports whether a stream ended in a way that another stream may cure:
// the connection was lost or the server went away without a verdict.
func broken(err error) bool {
	if errors.Is(err, io.EOF) {
		return true
	}
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.Canceled
}
