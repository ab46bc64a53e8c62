package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

func alertForm(text, revision, do string) string {
	return url.Values{"text": {strings.ReplaceAll(text, "\n", "\r\n")}, "revision": {revision}, "do": {do}}.Encode()
}

// TestAlertDocuments makes, changes and deletes a rule and a channel.
func TestAlertDocuments(t *testing.T) {
	const here = "/apps/default/alerts"
	s := newSite(t, newFake().populate()).signIn(t)
	post := func(path, form string, want int) string {
		t.Helper()
		resp, body := s.post(t, here+path, form)
		if resp.StatusCode != want {
			t.Fatalf("%s: %s, want %d\n%.2000s", path, resp.Status, want, body)
		}
		if want != http.StatusSeeOther {
			checkPage(t, body)
		} else if to := resp.Header.Get("Location"); to != here {
			t.Errorf("%s leads to %s", path, to)
		}
		return body
	}
	rule := "kind: AlertRule\nname: nights\nevents: [missed]\nchannels: [ops]\n"
	if body := post("/rules", alertForm(rule, "0", "check"), http.StatusOK); !strings.Contains(body, ">Valid<") || len(s.fake.rules) != 3 {
		t.Errorf("a check: %d rules\n%s", len(s.fake.rules), body)
	}
	post("/rules", alertForm(rule, "0", "save"), http.StatusSeeOther)
	if _, body := s.do(t, "GET", here, nil); !strings.Contains(body, "Saved: nights") || !strings.Contains(body, "Missed its time") {
		t.Error("the list does not have the new rule")
	}
	if body := post("/rules", alertForm(rule, "0", "save"), http.StatusConflict); !strings.Contains(body, "nights exists") {
		t.Error("a second rule of a name replaces the first")
	}
	for text, why := range map[string]string{
		strings.Replace(rule, "missed", "mised", 1): "mised", strings.Replace(rule, "nights", "other", 1): "cannot change",
		rule + "app: billing\n": "go to the other app", "": "the text is empty", rule + "---\n" + rule: "want one document", rule + "threshold: 1\nwindow: 5m\n": "window needs a threshold",
		"kind: AlertChannel\nname: nights\nmail: {url: \"smtp://x\"}\n": "AlertChannel",
	} {
		if body := post("/rules/nights", alertForm(text, "100", "save"), http.StatusUnprocessableEntity); !strings.Contains(body, why) {
			t.Errorf("%q: the page does not say %q\n%s", text, why, body)
		}
	}
	longer := strings.Replace(rule, "[missed]", "[missed, failed]", 1)
	if body := post("/rules/nights", alertForm(longer, "99", "save"), http.StatusConflict); !strings.Contains(body, "Another caller has changed it") || !strings.Contains(body, `name="revision" value="100"`) || !strings.Contains(body, "missed, failed") {
		t.Errorf("a change of a rule that has changed:\n%s", body)
	}
	post("/rules/nights", alertForm(longer, "100", "save"), http.StatusSeeOther)
	if r := s.fake.rules[3]; r.Name != "nights" || len(r.Events) != 2 || r.App != "default" {
		t.Errorf("saved %v", r)
	}
	post("/rules/nights/delete", "", http.StatusSeeOther)
	if body := post("/rules/nights", alertForm(rule, "100", "save"), http.StatusConflict); len(s.fake.rules) != 3 || !strings.Contains(body, "was deleted") {
		t.Errorf("%d rules after the deletion", len(s.fake.rules))
	}
	post("/channels/ops", alertForm("kind: AlertChannel\nname: ops\nslack: {url: \"https://example.com/new\"}\n", "3", "save"), http.StatusSeeOther)
	if m := s.fake.channels[1]; m.Name != "ops" || m.GetSlack().GetUrl() != "https://example.com/new" {
		t.Errorf("saved %v", m)
	}
	post("/channels/ops/delete", "", http.StatusSeeOther)
	if len(s.fake.channels) != 1 {
		t.Errorf("%d channels after the deletion", len(s.fake.channels))
	}
	for _, path := range []string{"/rules/none", "/channels/ops", "/rules/none?x"} {
		if resp, _ := s.do(t, "GET", here+path, nil); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
}

// TestAlertDocumentsAreReadOnly: without permission to write, a page has the document and a command, and no form.
func TestAlertDocumentsAreReadOnly(t *testing.T) {
	f := newFake().populate()
	f.may = []string{"alerts.read", "alerts.write", "channels.read", "channels.write"} // not definitions.write
	s := newSite(t, f).signIn(t)
	for _, path := range []string{"/rules/failures", "/channels/ops"} {
		resp, body := s.do(t, "GET", "/apps/default/alerts"+path, nil)
		if resp.StatusCode != http.StatusOK || strings.Contains(body, "<textarea") || strings.Contains(body, path+"/delete") || !strings.Contains(body, "wheelwork apply -f") {
			t.Errorf("%s: %s\n%s", path, resp.Status, body)
		}
	}
	if resp, _ := s.do(t, "GET", "/apps/default/alerts/rules", nil); resp.StatusCode != http.StatusForbidden {
		t.Errorf("a new rule: %s", resp.Status)
	}
	if _, body := s.do(t, "GET", "/apps/default/alerts", nil); strings.Contains(body, "New rule") || strings.Contains(body, "New channel") {
		t.Error("the list offers what the visitor may not do")
	}
	f = newFake().populate()
	f.denied = "channels.read"
	s = newSite(t, f).signIn(t)
	for _, path := range []string{"/channels/ops", "/channels/none"} {
		if resp, body := s.do(t, "GET", "/apps/default/alerts"+path, nil); resp.StatusCode != http.StatusForbidden || strings.Contains(body, channelKey) {
			t.Errorf("%s without channels.read: %s", path, resp.Status)
		}
	}
}

// TestPreviewOfChannel: the page of a channel shows what it would send for the event and in the language of the address.
func TestPreviewOfChannel(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	const here = "/apps/default/alerts/channels/"
	for path, want := range map[string]string{
		"ops": "[告警] nightly：运行失败", "ops?event=recovered&language=en": "[RESOLVED] nightly: failed", "ops?event=disk&language=zh": "[告警] nightly：磁盘空间不足",
		"ops?event=fails": "event is &#34;fails&#34;, want one of failed,", "ops?language=de": "want en or zh",
	} {
		resp, body := s.do(t, "GET", here+path, nil)
		if checkPage(t, body); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", path, resp.Status)
		}
		_, preview, _ := strings.Cut(body, `id="h-preview"`)
		if !strings.Contains(preview, want) || strings.Contains(preview, channelKey) {
			t.Errorf("%s: the preview lacks %q, or has a key\n%s", path, want, preview)
		}
	}
	if _, body := s.do(t, "GET", "/apps/default/alerts/rules/failures", nil); strings.Contains(body, "h-preview") {
		t.Error("a rule has a preview")
	}
}

