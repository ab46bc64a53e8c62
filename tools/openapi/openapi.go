package openapi

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// VersionPlaceholder is the version in the document. The server replaces it with its own.
const VersionPlaceholder = "VERSION"

const jsonType = "application/json"

const description = `Wheelwork schedules jobs and runs them. docs/api.md describes the API with examples.

Every field of a message is present in a response, also without a value. 64-bit numbers are texts, times are RFC 3339, bytes are base64. Unknown fields in a request are refused.`

// Write returns the document of the services in files, which follow after their imports.
func Write(files []*descriptorpb.FileDescriptorProto) ([]byte, error) {
	types, err := newExtensions(files)
	if err != nil {
		return nil, err
	}
	g := &generator{types: types, schemas: &schemas{types: types, requests: map[protoreflect.FullName]bool{}, byName: map[string]*schema{}}, paths: map[string]*pathItem{}}
	if err := g.read(files); err != nil {
		return nil, err
	}
	return encode(g.document(), "  ")
}

// generator collects the operations of all services.
type generator struct {
	types   *extensions
	schemas *schemas
	tags    []tag
	paths   map[string]*pathItem
}

// method is one method with its call over HTTP.
type method struct {
	protoreflect.MethodDescriptor
	rule *annotations.HttpRule
}

func (g *generator) read(files []*descriptorpb.FileDescriptorProto) error {
	var methods []method
	for _, file := range files {
		f, err := g.types.files.FindFileByPath(file.GetName())
		if err != nil {
			return err
		}
		for i := range f.Services().Len() {
			methods = append(methods, g.methods(f.Services().Get(i))...)
		}
	}
	for _, m := range methods {
		if in := m.body(); in != nil {
			collect(g.schemas.requests, in)
		}
	}
	for _, m := range methods {
		if err := g.add(m); err != nil {
			return fmt.Errorf("%s: %w", m.FullName(), err)
		}
	}
	return cmp.Or(g.upload(methods), g.publish(methods))
}

// methods returns the methods of a service that are called over HTTP.
func (g *generator) methods(s protoreflect.ServiceDescriptor) []method {
	var out []method
	for i := range s.Methods().Len() {
		if rule := g.types.http(s.Methods().Get(i)); rule != nil {
			out = append(out, method{s.Methods().Get(i), rule})
		}
	}
	if len(out) > 0 {
		g.tags = append(g.tags, tag{string(s.Name()), comment(s)})
	}
	return out
}

// body returns the message that is the body of a request, or nil.
func (m method) body() protoreflect.MessageDescriptor {
	switch m.rule.Body {
	case "":
		return nil
	case "*":
		return m.Input()
	}
	return m.Input().Fields().ByName(protoreflect.Name(m.rule.Body)).Message()
}

// call returns the HTTP method and the path, as google.api.http has it.
func (m method) call() (verb, path string) {
	switch p := m.rule.Pattern.(type) {
	case *annotations.HttpRule_Get:
		return "get", p.Get
	case *annotations.HttpRule_Put:
		return "put", p.Put
	case *annotations.HttpRule_Post:
		return "post", p.Post
	case *annotations.HttpRule_Delete:
		return "delete", p.Delete
	}
	return "", ""
}

// variable matches {field}, {field.of.field} and {field=**} in a path.
var variable = regexp.MustCompile(`\{([a-z_.]+)(=\*\*)?\}`)

// plainPath returns a path whose variables have the name of the last field alone: two
// methods may have the same path and other messages.
func plainPath(path string) (plain string, variables []string) {
	plain = variable.ReplaceAllStringFunc(path, func(v string) string {
		field := variable.FindStringSubmatch(v)[1]
		variables = append(variables, field)
		return "{" + field[strings.LastIndexByte(field, '.')+1:] + "}"
	})
	return plain, variables
}

