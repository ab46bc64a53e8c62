package openapi

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// named are the variables of paths that follow the rule for names.
var named = []string{"app", "bucket", "name", "version"}

func (g *generator) pathParameter(f protoreflect.FieldDescriptor) (parameter, error) {
	s, err := g.schemas.value(f)
	if err != nil {
		return parameter{}, err
	}
	if slices.Contains(named, string(f.Name())) {
		s.Pattern, s.MaxLength = namePattern, maxName
	}
	return parameter{Name: string(f.Name()), In: "path", Required: true, Description: comment(f), Schema: s}, nil
}

// inHeaders are fields that HTTP has as a header, with its name and text.
var inHeaders = map[string]struct{ name, text string }{
	"if_match":        {"If-Match", `The ETag of the definition that the change is made from, with its quotes, or *, which requires only that the job exists. Otherwise the answer is 412 and nothing changes.`},
	"idempotency_key": {"Idempotency-Key", "A repeated request with the same key, within ten minutes, answers with the same run."},
}

// headers returns the headers that a request may have.
func headers(in protoreflect.MessageDescriptor) []parameter {
	var out []parameter
	for i := range in.Fields().Len() {
		if h, ok := inHeaders[string(in.Fields().Get(i).Name())]; ok {
			out = append(out, parameter{Name: h.name, In: "header", Description: h.text, Schema: &schema{Type: "string"}})
		}
	}
	return out
}

// queryParameters returns the fields of the request that are neither in the path nor in
// the body.
func (g *generator) queryParameters(m method, variables []string) ([]parameter, error) {
	if m.rule.Body == "*" {
		return nil, nil
	}
	var out []parameter
	for i := range m.Input().Fields().Len() {
		f := m.Input().Fields().Get(i)
		name := string(f.Name())
		if _, header := inHeaders[name]; header || slices.Contains(variables, name) || name == m.rule.Body {
			continue
		}
		if f.Kind() == protoreflect.MessageKind && !f.IsMap() && f.Message().FullName() != timestamp {
			below, err := g.nested(name, f.Message())
			if err != nil {
				return nil, err
			}
			out = append(out, below...)
			continue
		}
		p, err := g.queryParameter(name, f)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// nested returns the fields of a message in the query, as "filter.topic".
func (g *generator) nested(name string, m protoreflect.MessageDescriptor) ([]parameter, error) {
	var out []parameter
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		p, err := g.queryParameter(name+"."+string(f.Name()), f)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func (g *generator) queryParameter(name string, f protoreflect.FieldDescriptor) (parameter, error) {
	s, err := g.schemas.field(f)
	if err != nil {
		return parameter{}, err
	}
	if several, ok := s.Type.([]string); ok { // a query has no null
		s.Type = several[0]
	}
	text := s.Description
	s.Description = ""
	p := parameter{Name: name, In: "query", Description: text, Schema: s}
	if f.IsMap() { // the gateway reads labels[team]=billing
		p.Style, p.Explode = "deepObject", true
	}
	return p, nil
}

// requestBody adds the body of a request, without the fields that the path has.
func (g *generator) requestBody(op *operation, m method, variables []string) error {
	if m.rule.Body == "" {
		return nil
	}
	var (
		ref *schema
		err error
	)
	out := &body{}
	if m.rule.Body == "*" {
		ref, err = g.schemas.reference(m.Input(), variables...)
	} else {
		ref, err = g.schemas.reference(m.body())
		out.Required = true
		out.Description = pathWins(m.rule.Body, variables)
	}
	out.Content.add(jsonType, media{ref})
	op.RequestBody = out
	return err
}

// pathWins says which fields of a body the path replaces.
func pathWins(body string, variables []string) string {
	var fields []string
	for _, v := range variables {
		if f, ok := strings.CutPrefix(v, body+"."); ok {
			fields = append(fields, "`"+f+"`")
		}
	}
	switch len(fields) {
	case 0:
		return ""
	case 1:
		return "The path has its " + fields[0] + ", which the body need not repeat."
	}
	return "The path has its " + strings.Join(fields, " and ") + ", which the body need not repeat."
}
