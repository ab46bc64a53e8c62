package document

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Diff returns the fields in which the canonical forms of two definitions of one kind differ,
// as applying next over old would change them: a pause that next leaves unset stays. A nil
// document has no fields.
func Diff(old, next *Document) []Change {
	var d nodeDiffer
	d.values(canonical(old), canonical(next), "")
	if old != nil && next != nil {
		if job, ok := next.Spec.(*apiv1.Job); ok && job.Paused == nil {
			d.changes = slices.DeleteFunc(d.changes, func(c Change) bool { return c.Field == "paused" })
		}
	}
	return d.changes
}

// canonical returns the fields of a document that its canonical form has.
func canonical(d *Document) *yaml.Node {
	if d == nil {
		return nil
	}
	return d.Kind.object("", d.Spec.ProtoReflect())
}

// nodeDiffer compares canonical forms. Unlike [differ], which compares what a server stores, it
// does not see a default that is written out.
type nodeDiffer struct{ changes []Change }

// values compares two nodes; nil is a field that is unset.
func (d *nodeDiffer) values(old, next *yaml.Node, at string) {
	before := len(d.changes)
	switch {
	case isObject(old) || isObject(next):
		d.objects(old, next, at)
	case isObjectList(old) || isObjectList(next):
		d.lists(old, next, at)
	default:
		if a, b := textOf(old), textOf(next); a != b {
			d.changes = append(d.changes, Change{at, a, b})
		}
	}
	if at != "" && len(d.changes) == before && (old == nil) != (next == nil) { // one of the two is there and empty
		d.changes = append(d.changes, Change{at, textOf(old), textOf(next)})
	}
}

// objects compares the fields in the order of next. The fields that only old has follow.
func (d *nodeDiffer) objects(old, next *yaml.Node, at string) {
	a, b := fieldsOf(old), fieldsOf(next)
	for _, name := range namesOf(next) {
		d.values(a[name], b[name], join(at, name))
	}
	for _, name := range namesOf(old) {
		if b[name] == nil {
			d.values(a[name], nil, join(at, name))
		}
	}
}

// lists compares lists of objects by their index.
func (d *nodeDiffer) lists(old, next *yaml.Node, at string) {
	element := func(n *yaml.Node, i int) *yaml.Node {
		if n == nil || i >= len(n.Content) {
			return nil
		}
		return n.Content[i]
	}
	for i := range max(lengthOf(old), lengthOf(next)) {
		d.values(element(old, i), element(next, i), fmt.Sprintf("%s[%d]", at, i))
	}
}

func isObject(n *yaml.Node) bool { return n != nil && n.Kind == yaml.MappingNode }

func isObjectList(n *yaml.Node) bool {
	return n != nil && n.Kind == yaml.SequenceNode && len(n.Content) > 0 && isObject(n.Content[0])
}

func lengthOf(n *yaml.Node) int {
	if n == nil {
		return 0
	}
	return len(n.Content)
}

func namesOf(n *yaml.Node) (names []string) {
	for i := 0; i+1 < lengthOf(n); i += 2 {
		names = append(names, n.Content[i].Value)
	}
	return names
}

func fieldsOf(n *yaml.Node) map[string]*yaml.Node {
	fields := make(map[string]*yaml.Node, lengthOf(n)/2)
	for i := 0; i+1 < lengthOf(n); i += 2 {
		fields[n.Content[i].Value] = n.Content[i+1]
	}
	return fields
}

// textOf returns a value on one line, in the flow style.
func textOf(n *yaml.Node) string {
	switch {
	case n == nil:
		return ""
	case n.Kind == yaml.ScalarNode:
		return n.Value
	case n.Kind == yaml.MappingNode:
		fields := fieldsOf(n)
		var texts []string
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			texts = append(texts, name+": "+textOf(fields[name]))
		}
		return "{" + strings.Join(texts, ", ") + "}"
	case len(n.Content) == 0:
		return ""
	}
	var texts []string
	for _, e := range n.Content {
		texts = append(texts, textOf(e))
	}
	return "[" + strings.Join(texts, ", ") + "]"
}
