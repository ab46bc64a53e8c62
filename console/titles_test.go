package console

import (
	"html"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestTitlesNameTheObject: the title of a tab begins with the object, because a narrow tab shows no
// more of it.
func TestTitlesNameTheObject(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	title := regexp.MustCompile(`<title>([^<]*)</title>`)
	for path, want := range map[string]string{
		"/apps/default/jobs/totals":                              "totals · ",
		"/apps/default/jobs/totals/edit":                         "totals · ",
		"/apps/default/jobs/totals/backfill":                     "totals · ",
		"/apps/default/jobs/totals/delete":                       "totals · ",
		"/apps/default/jobs/totals/history":                      "totals · ",
		"/apps/default/jobs/totals/history/compare?from=3&to=23": "totals · ",
		"/apps/default/jobs/totals/history/3/rollback":           "totals · ",
		"/apps/default/runs/" + failedRun:                        "totals · Failed · " + failedRun,
		"/apps/default/runs/" + liveRun + "/cancel":              "totals · ",
		"/apps/default/modules/totals":                           "totals · ",
		"/apps/default/modules/totals/jobs":                      "totals · ",
		"/apps/default/calendars/weekend":                        "weekend · ",
		"/apps/default/calendars/weekend/jobs":                   "weekend · ",
		"/hosts/host-a":                                          "node-1",
		"/hosts/host-a/cordon":                                   "node-1",
		"/dead-letters/1":                                        "1 · ",
		"/cluster/units/main.2/move":                             "main.2 · ",
		"/access/tokens/tok-1/rotate":                            "tok-1 · ",
	} {
		_, body := s.do(t, "GET", path, nil)
		if m := title.FindStringSubmatch(body); m == nil || !strings.HasPrefix(html.UnescapeString(m[1]), want) {
			t.Errorf("%s has the title %q, want %q first", path, m, want)
		}
	}
}

// TestBreadcrumbs: a page that is not in the navigation or among the tabs of a section leads back to
// its list.
func TestBreadcrumbs(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	_, nav := s.do(t, "GET", "/hosts", nil)
	tabs := []string{"/access", "/access/users", "/access/bindings", "/access/tokens", "/access/sessions", "/access/machines", "/access/roles"}
	for path := range pages() {
		plain, _, _ := strings.Cut(path, "?")
		if strings.Contains(nav, `href="`+plain+`"`) || slices.Contains(tabs, plain) || plain == "/alerts" { // which leads to those of an app
			continue
		}
		_, body := s.do(t, "GET", path, nil)
		if !regexp.MustCompile(`<nav class="crumbs"[^>]*><a href="/`).MatchString(body) {
			t.Errorf("%s has no breadcrumbs", path)
		}
	}
}
