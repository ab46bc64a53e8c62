package console

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

const (
	newPage  = "/apps/default/jobs/new"
	editPage = "/apps/default/jobs/totals/edit"
)

// textIn returns the document in the text area of a page.
func textIn(t *testing.T, body string) string {
	t.Helper()
	_, rest, ok := strings.Cut(body, `<textarea id="yaml"`)
	if !ok {
		t.Fatalf("the page has no text:\n%s", body)
	}
	_, rest, _ = strings.Cut(rest, ">\n")
	text, _, _ := strings.Cut(rest, "</textarea>")
	return strings.NewReplacer("&lt;", "<", "&gt;", ">", "&#34;", `"`, "&#39;", "'", "&#43;", "+", "&amp;", "&").Replace(text)
}

// step posts the form of the editor, as a browser does.
func (s *site) step(t *testing.T, path, do, text string, more ...string) (*http.Response, string) {
	t.Helper()
	form := url.Values{"do": {do}, "text": {strings.ReplaceAll(text, "\n", "\r\n")}}
	for i := 0; i+1 < len(more); i += 2 {
		form.Set(more[i], more[i+1])
	}
	resp, body := s.post(t, path, form.Encode())
	if resp.StatusCode != http.StatusSeeOther {
		checkPage(t, body)
	}
	return resp, body
}

// accepts reports whether the check finds no problem in a text.
func (s *site) accepts(t *testing.T, page, text string) bool {
	t.Helper()
	_, body := s.step(t, page, "check", text)
	return !strings.Contains(body, `class="problems"`)
}

// TestCheckJob checks texts with mistakes of every kind. The page has the line of each, and the
// text as it was typed.
func TestCheckJob(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret.txt")
	if err := os.WriteFile(secret, []byte("a secret of the server"), 0o600); err != nil {
		t.Fatal(err)
	}
	const handler = "handler: {module: totals@1}\n"
	for name, c := range map[string]struct {
		page, text string
		wants      []string
	}{
		"valid":             {newPage, "name: a\n" + handler + "schedule: {cron: '0 2 * * *', zone: Europe/Berlin}\n", []string{">Valid<", "At 02:00, every day (Europe/Berlin)", "CST</time>"}},
		"without schedule":  {newPage, "name: a\n" + handler, []string{">Valid<", "Only when triggered"}},
		"paused":            {newPage, "name: a\npaused: true\nschedule: {every: 1m}\n" + handler, []string{"its schedule starts no runs"}},
		"not YAML":          {newPage, "name: a\n\tb: c\n", []string{`data-line="2"`, "is not YAML"}},
		"unknown field":     {newPage, "name: a\n" + handler + "tiemout: 3s\n", []string{`data-line="3"`, "did you mean &#34;timeout&#34;"}},
		"two mistakes":      {newPage, "name: a\npriority: 99\ntimeout: long\n", []string{"Problems: 2", `data-line="2"`, `data-line="3"`}},
		"of the API":        {newPage, "name: a\nhandler: {name: main}\n", []string{`data-line="2"`, "the job has no handler"}},
		"empty":             {newPage, " ", []string{"the text is empty"}},
		"two documents":     {newPage, "name: a\n" + handler + "---\nname: b\n" + handler, []string{`data-line="4"`, "found 2"}},
		"another kind":      {newPage, "kind: Calendar\nname: a\n", []string{`data-line="1"`, "kind is Calendar"}},
		"another app":       {newPage, "app: shop\nname: a\n" + handler, []string{`data-line="1"`, "this page is about app default"}},
		"a file":            {newPage, "name: a\n" + handler + "inputFile: " + secret + "\n", []string{`data-line="3"`, "no file can be read here"}},
		"markup":            {newPage, "name: " + evil + "\n", []string{"&lt;script&gt;"}},
		"a name in use":     {newPage, handler + "name: totals\n", []string{`data-line="2"`, "job totals exists"}},
		"rename":            {editPage, handler + "name: other\n", []string{`data-line="2"`, "cannot change: clone the job"}},
		"a line break atop": {newPage, "\n\nname: [\n", []string{"is not YAML"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, newFake().populate()).signIn(t)
			s.post(t, "/preferences", "zone=Asia/Shanghai")
			before := len(s.fake.jobs)
			for do, code := range map[string]int{"check": http.StatusOK, "review": http.StatusUnprocessableEntity, "save": http.StatusUnprocessableEntity} {
				if valid := s.accepts(t, c.page, c.text); valid && do != "check" {
					continue // the review has another page
				}
				resp, body := s.step(t, c.page, do, c.text)
				if resp.StatusCode != code {
					t.Errorf("%s: %s, want %d", do, resp.Status, code)
				}
				for _, want := range c.wants {
					if !strings.Contains(body, want) {
						t.Errorf("%s: the page does not hold %s:\n%s", do, want, body)
					}
				}
				if strings.Contains(body, "a secret of") {
					t.Error("the page has a file of the server")
				}
				if got := textIn(t, body); got != c.text {
					t.Errorf("%s: the text is %q, want %q", do, got, c.text)
				}
			}
			if len(s.fake.jobs) != before {
				t.Error("a check saved a job")
			}
		})
	}
}

