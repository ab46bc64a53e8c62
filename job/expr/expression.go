// Package expr is the expression language of workflows: references to the results of earlier
// nodes, conditions on them, and texts with references in them.
//
//	condition  = both { "or" both }
//	both       = term { "and" term }
//	term       = "not" term | "(" condition ")" | value [ compare value ]
//	compare    = "==" | "!=" | "<" | "<=" | ">" | ">="
//	value      = reference | number | text | "true" | "false" | "null"
//	reference  = "input" path | "nodes" "." name "." ( "state" | "output" path )
//	path       = { "." ( field | index ) }
//
// A value is a text, a number (json.Number, which retains its digits), a boolean, nil for
// a missing value, or a list or an object from JSON.
//
// Parsed conditions and templates are immutable. The caller sets [Reference.Index] of each
// reference before the first evaluation.
package expr

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/wheelworkhq/wheelwork/job/naming"
)

// Limits of the language.
const (
	MaxCondition = 4 << 10 // bytes
	maxNesting   = 50
)

// Reference names a value that is known when the earlier nodes have ended.
type Reference struct {
	Name  string // of the node; "": the input
	Index int    // of the node in [Scope.Nodes], which the caller sets; -1: the input
	State bool   // the state of the node; else its output
	path  []string
}

func (r *Reference) String() string {
	s := "input"
	switch {
	case r.State:
		return "nodes." + r.Name + ".state"
	case r.Name != "":
		s = "nodes." + r.Name + ".output"
	}
	if len(r.path) == 0 {
		return s
	}
	return s + "." + strings.Join(r.path, ".")
}

func parseReference(text string) (*Reference, error) {
	parts := strings.Split(text, ".")
	for _, p := range parts {
		if p == "" {
			return nil, fmt.Errorf("%q has an empty part", text)
		}
	}
	switch {
	case parts[0] == "input":
		return &Reference{Index: -1, path: parts[1:]}, nil
	case parts[0] == "nodes" && len(parts) == 3 && parts[2] == "state":
		return &Reference{Name: parts[1], State: true}, nil
	case parts[0] == "nodes" && len(parts) >= 3 && parts[2] == "output":
		return &Reference{Name: parts[1], path: parts[3:]}, nil
	}
	return nil, fmt.Errorf("%q is not a reference: write input, nodes.NAME.output or nodes.NAME.state; .field after the first two selects a field of JSON", text)
}

// Condition is one operation of a condition, or one value.
type Condition struct {
	op          string // "": a value, else an operator
	left, right *Condition
	ref         *Reference // nil: the value is lit
	lit         any
}

// parser reads a condition with one token of look-ahead.
type parser struct {
	text  string
	rest  string
	token string // the text of the next token; "": the end
	kind  byte   // of the next token: 'w' word, 's' text, 'o' operator, 0 the end
	depth int
	refs  []*Reference
}

// ParseCondition reads a condition and the references in it.
func ParseCondition(text string) (*Condition, []*Reference, error) {
	if len(text) > MaxCondition {
		return nil, nil, fmt.Errorf("the condition has %d bytes, the limit is %d", len(text), MaxCondition)
	}
	p := &parser{text: text, rest: text}
	if err := p.next(); err != nil {
		return nil, nil, err
	}
	c, err := p.or()
	if err != nil {
		return nil, nil, err
	}
	if p.kind != 0 {
		return nil, nil, p.wrong("and, or, or the end")
	}
	return c, p.refs, nil
}

func (p *parser) wrong(want string) error {
	found := strconv.Quote(p.token)
	if p.kind == 0 {
		found = "the end"
	}
	return fmt.Errorf("%q: want %s, found %s", p.text, want, found)
}

func isWord(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '_' || c == '-' || c == '.'
}

