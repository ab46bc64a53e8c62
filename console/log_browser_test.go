package console

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestLogTools searches a log, goes from line to line, and opens a long one at a line.
func TestLogTools(t *testing.T) {
	b := signedIn(t, "/hosts")
	const lines = 8000
	b.site.fake.mu.Lock()
	b.site.fake.logs[failedRun] = nil
	b.site.fake.mu.Unlock()
	for i := range lines {
		level, text := "info", fmt.Sprintf("row %d", i)
		switch i {
		case 3:
			text = "a \x1b[1;31mred \x1b[39mbold\x1b[0m \x1b[38;5;2mgreen\x1b[48;2;1;2;3m plain " + evil
		case 5, 6020, 6030:
			level, text = "error", fmt.Sprintf("Broken \x1b[33mpart\x1b[0m %d", i)
		}
		b.site.fake.appendLog(failedRun, level, text)
	}
	page := "/apps/default/runs/" + failedRun

	// The page begins before the line that the address names, and ends when it is full.
	b.visit(page + "#L3")
	b.until(`document.querySelector("#L3.at") !== null && document.querySelector("#log p:last-child").classList.contains("note")`)
	if got := evaluate[string](b, `document.querySelector("#L3 span:nth-child(4)").innerHTML`); got != `a <span class="a-bold a-f1">red </span><span class="a-bold">bold</span> <span class="a-f2">green</span><span class="a-f2"> plain &lt;script&gt;alert("x")&lt;/script&gt;</span>` {
		t.Errorf("the colours are %s", got)
	}
	if n := evaluate[int](b, `document.querySelectorAll("#log p").length`); n > 5000 {
		t.Errorf("%d lines in the page, want at most 5000", n)
	}
	b.visit("/hosts")
	b.visit(page + "#L6030")
	const inView = `(p => { const l = document.getElementById("log").getBoundingClientRect(), r = p?.getBoundingClientRect(); return r !== undefined && r.top >= l.top - 1 && r.bottom <= l.bottom + 1; })`
	b.until(inView + `(document.querySelector("#L6030.at")) && document.getElementById("L7999") !== null`)
	if evaluate[bool](b, `document.getElementById("L5000") !== null`) {
		t.Error("the page has lines from long before the one that was asked for")
	}

	// A search leaves the lines with a text, without regard to colours and case, and Enter goes
	// through them.
	b.until(`!document.getElementById("wrap").hidden`)
	evaluate[bool](b, `document.getElementById("l-search").focus(), true`)
	for _, r := range "broken PART" {
		b.do(chromedp.KeyEvent(string(r)))
	}
	const shown = `[...document.querySelectorAll("#log p[id]:not([hidden])")].map((p) => p.id).join()`
	b.until(shown + ` === "L6020,L6030"`)
	b.until(`document.querySelector("#logfilter output").textContent.startsWith("2 of ")`)
	b.do(chromedp.KeyEvent("\r"))
	b.until(`location.hash === "#L6020" && document.querySelector("#L6020.at") !== null`)
	b.do(chromedp.KeyEvent("\r"))
	b.until(`location.hash === "#L6030"`)
	if y := evaluate[float64](b, `document.getElementById("l-search").getBoundingClientRect().bottom`); y < 0 || y > 1000 {
		t.Errorf("the search has left the view, it is at %v pixels", y)
	}
	evaluate[bool](b, `document.getElementById("l-search").value = "", document.getElementById("l-level").value = "error", document.getElementById("l-level").dispatchEvent(new Event("input", {bubbles: true})), true`)
	b.until(shown + ` === "L6020,L6030"`)
	evaluate[bool](b, `document.getElementById("l-level").value = "", document.getElementById("l-level").dispatchEvent(new Event("input", {bubbles: true})), true`)
	b.until(inView + `(document.querySelector("#L6030.at")) && !document.getElementById("L6029").hidden`)

	// A line that the page lacks begins it anew.
	evaluate[bool](b, `location.hash = "#L40", true`)
	b.until(`document.querySelector("#L40.at") !== null && document.getElementById("wrap")?.hidden === false`)

	evaluate[bool](b, `document.getElementById("wrap").click(), true`)
	b.until(`document.getElementById("log").classList.contains("nowrap")`)
	b.site.fake.appendLog(liveRun, "info", "\x1b[31mred\x1b[0m \x1b[44mon blue\x1b[0m \x1b[7minverse")
	b.visit("/apps/default/runs/" + liveRun)
	b.until(`document.getElementById("log").classList.contains("nowrap") && document.getElementById("L3") !== null`)
	b.accessible()
	b.quiet()
}
