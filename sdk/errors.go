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

// Error is a refusal by the server, or the report that no server could be reached. It
// matches the sentinel of its code:
//
//	if errors.Is(err, sdk.ErrNotFound) { … }
type Error struct {
	Code    codes.Code
	Message string // one sentence for people; empty only in the sentinels

	// Names lists the objects that refer to the object that was not deleted, as "job
	// totals" or "alias greet@prod": the first 100. It is empty for other errors, and for commands
	// that were not a call of their own.
	Names []string
	// Etag is the current etag of a job when it differs from the caller's; "" if the job
	// does not exist.
	Etag string
	// Problems are the invalid changes of a change set, the first 20 of ProblemsInAll.
	Problems      []Problem
	ProblemsInAll int
}

// Problem says why a change of a change set is invalid.
type Problem struct {
	Index   int // of the change: the definitions from 0, and after them the deletions
	Code    codes.Code
	Message string
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

// GRPCStatus returns the code and the message, for callers that use package status of gRPC.
func (e *Error) GRPCStatus() *status.Status { return status.New(e.Code, e.Error()) }

// ErrorOf converts the error of a call over a connection of [Options.Conn]: its Message is
// one sentence for people. It returns nil for nil.
func ErrorOf(err error) *Error {
	if err == nil {
		return nil
	}
	s := status.Convert(err)
	var inner interface{ GRPCStatus() *status.Status }
	if errors.As(err, &inner) { // Convert puts the text of the wrapping errors into the message
		s = inner.GRPCStatus()
	}
	return fromStatus(s)
}

func fromStatus(s *status.Status) *Error {
	message := s.Message()
	switch {
	case s.Code() == codes.Unavailable:
		message = dialReason(message)
	case s.Code() == codes.DeadlineExceeded:
		message = "no answer in time"
	case message == "":
		message = "the server answered " + strings.ToLower(s.Code().String())
	}
	err := &Error{Code: s.Code(), Message: message}
	for _, d := range s.Details() {
		if r, ok := d.(*apiv1.Refusal); ok {
			err.Names, err.Etag, err.ProblemsInAll = r.Names, r.Etag, int(r.ProblemsInAll)
			for _, p := range r.Problems {
				err.Problems = append(err.Problems, Problem{int(p.Index), codes.Code(p.Code), p.Error})
			}
		}
	}
	return err
}

// The sentinels, for errors.Is.
var (
	ErrInvalid         = &Error{Code: codes.InvalidArgument}    // the request can never succeed as it is
	ErrNotFound        = &Error{Code: codes.NotFound}           // no such job, run, module or app
	ErrConflict        = &Error{Code: codes.AlreadyExists}      // for example other bytes under a version that exists
	ErrPrecondition    = &Error{Code: codes.FailedPrecondition} // a run has ended, say, or a job to delete is named by others
	ErrUnauthenticated = &Error{Code: codes.Unauthenticated}    // the token is missing or wrong
	ErrDenied          = &Error{Code: codes.PermissionDenied}   // the token does not allow it
	ErrExhausted       = &Error{Code: codes.ResourceExhausted}  // a quota or a disk is full; a later call may succeed
	ErrChanged         = &Error{Code: codes.Aborted}            // a value or job has another version or etag than expected
	ErrUnavailable     = &Error{Code: codes.Unavailable}        // the server cannot be reached
)

// ErrClosed means that the client was closed before the command was answered.
var ErrClosed = errors.New("the client is closed")

// ErrFull means that the client has no room for another command now: see [Options].
var ErrFull = errors.New("the client has as many unanswered commands as it may have: try again later, or raise MaxPending")

// ErrUnknown means that a command was sent and no server reported its outcome. A server
// may have executed it, or may still do so. The error comes together with its cause. If a
// command fails with an error that does not match ErrUnknown, it was not executed and
// will not be. This holds for commands in every form, but not for other calls such as
// [Client.TriggerRun].
//
// To find out what happened, send the command again. Applying and deleting twice is
// harmless, and a trigger with a Key of your own starts no second run within the server's
// window, see [Trigger].
var ErrUnknown = errors.New("whether the server carried it out is unknown")

func unknown(cause error) error { return fmt.Errorf("%w: %w", ErrUnknown, cause) }

func notSent(cause error) error { return fmt.Errorf("it was not sent: %w", cause) }

// callError converts the error of a call for the caller. Errors that the caller's own
// context caused stay recognisable.
func (c *Client) callError(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	if cause := ctx.Err(); cause != nil {
		return fmt.Errorf("%s: %w", op, cause)
	}
	s := status.Convert(err)
	// A deadline of the call may expire on the wire just before it does here.
	if s.Code() == codes.DeadlineExceeded {
		return fmt.Errorf("%s: %w", op, context.DeadlineExceeded)
	}
	return fmt.Errorf("%s: %w", op, c.statusError(s))
}

func (c *Client) statusError(s *status.Status) *Error {
	err := fromStatus(s)
	if s.Code() == codes.Unavailable {
		reason := ""
		switch message := s.Message(); {
		case strings.Contains(message, "produced zero addresses"):
			reason = "its host name has no address"
		case strings.Contains(message, "error reading server preface"):
			reason = "the program that listens there is not a Wheelwork server"
		case strings.Contains(message, "connection"):
			reason = err.Message
		}
		if reason != "" {
			err.Message = "cannot reach " + c.servers.String() + ": " + reason
		}
	}
	return err
}

// unavailable converts the break of a stream to an error whose text explains the
// consequence for the caller.
func unavailable(err error) *status.Status {
	if status.Code(err) == codes.Unavailable {
		return status.Convert(err)
	}
	return status.New(codes.Unavailable, "the server ended the connection")
}

// dialReason extracts the part that a person can act on from the transport's nested
// error, such as "connection error: desc = \"transport: Error while dialing: dial tcp …:
// connect: connection refused\"".
func dialReason(message string) string {
	if _, rest, ok := strings.Cut(message, "Error while dialing: "); ok {
		message = rest
	} else if _, rest, ok := strings.Cut(message, `desc = "`); ok {
		message = rest
	}
	return strings.TrimSuffix(strings.TrimPrefix(message, "transport: "), `"`)
}

// refused reports whether a stream without any answer was refused before a server looked
// at its messages.
func refused(err error) bool {
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented:
		return true
	}
	return false
}

// broken reports whether another stream may succeed: the connection was lost, or the
// server closed the stream without a verdict.
func broken(err error) bool {
	if errors.Is(err, io.EOF) {
		return true
	}
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.Canceled
}
