package console

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// pages returns the addresses of every page for visitors, with texts that the page must
// contain.
func pages() map[string][]string {
	all := map[string][]string{
		"/apps/default":                             {"Runs per minute", "103\u202f374", "Needs attention", "840µs", "61.0 GiB", failedRun, "at most"},
		"/apps/default/jobs":                        {"totals", "Asia/Shanghai", "Every 30s", "Only when triggered", "state=unsuccessful", "<span>50 %</span>", "<span>2s</span>", "01MORE00000000000000000003", "Jobs of the app: 1\u202f900\u202f000", `aria-sort="ascending"`},
		"/apps/default/jobs?prefix=nothing":         {"No job of this app"},
		"/apps/default/calendars":                   {"holidays", "01-01", "<b>weekend</b>", "Sat Sun", "&lt;days off&gt;", `name="ics"`, "enctype=\"multipart/form-data\""},
		"/apps/default/calendars/weekend":           {"The next dates in it", "The next dates that are not in it", `value="sat" checked`, "readonly", "/calendars/weekend/delete", "&lt;days off&gt;"},
		"/apps/default/calendars/holidays":          {"-01-01", ">01-01</textarea>"},
		"/apps/default/calendars/never":             {"None in the next ten years."},
		"/apps/default/calendars/weekend/delete":    {"Delete the calendar weekend?"},
		"/apps/default/runs?parent=" + parentRun():  {"Only the runs under", `name="parent"`, partRun(7), "parent=" + parentRun()},
		"/apps/default/jobs/totals":                 {"Next times", "CST", "Run now", "/jobs/totals/delete", "up to 3 times", "Recent runs", "Run with another input"},
		"/apps/default/jobs/totals?format=json":     {"&#34;module&#34;: &#34;totals@1&#34;"},
		"/apps/default/jobs/report":                 {"Resume", "If it were resumed now"},
		"/apps/default/jobs/by-hand":                {"Only when triggered", "wheelwork job trigger by-hand --wait"},
		"/apps/default/calendars/weekend?year=2026": {"Days of 2026 in it: 104", "2026-02", `<span class="sr"> is in it</span>`, "?year=2025", "?year=2027", "/calendars/weekend/jobs"},
		"/apps/default/calendars/holidays/jobs":     {"Jobs that use the calendar holidays", "policed", "of these use the calendar: 1."},
		"/apps/default/calendars/never/jobs":        {"None of these jobs uses the calendar."},
		"/apps/default/jobs/policed": {
			"Daily from 09:00 to 17:00 every 30m, UTC, on mon, tue, at most 100 times, not on the dates of holidays", "Mon 2040-01-02 09:00:00 UTC",
			"Limits of an attempt", "64.0 MiB of memory", "1\u202f500\u202f000 units of fuel",
			"Each one runs, at most 5 of the last 6h, when they are later than 1m", "One after another, at most 3 wait", "Must start within 10m",
			"-2 of -10 to 10", "At most 2 starts in 1s", "By a hash of the input, only on h1, labels gpu, zone=a, on at most 2 hosts at once, at least 25 % of the CPU free, memory below 1.0 GiB, at least 1 slots free",
			"12 parts", "The output of the last one is the input, Each time one of these ends:", `<a href="/apps/default/jobs/sweep">sweep</a>`,
			"/jobs/policed/skip", "/jobs/policed/backfill",
		},
		"/apps/default/jobs/totals/run-form":                     {"Run totals with an input", "Fields of the input"},
		"/apps/default/jobs/totals/backfill":                     {"Show what it would do", "datetime-local", "From (UTC)"},
		"/apps/default/runs/" + parentRun():                      {"12 succeeded, 48 did not, 0 are live", ">60</span>", "its parts: 60", "All parts", "part=50", "Retry the parts that did not succeed", `>49</td>`},
		"/apps/default/runs/" + parentRun() + "?part=50":         {`>50</td>`, `>59</td>`},
		"/apps/default/runs/" + partRun(3):                       {"3 of 60", parentRun(), "Fan-out"},
		"/apps/default/runs/" + queuedRun:                        {"Why it is waiting", "no host may take it", "it lacks the label gpu", "May take it", "Dependency", doneRun, "7 more planned times"},
		"/apps/default/jobs/totals/delete":                       {"Delete the job totals?"},
		"/apps/default/jobs/new":                                 {"New job", "name: my-job", "module: totals@1", "Valid", "Next times", "Review…"},
		"/apps/default/jobs/new?from=totals":                     {"Clone the job totals", "name: totals-copy", "Valid"},
		"/apps/default/jobs/totals/edit":                         {"Edit totals", "name: totals", `name="etag" value="abc"`, "&lt;script&gt;", "Valid", "Asia/Shanghai"},
		"/apps/default/jobs/totals/history":                      {"for the &lt;new&gt; module", "rolled back to 3", "28s", "history?page=20"},
		"/apps/default/jobs/totals/history?page=20":              {"created", "a/program", "First page"},
		"/apps/default/jobs/former/history":                      {"This job is deleted.", "Restore…"},
		"/apps/default/jobs/by-hand/history":                     {"has not changed since"},
		"/apps/default/jobs/totals/history/compare?from=3&to=23": {"Revision 3 compared with 23", "label-07"},
		"/apps/default/jobs/totals/history/3/rollback":           {"Roll back totals to revision 3?", "<ins>10s</ins>", `name="note"`},
		"/apps/default/jobs/former/history/1/rollback":           {"Restore former from revision 1?"},
		"/apps/default/runs":                                     {liveRun, failedRun, doneRun, "page=more%26runs", "Timed out"},
		"/apps/default/runs?state=failed":                        {failedRun, `value="failed" selected`},
		"/apps/default/runs?host=nowhere":                        {"No run matches"},
		"/apps/default/runs/" + liveRun:                          {"42 %", "Attempt 2", "Cancel the run", "12345678901234567890", "connection reset", "Waiting to retry"},
		"/apps/default/runs/" + failedRun:                        {"Why it failed", "line 17", "main.go:42", "00 01 02 ff", "Failed for good"},
		"/apps/default/runs/" + doneRun:                          {"Run the job again", "Succeeded"},
		"/apps/default/runs/" + liveRun + "/cancel":              {"Cancel this run of totals?"},
		"/apps/default/runs/" + failedRun + "/purge":             {"Delete the payload of this run of"},
		"/apps/default/runs/" + failedRun + "/delete":            {"Delete this run of"},
		"/apps/default/modules":                                  {"totals", "Bytes collected", "abababababab", "2.0 MiB", "wheelwork_v1.input", "<b>totals</b>@prod", "4-rc", "12.5 % of the runs; failed: 2, succeeded: 40", "rolled_back 4-beta → 3", "9 of 20 &lt;attempts&gt; failed", "enctype=\"multipart/form-data\""},
		"/hosts":                                                 {"node-1", "5/16", "37 %", "zone=eu-1", "Lost"},
		"/cluster":                                               {"10.0.0.2:7700", "srv-b", "runs the balancer", "main.1", "on its way to 10.0.0.1:7700", "Without an owner", "12.5", "Draining", "etcd has not answered"},
		"/dead-letters":                                          {"no such job", "default/totals", "Tried too often", "/dead-letters/2", "Replay all", "page=after%262"},
		"/dead-letters?reason=attempts":                          {`value="attempts" selected`, "Replay those that match", "/dead-letters/drop?reason=attempts"},
		"/dead-letters?key=nobody":                               {"No dead letter matches"},
		"/dead-letters/1":                                        {"Can never succeed", "&#34;trigger&#34;", "Replace the body", "producer 10.0.0.9:1234"},
		"/dead-letters/2":                                        {"00 01 02 ff", "wheelwork mq dlq edit 2", "The first error", "timed out once"},
		"/dead-letters/1/drop":                                   {"Drop dead letter 1?"},
		"/dead-letters/drop":                                     {"Drop all 2 dead letters?"},
		"/dead-letters/drop?key=default/totals":                  {"Drop all dead letters with key=default/totals?"},
		"/alerts":                                                {"failures"},
		"/switch":                                                {"default"},
		"/apps/default/jobs/totals/pause":                        {"Pause of totals", "Pause now", `name="until"`, `name="reason"`},
		"/apps/default/pause":                                    {"Pause now", `name="until"`},
		"/apps/default/schedules":                                {`id="plan-totals"`},
	}
	maps.Copy(all, accessPages())
	maps.Copy(all, modulePages())
	maps.Copy(all, hostPages())
	maps.Copy(all, resourcePages())
	maps.Copy(all, queuePages())
	maps.Copy(all, operationPages())
	maps.Copy(all, appPages())
	maps.Copy(all, healthPages())
	maps.Copy(all, clusterPages())
	maps.Copy(all, errorPages())
	maps.Copy(all, filterPages())
	maps.Copy(all, runPages())
	maps.Copy(all, alertPages())
	maps.Copy(all, jobTabPages())
	return all
}

