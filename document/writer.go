package document

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// writer writes nodes as package yaml does, byte for byte. It leaves every text that may need
// quotes or lines of its own to that package, and writes the others itself: an export of a
// large app is mostly those, and takes a fraction of the time.
type writer struct{ b bytes.Buffer }

// document writes the mapping of a document.
func (w *writer) document(n *yaml.Node) error {
	if len(n.Content) == 0 {
		w.b.WriteString("{}\n")
	}
	return w.fields(n, 0)
}

// fields writes the fields of a mapping, each on lines of its own.
func (w *writer) fields(n *yaml.Node, indent int) error {
	for i := 0; i+1 < len(n.Content); i += 2 {
		w.indent(indent)
		if err := w.field(n.Content[i], n.Content[i+1], indent); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) indent(n int) {
	for range n {
		w.b.WriteByte(' ')
	}
}

// field writes one field at the indentation of the line that it begins on.
func (w *writer) field(key, value *yaml.Node, indent int) error {
	const longKey = 100 // package yaml writes keys over 128 bytes in another form
	if len(key.Value) > longKey || !isPlain(key) || !isPlain(value) {
		return w.library(key, value, indent)
	}
	w.scalar(key)
	w.b.WriteByte(':')
	return w.value(value, indent)
}

func (w *writer) scalar(n *yaml.Node) {
	text := n.Value
	if n.Tag != "" {
		text, _ = written(text)
	}
	w.b.WriteString(text)
}

// value writes the value of a field, from the colon on.
func (w *writer) value(n *yaml.Node, indent int) error {
	switch {
	case n.Kind == yaml.ScalarNode:
		w.b.WriteByte(' ')
		w.scalar(n)
		if n.LineComment != "" {
			w.b.WriteString(" # " + n.LineComment)
		}
	case len(n.Content) == 0 && n.Kind == yaml.MappingNode:
		w.b.WriteString(" {}")
	case len(n.Content) == 0:
		w.b.WriteString(" []")
	case n.Kind == yaml.MappingNode:
		w.b.WriteByte('\n')
		return w.fields(n, indent+2)
	default:
		w.b.WriteByte('\n')
		return w.elements(n, indent+2)
	}
	w.b.WriteByte('\n')
	return nil
}

// elements writes a list whose values are plain.
func (w *writer) elements(n *yaml.Node, indent int) error {
	for _, e := range n.Content {
		w.indent(indent)
		w.b.WriteByte('-')
		if e.Kind == yaml.ScalarNode || len(e.Content) == 0 {
			if err := w.value(e, indent); err != nil {
				return err
			}
			continue
		}
		w.b.WriteByte(' ')
		first := &yaml.Node{Kind: e.Kind, Content: e.Content[:2]}
		rest := &yaml.Node{Kind: e.Kind, Content: e.Content[2:]}
		if err := cmp.Or(w.field(first.Content[0], first.Content[1], indent+2), w.fields(rest, indent+2)); err != nil {
			return err
		}
	}
	return nil
}

// library writes a field with package yaml, and moves its further lines to the indentation.
func (w *writer) library(key, value *yaml.Node, indent int) error {
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := cmp.Or(encoder.Encode(&yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{key, value}}), encoder.Close()); err != nil {
		return err
	}
	first := true
	for line := range bytes.Lines(b.Bytes()) {
		if !first && len(line) > 1 {
			w.indent(indent)
		}
		first = false
		w.b.Write(line)
	}
	return nil
}

// isPlain reports whether the writer knows how package yaml writes every text in a node.
func isPlain(n *yaml.Node) bool {
	if n.Kind != yaml.ScalarNode {
		return !slices.ContainsFunc(n.Content, func(child *yaml.Node) bool { return !isPlain(child) })
	}
	if n.Tag == "" { // a number or a boolean
		return true
	}
	_, ok := written(n.Value)
	return n.Style == 0 && ok
}

// written returns a text as package yaml writes it on one line, and false for a text of which
// that is not plain to see.
func written(s string) (string, bool) {
	switch {
	case isName(s), isDuration(s), isCron(s):
		return s, true
	case isJSON(s):
		return "'" + strings.ReplaceAll(s, "'", "''") + "'", true
	}
	return "", false
}

// isName is true for words and names.
func isName(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
		case i > 0 && ('0' <= c && c <= '9' || strings.IndexByte("_-.@/", c) >= 0):
		default:
			return false
		}
	}
	// These are booleans and null, in one version of YAML or the other.
	return s != "" && !slices.Contains([]string{"y", "n", "yes", "no", "on", "off", "true", "false", "null"}, strings.ToLower(s))
}

// isDuration is true for durations as 1h30m, which no version of YAML takes for a number.
func isDuration(s string) bool {
	return only(s, "0123456789.hms") && '0' <= s[0] && s[0] <= '9' && strings.IndexByte("hms", s[len(s)-1]) >= 0
}

// isCron is true for lines as 0 */5 * * * *. An asterisk in it is in no number and no time.
func isCron(s string) bool {
	return only(s, "0123456789*/,-? ") && '0' <= s[0] && s[0] <= '9' && s[len(s)-1] != ' ' && strings.Contains(s, " *")
}

// isJSON is true for texts on one line that begin as an object or a list does.
func isJSON(s string) bool {
	return s != "" && (s[0] == '{' || s[0] == '[') && s[len(s)-1] != ' ' && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

func only(s, characters string) bool { return s != "" && strings.Trim(s, characters) == "" }
