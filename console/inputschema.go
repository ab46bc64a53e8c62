package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// The bounds of a schema that has a form; the input of a larger one is edited as text.
const (
	maxInputSchema = 64 << 10
	maxInputFields = 50
)

// The mistakes in a value of a form.
var (
	errInputRequired = errors.New("the field is required: enter a value")
	errInputNumber   = errors.New("the value is no number: enter a number such as 1.5")
	errInputInteger  = errors.New("the value is no integer: enter a number such as 10")
	errInputChoice   = errors.New("the value is none of the choices: select one of them")
)

// errInputText says that an input has no form, because it is no JSON object.
var errInputText = errors.New("the input is no JSON object: correct the text, or empty it")

// inputField is a member of the input of a handler, from the schema that its module has.
type inputField struct {
	Name        string
	Type        string // string, number, integer or boolean; "": one of the choices
	Description string
	Required    bool
	Choices     []string                   // the values of an enum, a const or a boolean; nil: any value of the type
	values      map[string]json.RawMessage // the JSON of each choice
	preset      json.RawMessage            // the default; nil: none
}

// schemaNode has the keywords of a JSON Schema that a form knows.
type schemaNode struct {
	Type        json.RawMessage            `json:"type"`
	Description string                     `json:"description"`
	Properties  map[string]json.RawMessage `json:"properties"`
	Required    []string                   `json:"required"`
	Enum        []json.RawMessage          `json:"enum"`
	Const       json.RawMessage            `json:"const"`
	Default     json.RawMessage            `json:"default"`
}

// inputFieldsOf returns the fields of an input, by name. It returns nil for a schema that a form cannot show.
func inputFieldsOf(schema []byte) []inputField {
	var root schemaNode
	if len(schema) > maxInputSchema || !decodeSchema(schema, &root) || string(root.Type) != `"object"` || len(root.Properties) > maxInputFields {
		return nil
	}
	var fields []inputField
	for _, name := range slices.Sorted(maps.Keys(root.Properties)) {
		f, ok := inputFieldOf(root.Properties[name])
		if !ok {
			return nil
		}
		f.Name, f.Required = name, slices.Contains(root.Required, name)
		fields = append(fields, f)
	}
	return fields
}

// decodeSchema reads a schema, and refuses one that combines others or refers to them.
func decodeSchema(schema []byte, n *schemaNode) bool {
	var all map[string]json.RawMessage
	if json.Unmarshal(schema, &all) != nil || json.Unmarshal(schema, n) != nil {
		return false
	}
	for _, keyword := range []string{"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if"} {
		if _, ok := all[keyword]; ok {
			return false
		}
	}
	return true
}

func inputFieldOf(schema json.RawMessage) (inputField, bool) {
	var n schemaNode
	if !decodeSchema(schema, &n) {
		return inputField{}, false
	}
	f := inputField{Description: n.Description, preset: n.Default}
	if n.Type != nil && json.Unmarshal(n.Type, &f.Type) != nil {
		return inputField{}, false
	}
	choices := n.Enum
	switch {
	case n.Const != nil:
		choices = []json.RawMessage{n.Const}
	case choices == nil && f.Type == "boolean":
		choices = []json.RawMessage{json.RawMessage("true"), json.RawMessage("false")}
	}
	for _, c := range choices {
		text, ok := inputText(c)
		if _, twice := f.values[text]; !ok || twice || text == "" {
			return inputField{}, false
		}
		if f.values == nil {
			f.values = map[string]json.RawMessage{}
		}
		f.values[text], f.Choices = c, append(f.Choices, text)
	}
	known := f.Type == "string" || f.Type == "number" || f.Type == "integer" || f.Type == "boolean"
	return f, known || f.Type == "" && f.Choices != nil
}

// inputText returns a JSON value as a field shows it; false: a list or an object.
func inputText(raw json.RawMessage) (string, bool) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || raw[0] == '[' || raw[0] == '{' {
		return "", false
	}
	if raw[0] != '"' {
		return string(raw), true
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err == nil
}

// parse returns the JSON of a value that a visitor entered; nil: no value.
func (f inputField) parse(value string) (json.RawMessage, error) {
	if value == "" {
		if f.Required && (f.Type != "string" || f.Choices != nil) {
			return nil, errInputRequired
		}
		if !f.Required {
			return nil, nil
		}
	}
	if f.Choices != nil {
		raw, ok := f.values[value]
		if !ok {
			return nil, errInputChoice
		}
		return raw, nil
	}
	if f.Type == "string" {
		return json.Marshal(value)
	}
	value = strings.TrimSpace(value)
	if f.Type == "integer" {
		if _, err := strconv.ParseInt(value, 10, 64); err != nil || !json.Valid([]byte(value)) {
			return nil, errInputInteger
		}
	} else if _, err := strconv.ParseFloat(value, 64); err != nil || !json.Valid([]byte(value)) {
		return nil, errInputNumber
	}
	return json.RawMessage(value), nil
}

// mergeInput writes values into an input and keeps its other members. It returns the mistakes by field.
func mergeInput(fields []inputField, former string, values map[string]string) (string, map[string]error, error) {
	members := map[string]json.RawMessage{}
	if strings.TrimSpace(former) != "" {
		if err := json.Unmarshal([]byte(former), &members); err != nil || members == nil {
			return former, nil, errInputText
		}
	}
	mistakes := map[string]error{}
	for _, f := range fields {
		value, ok := values[f.Name]
		if !ok {
			continue
		}
		raw, err := f.parse(value)
		switch {
		case err != nil:
			mistakes[f.Name] = err
		case raw == nil:
			delete(members, f.Name)
		default:
			members[f.Name] = raw
		}
	}
	if len(mistakes) > 0 {
		return former, mistakes, nil
	}
	text, err := json.MarshalIndent(members, "", "  ")
	return string(text), nil, err
}

// sampleInput returns an input with a value for each field: its default, its first choice or an empty value.
func sampleInput(fields []inputField) (string, error) {
	members := map[string]json.RawMessage{}
	for _, f := range fields {
		switch {
		case f.preset != nil:
			members[f.Name] = f.preset
		case f.Choices != nil:
			members[f.Name] = f.values[f.Choices[0]]
		case f.Type == "string":
			members[f.Name] = json.RawMessage(`""`)
		default:
			members[f.Name] = json.RawMessage("0")
		}
	}
	text, err := json.MarshalIndent(members, "", "  ")
	return string(text), err
}
