package document

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// maxInputFile is the longest input in bytes, as the API allows it.
const maxInputFile = 64 << 10

// Options are choices of [Parse].
type Options struct {
	// File is the name of the source in positions; "": unnamed.
	File string
	// Dir is the folder that inputFile starts from; "": the working directory.
	Dir string
	// Kind is the kind of documents without the field kind; nil: Job.
	Kind *Kind
	// Only refuses documents of another kind than Kind.
	Only bool
	// AnyValue leaves values to the server: texts outside an enumeration, numbers outside
	// their bounds, durations and times in another form, and missing fields.
	AnyValue bool
	// NoFiles refuses inputFile. A server must set it for a source of another program, which
	// would otherwise read the files of the server.
	NoFiles bool
}

// Parse reads documents: YAML with any number of them, JSON objects one after another, or
// lists in either. A subscription becomes two documents. Field names are those of the tables, in
// snake case or in camel case. Numbers, dates and booleans in a text retain their spelling. The
// error is of type [Problems] and has all mistakes, up to a thousand or so, unless the source
// cannot be read.
func Parse(r io.Reader, opts Options) ([]*Document, error) {
	roots, size, err := readSource(r, opts.File)
	if err != nil {
		return nil, err
	}
	var documents []*Document
	var problems Problems
	budget := size + aliasBudget
	for _, root := range roots {
		if len(problems) > maxProblems {
			break
		}
		at := Position{File: opts.File, Document: root.document}
		nodes := []*yaml.Node{root.node}
		if kind, is := isSubscription(root.node); is {
			p := parser{opts: opts, budget: &budget, at: at}
			nodes = p.subscription(root.node, kind)
			problems = append(problems, p.problems...)
		}
		before := len(problems)
		for _, n := range nodes {
			p := parser{opts: opts, budget: &budget, at: at}
			d := p.document(n)
			for _, x := range p.problems {
				if !slices.Contains(problems[before:], x) { // both halves of a subscription have it
					problems = append(problems, x)
				}
			}
			documents = append(documents, d)
		}
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return documents, nil
}

// aliasBudget is the number of values that a source may have through aliases beyond one for
// each of its bytes. Without it a small source could fill the memory.
const aliasBudget = 1_000_000

// maxProblems is the number of mistakes after which the reader looks at no further document.
const maxProblems = 1000

// parser reads one document.
type parser struct {
	opts     Options
	budget   *int     // values that the source may still have
	at       Position // of the source and the document
	kind     *Kind
	file     *yaml.Node // the value of inputFile
	input    bool       // the document has an input beside
	problems Problems
}

func (p *parser) position(n *yaml.Node) Position {
	at := p.at
	at.Line, at.Column = n.Line, n.Column
	return at
}

// fail reports a mistake of form.
func (p *parser) fail(n *yaml.Node, path, format string, args ...any) {
	p.problems = append(p.problems, Problem{At: p.position(n), Path: path, Text: fmt.Sprintf(format, args...)})
}

// failValue reports a value that the field does not take.
func (p *parser) failValue(n *yaml.Node, path, format string, args ...any) {
	if !p.opts.AnyValue {
		p.problems = append(p.problems, Problem{At: p.position(n), Path: path, Text: fmt.Sprintf(format, args...), Value: true})
	}
}

// spend counts a value, and reports whether the source may have it.
func (p *parser) spend(n *yaml.Node, at string) bool {
	if *p.budget--; *p.budget == 0 {
		p.fail(n, at, "%s: aliases repeat more than %d values: write fewer of them", at, aliasBudget)
	}
	return *p.budget > 0
}

// document reads one mapping.
func (p *parser) document(n *yaml.Node) *Document {
	if n.Kind != yaml.MappingNode {
		p.fail(n, "", "want %s with fields, found %s", p.noun(), kindOf(n))
		return nil
	}
	rest := p.cutKind(n)
	if len(p.problems) > 0 {
		return nil
	}
	d := &Document{Kind: p.kind, At: p.position(n), Spec: p.kind.New(), root: n}
	p.message(d.Spec.ProtoReflect(), rest, "", "")
	p.inputFile(d.Spec)
	d.identify()
	if d.Name == "" && len(p.problems) == 0 {
		p.failValue(n, "name", "name is missing")
	}
	return d
}

// noun names what the source holds.
func (p *parser) noun() string {
	if k := p.fallback(); p.opts.Only {
		return "a " + strings.ToLower(k.Name)
	}
	return "a document"
}

// fallback returns the kind of a document that names none.
func (p *parser) fallback() *Kind { return cmp.Or(p.opts.Kind, jobKind) }

// cutKind finds the kind of a document, and returns the other fields.
func (p *parser) cutKind(n *yaml.Node) *yaml.Node {
	rest := &yaml.Node{Kind: n.Kind, Line: n.Line, Column: n.Column}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := resolve(n.Content[i]), resolve(n.Content[i+1])
		if key.Value != "kind" || key.Kind != yaml.ScalarNode {
			rest.Content = append(rest.Content, n.Content[i], n.Content[i+1])
			continue
		}
		if p.kind != nil {
			p.fail(key, "kind", "kind is set twice")
			continue
		}
		k, err := Find(value.Value)
		if err != nil || value.Kind != yaml.ScalarNode {
			p.fail(value, "kind", "kind: %v", cmp.Or(err, fmt.Errorf("want a text, found %s", kindOf(value))))
			continue
		}
		if p.kind = k; p.opts.Only && k != p.fallback() {
			p.fail(value, "kind", "kind is %s: want documents of the kind %s only", k.Name, p.fallback().Name)
		}
	}
	p.kind = cmp.Or(p.kind, p.fallback())
	return rest
}

