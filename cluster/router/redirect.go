package router

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Redirect is the error of a call that another server has to answer. Programs find the
// assignment in the details of its status.
type Redirect struct {
	App string // that the call is about; "": it is about the partition
	To  *apiv1.Assignment
}

// Error implements [error].
func (e *Redirect) Error() string { return e.GRPCStatus().Err().Error() }

// GRPCStatus is what gRPC sends to the caller.
func (e *Redirect) GRPCStatus() *status.Status {
	app := e.App
	if app == "" {
		app = "of the partition " + e.To.GetUnit()
	}
	s := status.Newf(codes.FailedPrecondition, "the app %s is on the server %s: use %s", app, e.To.GetServer(), e.To.GetAddress())
	if with, err := s.WithDetails(e.To); err == nil {
		s = with
	}
	return s
}

// OwnerIn returns the other server that an error names; nil: it names none.
func OwnerIn(err error) *apiv1.Assignment {
	if status.Code(err) != codes.FailedPrecondition {
		return nil
	}
	for _, d := range status.Convert(err).Details() {
		if a, ok := d.(*apiv1.Assignment); ok && a.GetAddress() != "" {
			return a
		}
	}
	return nil
}

// AddressIn returns the address that an error names; "": it names none.
func AddressIn(err error) string { return OwnerIn(err).GetAddress() }

// isRedirect reports whether an error names another server.
func isRedirect(err error) bool { return OwnerIn(err) != nil }

// passedOn turns an error of the server to which a call was passed on into the error for
// the caller. The partition in it lets clients wait until another server owns that.
func passedOn(to *apiv1.Assignment, err error) error {
	s := status.Convert(err)
	switch s.Code() {
	case codes.Unavailable:
		return later(to.Unit, "the server at %s, which this server passed the call on to: %s", to.Address, s.Message())
	case codes.Unauthenticated: // the caller's own token was accepted here
		return later(to.Unit, "the server at %s refused the key of this cluster: a server of another installation listens there", to.Address)
	}
	return err
}

// settled turns the error of a call that must not be passed on further into the answer.
func settled(err error) error {
	if a := OwnerIn(err); a != nil {
		return later(a.Unit, "what the call is about moves between servers now: try again in a moment")
	}
	return err
}

// later returns an error that goes away by itself. It names the partition that will have
// another owner then, and no address.
func later(partition, format string, args ...any) error {
	s := status.New(codes.Unavailable, fmt.Sprintf(format, args...))
	if partition == "" {
		return s.Err()
	}
	if with, err := s.WithDetails(&apiv1.Assignment{Unit: partition}); err == nil {
		s = with
	}
	return s.Err()
}
