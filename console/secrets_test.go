package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// resourcePages returns the addresses of the pages of secrets and values, with texts that each must
// contain.
func resourcePages() map[string][]string {
	return map[string][]string{
		"/apps/default/secrets":                               {"gateway-key", `href="/apps/default/modules/totals"`, "odd&lt;script&gt;", "/secrets/gateway-key/delete"},
		"/apps/default/secrets?prefix=none":                   {"No secret begins with this."},
		"/apps/default/secrets?name=gateway-key":              {`value="gateway-key"`},
		"/apps/default/secrets/gateway-key/delete":            {"Delete the secret gateway-key?"},
		"/apps/default/values":                                {"state", "40 B of 64.0 MiB are used", `href="/apps/default/values/state"`},
		"/apps/default/values/state":                          {"/apps/default/values/state/value?key=cursor%2Fa", "page=after%26key", "raw"},
		"/apps/default/values/state?prefix=none":              {"No key in this bucket matches."},
		"/apps/default/values/state/value?key=lines":          {`name="version" value="5"`, "second", "/apps/default/values/state/delete?key=lines&amp;version=5"},
		"/apps/default/values/state/value?key=raw":            {"00 01 ff", "not a text that a form can send"},
		"/apps/default/values/state/delete?key=raw&version=6": {"Delete the value state/raw?"},
	}
}

// TestSecrets sets a secret and deletes it. No page and no log has its value.
func TestSecrets(t *testing.T) {
	const here, value = "/apps/default/secrets", "first line\nsecond & last"
	s := newSite(t, newFake().populate()).signIn(t)
	form := url.Values{"name": {"gateway-key"}, "value": {strings.ReplaceAll(value, "\n", "\r\n") + "\r\n"}}
	resp, _ := s.post(t, here, form.Encode())
	if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != here || len(s.fake.sent) != 1 || s.fake.sent[0] != value {
		t.Fatalf("%s to %q, sent %q", resp.Status, resp.Header.Get("Location"), s.fake.sent)
	}
	_, body := s.do(t, "GET", here, nil)
	if !strings.Contains(body, "Set: gateway-key · 4") || strings.Contains(body, "first line") {
		t.Errorf("the page after a change:\n%s", body)
	}
	form.Set("name", "two words")
	resp, body = s.post(t, here, form.Encode())
	if resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, `value="two words"`) || !strings.Contains(body, "has a space") || strings.Contains(body, "first line") {
		t.Errorf("a refused form: %s\n%s", resp.Status, body)
	}
	checkPage(t, body)
	if resp, body := s.post(t, here, "name=gateway-key&value=%0D%0A"); resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, "the value is empty") || len(s.fake.sent) != 1 {
		t.Errorf("an empty value: %s, sent %q", resp.Status, s.fake.sent)
	}
	s.post(t, here+"/gateway-key/delete", "")
	if len(s.fake.stored) != 1 {
		t.Errorf("after a deletion there are %v", s.fake.stored)
	}
	if resp, _ := s.post(t, here+"/gateway-key/delete", ""); resp.StatusCode != http.StatusNotFound {
		t.Errorf("a second deletion: %s", resp.Status)
	}
	if strings.Contains(s.logged.String(), "first line") {
		t.Error("the log has the secret")
	}
}

// TestSecretIsNotKept: the page of the sign-in keeps forms, but none with a secret.
func TestSecretIsNotKept(t *testing.T) {
	s := newSite(t, newFake().populate())
	resp, body := s.post(t, "/apps/default/secrets", "name=gateway-key&value=very-secret")
	if resp.StatusCode != http.StatusUnauthorized || strings.Contains(body, "very-secret") || !strings.Contains(body, "a secret is not kept here") {
		t.Errorf("%s\n%s", resp.Status, body)
	}
	checkPage(t, body)
	if _, body := s.post(t, "/apps/default/values", "bucket=state&key=lines&value=no-secret"); !strings.Contains(body, "no-secret") {
		t.Error("another form is not kept")
	}
}

// TestValues creates, replaces and deletes a value.
func TestValues(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	put := func(version, key, value string) (*http.Response, string) {
		return s.post(t, "/apps/default/values", url.Values{"bucket": {"state"}, "key": {key}, "value": {value}, "version": {version}}.Encode())
	}
	resp, _ := put("", "new key/1", "a\r\nb")
	if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/apps/default/values/state/value?key=new+key%2F1" {
		t.Fatalf("create: %s to %q", resp.Status, resp.Header.Get("Location"))
	}
	if x := s.fake.entries[s.fake.entry("state", "new key/1")]; x.Value != "a\nb" {
		t.Errorf("the value is %q", x.Value)
	}
	if resp, body := s.do(t, "GET", resp.Header.Get("Location"), nil); resp.StatusCode != http.StatusOK || !strings.Contains(body, "The value is stored.") {
		t.Errorf("the page of the new value: %s", resp.Status)
	}
	if resp, _ := put("7", "new key/1", "c"); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("replace: %s", resp.Status)
	}
	resp, _ = s.post(t, "/apps/default/values/state/delete?key=new+key%2F1&version=8", "")
	if resp.StatusCode != http.StatusSeeOther || s.fake.entry("state", "new key/1") >= 0 {
		t.Errorf("delete: %s", resp.Status)
	}
	if resp, body := s.do(t, "GET", "/apps/default/values/state/bytes?key=raw", nil); body != "\x00\x01\xff" || !strings.HasPrefix(resp.Header.Get("Content-Disposition"), "attachment") {
		t.Errorf("download: %q", body)
	}
}

