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
		"scalar":         {"name: a\ntimeout: 3s", "name: a\ntimeout: 5s", []sdk.Change{{"timeout", "3s", "5s"}}},
		"set and unset":  {"name: a\ntimeout: 3s", "name: a\npriority: -2", []sdk.Change{{"timeout", "3s", ""}, {"priority", "", "-2"}}},
		"nested":         {"name: a\nretry: {max: 3}", "name: a\nretry: {max: 4, first: 1s}", []sdk.Change{{"retry.max", "3", "4"}, {"retry.first", "", "1s"}}},
		"whole message":  {"name: a\nschedule: {every: 5s}", "name: a", []sdk.Change{{"schedule.every", "5s", ""}}},
		"empty message":  {"name: a", "name: a\nmisfire: {}", []sdk.Change{{"misfire", "", "{}"}}},
		"labels":         {"name: a\nlabels: {b: x, c: y}", "name: a\nlabels: {c: z, a: w}", []sdk.Change{{"labels.a", "", "w"}, {"labels.b", "x", ""}, {"labels.c", "y", "z"}}},
		"list":           {"name: a\nhandler: {args: [a]}", "name: a\nhandler: {args: [a, b]}", []sdk.Change{{"handler.args", "[a]", "[a, b]"}}},
		"nodes":          {"name: a\nworkflow: {nodes: [{name: n, job: x}]}", "name: a\nworkflow: {nodes: [{name: n, job: y}, {name: m, job: x, after: [n]}]}", []sdk.Change{{"workflow.nodes[0].job", "x", "y"}, {"workflow.nodes[1].name", "", "m"}, {"workflow.nodes[1].job", "", "x"}, {"workflow.nodes[1].after", "", "[n]"}}},
		"bytes":          {"name: a\ninput_bytes: /wA=", "name: a\ninput: x", []sdk.Change{{"input", "", "x"}, {"input_bytes", "/wA=", ""}}},
		"pause":          {"name: a\npaused: true", "name: a\npaused: false", []sdk.Change{{"paused", "true", "false"}}},
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