func TestCreateAndCloneJob(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	_, body := s.do(t, "GET", newPage, nil)
	resp, body := s.step(t, newPage, "review", textIn(t, body))
	if resp.StatusCode != http.StatusOK || !strings.Contains(body, "Create the job my-job?") || !strings.Contains(body, "<ins>totals@1</ins>") || s.fake.job("my-job") != nil {
		t.Fatalf("review: %s\n%s", resp.Status, body)
	}
	const text = "name: my-job\nhandler: {module: totals@1}\n"
	resp, body = s.step(t, newPage, "save", text, "note", strings.Repeat("é", 251))
	if resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, "The note has 502 bytes") || s.fake.job("my-job") != nil {
		t.Errorf("a long note: %s", resp.Status)
	}
	const note = "100 % new:\né 任务"
	resp, _ = s.step(t, newPage, "save", text, "note", strings.ReplaceAll(note, "\n", "\r\n"))
	if got := resp.Header.Get("Location"); resp.StatusCode != http.StatusSeeOther || got != "/apps/default/jobs/my-job" {
		t.Fatalf("save: %s to %q", resp.Status, got)
	}
	if r := s.fake.revisions["my-job"][0]; r.Note != note || r.Cause != "console" || r.Job.Handler.Module != "totals@1" {
		t.Errorf("the revision is %v", r)
	}
	if _, body = s.do(t, "GET", "/apps/default/jobs/my-job", nil); !strings.Contains(body, "The job is saved.") || !strings.Contains(body, `href="/apps/default/jobs/my-job/edit"`) || !strings.Contains(body, `href="/apps/default/jobs/new?from=my-job"`) {
		t.Error("the page of the job does not say so, or lacks its buttons")
	}

	s.fake.change(func() { s.fake.job("totals").Labels[ownerLabel] = "team" })
	if _, body = s.do(t, "GET", newPage+"?from=totals", nil); strings.Contains(textIn(t, body), ownerLabel) || !strings.Contains(textIn(t, body), "team: billing") {
		t.Errorf("the copy has the labels of\n%s", textIn(t, body))
	}
	if _, body = s.do(t, "GET", editPage, nil); !strings.Contains(textIn(t, body), ownerLabel) || !strings.Contains(body, "belongs to the documents of “team”") {
		t.Error("the editor does not say that other documents have the job")
	}
	if resp, _ = s.do(t, "GET", newPage+"?from=none", nil); resp.StatusCode != http.StatusNotFound {
		t.Errorf("a copy of no job: %s", resp.Status)
	}
	s.fake.change(func() { s.fake.modules = nil })
	if _, body = s.do(t, "GET", newPage, nil); !strings.Contains(textIn(t, body), "builtin:http") {
		t.Errorf("without a module the text is\n%s", textIn(t, body))
	}
}

