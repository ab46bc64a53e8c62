package console

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

func TestKeys(t *testing.T) {
	b := signedIn(t, "/hosts")
	ready := func() { b.t.Helper(); b.until(`!document.getElementById("keyhelp").hidden`) }
	for _, width := range []int64{1100, 400} {
		b.do(chromedp.EmulateViewport(width, 800))
		for _, scheme := range []string{"light", "dark"} {
			b.scheme(scheme)
			b.visit("/hosts")
			ready()
			b.do(chromedp.KeyEvent("?"))
			b.until(`document.getElementById("keys").open`)
			b.accessible()
			b.shot("keys-" + scheme + "-" + map[int64]string{1100: "wide", 400: "narrow"}[width])
			if wide := evaluate[int64](b, `Math.max(document.documentElement.scrollWidth, document.getElementById("keys").getBoundingClientRect().right)`); wide > width {
				t.Errorf("the keys reach to %d of %d pixels", wide, width)
			}
			b.do(chromedp.KeyEvent(kb.Escape))
			b.until(`!document.getElementById("keys").open`)
		}
	}
	b.do(chromedp.EmulateViewport(1100, 800))

	// Each section has a letter of its own that leads to it.
	links := evaluate[[]string](b, `[...document.querySelectorAll("#keys a[data-key]")].map((a) => a.dataset.key + " " + a.getAttribute("href"))`)
	seen := map[string]bool{}
	for _, link := range links {
		key, to, _ := strings.Cut(link, " ")
		if seen[key] || len(key) != 1 {
			t.Errorf("the letter of %s is %q", to, key)
		}
		seen[key] = true
		b.visit("/hosts?x=1")
		ready()
		b.do(chromedp.KeyEvent("g"), chromedp.KeyEvent(key))
		b.until(`location.pathname + location.search === "` + to + `" && document.readyState === "complete"`)
	}
	if len(links) < 15 {
		t.Errorf("%d sections have a letter", len(links))
	}

	// In a field each key is text.
	b.visit("/apps/default/jobs")
	ready()
	evaluate[bool](b, `document.getElementById("q").focus(), true`)
	b.do(chromedp.KeyEvent("?gjp/"))
	b.until(`document.getElementById("q").value === "?gjp/"`)
	if evaluate[bool](b, `document.querySelector("dialog[open]") !== null || document.getElementById("live").getAttribute("aria-pressed") !== "true"`) || b.here() != "/apps/default/jobs" {
		t.Error("a key acted while the visitor typed")
	}

	// p stops and starts refreshing.
	b.visit("/hosts")
	ready()
	b.do(chromedp.KeyEvent("p"))
	b.until(`document.getElementById("live").getAttribute("aria-pressed") === "false"`)
	b.do(chromedp.KeyEvent("p"))
	b.until(`document.getElementById("live").getAttribute("aria-pressed") === "true"`)

	// The choice against single keys stays; Ctrl+K and the button act all the same.
	evaluate[bool](b, `document.getElementById("keyhelp").focus(), true`)
	b.do(chromedp.KeyEvent("\r"))
	b.until(`document.getElementById("keys").open`)
	evaluate[bool](b, `document.getElementById("keys-single").focus(), true`)
	b.do(chromedp.KeyEvent(" "), chromedp.KeyEvent(kb.Escape))
	b.until(`!document.getElementById("keys").open && document.activeElement.id === "keyhelp"`)
	b.visit("/hosts")
	ready()
	b.do(chromedp.KeyEvent("?"), chromedp.KeyEvent("p"), chromedp.KeyEvent("g"), chromedp.KeyEvent("j"))
	b.ctrlK()
	b.until(`document.getElementById("palette").open`)
	if evaluate[bool](b, `document.getElementById("keys").open || document.getElementById("live").getAttribute("aria-pressed") !== "true"`) || b.here() != "/hosts" {
		t.Error("a single key acted after it was switched off")
	}
}
