// Package trigger decides which events start a job.
package trigger

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/naming"
)

// Bounds of the trigger of a job.
const (
	MaxType  = 256  // bytes of a type of events
	maxMatch = 16   // conditions
	maxPath  = 256  // bytes
	maxValue = 1024 // bytes
)

// Trigger says which events start a job. It is immutable.
type Trigger struct {
	Event  string // the type
	Source string // the event source; "": any
	match  []Condition
}

// Condition is a value that JSON must have at a path. It is immutable.
type Condition struct {
	path   []string
	value  string
	prefix bool // value is the beginning of a text
}

// Of returns the trigger of a definition that [Check] has accepted; nil: it has none.
func Of(m *apiv1.EventTrigger) *Trigger {
	if m == nil {
		return nil
	}
	return &Trigger{Event: m.Event, Source: m.Source, match: Conditions(m.Match)}
}

// Conditions returns the conditions of values by path, as "data.country": "DE", that [CheckConditions] has
// accepted. A value that ends in * is the beginning of a text.
func Conditions(match map[string]string) (all []Condition) {
	for _, path := range slices.Sorted(maps.Keys(match)) {
		value, prefix := strings.CutSuffix(match[path], "*")
		all = append(all, Condition{strings.Split(path, "."), value, prefix})
	}
	return all
}

// Fits reports whether an event that came by a source starts the job. event is the event as a JSON
// object, whose numbers are of type [json.Number].
func (t *Trigger) Fits(source string, event map[string]any) bool {
	if name, _ := event["type"].(string); name != t.Event || t.Source != "" && t.Source != source {
		return false
	}
	for _, c := range t.match {
		if !c.Holds(event) {
			return false
		}
	}
	return true
}

// Holds reports whether JSON, whose numbers are of type [json.Number], has the value.
func (c Condition) Holds(document any) bool {
	at := document
	for _, step := range c.path {
		switch v := at.(type) {
		case map[string]any:
			at = v[step] // a missing one is nil, as null is
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(v) {
				return false
			}
			at = v[i]
		default:
			return false
		}
	}
	switch v := at.(type) {
	case string:
		return v == c.value && !c.prefix || c.prefix && strings.HasPrefix(v, c.value)
	case json.Number:
		return !c.prefix && v.String() == c.value
	case bool:
		return !c.prefix && strconv.FormatBool(v) == c.value
	}
	return false
}

// Check returns an error that names the wrong field of a trigger; nil: it is valid, or there is none.
func Check(m *apiv1.EventTrigger) error {
	if m == nil {
		return nil
	}
	if err := CheckType("trigger.event", m.Event); err != nil {
		return err
	}
	if m.Source != "" {
		if err := naming.Check("trigger.source", m.Source); err != nil {
			return err
		}
	}
	if err := CheckConditions("trigger.match", m.Match); err != nil {
		return err
	}
	for path := range m.Match {
		if first, _, deep := strings.Cut(path, "."); deep && first != "data" {
			return fmt.Errorf("trigger.match: %q is neither an attribute, as subject, nor a path into the data, as data.order.total", path)
		}
	}
	return nil
}

// CheckConditions checks values by path. field names them in the error.
func CheckConditions(field string, match map[string]string) error {
	if len(match) > maxMatch {
		return fmt.Errorf("%s has %d conditions, the limit is %d", field, len(match), maxMatch)
	}
	for path, value := range match {
		switch {
		case len(path) > maxPath || !utf8.ValidString(path):
			return fmt.Errorf("%s: the path %.40q is longer than %d bytes, or no text", field, path, maxPath)
		case slices.Contains(strings.Split(path, "."), ""):
			return fmt.Errorf("%s: the path %q has an empty step: write it as data.order.total", field, path)
		case len(value) > maxValue || !utf8.ValidString(value):
			return fmt.Errorf("%s: the value of %q is longer than %d bytes, or no text", field, path, maxValue)
		}
	}
	return nil
}

// CheckType checks the type of an event. field names it in the error.
func CheckType(field, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%s is missing: name the type of the events, as com.example.order.paid", field)
	case len(name) > MaxType:
		return fmt.Errorf("%s has %d bytes, the limit is %d", field, len(name), MaxType)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsGraphic(r) }):
		return fmt.Errorf("%s: %.40q has a character that does not show", field, name)
	}
	return nil
}
