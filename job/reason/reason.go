// Package reason has the reasons why a run is where it is and why a host may not take it: a
// stable code with values, from which each reader makes a sentence in its own language.
package reason

import (
	"maps"
	"slices"
	"strings"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// A Reason is a code of [Codes] with the values of its sentence. The zero value is no reason.
type Reason struct {
	Code   string
	Values map[string]string
}

// New returns a reason with pairs of names and values.
func New(code string, pairs ...string) Reason {
	r := Reason{Code: code}
	for i := 0; i+1 < len(pairs); i += 2 {
		if r.Values == nil {
			r.Values = map[string]string{}
		}
		r.Values[pairs[i]] = pairs[i+1]
	}
	return r
}

// None reports whether r is no reason.
func (r Reason) None() bool { return r.Code == "" }

// Text returns the English sentence, "" for no reason. A sentence about a host has no subject,
// such as "is draining".
func (r Reason) Text() string {
	text, ok := Sentence(func(key string) (string, bool) { t, ok := english[key]; return t, ok }, r.Code, r.Values)
	if !ok && !r.None() {
		panic("reason: " + r.Code + " has no sentence for its values") // a test makes every reason
	}
	return text
}

// Message returns the reason for the API, nil for no reason.
func (r Reason) Message() *apiv1.Reason {
	if r.None() {
		return nil
	}
	return &apiv1.Reason{Code: r.Code, Values: r.Values}
}

// Sentence makes a sentence from the text of a code, with each {name} replaced by a value. text
// looks texts up. It reports false for an unknown code, and for a text that names a value
// that is missing.
func Sentence(text func(key string) (string, bool), code string, values map[string]string) (string, bool) {
	t, ok := "", false
	if values["n"] == "1" {
		t, ok = text(code + One)
	}
	if !ok {
		t, ok = text(code)
	}
	var out strings.Builder
	for ok {
		before, rest, more := strings.Cut(t, "{")
		out.WriteString(before)
		if !more {
			return out.String(), true
		}
		var value string
		name, after, closed := strings.Cut(rest, "}")
		if value, ok = values[name]; !closed {
			ok = false
		}
		out.WriteString(value)
		t = after
	}
	return "", false
}

// Texts returns the English sentences by code, with {name} for values. A code with the suffix
// [One] has the sentence for the value 1 of n.
func Texts() map[string]string { return maps.Clone(english) }

// Codes returns all codes, sorted.
func Codes() []string {
	var codes []string
	for key := range english {
		if !strings.HasSuffix(key, One) {
			codes = append(codes, key)
		}
	}
	slices.Sort(codes)
	return codes
}
