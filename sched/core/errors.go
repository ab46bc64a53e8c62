package core

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/naming"
)

// AppOf returns the name of an app in a request: the default app if it is empty.
func AppOf(app string) string { return cmp.Or(app, naming.DefaultApp) }

// Invalid returns an error as a status with the code InvalidArgument.
func Invalid(err error) error { return status.Error(codes.InvalidArgument, err.Error()) }

func noJob(app, name string) error {
	return status.Errorf(codes.NotFound, "there is no job %q in app %q: `wheelwork job list` shows what there is", name, app)
}

// reusedKey returns the error for an idempotency key that was used with another input.
func reusedKey(key string, id job.RunID) error {
	return Refused(codes.FailedPrecondition, fmt.Sprintf("idempotency key %q was used before with other input, for run %s: send the same input to get that run, or a new key to start another one", key, id),
		&apiv1.Refusal{Reason: reasonKeyReused})
}

// The values of Refusal.Reason. They are part of the API.
const (
	reasonChanged    = "changed"
	reasonReferenced = "referenced"
	reasonKeyReused  = "key_reused"
	reasonChangeSet  = "change_set"
	ReasonBusy       = "busy"
)

// Refused returns an error with a message for people and a detail for programs.
func Refused(code codes.Code, message string, detail *apiv1.Refusal) error {
	s := status.New(code, message)
	if with, err := s.WithDetails(detail); err == nil {
		s = with
	}
	return s.Err()
}

// shownNames bounds the names in the text of a refusal, and sentNames the names in its
// detail.
const (
	shownNames = 10
	sentNames  = 100
)

// referenced returns the error for the deletion of an object that the objects in names
// refer to; nil: names is empty. what and names are texts such as "job mail".
func referenced(what string, names []string) error {
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	shown := strings.Join(names[:min(len(names), shownNames)], ", ")
	if more := len(names) - shownNames; more > 0 {
		shown += fmt.Sprintf(" and %d more", more)
	}
	return Refused(codes.FailedPrecondition,
		fmt.Sprintf("%s is named by %s: change or delete these first, or delete it all the same with --force (force in the API)", what, shown),
		&apiv1.Refusal{Reason: reasonReferenced, Names: names[:min(len(names), sentNames)]})
}

// NoApp returns the error for an app that has nothing in it.
func NoApp(name string) error {
	return status.Errorf(codes.NotFound, "there is nothing in app %q: `wheelwork app list` shows the apps that there are", name)
}
