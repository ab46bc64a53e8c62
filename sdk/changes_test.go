package sdk_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wheelworkhq/wheelwork/sdk"
)

func TestChanges(t *testing.T) {
	for name, c := range map[string]struct {
		old, next string
		want      []sdk.Change
	}{
		"none":           {"name: a\ntimeout: 3s\nrevision: 3\netag: x", "name: a\ntimeout: 3s", nil},
		"scalar":         {"name: a\ntimeout: 3s", "name: a\ntimeout: 5s", []sdk.Change{{Field: "timeout", Old: "3s", New: "5s"}}},
		"set and unset":  {"name: a\ntimeout: 3s", "name: a\npriority: -2", []sdk.Change{{Field: "timeout", Old: "3s", New: ""}, {Field: "priority", Old: "", New: "-2"}}},
		"nested":         {"name: a\nretry: {max: 3}", "name: a\nretry: {max: 4, first: 1s}", []sdk.Change{{Field: "retry.max", Old: "3", New: "4"}, {Field: "retry.first", Old: "", New: "1s"}}},
		"whole message":  {"name: a\nschedule: {every: 5s}", "name: a", []sdk.Change{{Field: "schedule.every", Old: "5s", New: ""}}},
		"empty message":  {"name: a", "name: a\nmisfire: {}", []sdk.Change{{Field: "misfire", Old: "", New: "{}"}}},
		"labels":         {"name: a\nlabels: {b: x, c: y}", "name: a\nlabels: {c: z, a: w}", []sdk.Change{{Field: "labels.a", Old: "", New: "w"}, {Field: "labels.b", Old: "x", New: ""}, {Field: "labels.c", Old: "y", New: "z"}}},
		"list":           {"name: a\nhandler: {args: [a]}", "name: a\nhandler: {args: [a, b]}", []sdk.Change{{Field: "handler.args", Old: "[a]", New: "[a, b]"}}},
		"nodes":          {"name: a\nworkflow: {nodes: [{name: n, job: x}]}", "name: a\nworkflow: {nodes: [{name: n, job: y}, {name: m, job: x, after: [n]}]}", []sdk.Change{{Field: "workflow.nodes[0].job", Old: "x", New: "y"}, {Field: "workflow.nodes[1].name", Old: "", New: "m"}, {Field: "workflow.nodes[1].job", Old: "", New: "x"}, {Field: "workflow.nodes[1].after", Old: "", New: "[n]"}}},
		"bytes":          {"name: a\ninput_bytes: /wA=", "name: a\ninput: x", []sdk.Change{{Field: "input", Old: "", New: "x"}, {Field: "input_bytes", Old: "/wA=", New: ""}}},
		"pause":          {"name: a\npaused: true", "name: a\npaused: false", []sdk.Change{{Field: "paused", Old: "true", New: "false"}}},
		"pause is kept":  {"name: a\npaused: true", "name: a", nil},
		"an app is none": {"app: default\nname: a", "name: a", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, sdk.Changes(read(t, c.old), read(t, c.next))); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
		})
	}
}

func read(t *testing.T, document string) *sdk.Job {
	t.Helper()
	jobs, err := sdk.ReadJobs(strings.NewReader(document), "")
	if err != nil || len(jobs) != 1 {
		t.Fatalf("%q: %d jobs, %v", document, len(jobs), err)
	}
	return jobs[0]
}