func TestPages(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	for path, wants := range pages() {
		t.Run(path, func(t *testing.T) {
			resp, body := s.do(t, "GET", path, nil)
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("%s\n%s", resp.Status, body)
			}
			for _, want := range wants {
				if !strings.Contains(body, want) {
					t.Errorf("the page does not hold %q", want)
				}
			}
			checkPage(t, body)
		})
	}
	if s.logged.Len() > 0 {
		t.Errorf("logged: %s", s.logged)
	}
}

// TestEveryPageIsTested: each address for visitors is among the pages that the other tests visit, so that axe and
// the rules for pages see it, or is named here with the test that opens it.
func TestEveryPageIsTested(t *testing.T) {
	elsewhere := map[string]string{
		"GET /login/command":               "TestApproveCommandLine",
		"GET /{$}":                         "TestShortAddresses",
		"GET /overview":                    "TestShortAddresses",
		"GET /jobs":                        "TestShortAddresses",
		"GET /jobs/{name}":                 "TestShortAddresses",
		"GET /runs":                        "TestShortAddresses",
		"GET /runs/{id}":                   "TestShortAddresses",
		"GET /calendars":                   "TestShortAddresses",
		"GET /calendars/{name}":            "TestShortAddresses",
		"GET /modules":                     "TestShortAddresses",
		"GET /events":                      "TestEventsFollowTheRunToItsEnd",
		"GET /palette":                     "TestPaletteByKeyboard",
		"GET /apps/{app}/runs/export":      "TestExportAsCSV",
		"GET /apps/{app}/runs/{id}/events": "TestEventsFollowTheRunToItsEnd",
		"GET /apps/{app}/runs/{id}/log":    "TestDownloads",
		"GET /apps/{app}/runs/{id}/input":  "TestDownloads",
		"GET /apps/{app}/runs/{id}/output": "TestDownloads",
		"GET /apps/{app}/modules/{name}/versions/{version}/bytes": "TestModuleDownload",
		"GET /apps/{app}/values/{bucket}/bytes":                   "TestValues",
	}
	s := newSite(t, newFake())
	mux := http.NewServeMux()
	for _, r := range s.c.routes() {
		mux.HandleFunc(r.pattern, func(http.ResponseWriter, *http.Request) {})
	}
	visited := map[string]bool{}
	for path := range pages() {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, pattern := mux.Handler(r)
		visited[pattern] = true
	}
	for _, r := range s.c.routes() {
		if r.page == nil || !strings.HasPrefix(r.pattern, "GET ") || visited[r.pattern] {
			continue
		}
		if elsewhere[r.pattern] == "" {
			t.Errorf("no test visits %s: add an address to pages", r.pattern)
		}
	}
}

