package openapi

import (
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// extensions reads options of the .proto files that were compiled with them, and are no
// code of this program.
type extensions struct {
	files   *protoregistry.Files
	dynamic *dynamicpb.Types
}

// newExtensions links the files, in the order of their imports, with the types of their
// own options.
func newExtensions(set []*descriptorpb.FileDescriptorProto) (*extensions, error) {
	files, err := protodesc.NewFiles(&descriptorpb.FileDescriptorSet{File: set})
	if err != nil {
		return nil, err
	}
	return &extensions{files, dynamicpb.NewTypes(files)}, nil
}

// FindExtensionByNumber prefers the types of this program to those of the files.
func (e *extensions) FindExtensionByNumber(message protoreflect.FullName, field protoreflect.FieldNumber) (protoreflect.ExtensionType, error) {
	if t, err := protoregistry.GlobalTypes.FindExtensionByNumber(message, field); err == nil {
		return t, nil
	}
	return e.dynamic.FindExtensionByNumber(message, field)
}

// FindExtensionByName implements the resolver of [proto.UnmarshalOptions].
func (e *extensions) FindExtensionByName(name protoreflect.FullName) (protoreflect.ExtensionType, error) {
	return e.dynamic.FindExtensionByName(name)
}

// read decodes options again, now with the types of all of them.
func (e *extensions) read(options proto.Message) (protoreflect.Message, error) {
	raw, err := proto.Marshal(options)
	if err != nil {
		return nil, err
	}
	out := options.ProtoReflect().New()
	return out, proto.UnmarshalOptions{Resolver: e}.Unmarshal(raw, out.Interface())
}

// option returns the value of an option of our own.
func (e *extensions) option(d protoreflect.Descriptor, name protoreflect.FullName) (v protoreflect.Value, ok bool) {
	t, err := e.dynamic.FindExtensionByName(name)
	if err != nil {
		return v, false
	}
	options, err := e.read(d.Options())
	if err != nil || !options.Has(t.TypeDescriptor()) {
		return v, false
	}
	return options.Get(t.TypeDescriptor()), true
}

// permission returns the permission that a method needs.
func (e *extensions) permission(m protoreflect.MethodDescriptor) string {
	v, ok := e.option(m, "wheelwork.v1.permission")
	if !ok {
		return ""
	}
	return v.String()
}

// bounds returns the least and the greatest value of a number.
func (e *extensions) bounds(f protoreflect.FieldDescriptor) (low, high float64, ok bool) {
	v, ok := e.option(f, "wheelwork.v1.bounds")
	if !ok {
		return 0, 0, false
	}
	fields := v.Message().Descriptor().Fields()
	return v.Message().Get(fields.ByName("min")).Float(), v.Message().Get(fields.ByName("max")).Float(), true
}

// http returns how a method is called over HTTP, or nil.
func (e *extensions) http(m protoreflect.MethodDescriptor) *annotations.HttpRule {
	options, err := e.read(m.Options())
	if err != nil {
		return nil
	}
	rule, _ := proto.GetExtension(options.Interface(), annotations.E_Http).(*annotations.HttpRule)
	return rule
}
