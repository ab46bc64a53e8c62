package command

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/wheelworkhq/wheelwork/internal/spelling"
)

// unknownField and wrongType match texts of package yaml about a field that a document may
// not have, and about a value of another type than the field has.
var (
	unknownField = regexp.MustCompile(`field (\S+) not found in type .*`)
	wrongType    = regexp.MustCompile("cannot unmarshal !!(\\w+)(?: `[^`]*`)? into (.*)")
)

// YAMLError rewrites an error of package yaml for people: on one line, and without Go's
// types. document is the value that was decoded; an unknown field is compared with its fields.
func YAMLError(err error, document any) error {
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "yaml: "), "unmarshal errors:")
	text = unknownField.ReplaceAllStringFunc(text, func(found string) string {
		name := unknownField.FindStringSubmatch(found)[1]
		if near := spelling.Nearest(name, fieldsOf(reflect.TypeOf(document), nil)); near != "" && near != name {
			return fmt.Sprintf("there is no field %s: did you mean %s?", name, near)
		}
		return "there is no field " + name + " here"
	})
	text = wrongType.ReplaceAllStringFunc(text, func(found string) string {
		match := wrongType.FindStringSubmatch(found)
		return "want " + typeText(match[2]) + ", found " + typeText(match[1])
	})
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return errors.New(strings.Join(lines, "; "))
}

// fieldsOf adds the names of the fields of a type, and of the types in it, to names.
func fieldsOf(t reflect.Type, names []string) []string {
	for t != nil && slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Slice, reflect.Map}, t.Kind()) {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return names
	}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if name == "-" || !f.IsExported() {
			continue
		}
		names = fieldsOf(f.Type, append(names, cmp.Or(name, strings.ToLower(f.Name))))
	}
	return names
}

// typeText describes a type of Go or of YAML.
func typeText(name string) string {
	switch {
	case strings.HasPrefix(name, "[]"), name == "seq":
		return "a list"
	case name == "string", name == "str":
		return "a text"
	case name == "bool":
		return "true or false"
	case strings.HasPrefix(name, "float"):
		return "a number"
	case strings.HasPrefix(name, "int"), strings.HasPrefix(name, "uint"):
		return "a whole number"
	case name == "null":
		return "nothing"
	case strings.HasSuffix(name, ".Duration"):
		return "a duration as 30s"
	}
	return "fields"
}
