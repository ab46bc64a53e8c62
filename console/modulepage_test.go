package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// modulePages returns the addresses of the pages of modules, with texts that each must contain.
func modulePages() map[string][]string {
	return map[string][]string{
		"/apps/default/modules/totals": {
			"4-rc", "abababababab", "ed25519:O2onvM62pC1i", "Not granted:", "http POST api.example.com /in/", "secret gateway-key", "files /tmp write 16.0 MiB",
			"<ins>wheelwork_v1.kv_put</ins>", "Version 4-rc compared with 3", "Promote 4-rc to all runs", "Failed: 4.7 %", "Hosts that have it ready: 1 of 2", "no room on the disk",
			"/versions/4-rc/bytes", "/versions/3/delete", "kind: Grant", "bucket state write", `name="revision" value="5"`,
		},
		"/apps/default/modules/totals?from=1&to=4-rc":      {"Version 4-rc compared with 1", "<del>wasi_snapshot_preview1.fd_write</del>"},
		"/apps/default/modules/totals?version=3":           {"Version 3 on the hosts"},
		"/apps/default/modules/totals?grant=4-rc":          {"has what version 4-rc requests", "enqueue:", "- settle"},
		"/apps/default/modules/report":                     {"Bytes collected", "Nothing is granted."},
		"/apps/default/modules/totals/jobs":                {"totals", "by-hand", "Jobs looked at:", "of these use the module:"},
		"/apps/default/modules/totals/versions/3/delete":   {"Delete the version totals@3?"},
		"/apps/default/modules/totals/aliases/prod/delete": {"Delete the alias totals@prod?"},
		"/apps/default/collect":                            {"Versions that go: 1, with 2.0 MiB", "totals@1", "Versions that stay: 5"},
		"/apps/default/collect?age=720h":                   {"Versions that go: 0"},
		"/apps/default/modules/nothing/jobs":               {"None of these jobs uses the module."},
		"/apps/default/modules/late-fees":                  {`href="/apps/default/scripts/late-fees"`, `href="/apps/default/scripts/late-fees?version=6"`},
		"/apps/default/scripts":                            {"New script", "export default function main(ctx)", `name="version" value="1"`, "language=python"},
		"/apps/default/scripts?language=python":            {"def main(ctx):", `value="main.py"`},
		"/apps/default/scripts/late-fees":                  {"Edit late-fees", "return 6; // &lt;script&gt;", "export const rate", `value="lib/rate.js"`, `name="version" value="8"`, "- fees", "bucket fees write", "Valid"},
		"/apps/default/scripts/late-fees?version=6":        {"return 5", `name="version" value="8"`, `name="base" value="6"`, `name="seen" value="7"`},
	}
}

func TestModulePageIsMissing(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	for path, want := range map[string]string{
		"/apps/default/modules/none":                          "there is no module &#34;none&#34; in app default",
		"/apps/default/modules/totals?from=9":                 "module totals has no version &#34;9&#34;",
		"/apps/default/modules/totals/versions/9/bytes":       "there is no module totals@9",
		"/apps/default/modules/totals/aliases/nothing/delete": "there is no alias totals@nothing",
	} {
		resp, body := s.do(t, "GET", path, nil)
		if resp.StatusCode != http.StatusNotFound || !strings.Contains(body, want) {
			t.Errorf("%s: %s, want %q", path, resp.Status, want)
		}
		checkPage(t, body)
	}
}

// TestModuleAlias moves an alias with each of its buttons and checks the calls.
func TestModuleAlias(t *testing.T) {
	const here, prod = "/apps/default/modules/totals", "/apps/default/modules/totals/aliases/prod"
	for name, c := range map[string]struct {
		path, form string
		want       *apiv1.SetAliasRequest
	}{
		"share":   {prod, "do=share&percent=25", &apiv1.SetAliasRequest{App: "default", Module: "totals", Name: "prod", Canary: &apiv1.Canary{Version: "4-rc", Percent: 25}}},
		"promote": {prod, "do=promote&revision=0", &apiv1.SetAliasRequest{App: "default", Module: "totals", Name: "prod", Version: "4-rc"}},
		"end":     {prod, "do=end", &apiv1.SetAliasRequest{App: "default", Module: "totals", Name: "prod", EndCanary: true}},
		"set": {here + "/aliases", "alias=next&version=3&canary=4-rc&percent=5&min_attempts=50&max_failure=2&window=15m&when_ready=yes", &apiv1.SetAliasRequest{
			App: "default", Module: "totals", Name: "next", Version: "3", WhenReady: true, Canary: &apiv1.Canary{Version: "4-rc", Percent: 5, MinAttempts: 50, MaxFailure: 0.02, Window: "15m"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, newFake().populate()).signIn(t)
			resp, body := s.post(t, c.path, c.form)
			if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != here {
				t.Fatalf("%s to %q\n%s", resp.Status, resp.Header.Get("Location"), body)
			}
			var sent *apiv1.SetAliasRequest
			for _, m := range s.fake.asked {
				if r, ok := m.(*apiv1.SetAliasRequest); ok {
					sent = r
				}
			}
			if !proto.Equal(sent, c.want) {
				t.Errorf("the call was %v, want %v", sent, c.want)
			}
			if _, body := s.do(t, "GET", here, nil); !strings.Contains(body, `<p class="alert ok" role="status">`) {
				t.Error("the page says nothing of the change")
			}
		})
	}
}

