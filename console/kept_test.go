package console

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

var hiddenForm = regexp.MustCompile(`name="form" value="([^"]*)"`)

// TestExpiredSessionKeepsTheForm sends a form without a session, signs in, once with a
// wrong token, and sends the form from the page that follows.
func TestExpiredSessionKeepsTheForm(t *testing.T) {
	s := newSite(t, newFake().populate())
	text := "first line\n\"quoted\" " + evil
	resp, body := s.post(t, "/apps/default/jobs/totals/run", url.Values{"input": {text}}.Encode(), "Referer", s.URL+"/apps/default/jobs/totals?format=json")
	if resp.StatusCode != http.StatusUnauthorized || !strings.Contains(body, "Your session has ended") || !strings.Contains(body, `name="next" value="/apps/default/jobs/totals?format=json"`) {
		t.Fatalf("%s\n%s", resp.Status, body)
	}
	checkPage(t, body)
	form := html.UnescapeString(hiddenForm.FindStringSubmatch(body)[1])
	_, body = s.post(t, "/login", url.Values{"token": {"wrong"}, "form": {form}}.Encode())
	if again := html.UnescapeString(hiddenForm.FindStringSubmatch(body)[1]); again != form {
		t.Errorf("a wrong token loses the form: %s", again)
	}
	resp, body = s.post(t, "/login", url.Values{"token": {goodToken}, "form": {form}}.Encode())
	if resp.StatusCode != http.StatusOK || !strings.Contains(body, `action="/apps/default/jobs/totals/run"`) || !strings.Contains(html.UnescapeString(body), text+"</textarea>") ||
		!strings.Contains(body, `href="/apps/default/jobs/totals?format=json"`) {
		t.Fatalf("%s\n%s", resp.Status, body)
	}
	checkPage(t, body)
	if resp, _ := s.post(t, "/apps/default/jobs/totals/run", url.Values{"input": {text}}.Encode()); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("after the login: %s", resp.Status)
	}
}

// TestExpiredSessionKeepsUploads sends forms with files: the texts are kept.
func TestExpiredSessionKeepsUploads(t *testing.T) {
	s := newSite(t, newFake().populate())
	ct, data := form(t, "m", "2", `{"k":"v"}`, []byte("\x00asm body"))
	resp, body := s.do(t, "POST", "/apps/default/modules", data, "Content-Type", ct)
	if resp.StatusCode != http.StatusUnauthorized {
		t.Fatalf("%s", resp.Status)
	}
	kept, ok := readKept(html.UnescapeString(hiddenForm.FindStringSubmatch(body)[1]))
	if !ok || !kept.Multi || len(kept.Files) != 1 || kept.Files[0] != "file" || len(kept.Fields) != 3 || kept.Fields[2] != (keptField{"manifest", `{"k":"v"}`}) {
		t.Errorf("kept: %+v", kept)
	}
	if _, body := s.post(t, "/login", url.Values{"token": {goodToken}, "form": {html.UnescapeString(hiddenForm.FindStringSubmatch(body)[1])}}.Encode()); !strings.Contains(body, `type="file"`) || !strings.Contains(body, `enctype="multipart/form-data"`) {
		t.Errorf("the page has no file field:\n%s", body)
	}
}

func TestFormsThatAreNotKept(t *testing.T) {
	s := newSite(t, newFake().populate())
	resp, body := s.post(t, "/apps/default/jobs/totals/run", "input="+strings.Repeat("x", maxForm))
	if resp.StatusCode != http.StatusUnauthorized || !strings.Contains(body, "too large to be kept") {
		t.Errorf("a large form: %s", resp.Status)
	}
	if resp, _ := s.post(t, "/logout", ""); resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/login" {
		t.Errorf("sign out without a session: %s", resp.Status)
	}
	for _, made := range []string{`{"action":"https://evil.example/"}`, `{"action":"//evil.example/"}`, `{"action":"/x","from":"//evil.example"}`, `{}`, `x`} {
		resp, _ := s.post(t, "/login", url.Values{"token": {goodToken}, "form": {made}}.Encode())
		if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/" {
			t.Errorf("%s: %s", made, resp.Status)
		}
	}
	resp, body = s.post(t, "/apps/default/jobs/totals/pause", "", "Referer", "https://evil.example/x")
	if resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusSeeOther || strings.Contains(body, "evil.example") {
		t.Errorf("a foreign page: %s", resp.Status)
	}
}
