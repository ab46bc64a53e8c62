package document

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// dialect is the version of JSON Schema that every editor reads.
const dialect = "http://json-schema.org/draft-07/schema#"

// schema is a JSON Schema, or a part of one.
type schema map[string]any

// Schema returns the JSON Schema of a document of the kind. It accepts what [Parse] accepts of
// one document.
func (k *Kind) Schema() []byte {
	s := k.schemaOf()
	s["$schema"] = dialect
	return encode(s)
}

// Schema returns the JSON Schema of a document of any kind, which the field kind tells.
func Schema() []byte {
	rules, definitions, names := []any{}, schema{}, []string{}
	for _, k := range Written() {
		names = append(names, k.Name)
		definitions[k.Name] = k.schemaOf()
		is := schema{"required": []string{"kind"}, "properties": schema{"kind": kindSchema(k.Name)}}
		if k.Name == DefaultKind {
			is = schema{"properties": schema{"kind": kindSchema(k.Name)}}
		}
		rules = append(rules, schema{"if": is, "then": schema{"$ref": "#/definitions/" + k.Name}})
	}
	slices.Sort(names)
	return encode(schema{
		"$schema": dialect, "title": "Wheelwork documents", "type": "object",
		"properties":  schema{"kind": schema{"description": "The kind of the document; Job if it is left out.", "anyOf": []any{schema{"enum": names}, kindSchema(names...)}}},
		"definitions": definitions, "allOf": rules,
	})
}

// kindSchema accepts the names of kinds in any case, as [Find] does.
func kindSchema(names ...string) schema {
	var patterns []string
	for _, name := range names {
		var b strings.Builder
		for _, r := range name {
			fmt.Fprintf(&b, "[%c%c]", r&^0x20, r|0x20)
		}
		patterns = append(patterns, b.String())
	}
	return schema{"type": "string", "pattern": "^(" + strings.Join(patterns, "|") + ")$"}
}

func encode(s schema) []byte {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("encode a schema: %v", err)) // it has texts, numbers, lists and maps only
	}
	return append(b, '\n')
}

// schemaOf returns the schema of a document, with the field kind.
func (k *Kind) schemaOf() schema {
	s := k.objectSchema("")
	s["title"], s["description"], s["type"] = k.Name, k.Help, "object"
	s["properties"].(schema)["kind"] = schema{"description": "The kind of the document.", "anyOf": []any{schema{"const": k.Name}, kindSchema(k.Name)}}
	if k.Name != DefaultKind {
		s["required"] = append(s["required"].([]string), "kind")
	}
	if k.index["inputFile"] != nil {
		s["allOf"] = exclusive(k.index["inputFile"], k.index["input"], k.index["input_bytes"])
	}
	return s
}

// exclusive refuses the first field beside any of the others, in all spellings.
func exclusive(first *Field, others ...*Field) []any {
	var rules []any
	for _, a := range spellings(first.Name()) {
		for _, f := range others {
			for _, b := range spellings(f.Name()) {
				rules = append(rules, schema{"not": schema{"required": []string{a, b}, "properties": schema{a: schema{"not": schema{"type": "null"}}, b: schema{"not": schema{"type": "null"}}}}})
			}
		}
	}
	return rules
}

// spellings returns the names under which the reader knows a field.
func spellings(name string) []string {
	all := []string{name}
	for _, other := range []string{camel(name), snake(name)} {
		if !slices.Contains(all, other) {
			all = append(all, other)
		}
	}
	return all
}

// camel converts max_runs to maxRuns.
func camel(name string) string {
	words := strings.Split(name, "_")
	for i, w := range words[1:] {
		if w != "" {
			words[i+1] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "")
}

// objectSchema returns the schema of the object at a path.
func (k *Kind) objectSchema(path string) schema {
	properties, required, either := schema{}, []string{}, []any{}
	for _, f := range k.children[path] {
		s := k.fieldSchema(f)
		for i, name := range spellings(f.Name()) {
			properties[name] = s
			if i > 0 { // editors do not suggest the second spelling
				other := maps.Clone(s)
				other["doNotSuggest"] = true
				properties[name] = other
			}
		}
		switch names := spellings(f.Name()); {
		case f.Required && len(names) == 1:
			required = append(required, f.Name())
		case f.Required:
			var ways []any
			for _, name := range names {
				ways = append(ways, schema{"required": []string{name}})
			}
			either = append(either, schema{"anyOf": ways})
		}
	}
	for at, reason := range k.ServerFields {
		f := Field{Path: at}
		if f.parent() != path {
			continue
		}
		for _, name := range spellings(f.Name()) {
			properties[name] = schema{"description": "Set by the server, and ignored in a document: " + reason + ".", "readOnly": true, "doNotSuggest": true}
		}
	}
	s := schema{"type": []string{"object", "null"}, "properties": properties, "required": required, "additionalProperties": false}
	if len(either) > 0 {
		s["allOf"] = either
	}
	return s
}

// fieldSchema returns the schema of a field. Every field may be null, which is as if it were
// left out, unless it is required.
func (k *Kind) fieldSchema(f *Field) schema {
	s := schema{}
	switch f.Type {
	case Object:
		s = k.objectSchema(f.Path)
		if f.Required {
			s["type"] = "object"
		}
	case Objects:
		element := k.objectSchema(f.Path)
		element["type"] = "object"
		s["type"], s["items"] = nullable(f, "array"), element
	case Texts:
		s["type"], s["items"] = nullable(f, "array"), schema{"type": anyText}
		if len(f.Enum) > 0 {
			s["items"] = schema{"enum": append([]string{""}, f.Enum...)}
		}
	case Map:
		s["type"], s["additionalProperties"] = nullable(f, "object"), schema{"type": anyText}
	case Truth:
		s["type"] = nullable(f, "boolean")
	case Whole:
		s["type"], s["pattern"] = nullable(f, "integer", "string"), `^[-+]?[0-9]+$`
	case Number:
		s["type"], s["pattern"] = nullable(f, "number", "string"), `^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$`
	case Duration:
		s["type"], s["pattern"] = nullable(f, "string", "integer"), `^$|^[+]?0$|^\+?(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`
		s["maximum"], s["minimum"] = 0, 0 // a number is a duration only if it is 0
	case Bytes:
		s["type"], s["contentEncoding"] = nullable(f, "string"), "base64"
	default:
		s["type"] = nullable(f, anyText...)
		if len(f.Enum) > 0 {
			delete(s, "type")
			s["enum"] = values(f)
		}
	}
	if f.Bounds != nil {
		s["minimum"], s["maximum"] = f.Bounds.Min, f.Bounds.Max
	}
	s["description"] = f.Help
	if text := f.Default; text != "" {
		s["default"] = literal(f, text)
	}
	return s
}

// anyText are the types that a text without quotes may have.
var anyText = []string{"string", "number", "boolean"}

func nullable(f *Field, types ...string) []string {
	if f.Required {
		return types
	}
	return append(slices.Clone(types), "null")
}

// values returns what a field with an enumeration may have.
func values(f *Field) []any {
	all := []any{""}
	for _, v := range f.Enum {
		all = append(all, v)
	}
	if !f.Required {
		all = append(all, nil)
	}
	return all
}

// literal returns a default as JSON: a number and a boolean as such, a list as a list.
func literal(f *Field, text string) any {
	switch f.Type {
	case Whole, Number, Truth:
		return json.RawMessage(text)
	case Texts:
		return strings.Split(strings.Trim(text, "[]"), ", ")
	}
	return text
}
