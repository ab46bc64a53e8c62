package console

import (
	"testing"

	"github.com/chromedp/chromedp"
)

// TestEditScriptInBrowser types a mistake into a script, goes to its line, mends it, tries it and saves.
func TestEditScriptInBrowser(t *testing.T) {
	b := signedIn(t, "/apps/default/modules/late-fees")
	b.visit(lateFeesPage)
	for width, name := range map[int64]string{400: "narrow", 1100: "wide"} {
		b.do(chromedp.EmulateViewport(width, 800))
		b.accessible()
		b.shot("script-" + name)
		if wide := evaluate[int64](b, `document.documentElement.scrollWidth`); wide > width {
			t.Errorf("the page has %d of %d pixels", wide, width)
		}
	}
	evaluate[bool](b, `(f => { f.focus(); f.setSelectionRange(0, 0); return true; })(document.getElementById("file-0"))`)
	b.do(chromedp.KeyEvent("let a = (;\r"))
	b.until(`document.querySelector("#check a[data-line]")?.textContent === "main.js:1" && document.activeElement.id === "file-0"`)
	b.accessible()
	evaluate[bool](b, `document.querySelector("#check a[data-line]").focus(), true`)
	b.do(chromedp.KeyEvent("\r"))
	b.until(`document.activeElement.id === "file-0" && getSelection().toString() === "let a = (;"`)
	b.do(chromedp.KeyEvent("// mended"))
	b.until(`document.getElementById("h-check").textContent === "Valid"`)
	evaluate[bool](b, `document.getElementById("input").focus(), true`)
	b.do(chromedp.KeyEvent("Ada"))
	evaluate[bool](b, `document.querySelector("button[value=try]").focus(), true`)
	b.do(chromedp.KeyEvent("\r"))
	b.until(`document.querySelector("#trial .state")?.textContent === "Succeeded" && document.querySelector("#trial .code").textContent === ":Ada" && document.getElementById("file-0").value.startsWith("// mended")`)
	b.accessible()
	b.shot("script-trial")
	evaluate[bool](b, `document.querySelector("button[value=review]").focus(), true`)
	b.do(chromedp.KeyEvent("\r"))
	b.until(`document.querySelector(".difflines ins")?.textContent === "// mended" && document.readyState === "complete"`)
	b.accessible()
	b.shot("script-review")
	evaluate[bool](b, `document.querySelector("button[value=save]").focus(), true`)
	b.do(chromedp.KeyEvent("\r"))
	b.until(`location.pathname === "/apps/default/modules/late-fees" && document.readyState === "complete" && document.querySelector(".alert.ok") !== null`)
	b.quiet()
}
