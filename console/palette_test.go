package console

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

func (s *site) palette(t *testing.T, q string) string {
	t.Helper()
	resp, body := s.do(t, "GET", "/palette?app=default&q="+url.QueryEscape(q), nil, "HX-Request", "true")
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%q: %s\n%s", q, resp.Status, body)
	}
	checkWellFormed(t, body)
	if strings.Contains(body, "<html") || strings.Contains(body, evil) {
		t.Errorf("%q: not a fragment, or with a text of a user as markup:\n%s", q, body)
	}
	return body
}

func TestPaletteFinds(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	for q, wants := range map[string][]string{
		"tot":                    {`href="/apps/default/jobs/totals"`, `href="/apps/default/jobs/totals/run" data-post="yes"`, `href="/apps/default/jobs/totals/edit"`, `href="/apps/default/modules/totals"`},
		failedRun:                {`href="/apps/default/runs/` + failedRun + `"`, "Results: 1"},
		strings.ToLower(doneRun): {`href="/apps/default/runs/` + doneRun + `"`},
		"ODE-1":                  {`href="/hosts/host-a"`},
		"new job":                {`href="/apps/default/jobs/new"`},
		"dead":                   {`href="/dead-letters"`},
		"no such thing":          {"Nothing matches."},
		`"><script>`:             {"Nothing matches."},
		strings.Repeat("x", maxPaletteText-1) + "任务": {"Nothing matches."}, // the bound is inside a character
		"tot\xff": {`href="/apps/default/jobs/totals"`},
	} {
		body := s.palette(t, q)
		for _, want := range wants {
			if !strings.Contains(body, want) {
				t.Errorf("%q does not find %s:\n%s", q, want, body)
			}
		}
	}
	if body := s.palette(t, "by-hand"); strings.Contains(body, "/backfill") {
		t.Error("it offers a backfill of a job without a schedule")
	}
	if s.logged.Len() > 0 {
		t.Errorf("logged: %s", s.logged)
	}
}

// TestPaletteHasTheNavigation: each page of the navigation is in the palette, in both languages.
func TestPaletteHasTheNavigation(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	_, page := s.do(t, "GET", "/hosts", nil)
	_, nav, _ := strings.Cut(page, `<nav aria-label="Main">`)
	nav, _, _ = strings.Cut(nav, "</nav>")
	links := regexp.MustCompile(`href="([^"]+)"`).FindAllString(nav, -1)
	if len(links) < 15 {
		t.Fatalf("%d links in the navigation", len(links))
	}
	body := s.palette(t, "")
	for _, link := range links {
		if !strings.Contains(body, link) {
			t.Errorf("the palette lacks %s", link)
		}
	}
	if _, body := s.do(t, "GET", "/palette?q=hosts", nil, "HX-Request", "true", "Accept-Language", "zh"); !strings.Contains(body, "主机") || !strings.Contains(body, `href="/hosts"`) {
		t.Errorf("in Chinese: %s", body)
	}
}

func TestPaletteAsksLittle(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	calls := func(q string) (kinds []string) {
		s.palette(t, q) // the visitor and the names of hosts are known for some seconds
		s.fake.change(func() { s.fake.asked = nil })
		s.palette(t, q)
		s.fake.change(func() {
			for _, m := range s.fake.asked {
				kinds = append(kinds, string(proto.MessageName(m).Name()))
				if r, ok := m.(*apiv1.ListJobsRequest); ok && (r.PageSize != maxPaletteRows || r.Prefix != q || r.WithInput) {
					t.Errorf("%q lists jobs with %v", q, r)
				}
			}
		})
		return kinds
	}
	if kinds := calls(""); len(kinds) > 1 {
		t.Errorf("no text costs %v", kinds)
	}
	if kinds := calls("tot"); len(kinds) > 4 {
		t.Errorf("a name costs %v", kinds)
	}
	if kinds := calls(doneRun); len(kinds) > 5 {
		t.Errorf("an id costs %v", kinds)
	}
	if rows := strings.Count(s.palette(t, "o"), `data-post`); rows > 1 {
		t.Errorf("%d rows run a job", rows)
	}
}

// TestPaletteOffersWhatIsAllowed signs in a visitor that may only read jobs.
func TestPaletteOffersWhatIsAllowed(t *testing.T) {
	fake := newFake().populate()
	fake.may = []string{"jobs.read"}
	s := newSite(t, fake).signIn(t)
	body := s.palette(t, "tot")
	if !strings.Contains(body, `/jobs/totals"`) || strings.Contains(body, "/edit") || strings.Contains(body, "/run\"") || strings.Contains(body, "/modules/totals") {
		t.Errorf("a reader is offered\n%s", body)
	}
	body = s.palette(t, "")
	if strings.Contains(body, "/queues") || strings.Contains(body, "/jobs/new") || strings.Contains(body, "/audit") || !strings.Contains(body, "/apps/default/jobs") {
		t.Errorf("a reader is offered\n%s", body)
	}
}