// TestAddresses: the addresses that links from elsewhere name answer an administrator with 200.
func TestAddresses(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	for _, path := range []string{
		"/apps/default/jobs/new", "/apps/default/jobs/totals/edit", "/apps/default/schedules", "/apps/default/errors", "/apps/default/modules/totals",
		"/apps/default/secrets", "/apps", "/hosts/host-a", "/cluster", "/queues", "/operations", "/access", "/audit", "/health", "/alerts",
	} {
		if resp, _ := s.do(t, "GET", path, nil); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
}

// checkPage checks the rules for every page.
func checkPage(t *testing.T, body string) {
	t.Helper()
	checkWellFormed(t, body)
	if strings.Contains(body, evil) || strings.Contains(body, "alert(&#34;x&#34;)</script>") {
		t.Error("a text of a user reached the page as markup")
	}
	if n := strings.Count(body, "<h1"); n != 1 {
		t.Errorf("%d h1 elements, want 1", n)
	}
	for _, form := range inlineForms() {
		if m := form.FindString(body); m != "" {
			t.Errorf("inline code or style, which the policy forbids: %s", m)
		}
	}
	if m := regexp.MustCompile(`\b(href|action)="[^"]*%!|ZgotmplZ`).FindString(body); m != "" {
		t.Errorf("broken address: %s", m)
	}
}

func inlineForms() []*regexp.Regexp {
	return []*regexp.Regexp{
		regexp.MustCompile(`<script[^>]*>[^<]`),
		regexp.MustCompile(`(?i)<style`),
		regexp.MustCompile(`(?i)<[^>]*\sstyle=`),
		regexp.MustCompile(`(?i)<[^>]*\son[a-z]+=`),
		regexp.MustCompile(`(?i)hx-on|hx-vals|hx-vars|"js:|javascript:`),
	}
}

// checkWellFormed parses HTML as strictly as XML, except for two things that HTML omits
// by design: end tags of void elements and values of boolean attributes.
func checkWellFormed(t *testing.T, body string) {
	t.Helper()
	boolean := regexp.MustCompile(`\s(required|defer|hidden|autofocus|selected|data-search|disabled)([\s>])`)
	for boolean.MatchString(body) { // adjacent attributes share the space between them
		body = boolean.ReplaceAllString(body, ` $1=""$2`)
	}
	body = regexp.MustCompile(`<((?:meta|link|input)\s[^>]*)>`).ReplaceAllString(body, `<$1/>`)
	d := xml.NewDecoder(strings.NewReader(strings.Replace(body, "<!doctype html>", "", 1)))
	d.Entity = xml.HTMLEntity
	ids := map[string]bool{}
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			lines := strings.Split(body, "\n")
			line, _ := d.InputPos()
			t.Fatalf("not well-formed: %v\n%s", err, lines[min(line, len(lines))-1])
		}
		start, ok := tok.(xml.StartElement)
		if !ok {
			continue
		}
		for _, a := range start.Attr {
			if a.Name.Local != "id" {
				continue
			}
			if ids[a.Value] {
				t.Errorf("id %q is used twice", a.Value)
			}
			ids[a.Value] = true
		}
	}
}

func TestEmptyPagesShowCommands(t *testing.T) {
	s := newSite(t, newFake()).signIn(t)
	for path, want := range map[string]string{
		"/apps/default":           "wheelwork module push",
		"/apps/default/jobs":      "wheelwork job apply",
		"/apps/default/runs":      "wheelwork job trigger",
		"/apps/default/modules":   "wheelwork module push",
		"/apps/default/calendars": "wheelwork calendar put",
		"/hosts":                  "wheelwork host",
		"/cluster":                "keeps its journal on its own disk",
		"/dead-letters":           "wheelwork mq stats",
		"/apps/default/alerts":    "kind: AlertRule",
		"/apps/default/secrets":   "wheelwork secret set",
		"/apps/default/values":    "wheelwork kv put",
		"/queues":                 "Queues and their consumers",
		"/health":                 "No host takes tasks",
	} {
		resp, body := s.do(t, "GET", path, nil)
		if resp.StatusCode != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %s, want the command %q", path, resp.Status, want)
		}
		checkPage(t, body)
	}
}

// TestEmptyPagesOfferTheAction: a visitor that may act finds the action itself, and another one does not.
func TestEmptyPagesOfferTheAction(t *testing.T) {
	f := newFake()
	s := newSite(t, f).signIn(t)
	actions := map[string][]string{
		"/apps/default/jobs":      {`<a class="button primary" href="/apps/default/jobs/new">`},
		"/apps/default/runs":      {`<a class="button primary" href="/apps/default/jobs/new">`},
		"/apps/default/modules":   {`<a class="button primary" href="#u-name">`, `id="u-name"`},
		"/apps/default/calendars": {`<a class="button primary" href="#c-name">`, `id="c-name"`},
		"/apps/default/secrets":   {`<a class="button primary" href="#s-name">`, `id="s-name"`},
		"/apps/default/values":    {`<a class="button primary" href="#v-bucket">`, `id="v-bucket"`},
	}
	look := func(may bool) {
		t.Helper()
		for path, wants := range actions {
			for _, lang := range []string{"en", "zh"} {
				_, body := s.do(t, "GET", path, nil, "Accept-Language", lang)
				for _, want := range wants {
					if strings.Contains(body, want) != may {
						t.Errorf("%s in %s, permitted: %v: %s", path, lang, may, want)
					}
				}
				if !strings.Contains(body, `<details class="command">`) {
					t.Errorf("%s in %s lacks the command", path, lang)
				}
				checkPage(t, body)
			}
		}
	}
	look(true)
	f.change(func() { f.jobs = []*apiv1.Job{{App: "default", Name: "totals"}} })
	const run = `<form action="/apps/default/jobs/totals/run" method="post"><button>Run totals</button>`
	if _, body := s.do(t, "GET", "/apps/default/runs", nil); !strings.Contains(body, run) {
		t.Error("the empty list of runs offers no job to run")
	}
	f.change(func() {
		f.may = []string{"jobs.read", "runs.read", "modules.read", "definitions.read", "secrets.read", "kv.read"}
	})
	s = newSite(t, f).signIn(t)
	if _, body := s.do(t, "GET", "/apps/default/runs", nil); strings.Contains(body, run) {
		t.Error("the empty list of runs offers to run a job to a visitor that may not")
	}
	f.change(func() { f.jobs = nil })
	look(false)
}