// next reads one token.
func (p *parser) next() error {
	s := strings.TrimLeft(p.rest, " \t\r\n")
	if s == "" {
		p.rest, p.token, p.kind = "", "", 0
		return nil
	}
	n := 1
	switch c := s[0]; {
	case isWord(c):
		for n < len(s) && isWord(s[n]) {
			n++
		}
		p.token, p.kind = s[:n], 'w'
	case c == '"':
		text, err := strconv.QuotedPrefix(s)
		if err != nil {
			return fmt.Errorf("%q: the text that begins with %.20q does not end", p.text, s)
		}
		if p.token, err = strconv.Unquote(text); err != nil {
			return fmt.Errorf("%q: %s is not a text", p.text, text)
		}
		n, p.kind = len(text), 's'
	case c == '\'':
		end := strings.IndexByte(s[1:], '\'')
		if end < 0 {
			return fmt.Errorf("%q: the text that begins with %.20q does not end", p.text, s)
		}
		n, p.token, p.kind = end+2, s[1:end+1], 's'
	case c == '(' || c == ')':
		p.token, p.kind = s[:1], 'o'
	case strings.IndexByte("=!<>", c) >= 0:
		if len(s) > 1 && s[1] == '=' {
			n = 2
		}
		if p.token, p.kind = s[:n], 'o'; p.token == "=" || p.token == "!" {
			return fmt.Errorf("%q: %q is not an operator: use == != < <= > >= and or not", p.text, p.token)
		}
	default:
		return fmt.Errorf("%q: %.1q has no meaning here", p.text, s)
	}
	p.rest = s[n:]
	return nil
}

// takes consumes the next token if it is the given one, and reports whether it was.
func (p *parser) takes(kind byte, token string) (bool, error) {
	if p.kind != kind || p.token != token {
		return false, nil
	}
	return true, p.next()
}

func (p *parser) or() (*Condition, error)  { return p.chain("or", p.and) }
func (p *parser) and() (*Condition, error) { return p.chain("and", p.term) }

func (p *parser) chain(word string, operand func() (*Condition, error)) (*Condition, error) {
	left, err := operand()
	for err == nil {
		var more bool
		if more, err = p.takes('w', word); err != nil || !more {
			break
		}
		var right *Condition
		if right, err = operand(); err == nil {
			left = &Condition{op: word, left: left, right: right}
		}
	}
	return left, err
}

func (p *parser) term() (*Condition, error) {
	if p.depth++; p.depth > maxNesting {
		return nil, fmt.Errorf("%q is nested more than %d deep", p.text, maxNesting)
	}
	defer func() { p.depth-- }()
	if ok, err := p.takes('w', "not"); ok || err != nil {
		if err != nil {
			return nil, err
		}
		c, err := p.term()
		return &Condition{op: "not", left: c}, err
	}
	if ok, err := p.takes('o', "("); ok || err != nil {
		if err != nil {
			return nil, err
		}
		c, err := p.or()
		if err != nil {
			return nil, err
		}
		if p.kind != 'o' || p.token != ")" {
			return nil, p.wrong("a closing bracket")
		}
		return c, p.next()
	}
	left, err := p.value()
	if err != nil || p.kind != 'o' || p.token == ")" {
		return left, err
	}
	if p.token == "(" {
		return nil, p.wrong("an operator")
	}
	c := &Condition{op: p.token, left: left}
	if err := p.next(); err != nil {
		return nil, err
	}
	c.right, err = p.value()
	return c, err
}

func (p *parser) value() (*Condition, error) {
	c := &Condition{}
	switch {
	case p.kind == 's':
		c.lit = p.token
	case p.kind != 'w' || p.token == "and" || p.token == "or" || p.token == "not":
		return nil, p.wrong("a value")
	case p.token == "true", p.token == "false":
		c.lit = p.token == "true"
	case p.token == "null":
	case p.token[0] == '-' || p.token[0] >= '0' && p.token[0] <= '9':
		if _, ok := number(json.Number(p.token)); !ok {
			return nil, p.wrong("a number")
		}
		c.lit = json.Number(p.token)
	default:
		ref, err := parseReference(p.token)
		if err != nil {
			return nil, err
		}
		c.ref = ref
		p.refs = append(p.refs, ref)
	}
	return c, p.next()
}

// Scope has the values to which references resolve. It is for one goroutine.
type Scope struct {
	Input  []byte
	Nodes  []Node // by the index of a reference
	Secret func(name string) ([]byte, error)
	// Check returns an error if a filled text may not have that size, in bytes; nil: any.
	Check  func(size int) error
	parsed map[int]any // decoded JSON by node; -1: the input
}

// Node is the state of a node and the output that it has.
type Node struct {
	State  string
	Output []byte
	Done   bool  // the node has succeeded; else it has no output
	Lost   error // why an output that exists cannot be read; nil: it can, or there is none
}

// errMissing reports that a reference has no value.
type errMissing struct{ error }

