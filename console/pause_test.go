package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// TestPausePage pauses an app in the zone of the form, changes the pause, and ends it.
func TestPausePage(t *testing.T) {
	f := newFake().populate()
	s := newSite(t, f).signIn(t)
	page := func(path string, want ...string) string {
		t.Helper()
		resp, body := s.do(t, "GET", path, nil)
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("GET %s: %s", path, resp.Status)
		}
		checkPage(t, body)
		for _, w := range want {
			if !strings.Contains(body, w) {
				t.Errorf("%s has no %q", path, w)
			}
		}
		return body
	}
	const banner = "The app is paused"
	if body := page("/apps/default", `href="/apps/default/pause"`); strings.Contains(body, banner) {
		t.Error("an app that is not paused is said to be")
	}
	page("/apps/default/pause", "Pause now", "Pause the app")
	day := time.Now().AddDate(0, 0, 2).Format("2006-01-02")
	form := url.Values{"zone": {"Asia/Shanghai"}, "until": {day + "T10:00"}, "reason": {" moves " + evil}}
	resp, body := s.post(t, "/apps/default/pause", form.Encode())
	if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/apps/default" {
		t.Fatalf("pause: %s %s\n%s", resp.Status, resp.Header.Get("Location"), body)
	}
	page("/apps/default/schedules", banner)
	if p := f.pause; p.Reason != "moves "+evil || p.Until.AsTime().Format("2006-01-02T15:04Z") != day+"T02:00Z" {
		t.Errorf("the pause is %v", p)
	}
	page("/apps/default", banner, "user:ann", "moves &lt;script&gt;", `action="/apps/default/resume"`)
	page("/apps/default/pause", banner, "Change the pause", "Save the pause", `value="moves &lt;script&gt;`)
	resp, body = s.post(t, "/apps/default/pause", "zone=UTC&until=2020-01-01T00:00&reason=kept")
	if resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, "until has passed") || !strings.Contains(body, `value="kept"`) || !strings.Contains(body, `value="2020-01-01T00:00"`) {
		t.Errorf("an end in the past: %s\n%s", resp.Status, body)
	}
	if resp, body = s.post(t, "/apps/default/pause", "zone=UTC&until=tomorrow"); resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, "is not a time") {
		t.Errorf("a bad time: %s\n%s", resp.Status, body)
	}
	if resp, _ = s.post(t, "/apps/default/resume", ""); resp.StatusCode != http.StatusSeeOther || f.pause != nil {
		t.Errorf("resume: %s, %v", resp.Status, f.pause)
	}
	if body := page("/apps/default"); strings.Contains(body, banner) {
		t.Error("the pause is shown after its end")
	}
}
