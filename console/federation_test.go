package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// withProvider gives a site a provider whose answer has the parameter ok of a good sign-in, or why of
// another one.
func withProvider(s *site) *site {
	s.c.provider = &Provider{
		Title: "Example <Login>",
		Begin: func(_ context.Context, next string) (string, string, error) {
			if next == "/down" {
				return "", "", status.Error(codes.Unavailable, "the provider does not answer")
			}
			return "https://id.example/authorize?x=1", "pending of " + next, nil
		},
		Finish: func(_ context.Context, pending string, answer url.Values) (string, string, error) {
			if why := answer.Get("why"); why != "" {
				code := codes.PermissionDenied
				if answer.Has("down") {
					code = codes.Unavailable
				}
				return "", "", status.Error(code, why)
			}
			return goodToken, strings.TrimPrefix(pending, "pending of "), nil
		},
		SignOut: func(context.Context) string { return "https://id.example/out" },
	}
	return s
}

func cookie(resp *http.Response, name string) *http.Cookie {
	for _, c := range resp.Cookies() {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// TestProviderSignIn goes to the provider and back, keeps the page that the visitor wanted, and
// leaves this origin in no other way.
func TestProviderSignIn(t *testing.T) {
	s := withProvider(newSite(t, newFake().populate()))
	_, body := s.do(t, "GET", "/login?next=%2Fhosts%3Fa%3D1%26b%3D2", nil)
	if !strings.Contains(body, `href="/login/provider?next=%2fhosts%3fa%3d1%26b%3d2"`) || !strings.Contains(body, "Example &lt;Login&gt;") {
		t.Errorf("the sign-in page:\n%s", body)
	}
	checkPage(t, body)
	resp, _ := s.do(t, "GET", "/login/provider?next=%2Fhosts", nil)
	kept := cookie(resp, "wheelwork_signin")
	if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "https://id.example/authorize?x=1" || kept == nil || !kept.HttpOnly || kept.SameSite != http.SameSiteLaxMode {
		t.Fatalf("%s to %s, cookie %v", resp.Status, resp.Header.Get("Location"), kept)
	}
	resp, body = s.do(t, "GET", "/login/callback?why=not+%3Cb%3Eyou", nil)
	if resp.StatusCode != http.StatusForbidden || !strings.Contains(body, "not &lt;b&gt;you") || cookie(resp, "wheelwork_signin").MaxAge >= 0 {
		t.Errorf("refused: %s\n%s", resp.Status, body)
	}
	checkPage(t, body)
	if resp, _ = s.do(t, "GET", "/login/callback", nil); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("an answer to no sign-in: %s", resp.Status)
	}
	s.do(t, "GET", "/login/provider?next=%2Fhosts", nil)
	if resp, body = s.do(t, "GET", "/login/callback?why=later&down=1", nil); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("the provider does not answer: %s\n%s", resp.Status, body)
	}
	if resp, _ = s.do(t, "GET", "/login/provider?next=%2Fdown", nil); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("the provider does not begin: %s", resp.Status)
	}
	if resp, _ = s.do(t, "GET", "/login/provider", nil, "Sec-Fetch-Site", "cross-site"); resp.StatusCode != http.StatusForbidden || len(resp.Cookies()) != 0 {
		t.Errorf("from another site: %s", resp.Status)
	}
	for next, want := range map[string]string{"/hosts": "/hosts", "https://evil.example/": "/", "//evil.example": "/"} {
		s.do(t, "GET", "/login/provider?next="+url.QueryEscape(next), nil)
		resp, _ = s.do(t, "GET", "/login/callback?code=1", nil, "Sec-Fetch-Site", "cross-site") // as the provider's redirect is
		if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != want || cookie(resp, "wheelwork_session") == nil {
			t.Errorf("next %q: %s to %q, want %q", next, resp.Status, resp.Header.Get("Location"), want)
		}
	}
}

// TestProviderRefusalsAreCounted limits answers that the provider did not give, as wrong passwords.
func TestProviderRefusalsAreCounted(t *testing.T) {
	s := withProvider(newSite(t, newFake().populate()))
	last := 0
	for range maxAttempts + 1 {
		s.do(t, "GET", "/login/provider", nil)
		resp, _ := s.do(t, "GET", "/login/callback?why=no", nil)
		last = resp.StatusCode
	}
	if last != http.StatusTooManyRequests {
		t.Errorf("after %d refusals: %d", maxAttempts, last)
	}
}