// message fills a message from a mapping. path is its position in the kind, and at the one in
// the document, which has indexes.
func (p *parser) message(m protoreflect.Message, n *yaml.Node, path, at string) {
	seen, set := map[string]bool{}, map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := resolve(n.Content[i]), resolve(n.Content[i+1])
		where := join(at, key.Value)
		name, known := p.nameOf(path, key)
		switch {
		case !known:
			p.fail(key, where, "unknown field %q%s", where, p.kind.suggestion(path, key.Value))
			continue
		case seen[name]:
			p.fail(key, where, "%s is set twice", where)
			continue
		}
		seen[name] = true
		f := p.kind.index[join(path, name)]
		if f == nil || isNull(value) { // the server sets it, or it is as if left out
			continue
		}
		set[name] = true
		if !p.spend(value, where) {
			return
		}
		p.field(m, f, value, join(at, name))
	}
	for _, f := range p.kind.children[path] {
		if f.Required && !set[f.Name()] {
			p.failValue(n, join(at, f.Name()), "%s is missing", join(at, f.Name()))
		}
	}
}

// nameOf returns the name of the field that a key means, and whether there is one.
func (p *parser) nameOf(path string, key *yaml.Node) (string, bool) {
	if key.Kind != yaml.ScalarNode {
		return "", false
	}
	if f := p.kind.child(path, key.Value); f != nil {
		return f.Name(), true
	}
	for _, name := range []string{key.Value, snake(key.Value)} {
		if _, ok := p.kind.ServerFields[join(path, name)]; ok {
			return name, true
		}
	}
	return "", false
}

func (p *parser) field(m protoreflect.Message, f *Field, n *yaml.Node, at string) {
	if f.Local {
		p.file = n
		return
	}
	if f.Path == "input" || f.Path == "input_bytes" {
		p.input = true
	}
	field := m.Descriptor().Fields().ByName(protoreflect.Name(f.Name()))
	switch f.Type {
	case Object:
		if n.Kind != yaml.MappingNode {
			p.fail(n, at, "%s: want fields, as in %s, found %s", at, f.Example, kindOf(n))
			return
		}
		p.message(m.Mutable(field).Message(), n, f.Path, at)
	case Objects:
		p.each(f, n, at, func(e *yaml.Node, at string) {
			if e.Kind != yaml.MappingNode {
				p.fail(e, at, "%s: want fields, as in %s, found %s", at, strings.Trim(f.Example, "[]"), kindOf(e))
				return
			}
			p.message(m.Mutable(field).List().AppendMutable().Message(), e, f.Path, at)
		})
	case Texts:
		p.each(f, n, at, func(e *yaml.Node, at string) {
			if text, ok := p.text(f, e, at); ok {
				m.Mutable(field).List().Append(protoText(text))
			}
		})
	case Map:
		p.textMap(m.Mutable(field).Map(), n, at, f)
	default:
		p.scalar(m, field, f, n, at)
	}
}

