package console

import (
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// accessPages are the pages of access, audit and limits, with texts that each must contain.
func accessPages() map[string][]string {
	return map[string][]string{
		"/access/users":                     {"ada", "Service account", "app shop", "apps shop-*", "Disabled", "/access/users/ada/reset", `name="name"`, "Built in", "https://id.example", "/access/users/eve/disable"},
		"/access":                           {"ada", "Service account", `href="/access/users" aria-current="page"`},
		"/access/users/ada/reset":           {"Reset the password of ada?"},
		"/access/users/ci/disable":          {"Disable ci?"},
		"/access/bindings":                  {"bnd-1/remove", "apps shop-*", `name="expires"`, `<option value="ci">`, "in 3 d"},
		"/access/bindings/bnd-1/remove":     {"Remove the binding ada · developer · app:shop?"},
		"/access/tokens":                    {"tok-1/rotate", "tok-1/revoke", "Expired", "The former text ends", "prometheus", "never"},
		"/access/tokens/tok-1/rotate":       {"Rotate the token tok-1?", `name="keep"`, "deployer"},
		"/access/tokens/tok-1/revoke":       {"Revoke the token tok-1"},
		"/access/sessions":                  {"10.0.3.9", "/access/sessions/ses-2/end"},
		"/access/machines":                  {"press-1", "zone=a", "billing, shop", "modules, plugin:*", "10.0.3.9", "Not renewed, ends", "Ended", "join-1/revoke", "1\u202f234", "/access/machines/host-2/revoke", `name="uses"`, `<option value="server"`},
		"/access/machines/host-1/rename":    {"Rename press-1?", `value="press-1"`},
		"/access/machines/host-1/revoke":    {"Revoke the certificate of press-1 · host-1?", "lost host", "another join token"},
		"/access/machines/srv-3/revoke":     {"Revoke the certificate of north"},
		"/access/join-tokens/join-1/revoke": {"Revoke the join token join-1?"},
		"/access/roles":                     {"scraper", "reads metrics", "metrics.read", "jobs.read, runs.read", "What you may do"},
		"/audit":                            {"job.changed", "revision 2 → revision 3", "192.0.2.1", "Denied × 1\u202f234", "Failed", "page=after%267", "/audit/verify"},
		"/audit?actor=nothing&code=job.":    {"No event matches", `value="job."`},
		"/audit?since=2026-03-01T00%3A00":   {"since=2026-03-01T00%3A00&amp;zone=UTC"},
		"/apps/default/limits":              {"1\u202f900\u202f000", "95 %", `value="16GiB"`, `value="4GiB"`, "none"},
	}
}

// TestBuiltInPrincipals offers no change of a principal whose token is in a file of the server, and no
// password for a user of the provider.
func TestBuiltInPrincipals(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	_, body := s.do(t, "GET", "/access/users", nil)
	for _, refused := range []string{"/access/users/legacy-admin", "/access/users/eve/reset"} {
		if strings.Contains(body, refused) {
			t.Errorf("the page has %s", refused)
		}
	}
}

// TestRoleTexts checks that each role of the documentation, whose table a test of the policy writes, has a
// text on the page of the roles.
func TestRoleTexts(t *testing.T) {
	b, err := os.ReadFile("../docs/access.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(b), "<!-- the roles, written by a test -->\n")
	head, _, _ := strings.Cut(table, "\n")
	var documented []string
	for cell := range strings.SplitSeq(strings.Trim(head, "| "), "|") {
		if cell = strings.TrimSpace(cell); cell != "permission" && cell != "allows to" {
			documented = append(documented, cell)
		}
	}
	if len(documented) < 9 {
		t.Fatalf("the documentation has the roles %v", documented)
	}
	texts, err := loadCatalogue("en")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range documented {
		if texts["role."+name] == "" {
			t.Errorf("no text for the role %s", name)
		}
	}
}

// TestSecretsAreShownOnce makes passwords and tokens: the answer shows them, and nothing else does.
func TestSecretsAreShownOnce(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	for _, tt := range []struct{ path, form, secret, subject string }{
		{"/access/users", "name=+eve+", oncePassword, "eve"},
		{"/access/users/ada/reset", "", oncePassword, "ada"},
		{"/access/tokens", "name=build&role=deployer&kind=app&scoped=shop&ttl=30d", onceToken, "build"},
		{"/access/tokens/tok-1/rotate", "keep=1h&ttl=", onceToken, "ci"},
	} {
		resp, body := s.post(t, tt.path, tt.form)
		if resp.StatusCode != http.StatusOK || !strings.Contains(body, tt.secret) || !strings.Contains(body, tt.subject) {
			t.Errorf("POST %s: %s, the secret is shown: %t", tt.path, resp.Status, strings.Contains(body, tt.secret))
		}
		checkPage(t, body)
		if got := resp.Header.Get("Cache-Control"); got != "no-store" {
			t.Errorf("POST %s: Cache-Control %q", tt.path, got)
		}
		for name, values := range resp.Header {
			if strings.Contains(strings.Join(values, " "), tt.secret) {
				t.Errorf("POST %s: the header %s has the secret", tt.path, name)
			}
		}
		if strings.Count(body, tt.secret) != 1 {
			t.Errorf("POST %s shows the secret %d times", tt.path, strings.Count(body, tt.secret))
		}
	}
	for path := range accessPages() {
		if _, body := s.do(t, "GET", path, nil); strings.Contains(body, oncePassword) || strings.Contains(body, onceToken) {
			t.Errorf("%s shows a secret", path)
		}
	}
	if s.logged.Len() > 0 {
		t.Errorf("logged: %s", s.logged)
	}
	if q := asked1[*apiv1.CreateTokenRequest](t, s.fake); q.Name != "build" || q.Role != "deployer" || q.Scope != "app:shop" || q.Ttl != "30d" {
		t.Errorf("the form of a token asks for %v", q)
	}
	if q := asked1[*apiv1.RotateTokenRequest](t, s.fake); q.Id != "tok-1" || q.Keep != "1h" || q.Ttl != "" {
		t.Errorf("the form of a rotation asks for %v", q)
	}
	if q := asked1[*apiv1.CreateUserRequest](t, s.fake); q.Name != "eve" {
		t.Errorf("the form of a user asks for %v", q)
	}
}

// TestAccessForms sends each form that redirects. The next page confirms it once.
func TestAccessForms(t *testing.T) {
	f := newFake().populate()
	s := newSite(t, f).signIn(t)
	for _, tt := range []struct{ path, form, want string }{
		{"/access/users/ci/disable", "", "Disabled: ci"},
		{"/access/users/ci/enable", "", "Enabled: ci"},
		{"/access/bindings?app=billing", "principal=ci&role=operator&kind=app-prefix&scoped=shop-&expires=2026-12-01T10:00&zone=Asia%2FShanghai", "Added: ci · operator · app-prefix:shop-"},
		{"/access/bindings", "principal=ci&role=viewer&kind=cluster&scoped=ignored", "Added: ci · viewer · cluster"},
		{"/access/bindings/bnd-1/remove", "", "The binding is removed."},
		{"/access/tokens/tok-2/revoke", "", "Revoked: tok-2"},
		{"/access/sessions/ses-2/end", "", "The session is ended."},
		{"/apps/billing/limits", "jobs=100+000&queued-runs=&live-runs=50&bytes=2+GiB&module-bytes=512mib", "The limits are saved."},
	} {
		resp, body := s.post(t, tt.path, tt.form)
		to := resp.Header.Get("Location")
		if resp.StatusCode != http.StatusSeeOther {
			t.Errorf("POST %s: %s\n%s", tt.path, resp.Status, body)
			continue
		}
		if strings.Contains(tt.path, "billing") != strings.Contains(to, "billing") {
			t.Errorf("POST %s leads to %s, in another app", tt.path, to)
		}
		_, body = s.do(t, "GET", to, nil)
		if !strings.Contains(body, tt.want) {
			t.Errorf("after POST %s there is no %q", tt.path, tt.want)
		}
		checkPage(t, body)
		if _, body = s.do(t, "GET", to, nil); strings.Contains(body, tt.want) {
			t.Errorf("a reload repeats %q", tt.want)
		}
	}
	if b := f.bindings[len(f.bindings)-2]; b.Scope != "app-prefix:shop-" || b.ExpiresAt.AsTime().Format("2006-01-02T15:04Z") != "2026-12-01T02:00Z" {
		t.Errorf("the binding is %v", b)
	}
	if b := f.bindings[len(f.bindings)-1]; b.Scope != "cluster" || b.ExpiresAt != nil {
		t.Errorf("the binding is %v", b)
	}
	if l := f.limits; l.Jobs != 100000 || l.QueuedRuns != 0 || l.LiveRuns != 50 || l.Bytes != 2<<30 || l.ModuleBytes != 512<<20 {
		t.Errorf("the limits are %v", l)
	}
	if !slices.Equal(f.ended, []string{"ses-2"}) || len(f.tokens) != 2 {
		t.Errorf("sessions %v were ended, %d tokens are left", f.ended, len(f.tokens))
	}
}

// TestRefusedAccessForms sends forms that the API refuses: the page shows the reason beside the form,
// with the input.
func TestRefusedAccessForms(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	for _, tt := range []struct{ path, form, reason, kept string }{
		{"/access/users", "name=ada", "choose another one", `value="ada"`},
		{"/access/bindings", "principal=ci&role=admin&kind=app&scoped=shop&zone=UTC", "may not give the role admin", `value="admin" selected`},
		{"/access/bindings", "principal=ci&role=viewer&kind=app&scoped=shop&zone=UTC&expires=tomorrow", "is not a time", `value="tomorrow"`},
		{"/access/tokens", "name=build&role=producer&kind=app-prefix&scoped=s&ttl=soon", "write 90d or 12h", `value="soon"`},
		{"/access/tokens/tok-1/rotate", "keep=40d", "30d at most", `value="40d"`},
		{"/apps/default/limits", "jobs=" + url.QueryEscape(evil), "is not a number", "&lt;script&gt;"},
		{"/apps/default/limits", "module-bytes=x&bytes=y&live-runs=z&jobs=first", "jobs: &#34;first&#34;", `value="z"`},
		{"/apps/default/limits", "bytes=many", "is not a size", `value="many"`},
		{"/apps/default/limits", "bytes=99999999999TiB", "is not a size", `value="99999999999TiB"`},
	} {
		resp, body := s.post(t, tt.path, tt.form)
		if resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, tt.reason) || !strings.Contains(body, tt.kept) || !strings.Contains(body, `role="alert"`) || strings.Contains(body, "rpc error") {
			t.Errorf("POST %s %s: %s\n%s", tt.path, tt.form, resp.Status, body)
		}
		checkPage(t, body)
	}
	for _, path := range []string{"/access/users/nobody-here/reset", "/access/bindings/bnd-0/remove", "/access/tokens/tok-0/rotate", "/access/tokens/tok-0/revoke"} {
		if resp, _ := s.do(t, "GET", path, nil); resp.StatusCode != http.StatusNotFound {
			t.Errorf("GET %s: %s", path, resp.Status)
		}
	}
	if resp, body := s.do(t, "GET", "/audit?since=tomorrow", nil); resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, "is not a time") || !strings.Contains(body, `value="tomorrow"`) {
		t.Errorf("a filter with a wrong time: %s", resp.Status)
	}
	for _, path := range []string{"/access/users", "/access/tokens/tok-1/revoke", "/audit/verify", "/apps/default/limits"} {
		if resp, _ := s.post(t, path, "name=eve", "Sec-Fetch-Site", "cross-site"); resp.StatusCode != http.StatusForbidden {
			t.Errorf("POST %s from another site: %s", path, resp.Status)
		}
	}
	if len(s.fake.principals) != 5 || len(s.fake.tokens) != 3 {
		t.Error("a refused form changed something")
	}
}

