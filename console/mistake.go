package console

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/wheelworkhq/wheelwork/internal/spelling"
)

// deepest bounds the nesting of a body that is searched for its mistake. The deepest
// request has 5 levels.
const deepest = 50

// check returns the first mistake in the JSON of a message, in words of the API: the
// field, the expected value and the found value. It returns nil if it finds none.
func check(text []byte, m protoreflect.MessageDescriptor) error {
	c := checker{json.NewDecoder(bytes.NewReader(text))}
	c.UseNumber()
	err := c.message(m, "", 0, element)
	var mistake mistake
	if errors.As(err, &mistake) {
		return mistake
	}
	return nil
}

// mistake is a fault of the client, in contrast to errors of reading.
type mistake string

func (m mistake) Error() string { return string(m) }

func mistakef(format string, args ...any) error { return mistake(fmt.Sprintf(format, args...)) }

// kind says whether a value is that of a field, which may be null as if the field was left
// out, or an element of something.
type kind bool

const (
	single  kind = false
	element kind = true
)

// checker reads JSON, which is known to be well-formed, against the definition of a
// message.
type checker struct{ *json.Decoder }

// message checks an object with the fields of a message.
func (c checker) message(m protoreflect.MessageDescriptor, at string, depth int, k kind) error {
	first, err := c.Token()
	if err != nil || first == nil && k == single {
		return err
	}
	if first != json.Delim('{') {
		return wants(at, "an object with fields", first)
	}
	return c.members(at, depth, func(key, at string, seen map[string]bool) error {
		f := fieldNamed(m, key)
		switch {
		case f == nil:
			return mistakef("unknown field %q%s", shortened(at), suggestion(m, key))
		case seen[string(f.Name())]:
			return mistakef("%s is set twice", at)
		}
		seen[string(f.Name())] = true
		return c.field(f, at, depth)
	})
}

// members calls each for the members of an object that has begun, up to its end. seen is
// for each to remember the members.
func (c checker) members(at string, depth int, each func(key, at string, seen map[string]bool) error) error {
	if depth > deepest {
		return errors.New("nested too deeply")
	}
	seen := map[string]bool{}
	for c.More() {
		key, err := c.Token()
		if err != nil {
			return err
		}
		name, _ := key.(string)
		below := name
		if at != "" {
			below = at + "." + name
		}
		if err := each(name, below, seen); err != nil {
			return err
		}
	}
	_, err := c.Token()
	return err
}

// field checks the value of a field.
func (c checker) field(f protoreflect.FieldDescriptor, at string, depth int) error {
	switch {
	case f.IsMap():
		first, err := c.Token()
		if err != nil || first == nil {
			return err
		}
		if first != json.Delim('{') {
			return wants(at, "an object with names and values", first)
		}
		return c.members(at, depth+1, func(key, at string, seen map[string]bool) error {
			if seen[key] {
				return mistakef("%s is set twice", at)
			}
			seen[key] = true
			return c.value(f.MapValue(), at, depth+1, element)
		})
	case f.IsList():
		first, err := c.Token()
		if err != nil || first == nil {
			return err
		}
		if first != json.Delim('[') {
			return wants(at, "a list", first)
		}
		for i := 0; c.More(); i++ {
			if err := c.value(f, fmt.Sprintf("%s[%d]", at, i), depth+1, element); err != nil {
				return err
			}
		}
		_, err = c.Token()
		return err
	}
	return c.value(f, at, depth, single)
}

// value checks one value: a message, or a scalar.
func (c checker) value(f protoreflect.FieldDescriptor, at string, depth int, k kind) error {
	if f.Kind() == protoreflect.MessageKind && !isTime(f) {
		return c.message(f.Message(), at, depth+1, k)
	}
	found, err := c.Token()
	if err != nil || found == nil && k == single {
		return err
	}
	want := wanted(f)
	switch found := found.(type) {
	case string:
		if !fits(f, found, true) {
			return wants(at, want, found)
		}
	case json.Number:
		if !isNumber(f) || !fits(f, found.String(), false) {
			return wants(at, want, found)
		}
	case bool:
		if f.Kind() != protoreflect.BoolKind {
			return wants(at, want, found)
		}
	default:
		return wants(at, want, found)
	}
	return nil
}

// checkQuery checks one value of a parameter of the query.
func checkQuery(f protoreflect.FieldDescriptor, name, value string) error {
	switch {
	case f.IsMap() || f.Kind() == protoreflect.MessageKind && !isTime(f):
		return mistakef("%s is no parameter of the query", name)
	case f.Kind() == protoreflect.BoolKind:
		if _, err := strconv.ParseBool(value); err == nil {
			return nil
		}
	case fits(f, value, false):
		return nil
	}
	return wants(name, wanted(f), value)
}

