package openapi

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// namePattern is the rule for the names of apps, jobs, modules, versions, buckets and
// secrets, and maxName their length. A test compares it with job/naming, which this module
// does not import.
const (
	namePattern = "^[a-zA-Z0-9][a-zA-Z0-9._-]*$"
	maxName     = 128
)

// whole and natural match the numbers that JSON has as text, because they may be larger
// than what a double can hold.
const (
	whole   = "^-?[0-9]+$"
	natural = "^[0-9]+$"
)

const timestamp = "google.protobuf.Timestamp"

// schemas collects the schemas of messages as they are needed.
type schemas struct {
	types    *extensions
	requests map[protoreflect.FullName]bool // the messages that clients send
	byName   map[string]*schema
}

// reference returns a reference to the schema of a message, and makes the schema when it is
// the first. without lists fields that are left out, because the path has them.
func (s *schemas) reference(m protoreflect.MessageDescriptor, without ...string) (*schema, error) {
	name := schemaName(m)
	ref := &schema{Ref: "#/components/schemas/" + name}
	if _, ok := s.byName[name]; ok {
		return ref, nil
	}
	out := &schema{Type: "object", Description: comment(m)}
	s.byName[name] = out // before its fields, one of which may be of the same message
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		if slices.Contains(without, string(f.Name())) {
			continue
		}
		property, err := s.field(f)
		if err != nil {
			return nil, err
		}
		out.Properties.add(string(f.Name()), property)
		// A response has every field, but those that are optional and unset.
		if !s.requests[m.FullName()] && f.ContainingOneof() == nil {
			out.Required = append(out.Required, string(f.Name()))
		}
	}
	return ref, nil
}

// schemaName returns the name of the schema of a message: with those around it, without
// the package.
func schemaName(m protoreflect.MessageDescriptor) string {
	if outer, ok := m.Parent().(protoreflect.MessageDescriptor); ok {
		return schemaName(outer) + string(m.Name())
	}
	return string(m.Name())
}

// field returns the schema of a field, with its comment.
func (s *schemas) field(f protoreflect.FieldDescriptor) (*schema, error) {
	var out *schema
	var err error
	switch {
	case f.IsMap():
		if out, err = s.value(f.MapValue()); err == nil {
			out = &schema{Type: "object", AdditionalProperties: out}
		}
	case f.IsList():
		if out, err = s.value(f); err == nil {
			out = &schema{Type: "array", Items: out}
		}
	default:
		out, err = s.value(f)
		switch { // an unset message is null
		case err != nil || f.Kind() != protoreflect.MessageKind:
		case out.Ref == "":
			out.Type = []string{out.Type.(string), "null"}
		default:
			out = &schema{AnyOf: []*schema{out, {Type: "null"}}}
		}
	}
	if err != nil {
		return nil, err
	}
	out.Description = comment(f)
	if low, high, ok := s.types.bounds(f); ok {
		out.Minimum, out.Maximum = &low, &high
	}
	return out, nil
}

// value returns the schema of one value of a field, without its comment.
func (s *schemas) value(f protoreflect.FieldDescriptor) (*schema, error) {
	switch f.Kind() {
	case protoreflect.StringKind:
		return &schema{Type: "string"}, nil
	case protoreflect.BytesKind:
		return &schema{Type: "string", Format: "byte", ContentEncoding: "base64"}, nil
	case protoreflect.BoolKind:
		return &schema{Type: "boolean"}, nil
	case protoreflect.Int32Kind:
		return &schema{Type: "integer", Format: "int32"}, nil
	case protoreflect.Uint32Kind:
		return &schema{Type: "integer", Format: "int64", Minimum: proto.Float64(0), Maximum: proto.Float64(1<<32 - 1)}, nil
	case protoreflect.Int64Kind:
		return &schema{Type: "string", Format: "int64", Pattern: whole}, nil
	case protoreflect.Uint64Kind:
		return &schema{Type: "string", Format: "uint64", Pattern: natural}, nil
	case protoreflect.DoubleKind:
		return &schema{Type: "number", Format: "double"}, nil
	case protoreflect.EnumKind:
		out := &schema{Type: "string"}
		for i := range f.Enum().Values().Len() {
			out.Enum = append(out.Enum, string(f.Enum().Values().Get(i).Name()))
		}
		return out, nil
	case protoreflect.MessageKind:
		if f.Message().FullName() == timestamp {
			return &schema{Type: "string", Format: "date-time"}, nil
		}
		if f.Message().ParentFile().Package() == "google.protobuf" {
			return nil, fmt.Errorf("%s is a %s, whose JSON form this generator does not know", f.FullName(), f.Message().FullName())
		}
		return s.reference(f.Message())
	}
	return nil, fmt.Errorf("%s is of kind %v, which this generator does not know", f.FullName(), f.Kind())
}

// collect adds a message and those that it contains to a set.
func collect(set map[protoreflect.FullName]bool, m protoreflect.MessageDescriptor) {
	if set[m.FullName()] {
		return
	}
	set[m.FullName()] = true
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		if f.IsMap() {
			f = f.MapValue()
		}
		if f.Kind() == protoreflect.MessageKind {
			collect(set, f.Message())
		}
	}
}