func (p *parser) each(f *Field, n *yaml.Node, at string, read func(*yaml.Node, string)) {
	if n.Kind != yaml.SequenceNode {
		p.fail(n, at, "%s: want a list, found %s", at, kindOf(n))
		return
	}
	for i, e := range n.Content {
		where := fmt.Sprintf("%s[%d]", at, i)
		if !p.spend(e, where) {
			return
		}
		read(resolve(e), where)
	}
}

func (p *parser) textMap(entries protoreflect.Map, n *yaml.Node, at string, f *Field) {
	if n.Kind != yaml.MappingNode {
		p.fail(n, at, "%s: want names with values, found %s", at, kindOf(n))
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := resolve(n.Content[i]), resolve(n.Content[i+1])
		where := join(at, key.Value)
		if !p.spend(value, where) {
			return
		}
		k, ok := p.text(f, key, where)
		if !ok {
			continue
		}
		name := protoText(k).MapKey()
		if entries.Has(name) {
			p.fail(key, where, "%s is set twice", where)
			continue
		}
		if v, ok := p.text(f, value, where); ok {
			entries.Set(name, protoText(v))
		}
	}
}

func protoText(s string) protoreflect.Value { return protoreflect.ValueOfString(s) }

// text reads a scalar as the text that the document has, for every type that YAML takes it
// for.
func (p *parser) text(f *Field, n *yaml.Node, at string) (string, bool) {
	if n.Kind != yaml.ScalarNode {
		p.fail(n, at, "%s: want a text, found %s", at, kindOf(n))
		return "", false
	}
	value := n.Value
	if n.ShortTag() == "!!binary" {
		raw, err := decodeBase64(value)
		if err != nil {
			p.fail(n, at, "%s: want base64, found %s", at, kindOf(n))
			return "", false
		}
		value = string(raw)
	}
	if !utf8.ValidString(value) {
		p.fail(n, at, "%s is not valid UTF-8", at)
		return "", false
	}
	if f.Type == Text || f.Type == Texts {
		p.checkEnum(f, n, value, at)
	}
	return value, true
}

func (p *parser) checkEnum(f *Field, n *yaml.Node, value, at string) {
	if len(f.Enum) == 0 || value == "" || slices.Contains(f.Enum, value) {
		return
	}
	hint := "want one of " + strings.Join(f.Enum, ", ")
	if near := nearest(value, f.Enum); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	p.failValue(n, at, "%s: %s is not a value of this field: %s", at, kindOf(n), hint)
}

func (p *parser) scalar(m protoreflect.Message, field protoreflect.FieldDescriptor, f *Field, n *yaml.Node, at string) {
	wrong := func(want string) { p.fail(n, at, "%s: want %s, found %s", at, want, kindOf(n)) }
	if n.Kind != yaml.ScalarNode {
		wrong(wanted(f, field))
		return
	}
	switch field.Kind() {
	case protoreflect.StringKind:
		if job, ok := m.Interface().(*apiv1.Job); ok && f.Path == "input" && n.ShortTag() == "!!binary" {
			raw, err := decodeBase64(n.Value)
			if err != nil {
				wrong("base64")
				return
			}
			setInput(job, raw)
			return
		}
		text, ok := p.text(f, n, at)
		if !ok {
			return
		}
		p.checkForm(f, n, text, at)
		m.Set(field, protoText(text))
	case protoreflect.BytesKind:
		raw, err := decodeBase64(n.Value)
		if err != nil {
			wrong("base64")
			return
		}
		m.Set(field, protoreflect.ValueOfBytes(raw))
	case protoreflect.BoolKind:
		if n.ShortTag() != "!!bool" {
			wrong("true or false")
			return
		}
		m.Set(field, protoreflect.ValueOfBool(strings.EqualFold(n.Value, "true")))
	default:
		v, size, err := number(field.Kind(), n.Value)
		if err != nil {
			wrong(wanted(f, field))
			return
		}
		if b := f.Bounds; b != nil && (size < b.Min || size > b.Max) {
			p.failValue(n, at, "%s is %s, it must be %s to %s", at, n.Value, plain(b.Min), plain(b.Max))
		}
		m.Set(field, v)
	}
}

