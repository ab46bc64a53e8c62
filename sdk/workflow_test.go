package sdk_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/wheelworkhq/wheelwork/sdk"
)

func TestWorkflowDocument(t *testing.T) {
	const source = `name: nightly
workflow:
  nodes:
    - name: read
      job: read-orders
    - name: report
      job: report
      after: [read]
      when: nodes.read.output.total > 100
      input: '{"total": ${nodes.read.output.total}}'
      optional: true
`
	want := []*sdk.Job{{Name: "nightly", Workflow: &sdk.Workflow{Nodes: []*sdk.Node{
		{Name: "read", Job: "read-orders"},
		{
			Name: "report", Job: "report", After: []string{"read"}, When: "nodes.read.output.total > 100",
			Input: `{"total": ${nodes.read.output.total}}`, Optional: true,
		},
	}}}}
	got, err := sdk.ReadJobs(strings.NewReader(source), "")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
	var written bytes.Buffer
	if err := sdk.WriteJobs(&written, got...); err != nil {
		t.Fatal(err)
	}
	again, err := sdk.ReadJobs(&written, "")
	if diff := cmp.Diff(want, again, protocmp.Transform()); err != nil || diff != "" {
		t.Errorf("written and read again: %v (-want +got):\n%s", err, diff)
	}
	for source, want := range map[string]string{
		"name: a\nworkflow:\n  nodes:\n    - nam: x\n":  `line 4: unknown field "workflow.nodes[0].nam": did you mean "name"?`,
		"name: a\nworkflow: {nodes: [x]}\n":             `line 2: workflow.nodes[0]: want fields, as in {name: load, job: load-orders}, found "x"`,
		"name: a\nworkflow: {nodes: [{optional: 1}]}\n": `workflow.nodes[0].optional: want true or false`,
	} {
		if _, err := sdk.ReadJobs(strings.NewReader(source), ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}
