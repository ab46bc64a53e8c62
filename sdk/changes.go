package sdk

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Change is a field in which two definitions of a job differ.
type Change struct {
	Field string `json:"field"` // as in documents: "retry.max", "labels.team", "workflow.nodes[0].job"
	Old   string `json:"old"`   // as in documents, bytes in base64; "" when it is unset
	New   string `json:"new"`
}

// Preview is what [Client.Apply] would do.
type Preview struct {
	Result  Result   // Created, Updated or Unchanged
	Changes []Change // of an update
}

// Preview checks a definition like [Client.DryRun] and also reports what would change.
func (c *Client) Preview(ctx context.Context, job *Job, together ...string) (Preview, error) {
	old, err := c.Job(ctx, job.GetApp(), job.GetName())
	if err != nil && !errors.Is(err, ErrNotFound) {
		return Preview{}, err
	}
	next, result, err := c.dryRun(ctx, job, together)
	p := Preview{Result: result}
	if err == nil && result == Updated && old != nil {
		p.Changes = Changes(old, next)
	}
	return p, err
}

// Changes returns the fields in which a definition differs from an older one of the same
// job. It ignores what the server sets, and a pause that the new definition leaves unset.
func Changes(old, next *Job) []Change {
	var d differ
	d.messages(old.ProtoReflect(), next.ProtoReflect(), "")
	return d.changes
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
		if ofJob && (isServers(field) || name == "app" || name == "paused" && !next.Has(field)) {
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