// TestAuditFilters compares the filter of the address with the request and with the link to the next page.
func TestAuditFilters(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	_, body := s.do(t, "GET", "/audit?actor=bob&code=session.&about=shop&since=2026-03-01T08:00&until=2026-03-02T08:00&zone=Asia%2FShanghai", nil)
	r := s.fake.auditAsked
	if r.Actor != "bob" || r.Code != "session." || r.App != "shop" || r.Since.AsTime().Format("02T15") != "01T00" || r.Until.AsTime().Format("02T15") != "02T00" {
		t.Errorf("the request is %v", r)
	}
	for _, want := range []string{"× 5", "actor=bob&amp;", "code=session.&amp;", "about=shop&amp;", "page=after%267"} {
		if !strings.Contains(body, want) {
			t.Errorf("there is no %q", want)
		}
	}
	checkPage(t, body)
	if s.do(t, "GET", "/audit?page=after%267", nil); s.fake.auditAsked.PageToken != "after&7" {
		t.Errorf("the page is %q", s.fake.auditAsked.PageToken)
	}
}

func TestVerifyAudit(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	resp, body := s.post(t, "/audit/verify", "")
	for _, want := range []string{"Intact", "Broken at 5", "event 5 was changed", "9\u202f123", "abcdef012345"} {
		if !strings.Contains(body, want) {
			t.Errorf("%s: there is no %q", resp.Status, want)
		}
	}
	checkPage(t, body)
}