// TestValueConflict: a change of a value that another caller has changed is refused. The page has both
// values, and its form replaces the new one.
func TestValueConflict(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	put := func(version string) (*http.Response, string) {
		return s.post(t, "/apps/default/values", url.Values{"bucket": {"state"}, "key": {"lines"}, "value": {"mine"}, "version": {version}}.Encode())
	}
	for name, version := range map[string]string{"replace": "2", "create": ""} {
		resp, body := put(version)
		if resp.StatusCode != http.StatusConflict || s.fake.entries[1].Value != "\nsecond\n" {
			t.Errorf("%s: %s, the value is %q", name, resp.Status, s.fake.entries[1].Value)
		}
		for _, want := range []string{"Another caller has changed the value meanwhile", "second", "\nmine</textarea>", `name="version" value="5"`} {
			if !strings.Contains(body, want) {
				t.Errorf("%s: the page does not hold %q", name, want)
			}
		}
		checkPage(t, body)
	}
	resp, body := s.post(t, "/apps/default/values/state/delete?key=lines&version=2", "")
	if resp.StatusCode != http.StatusConflict || s.fake.entry("state", "lines") < 0 || !strings.Contains(body, "Another caller has changed the value meanwhile") {
		t.Errorf("delete: %s", resp.Status)
	}
	if resp, _ := put("5"); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("the second attempt: %s", resp.Status)
	}
	// A value that was deleted meanwhile is offered as a new one.
	s.fake.entries = nil
	resp, body = put("5")
	if resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, "another caller has deleted the value meanwhile") || !strings.Contains(body, "\nmine</textarea>") {
		t.Errorf("a deleted value: %s\n%s", resp.Status, body)
	}
	if resp, _ := put("much"); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a wrong version: %s", resp.Status)
	}
	s.fake.populateResources(func(time.Duration) *timestamppb.Timestamp { return timestamppb.Now() })
	resp, body = s.post(t, "/apps/default/values", url.Values{"bucket": {"state"}, "key": {"lines"}, "version": {"5"}, "value": {strings.Repeat("x", 65<<10)}}.Encode())
	if resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, "at most 65536") || !strings.Contains(body, "xxx</textarea>") {
		t.Errorf("a long value: %s", resp.Status)
	}
}

// testValue creates a value, meets a change of another caller, and sets a secret, with the keyboard alone,
// on a narrow screen.
func testValue(t *testing.T, b *browser) {
	b.do(chromedp.EmulateViewport(400, 800))
	defer b.do(chromedp.EmulateViewport(1440, 1000))
	b.mu.Lock()
	b.refusal = "status of 4"
	b.mu.Unlock()
	press := pressing(t, b, 400)
	b.visit("/apps/default/values/state")
	b.do(chromedp.SendKeys("#v-key", "limit"), chromedp.SendKeys("#v-new", "\n10"))
	press(`form[action="/apps/default/values"] button`, "The value is stored.")
	if text := evaluate[string](b, `document.getElementById("v-value").value`); text != "\n10" {
		t.Errorf("the form has %q", text)
	}
	b.site.fake.change(func() {
		x := b.site.fake.entries[b.site.fake.entry("state", "limit")]
		x.Value, x.Version = "11", 99
	})
	press(`form[action="/apps/default/values"] button`, "Another caller has changed the value meanwhile")
	if !evaluate[bool](b, `document.activeElement.getAttribute("role") === "alert"`) {
		t.Error("the conflict does not have the focus")
	}
	press(`form[action="/apps/default/values"] button`, "The value is stored.")
	press(`.actions a.danger`, "Delete the value state/limit?")
	press(`main form button`, "Deleted: limit")
	b.visit("/apps/default/secrets")
	b.do(chromedp.SendKeys("#s-name", "token"), chromedp.SendKeys("#s-value", "hidden-text"))
	press(`form[action="/apps/default/secrets"] button`, "Set: token · 1")
	press(`a[href="/apps/default/secrets/token/delete"]`, "Delete the secret token?")
	press(`main form button`, "Deleted: token")
}
