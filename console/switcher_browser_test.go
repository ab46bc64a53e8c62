package console

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestSwitchAppByKeyboard changes the app among hundreds, and stays in the section, on a desktop in
// English and on a phone in Chinese.
func TestSwitchAppByKeyboard(t *testing.T) {
	b := signedIn(t, "/apps/default/jobs")
	b.site.fake.manyApps(700)
	for _, size := range []struct {
		width     int64
		lang, any string
	}{{1100, "en", "The first 50 of 702. Type more of the name."}, {400, "zh", "共 702 个，显示前 50 个。请继续输入名称。"}} {
		b.do(chromedp.EmulateViewport(size.width, 800))
		evaluate[bool](b, `document.cookie = "wheelwork_lang=`+size.lang+`; path=/", true`)
		for _, scheme := range []string{"light", "dark"} {
			b.scheme(scheme)
			b.visit("/apps/default/jobs")
			b.until(`document.documentElement.lang === "` + size.lang + `" && document.getElementById("switch").getAttribute("aria-haspopup") === "dialog"`)
			opener := "switch"
			if size.width == 400 {
				opener = "menubutton"
				evaluate[bool](b, `document.querySelector(".menubutton").focus(), true`)
				b.do(chromedp.KeyEvent("\r"))
				b.until(`document.querySelector("#menu:popover-open") !== null`)
			}
			evaluate[bool](b, `document.getElementById("switch").focus(), true`)
			b.do(chromedp.KeyEvent("\r"))
			b.until(`document.getElementById("apps").open && document.activeElement.id === "switch-text" && document.querySelectorAll("#apps [role=option]").length === 50`)
			if note := evaluate[string](b, `document.querySelector("#apps [role=status]").textContent`); note != size.any {
				t.Errorf("the note is %q", note)
			}
			b.accessible()
			b.do(chromedp.KeyEvent("APP-69"))
			b.until(`document.querySelectorAll("#apps [role=option]").length === 10 && document.querySelector("#apps [aria-selected=true]").getAttribute("href") === "/apps/app-690/jobs"`)
			b.accessible()
			b.shot("switch-" + scheme + "-" + size.lang)
			if wide := evaluate[int64](b, `Math.max(document.documentElement.scrollWidth, document.getElementById("apps").getBoundingClientRect().right)`); wide > size.width {
				t.Errorf("the list reaches to %d of %d pixels", wide, size.width)
			}
			b.do(chromedp.KeyEvent(kb.Escape))
			b.until(`!document.getElementById("apps").open && document.activeElement.matches("#` + opener + `, .` + opener + `")`)

			// The key a opens it as well; the arrows choose.
			b.do(chromedp.KeyEvent("a"))
			b.until(`document.getElementById("apps").open`)
			b.do(chromedp.KeyEvent(kb.Backspace), chromedp.KeyEvent("app-69")) // the driver sends the text of a key although the page takes the key
			b.until(`document.querySelectorAll("#apps [role=option]").length === 10`)
			b.do(chromedp.KeyEvent(kb.ArrowDown))
			b.until(`document.querySelector("#apps [aria-selected=true]").textContent === "app-691"`)
			b.do(chromedp.KeyEvent("\r"))
			b.until(`location.pathname === "/apps/app-691/jobs" && document.readyState === "complete"`)
			if app := evaluate[string](b, `document.querySelector("#switch b").textContent`); app != "app-691" {
				t.Errorf("the navigation has the app %q", app)
			}
		}
	}
}

// TestSwitchPage opens the address of the navigation's link, as a browser without the script does.
func TestSwitchPage(t *testing.T) {
	b := signedIn(t, "/apps/default/jobs")
	b.site.fake.manyApps(700)
	for _, width := range []int64{1100, 400} {
		b.do(chromedp.EmulateViewport(width, 800))
		for _, scheme := range []string{"light", "dark"} {
			b.scheme(scheme)
			b.visit("/apps/default/jobs")
			to := evaluate[string](b, `document.getElementById("switch").getAttribute("href")`)
			b.visit(to)
			b.accessible()
			b.shot("switchpage-" + scheme + "-" + map[int64]string{1100: "wide", 400: "narrow"}[width])
			if wide := evaluate[int64](b, `document.documentElement.scrollWidth`); wide > width {
				t.Errorf("the page is %d of %d pixels wide", wide, width)
			}
			evaluate[bool](b, `document.getElementById("s-name").focus(), true`)
			b.do(chromedp.KeyEvent("app-699\r"))
			b.until(`location.search.includes("q=app-699") && document.readyState === "complete"`)
			evaluate[bool](b, `document.querySelector("main .names a").focus(), true`)
			b.do(chromedp.KeyEvent("\r"))
			b.until(`location.pathname === "/apps/app-699/jobs" && document.readyState === "complete"`)
		}
	}
}