// TestNoProvider has none of the pages of a provider.
func TestNoProvider(t *testing.T) {
	s := newSite(t, newFake().populate())
	for path, want := range map[string]int{"/login/provider": http.StatusNotFound, "/login/callback?code=1": http.StatusBadRequest, "/login/leave": http.StatusSeeOther} {
		if resp, _ := s.do(t, "GET", path, nil); resp.StatusCode != want || len(resp.Cookies()) != 0 {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
	if _, body := s.do(t, "GET", "/login?left=1", nil); strings.Contains(body, "/login/provider") || strings.Contains(body, "/login/leave") {
		t.Errorf("the sign-in page has a provider:\n%s", body)
	}
}

// TestSignInWithoutRole shows a user without a role the reason, and ends the session.
func TestSignInWithoutRole(t *testing.T) {
	f := newFake().populate()
	f.noRole, f.session = true, "ses-1"
	s := withProvider(newSite(t, f))
	s.do(t, "GET", "/login/provider", nil)
	resp, body := s.do(t, "GET", "/login/callback?code=1", nil)
	if resp.StatusCode != http.StatusForbidden || cookie(resp, "wheelwork_session") != nil || !strings.Contains(body, "You have no role yet") || !strings.Contains(body, "ada") {
		t.Errorf("%s\n%s", resp.Status, body)
	}
	checkPage(t, body)
	if !slices.Equal(f.ended, []string{"ses-1"}) {
		t.Errorf("the session goes on: %v have ended", f.ended)
	}
}

// TestSignOutOfProvider offers to a user of the provider, and to no other, to sign out there too.
func TestSignOutOfProvider(t *testing.T) {
	for provider, want := range map[string]string{"https://id.example": "/login?left=1", "": "/login"} {
		f := newFake().populate()
		f.provider = provider
		s := withProvider(newSite(t, f)).signIn(t)
		resp, _ := s.post(t, "/logout", "")
		if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != want {
			t.Errorf("a user of %q: %s to %s", provider, resp.Status, resp.Header.Get("Location"))
		}
	}
	s := withProvider(newSite(t, newFake()))
	if _, body := s.do(t, "GET", "/login?left=1", nil); !strings.Contains(body, `href="/login/leave"`) {
		t.Errorf("the sign-in page leads nowhere:\n%s", body)
	}
	if resp, _ := s.do(t, "GET", "/login/leave", nil); resp.Header.Get("Location") != "https://id.example/out" {
		t.Errorf("it leads to %s", resp.Header.Get("Location"))
	}
	if resp, _ := s.do(t, "GET", "/login/leave", nil, "Sec-Fetch-Site", "cross-site"); resp.Header.Get("Location") != "/login" {
		t.Errorf("another site signs a visitor out at the provider: %s", resp.Header.Get("Location"))
	}
}

// TestApproveCommandLine approves a code with a form, and never by its address alone.
func TestApproveCommandLine(t *testing.T) {
	f := newFake().populate()
	s := newSite(t, f)
	const page = "/login/command?code=ABCD-EFGH-JKLM-NPQ%3Cb%3E"
	resp, _ := s.do(t, "GET", page, nil)
	if want := "/login?next=" + url.QueryEscape(page); resp.Header.Get("Location") != want {
		t.Errorf("without a session: %s to %s", resp.Status, resp.Header.Get("Location"))
	}
	s.signIn(t)
	resp, body := s.do(t, "GET", page, nil)
	if resp.StatusCode != http.StatusOK || !strings.Contains(body, "ABCD-EFGH-JKLM-NPQ&lt;b&gt;") || !strings.Contains(body, "ada") {
		t.Errorf("%s\n%s", resp.Status, body)
	}
	checkPage(t, body)
	if len(f.approved) != 0 {
		t.Error("the page has approved the code")
	}
	if resp, _ := s.post(t, "/login/command", "code=A", "Sec-Fetch-Site", "cross-site"); resp.StatusCode != http.StatusForbidden || len(f.approved) != 0 {
		t.Errorf("another site approves: %s", resp.Status)
	}
	if resp, _ := s.post(t, "/login/command", "code="); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("without a code: %s", resp.Status)
	}
	resp, body = s.post(t, "/login/command", "code=ABCD-EFGH-JKLM-NPQR")
	if resp.StatusCode != http.StatusOK || !strings.Contains(body, "is signed in") || !slices.Equal(f.approved, []string{"ABCD-EFGH-JKLM-NPQR"}) {
		t.Errorf("%s, approved %v\n%s", resp.Status, f.approved, body)
	}
}