func (g *generator) add(m method) error {
	verb, template := m.call()
	path, variables := plainPath(template)
	if len(m.rule.AdditionalBindings) > 0 || m.rule.ResponseBody != "" {
		return errors.New("additional bindings and response bodies are not supported")
	}
	op, err := g.operation(m)
	if err != nil {
		return err
	}
	for _, v := range variables {
		f, err := fieldAt(m.Input(), v)
		if err != nil {
			return err
		}
		p, err := g.pathParameter(f)
		if err != nil {
			return err
		}
		op.Parameters = append(op.Parameters, p)
	}
	query, err := g.queryParameters(m, variables)
	if err != nil {
		return err
	}
	op.Parameters = append(op.Parameters, query...)
	op.Parameters = append(op.Parameters, headers(m.Input())...)
	if err := g.requestBody(op, m, variables); err != nil {
		return err
	}
	if err := g.responses(op, m, verb, variables); err != nil {
		return err
	}
	return g.place(path, verb, op)
}

// operation returns an operation with its texts.
func (g *generator) operation(m method) (*operation, error) {
	text := comment(m)
	if text == "" {
		return nil, errors.New("the method has no comment, of which the first sentence is its summary")
	}
	op := &operation{Tags: []string{string(m.Parent().Name())}, OperationID: string(m.Parent().Name()) + "_" + string(m.Name())}
	op.Summary, op.Description = sentences(string(m.Name()), text)
	switch p := g.types.permission(m.MethodDescriptor); p {
	case "":
		return nil, errors.New("the method has no permission")
	case "public":
		op.Security = &[]map[string][]string{}
	default:
		op.Description = strings.TrimSpace(op.Description + "\n\nNeeds the permission `" + p + "`.")
	}
	return op, nil
}

// place adds an operation to its path.
func (g *generator) place(path, verb string, op *operation) error {
	item := g.paths[path]
	if item == nil {
		item = &pathItem{}
		g.paths[path] = item
	}
	at := map[string]**operation{"get": &item.Get, "put": &item.Put, "post": &item.Post, "delete": &item.Delete}[verb]
	switch {
	case at == nil:
		return fmt.Errorf("%s has a method that this generator does not know", path)
	case *at != nil:
		return fmt.Errorf("%s %s is also %s", verb, path, (*at).OperationID)
	}
	*at = op
	return nil
}

// fieldAt returns the field at a path of names.
func fieldAt(m protoreflect.MessageDescriptor, path string) (f protoreflect.FieldDescriptor, err error) {
	for name := range strings.SplitSeq(path, ".") {
		if m == nil || m.Fields().ByName(protoreflect.Name(name)) == nil {
			return nil, fmt.Errorf("the path names %s, which is no field", path)
		}
		f = m.Fields().ByName(protoreflect.Name(name))
		m = f.Message()
	}
	return f, nil
}

// document returns the whole document.
func (g *generator) document() *document {
	d := &document{
		OpenAPI:  "3.1.0",
		Info:     info{Title: "Wheelwork", Version: VersionPlaceholder, Description: description, License: license{"Apache License 2.0", "Apache-2.0"}},
		Servers:  []server{{"/", "the server that this document comes from"}},
		Security: []map[string][]string{{"token": {}}},
		Tags:     g.tags,
		Components: components{
			SecuritySchemes: map[string]securityScheme{"token": {"http", "bearer", "The administrator's token is in the file `token` of the server's data directory."}},
			Responses:       refusals(),
		},
	}
	slices.SortFunc(d.Tags, func(a, b tag) int { return cmp.Compare(a.Name, b.Name) })
	for _, path := range slices.Sorted(maps.Keys(g.paths)) {
		d.Paths.add(path, g.paths[path])
	}
	maps.Copy(g.schemas.byName, errorSchemas())
	for _, name := range slices.Sorted(maps.Keys(g.schemas.byName)) {
		d.Components.Schemas.add(name, g.schemas.byName[name])
	}
	return d
}