// value returns the value of a reference. It returns an errMissing if there is none.
func (s *Scope) value(r *Reference) (any, error) {
	raw, of := s.Input, "the input"
	if r.Index >= 0 {
		switch n := &s.Nodes[r.Index]; {
		case r.State:
			return n.State, nil
		case n.Lost != nil:
			return nil, n.Lost
		case !n.Done:
			return nil, errMissing{fmt.Errorf("node %s has no output: it is %s", r.Name, n.State)}
		default:
			raw, of = n.Output, "the output of node "+r.Name
		}
	}
	if len(r.path) == 0 {
		return string(raw), nil
	}
	v, ok := s.parsed[r.Index]
	if !ok {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		if err := d.Decode(&v); err != nil || len(bytes.TrimSpace(raw[d.InputOffset():])) > 0 {
			return nil, fmt.Errorf("%s is not JSON: %s has no meaning", of, r)
		}
		if s.parsed == nil {
			s.parsed = map[int]any{}
		}
		s.parsed[r.Index] = v
	}
	for _, field := range r.path {
		switch in := v.(type) {
		case map[string]any:
			v, ok = in[field]
		case []any:
			i, err := strconv.Atoi(field)
			if ok = err == nil && i >= 0 && i < len(in); ok {
				v = in[i]
			}
		default:
			ok = false
		}
		if !ok {
			return nil, errMissing{fmt.Errorf("%s has no %s", of, strings.Join(r.path, "."))}
		}
	}
	return v, nil
}

// number reads a value as a number. It accepts a text that contains a number.
func number(v any) (float64, bool) {
	var text string
	switch v := v.(type) {
	case json.Number:
		text = v.String()
	case string:
		text = strings.TrimSpace(v)
	}
	f, err := strconv.ParseFloat(text, 64)
	return f, err == nil && !math.IsInf(f, 0) && !math.IsNaN(f)
}

// truth reads a value as a boolean. It accepts the texts true and false.
func truth(v any) (value, ok bool) {
	switch v := v.(type) {
	case bool:
		return v, true
	case string:
		switch strings.TrimSpace(v) {
		case "true":
			return true, true
		case "false":
			return false, true
		}
	}
	return false, false
}

// eval returns the value of a condition. It fails if an operator does not fit its values.
func (c *Condition) eval(s *Scope) (any, error) {
	switch c.op {
	case "":
		if c.ref == nil {
			return c.lit, nil
		}
		v, err := s.value(c.ref)
		if errors.As(err, &errMissing{}) {
			return nil, nil
		}
		return v, err
	case "not":
		v, err := c.left.Holds(s)
		return !v, err
	case "and", "or":
		v, err := c.left.Holds(s)
		if err != nil || v == (c.op == "or") {
			return v, err
		}
		return c.right.Holds(s)
	}
	left, err := c.left.eval(s)
	if err != nil {
		return nil, err
	}
	right, err := c.right.eval(s)
	if err != nil {
		return nil, err
	}
	switch c.op {
	case "==":
		return equal(left, right), nil
	case "!=":
		return !equal(left, right), nil
	}
	x, ok := number(left)
	if !ok {
		return nil, fmt.Errorf("%s compares numbers, and %s is %s", c.op, c.left, quoted(left))
	}
	y, ok := number(right)
	if !ok {
		return nil, fmt.Errorf("%s compares numbers, and %s is %s", c.op, c.right, quoted(right))
	}
	switch c.op {
	case "<":
		return x < y, nil
	case "<=":
		return x <= y, nil
	case ">":
		return x > y, nil
	}
	return x >= y, nil
}

// Holds evaluates a condition whose value must be a boolean.
func (c *Condition) Holds(s *Scope) (bool, error) {
	v, err := c.eval(s)
	if err != nil {
		return false, err
	}
	b, ok := truth(v)
	if !ok {
		return false, fmt.Errorf("%s is %s, which is neither true nor false", c, quoted(v))
	}
	return b, nil
}

func equal(a, b any) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	_, n1 := a.(json.Number)
	_, n2 := b.(json.Number)
	if n1 || n2 {
		x, ok1 := number(a)
		y, ok2 := number(b)
		return ok1 && ok2 && x == y
	}
	_, b1 := a.(bool)
	_, b2 := b.(bool)
	if b1 || b2 {
		x, ok1 := truth(a)
		y, ok2 := truth(b)
		return ok1 && ok2 && x == y
	}
	return strings.TrimSpace(plain(a)) == strings.TrimSpace(plain(b))
}

