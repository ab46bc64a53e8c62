package openapi

import (
	"bytes"
	"encoding/json"
)

// document and the types below it are the parts of OpenAPI 3.1 that are used here, in the
// order in which they are written.
type document struct {
	OpenAPI    string                `json:"openapi"`
	Info       info                  `json:"info"`
	Servers    []server              `json:"servers"`
	Security   []map[string][]string `json:"security"`
	Tags       []tag                 `json:"tags"`
	Paths      object[*pathItem]     `json:"paths"`
	Components components            `json:"components"`
}

type info struct {
	Title       string  `json:"title"`
	Version     string  `json:"version"`
	Description string  `json:"description"`
	License     license `json:"license"`
}

type license struct {
	Name       string `json:"name"`
	Identifier string `json:"identifier"`
}

type server struct {
	URL         string `json:"url"`
	Description string `json:"description"`
}

type tag struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

// pathItem has the operations of one path.
type pathItem struct {
	Get    *operation `json:"get,omitempty"`
	Put    *operation `json:"put,omitempty"`
	Post   *operation `json:"post,omitempty"`
	Delete *operation `json:"delete,omitempty"`
}

type operation struct {
	Tags        []string               `json:"tags"`
	Summary     string                 `json:"summary"`
	Description string                 `json:"description,omitempty"`
	OperationID string                 `json:"operationId"`
	Security    *[]map[string][]string `json:"security,omitempty"` // nil: that of the document
	Parameters  []parameter            `json:"parameters,omitempty"`
	RequestBody *body                  `json:"requestBody,omitempty"`
	Responses   object[*response]      `json:"responses"`
}

type parameter struct {
	Name        string  `json:"name"`
	In          string  `json:"in"`
	Required    bool    `json:"required,omitempty"`
	Description string  `json:"description,omitempty"`
	Schema      *schema `json:"schema"`
	Style       string  `json:"style,omitempty"`
	Explode     bool    `json:"explode,omitempty"`
}

type body struct {
	Description string        `json:"description,omitempty"`
	Required    bool          `json:"required,omitempty"`
	Content     object[media] `json:"content"`
}

type media struct {
	Schema *schema `json:"schema"`
}

// response is a response, or with Ref a reference to one of the components.
type response struct {
	Ref         string          `json:"$ref,omitempty"`
	Description string          `json:"description,omitempty"`
	Headers     object[*header] `json:"headers,omitzero"`
	Content     object[media]   `json:"content,omitzero"`
}

type header struct {
	Description string  `json:"description"`
	Schema      *schema `json:"schema"`
}

type components struct {
	SecuritySchemes map[string]securityScheme `json:"securitySchemes"`
	Responses       object[*response]         `json:"responses"`
	Schemas         object[*schema]           `json:"schemas"`
}

type securityScheme struct {
	Type        string `json:"type"`
	Scheme      string `json:"scheme"`
	Description string `json:"description"`
}

// schema is a JSON Schema.
type schema struct {
	Ref                  string          `json:"$ref,omitempty"`
	Type                 any             `json:"type,omitempty"` // a name, or several
	Description          string          `json:"description,omitempty"`
	Format               string          `json:"format,omitempty"`
	ContentEncoding      string          `json:"contentEncoding,omitempty"`
	Pattern              string          `json:"pattern,omitempty"`
	MaxLength            int             `json:"maxLength,omitempty"`
	Minimum              *float64        `json:"minimum,omitempty"`
	Maximum              *float64        `json:"maximum,omitempty"`
	Enum                 []string        `json:"enum,omitempty"`
	Items                *schema         `json:"items,omitempty"`
	Properties           object[*schema] `json:"properties,omitzero"`
	Required             []string        `json:"required,omitempty"`
	AdditionalProperties *schema         `json:"additionalProperties,omitempty"`
	AnyOf                []*schema       `json:"anyOf,omitempty"`
}

// object is a JSON object whose members keep the order in which they were added.
type object[V any] struct{ members []member[V] }

type member[V any] struct {
	name  string
	value V
}

func (o *object[V]) add(name string, v V) { o.members = append(o.members, member[V]{name, v}) }

// IsZero reports whether the object has no member.
func (o object[V]) IsZero() bool { return len(o.members) == 0 }

// MarshalJSON implements [json.Marshaler].
func (o object[V]) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o.members {
		if i > 0 {
			b.WriteByte(',')
		}
		for j, part := range []any{m.name, m.value} {
			if j > 0 {
				b.WriteByte(':')
			}
			text, err := encode(part, "")
			if err != nil {
				return nil, err
			}
			b.Write(text)
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// encode writes JSON without the escapes that HTML needs.
func encode(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	err := e.Encode(v)
	return b.Bytes(), err
}
