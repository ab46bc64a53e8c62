package console

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestInterval chooses by keyboard how often pages refresh.
func TestInterval(t *testing.T) {
	b := signedIn(t, "/hosts")
	ready := func() { b.t.Helper(); b.until(`document.getElementById("interval").checkVisibility()`) }
	value := func() string { b.t.Helper(); return evaluate[string](b, `document.getElementById("interval").value`) }
	choose := func(key string) {
		b.t.Helper()
		evaluate[bool](b, `document.getElementById("interval").focus(), true`)
		b.do(chromedp.KeyEvent(key))
	}
	ready()
	if got := value(); got != "3" {
		t.Errorf("without a choice the interval is %q", got)
	}

	// The gaps between refreshes follow the choice.
	const gap = `(a => a.length > 2 && a.at(-1) - a.at(-2))(performance.getEntriesByType("resource").filter((e) => e.initiatorType === "xmlhttprequest" && e.name.endsWith("/hosts")).map((e) => e.startTime))`
	choose(kb.Home)
	b.until(`(g => g > 800 && g < 2500)(` + gap + `)`)
	b.visit("/hosts")
	ready()
	if got := value(); got != "1" {
		t.Errorf("on the next page the interval is %q, want 1", got)
	}

	// Off is the state of the switch, and both are stored.
	choose(kb.End)
	b.until(`document.getElementById("live").getAttribute("aria-pressed") === "false" && document.getElementById("interval").value === "off"`)
	b.visit("/hosts")
	ready()
	if got := value(); got != "off" {
		t.Errorf("on the next page the interval is %q, want off", got)
	}
	b.do(chromedp.Click("#live"))
	b.until(`document.getElementById("interval").value === "1"`)
	b.accessible()
}

// TestLostLink cuts the requests of a page off and lets them through again.
func TestLostLink(t *testing.T) {
	b := signedIn(t, "/hosts")
	b.refreshOften()
	b.visit("/hosts")
	evaluate[bool](b, `(open => { XMLHttpRequest.prototype.open = function (method, to, ...rest) { return open.call(this, method, window.cut ? "https://127.0.0.1:1/" : to, ...rest); }; return true; })(XMLHttpRequest.prototype.open)`)
	for _, width := range []int64{1100, 400} {
		b.do(chromedp.EmulateViewport(width, 800))
		evaluate[bool](b, `window.cut = true`)
		b.until(`document.getElementById("lost").textContent.includes("lost") && document.getElementById("live").textContent === "Reconnecting…"`)
		for _, scheme := range []string{"light", "dark"} {
			b.scheme(scheme)
			b.accessible()
		}
		b.shot("lost-" + map[int64]string{1100: "wide", 400: "narrow"}[width])
		if !evaluate[bool](b, `(r => r.height > 20 && r.left >= 0 && r.right <= innerWidth && r.bottom <= innerHeight)(document.getElementById("lost").getBoundingClientRect())`) {
			t.Errorf("the note is not in view at %d pixels", width)
		}
		evaluate[bool](b, `window.cut = false, true`)
		b.until(`document.getElementById("lost").textContent === "" && document.getElementById("live").textContent === "Live"`)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.complaints = nil // of the requests that were cut off
}