// number reads a number of the type of a field, and returns its size as well.
func number(kind protoreflect.Kind, text string) (v protoreflect.Value, size float64, err error) {
	switch kind {
	case protoreflect.Int32Kind:
		n, err := strconv.ParseInt(text, 10, 32)
		return protoreflect.ValueOfInt32(int32(n)), float64(n), err
	case protoreflect.Int64Kind:
		n, err := strconv.ParseInt(text, 10, 64)
		return protoreflect.ValueOfInt64(n), float64(n), err
	case protoreflect.Uint64Kind:
		n, err := strconv.ParseUint(text, 10, 64)
		return protoreflect.ValueOfUint64(n), float64(n), err
	}
	n, err := strconv.ParseFloat(text, 64)
	if err == nil && (math.IsNaN(n) || math.IsInf(n, 0)) {
		err = strconv.ErrRange
	}
	return protoreflect.ValueOfFloat64(n), n, err
}

// wanted describes the values of a field for an error.
func wanted(f *Field, field protoreflect.FieldDescriptor) string {
	switch f.Type {
	case Bytes, Truth:
		return string(f.Type)
	case Whole:
		if field.Kind() == protoreflect.Uint64Kind {
			return "a whole number, 0 or more"
		}
		return "a whole number"
	case Number:
		return "a number"
	}
	return "a text"
}

// plain writes a bound without an exponent.
func plain(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// checkForm checks durations and times.
func (p *parser) checkForm(f *Field, n *yaml.Node, text, at string) {
	if text == "" {
		return
	}
	switch f.Type {
	case Duration:
		if v, err := time.ParseDuration(text); err != nil || v < 0 {
			p.failValue(n, at, "%s: %s is not a duration: write it as 500ms, 30s, 5m or 1h30m", at, kindOf(n))
		}
	case Instant:
		if _, err := time.Parse(time.RFC3339Nano, text); err != nil {
			p.failValue(n, at, "%s: %s is not a time: write it as 2026-03-08T12:00:00Z", at, kindOf(n))
		}
	}
}

func decodeBase64(text string) ([]byte, error) {
	return base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
}

// inputFile reads the file that a job takes its input from, if it names one. It is the last
// step, so that a document with other mistakes reads no file.
func (p *parser) inputFile(spec proto.Message) {
	job, ok := spec.(*apiv1.Job)
	n := p.file
	switch {
	case !ok || n == nil:
		return
	case p.opts.NoFiles:
		p.fail(n, "inputFile", "inputFile: no file can be read here: write its content as input")
		return
	case n.Kind != yaml.ScalarNode || n.Value == "":
		p.fail(n, "inputFile", "inputFile: want the path of a file")
		return
	case p.input:
		p.fail(n, "inputFile", "inputFile and input are both set: use one")
		return
	case len(p.problems) > 0:
		return
	}
	path := n.Value
	if !filepath.IsAbs(path) {
		path = filepath.Join(p.opts.Dir, path)
	}
	input, err := readInput(path, n.Value)
	if err != nil {
		p.fail(n, "inputFile", "inputFile: %v", err)
		return
	}
	setInput(job, input)
}

func readInput(path, name string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	input, err := io.ReadAll(io.LimitReader(f, maxInputFile+1))
	if err != nil {
		return nil, err
	}
	if len(input) > maxInputFile {
		return nil, fmt.Errorf("%s is larger than the %d KiB that an input may have: pass a reference to the data instead", name, maxInputFile>>10)
	}
	return input, nil
}

func setInput(job *apiv1.Job, input []byte) {
	if utf8.Valid(input) {
		job.Input, job.InputBytes = string(input), nil
	} else {
		job.Input, job.InputBytes = "", input
	}
}
