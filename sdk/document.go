package sdk

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/wheelworkhq/wheelwork/internal/spelling"
)

const (
	maxDocuments = 64 << 20 // bytes of one source of documents
	maxInputFile = 64 << 10 // bytes, as the API allows for an input

	// Fields of a job or a calendar with these numbers are set by the server. A document
	// may contain them, because `job get` prints them; the reader ignores them, except
	// for the etag. Nested messages have no such numbers.
	firstServerField, lastServerField protoreflect.FieldNumber = 20, 29
)

// ReadJobs reads job documents: YAML with any number of documents, JSON objects one after
// another, or lists of jobs in either format. Field names are those of [Job], as in the
// .proto file or in camel case. An unknown field is an error that names its position.
// Numbers, dates and booleans in a text field retain their spelling.
//
// The field inputFile names a file, relative to dir, whose bytes become the input. A job
// without an app stays without one; [Client.Apply] uses [DefaultApp] for it. ReadJobs
// ignores fields that the server sets, except for the etag: see [Client.Apply]. A job
// needs a name, and only one document may define it; the server validates the rest.
func ReadJobs(r io.Reader, dir string) ([]*Job, error) {
	var jobs []*Job
	lines := map[identity]int{}
	err := readDocuments(r, func(n *yaml.Node) error {
		job, err := readJob(n, dir)
		if err != nil {
			return err
		}
		key := identity{job.GetApp(), job.GetName()}
		switch line, twice := lines[key]; {
		case job.GetName() == "":
			return fmt.Errorf("line %d: name is missing", n.Line)
		case twice:
			return fmt.Errorf("line %d: job %s is defined twice, first on line %d: keep one of the two", n.Line, job.GetName(), line)
		}
		lines[key] = n.Line
		jobs = append(jobs, job)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read jobs: %w", err)
	}
	return jobs, nil
}

// readDocuments calls read with each document of a source. If a document is a list, it
// calls read with each element.
func readDocuments(r io.Reader, read func(*yaml.Node) error) error {
	source, err := io.ReadAll(io.LimitReader(r, maxDocuments+1))
	if err != nil {
		return err
	}
	if len(source) > maxDocuments {
		return fmt.Errorf("more than %d MiB: split the file", maxDocuments>>20)
	}
	if line := notUTF8(source); line > 0 {
		return fmt.Errorf("line %d is not valid UTF-8: save the file in that encoding", line)
	}
	documents, err := parse(source)
	if err != nil {
		return err
	}
	for i, d := range documents {
		nodes := []*yaml.Node{d}
		if d.Kind == yaml.SequenceNode {
			nodes = d.Content
		}
		for _, n := range nodes {
			if err := read(n); err != nil {
				return fmt.Errorf("document %d, %w", i+1, err)
			}
		}
	}
	return nil
}

// notUTF8 returns the first line that is not valid UTF-8, 0 if there is none. YAML may also
// be UTF-16, which begins with a byte order mark.
func notUTF8(source []byte) (line int) {
	if utf8.Valid(source) || bytes.HasPrefix(source, []byte("\xfe\xff")) || bytes.HasPrefix(source, []byte("\xff\xfe")) {
		return 0
	}
	for text := range bytes.Lines(source) {
		if line++; !utf8.Valid(text) {
			break
		}
	}
	return line
}

// etagField identifies the definition from which a document was made.
const etagField = "etag"

func isServers(field protoreflect.FieldDescriptor) bool {
	return field.Number() >= firstServerField && field.Number() <= lastServerField
}

// parse returns the root of each document that is not empty.
func parse(source []byte) ([]*yaml.Node, error) {
	source = bytes.TrimPrefix(source, []byte("\ufeff"))
	if start := bytes.TrimLeft(source, " \t\r\n"); len(start) > 0 && (start[0] == '{' || start[0] == '[') {
		documents, jsonErr := parseJSON(source)
		if jsonErr == nil {
			return documents, nil
		}
		// YAML may begin with these characters too.
		if documents, err := parseYAML(source); err == nil {
			return documents, nil
		}
		return nil, jsonErr
	}
	return parseYAML(source)
}

func parseYAML(source []byte) ([]*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(source))
	var documents []*yaml.Node
	for n := 1; ; n++ {
		var d yaml.Node
		err := decoder.Decode(&d)
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d is not YAML: %s", n, strings.TrimPrefix(err.Error(), "yaml: "))
		}
		if d.Kind == yaml.DocumentNode && len(d.Content) == 1 && d.Content[0].ShortTag() != "!!null" {
			documents = append(documents, d.Content[0])
		}
	}
}