// TestListsSayWhatTheyLack: each page with a list of runs says that damage kept some from it.
func TestListsSayWhatTheyLack(t *testing.T) {
	f := newFake().populate()
	s := newSite(t, f).signIn(t)
	for _, path := range []string{"/apps/default", "/apps/default/runs", "/apps/default/jobs/totals"} {
		for blocks, want := range map[int32]bool{0: false, 3: true} {
			f.mu.Lock()
			f.unreadable = blocks
			f.mu.Unlock()
			resp, body := s.do(t, "GET", path, nil)
			if said := strings.Contains(body, "Runs are missing from this list: 3 damaged blocks"); resp.StatusCode != http.StatusOK || said != want {
				t.Errorf("%s with %d damaged blocks: %s, a notice: %v", path, blocks, resp.Status, said)
			}
			checkPage(t, body)
		}
	}
}

func TestPagesInChinese(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	for path := range pages() {
		resp, body := s.do(t, "GET", path, nil, "Accept-Language", "fr, zh-CN;q=0.9, en;q=0.1")
		if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Language") != "zh" || !strings.Contains(body, "退出登录") {
			t.Errorf("%s: %s in %q", path, resp.Status, resp.Header.Get("Content-Language"))
		}
		checkPage(t, body)
	}
	if s.logged.Len() > 0 {
		t.Errorf("logged: %s", s.logged)
	}
}

func TestPreferences(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	resp, _ := s.post(t, "/preferences", url.Values{"lang": {"zh"}, "theme": {"dark"}, "next": {"/hosts"}}.Encode())
	if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/hosts" {
		t.Fatalf("%s to %q", resp.Status, resp.Header.Get("Location"))
	}
	_, body := s.do(t, "GET", "/hosts", nil)
	if !strings.Contains(body, `lang="zh" data-theme="dark"`) {
		t.Error("the choice does not hold")
	}
	s.post(t, "/preferences", "lang=klingon&theme=plaid")
	if _, body := s.do(t, "GET", "/hosts", nil); !strings.Contains(body, `lang="zh" data-theme="dark"`) {
		t.Error("an unknown choice changed something")
	}
}

func TestCatalogues(t *testing.T) {
	first, err := loadCatalogue(languages()[0])
	if err != nil {
		t.Fatal(err)
	}
	verbs := regexp.MustCompile(`%[^ ]*?[ds]`)
	for _, lang := range languages()[1:] {
		other, err := loadCatalogue(lang)
		if err != nil {
			t.Fatal(err)
		}
		for key, text := range first {
			if other[key] == "" {
				t.Errorf("%s: no text for %q", lang, key)
			}
			if len(verbs.FindAllString(text, -1)) != len(verbs.FindAllString(other[key], -1)) {
				t.Errorf("%s: %q takes other values than %q", lang, other[key], text)
			}
		}
		for key := range other {
			if _, ok := first[key]; !ok {
				t.Errorf("%s: %q is in no other catalogue", lang, key)
			}
		}
	}
	for _, key := range literalKeys(t) {
		if _, ok := first[key]; !ok {
			t.Errorf("a template asks for %q, which no catalogue has", key)
		}
	}
}

