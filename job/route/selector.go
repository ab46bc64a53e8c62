package route

import (
	"fmt"
	"slices"
	"strings"
)

// Limits of labels and of selectors, in bytes.
const (
	maxLabelKey   = 128
	maxLabelValue = 256
	maxSelector   = 1024
)

// CheckLabel refuses a label of a host that no [Selector] could match. An empty value is
// valid, because a selector can name only the key.
func CheckLabel(key, value string) error {
	switch {
	case key == "" || leading(key, inKey) != key || !alphanumeric(key[0]) || len(key) > maxLabelKey:
		return fmt.Errorf("label %q: a key consists of letters, digits and ._-/, begins with a letter or a digit, and has at most %d bytes",
			key, maxLabelKey)
	case leading(value, inValue) != value || len(value) > maxLabelValue:
		return fmt.Errorf("label %s: %q is not a value: use letters, digits and ._-/:@+, at most %d bytes", key, value, maxLabelValue)
	}
	return nil
}

// operator is the operator of a selector.
type operator uint8

const (
	opThere operator = iota
	opNotThere
	opEqual
	opUnequal
	opIn
	opNotIn
)

// operators are the texts of the operators, by operator.
var operators = [...]string{"", "!", "=", "!=", "in", "notin"}

func (o operator) String() string { return operators[o] }

// Selector is one condition on the labels of a host. It has one of these forms:
//
//	zone=a  zone==a      the label is there and is a
//	zone!=a              it is not a, or not there
//	zone in (a, b)       it is there and one of these
//	zone notin (a, b)    it is none of these, or not there
//	gpu                  it is there, with any value
//	!gpu                 it is not there
//
// A selector is immutable, so it is safe for concurrent use.
type Selector struct {
	key    string
	op     operator
	values []string // one for = and !=, at least one for in and notin, else none
}

// ParseSelector reads one condition. An error names the position, counted from 1, and
// says what to write there.
func ParseSelector(s string) (Selector, error) {
	if len(s) > maxSelector {
		return Selector{}, fmt.Errorf("the condition has %d bytes, the limit is %d: write shorter lists, or give the hosts one label for it",
			len(s), maxSelector)
	}
	p := selectorParser{text: s}
	sel, err := p.selector()
	if err != nil {
		return Selector{}, fmt.Errorf("%q, at character %d: %w", s, p.at+1, err)
	}
	return sel, nil
}

// String formats the condition. [ParseSelector] reads the result as an equal condition.
func (s Selector) String() string {
	switch s.op {
	case opNotThere:
		return "!" + s.key
	case opEqual, opUnequal:
		return s.key + s.op.String() + s.values[0]
	case opIn, opNotIn:
		return s.key + " " + s.op.String() + " (" + strings.Join(s.values, ", ") + ")"
	}
	return s.key
}

// Matches reports whether labels meet the condition.
func (s Selector) Matches(labels map[string]string) bool {
	v, ok := labels[s.key]
	switch s.op {
	case opEqual:
		return ok && v == s.values[0]
	case opUnequal:
		return !ok || v != s.values[0]
	case opIn:
		return ok && slices.Contains(s.values, v)
	case opNotIn:
		return !ok || !slices.Contains(s.values, v)
	case opNotThere:
		return !ok
	}
	return ok
}

// selectorParser reads text from at. After an error, at is its position.
type selectorParser struct {
	text string
	at   int
}

func (p *selectorParser) selector() (Selector, error) {
	if p.take("!") {
		key, err := p.key()
		if err != nil {
			return Selector{}, err
		}
		return Selector{key: key, op: opNotThere}, p.end()
	}
	key, err := p.key()
	if err != nil {
		return Selector{}, err
	}
	s := Selector{key: key}
	if p.rest() == "" {
		return s, nil
	}
	if s.op, err = p.operator(key); err != nil {
		return Selector{}, err
	}
	switch s.op {
	case opEqual, opUnequal:
		v, err := p.value()
		if err != nil {
			return Selector{}, err
		}
		s.values = []string{v}
	case opIn, opNotIn:
		if s.values, err = p.list(key, s.op); err != nil {
			return Selector{}, err
		}
	}
	return s, p.end()
}

func (p *selectorParser) operator(key string) (operator, error) {
	switch {
	case p.take("=="), p.take("="):
		return opEqual, nil
	case p.take("!="):
		return opUnequal, nil
	}
	switch word := leading(p.rest(), inKey); word {
	case "in":
		p.at += len(word)
		return opIn, nil
	case "notin":
		p.at += len(word)
		return opNotIn, nil
	}
	return opThere, fmt.Errorf("an operator is missing: write %s=a, %s!=a, %s in (a, b) or %s notin (a, b)", key, key, key, key)
}

func (p *selectorParser) list(key string, op operator) ([]string, error) {
	if !p.take("(") {
		return nil, fmt.Errorf("a list in parentheses is missing: write %s %s (a, b)", key, op)
	}
	var values []string
	for {
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		values = append(values, v)
		switch {
		case p.take(")"):
			return values, nil
		case !p.take(","):
			return nil, fmt.Errorf("a comma or a parenthesis must follow: write %s %s (a, b)", key, op)
		}
	}
}

func (p *selectorParser) key() (string, error) {
	key := leading(p.rest(), inKey)
	switch {
	case key == "":
		return "", fmt.Errorf("the key of a label is missing: write letters, digits and ._-/, as in zone=a")
	case !alphanumeric(key[0]):
		return "", fmt.Errorf("the key of a label begins with a letter or a digit")
	case len(key) > maxLabelKey:
		return "", fmt.Errorf("the key of a label has at most %d bytes", maxLabelKey)
	}
	p.at += len(key)
	return key, nil
}

func (p *selectorParser) value() (string, error) {
	v := leading(p.rest(), inValue)
	switch {
	case v == "":
		return "", fmt.Errorf("a value is missing: write letters, digits and ._-/:@+, or only the key to accept every value")
	case len(v) > maxLabelValue:
		return "", fmt.Errorf("a value has at most %d bytes", maxLabelValue)
	}
	p.at += len(v)
	return v, nil
}

func (p *selectorParser) end() error {
	if p.rest() != "" {
		return fmt.Errorf("the condition ends before this: write each condition as an entry of its own")
	}
	return nil
}

// rest skips blanks and returns the remaining text.
func (p *selectorParser) rest() string {
	for p.at < len(p.text) && (p.text[p.at] == ' ' || p.text[p.at] == '\t') {
		p.at++
	}
	return p.text[p.at:]
}

// take skips a token if it comes next, and reports whether it did.
func (p *selectorParser) take(token string) bool {
	if !strings.HasPrefix(p.rest(), token) {
		return false
	}
	p.at += len(token)
	return true
}

// leading returns the longest prefix of s whose bytes are all in a class.
func leading(s string, class func(byte) bool) string {
	for i := range len(s) {
		if !class(s[i]) {
			return s[:i]
		}
	}
	return s
}

func alphanumeric(b byte) bool {
	return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9'
}

func inKey(b byte) bool   { return alphanumeric(b) || strings.IndexByte("._-/", b) >= 0 }
func inValue(b byte) bool { return inKey(b) || strings.IndexByte(":@+", b) >= 0 }