// parseJSON reads consecutive JSON texts into YAML nodes.
func parseJSON(source []byte) ([]*yaml.Node, error) {
	p := jsonParser{source: source, line: 1, decoder: json.NewDecoder(bytes.NewReader(source))}
	p.decoder.UseNumber()
	var documents []*yaml.Node
	for {
		d, err := p.value()
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d is not JSON: line %d: %w", len(documents)+1, p.line, err)
		}
		documents = append(documents, d)
	}
}

type jsonParser struct {
	source  []byte
	decoder *json.Decoder
	read    int64 // number of bytes of source whose line breaks are counted in line
	line    int
	depth   int
}

func (p *jsonParser) token() (json.Token, error) {
	t, err := p.decoder.Token()
	now := p.decoder.InputOffset()
	p.line += bytes.Count(p.source[p.read:now], []byte("\n"))
	p.read = now
	if errors.Is(err, io.EOF) && p.depth > 0 {
		err = io.ErrUnexpectedEOF
	}
	return t, err
}

func (p *jsonParser) value() (*yaml.Node, error) {
	t, err := p.token()
	if err != nil {
		return nil, err
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: p.line}
	switch t := t.(type) {
	case json.Delim:
		return p.container(t, n)
	case string:
		n.Tag, n.Value = "!!str", t
	case json.Number:
		n.Tag, n.Value = "!!float", t.String()
	case bool:
		n.Tag, n.Value = "!!bool", strconv.FormatBool(t)
	default:
		n.Tag = "!!null"
	}
	return n, nil
}

func (p *jsonParser) container(open json.Delim, n *yaml.Node) (*yaml.Node, error) {
	const deepest = 100 // a job needs 3 levels
	if p.depth++; p.depth > deepest {
		return nil, errors.New("nested too deeply")
	}
	n.Kind = yaml.SequenceNode
	if open == '{' {
		n.Kind = yaml.MappingNode
	}
	for p.decoder.More() {
		element, err := p.value()
		if err != nil {
			return nil, err
		}
		n.Content = append(n.Content, element)
		if open == '{' {
			if element, err = p.value(); err != nil {
				return nil, err
			}
			n.Content = append(n.Content, element)
		}
	}
	_, err := p.token()
	p.depth--
	return n, err
}

// readJob converts one mapping to a job.
func readJob(n *yaml.Node, dir string) (*Job, error) {
	job := &Job{}
	inputFile, rest, err := cutInputFile(resolve(n))
	if err != nil {
		return nil, err
	}
	if err := readMessage(job.ProtoReflect(), rest, ""); err != nil {
		return nil, err
	}
	if inputFile != nil {
		if job.GetInput() != "" || len(job.GetInputBytes()) > 0 {
			return nil, fmt.Errorf("line %d: inputFile and input are both set: use one", inputFile.Line)
		}
		input, err := readInput(filepath.Join(dir, inputFile.Value), inputFile.Value)
		if err != nil {
			return nil, fmt.Errorf("line %d: inputFile: %w", inputFile.Line, err)
		}
		setInput(job, input)
	}
	return job, nil
}

// cutInputFile removes inputFile, the one field that is not a field of [Job], from a
// document.
func cutInputFile(n *yaml.Node) (file, rest *yaml.Node, err error) {
	if n.Kind != yaml.MappingNode {
		return nil, nil, fmt.Errorf("line %d: want a job with fields, found %s", n.Line, kindOf(n))
	}
	rest = &yaml.Node{Kind: n.Kind, Line: n.Line}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], resolve(n.Content[i+1])
		if key.Value != "inputFile" && key.Value != "input_file" {
			rest.Content = append(rest.Content, key, value)
			continue
		}
		if file != nil {
			return nil, nil, fmt.Errorf("line %d: %s is set twice", key.Line, key.Value)
		}
		if value.Kind != yaml.ScalarNode || value.Value == "" {
			return nil, nil, fmt.Errorf("line %d: %s: want the path of a file", key.Line, key.Value)
		}
		file = value
	}
	return file, rest, nil
}

