package document

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Marshal writes documents as YAML in canonical form, which is the same for the same
// definitions: in the order of kinds, apps and names, with the fields in the order of the
// tables, and without fields that have their default or that only the server sets. The digest
// of a job's module is a comment.
func Marshal(documents ...*Document) ([]byte, error) {
	sorted := slices.Clone(documents)
	slices.SortStableFunc(sorted, Compare)
	var w writer
	for i, d := range sorted {
		if i > 0 {
			w.b.WriteString("---\n")
		}
		if err := w.document(d.node()); err != nil {
			return nil, fmt.Errorf("write %s: %w", d, err)
		}
	}
	return w.b.Bytes(), nil
}

// Compare orders documents by kind, in the order of [Kinds], then by app and by name.
func Compare(a, b *Document) int {
	return cmp.Or(slices.Index(kinds, a.Kind)-slices.Index(kinds, b.Kind), strings.Compare(a.App, b.App), strings.Compare(a.Name, b.Name))
}

// node returns the mapping of the fields that the canonical form has.
func (d *Document) node() *yaml.Node {
	n := d.Kind.object("", d.Spec.ProtoReflect())
	if d.Kind.Name != DefaultKind {
		n.Content = append([]*yaml.Node{plainText("kind"), plainText(d.Kind.Name)}, n.Content...)
	}
	if job, ok := d.Spec.(*apiv1.Job); ok && job.GetDigest() != "" {
		if module := find(find(n, "handler"), "module"); module != nil {
			module.LineComment = "sha256:" + strings.TrimPrefix(job.GetDigest(), "sha256:")
		}
	}
	return n
}

// find returns the value of a field of a mapping, nil if there is none.
func find(n *yaml.Node, name string) *yaml.Node {
	if n == nil {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}

// object returns the mapping of the object at a path.
func (k *Kind) object(path string, m protoreflect.Message) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, f := range k.children[path] {
		field := m.Descriptor().Fields().ByName(protoreflect.Name(f.Name()))
		if f.Local || f.Path == "etag" || !m.Has(field) {
			continue
		}
		if value := k.value(f, field, m.Get(field)); value != nil {
			n.Content = append(n.Content, plainText(f.Name()), value)
		}
	}
	return n
}

// value returns the node of a field, nil if the canonical form leaves the field out.
func (k *Kind) value(f *Field, field protoreflect.FieldDescriptor, v protoreflect.Value) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode}
	switch f.Type {
	case Object:
		if n = k.object(f.Path, v.Message()); len(n.Content) == 0 && !f.Present {
			return nil
		}
		return n
	case Objects:
		n.Kind = yaml.SequenceNode
		for i := range v.List().Len() {
			n.Content = append(n.Content, k.object(f.Path, v.List().Get(i).Message()))
		}
		return n
	case Texts:
		n.Kind = yaml.SequenceNode
		for i := range v.List().Len() {
			n.Content = append(n.Content, plainText(v.List().Get(i).String()))
		}
		return n
	case Map:
		return mapping(v.Map())
	case Bytes:
		return plainText(base64.StdEncoding.EncodeToString(v.Bytes()))
	case Whole, Number, Truth:
		n.Value = v.String()
	default:
		n = plainText(v.String())
	}
	if n.Value == f.Default {
		return nil
	}
	return n
}

func mapping(entries protoreflect.Map) *yaml.Node {
	texts := make(map[string]string, entries.Len())
	entries.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		texts[k.String()] = v.String()
		return true
	})
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, k := range slices.Sorted(maps.Keys(texts)) {
		n.Content = append(n.Content, plainText(k), plainText(texts[k]))
	}
	return n
}

// plainText returns a node that reads back as the same text. The encoder chooses a readable
// form; text that such a form could change (line ends, invisible characters) is quoted.
func plainText(s string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
	lines := strings.Contains(s, "\n")
	switch {
	case strings.ContainsFunc(s, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }):
		n.Style = yaml.DoubleQuotedStyle
	case lines && (strings.HasPrefix(s, " ") || strings.HasPrefix(s, "\n") || strings.Contains(s, " \n")):
		n.Style = yaml.DoubleQuotedStyle
	case lines:
		n.Style = yaml.LiteralStyle
	}
	return n
}
