package document

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
)

// Document is one definition of a file.
type Document struct {
	Kind *Kind
	// App is the app of the document, "" if it names none: the caller sets it, here and in
	// Spec, with [Document.SetApp].
	App    string
	Name   string            // unique among the documents of the kind and the app
	Labels map[string]string // nil for kinds without labels
	At     Position
	// Spec is the definition as the API takes it: *apiv1.Job, *apiv1.Calendar, *apiv1.Alias,
	// *apiv1.ModuleGrants, *apiv1.AlertRule, *apiv1.AlertChannel, *apiv1.EventSource or *apiv1.App.
	Spec proto.Message

	root *yaml.Node // the mapping in the source; nil for a definition that comes from a server
}

// Of returns the document of a definition that comes from a server.
func Of(kind *Kind, spec proto.Message) *Document {
	d := &Document{Kind: kind, Spec: spec}
	d.identify()
	return d
}

// identify derives the name, the app and the labels from the definition.
func (d *Document) identify() {
	d.App, d.Name = d.Kind.identity(d.Spec)
	if l, ok := d.Spec.(interface{ GetLabels() map[string]string }); ok {
		d.Labels = l.GetLabels()
	}
}

// SetApp sets the app of a document that names none.
func (d *Document) SetApp(app string) {
	m := d.Spec.ProtoReflect()
	if field := m.Descriptor().Fields().ByName("app"); field != nil {
		m.Set(field, protoText(app))
	}
	d.identify()
}

// SetLabel sets a label. It returns false for a kind without labels.
func (d *Document) SetLabel(key, value string) bool {
	m := d.Spec.ProtoReflect()
	field := m.Descriptor().Fields().ByName("labels")
	if field == nil {
		return false
	}
	m.Mutable(field).Map().Set(protoText(key).MapKey(), protoText(value))
	d.identify()
	return true
}

// String names the document in a message, as job totals.
func (d *Document) String() string { return strings.ToLower(d.Kind.Name) + " " + d.Name }

// FieldAt returns the position of a field, given by its path with indexes as
// workflow.nodes[1].name, or that of the nearest object around it which the document has.
func (d *Document) FieldAt(path string) Position {
	at := d.At
	if d.root == nil {
		return at
	}
	n, inside := d.root, ""
	for step := range strings.SplitSeq(strings.ReplaceAll(path, "[", ".["), ".") {
		key, value := d.step(n, inside, step)
		if key == nil {
			break
		}
		at.Line, at.Column = key.Line, key.Column
		if n = value; !strings.HasPrefix(step, "[") {
			inside = join(inside, step)
		}
	}
	return at
}

// step finds an element or a field of a node. path is the position of the node in the kind.
func (d *Document) step(n *yaml.Node, path, step string) (key, value *yaml.Node) {
	if index, ok := strings.CutPrefix(step, "["); ok {
		i, err := strconv.Atoi(strings.TrimSuffix(index, "]"))
		if err != nil || n.Kind != yaml.SequenceNode || i < 0 || i >= len(n.Content) {
			return nil, nil
		}
		return n.Content[i], resolve(n.Content[i])
	}
	if n.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := resolve(n.Content[i])
		f := d.Kind.child(path, key.Value)
		if key.Value == step || f != nil && f.Name() == step {
			return n.Content[i], resolve(n.Content[i+1])
		}
	}
	return nil, nil
}

// Position is a position in a source of documents. Lines and columns count from 1.
type Position struct {
	File         string // "": standard input, or unknown
	Document     int    // number of the document in the file, from 1
	Line, Column int
}

// String returns the position as file:line:column.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	text := fmt.Sprintf("%d:%d", p.Line, p.Column)
	if p.File != "" {
		text = p.File + ":" + text
	}
	return text
}

// Problem is one mistake in a document.
type Problem struct {
	At   Position
	Path string // of the field, with indexes; "": the document
	Text string // the mistake, with the field's path
	// Value says that the form is right and the value is not: [Options.AnyValue] allows it.
	Value bool
}

// Error returns the position and the text.
func (p Problem) Error() string {
	if at := p.At.String(); at != "" {
		return at + ": " + p.Text
	}
	return p.Text
}

// Problems are the mistakes in a source, in its order. There is at least one.
type Problems []Problem

// maxShown bounds the mistakes in the text of an error.
const maxShown = 10

// Error returns the mistakes, one on each line.
func (p Problems) Error() string {
	var lines []string
	for _, problem := range p[:min(len(p), maxShown)] {
		lines = append(lines, problem.Error())
	}
	if more := len(p) - maxShown; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n")
}
