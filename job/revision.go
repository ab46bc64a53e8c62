package job

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

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
	case AppDefinition:
		m = withoutServerFields(d)
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

// AppDefinition is a definition of a kind that no rule of jobs and runs reads: an alert rule, an alert channel or an event source. The
// module slot holds them in one map, and one record changes each of them, so that a further kind is one more row of
// unwrap and [Wrap]. A definition is immutable once it is in a slot.
type AppDefinition interface {
	proto.Message
	GetApp() string
	GetName() string
	GetRevision() int64
}

// unwrap returns the definition in a row and its kind; nil: a newer version has written it.
func unwrap(row *apiv1.DefinitionRow) (kind string, d AppDefinition) {
	switch k := row.GetKind().(type) {
	case *apiv1.DefinitionRow_AlertRule:
		return KindAlertRule, k.AlertRule
	case *apiv1.DefinitionRow_AlertChannel:
		return KindAlertChannel, k.AlertChannel
	case *apiv1.DefinitionRow_EventSource:
		return KindEventSource, k.EventSource
	}
	return "", nil
}

// Wrap returns the row of a definition.
func Wrap(d AppDefinition) *apiv1.DefinitionRow {
	switch m := d.(type) {
	case *apiv1.AlertRule:
		return &apiv1.DefinitionRow{Kind: &apiv1.DefinitionRow_AlertRule{AlertRule: m}}
	case *apiv1.AlertChannel:
		return &apiv1.DefinitionRow{Kind: &apiv1.DefinitionRow_AlertChannel{AlertChannel: m}}
	case *apiv1.EventSource:
		return &apiv1.DefinitionRow{Kind: &apiv1.DefinitionRow_EventSource{EventSource: m}}
	}
	return nil
}

// withoutServerFields returns a copy of a definition without the fields that the server sets.
func withoutServerFields(d AppDefinition) proto.Message {
	m := proto.Clone(d)
	r := m.ProtoReflect()
	for _, name := range []protoreflect.Name{"revision", "updated_at"} {
		r.Clear(r.Descriptor().Fields().ByName(name))
	}
	return m
}
