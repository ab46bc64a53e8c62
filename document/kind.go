package document

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/wheelworkhq/wheelwork/internal/spelling"
)

// Type is the type of a field.
type Type string

// The types of fields. A text may be written without quotes, whatever YAML takes it for.
const (
	Text     Type = "text"
	Duration Type = "duration" // as 500ms, 30s or 1h30m
	Instant  Type = "time"     // RFC 3339
	Whole    Type = "whole number"
	Number   Type = "number"
	Truth    Type = "true or false"
	Bytes    Type = "base64"
	Texts    Type = "list of texts"
	Map      Type = "map of texts"
	Object   Type = "fields"
	Objects  Type = "list of fields"
)

// Bounds are the least and the largest value of a number.
type Bounds struct{ Min, Max float64 }

// Field describes one field of a kind.
type Field struct {
	// Path is the position in the document, as retry.max; workflow.nodes.name is a field of
	// each element of the list workflow.nodes.
	Path     string
	Type     Type
	Default  string   // as written in a document; "": the zero value, or none
	Unit     string   // of a number
	Enum     []string // the values of a text, or of the elements of a list
	Bounds   *Bounds
	Required bool   // in an object that is there
	Help     string // one sentence, in Markdown
	Example  string // in the flow style of YAML

	// Present says that the object means something also without a field in it.
	Present bool
	// Local says that the reader replaces the field, so that the message has none.
	Local bool
}

// Name returns the last part of the path.
func (f *Field) Name() string { return f.Path[strings.LastIndexByte(f.Path, '.')+1:] }

// parent returns the path of the object that has the field; "" is the document.
func (f *Field) parent() string { return f.Path[:max(0, strings.LastIndexByte(f.Path, '.'))] }

// Kind is one kind of documents.
type Kind struct {
	Name string // as in the field kind
	Help string // one sentence
	// Fields are all fields, an object before the fields in it.
	Fields []Field
	// ServerFields are the fields of the message that only the server sets, with the reason.
	// The reader ignores them, because the API prints them.
	ServerFields map[string]string

	message  func() proto.Message
	identity func(proto.Message) (app, name string)
	index    map[string]*Field
	children map[string][]*Field // by the path of the object
}

// New returns an empty message of the kind.
func (k *Kind) New() proto.Message { return k.message() }

// Identity returns the app and the name of a definition of the kind. A name is unique among
// those of its kind and its app.
func (k *Kind) Identity(spec proto.Message) (app, name string) { return k.identity(spec) }

// Field returns the field at a path, nil if there is none.
func (k *Kind) Field(path string) *Field { return k.index[path] }

// Children returns the fields directly in the object at a path; "" is the document.
func (k *Kind) Children(path string) []*Field {
	return slices.Clone(k.children[path])
}

// descriptor returns the description of the kind's message.
func (k *Kind) descriptor() protoreflect.MessageDescriptor {
	return k.message().ProtoReflect().Descriptor()
}

// kinds are in the order in which they are applied: each after those that it may name.
var kinds = indexed(appKind, calendarKind, grantKind, aliasKind, eventSourceKind, alertChannelKind, jobKind, alertRuleKind)

func indexed(all ...*Kind) []*Kind {
	for _, k := range all {
		k.index, k.children = make(map[string]*Field, len(k.Fields)), map[string][]*Field{}
		for i := range k.Fields {
			f := &k.Fields[i]
			k.index[f.Path] = f
			k.children[f.parent()] = append(k.children[f.parent()], f)
		}
	}
	return all
}

// Kinds returns all kinds in the order in which they are applied: each after those that it
// may name.
func Kinds() []*Kind { return slices.Clone(kinds) }

// Written returns all kinds that a file may have: those of [Kinds], and Subscription, which
// [Parse] replaces by documents of these.
func Written() []*Kind { return append(Kinds(), subscriptionKind) }

// DefaultKind is the kind of a document without the field kind.
const DefaultKind = "Job"

// Find returns the kind with a name, in any case.
func Find(name string) (*Kind, error) {
	if strings.EqualFold(name, subscriptionKind.Name) {
		return nil, fmt.Errorf("a subscription is an alertchannel and an alertrule of its name: use these kinds")
	}
	var names []string
	for _, k := range kinds {
		if strings.EqualFold(k.Name, name) {
			return k, nil
		}
		names = append(names, k.Name)
	}
	if near := nearest(name, names); near != "" {
		return nil, fmt.Errorf("there is no kind %q: did you mean %q?", name, near)
	}
	return nil, fmt.Errorf("there is no kind %q: want one of %s", name, strings.Join(names, ", "))
}

// nearest compares without regard to case.
func nearest(name string, names []string) string {
	lower := make([]string, len(names))
	for i, n := range names {
		lower[i] = strings.ToLower(n)
	}
	near := spelling.Nearest(strings.ToLower(name), lower)
	if i := slices.Index(lower, near); near != "" && i >= 0 {
		return names[i]
	}
	return ""
}

// Lookup returns the kind and the field that a text such as job.retry.max names. The field is
// nil for a kind alone.
func Lookup(text string) (*Kind, *Field, error) {
	name, path, deeper := strings.Cut(text, ".")
	k := subscriptionKind
	if !strings.EqualFold(name, k.Name) {
		var err error
		if k, err = Find(name); err != nil {
			return nil, nil, err
		}
	}
	if !deeper {
		return k, nil, nil
	}
	at := ""
	for part := range strings.SplitSeq(path, ".") {
		f := k.child(at, part)
		if f == nil {
			return nil, nil, fmt.Errorf("%s has no field %q%s", strings.TrimSuffix(k.Name+"."+at, "."), part, k.suggestion(at, part))
		}
		at = f.Path
	}
	return k, k.index[at], nil
}

// child returns the field with a name, in either spelling, of the object at a path.
func (k *Kind) child(path, name string) *Field {
	for _, spelled := range []string{name, snake(name)} {
		if f := k.index[join(path, spelled)]; f != nil {
			return f
		}
	}
	if path == "" && name == "input_file" { // the one field whose first spelling is in camel case
		return k.index["inputFile"]
	}
	return nil
}

// suggestion says which field of an object was probably meant.
func (k *Kind) suggestion(path, name string) string {
	if name == "<<" {
		return ": merge keys are not supported, write the fields out"
	}
	var names []string
	for _, f := range k.Children(path) {
		names = append(names, f.Name())
	}
	if near := nearest(snake(name), names); near != "" {
		return fmt.Sprintf(": did you mean %q?", near)
	}
	slices.Sort(names)
	return ": want one of " + strings.Join(names, ", ")
}

// snake converts maxRuns to max_runs.
func snake(name string) string {
	var b strings.Builder
	for _, r := range name {
		if 'A' <= r && r <= 'Z' {
			b.WriteByte('_')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
