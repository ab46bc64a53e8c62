package console

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// TestCards: below 700 pixels each row of a table is a card that names its values, and nothing is
// scrolled sideways except a timeline.
func TestCards(t *testing.T) {
	const workflow = "01WRKF0000000000000000000D"
	b := signedIn(t, "/hosts")
	f := b.site.fake
	f.change(func() {
		f.jobs = append(f.jobs, &apiv1.Job{App: "default", Name: "daily", Workflow: &apiv1.Workflow{Nodes: []*apiv1.Node{{Name: "read", Job: "totals"}, {Name: "tell", Job: "report", After: []string{"read"}, When: strings.Repeat("nodes.read.output ", 8)}}}})
		f.runs = append(f.runs, &apiv1.Run{Id: workflow, App: "default", Job: "daily", State: "running", Trigger: "manual", Nodes: []*apiv1.NodeState{{Name: "read", Job: "totals", State: "succeeded", Run: doneRun, Kept: true}, {Name: "bad", Job: "totals", State: "failed", Error: "no " + evil}}})
	})
	for _, lang := range []string{"en", "zh"} {
		evaluate[bool](b, `document.cookie = "wheelwork_lang=`+lang+`; path=/", true`)
		for path, tables := range map[string]int{
			"/apps/default": 2, "/apps/default/jobs": 1, "/apps/default/runs": 1, "/apps/default/calendars": 1, "/apps/default/modules": 2, "/apps/default/jobs/totals": 1,
			"/apps/default/jobs/daily": 1, "/apps/default/runs/" + workflow: 1, "/apps/default/runs/" + parentRun(): 1, "/apps/default/runs/" + queuedRun: 1,
		} {
			b.do(chromedp.EmulateViewport(400, 800))
			b.visit(path)
			if got := evaluate[string](b, `document.documentElement.lang`); got != lang {
				t.Fatalf("%s is in %s", path, got)
			}
			b.accessibleInBothThemes()
			for _, scheme := range []string{"light", "dark"} {
				b.scheme(scheme)
				b.shot("cards-" + scheme + "-" + lang + strings.ReplaceAll(path, "/", "_"))
			}
			if n := evaluate[int](b, `document.querySelectorAll("main table.cards").length`); n < tables {
				t.Errorf("%s has %d tables of cards, want %d", path, n, tables)
			}
			if wrong := evaluate[string](b, `[...document.querySelectorAll("main table:not(.timeline)")].flatMap((table) => {
				const heads = [...table.querySelectorAll("th")].map((h) => h.textContent);
				return [...table.querySelectorAll("td")].filter((d) => d.checkVisibility()).filter((d) => {
					const r = d.getBoundingClientRect();
					return d.dataset.l !== heads[d.cellIndex] || getComputedStyle(d, "::before").content !== JSON.stringify(d.dataset.l) || getComputedStyle(d).display !== "grid"
						|| r.left < 0 || r.right > innerWidth || [...d.querySelectorAll("*")].some((e) => e.getBoundingClientRect().right > innerWidth);
				}).map((d) => d.outerHTML.slice(0, 200));
			}).slice(0, 3).join("\n")`); wrong != "" {
				t.Errorf("%s in %s: cells without their name, or out of the screen:\n%s", path, lang, wrong)
			}
			if wide := evaluate[string](b, `[...document.querySelectorAll("main .scroll")].filter((s) => s.scrollWidth > s.clientWidth + 1 && !s.querySelector(".timeline")).map((s) => s.outerHTML.slice(0, 150)).join("\n")`); wide != "" {
				t.Errorf("%s in %s scrolls sideways:\n%s", path, lang, wide)
			}
			// On a wide screen it is a table with all of its columns.
			b.do(chromedp.EmulateViewport(1100, 800))
			if hidden := evaluate[int](b, `[...document.querySelectorAll("main table.cards :is(th, td)")].filter((d) => getComputedStyle(d).display !== "table-cell").length`); hidden > 0 {
				t.Errorf("%s: %d cells of %d pixels wide are no cells of a table", path, hidden, 1100)
			}
		}
	}
}
