package document

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Editor changes single fields of the text of one document, for a form beside the text. All other
// fields and the comments stay; blank lines and indentation may not. An Editor is not safe for
// concurrent use.
type Editor struct {
	kind  *Kind
	text  string
	doc   yaml.Node
	dirty bool
}

// Edit reads a text. It fails if the text is not exactly one document with fields. The fields may
// be wrong: [Parse] finds that.
func Edit(kind *Kind, text string) (*Editor, error) {
	e := &Editor{kind: kind, text: text}
	decoder := yaml.NewDecoder(strings.NewReader(text))
	if err := decoder.Decode(&e.doc); errors.Is(err, io.EOF) {
		e.doc = yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{{Kind: yaml.MappingNode}}}
		return e, nil
	} else if err != nil {
		return nil, fmt.Errorf("the text is not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := decoder.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("the text has more than one document")
	}
	if top := e.doc.Content[0]; isNull(top) {
		*top = yaml.Node{Kind: yaml.MappingNode, HeadComment: top.HeadComment, LineComment: top.LineComment, FootComment: top.FootComment}
	} else if top.Kind != yaml.MappingNode {
		return nil, errors.New("the text is " + kindOf(top) + ", want the fields of one document")
	}
	return e, nil
}

// Get returns the value of a field as text, "" if the text has no such field. ok is false if the
// value is no single one, or an alias, so that Set would lose something.
func (e *Editor) Get(path string) (value string, ok bool) {
	n, ok := e.find(path)
	switch {
	case n == nil:
		return "", ok
	case isNull(n):
		return "", true
	case n.Kind != yaml.ScalarNode || n.Anchor != "" || n.ShortTag() == "!!binary":
		return "", false
	}
	return n.Value, true
}

// Has reports whether the text has a field, of any value.
func (e *Editor) Has(path string) bool {
	n, ok := e.find(path)
	return n != nil || !ok
}

// find returns the value at a path, nil if there is none. ok is false if the path leads through
// something that is not fields.
func (e *Editor) find(path string) (value *yaml.Node, ok bool) {
	n, at := e.doc.Content[0], ""
	for name := range strings.SplitSeq(path, ".") {
		if n.Kind != yaml.MappingNode {
			return nil, isNull(n)
		}
		i := e.index(n, at, name)
		if i < 0 {
			return nil, true
		}
		n, at = n.Content[i+1], join(at, name)
	}
	return n, true
}

// index returns the index of the key of a field in a mapping; -1: there is none.
func (e *Editor) index(n *yaml.Node, at, name string) int {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if f := e.kind.child(at, n.Content[i].Value); f != nil && f.Path == join(at, name) {
			return i
		}
	}
	return -1
}

// Set gives a field a value, and removes the field if the value is "". The objects around a field
// come and go with it. It does nothing if the field has that value, or none that Get returns.
func (e *Editor) Set(path, value string) {
	value = strings.ToValidUTF8(value, "\ufffd") // YAML has no other text
	old, ok := e.Get(path)
	if !ok || old == value {
		return
	}
	if value == "" {
		e.Remove(path)
		return
	}
	e.dirty = true
	n, at := e.doc.Content[0], ""
	names := strings.Split(path, ".")
	for _, name := range names[:len(names)-1] {
		n, at = e.child(n, at, name, yaml.Node{Kind: yaml.MappingNode, Style: n.Style}), join(at, name)
	}
	to := e.child(n, at, names[len(names)-1], yaml.Node{Kind: yaml.ScalarNode})
	to.Value, to.Style = value, 0
	to.Tag = "!!str"
	if f := e.kind.Field(path); f != nil && (f.Type == Whole || f.Type == Truth || f.Type == Number) {
		to.Tag = "" // without quotes; Parse finds a wrong one
		if strings.ContainsAny(value, ":#\n{}[],&*!|>'\"%@`") {
			to.Tag = "!!str"
		}
	}
}

// child returns the value of a field in a mapping, and adds a field that is missing.
func (e *Editor) child(n *yaml.Node, at, name string, fresh yaml.Node) *yaml.Node {
	if n.Kind != yaml.MappingNode { // null
		*n = yaml.Node{Kind: yaml.MappingNode, HeadComment: n.HeadComment, LineComment: n.LineComment, FootComment: n.FootComment}
	}
	if i := e.index(n, at, name); i >= 0 {
		v := n.Content[i+1]
		if fresh.Kind == yaml.MappingNode && v.Kind != yaml.MappingNode {
			*v = yaml.Node{Kind: yaml.MappingNode, HeadComment: v.HeadComment, LineComment: v.LineComment, FootComment: v.FootComment}
		}
		return v
	}
	key := &yaml.Node{Kind: yaml.ScalarNode, Value: name}
	n.Content = append(n.Content, key, &fresh)
	return &fresh
}

// Remove removes a field with all that is in it, and the objects around it that are empty then.
func (e *Editor) Remove(path string) {
	n, at := e.doc.Content[0], ""
	names := strings.Split(path, ".")
	above := []*yaml.Node{n}
	for _, name := range names[:len(names)-1] {
		i := -1
		if n.Kind == yaml.MappingNode {
			i = e.index(n, at, name)
		}
		if i < 0 {
			return
		}
		n, at = n.Content[i+1], join(at, name)
		above = append(above, n)
	}
	for depth := len(names) - 1; depth >= 0; depth-- {
		n := above[depth]
		if n.Kind != yaml.MappingNode {
			return
		}
		i := e.index(n, strings.Join(names[:depth], "."), names[depth])
		if i < 0 {
			return
		}
		n.Content = append(n.Content[:i:i], n.Content[i+2:]...)
		e.dirty = true
		if len(n.Content) > 0 {
			return
		}
	}
}

// Text returns the text with the changes. A text without changes is the one that was read, byte
// for byte.
func (e *Editor) Text() (string, error) {
	if !e.dirty {
		return e.text, nil
	}
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := encoder.Encode(&e.doc); err != nil {
		return "", fmt.Errorf("the text cannot be changed: %w", err)
	}
	return b.String(), nil
}