// TestNothingForbiddenIsOffered shows each page to a viewer: none has a form that changes something, or a
// link to one.
func TestNothingForbiddenIsOffered(t *testing.T) {
	viewer := []string{"jobs.read", "runs.read", "modules.read", "revisions.read", "cluster.read", "queues.read", "secrets.read"}
	s := newSite(t, newFake().populate())
	s.fake.may = viewer
	s.signIn(t)
	for path := range pages() {
		if slices.ContainsFunc([]string{"cordon", "/drain", "/undrain", "/move", "/split", "/merge", "/cluster/backup"}, func(end string) bool { return strings.HasSuffix(path, end) }) || strings.Contains(path, "/delete?") {
			continue // likewise
		}
		ofAccess := (strings.HasPrefix(path, "/access") || strings.HasPrefix(path, "/audit")) && path != "/access/sessions"
		if ofAccess || strings.HasSuffix(path, "/delete") || strings.HasSuffix(path, "/purge") || strings.Contains(path, "/drop") || strings.Contains(path, "/cancel") || strings.Contains(path, "/rollback") || strings.HasSuffix(path, "/backfill") {
			continue // forms that no page of a viewer leads to
		}
		resp, body := s.do(t, "GET", path, nil)
		if editor := strings.HasSuffix(path, "/edit") || strings.Contains(path, "/jobs/new"); editor && resp.StatusCode == http.StatusForbidden {
			continue
		}
		for _, part := range strings.Split(body, `method="post"`)[1:] {
			head, _, _ := strings.Cut(part, "</form>")
			if strings.Contains(head, `name="theme"`) || strings.Contains(head, `name="zone"`) || strings.Contains(head, `name="columns"`) || strings.Contains(head, "Sign out") || strings.Contains(head, ">End<") && path == "/access/sessions" {
				continue
			}
			t.Errorf("%s offers a form:\n%.300s", path, head)
		}
		for _, forbidden := range []string{`/delete"`, `/purge"`, "/drop", "/cancel", `/rollback"`, `/backfill"`, `/edit"`, "/jobs/new", "/access/users", `href="/audit`, `id="log"`, `/input"`, "/enable", "/disable", `cordon"`, `/drain"`, `/undrain"`, `/move"`, `/split"`, `/merge"`} {
			if strings.Contains(body, forbidden) {
				t.Errorf("%s offers %s", path, forbidden)
			}
		}
	}
}

