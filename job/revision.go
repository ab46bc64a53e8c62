package job

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// The kinds of definitions that have revisions.
const (
	KindJob      = "job"
	KindCalendar = "calendar"
	KindAlias    = "alias"  // its name is module@name
	KindGrants   = "grants" // its name is the module
	KindApp      = "app"    // its name is the app
)

// Content is a definition in the form in which revisions are stored: bytes of its message.
// Shape is the part that many jobs share, and empty for other kinds. The zero value means
// that there is no object.
type Content struct{ Shape, Own string }

// Revision is one change of one definition.
type Revision struct {
	Kind, Name    string
	Number        int64
	AtMs          int64
	By            *apiv1.Attribution // immutable; nil: unknown
	Before, After Content
}

// Message decodes the definition of a job.
func (c Content) Message(app, name string) (*apiv1.Job, error) {
	d := &apiv1.Job{}
	for _, part := range []string{c.Shape, c.Own} {
		if err := (proto.UnmarshalOptions{Merge: true}).Unmarshal([]byte(part), d); err != nil {
			return nil, err
		}
	}
	if d.UpdatedAt == nil {
		d.UpdatedAt = proto.CloneOf(d.CreatedAt)
	}
	d.App, d.Name = app, name
	return d, nil
}

// ContentOf returns the content of a definition that is no job, without the fields that the
// server sets. m must not be nil.
func ContentOf(m proto.Message) Content {
	switch d := m.(type) {
	case *apiv1.Calendar:
		m = &apiv1.Calendar{App: d.App, Name: d.Name, Description: d.Description, Dates: d.Dates, Yearly: d.Yearly, Days: d.Days, Labels: d.Labels}
	case *apiv1.Alias:
		m = &apiv1.Alias{App: d.App, Module: d.Module, Name: d.Name, Version: d.Version, Canary: d.Canary, Labels: d.Labels}
	case *apiv1.ModuleGrants:
		m = &apiv1.ModuleGrants{App: d.App, Module: d.Module, Grants: d.Grants, Labels: d.Labels}
	case *apiv1.App:
		c := proto.CloneOf(d)
		c.UpdatedAt, c.DeletedAt, c.Jobs, c.Live, c.Revision = nil, nil, 0, 0, 0
		m = c
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(fmt.Sprint("job: a validated definition does not encode: ", err))
	}
	return Content{Own: string(b)}
}

// definition is the message of a definition that is no job.
type definition interface {
	comparable
	proto.Message
	GetRevision() int64
}

// next returns the number of a definition that replaces old, which is nil if there is none.
func next[D definition](old, now D) int64 {
	var none D
	if old == none {
		return 1
	}
	if old.GetRevision() > 0 && ContentOf(old) == ContentOf(now) {
		return old.GetRevision()
	}
	return old.GetRevision() + 1
}
