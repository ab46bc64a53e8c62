package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// TestZones checks in which zone times are shown and entered.
func TestZones(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	started := s.fake.run(doneRun).StartedAt.AsTime()
	shown := func(zone string) string {
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		return started.In(loc).Format("2006-01-02 15:04:05.000 MST")
	}
	for cookies, zone := range map[string]string{
		"":                                     "UTC",
		"wheelwork_browser_zone=Asia/Shanghai": "Asia/Shanghai",
		"wheelwork_browser_zone=Asia/Shanghai; wheelwork_zone=America/New_York":    "America/New_York",
		"wheelwork_browser_zone=Asia/Shanghai; wheelwork_zone=../../etc/passwd":    "Asia/Shanghai",
		"wheelwork_browser_zone=Local; wheelwork_zone=":                            "UTC",
		"wheelwork_browser_zone=Nowhere/Atlantis; wheelwork_zone=Europe/Berlin; a": "Europe/Berlin",
	} {
		_, body := s.do(t, "GET", "/apps/default/runs/"+doneRun, nil, "Cookie", cookies)
		if !strings.Contains(body, shown(zone)) || !strings.Contains(body, started.In(mustZone(t, zone)).Format(">15:04:05.000<")) {
			t.Errorf("with %q the times are not in %s", cookies, zone)
		}
		checkPage(t, body)
	}
	// The job's next times stay in the job's zone.
	if _, body := s.do(t, "GET", "/apps/default/jobs/totals", nil, "Cookie", "wheelwork_zone=America/New_York"); !strings.Contains(body, "CST</time>") {
		t.Error("the next times of a job are not in its zone")
	}
	// Times that are entered belong to the zone of the form.
	_, body := s.do(t, "GET", "/apps/default/jobs/totals/backfill", nil, "Cookie", "wheelwork_zone=Asia/Shanghai")
	if !strings.Contains(body, "From (Asia/Shanghai)") || !strings.Contains(body, `name="zone" value="Asia/Shanghai"`) {
		t.Error("the form does not name its zone")
	}
	_, body = s.post(t, "/apps/default/jobs/totals/backfill", "do=dry&zone=Asia%2FShanghai&from=2026-03-01T08:00&until=2026-03-01T11:00")
	if !strings.Contains(body, "2026-03-01 00:00:00.000 UTC") || !strings.Contains(body, `value="2026-03-01T08:00"`) {
		t.Errorf("a time of Shanghai is read in another zone:\n%s", body)
	}
	if resp, _ := s.post(t, "/apps/default/jobs/totals/backfill", "do=dry&zone=Nowhere&from=2026-03-01T08:00&until=2026-03-01T11:00"); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a zone that does not exist: %s", resp.Status)
	}
	// The choice is a cookie, and can be taken back.
	for zone, want := range map[string]string{"Asia/Tokyo": "Asia/Tokyo", "": "", "Nowhere": "none"} {
		resp, _ := s.post(t, "/preferences", url.Values{"zone": {zone}}.Encode())
		got := "none"
		for _, k := range resp.Cookies() {
			got = k.Value
		}
		if got != want {
			t.Errorf("choosing %q: %q", zone, got)
		}
	}
}

func mustZone(t *testing.T, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

// TestZonesAreBounded shows pages in more zones than the console holds sets of pages for.
func TestZonesAreBounded(t *testing.T) {
	s := newSite(t, newFake())
	for _, zone := range zoneChoices("")[:maxZones/2+2] {
		for _, lang := range languages() {
			if _, err := s.c.views.in(lang, mustZone(t, zone)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := len(s.c.views.zones); n != maxZones {
		t.Errorf("%d sets of pages, want %d", n, maxZones)
	}
}

// TestBrowserZone signs in with a browser in Shanghai, which then chooses UTC.
func TestBrowserZone(t *testing.T) {
	s := newSite(t, newFake().populate())
	b := newBrowser(t, s)
	if _, err := chromedp.Call(b.ctx, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Shanghai"}); err != nil {
		t.Fatal(err)
	}
	b.visit("/apps/default/runs/" + liveRun)
	b.signIn()
	want := s.fake.logs[liveRun][0].Time.AsTime().In(mustZone(t, "Asia/Shanghai"))
	b.until(`document.querySelector("#L0 span:nth-child(2)")?.textContent === "` + want.Format("15:04:05.000") + `"`)
	if !evaluate[bool](b, `document.querySelector("#h-timeline .hint").textContent === "Asia/Shanghai"`) {
		t.Error("the timeline is in another zone")
	}
	// A browser that moves on, with a session from before.
	if _, err := chromedp.Call(b.ctx, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Tokyo"}); err != nil {
		t.Fatal(err)
	}
	b.visit("/apps/default/runs/" + liveRun)
	b.until(`document.querySelector("#h-timeline .hint")?.textContent === "Asia/Tokyo"`)
	evaluate[bool](b, `document.getElementById("zone").focus(), true`)
	if n := evaluate[int](b, `document.getElementById("zone").options.length`); n < 200 {
		t.Errorf("%d zones to choose from", n)
	}
	evaluate[bool](b, `document.getElementById("zone").value = "UTC", document.getElementById("zone").form.requestSubmit(), true`)
	b.until(`document.querySelector("#h-timeline .hint")?.textContent === "UTC" && document.getElementById("zone").value === "UTC"`)
	b.accessible()
	b.shot("zone")
}
