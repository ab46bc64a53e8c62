package console

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// signedIn opens a tab at a page with a session.
func signedIn(t *testing.T, path string) *browser {
	t.Helper()
	b := newBrowser(t, newSite(t, newFake().populate()))
	b.visit(path)
	b.signIn()
	b.until(`location.pathname === "` + path + `" && document.readyState === "complete"`)
	return b
}

// ctrlK presses the keys of the palette.
func (b *browser) ctrlK() { b.t.Helper(); b.do(chromedp.KeyEvent("k", chromedp.KeyModifiers(2))) }

func TestPaletteByKeyboard(t *testing.T) {
	b := signedIn(t, "/apps/default/jobs")
	for _, width := range []int64{1100, 400} {
		b.do(chromedp.EmulateViewport(width, 800))
		for _, scheme := range []string{"light", "dark"} {
			b.scheme(scheme)
			b.visit("/apps/default/jobs")
			b.until(`!document.getElementById("find").hidden`)
			b.accessible()
			evaluate[bool](b, `document.getElementById("find").focus(), true`)
			b.do(chromedp.KeyEvent("\r"))
			b.until(`document.getElementById("palette").open && document.activeElement.id === "palette-text" && document.querySelectorAll("#palette [role=option]").length > 15`)
			b.accessible()
			b.do(chromedp.KeyEvent("tot"))
			b.until(`document.querySelector("#palette [aria-selected=true]")?.getAttribute("href") === "/apps/default/jobs/totals"`)
			b.accessible()
			b.shot("palette-" + scheme + "-" + map[int64]string{1100: "wide", 400: "narrow"}[width])
			if wide := evaluate[int64](b, `Math.max(document.documentElement.scrollWidth, document.getElementById("palette").getBoundingClientRect().right)`); wide > width {
				t.Errorf("the palette reaches to %d of %d pixels", wide, width)
			}
			b.do(chromedp.KeyEvent(kb.Escape))
			b.until(`!document.getElementById("palette").open && document.activeElement.id === "find"`)
		}
	}

	b.do(chromedp.EmulateViewport(1100, 800))

	// The arrows choose and wrap around; the chosen option is the active descendant.
	b.ctrlK()
	b.until(`document.querySelectorAll("#palette [role=option]").length > 15`)
	b.do(chromedp.KeyEvent(kb.ArrowUp))
	b.until(`(o => o.at(-1).getAttribute("aria-selected") === "true" && document.activeElement.getAttribute("aria-activedescendant") === o.at(-1).id)([...document.querySelectorAll("#palette [role=option]")])`)
	b.do(chromedp.KeyEvent(kb.ArrowDown))
	b.until(`document.querySelector("#palette [role=option]").getAttribute("aria-selected") === "true"`)

	// Enter waits for the results of what was typed.
	b.do(chromedp.KeyEvent("totals\r"))
	b.until(`location.pathname === "/apps/default/jobs/totals" && document.readyState === "complete"`)

	// The keys work in a field, and the focus returns to it.
	b.visit("/apps/default/jobs")
	b.do(chromedp.KeyEvent("/"))
	b.ctrlK()
	b.until(`document.activeElement.id === "palette-text"`)
	b.ctrlK()
	b.until(`document.activeElement.id === "q"`)

	// A command runs the job, once.
	b.ctrlK()
	b.until(`document.activeElement.id === "palette-text"`)
	b.do(chromedp.KeyEvent("totals"))
	b.until(`document.querySelector("#palette [data-post]") !== null`)
	b.do(chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent("\r"))
	b.until(`location.pathname.startsWith("/apps/default/runs/01TRIG") && document.readyState === "complete"`)

	// Without a result there is no list.
	b.ctrlK()
	b.until(`document.activeElement.id === "palette-text"`)
	b.do(chromedp.KeyEvent("<b>nothing</b>"))
	b.until(`document.getElementById("palette-note").textContent === "Nothing matches." && document.getElementById("palette-list").hidden`)
	b.accessible()
}

// TestPaletteWaitsForAPause counts the requests of fast typing.
func TestPaletteWaitsForAPause(t *testing.T) {
	b := signedIn(t, "/hosts")
	b.ctrlK()
	b.until(`document.querySelectorAll("#palette [role=option]").length > 15`)
	before := evaluate[int](b, `performance.getEntriesByType("resource").filter((e) => e.name.includes("/palette?")).length`)
	evaluate[bool](b, `(f => { for (const c of "totals") { f.value += c; f.dispatchEvent(new Event("input")); } return true; })(document.getElementById("palette-text"))`)
	b.until(`document.querySelector("#palette [aria-selected=true]")?.getAttribute("href") === "/apps/default/jobs/totals"`)
	asked := evaluate[[]string](b, `performance.getEntriesByType("resource").map((e) => e.name).filter((n) => n.includes("/palette?"))`)
	if len(asked) != before+1 || !strings.HasSuffix(asked[before], "q=totals") {
		t.Errorf("typing asked %v", asked)
	}
}

// TestPaletteOpensAgainAtOnce closes the palette, opens it and types before the browser tells that it
// was closed.
func TestPaletteOpensAgainAtOnce(t *testing.T) {
	b := signedIn(t, "/hosts")
	b.ctrlK()
	b.until(`document.querySelectorAll("#palette [role=option]").length > 15`)
	evaluate[bool](b, `(f => {
		document.getElementById("palette").close();
		document.getElementById("find").click();
		f.value = "totals";
		return f.dispatchEvent(new Event("input"));
	})(document.getElementById("palette-text"))`)
	b.until(`document.querySelector("#palette [aria-selected=true]")?.getAttribute("href") === "/apps/default/jobs/totals"`)
}
