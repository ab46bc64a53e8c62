package console

import (
	"testing"

	"github.com/chromedp/chromedp"
)

// testModule compares versions, promotes a canary, rolls back and allows a capability, with the keyboard
// alone, on a narrow screen.
func testModule(t *testing.T, b *browser) {
	b.do(chromedp.EmulateViewport(400, 800))
	defer b.do(chromedp.EmulateViewport(1440, 1000))
	press := pressing(t, b, 400)
	b.visit("/apps/default/modules")
	press(`main a[href="/apps/default/modules/totals"]`, "Promote 4-rc to all runs")
	b.choose("#d-from", "1")
	press(`#d-from ~ button`, "Version 4-rc compared with 1")
	press(`button[value=promote]`, "Promoted: prod → 4-rc")
	press(`button[value=back]`, "Rolled back: prod → 3")
	press(`section[aria-labelledby=h-grants] summary`, "Document; what it leaves out is revoked")
	press(`#g-version ~ button`, "has what version 4-rc requests")
	press(`form[action$="/grants"] button`, "The grants are set.")
	press(`a[href$="/versions/3/delete"]`, "Delete the version totals@3?")
	press(`main form button`, "Bytes collected")
	press(`.actions a[href$="/jobs"]`, "Jobs that use the module totals")
	b.visit("/apps/default/modules")
	press(`.actions a[href="/apps/default/collect"]`, "Versions that go: 1")
	press(`form[action="/apps/default/collect"] button.danger`, "Collected: 1")
}

// pressing returns a function that presses Enter on an element, waits for a text, and checks what
// it leads to: axe has no finding, and nothing is wider than the screen.
func pressing(t *testing.T, b *browser, width int) func(selector, shows string) {
	return func(selector, shows string) {
		t.Helper()
		if !evaluate[bool](b, `(e => { e.focus(); return document.activeElement === e; })(document.querySelector(`+"`"+selector+"`"+`))`) {
			t.Fatalf("%s takes no focus at %s", selector, b.here())
		}
		b.do(chromedp.KeyEvent("\r"))
		b.until(`document.readyState === "complete" && document.body.textContent.includes("` + shows + `")`)
		b.accessible()
		if wide := evaluate[int](b, `document.documentElement.scrollWidth`); wide > width {
			t.Errorf("%s is %d pixels wide", b.here(), wide)
		}
	}
}

// choose selects the option of a list with the keys that a person would type.
func (b *browser) choose(selector, option string) {
	b.t.Helper()
	evaluate[bool](b, `document.querySelector("`+selector+`").focus(), true`)
	b.do(chromedp.KeyEvent(option))
	b.until(`document.querySelector("` + selector + `").value === "` + option + `"`)
}
