package console

import (
	"testing"

	"github.com/chromedp/chromedp"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// TestRowKeys goes through the rows of lists with j and k, on a desktop in English and on a phone in
// Chinese.
func TestRowKeys(t *testing.T) {
	b := signedIn(t, "/apps/default/jobs")
	focus := func(selector string) {
		b.t.Helper()
		b.until("document.activeElement.matches(`" + selector + "`)")
	}
	for width, lang := range map[int64]string{1100: "en", 400: "zh"} {
		b.do(chromedp.EmulateViewport(width, 800))
		evaluate[bool](b, `document.cookie = "wheelwork_lang=`+lang+`; path=/", true`)
		b.visit("/apps/default/jobs")
		b.until(`document.documentElement.lang === "` + lang + `" && !document.getElementById("keyhelp").hidden`)
		b.do(chromedp.KeyEvent("j"))
		focus(`#job-totals a[href$="/jobs/totals"]`)
		b.accessible()
		b.do(chromedp.KeyEvent("j"), chromedp.KeyEvent("j"))
		focus(`#job-sweep a[href$="/jobs/sweep"]`)
		b.do(chromedp.KeyEvent("k"))
		focus(`#job-report a[href$="/jobs/report"]`)
		b.do(chromedp.KeyEvent("k"), chromedp.KeyEvent("k")) // the first row is the end
		focus(`#job-totals a[href$="/jobs/totals"]`)
		if !evaluate[bool](b, `(r => r.top >= 0 && r.bottom <= innerHeight)(document.activeElement.getBoundingClientRect())`) {
			t.Errorf("%d pixels: the row is out of view", width)
		}
		// A refresh that adds a row before keeps the place.
		b.site.fake.change(func() {
			early := newFake().populate().jobs[2]
			early.Name = "early-" + lang
			b.site.fake.jobs = append([]*apiv1.Job{early}, b.site.fake.jobs...)
		})
		b.until(`document.getElementById("job-early-` + lang + `") !== null`)
		b.do(chromedp.KeyEvent("j"))
		focus(`#job-report a[href$="/jobs/report"]`)
		b.do(chromedp.KeyEvent("\r"))
		b.until(`location.pathname === "/apps/default/jobs/report" && document.readyState === "complete"`)
		b.site.fake.change(func() { b.site.fake.jobs = b.site.fake.jobs[1:] })

		// Without a row with the focus, k begins at the last one.
		b.visit("/apps/default/jobs/totals/history")
		b.until(`!document.getElementById("keyhelp").hidden`)
		b.do(chromedp.KeyEvent("k"))
		b.until(`document.querySelector(".revisions > li:last-child").contains(document.activeElement)`)
	}

	// After g the letter is the name of a section, in a field it is text, and switched off it does
	// nothing.
	b.visit("/hosts")
	b.until(`!document.getElementById("keyhelp").hidden`)
	b.do(chromedp.KeyEvent("g"), chromedp.KeyEvent("k"))
	b.until(`location.pathname === "/apps/default/secrets" && document.readyState === "complete"`)
	b.visit("/apps/default/jobs")
	b.until(`!document.getElementById("keyhelp").hidden`)
	evaluate[bool](b, `document.querySelector("[data-search]").closest("[popover]").showPopover(), document.querySelector("[data-search]").focus(), true`)
	b.do(chromedp.KeyEvent("jk"))
	b.until(`document.activeElement.value === "jk"`)
	evaluate[bool](b, `document.activeElement.blur(), localStorage.setItem("keys", "off"), true`)
	b.visit("/apps/default/jobs")
	b.until(`!document.getElementById("keyhelp").hidden && !document.getElementById("keys-single").checked`)
	b.do(chromedp.KeyEvent("j"), chromedp.KeyEvent("a"))
	if evaluate[bool](b, `document.activeElement !== document.body || document.querySelector("dialog[open]") !== null`) {
		t.Error("a single key acted after it was switched off")
	}
}
