package document

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Change is a field in which two definitions differ.
type Change struct {
	Field string `json:"field"` // as in documents: "retry.max", "labels.team", "workflow.nodes[0].job"
	Old   string `json:"old"`   // as in documents, bytes in base64; "" when it is unset
	New   string `json:"new"`
}

// Changes returns the fields in which a definition differs from an older one of the same
// object. It ignores what the server sets, and a pause that the new definition leaves unset.
func Changes(old, next proto.Message) []Change {
	var d differ
	d.messages(old.ProtoReflect(), next.ProtoReflect(), "")
	return d.changes
}

// RevisionChanges returns the fields in which two revisions of a definition differ. It ignores
// what the server sets. A deleted definition has no fields, and neither has a nil revision.
func RevisionChanges(old, next *apiv1.Revision) []Change {
	var d differ
	a, b := definitionIn(old), definitionIn(next)
	switch {
	case a == nil && b == nil:
		return nil
	case a == nil:
		a = b.Type().Zero()
	case b == nil:
		b = a.Type().Zero()
	}
	d.messages(a, b, "")
	return d.changes
}

// definitionIn returns the definition of a revision, nil after a deletion.
func definitionIn(r *apiv1.Revision) protoreflect.Message {
	switch {
	case r.GetJob() != nil:
		return r.GetJob().ProtoReflect()
	case r.GetCalendar() != nil:
		return r.GetCalendar().ProtoReflect()
	case r.GetAlias() != nil:
		return r.GetAlias().ProtoReflect()
	case r.GetGrants() != nil:
		return r.GetGrants().ProtoReflect()
	case r.GetSettings() != nil:
		return r.GetSettings().ProtoReflect()
	case r.GetAlertRule() != nil:
		return r.GetAlertRule().ProtoReflect()
	case r.GetAlertChannel() != nil:
		return r.GetAlertChannel().ProtoReflect()
	case r.GetEventSource() != nil:
		return r.GetEventSource().ProtoReflect()
	}
	return nil
}

// SetByServer reports whether only the server sets a field of a definition: its number is from
// 20 to 29, which nested messages do not have, or it is changed_by or pause, for which none of them was left.
func SetByServer(field protoreflect.FieldDescriptor) bool {
	const first, last protoreflect.FieldNumber = 20, 29
	return field.Number() >= first && field.Number() <= last || field.FullName() == "wheelwork.v1.Job.changed_by" || field.FullName() == "wheelwork.v1.Job.pause"
}

type differ struct{ changes []Change }

func (d *differ) add(path, old, next string) {
	if old != next {
		d.changes = append(d.changes, Change{path, old, next})
	}
}

func (d *differ) messages(old, next protoreflect.Message, path string) {
	fields := old.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		name, ofJob := field.Name(), path == ""
		if ofJob && (SetByServer(field) || name == "app" || name == "paused" && !next.Has(field)) {
			continue
		}
		if !old.Has(field) && !next.Has(field) {
			continue
		}
		d.fields(old, next, field, join(path, string(name)))
	}
}

func (d *differ) fields(old, next protoreflect.Message, field protoreflect.FieldDescriptor, at string) {
	before := len(d.changes)
	switch {
	case field.IsMap():
		d.maps(old.Get(field).Map(), next.Get(field).Map(), at)
	case field.IsList() && field.Kind() == protoreflect.MessageKind:
		d.lists(old.Get(field).List(), next.Get(field).List(), at)
	case field.IsList():
		d.add(at, listText(old.Get(field).List()), listText(next.Get(field).List()))
	case field.Kind() == protoreflect.MessageKind:
		d.messages(old.Get(field).Message(), next.Get(field).Message(), at)
	default:
		d.add(at, scalarText(old, field), scalarText(next, field))
	}
	if old.Has(field) != next.Has(field) && len(d.changes) == before { // one of the two is there and empty
		d.add(at, presence(old.Has(field)), presence(next.Has(field)))
	}
}

func (d *differ) maps(old, next protoreflect.Map, at string) {
	keys := map[string]protoreflect.MapKey{}
	for _, m := range []protoreflect.Map{old, next} {
		m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
			keys[k.String()] = k
			return true
		})
	}
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		d.add(join(at, name), valueText(old.Get(keys[name])), valueText(next.Get(keys[name])))
	}
}

// lists compares messages by their index. A missing one has no fields.
func (d *differ) lists(old, next protoreflect.List, at string) {
	element := func(l protoreflect.List, i int) protoreflect.Message {
		if i < l.Len() {
			return l.Get(i).Message()
		}
		return l.NewElement().Message()
	}
	for i := range max(old.Len(), next.Len()) {
		d.messages(element(old, i), element(next, i), fmt.Sprintf("%s[%d]", at, i))
	}
}

func presence(there bool) string {
	if there {
		return "{}"
	}
	return ""
}

func listText(l protoreflect.List) string {
	if l.Len() == 0 {
		return ""
	}
	var texts []string
	for i := range l.Len() {
		texts = append(texts, valueText(l.Get(i)))
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

func scalarText(m protoreflect.Message, field protoreflect.FieldDescriptor) string {
	if !m.Has(field) {
		return ""
	}
	return valueText(m.Get(field))
}

func valueText(v protoreflect.Value) string {
	switch raw := v.Interface().(type) {
	case nil:
		return ""
	case []byte:
		return base64.StdEncoding.EncodeToString(raw)
	default:
		return fmt.Sprint(raw)
	}
}
