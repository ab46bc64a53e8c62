package sdk

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// ChangeSet changes many definitions of one app at once, see [Client.ApplyChangeSet].
type ChangeSet struct {
	App string // of all changes; "": default
	// Definitions are the new definitions, each of type *[Job], *[Calendar], *[Alias],
	// *[ModuleGrants], *[AlertRule], *[AlertChannel], *[EventSource] or *[App], in any order. Each replaces the former one as a whole; a job
	// without Paused keeps its pause.
	Definitions []proto.Message
	// Deletions are the objects to delete, none of them of kind [KindApp]. An object that does
	// not exist is no error.
	Deletions []Object
	// Bases are the states of the objects that the caller has seen, see [BaseOf]: first those of
	// the definitions, then those of the deletions, in their order. With them the server refuses
	// the set if one of the objects has another state. None: any states; "": any state of that object.
	Bases []string
	// DryRun checks the set, and changes nothing.
	DryRun bool
	// CreateApp allows an app that has no definitions, modules or settings yet. An *[App] among
	// the definitions allows it too.
	CreateApp bool
}

// Object names a definition.
type Object struct {
	Kind string
	Name string // of an alias: module@name; of grants: the module
}

// NoBase is the base of an object that does not exist.
const NoBase = "none"

// BaseOf returns the state of an object for [ChangeSet.Bases], from its definition as the server
// has sent it: [NoBase] for settings or grants that were never put.
func BaseOf(definition proto.Message) string {
	if job, ok := definition.(*Job); ok {
		return job.GetEtag()
	}
	d, ok := definition.(interface {
		GetRevision() int64
		GetUpdatedAt() *timestamppb.Timestamp
	})
	if !ok || d.GetRevision() < 1 {
		return NoBase
	}
	return fmt.Sprintf("%d@%d", d.GetRevision(), d.GetUpdatedAt().AsTime().UnixMilli())
}

// ApplyChangeSet makes all changes of a set, or none. The results are [Created], [Updated],
// [Unchanged] or [Deleted], first those of the definitions, then those of the deletions, in
// their order. An error with [Error.Problems] says which changes are invalid. After an error of
// the connection the set may have been applied: applying it again changes nothing more. The
// set has at most 50 000 changes and 32 MiB.
func (c *Client) ApplyChangeSet(ctx context.Context, set ChangeSet) ([]Result, error) {
	req := &apiv1.ApplyChangeSetRequest{App: appOf(set.App), DryRun: set.DryRun, CreateApp: set.CreateApp}
	for _, d := range set.Definitions {
		x := &apiv1.Change{}
		switch d := d.(type) {
		case *Job:
			x.Kind = &apiv1.Change_Job{Job: d}
		case *Calendar:
			x.Kind = &apiv1.Change_Calendar{Calendar: d}
		case *Alias:
			x.Kind = &apiv1.Change_Alias{Alias: d}
		case *ModuleGrants:
			x.Kind = &apiv1.Change_Grants{Grants: d}
		case *AlertRule:
			x.Kind = &apiv1.Change_AlertRule{AlertRule: d}
		case *AlertChannel:
			x.Kind = &apiv1.Change_AlertChannel{AlertChannel: d}
		case *EventSource:
			x.Kind = &apiv1.Change_EventSource{EventSource: d}
		case *App:
			x.Kind = &apiv1.Change_Settings{Settings: d}
		default:
			return nil, fmt.Errorf("apply change set: a %T is not a definition", d)
		}
		req.Changes = append(req.Changes, x)
	}
	for _, o := range set.Deletions {
		req.Changes = append(req.Changes, &apiv1.Change{Kind: &apiv1.Change_Delete{Delete: &apiv1.Deletion{Kind: o.Kind, Name: o.Name}}})
	}
	if n := len(set.Bases); n > 0 && n != len(req.Changes) {
		return nil, fmt.Errorf("apply change set: %d bases for %d changes", n, len(req.Changes))
	}
	for i, base := range set.Bases {
		req.Changes[i].Base = base
	}
	r, err := c.changeSets.ApplyChangeSet(forApp(ctx, req.GetApp()), req)
	if err != nil {
		return nil, c.callError(ctx, "apply change set", err)
	}
	results := make([]Result, len(r.GetResults()))
	for i, x := range r.GetResults() {
		results[i] = Result(x.GetResult())
	}
	return results, nil
}
