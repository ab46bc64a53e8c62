package sdk

import (
	"context"
	"fmt"
	"net/url"
	"strconv"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/document"
)

// Revision is one change of a definition, see [Client.Revisions].
type Revision = apiv1.Revision

// The kinds of definitions that have revisions.
const (
	KindJob      = "job"
	KindCalendar = "calendar"
	KindAlias    = "alias"  // its name is module@name
	KindGrants   = "grants" // its name is the module
	KindApp      = "app"    // its name is the app

	KindAlertRule    = "alertrule"
	KindAlertChannel = "alertchannel"
	KindEventSource  = "eventsource"
)

// The headers of the attribution of a change. Values are escaped as in the path of a URL.
const (
	noteHeader     = "wheelwork-note"
	causeHeader    = "wheelwork-cause"
	rollbackHeader = "wheelwork-rollback"
)

type (
	noteKey     struct{}
	rollbackKey struct{}
)

// WithNote returns a context whose calls give the revisions that they make a note for people,
// of at most 500 bytes.
func WithNote(ctx context.Context, note string) context.Context {
	return context.WithValue(ctx, noteKey{}, note)
}

// noted adds the note and the roll-back of the context to the metadata of a call.
func noted(ctx context.Context) context.Context {
	if note, _ := ctx.Value(noteKey{}).(string); note != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, noteHeader, url.PathEscape(note))
	}
	if to, _ := ctx.Value(rollbackKey{}).(int64); to > 0 {
		ctx = metadata.AppendToOutgoingContext(ctx, rollbackHeader, strconv.FormatInt(to, 10))
	}
	return ctx
}

// attributeCommand stores the note and the roll-back of ctx in a change of a job. The commands
// of many callers share one stream, so its metadata cannot carry them.
func attributeCommand(ctx context.Context, c *apiv1.Command) {
	if c.GetTrigger() != nil {
		return
	}
	note, _ := ctx.Value(noteKey{}).(string)
	to, _ := ctx.Value(rollbackKey{}).(int64)
	if note != "" || to > 0 {
		c.Attribution = &apiv1.Attribution{Note: note, Rollback: to}
	}
}

// Revisions returns the revisions of a definition, the newest first, at most the newest 100. It
// fails with [ErrNotFound] if there is no such definition and never was one.
func (c *Client) Revisions(ctx context.Context, app, kind, name string) (all []*Revision, err error) {
	req := &apiv1.ListRevisionsRequest{App: appOf(app), Kind: kind, Name: name, PageSize: 100}
	for {
		r, err := c.revisions.ListRevisions(ctx, req)
		if err != nil {
			return nil, c.callError(ctx, fmt.Sprintf("list revisions of %s %s", kind, name), err)
		}
		all = append(all, r.GetRevisions()...)
		if req.PageToken = r.GetNextPageToken(); req.PageToken == "" {
			return all, nil
		}
	}
}

// Revision returns a revision with the definition as it was after that change.
func (c *Client) Revision(ctx context.Context, app, kind, name string, number int64) (*Revision, error) {
	r, err := c.revisions.GetRevision(ctx, &apiv1.GetRevisionRequest{App: appOf(app), Kind: kind, Name: name, Number: number})
	return r, c.callError(ctx, fmt.Sprintf("get revision %d of %s %s", number, kind, name), err)
}

// RollBack makes a definition what it was after an earlier revision, and returns that revision.
// The change is a new revision, and needs the permission to change that kind of definition. A
// definition that was deleted is created again. It fails with [ErrInvalid] if the definition
// is no longer valid, for example because a calendar that it names is gone, and with
// [ErrPrecondition] if the revision is a deletion.
func (c *Client) RollBack(ctx context.Context, app, kind, name string, to int64) (*Revision, error) {
	r, err := c.Revision(ctx, app, kind, name, to)
	if err != nil {
		return nil, err
	}
	ctx = context.WithValue(ctx, rollbackKey{}, to)
	switch {
	case r.GetDeleted():
		return nil, &Error{Code: ErrPrecondition.Code, Message: fmt.Sprintf("revision %d of %s %s is its deletion: choose another one", to, kind, name)}
	case r.GetJob() != nil:
		_, err = c.Apply(ctx, r.GetJob())
	case r.GetCalendar() != nil:
		_, err = c.PutCalendar(ctx, r.GetCalendar())
	case r.GetAlias() != nil:
		_, err = c.ApplyChangeSet(ctx, ChangeSet{App: app, Definitions: []proto.Message{r.GetAlias()}}) // SetAlias would keep labels
	case r.GetGrants() != nil:
		_, err = c.PutGrants(ctx, r.GetGrants())
	case r.GetSettings() != nil:
		_, err = c.PutApp(ctx, r.GetSettings())
	case r.GetAlertRule() != nil:
		_, err = c.ApplyChangeSet(ctx, ChangeSet{App: app, Definitions: []proto.Message{r.GetAlertRule()}})
	case r.GetAlertChannel() != nil:
		_, err = c.ApplyChangeSet(ctx, ChangeSet{App: app, Definitions: []proto.Message{r.GetAlertChannel()}})
	case r.GetEventSource() != nil:
		_, err = c.ApplyChangeSet(ctx, ChangeSet{App: app, Definitions: []proto.Message{r.GetEventSource()}})
	}
	return r, err
}

// RevisionChanges returns the fields in which two revisions of a definition differ. It ignores
// what the server sets. A deleted definition has no fields.
func RevisionChanges(old, next *Revision) []Change { return document.RevisionChanges(old, next) }
