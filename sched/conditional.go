package sched

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// condition says which state of a job a change requires. The zero value allows any state.
type condition struct {
	etag    string // the etag that an existing job must have; "": any
	ifMatch string // the etag of a job that must exist; "*": any etag; "": the job may be missing
}

// anyEtag as ifMatch requires that the job exists, with any etag.
const anyEtag = "*"

// check fails with the code Aborted if a job does not meet the condition, because the caller
// has not seen its current definition. j is nil if there is no job.
func (c condition) check(name string, j *job.Job) error {
	if c == (condition{}) {
		return nil
	}
	now := ""
	if j != nil {
		now = j.Etag()
	}
	switch {
	case j == nil && c.ifMatch != "":
		return refused(codes.Aborted, fmt.Sprintf("job %s is not there, and the change is for one that is: it was deleted, or never created", name),
			&apiv1.Refusal{Reason: reasonChanged})
	case c.ifMatch != "" && c.ifMatch != anyEtag && c.ifMatch != now, j != nil && c.etag != "" && c.etag != now:
		return refused(codes.Aborted, fmt.Sprintf("job %s was changed meanwhile: its etag is %s; read it again, and change what it is now", name, now),
			&apiv1.Refusal{Reason: reasonChanged, Etag: now})
	}
	return nil
}

// The values of Refusal.Reason. They are part of the API.
const (
	reasonChanged    = "changed"
	reasonReferenced = "referenced"
	reasonKeyReused  = "key_reused"
	reasonBusy       = "busy"
)

// refused returns an error with a message for people and a detail for programs.
func refused(code codes.Code, message string, detail *apiv1.Refusal) error {
	s := status.New(code, message)
	if with, err := s.WithDetails(detail); err == nil {
		s = with
	}
	return s.Err()
}