func TestEditJob(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	_, body := s.do(t, "GET", editPage, nil)
	etag, text := etagIn(t, body), textIn(t, body)
	if _, body = s.step(t, editPage, "review", text, "etag", etag); !strings.Contains(body, "there is nothing to save") || strings.Contains(body, `value="save"`) {
		t.Errorf("the same text can be saved:\n%s", body)
	}
	text = strings.Replace(text, "timeout: 30s", "timeout: 45s", 1)
	_, body = s.step(t, editPage, "review", text, "etag", etag, "revision", "4")
	if !strings.Contains(body, "<del>30s</del>") || !strings.Contains(body, "<ins>45s</ins>") || strings.Count(body, "<ins>") != 1 {
		t.Errorf("the review:\n%s", body)
	}
	if _, body = s.step(t, editPage, "back", text, "etag", etag); textIn(t, body) != text || etagIn(t, body) != etag {
		t.Error("the way back from the review loses the text or the etag")
	}

	// Another caller changes the job between the review and the change, and then before the review.
	for i, do := range []string{"save", "review"} {
		s.fake.change(func() {
			j := proto.CloneOf(s.fake.job("totals"))
			s.fake.revisions["totals"] = nil
			s.fake.addRevision("totals", &apiv1.Revision{Job: proto.CloneOf(j)})
			j.Priority, j.Etag, j.Revision, j.ChangedBy = int32(i)+2, fmt.Sprint("other-", i), 5, "eve"
			for k, old := range s.fake.jobs {
				if old.Name == "totals" {
					s.fake.jobs[k] = j
				}
			}
		})
		resp, body := s.step(t, editPage, do, text, "etag", etag, "revision", "1", "note", "why")
		if resp.StatusCode != http.StatusConflict {
			t.Fatalf("%s with a conflict: %s", do, resp.Status)
		}
		for _, want := range []string{"by eve at", fmt.Sprintf("<ins>%d</ins>", i+2), "<ins>45s</ins>", ">\nwhy</textarea>", "timeout: 45s", `name="revision" value="5"`, "all the same"} {
			if !strings.Contains(body, want) {
				t.Errorf("%s with a conflict lacks %s:\n%s", do, want, body)
			}
		}
		if etag = etagIn(t, body); etag != fmt.Sprint("other-", i) || s.fake.job("totals").Timeout != "30s" {
			t.Errorf("%s with a conflict: etag %s, timeout %s", do, etag, s.fake.job("totals").Timeout)
		}
	}
	resp, _ := s.step(t, editPage, "save", text, "etag", etag, "revision", "5")
	if j := s.fake.job("totals"); resp.StatusCode != http.StatusSeeOther || j.Timeout != "45s" || j.Priority != 0 {
		t.Errorf("after the conflict: %s, %v", resp.Status, j)
	}

	// A job that is paused, and whose text says nothing of it, is resumed as the text says.
	s.fake.change(func() { s.fake.job("totals").Paused = new(true) })
	if _, body = s.step(t, editPage, "review", text, "etag", etag); !strings.Contains(body, ">paused<") {
		t.Errorf("the review does not say that the job is resumed:\n%s", body)
	}

	s.post(t, "/apps/default/jobs/totals/delete", "")
	resp, body = s.step(t, editPage, "save", text, "etag", etag)
	if resp.StatusCode != http.StatusConflict || !strings.Contains(body, "The job totals was deleted meanwhile.") || textIn(t, body) != text || !strings.Contains(body, `action="`+newPage+`"`) {
		t.Errorf("a deleted job: %s\n%s", resp.Status, body)
	}
}

// TestEditorKeepsTextOnErrors fails the calls of the editor.
func TestEditorKeepsTextOnErrors(t *testing.T) {
	const text = "name: totals\nhandler: {module: totals@1}\n# typed\n"
	s := newSite(t, newFake().populate()).signIn(t)
	s.fake.change(func() { s.fake.denied = permission(apiv1.Jobs_ApplyJob_FullMethodName) })
	for _, path := range []string{newPage, editPage} {
		if resp, _ := s.do(t, "GET", path, nil); resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s without the permission: %s", path, resp.Status)
		}
		resp, body := s.step(t, path, "save", text)
		if resp.StatusCode != http.StatusForbidden || textIn(t, body) != text || !strings.Contains(body, "lacks the permission") {
			t.Errorf("save at %s without the permission: %s", path, resp.Status)
		}
	}
	s.fake.change(func() { s.fake.denied, s.fake.revoked = "", true })
	resp, body := s.step(t, editPage, "review", text)
	if resp.StatusCode != http.StatusUnauthorized || !strings.Contains(body, "# typed") {
		t.Errorf("with a revoked token: %s, without the text", resp.Status)
	}
	if resp, _ := s.post(t, editPage, "do=save", "Sec-Fetch-Site", "cross-site"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("from another site: %s", resp.Status)
	}
}

// TestJobNamedNew: the page that creates a job leads to the job with the name of its address.
func TestJobNamedNew(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	resp, _ := s.step(t, newPage, "save", "name: new\nhandler: {module: totals@1}\n")
	if got := resp.Header.Get("Location"); got != newPage+"?job" {
		t.Fatalf("save leads to %s", got)
	}
	if _, body := s.do(t, "GET", newPage+"?job", nil); !strings.Contains(body, "The job is saved.") || !strings.Contains(body, "<h1>new</h1>") {
		t.Error("the page of the job is not there")
	}
	if _, body := s.do(t, "GET", newPage, nil); !strings.Contains(body, `href="`+newPage+`?job"`) {
		t.Error("the page that creates a job does not lead to it")
	}
}

