package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxSource bounds the bytes of one source of documents.
const maxSource = 64 << 20

// root is the top of one document. The elements of a list are documents of their own.
type root struct {
	node     *yaml.Node
	document int // its number in the source, from 1
}

// readSource returns the documents of a source that are not empty, and its size in bytes.
func readSource(r io.Reader, file string) (roots []root, size int, err error) {
	source, err := io.ReadAll(io.LimitReader(r, maxSource+1))
	if err != nil {
		return nil, 0, err
	}
	at := Position{File: file}
	if len(source) > maxSource {
		return nil, 0, Problems{{At: at, Text: fmt.Sprintf("more than %d MiB: split the file", maxSource>>20)}}
	}
	if line := notUTF8(source); line > 0 {
		at.Line, at.Column = line, 1
		return nil, 0, Problems{{At: at, Text: fmt.Sprintf("line %d is not valid UTF-8: save the file in that encoding", line)}}
	}
	documents, problem := parse(source)
	if problem != nil {
		problem.At.File = file
		return nil, 0, Problems{*problem}
	}
	for i, d := range documents {
		nodes := []*yaml.Node{d}
		if d.Kind == yaml.SequenceNode {
			nodes = d.Content
		}
		for _, n := range nodes {
			roots = append(roots, root{resolve(n), i + 1})
		}
	}
	return roots, len(source), nil
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

// parse returns the top of each document that is not empty.
func parse(source []byte) ([]*yaml.Node, *Problem) {
	source = bytes.TrimPrefix(source, []byte("\ufeff"))
	if start := bytes.TrimLeft(source, " \t\r\n"); len(start) > 0 && (start[0] == '{' || start[0] == '[') {
		documents, wrong := parseJSON(source)
		if wrong == nil {
			return documents, nil
		}
		// YAML may begin with these characters too.
		if documents, problem := parseYAML(source); problem == nil {
			return documents, nil
		}
		return nil, wrong
	}
	return parseYAML(source)
}

// lineOf matches the line in an error of package yaml.
var lineOf = regexp.MustCompile(`^line (\d+): `)

func parseYAML(source []byte) ([]*yaml.Node, *Problem) {
	decoder := yaml.NewDecoder(bytes.NewReader(source))
	var documents []*yaml.Node
	for n := 1; ; n++ {
		var d yaml.Node
		err := decoder.Decode(&d)
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			text := strings.TrimPrefix(err.Error(), "yaml: ")
			at := Position{}
			if match := lineOf.FindStringSubmatch(text); match != nil {
				at.Line, _ = strconv.Atoi(match[1])
				at.Column = 1
			}
			return nil, &Problem{At: at, Text: fmt.Sprintf("document %d is not YAML: %s", n, text)}
		}
		if d.Kind == yaml.DocumentNode && len(d.Content) == 1 && d.Content[0].ShortTag() != "!!null" {
			documents = append(documents, d.Content[0])
		}
	}
}

// parseJSON reads consecutive JSON texts into YAML nodes.
func parseJSON(source []byte) ([]*yaml.Node, *Problem) {
	p := jsonParser{source: source, line: 1, decoder: json.NewDecoder(bytes.NewReader(source))}
	p.decoder.UseNumber()
	var documents []*yaml.Node
	for {
		d, err := p.value()
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			n := len(documents) + 1
			return nil, &Problem{At: Position{Line: p.line, Column: p.column()}, Text: fmt.Sprintf("document %d is not JSON: line %d: %s", n, p.line, err)}
		}
		documents = append(documents, d)
	}
}

// jsonParser converts tokens to nodes with their positions.
type jsonParser struct {
	source  []byte
	decoder *json.Decoder
	offset  int64 // of the token
	counted int64 // bytes of source whose line breaks are counted in line
	line    int   // of the token
	depth   int
}

func (p *jsonParser) token() (json.Token, error) {
	before := p.decoder.InputOffset()
	t, err := p.decoder.Token()
	skipped := int64(len(p.source)) - before - int64(len(bytes.TrimLeft(p.source[before:], " \t\r\n,:")))
	p.offset = min(before+skipped, int64(len(p.source)))
	p.line += bytes.Count(p.source[p.counted:p.offset], []byte("\n"))
	p.counted = p.offset
	if errors.Is(err, io.EOF) && p.depth > 0 {
		err = io.ErrUnexpectedEOF
	}
	return t, err
}

// column returns the column of the token, in bytes from 1.
func (p *jsonParser) column() int {
	return int(p.offset) - bytes.LastIndexByte(p.source[:p.offset], '\n')
}

func (p *jsonParser) value() (*yaml.Node, error) {
	t, err := p.token()
	if err != nil {
		return nil, err
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: p.line, Column: p.column()}
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

// resolve returns the target of an alias.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// kindOf describes a node that is not what a field wants.
func kindOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "fields"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "nothing"
	}
	const most = 40
	if r := []rune(n.Value); len(r) > most {
		return strconv.Quote(string(r[:most]) + "…")
	}
	return strconv.Quote(n.Value)
}