// fits reports whether a text, or the text of a number, is a value of a field. quoted is
// for texts of JSON.
func fits(f protoreflect.FieldDescriptor, text string, quoted bool) bool {
	var err error
	switch f.Kind() {
	case protoreflect.StringKind:
		return true
	case protoreflect.BoolKind:
		return !quoted && (text == "true" || text == "false")
	case protoreflect.BytesKind:
		text = strings.TrimRight(text, "=")
		if strings.ContainsAny(text, "-_") {
			_, err = base64.RawURLEncoding.DecodeString(text)
		} else {
			_, err = base64.RawStdEncoding.DecodeString(text)
		}
	case protoreflect.Int32Kind:
		err = whole(text, func(s string) error { _, err := strconv.ParseInt(s, 10, 32); return err })
	case protoreflect.Int64Kind:
		err = whole(text, func(s string) error { _, err := strconv.ParseInt(s, 10, 64); return err })
	case protoreflect.Uint32Kind:
		err = whole(text, func(s string) error { _, err := strconv.ParseUint(s, 10, 32); return err })
	case protoreflect.Uint64Kind:
		err = whole(text, func(s string) error { _, err := strconv.ParseUint(s, 10, 64); return err })
	case protoreflect.DoubleKind:
		_, err = strconv.ParseFloat(text, 64)
	case protoreflect.EnumKind:
		return f.Enum().Values().ByName(protoreflect.Name(text)) != nil
	case protoreflect.MessageKind: // a time
		_, err = time.Parse(time.RFC3339Nano, text)
	}
	return err == nil
}

// whole parses a whole number, which JSON may also write as 1.0 or 1e3.
func whole(text string, parse func(string) error) error {
	err := parse(text)
	if err != nil && strings.ContainsAny(text, ".eE") {
		if v, e := strconv.ParseFloat(text, 64); e == nil {
			return parse(strconv.FormatFloat(v, 'f', -1, 64))
		}
	}
	return err
}

func isTime(f protoreflect.FieldDescriptor) bool {
	return f.Message() != nil && f.Message().FullName() == "google.protobuf.Timestamp"
}

func isNumber(f protoreflect.FieldDescriptor) bool {
	switch f.Kind() {
	case protoreflect.Int32Kind, protoreflect.Int64Kind, protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.DoubleKind:
		return true
	}
	return false
}

// wanted describes the values of a scalar field.
func wanted(f protoreflect.FieldDescriptor) string {
	switch f.Kind() {
	case protoreflect.StringKind:
		return "a text"
	case protoreflect.BoolKind:
		return "true or false"
	case protoreflect.BytesKind:
		return "bytes in base64"
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		return "a whole number"
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		return "a whole number, 0 or more"
	case protoreflect.DoubleKind:
		return "a number"
	case protoreflect.MessageKind:
		return `a time such as "2026-01-31T08:00:00Z"`
	case protoreflect.EnumKind:
		var names []string
		for i := range f.Enum().Values().Len() {
			names = append(names, string(f.Enum().Values().Get(i).Name()))
		}
		return "one of " + strings.Join(names, ", ")
	}
	return "another value"
}

func wants(at, want string, found any) error {
	if at == "" {
		at = "the body"
	}
	return mistakef("%s: want %s, found %s", shortened(at), want, shown(found))
}

// shown describes a token of JSON.
func shown(token any) string {
	switch t := token.(type) {
	case json.Delim:
		if t == '{' {
			return "an object"
		}
		return "a list"
	case string:
		return strconv.Quote(shortened(t))
	case nil:
		return "null"
	}
	return shortened(fmt.Sprint(token))
}

func shortened(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

// fieldNamed returns the field with a name, in the form of the .proto files or of their
// JSON.
func fieldNamed(m protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if f := m.Fields().ByName(protoreflect.Name(name)); f != nil {
		return f
	}
	return m.Fields().ByJSONName(name)
}

// fieldAt returns the field at a path of names, as a query has it, or nil.
func fieldAt(m protoreflect.MessageDescriptor, path string) (f protoreflect.FieldDescriptor) {
	for name := range strings.SplitSeq(path, ".") {
		if m == nil {
			return nil
		}
		if f = fieldNamed(m, name); f == nil {
			return nil
		}
		m = f.Message()
	}
	return f
}

// suggestion returns the field that was probably meant, or the fields that there are.
func suggestion(m protoreflect.MessageDescriptor, wrong string) string {
	var names []string
	for i := range m.Fields().Len() {
		names = append(names, string(m.Fields().Get(i).Name()))
	}
	if len(names) == 0 {
		return ": there are no fields"
	}
	if nearest := spelling.Nearest(strings.ToLower(wrong), names); nearest != "" {
		return fmt.Sprintf(": did you mean %q?", nearest)
	}
	slices.Sort(names)
	return ": want one of " + strings.Join(names, ", ")
}
