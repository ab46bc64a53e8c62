package sched

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// condition is what must hold of a job for a change of it. The zero value always holds.
type condition struct {
	etag    string // of a job that is there; "": any
	ifMatch string // of a job that must be there; "*": any etag, "": it may be missing
}

// anyEtag is the condition that a job is there.
const anyEtag = "*"

// check refuses a change whose caller has not seen the definition as it is.
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

// The reasons of a refusal. The texts are part of the API.
const (
	reasonChanged    = "changed"
	reasonReferenced = "referenced"
	reasonKeyReused  = "key_reused"
	reasonBusy       = "busy"
)

// refused is an error that says to people, and with its detail to programs, why a change was refused.
func refused(code codes.Code, message string, detail *apiv1.Refusal) error {
	s := status.New(code, message)
	if with, err := s.WithDetails(detail); err == nil {
		s = with
	}
	return s.Err()
}
