package router

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// elsewhere returns the error of a call about an app of another server. Programs find the
// assignment in its details.
func elsewhere(app string, a *apiv1.Assignment) error {
	s := status.Newf(codes.FailedPrecondition, "the app %s is on the server %s: use %s", app, a.GetServer(), a.GetAddress())
	if with, err := s.WithDetails(a); err == nil {
		s = with
	}
	return s.Err()
}