// TestFirstJob creates the first job of an app from its empty page, by keyboard.
func TestFirstJob(t *testing.T) {
	b := newBrowser(t, newSite(t, newFake()))
	b.visit("/apps/default/jobs")
	b.signIn()
	b.until(`location.pathname === "/apps/default/jobs" && document.readyState === "complete"`)
	b.press(`.empty a[href$="/jobs/new"]`)
	b.until(`location.pathname === "` + newPage + `" && document.readyState === "complete" && document.querySelector("#check .times") !== null`)
	b.typeText("name: first\nhandlr: {module: totals@1}\n")
	b.until(`document.querySelector('#check a[data-line="2"]') !== null && document.activeElement.id === "yaml"`)
	b.accessible()
	b.press(`#check a[data-line="2"]`)
	if got := evaluate[string](b, `(f => f.value.slice(f.selectionStart, f.selectionEnd))(document.activeElement)`); got != "handlr: {module: totals@1}" {
		t.Errorf("the link of the mistake selects %q", got)
	}
	b.do(chromedp.KeyEvent("handler: {module: totals@1}"))
	b.until(`document.querySelector("#check .words")?.textContent === "Only when triggered"`)
	b.press(`button[value=check]`)
	b.until(`document.querySelector("#check .words") !== null && document.activeElement.value === "check"`)
	b.press(`button[value=review]`)
	b.until(`document.readyState === "complete" && document.querySelector("h1").textContent === "Create the job first?"`)
	b.accessible()
	b.do(chromedp.SendKeys("#r-note", "the first one"))
	b.press(`button[value=save]`)
	b.until(`location.pathname === "/apps/default/jobs/first" && document.readyState === "complete" && document.querySelector("main .alert.ok") !== null`)
	if r := b.site.fake.revisions["first"]; len(r) != 1 || r[0].Note != "the first one" {
		t.Errorf("the revisions are %v", r)
	}
}

// press focuses an element and presses the enter key.
func (b *browser) press(selector string) {
	b.t.Helper()
	if !evaluate[bool](b, "(e => (e.focus(), document.activeElement === e))(document.querySelector(`"+selector+"`))") {
		b.t.Fatalf("%s cannot have the focus", selector)
	}
	b.do(chromedp.KeyEvent("\r"))
}

// typeText replaces the text of the editor by the keyboard.
func (b *browser) typeText(text string) {
	b.t.Helper()
	evaluate[bool](b, `(f => (f.focus(), f.select(), true))(document.getElementById("yaml"))`)
	b.do(chromedp.KeyEvent(strings.ReplaceAll(text, "\n", "\r")))
}

// testEditJob changes a job which another caller changes meanwhile.
func testEditJob(t *testing.T, b *browser) {
	b.mu.Lock()
	b.refusal = "status of 409"
	b.mu.Unlock()
	b.visit("/apps/default/jobs/totals")
	b.press(`.actions a[href$="/edit"]`)
	b.until(`location.pathname === "` + editPage + `" && document.readyState === "complete"`)
	evaluate[bool](b, `(f => (f.focus(), f.setSelectionRange(f.value.length, f.value.length), true))(document.getElementById("yaml"))`)
	b.do(chromedp.KeyEvent("deadline: 10m\r"))
	b.press(`button[value=review]`)
	b.until(`document.readyState === "complete" && document.querySelector("h1").textContent === "Save the changes of totals?"`)
	if sign := evaluate[string](b, `getComputedStyle(document.querySelector(".changes ins"), "::before").content`); sign != `"+ "` {
		t.Errorf("the sign of a new value is %s", sign)
	}
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(scheme)
		b.accessible()
		b.shot("review-" + scheme)
	}
	b.site.fake.change(func() {
		j := b.site.fake.job("totals")
		j.Priority, j.Etag, j.Revision, j.ChangedBy = 7, "other", 24, "eve"
	})
	b.press(`button[value=save]`)
	b.until(`document.readyState === "complete" && document.activeElement.getAttribute("role") === "alert" && document.body.textContent.includes("by eve at")`)
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(scheme)
		b.accessible()
		b.shot("conflict-" + scheme)
	}
	b.press(`button[value=back]`)
	b.until(`document.readyState === "complete" && document.getElementById("yaml")?.value.endsWith("deadline: 10m\n")`)
	b.press(`button[value=review]`)
	b.until(`document.readyState === "complete" && document.querySelector("h1").textContent === "Save the changes of totals?" && document.querySelector(".alert.bad") === null`)
	b.press(`button[value=save]`)
	b.until(`location.pathname === "/apps/default/jobs/totals" && document.readyState === "complete" && document.querySelector("main .alert.ok") !== null`)
	if j := b.site.fake.job("totals"); j.Deadline != "10m" || j.Priority != 0 {
		t.Errorf("the saved job is %v", j)
	}
}
