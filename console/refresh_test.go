package console

import (
	"net/http"
	"strings"
	"testing"
)

// TestRefreshOfWhatHasNotChanged checks that a refresh has the main part of the page alone,
// and no body when the page already has it.
func TestRefreshOfWhatHasNotChanged(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	refresh := func(tag string) (*http.Response, string) {
		return s.do(t, "GET", "/apps/default/calendars", nil, "HX-Request", "true", "HX-Target", "fresh", "If-None-Match", tag)
	}
	resp, body := refresh("")
	tag := resp.Header.Get("ETag")
	if resp.StatusCode != http.StatusOK || tag == "" || !strings.Contains(body, "holidays") || !strings.Contains(body, "<title>Calendars · default · Wheelwork</title>") || strings.Contains(body, "<nav") {
		t.Fatalf("%s, ETag %s\n%s", resp.Status, tag, body)
	}
	if resp, body := refresh(tag); resp.StatusCode != http.StatusNotModified || body != "" {
		t.Errorf("the same again: %s, %d bytes", resp.Status, len(body))
	}
	s.fake.mu.Lock()
	delete(s.fake.calendars, "holidays")
	s.fake.mu.Unlock()
	if resp, body := refresh(tag); resp.StatusCode != http.StatusOK || body == "" || resp.Header.Get("ETag") == tag {
		t.Errorf("after a change: %s, %d bytes", resp.Status, len(body))
	}
	if resp, body := s.do(t, "GET", "/apps/default/calendars", nil, "If-None-Match", tag); resp.StatusCode != http.StatusOK || !strings.Contains(body, "<nav") {
		t.Errorf("a whole page: %s", resp.Status)
	}
}

// TestBrowserAsksOnlyForChanges checks what the script does with a refresh that has nothing
// new, and with the next one.
func TestBrowserAsksOnlyForChanges(t *testing.T) {
	s := newSite(t, newFake().populate())
	b := newBrowser(t, s)
	b.visit("/login?next=/apps/default/jobs")
	b.signIn()
	b.until(`location.pathname === "/apps/default/jobs" && document.readyState === "complete" && window.htmx`)
	refresh := func() int {
		return evaluate[int](b, `new Promise(done => {
			document.addEventListener("htmx:afterRequest", e => done(e.detail.xhr.status), {once: true});
			htmx.trigger(document.body, "refresh");
		})`)
	}
	evaluate[bool](b, `document.getElementById("live").click(); true`) // stops the refreshes of the page's own
	if got := refresh(); got != 200 {
		t.Errorf("the first refresh: %d", got)
	}
	// A time such as "in 23 s" may change between two refreshes; it does not each time.
	for n := 1; refresh() != 304; n++ {
		if n == 20 {
			t.Fatalf("%d refreshes without a change are answered in full", n)
		}
	}
	b.until(`document.querySelector("#fresh a[href='/apps/default/jobs/totals']") && document.getElementById("live").getAttribute("aria-pressed") === "false"`)
	s.fake.mu.Lock()
	s.fake.jobs = s.fake.jobs[1:]
	s.fake.mu.Unlock()
	if got := refresh(); got != 200 {
		t.Errorf("a refresh after a change: %d", got)
	}
}
