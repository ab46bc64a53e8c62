package document

import (
	"fmt"
	"strings"
	"testing"
)

// TestDiff compares what documents mean, and not how they are written.
func TestDiff(t *testing.T) {
	for name, test := range map[string]struct{ old, next, want string }{
		"defaults":        {"name: a", "name: a\nretry: {backoff: exponential}\nschedule: null\napp: default", ""},
		"order":           {"name: a\nlabels: {x: 1, y: 2}", "labels: {y: '2', x: '1'}\nname: a", ""},
		"scalar":          {"name: a\nretry: {max: 2}", "name: a\nretry: {max: 3}", "retry.max: 2 -> 3"},
		"unset":           {"name: a\ntimeout: 30s", "name: a", "timeout: 30s -> "},
		"map":             {"name: a\nlabels: {x: 1}", "name: a\nlabels: {y: 2}", "labels.y:  -> 2, labels.x: 1 -> "},
		"empty object":    {"name: a", "name: a\nschedule: {daily: {}}", "schedule.daily:  -> {}"},
		"list of texts":   {"kind: Calendar\nname: c\ndays: [sat]", "kind: Calendar\nname: c\ndays: [sat, sun]", "days: [sat] -> [sat, sun]"},
		"list of objects": {"name: a\nworkflow: {nodes: [{name: x, job: b}]}", "name: a\nworkflow: {nodes: [{name: x, job: c}, {name: y, job: d}]}", "workflow.nodes[0].job: b -> c, workflow.nodes[1].name:  -> y, workflow.nodes[1].job:  -> d"},
		"kept pause":      {"name: a\npaused: true", "name: a", ""},
		"ended pause":     {"name: a\npaused: true", "name: a\npaused: false", "paused: true -> "},
		"new pause":       {"name: a", "name: a\npaused: true", "paused:  -> true"},
	} {
		read := func(source string) *Document {
			documents, err := Parse(strings.NewReader(source), Options{AnyValue: true})
			if err != nil {
				t.Fatal(err)
			}
			return documents[0]
		}
		var texts []string
		for _, c := range Diff(read(test.old), read(test.next)) {
			texts = append(texts, fmt.Sprintf("%s: %s -> %s", c.Field, c.Old, c.New))
		}
		if got := strings.Join(texts, ", "); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
	if changes := Diff(nil, Of(calendarKind, calendarKind.New())); len(changes) != 0 {
		t.Errorf("an empty document has the fields %v", changes)
	}
}
