package console

import (
	"testing"

	"github.com/chromedp/chromedp"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// TestJobsByKeyboard finds a job, sorts the list, chooses columns and goes to the run of a node in the
// graph of a workflow, by the keyboard, on a phone too.
func TestJobsByKeyboard(t *testing.T) {
	const workflow = "01WRKF0000000000000000000G"
	b := signedIn(t, "/apps/default/jobs")
	nodes, states := nodesFrom("read", "check-the-sums-of-all-orders<read", "report<read,check-the-sums-of-all-orders", "tell<report", "end<tell")
	states[0].State, states[0].Run, states[1].State, states[1].Run = "succeeded", doneRun, "failed", failedRun
	b.site.fake.change(func() {
		f := b.site.fake
		f.jobs = append(f.jobs, &apiv1.Job{App: "default", Name: "daily", Workflow: &apiv1.Workflow{Nodes: nodes}})
		f.runs = append(f.runs, &apiv1.Run{Id: workflow, App: "default", Job: "daily", State: "running", Trigger: "manual", Nodes: states})
	})
	evaluate[bool](b, `document.getElementById("q").focus(), true`)
	b.do(chromedp.KeyEvent("totals\r"))
	b.until(`new URLSearchParams(location.search).get("q") === "totals" && document.readyState === "complete"`)
	if rows := evaluate[int](b, `document.querySelectorAll("table.jobs tbody tr").length`); rows != 1 {
		t.Errorf("%d rows", rows)
	}
	b.press(`th a[href*="sort=next_time"]`)
	b.until(`location.search.includes("sort=next_time") && location.search.includes("q=totals") && document.readyState === "complete"`)
	evaluate[bool](b, `(d => { d.open = true; return [...d.querySelectorAll("input[type=checkbox]")].every((c) => (c.checked = ["owner", "strip"].includes(c.value), true)) })(document.querySelector(".columns"))`)
	b.press(".columns button")
	b.until(`document.readyState === "complete" && [...document.querySelectorAll("table.jobs th")].map((h) => h.textContent).join() === "Name,Owner,Last 20 ended runs"`)

	b.do(chromedp.EmulateViewport(400, 800))
	b.visit("/apps/default/runs/" + workflow)
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(scheme)
		b.accessible()
	}
	if evaluate[bool](b, `document.documentElement.scrollWidth > innerWidth`) {
		t.Error("the page scrolls sideways")
	}
	if !evaluate[bool](b, `(s => s.scrollWidth > s.clientWidth && s.tabIndex === 0)(document.querySelector(".graph").parentNode)`) {
		t.Error("the graph has no scroll box of its own")
	}
	b.press("#graph-read")
	b.until(`location.pathname === "/apps/default/runs/` + doneRun + `"`)
}