// TestOffersOfOneApp gives permissions in one app: they are offered there, and not elsewhere.
func TestOffersOfOneApp(t *testing.T) {
	s := newSite(t, newFake().populate())
	s.fake.may, s.fake.scope = []string{"jobs.read", "runs.read", "jobs.trigger", "jobs.operate", "access.read", "access.write", "audit.read"}, "app:default"
	s.signIn(t)
	for path, wants := range map[string]map[string]bool{
		"/apps/default/jobs/totals": {"/jobs/totals/run": true, "/jobs/totals/pause": true, "/jobs/totals/delete": false, `href="/cluster`: false, `href="/dead-letters`: false, "/access/users": true, `href="/audit`: true},
		"/apps/default/limits":      {`name="jobs"`: false, "An administrator of the cluster": true},
		"/apps/billing/modules":     {`name="manifest"`: false},
		"/access/users":             {"Create a user": false, "/reset": false, "/disable": false},
		"/access/bindings":          {"bnd-1/remove": false, `name="principal"`: true},
		"/access/sessions":          {"ses-1/end": true, "ses-2/end": false},
		"/audit":                    {"/audit/verify": false},
	} {
		_, body := s.do(t, "GET", path, nil)
		for text, want := range wants {
			if strings.Contains(body, text) != want {
				t.Errorf("%s: %q is on the page: %t", path, text, !want)
			}
		}
	}
}

