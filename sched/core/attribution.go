package core

import (
	"cmp"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// ByQueue is the attribution of the commands that were accepted to be applied later.
var ByQueue = &apiv1.Attribution{Cause: "queue"}

// byServer is the attribution of the changes that the server makes itself, as the roll-back
// of a canary.
var byServer = &apiv1.Attribution{Author: "server"}

// revises reports whether a record changes a definition.
func revises(rec *apiv1.Record) bool {
	switch rec.Kind.(type) {
	case *apiv1.Record_JobPut, *apiv1.Record_JobDelete, *apiv1.Record_AliasPut, *apiv1.Record_AliasDelete,
		*apiv1.Record_CalendarPut, *apiv1.Record_CalendarDelete, *apiv1.Record_GrantsPut, *apiv1.Record_AppPut,
		*apiv1.Record_DefinitionPut, *apiv1.Record_DefinitionDelete:
		return true
	}
	return false
}

// Bounds of the texts of an attribution, in bytes.
const (
	maxNote  = 500
	maxCause = 40
)

// CheckAttribution checks the texts of an attribution that a client sent.
func CheckAttribution(by *apiv1.Attribution) error {
	switch {
	case len(by.Note) > maxNote:
		return status.Errorf(codes.InvalidArgument, "the note has %d bytes, the limit is %d", len(by.Note), maxNote)
	case len(by.Cause) > maxCause:
		return status.Errorf(codes.InvalidArgument, "the cause has %d bytes, the limit is %d", len(by.Cause), maxCause)
	case by.Rollback < 0:
		return status.Errorf(codes.InvalidArgument, "the revision to roll back to is %d: want the number of a revision", by.Rollback)
	}
	return nil
}

// Attribute returns the attribution of a command that came with a call. A command from the
// ingress, whose call was [ByQueue], has the one that the server gave it when it was accepted.
func Attribute(c *apiv1.Command, call *apiv1.Attribution) *apiv1.Attribution {
	own := c.Attribution
	switch {
	case own == nil && call == nil:
		return byServer
	case own == nil:
		return call
	case call == ByQueue:
		return own
	}
	return &apiv1.Attribution{Author: call.GetAuthor(), Kind: call.GetKind(), Token: call.GetToken(), Address: call.GetAddress(), Cause: cmp.Or(own.Cause, call.GetCause()), Note: own.Note, Rollback: own.Rollback}
}
