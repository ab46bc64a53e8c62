package console

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// manyApps adds n apps with names from app-000 on.
func (f *fakeAPI) manyApps(n int) {
	f.change(func() {
		for i := range n {
			f.made = append(f.made, &apiv1.App{Name: fmt.Sprintf("app-%03d", i)})
		}
	})
}

func TestSwitchKeepsTheSection(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	s.fake.manyApps(700)
	for query, wants := range map[string][]string{
		"app=default&section=jobs&q=app-69":                  {`href="/apps/app-690/jobs"`, `href="/apps/app-699/jobs"`, "Results: 10"},
		"app=default&section=runs&q=APP-699":                 {`href="/apps/app-699/runs"`, "Results: 1"},
		"app=default&section=overview&q=app-699":             {`href="/apps/app-699"`},
		"app=default&section=hosts&q=bill":                   {`href="/hosts?app=billing"`},
		"app=default&section=..&q=bill":                      {`href="/apps/billing"`},
		"app=billing&section=jobs&q=bill":                    {"the current app"},
		"app=default&section=jobs":                           {"The first 50 of 702.", `href="/apps/app-049/jobs"`},
		"app=default&section=jobs&q=none+of+these":           {"Nothing matches."},
		"section=jobs&q=" + strings.Repeat("%E4%BB%BB", 100): {"Nothing matches."}, // the bound is inside a character
		"section=jobs&q=" + url.QueryEscape(evil):            {"Nothing matches."},
	} {
		for name, headers := range map[string][]string{"page": nil, "options": {"HX-Request", "true"}} {
			resp, body := s.do(t, "GET", "/switch?"+query, nil, headers...)
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("%s, %s: %s", query, name, resp.Status)
			}
			for _, want := range wants {
				if !strings.Contains(body, want) {
					t.Errorf("%s, %s: not %q", query, name, want)
				}
			}
			if name == "page" {
				checkPage(t, body)
				continue
			}
			checkWellFormed(t, body)
			if n := strings.Count(body, `role="option"`); n > pageSize || strings.Contains(body, "<html") {
				t.Errorf("%s: %d options, or not a fragment", query, n)
			}
		}
	}
	// No page carries the list.
	if _, body := s.do(t, "GET", "/apps/default/jobs", nil); strings.Contains(body, "app-001") {
		t.Error("the page of the jobs names the apps")
	}
}

// TestSwitchListsOnlyWhatTheVisitorSees: without a role in the default app, it is not offered.
func TestSwitchListsOnlyWhatTheVisitorSees(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	s.fake.change(func() { s.fake.scope = "app:billing" })
	_, body := s.do(t, "GET", "/switch?app=billing&section=jobs", nil, "HX-Request", "true")
	if !strings.Contains(body, `href="/apps/billing/jobs"`) || strings.Contains(body, `href="/apps/default/jobs"`) {
		t.Errorf("the list is\n%s", body)
	}
}

func TestAppsWith(t *testing.T) {
	names := []string{"shop", "a-shop", "SHOP-2", "shop-10", "bank"}
	if got := appsWith(slices.Clone(names), "Shop"); strings.Join(got, " ") != "shop SHOP-2 shop-10 a-shop" {
		t.Errorf("got %s", got)
	}
	if got := appsWith(slices.Clone(names), ""); len(got) != len(names) {
		t.Errorf("without a text: %s", got)
	}
}