func readInput(path, name string) ([]byte, error) {
	if filepath.IsAbs(name) {
		path = name
	}
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

func setInput(job *Job, input []byte) {
	if utf8.Valid(input) {
		job.Input, job.InputBytes = string(input), nil
	} else {
		job.Input, job.InputBytes = "", input
	}
}

// readMessage fills a message from a mapping. path is the position in the job, "" for the
// job itself.
func readMessage(m protoreflect.Message, n *yaml.Node, path string) error {
	if n.Kind != yaml.MappingNode {
		first := m.Descriptor().Fields().Get(0).Name()
		return fmt.Errorf("line %d: %s: want fields, as in {%s: …}, found %s", n.Line, path, first, kindOf(n))
	}
	seen := make(map[protoreflect.FieldNumber]bool)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := resolve(n.Content[i]), resolve(n.Content[i+1])
		at := join(path, key.Value)
		field := findField(m.Descriptor(), key.Value)
		if field == nil {
			return fmt.Errorf("line %d: unknown field %q%s", key.Line, at, suggestion(m.Descriptor(), key.Value))
		}
		if seen[field.Number()] {
			return fmt.Errorf("line %d: %s is set twice", key.Line, at)
		}
		seen[field.Number()] = true
		if isServers(field) && field.Name() != etagField || isNull(value) {
			continue
		}
		if err := readField(m, field, value, at); err != nil {
			return err
		}
	}
	return nil
}

func readField(m protoreflect.Message, field protoreflect.FieldDescriptor, n *yaml.Node, at string) error {
	switch {
	case field.IsMap():
		return readMap(m.Mutable(field).Map(), field, n, at)
	case field.IsList():
		return readList(m.Mutable(field).List(), field, n, at)
	case field.Kind() == protoreflect.MessageKind:
		return readMessage(m.Mutable(field).Message(), n, at)
	}
	v, err := readScalar(field, n, at)
	if err != nil {
		return err
	}
	// YAML's binary type in a text field: the input in base64.
	if raw := v.Interface(); field.Kind() == protoreflect.StringKind && !utf8.ValidString(raw.(string)) {
		job, ok := m.Interface().(*Job)
		if !ok || field.Name() != "input" {
			return fmt.Errorf("line %d: %s is not valid UTF-8", n.Line, at)
		}
		setInput(job, []byte(raw.(string)))
		return nil
	}
	m.Set(field, v)
	return nil
}

func readMap(entries protoreflect.Map, field protoreflect.FieldDescriptor, n *yaml.Node, at string) error {
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: %s: want names with values, found %s", n.Line, at, kindOf(n))
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := resolve(n.Content[i]), resolve(n.Content[i+1])
		name := join(at, key.Value)
		k, err := readScalar(field.MapKey(), key, name)
		if err != nil {
			return err
		}
		if entries.Has(k.MapKey()) {
			return fmt.Errorf("line %d: %s is set twice", key.Line, name)
		}
		v, err := readText(field.MapValue(), value, name)
		if err != nil {
			return err
		}
		entries.Set(k.MapKey(), v)
	}
	return nil
}

func readList(elements protoreflect.List, field protoreflect.FieldDescriptor, n *yaml.Node, at string) error {
	if n.Kind != yaml.SequenceNode {
		return fmt.Errorf("line %d: %s: want a list, found %s", n.Line, at, kindOf(n))
	}
	for i, e := range n.Content {
		at := fmt.Sprintf("%s[%d]", at, i)
		if field.Kind() == protoreflect.MessageKind {
			if err := readMessage(elements.AppendMutable().Message(), resolve(e), at); err != nil {
				return err
			}
			continue
		}
		v, err := readText(field, resolve(e), at)
		if err != nil {
			return err
		}
		elements.Append(v)
	}
	return nil
}