// TestMay compares permissions in scopes.
func TestMay(t *testing.T) {
	own := func(scope string, permissions ...string) visitor {
		return visitor{&apiv1.Principal{Bindings: []*apiv1.Binding{{Scope: "app:other", Permissions: []string{"jobs.read"}}, {Scope: scope, Permissions: permissions}}}}
	}
	for _, tt := range []struct {
		x     visitor
		scope string
		want  bool
	}{
		{own("cluster", "access.write"), "app-prefix:s", true},
		{own("cluster", "access.read"), "cluster", false},
		{own("app-prefix:shop-", "access.write"), "app:shop-1", true},
		{own("app-prefix:shop-", "access.write"), "app-prefix:shop-e", true},
		{own("app-prefix:shop-", "access.write"), "app-prefix:shop", false},
		{own("app-prefix:shop-", "access.write"), "cluster", false},
		{own("app:shop", "access.write"), "app:shop", true},
		{own("app:shop", "access.write"), "app-prefix:shop", false},
		{own("of a newer version", "access.write"), "of a newer version", false},
		{own("app:shop"), "cluster", false},
		{own("app:shop"), "app:shop", true}, // an older server tells no permissions
		{visitor{}, "cluster", true},
		{visitor{&apiv1.Principal{}}, "cluster", false},
		{visitor{&apiv1.Principal{Bindings: []*apiv1.Binding{{Role: "viewer", Scope: "cluster"}}}}, "cluster", true},
	} {
		if got := tt.x.MayIn("access.write", tt.scope); got != tt.want {
			t.Errorf("%v in %s: %t", tt.x.who, tt.scope, got)
		}
	}
}

func TestSizesReadBack(t *testing.T) {
	for _, n := range []int64{1, 1023, 1 << 10, 3 << 20, 16 << 30, 5<<40 + 1} {
		if got, err := parseSize(exactSize(n), true); err != nil || got != n {
			t.Errorf("%d is written as %s, read as %d, %v", n, exactSize(n), got, err)
		}
	}
	for _, bad := range []string{"-1", "1.5GiB", "GiB", "9223372036854775807KiB"} {
		if got, err := parseSize(bad, true); err == nil {
			t.Errorf("%s is read as %d", bad, got)
		}
	}
}

// TestMySessions shows the sessions to a user without access.read: its own are marked and can be ended, and
// the page has no tabs.
func TestMySessions(t *testing.T) {
	s := newSite(t, newFake().populate())
	s.fake.may, s.fake.session = []string{"jobs.read"}, "ses-1"
	s.fake.fakeAccess.sessions = append(s.fake.fakeAccess.sessions[:1:1], &apiv1.Session{Id: "ses-3", Principal: "ada", Program: "cli"})
	s.signIn(t)
	_, body := s.do(t, "GET", "/access/sessions", nil)
	for text, want := range map[string]bool{"My sessions</h1>": true, "this one": true, "ses-1/end": true, "ses-3/end": true, `class="tabs"`: false} {
		if strings.Contains(body, text) != want {
			t.Errorf("%q is on the page: %t", text, !want)
		}
	}
	checkPage(t, body)
}