// String describes a value for a message. It does not spell out an operation.
func (c *Condition) String() string {
	switch {
	case c.op != "":
		return "a part of it"
	case c.ref != nil:
		return c.ref.String()
	}
	return quoted(c.lit)
}

// quoted formats a value for a message.
func quoted(v any) string {
	if v == nil {
		return "missing"
	}
	return fmt.Sprintf("%.60s", JSON(v))
}

// JSON encodes a value as JSON.
func JSON(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "null" // a value that was decoded from JSON can be encoded
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// plain formats a value for a text: a text without quotes, other values as JSON.
func plain(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return JSON(v)
}

// Template is a text with references.
type Template []piece

// piece is a text, a reference or a secret.
type piece struct {
	Text   string
	Ref    *Reference
	secret string // the name of the secret; "": not a secret
	json   bool   // formatted as JSON
}

// secretRoot begins the name of a secret in a template.
const secretRoot = "secret."

// NamesSecret reports whether a text has a reference that begins like that of a secret.
func NamesSecret(text string) bool { return strings.Contains(text, "${"+secretRoot) }

// Secrets returns the names of the secrets in a template.
func (t Template) Secrets() (names []string) {
	for _, p := range t {
		if p.secret != "" {
			names = append(names, p.secret)
		}
	}
	return names
}

// ParseTemplate reads a text with references. ${REFERENCE} is replaced by the value,
// ${json(REFERENCE)} by the value as JSON, and $${ by ${.
func ParseTemplate(text string) (Template, []*Reference, error) { return ReadTemplate(text, false) }

// ReadTemplate is ParseTemplate. If secrets is true, ${secret.NAME} is replaced by a
// secret.
func ReadTemplate(text string, secrets bool) (Template, []*Reference, error) {
	var t Template
	var refs []*Reference
	for text != "" {
		i := strings.Index(text, "${")
		if i < 0 {
			return append(t, piece{Text: text}), refs, nil
		}
		if i > 0 && text[i-1] == '$' {
			t = append(t, piece{Text: text[:i-1] + "${"})
			text = text[i+2:]
			continue
		}
		if i > 0 {
			t = append(t, piece{Text: text[:i]})
		}
		end := strings.IndexByte(text[i:], '}')
		if end < 0 {
			return nil, nil, fmt.Errorf("%.40q has no closing bracket: write $${ for a ${ that is not a reference", text[i:])
		}
		inner := strings.TrimSpace(text[i+2 : i+end])
		p := piece{}
		if rest, ok := strings.CutPrefix(inner, "json("); ok && strings.HasSuffix(rest, ")") {
			inner, p.json = strings.TrimSpace(strings.TrimSuffix(rest, ")")), true
		}
		if name, ok := strings.CutPrefix(inner, secretRoot); ok && secrets {
			if err := naming.Check("the secret in ${"+inner+"}", name); err != nil {
				return nil, nil, err
			}
			p.secret = name
			t, text = append(t, p), text[i+end+1:]
			continue
		}
		ref, err := parseReference(inner)
		if err != nil {
			return nil, nil, fmt.Errorf("%w; write $${ for a ${ that is not a reference", err)
		}
		p.Ref = ref
		t, refs = append(t, p), append(refs, ref)
		text = text[i+end+1:]
	}
	return t, refs, nil
}

// Fill returns the text with the values. A missing whole output becomes empty; a missing
// field is an error.
func (t Template) Fill(s *Scope) ([]byte, error) {
	var b []byte
	for _, p := range t {
		if p.secret != "" {
			v, err := s.Secret(p.secret)
			switch {
			case err != nil:
				return nil, err
			case p.json:
				b = append(b, JSON(string(v))...)
			default:
				b = append(b, v...)
			}
			continue
		}
		if p.Ref == nil {
			b = append(b, p.Text...)
			continue
		}
		v, err := s.value(p.Ref)
		missing := errors.As(err, &errMissing{}) && len(p.Ref.path) == 0
		switch {
		case missing && p.json:
			b = append(b, "null"...)
		case missing:
		case err != nil:
			return nil, err
		case p.json:
			b = append(b, JSON(v)...)
		default:
			b = append(b, plain(v)...)
		}
		if s.Check == nil {
			continue
		}
		if err := s.Check(len(b)); err != nil {
			return nil, err
		}
	}
	return b, nil
}