// literalKeys returns the catalogue keys that templates contain literally.
func literalKeys(t *testing.T) []string {
	t.Helper()
	var keys []string
	names, err := fs.Glob(embedded, "assets/templates/*.html")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		b, err := embedded.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\bt "([a-z.]+)"`).FindAllSubmatch(b, -1) {
			keys = append(keys, string(m[1]))
		}
	}
	if len(keys) < 50 {
		t.Fatalf("found only %d keys", len(keys))
	}
	return keys
}

func TestShortAddresses(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	for from, to := range map[string]string{
		"/":                                     "/apps/default",
		"/apps?app=billing&section=runs":        "/apps/billing/runs",
		"/apps?app=billing&section=hosts":       "/hosts?app=billing",
		"/apps?app=default&section=deadletters": "/dead-letters",
		"/apps?app=billing&section=overview":    "/apps/billing",
		"/apps?app=billing&section=..":          "/apps/billing",
		"/apps?app=..%2Fx&section=":             "/apps/default",
		"/?app=billing":                         "/apps/billing",
		"/?app=../hosts":                        "/apps/default",
		"/runs/01X?app=b":                       "/apps/b/runs/01X",
		"/runs?app=b&state=failed":              "/apps/b/runs?state=failed",
		"/jobs/totals":                          "/apps/default/jobs/totals",
		"/calendars/off?app=b":                  "/apps/b/calendars/off",
		"/modules":                              "/apps/default/modules",
	} {
		resp, _ := s.do(t, "GET", from, nil)
		if got := resp.Header.Get("Location"); resp.StatusCode != http.StatusSeeOther || got != to {
			t.Errorf("%s: %s to %q, want %q", from, resp.Status, got, to)
		}
	}
}

// TestRunWithoutAttempt shows a run that no host has attempted.
func TestRunWithoutAttempt(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	s.fake.run(queuedRun).Attempt, s.fake.run(queuedRun).MaxAttempts = 0, 4
	for _, path := range []string{"/apps/default/runs/" + queuedRun, "/apps/default/runs"} {
		if _, body := s.do(t, "GET", path, nil); strings.Contains(body, ">0/4<") {
			t.Errorf("%s shows the attempt 0 of 4", path)
		}
	}
}

func TestFailurePages(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	for path, want := range map[string]string{
		"/apps/default/jobs/none": "there is no job &#34;none&#34;",
		"/apps/default/runs/none": "there is no run &#34;none&#34;",
		"/nowhere":                "there is no such page",
	} {
		resp, body := s.do(t, "GET", path, nil)
		if resp.StatusCode != http.StatusNotFound || !strings.Contains(body, want) {
			t.Errorf("%s: %s, want %q", path, resp.Status, want)
		}
		list := strings.TrimSuffix(path, "/none") // the page links to this list
		if back := `<a class="button" href="` + list + `">`; strings.Contains(body, back) != (list != path) {
			t.Errorf("%s: the page has the button %s: %v", path, back, list == path)
		}
		checkPage(t, body)
	}
}

func TestJobActions(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	resp, _ := s.post(t, "/apps/default/jobs/totals/run", url.Values{"input": {"a\nb"}}.Encode())
	run := s.fake.runs[0]
	if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/apps/default/runs/"+run.Id || run.Input != "a\nb" {
		t.Errorf("run with input: %s to %q, input %q", resp.Status, resp.Header.Get("Location"), run.Input)
	}
	s.post(t, "/apps/default/jobs/totals/run", "")
	if got := s.fake.runs[0].Input; got != "input of the job" {
		t.Errorf("run without input took %q", got)
	}
	s.post(t, "/apps/default/jobs/totals/pause", "")
	if !s.fake.job("totals").GetPaused() {
		t.Error("pause did not pause")
	}
	s.post(t, "/apps/default/jobs/totals/resume", "")
	if s.fake.job("totals").GetPaused() {
		t.Error("resume did not resume")
	}
	if s.do(t, "GET", "/apps/default/jobs/totals/delete", nil); s.fake.job("totals") == nil {
		t.Error("asking for confirmation deleted the job")
	}
	if resp, _ = s.post(t, "/apps/default/jobs/totals/skip", ""); s.fake.skipped != 1 || resp.Header.Get("Location") != "/apps/default/jobs/totals" {
		t.Errorf("skip: %d times, %s to %q", s.fake.skipped, resp.Status, resp.Header.Get("Location"))
	}
	resp, _ = s.post(t, "/apps/default/jobs/totals/delete", "")
	if s.fake.job("totals") != nil || resp.Header.Get("Location") != "/apps/default/jobs" {
		t.Errorf("delete: %s to %q", resp.Status, resp.Header.Get("Location"))
	}
	resp, _ = s.post(t, "/apps/default/runs/"+liveRun+"/cancel", "")
	if s.fake.run(liveRun).State != "stopped" || resp.StatusCode != http.StatusSeeOther {
		t.Errorf("cancel: %s, run is %s", resp.Status, s.fake.run(liveRun).State)
	}
	if resp, _ = s.do(t, "GET", "/apps/default/runs/"+liveRun+"/cancel", nil); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("asking to cancel a run that ended: %s, want its page", resp.Status)
	}
	ofRun := "/apps/default/runs/" + liveRun // it has ended
	if _, body := s.do(t, "GET", ofRun, nil); !strings.Contains(body, ofRun+`/purge"`) || !strings.Contains(body, ofRun+`/delete"`) {
		t.Error("the page of an ended run does not offer to delete it")
	}
	if resp, _ = s.post(t, ofRun+"/purge", ""); s.fake.run(liveRun).PayloadDeletedAt == nil || resp.Header.Get("Location") != ofRun {
		t.Errorf("purge: %s to %q", resp.Status, resp.Header.Get("Location"))
	}
	if _, body := s.do(t, "GET", ofRun, nil); !strings.Contains(body, `id="purged"`) || strings.Contains(body, ofRun+`/purge"`) || strings.Contains(body, ofRun+`/retry"`) || strings.Contains(body, `id="h-input"`) {
		t.Error("the page of a purged run does not say so")
	}
	if resp, _ = s.post(t, ofRun+"/delete", ""); s.fake.run(liveRun) != nil || resp.Header.Get("Location") != "/apps/default/runs" {
		t.Errorf("delete: %s to %q", resp.Status, resp.Header.Get("Location"))
	}
}

func TestBackfill(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	span := url.Values{"from": {"2026-03-01T00:00"}, "until": {"2026-03-01T03:00:00.500"}, "do": {"dry"}}
	resp, body := s.post(t, "/apps/default/jobs/totals/backfill", span.Encode())
	if resp.StatusCode != http.StatusOK || s.fake.backfilled != 0 || !strings.Contains(body, "New runs: 3. Times that have a run already: 1.") ||
		!strings.Contains(body, "Make 3 runs") || !strings.Contains(body, "2026-03-01 00:00:00") || !strings.Contains(body, `value="2026-03-01T03:00:00.500"`) {
		t.Errorf("dry run: %s, %d runs made\n%s", resp.Status, s.fake.backfilled, body)
	}
	checkPage(t, body)
	span.Set("do", "run")
	resp, _ = s.post(t, "/apps/default/jobs/totals/backfill", span.Encode())
	want := "/apps/default/jobs/totals/backfill"
	if got := resp.Header.Get("Location"); got != want || s.fake.backfilled != 3 {
		t.Errorf("backfill: to %q, want %q; %d runs made", got, want, s.fake.backfilled)
	}
	_, body = s.do(t, "GET", want, nil)
	for _, text := range []string{"New runs: 3. Times that had a run already: 1.", "There are more", `value="2026-03-01T02:30:00.5"`, `value="2026-03-01T03:00:00.500"`, "/apps/default/runs?job=totals"} {
		if !strings.Contains(body, text) {
			t.Errorf("the page after a backfill does not hold %s", text)
		}
	}
	checkPage(t, body)
	for _, from := range []string{"", "yesterday", "2027-01-01T00:00"} {
		span.Set("from", from)
		resp, body := s.post(t, "/apps/default/jobs/totals/backfill", span.Encode())
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, `role="alert"`) || !strings.Contains(body, `value="`+from+`"`) || s.fake.backfilled != 3 {
			t.Errorf("from %q: %s\n%s", from, resp.Status, body)
		}
		checkPage(t, body)
	}
}

func TestRetry(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	resp, _ := s.post(t, "/apps/default/runs/"+failedRun+"/retry", "")
	if run := s.fake.runs[0]; resp.StatusCode != http.StatusSeeOther || run.Cause != failedRun || resp.Header.Get("Location") != "/apps/default/runs/"+run.Id {
		t.Errorf("retry: %s to %q, the newest run is %v", resp.Status, resp.Header.Get("Location"), run)
	}
	if resp, _ := s.post(t, "/apps/default/runs/"+liveRun+"/retry", ""); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("retry of a live run: %s", resp.Status)
	}
	_, body := s.do(t, "GET", "/apps/default/runs/"+partRun(3), nil)
	if strings.Contains(body, "/retry") {
		t.Error("a part is offered to be retried")
	}
}

func TestPolicyTexts(t *testing.T) {
	for _, lang := range languages() {
		texts, err := loadCatalogue(lang)
		if err != nil {
			t.Fatal(err)
		}
		w := words{lang: lang, texts: texts, loc: time.UTC}
		var jobs []*apiv1.Job
		for _, p := range []string{"fire_once", "skip", "fire_all"} {
			jobs = append(jobs, &apiv1.Job{Misfire: &apiv1.Misfire{Policy: p}})
		}
		for _, p := range []string{"queue", "discard", "cover"} {
			jobs = append(jobs, &apiv1.Job{Overlap: &apiv1.Overlap{Policy: p}})
		}
		for _, p := range []string{"", "parallel", "queue"} {
			jobs = append(jobs, &apiv1.Job{Overlap: &apiv1.Overlap{Policy: p, Limit: 3}})
		}
		for _, s := range []string{"", "least_loaded", "first", "last", "round_robin", "random", "hash", "lfu", "lru", "failover", "busy_transfer"} {
			jobs = append(jobs, &apiv1.Job{Routing: &apiv1.Routing{Strategy: s}})
		}
		for _, k := range []string{"job", "input", "run"} {
			jobs = append(jobs, &apiv1.Job{Routing: &apiv1.Routing{Strategy: "hash", Key: k}})
		}
		for _, m := range []string{"broadcast", "shards"} {
			jobs = append(jobs, &apiv1.Job{Fanout: &apiv1.Fanout{Mode: m, Shards: 2}})
		}
		for _, on := range []string{"", "success", "failure", "end"} {
			for _, need := range []string{"", "all", "any"} {
				jobs = append(jobs, &apiv1.Job{Dependency: &apiv1.Dependency{Jobs: []string{"a"}, On: on, Need: need}})
			}
		}
		for _, j := range jobs {
			list, err := w.policies(j)
			if err != nil || len(list) != 1 || list[0].Text == "" || strings.Contains(list[0].Text, "%!") || texts[list[0].Name] == "" {
				t.Errorf("%s: %v: %+v, %v", lang, j, list, err)
			}
		}
		if list, err := w.policies(&apiv1.Job{Overlap: &apiv1.Overlap{}}); err != nil || len(list) != 0 {
			t.Errorf("%s: a job without policies: %+v, %v", lang, list, err)
		}
		for _, s := range []*apiv1.Schedule{
			{After: "5m"},
			{Daily: &apiv1.Daily{}},
			{Daily: &apiv1.Daily{Every: "5m"}, Zone: "Europe/Berlin"},
			{Every: "5m", From: "2026-01-01T00:00:00Z", Until: "2027-01-01T00:00:00Z", Jitter: "1m", Include: []string{"a", "b"}},
		} {
			if text, err := w.schedule(&apiv1.Job{Schedule: s}); err != nil || text == "" || strings.Contains(text, "%!") {
				t.Errorf("%s: %v: %q, %v", lang, s, text, err)
			}
		}
		for _, c := range []job.Trigger{job.BySchedule, job.ByHand, job.ByBackfill, job.ByDependency, job.ByRetry, job.ByFanout} {
			if texts["trigger."+string(c)] == "" {
				t.Errorf("%s: no text for the trigger %s", lang, c)
			}
		}
	}
}

// TestListsAreBounded: a page asks for no more rows than it shows. One that looks for runs itself asks
// for more at once, until its time is over, and one with alerts reads those that a limit of the app bounds.
func TestListsAreBounded(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	scans := regexp.MustCompile(`^/apps/default/(errors|runs\?(.*&)?(module|error|kind)=)`)
	lists, scanning := 0, 0
	for path := range pages() {
		s.fake.asked = nil
		s.do(t, "GET", path, nil)
		for _, m := range s.fake.asked {
			r, ok := m.(interface{ GetPageSize() int32 })
			if !ok {
				continue
			}
			lists++
			most := int32(pageSize)
			if runs, ok := m.(*apiv1.ListRunsRequest); ok && scans.MatchString(path) {
				most = scanPage
				scanning++
			} else if ok && runs.Parent != "" {
				most = max(most, cellsAtOnce) // of the grid of parts
			} else if strings.HasPrefix(path, "/apps/default/schedules") {
				most = plannedJobs // it reads jobs until its time is over
			}
			switch m.(type) {
			case *apiv1.ListAlertsRequest, *apiv1.ListAlertRulesRequest, *apiv1.ListAlertChannelsRequest:
				most = alertsAtOnce // which silences, rules and channels belong to which is seen from all
			}
			if n := r.GetPageSize(); n < 1 || n > most {
				t.Errorf("%s: %T asks for %d rows, want 1 to %d", path, m, n, most)
			}
		}
	}
	if lists == 0 || scanning == 0 {
		t.Fatalf("the pages asked for %d lists, %d of them to look for runs", lists, scanning)
	}
}

func TestDownloads(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	for path, want := range map[string]string{
		"/apps/default/runs/" + doneRun + "/output":  evil,
		"/apps/default/runs/" + failedRun + "/input": "\x00\x01\x02\xff",
		"/apps/default/runs/" + failedRun + "/log":   "error gave up",
	} {
		resp, body := s.do(t, "GET", path, nil)
		if !strings.Contains(body, want) {
			t.Errorf("%s: %q", path, body)
		}
		if d := resp.Header.Get("Content-Disposition"); !strings.HasPrefix(d, "attachment") {
			t.Errorf("%s: shown as a page: %q", path, d)
		}
		if ct := resp.Header.Get("Content-Type"); strings.Contains(ct, "html") {
			t.Errorf("%s: %s", path, ct)
		}
	}
	if resp, body := s.do(t, "GET", "/apps/default/runs/none/log", nil); resp.StatusCode != http.StatusNotFound || !strings.Contains(body, "there is no run") {
		t.Errorf("log of no run: %s", resp.Status)
	}
}

// TestRawLog: the raw log is shown as text, with the lines that the form selects.
func TestRawLog(t *testing.T) {
	f := newFake().populate()
	f.logs[failedRun] = nil
	for _, l := range []string{"debug", "info", "warn", "error", "other"} {
		f.appendLog(failedRun, l, "a \x1b[31mRed\x1b[0m "+l)
	}
	s := newSite(t, f).signIn(t)
	for query, want := range map[string]string{
		"raw=1":                    "debug info warn error other",
		"raw=1&level=warn":         "warn error other",
		"raw=1&search=a+red+INFO":  "info",
		"raw=1&search=31m":         "",
		"raw=1&search=r&level=any": "there is no level",
	} {
		resp, body := s.do(t, "GET", "/apps/default/runs/"+failedRun+"/log?"+query, nil)
		if resp.StatusCode != http.StatusOK {
			if !strings.Contains(body, want) {
				t.Errorf("%s: %s", query, resp.Status)
			}
			continue
		}
		var got []string
		for line := range strings.Lines(body) {
			if !strings.Contains(line, "\x1b[31mRed\x1b[0m ") {
				t.Errorf("%s: the line %q is not as it was written", query, line)
			}
			fields := strings.Fields(line)
			got = append(got, fields[len(fields)-1])
		}
		if strings.Join(got, " ") != want || resp.Header.Get("Content-Disposition") != "" || resp.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("%s: %q, want %q, %v", query, got, want, resp.Header)
		}
	}
}

func TestRevokedTokenEndsTheSession(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	s.fake.change(func() { s.fake.revoked = true })
	resp, _ := s.do(t, "GET", "/hosts", nil)
	if got := resp.Header.Get("Location"); resp.StatusCode != http.StatusSeeOther || got != "/login?next=%2Fhosts" {
		t.Errorf("%s to %q", resp.Status, got)
	}
	s.fake.change(func() { s.fake.revoked = false })
	if resp, _ := s.do(t, "GET", "/hosts", nil); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("the session lives on: %s", resp.Status)
	}
}

func TestDefinitionReadsBack(t *testing.T) {
	j := &apiv1.Job{App: "default", Name: "x", Handler: &apiv1.Handler{Module: "m@1", Env: map[string]string{"A": "yes", "B": "1"}}, Schedule: &apiv1.Schedule{Cron: "0 0 * * * *"}, Input: "a: b\n- c\n", Revision: 9}
	text, err := definition(j, "yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"app: default\nname: x\n", "module: m@1", `A: "yes"`, `B: "1"`, `cron: 0 0 * * * *`} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if strings.Contains(text, "revision") {
		t.Error("what the server sets is part of the definition")
	}
	text, err = definition(j, "json")
	if err != nil || !json.Valid([]byte(text)) {
		t.Errorf("%v: %s", err, text)
	}
}

func TestPayload(t *testing.T) {
	long := strings.Repeat("é", shownPayload)
	for name, c := range map[string]struct {
		text string
		raw  []byte
		want payload
	}{
		"empty":       {want: payload{}},
		"json":        {text: `{"n":12345678901234567890}`, want: payload{Size: 26, Text: "{\n  \"n\": 12345678901234567890\n}"}},
		"almost json": {text: `{"n":`, want: payload{Size: 5, Text: `{"n":`}},
		"binary":      {raw: []byte{1, 2}, want: payload{Size: 2, Binary: true, Text: "00000000  01 02                                             |..|\n"}},
		"long":        {text: "x" + long, want: payload{Size: int64(1 + len(long)), Cut: true, Text: "x" + long[:shownPayload-2]}},
	} {
		if got := newPayload(c.text, c.raw); got != c.want {
			t.Errorf("%s: got %.80q (%d bytes), want %.80q (%d bytes)", name, got.Text, len(got.Text), c.want.Text, len(c.want.Text))
		}
	}
}

func TestPagesNeverSwallowTheirStates(t *testing.T) {
	icons, err := embedded.ReadFile("assets/static/icons.svg")
	if err != nil {
		t.Fatal(err)
	}
	texts, err := loadCatalogue("en")
	if err != nil {
		t.Fatal(err)
	}
	states := append(runsView{}.States()[3:], "paused", "up", "cordoned", "draining", "lost", "none")
	for _, s := range states {
		if !strings.Contains(string(icons), `id="`+s+`"`) {
			t.Errorf("no icon for %s", s)
		}
		if texts["state."+s] == "" {
			t.Errorf("no text for %s", s)
		}
	}
	if !slices.Contains(states, "timed_out") {
		t.Error("the states are not those of runs")
	}
}

func TestPermanent(t *testing.T) {
	if permanent(status.Error(codes.Unavailable, "the server is restarting")) || !permanent(status.Error(codes.NotFound, "")) {
		t.Error("an outage must be tried again, a run that does not exist must not")
	}
}

// TestAppStays checks that the pages of all apps keep the app of the navigation.
func TestAppStays(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	for _, path := range []string{"/hosts?app=billing", "/cluster?app=billing", "/dead-letters?app=billing", "/dead-letters/1?app=billing", "/apps/billing/jobs"} {
		resp, body := s.do(t, "GET", path, nil)
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", path, resp.Status)
		}
		for _, want := range []string{`href="/apps/billing/runs"`, `href="/hosts?app=billing"`, `href="/cluster?app=billing"`, `href="/dead-letters?app=billing"`, `href="/switch?app=billing&amp;section=`} {
			if !strings.Contains(body, want) {
				t.Errorf("%s does not hold %s", path, want)
			}
		}
		checkPage(t, body)
	}
	_, body := s.do(t, "GET", "/dead-letters?app=billing&key=", nil)
	for _, want := range []string{`/dead-letters/1?app=billing"`, `action="/dead-letters/1/replay?app=billing"`, `name="app" value="billing"`} {
		if !strings.Contains(body, want) {
			t.Errorf("the list of dead letters does not hold %s", want)
		}
	}
	if resp, _ := s.post(t, "/dead-letters/1/replay?app=billing", ""); !strings.Contains(resp.Header.Get("Location"), "app=billing") {
		t.Errorf("after a replay: %s", resp.Header.Get("Location"))
	}
}