// TestModuleAliasGoesBack promotes a version and rolls back to the former one.
func TestModuleAliasGoesBack(t *testing.T) {
	const here, prod = "/apps/default/modules/totals", "/apps/default/modules/totals/aliases/prod"
	s := newSite(t, newFake().populate()).signIn(t)
	s.post(t, prod, "do=promote")
	if _, body := s.do(t, "GET", here, nil); !strings.Contains(body, ">Roll back to 3</button>") {
		t.Fatal("the page does not offer the former version")
	}
	s.post(t, prod, "do=back&revision=1")
	if _, a := s.fake.alias("totals", "prod"); a.Version != "3" || a.Canary != nil {
		t.Errorf("the alias is %v", a)
	}
}

func TestModuleAliasIsRefused(t *testing.T) {
	const prod = "/apps/default/modules/totals/aliases/prod"
	s := newSite(t, newFake().populate()).signIn(t)
	for form, want := range map[string]string{
		"do=promote&revision=7":   "another caller has changed the alias prod meanwhile",
		"do=share&percent=150":    "150 % is not above 0 and below 100",
		"do=share&percent=much":   "percent: &#34;much&#34; is not a number",
		"do=back":                 "the alias prod has no former version",
		"do=nothing":              "is not share, promote, end or back",
		"do=share&percent=%2BInf": "is not a number",
	} {
		resp, body := s.post(t, prod, form)
		if resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, want) {
			t.Errorf("%s: %s, want %q", form, resp.Status, want)
		}
		checkPage(t, body)
	}
	resp, body := s.post(t, "/apps/default/modules/totals/aliases", "alias=next&version=3&canary=4-rc&percent=5&min_attempts=few")
	if resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, `value="few"`) || !strings.Contains(body, `<details class="part" open="">`) {
		t.Errorf("a form with a mistake: %s\n%s", resp.Status, body)
	}
	if _, a := s.fake.alias("totals", "prod"); a.Canary.GetPercent() != 12.5 || a.Version != "3" {
		t.Errorf("a refused form changed the alias: %v", a)
	}
}

// TestModuleDeletionIsRefused: what names a version or an alias is shown before a deletion is forced.
func TestModuleDeletionIsRefused(t *testing.T) {
	for path, gone := range map[string]func(*fakeAPI) bool{
		"/apps/default/modules/totals/versions/3/delete":   func(f *fakeAPI) bool { return f.modules[2].CollectedAt != nil },
		"/apps/default/modules/totals/aliases/prod/delete": func(f *fakeAPI) bool { _, a := f.alias("totals", "prod"); return a == nil },
	} {
		s := newSite(t, newFake().populate()).signIn(t)
		s.fake.users = []string{"job totals", "alias totals@prod"}
		resp, body := s.post(t, path, "")
		if resp.StatusCode != http.StatusConflict || gone(s.fake) || !strings.Contains(body, `<a href="/apps/default/jobs/totals">job totals</a>`) || !strings.Contains(body, `name="force" value="yes"`) {
			t.Errorf("%s: %s\n%s", path, resp.Status, body)
		}
		checkPage(t, body)
		resp, _ = s.post(t, path, "force=yes")
		if resp.StatusCode != http.StatusSeeOther || !gone(s.fake) {
			t.Errorf("%s, forced: %s", path, resp.Status)
		}
	}
}

