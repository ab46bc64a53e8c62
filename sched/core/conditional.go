package core

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// Condition says which state of a job a change requires. The zero value allows any state.
type Condition struct {
	Etag    string // the etag that an existing job must have; "": any
	IfMatch string // the etag of a job that must exist; "*": any etag; "": the job may be missing
	New     bool   // the job must not exist
}

// anyEtag as IfMatch requires that the job exists, with any etag.
const anyEtag = "*"

// check fails if a job does not meet the condition: with the code AlreadyExists if it must
// be new, otherwise with Aborted, because the caller has not seen its current definition.
// j is nil if there is no job.
func (c Condition) check(name string, j *job.Job) error {
	if c == (Condition{}) {
		return nil
	}
	now := ""
	if j != nil {
		now = j.Etag()
	}
	switch {
	case c.New && j != nil:
		return status.Errorf(codes.AlreadyExists, "job %s exists: choose another name, or apply the definition (PUT, wheelwork job apply) to change the job", name)
	case j == nil && c.IfMatch != "":
		return Refused(codes.Aborted, fmt.Sprintf("job %s is not there, and the change is for one that is: it was deleted, or never created", name),
			&apiv1.Refusal{Reason: reasonChanged})
	case c.IfMatch != "" && c.IfMatch != anyEtag && c.IfMatch != now, j != nil && c.Etag != "" && c.Etag != now:
		return Refused(codes.Aborted, fmt.Sprintf("job %s was changed meanwhile: its etag is %s; read it again, and change what it is now", name, now),
			&apiv1.Refusal{Reason: reasonChanged, Etag: now})
	}
	return nil
}
