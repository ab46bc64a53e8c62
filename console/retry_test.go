package console

import (
	"net/http"
	"strings"
	"testing"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// TestRetryWithChanges retries a run of a workflow from a node, and other runs with another version of
// their module and on one host. A refused choice is shown again.
func TestRetryWithChanges(t *testing.T) {
	f := newFake().populate()
	f.runs = append(f.runs, &apiv1.Run{Id: "01FLOW00000000000000000000", App: "default", Job: "flow", State: "succeeded", FinishedAt: f.runs[0].AcceptedAt, Nodes: []*apiv1.NodeState{
		{Name: "load", Job: "report", State: "succeeded"}, {Name: "check", Job: "totals", State: "succeeded"},
	}})
	s := newSite(t, f).signIn(t)
	const flow = "/apps/default/runs/01FLOW00000000000000000000"
	if _, body := s.do(t, "GET", flow, nil); !strings.Contains(body, flow+"/retry\">") {
		t.Error("the page of the run has no link to the choices")
	}
	_, body := s.do(t, "GET", flow+"/retry?node=check", nil)
	checkPage(t, body)
	if !strings.Contains(body, `<option value="check" selected>`) || strings.Contains(body, `name="host"`) {
		t.Errorf("the form of a workflow: %s", body)
	}
	resp, _ := s.post(t, flow+"/retry", "node=check")
	if run := f.runs[0]; resp.StatusCode != http.StatusSeeOther || run.FromNode != "check" || resp.Header.Get("Location") != "/apps/default/runs/"+run.Id {
		t.Errorf("%s: %v", resp.Status, run)
	}
	if _, body := s.do(t, "GET", "/apps/default/runs/"+f.runs[0].Id, nil); !strings.Contains(body, "<dt>From the node</dt><dd>check</dd>") {
		t.Error("the page of the new run does not show the node")
	}

	const failed = "/apps/default/runs/" + failedRun
	_, body = s.do(t, "GET", failed+"/retry", nil)
	checkPage(t, body)
	for _, want := range []string{`name="module"`, "<option>totals@", `name="host"`, `<option value="host-a">`} {
		if !strings.Contains(body, want) {
			t.Errorf("the form does not hold %q", want)
		}
	}
	resp, _ = s.post(t, failed+"/retry", "module=totals@1.4.2&host=host-a")
	if run := f.runs[0]; resp.StatusCode != http.StatusSeeOther || run.Module != "totals@1.4.2" || run.BoundHost != "host-a" {
		t.Errorf("%s: %v", resp.Status, run)
	}
	resp, body = s.post(t, failed+"/retry", "host=gone")
	if resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, "there is no host with the id") {
		t.Errorf("a refused host: %s", resp.Status)
	}
	if resp, _ = s.post(t, failed+"/retry", ""); resp.StatusCode != http.StatusSeeOther || f.runs[0].FromNode+f.runs[0].BoundHost != "" {
		t.Errorf("without a choice: %s, %v", resp.Status, f.runs[0])
	}
}
