package job

import (
	"os"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// TestWorkflowDocument checks that the server accepts the example of the documentation.
func TestWorkflowDocument(t *testing.T) {
	page, err := os.ReadFile("../../../docs/workflows.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	document, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("the page has no example")
	}
	jobs, err := sdk.ReadJobs(strings.NewReader(document), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs {
		if err := job.Validate(j); err != nil {
			t.Error(err)
		}
	}
	if len(jobs) != 2 || len(jobs[1].GetWorkflow().GetNodes()) != 5 {
		t.Errorf("the example has %d jobs", len(jobs))
	}
}

func TestWorkflowText(t *testing.T) {
	w := &sdk.Workflow{Nodes: []*sdk.Node{{Name: "a", Job: "x"}, {Name: "b", Job: "y", After: []string{"a"}, When: "end", Optional: true}}}
	if got, want := workflowText(w), "a: x\nb: y after a when end, optional"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
