package sdk

import (
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/wheelworkhq/wheelwork/document"
)

// WriteJobs writes jobs as YAML documents that [ReadJobs] reads. It omits the fields that
// the server sets, so that the documents can be stored, compared and applied elsewhere.
func WriteJobs(w io.Writer, jobs ...*Job) error {
	return writeDocuments(w, jobs, func(j *Job) string { return "job " + j.GetName() })
}

func writeDocuments[T protoreflect.ProtoMessage](w io.Writer, messages []T, name func(T) string) error {
	if len(messages) == 0 {
		return nil // the encoder cannot close a stream without a document
	}
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	for _, m := range messages {
		if err := encoder.Encode(definition(m.ProtoReflect())); err != nil {
			return fmt.Errorf("write %s: %w", name(m), err)
		}
	}
	return encoder.Close()
}

// definition returns the mapping of those set fields of a message that a document may
// set.
func definition(m protoreflect.Message) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if !m.Has(field) || document.SetByServer(field) {
			continue
		}
		n.Content = append(n.Content, text(string(field.Name())), element(field, m.Get(field)))
	}
	return n
}

func element(field protoreflect.FieldDescriptor, v protoreflect.Value) *yaml.Node {
	switch {
	case field.IsMap():
		entries := make(map[string]string, v.Map().Len())
		v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			entries[k.String()] = v.String()
			return true
		})
		n := &yaml.Node{Kind: yaml.MappingNode}
		for _, k := range slices.Sorted(maps.Keys(entries)) {
			n.Content = append(n.Content, text(k), text(entries[k]))
		}
		return n
	case field.IsList():
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.List().Len() {
			e := v.List().Get(i)
			if field.Kind() == protoreflect.MessageKind {
				n.Content = append(n.Content, definition(e.Message()))
			} else {
				n.Content = append(n.Content, text(e.String()))
			}
		}
		return n
	}
	switch field.Kind() {
	case protoreflect.MessageKind:
		return definition(v.Message())
	case protoreflect.StringKind:
		return text(v.String())
	case protoreflect.BytesKind:
		return text(base64.StdEncoding.EncodeToString(v.Bytes()))
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: v.String()} // a number or a boolean
}

// text returns a node that reads back as the same text. The encoder chooses a readable
// form; text that such a form could change (line ends, invisible characters) is quoted.
func text(s string) *yaml.Node {
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