func TestModuleGrants(t *testing.T) {
	const here = "/apps/default/modules/totals"
	s := newSite(t, newFake().populate()).signIn(t)
	set := func(revision, text string) (*http.Response, string) {
		return s.post(t, here+"/grants", url.Values{"revision": {revision}, "text": {strings.ReplaceAll(text, "\n", "\r\n")}}.Encode())
	}
	for text, want := range map[string]string{
		"kind: Grant\nmodule: totals\ngrants:\n  sekrets: [x]\n": "4: ",
		"kind: Grant\nmodule: other\n":                           "this page is about module totals of app default",
		"kind: Job\nname: x\n":                                   "Refused:",
		"":                                                       "want one document, found 0",
		"kind: Grant\nmodule: totals\ngrants:\n  kv: [{name: \"\"}]\n": "the bucket has no name",
	} {
		resp, body := set("5", text)
		if resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, want) {
			t.Errorf("%q: %s, want %q\n%s", text, resp.Status, want, body)
		}
		checkPage(t, body)
	}
	const text = "kind: Grant\nmodule: totals\ngrants:\n  enqueue: [settle]\n"
	if resp, body := set("4", text); resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, "another caller has changed the grants meanwhile") || s.fake.grants.Revision != 5 {
		t.Errorf("grants from an old page: %s", resp.Status)
	}
	if resp, _ := set("5", text); resp.StatusCode != http.StatusSeeOther || !strings.Contains(strings.Join(capabilities(s.fake.grants.Grants), ";"), "enqueue settle") || len(s.fake.grants.Grants.Secrets) > 0 {
		t.Errorf("grants: %s, now %v", resp.Status, s.fake.grants)
	}
}

func TestModuleDownload(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	resp, body := s.do(t, "GET", "/apps/default/modules/totals/versions/4-rc/bytes", nil)
	if body != "\x00asmrest" || !strings.HasPrefix(resp.Header.Get("Content-Disposition"), "attachment; filename=") {
		t.Errorf("%s, %q: %q", resp.Status, resp.Header.Get("Content-Disposition"), body)
	}
	if resp, body := s.do(t, "GET", "/apps/default/modules/report/versions/2.1/bytes", nil); resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, "the bytes were deleted") {
		t.Errorf("deleted bytes: %s", resp.Status)
	}
}

// TestModuleJobsAreBounded: a page looks through a bounded number of jobs and offers to go on.
func TestModuleJobsAreBounded(t *testing.T) {
	f := newFake().populate()
	f.manyJobs(3)
	s := newSite(t, f).signIn(t)
	f.mu.Lock()
	f.endless = true
	f.asked = nil
	f.mu.Unlock()
	_, body := s.do(t, "GET", "/apps/default/modules/other/jobs", nil)
	calls := 0
	for _, m := range f.asked {
		if _, ok := m.(*apiv1.ListJobsRequest); ok {
			calls++
		}
	}
	if calls != maxLooks || !strings.Contains(body, ">Continue</a>") {
		t.Errorf("%d calls, want %d\n%s", calls, maxLooks, body)
	}
}

// TestModulePageWithoutPermissions: a visitor who may only read sees no form and no button.
func TestModulePageWithoutPermissions(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	s.fake.may = []string{"modules.read", "jobs.read"}
	_, body := s.do(t, "GET", "/apps/default/modules/totals", nil)
	for _, not := range []string{`method="post" action="/apps/default/modules`, "/delete", "Set an alias"} {
		if strings.Contains(body, not) {
			t.Errorf("the page of a viewer has %s", not)
		}
	}
	checkPage(t, body)
}

// TestModuleCollect: the page shows what a collection would delete and deletes nothing; its form does.
func TestModuleCollect(t *testing.T) {
	const here = "/apps/default/collect"
	s := newSite(t, newFake().populate()).signIn(t)
	if s.do(t, "GET", here, nil); s.fake.modules[0].CollectedAt != nil {
		t.Fatal("to look at the page collects modules")
	}
	for method, resp := range map[string]func() (*http.Response, string){
		"GET":  func() (*http.Response, string) { return s.do(t, "GET", here+"?age=soon", nil) },
		"POST": func() (*http.Response, string) { return s.post(t, here, "age=soon") },
	} {
		resp, body := resp()
		if resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, "is not a time, as 24h") || !strings.Contains(body, `value="soon"`) {
			t.Errorf("%s: %s", method, resp.Status)
		}
		checkPage(t, body)
	}
	if resp, _ := s.post(t, here, "age=24h"); resp.StatusCode != http.StatusSeeOther || s.fake.modules[0].CollectedAt == nil {
		t.Fatalf("collect: %s", resp.Status)
	}
	if _, body := s.do(t, "GET", here, nil); !strings.Contains(body, "Collected: 1 · 2.0 MiB freed") || strings.Contains(body, `method="post" action="`+here) {
		t.Error("the page after a collection")
	}
	s2 := newSite(t, newFake().populate())
	s2.fake.may = []string{"modules.read"}
	s2.signIn(t)
	if resp, _ := s2.do(t, "GET", here, nil); resp.StatusCode != http.StatusForbidden {
		t.Errorf("a viewer: %s", resp.Status)
	}
}