// TestChannelIsNotKept: the page of the sign-in keeps no document of a channel, which may have a key.
func TestChannelIsNotKept(t *testing.T) {
	s := newSite(t, newFake().populate())
	for path, kept := range map[string]bool{"/alerts/channels": false, "/alerts/channels/ops": false, "/alerts/rules/failures": true} {
		_, body := s.post(t, "/apps/default"+path, alertForm("name: typed-in\n", "1", "save"))
		if strings.Contains(body, "typed-in") != kept {
			t.Errorf("%s: the form is kept: %t", path, !kept)
		}
	}
	if _, body := s.post(t, "/apps/default/alerts/channels/ops/test", "language=zh"); strings.Contains(body, "a secret is not kept here") {
		t.Error("a test of a channel is taken for a secret")
	}
}

// TestAlertDocumentsSendNoServerFields: a saved document has no field that the server sets.
func TestAlertDocumentsSendNoServerFields(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	_, body := s.do(t, "GET", "/apps/default/alerts/channels/pager", nil)
	if strings.Contains(body, "updated_at") || !strings.Contains(body, `name="revision" value="4"`) {
		t.Errorf("the document has fields of the server\n%s", body)
	}
	s.post(t, "/apps/default/alerts/channels/pager", alertForm("kind: AlertChannel\nname: pager\npagerduty: {key: {secret: pager-key}}\n", "4", "save"))
	for _, m := range s.fake.asked {
		if r, ok := m.(*apiv1.ApplyChangeSetRequest); ok {
			if c := r.Changes[0].GetAlertChannel(); c.GetRevision() != 0 || c.GetUpdatedAt() != nil || r.App != "default" {
				t.Errorf("sent %v", r)
			}
		}
	}
}

// TestAlertDocumentStays: after an error that is not of the text, and after the end of the session, the visitor has the text.
func TestAlertDocumentStays(t *testing.T) {
	f := newFake().populate()
	s := newSite(t, f).signIn(t)
	const rule = "kind: AlertRule\nname: typed-in\nevents: [missed]\nchannels: [ops]\n"
	f.change(func() { f.denied = "definitions.write" })
	if resp, body := s.post(t, "/apps/default/alerts/rules", alertForm(rule, "0", "save")); resp.StatusCode != http.StatusForbidden || !strings.Contains(body, "typed-in") || !strings.Contains(body, "lacks the permission") {
		t.Errorf("a refused change: %s", resp.Status)
	}
	f.change(func() { f.denied, f.revoked = "", true })
	if resp, body := s.post(t, "/apps/default/alerts/rules", alertForm(rule, "0", "save")); resp.StatusCode != http.StatusUnauthorized || !strings.Contains(body, "typed-in") {
		t.Errorf("after the end of the session: %s", resp.Status)
	}
}
