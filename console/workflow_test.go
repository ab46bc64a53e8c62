package console

import (
	"net/http"
	"strings"
	"testing"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

func TestWorkflowPages(t *testing.T) {
	const id = "01WRKF0000000000000000000D"
	f := newFake().populate()
	f.jobs = append(f.jobs, &apiv1.Job{App: "default", Name: "daily", Workflow: &apiv1.Workflow{Nodes: []*apiv1.Node{
		{Name: "read", Job: "totals"},
		{Name: "report", Job: "report", After: []string{"read"}, When: `nodes.read.output == "` + evil + `"`},
	}}})
	f.runs = append(f.runs, &apiv1.Run{
		Id: id, App: "default", Job: "daily", State: "running", Trigger: "retry", Cause: doneRun,
		Nodes: []*apiv1.NodeState{
			{Name: "read", Job: "totals", State: "succeeded", Run: doneRun, Kept: true},
			{Name: "bad", Job: "totals", State: "failed", Error: "no " + evil},
			{Name: "report", Job: "report", State: "pending"},
		},
	}, &apiv1.Run{Id: queuedRun[:25] + "W", App: "default", Job: "totals", State: "succeeded", Trigger: "workflow", Cause: id, Node: "read"})
	s := newSite(t, f).signIn(t)
	for path, wants := range map[string][]string{
		"/apps/default/jobs":                         {"daily"},
		"/apps/default/jobs/daily":                   {">read</td>", `<a href="/apps/default/jobs/report">report</a>`, "success", "nodes.read.output =="},
		"/apps/default/jobs/daily?tab=definition":    {"workflow:"},
		"/apps/default/runs/" + id:                   {"Pending", ">kept<", "its nodes: 3", "the runs that execute it have logs of their own", `href="/apps/default/runs/` + doneRun + `"`, ">report</a>"},
		"/apps/default/runs/" + queuedRun[:25] + "W": {"Workflow", id, "<dt>Node</dt><dd>read</dd>"},
	} {
		resp, body := s.do(t, "GET", path, nil)
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s\n%s", path, resp.Status, body)
		}
		for _, want := range wants {
			if !strings.Contains(body, want) {
				t.Errorf("%s does not hold %q", path, want)
			}
		}
		checkPage(t, body)
	}
}