// TestUnknownApp checks that an app without contents has no empty pages.
func TestUnknownApp(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	for path, link := range map[string]string{
		"/apps/nowhere":        `href="/apps/billing"`,
		"/apps/nowhere/jobs":   `href="/apps/billing/jobs"`,
		"/apps/nowhere/jobs/x": `href="/apps/billing"`,
		"/hosts?app=nowhere":   `href="/hosts?app=billing"`,
	} {
		resp, body := s.do(t, "GET", path, nil)
		if resp.StatusCode != http.StatusNotFound || !strings.Contains(body, "there is no app &#34;nowhere&#34;") || !strings.Contains(body, "<li><a "+link+">billing</a></li>") {
			t.Errorf("%s: %s without %s", path, resp.Status, link)
		}
		checkPage(t, body)
	}
	s.fake.denied = "jobs.read"
	if resp, _ := s.do(t, "GET", "/hosts?app=nowhere", nil); resp.StatusCode != http.StatusOK {
		t.Errorf("with a token that may not list apps: %s", resp.Status)
	}
}

// TestSmallThings checks names of hosts, the duration of a run that goes on, and the code of
// a job without a module.
func TestSmallThings(t *testing.T) {
	f := newFake().populate()
	f.jobs = append(f.jobs, &apiv1.Job{App: "default", Name: "fetch", Handler: &apiv1.Handler{Name: "builtin:http"}})
	f.runs = append(f.runs, &apiv1.Run{Id: "01FETCH000000000000000000A", App: "default", Job: "fetch", State: "running", Handler: "builtin:http", StartedAt: timestamppb.New(time.Now().Add(-3 * time.Minute))})
	s := newSite(t, f).signIn(t)
	_, list := s.do(t, "GET", "/apps/default/runs", nil)
	if !strings.Contains(list, ">node-2</a>") || strings.Contains(list, ">host-b</a>") {
		t.Error("the list of runs shows ids of hosts")
	}
	if _, list := s.do(t, "GET", "/apps/default/runs?job=fetch", nil); !regexp.MustCompile(`>3m(\ds)?</td>`).MatchString(list) {
		t.Error("a run that goes on has no duration")
	}
	for path, want := range map[string]string{
		"/apps/default/jobs":                            `>builtin:http</td>`,
		"/apps/default/jobs/fetch":                      `<dd class="mono">builtin:http</dd>`,
		"/apps/default/runs/01FETCH000000000000000000A": `<dd class="mono">builtin:http</dd>`,
		"/apps/default/jobs/totals":                     `<dd class="mono">totals@1 · main</dd>`,
	} {
		if _, body := s.do(t, "GET", path, nil, "Cookie", columnsCookie+"=module"); !strings.Contains(body, want) {
			t.Errorf("%s does not hold %s", path, want)
		}
	}
	f.denied = "cluster.read"
	for _, open := range s.c.sessions.byKey {
		open.hosts.until = time.Time{}
	}
	if _, body := s.do(t, "GET", "/apps/default/runs", nil); !strings.Contains(body, ">host-b</a>") {
		t.Error("without the permission to list hosts there are no ids")
	}
}