// readText is readScalar for list elements, which cannot hold bytes.
func readText(field protoreflect.FieldDescriptor, n *yaml.Node, at string) (protoreflect.Value, error) {
	v, err := readScalar(field, n, at)
	if err == nil && !utf8.ValidString(v.String()) {
		err = fmt.Errorf("line %d: %s is not valid UTF-8", n.Line, at)
	}
	return v, err
}

func readScalar(field protoreflect.FieldDescriptor, n *yaml.Node, at string) (protoreflect.Value, error) {
	wrong := func(want string) (protoreflect.Value, error) {
		return protoreflect.Value{}, fmt.Errorf("line %d: %s: want %s, found %s", n.Line, at, want, kindOf(n))
	}
	switch field.Kind() {
	case protoreflect.StringKind:
		if n.Kind != yaml.ScalarNode {
			return wrong("a text")
		}
		if n.ShortTag() != "!!binary" {
			return protoreflect.ValueOfString(n.Value), nil // the spelling in the file, for every type that YAML infers
		}
		raw, err := decodeBase64(n.Value)
		if err != nil {
			return wrong("base64")
		}
		return protoreflect.ValueOfString(string(raw)), nil
	case protoreflect.BytesKind:
		raw, err := decodeBase64(n.Value)
		if n.Kind != yaml.ScalarNode || err != nil {
			return wrong("base64")
		}
		return protoreflect.ValueOfBytes(raw), nil
	case protoreflect.BoolKind:
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" {
			return wrong("true or false")
		}
		return protoreflect.ValueOfBool(strings.EqualFold(n.Value, "true")), nil
	case protoreflect.Int32Kind:
		v, err := strconv.ParseInt(n.Value, 10, 32)
		if n.Kind != yaml.ScalarNode || err != nil {
			return wrong("a whole number")
		}
		return protoreflect.ValueOfInt32(int32(v)), nil
	case protoreflect.Int64Kind:
		v, err := strconv.ParseInt(n.Value, 10, 64)
		if n.Kind != yaml.ScalarNode || err != nil {
			return wrong("a whole number")
		}
		return protoreflect.ValueOfInt64(v), nil
	case protoreflect.Uint64Kind:
		v, err := strconv.ParseUint(n.Value, 10, 64)
		if n.Kind != yaml.ScalarNode || err != nil {
			return wrong("a whole number, 0 or more")
		}
		return protoreflect.ValueOfUint64(v), nil
	case protoreflect.DoubleKind:
		v, err := strconv.ParseFloat(n.Value, 64)
		if n.Kind != yaml.ScalarNode || err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return wrong("a number")
		}
		return protoreflect.ValueOfFloat64(v), nil
	}
	return protoreflect.Value{}, fmt.Errorf("line %d: %s cannot be set in a document", n.Line, at)
}

func decodeBase64(text string) ([]byte, error) {
	return base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
}

// resolve returns the target of an alias.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

func findField(d protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if field := d.Fields().ByName(protoreflect.Name(name)); field != nil {
		return field
	}
	return d.Fields().ByJSONName(name)
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func kindOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "fields"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "nothing"
	}
	return strconv.Quote(shorten(n.Value, 40))
}

func shorten(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

// suggestion returns the field that was probably meant, or all field names.
func suggestion(d protoreflect.MessageDescriptor, wrong string) string {
	if wrong == "<<" {
		return ": merge keys are not supported, write the fields out"
	}
	var names []string
	for i := range d.Fields().Len() {
		if field := d.Fields().Get(i); !isServers(field) {
			names = append(names, string(field.Name()))
		}
	}
	if d == (*Job)(nil).ProtoReflect().Descriptor() {
		names = append(names, "inputFile")
	}
	nearest := slices.MinFunc(names, func(a, b string) int {
		return spelling.Distance(strings.ToLower(wrong), a) - spelling.Distance(strings.ToLower(wrong), b)
	})
	if spelling.Distance(strings.ToLower(wrong), nearest) <= 2 {
		return fmt.Sprintf(": did you mean %q?", nearest)
	}
	slices.Sort(names)
	return ": want one of " + strings.Join(names, ", ")
}
