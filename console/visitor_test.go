package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// TestVisitorOfOneApp signs in with a role in one app. The console begins there, offers no other app
// and no page of the cluster, and shows the name of the visitor.
func TestVisitorOfOneApp(t *testing.T) {
	f := newFake().populate()
	f.scope = "app:billing"
	s := newSite(t, f).signIn(t)
	resp, _ := s.do(t, "GET", "/", nil)
	if to := resp.Header.Get("Location"); resp.StatusCode != http.StatusSeeOther || to == "/apps/default" {
		t.Errorf("the first page is %s %s", resp.Status, to)
	}
	_, page := s.do(t, "GET", "/apps/billing/jobs", nil)
	checkPage(t, page)
	for text, want := range map[string]bool{`href="/cluster`: false, `href="/dead-letters`: false, `href="/hosts`: true, "Signed in as ada": true, "operator · app:billing": true} {
		if strings.Contains(page, text) != want {
			t.Errorf("%q is on the page: %t", text, !want)
		}
	}
	f.scope = ""
	s = newSite(t, f).signIn(t)
	if resp, _ := s.do(t, "GET", "/", nil); resp.Header.Get("Location") != "/apps/default" {
		t.Errorf("with a role in the cluster the first page is %s", resp.Header.Get("Location"))
	}
	if _, page := s.do(t, "GET", "/apps/billing/jobs", nil); !strings.Contains(page, `href="/cluster`) {
		t.Error("with a role in the cluster there is no page of the cluster")
	}
}

// TestCovers compares scopes with apps.
func TestCovers(t *testing.T) {
	for scope, want := range map[string][3]bool{ // the cluster, shop, shop-1
		"cluster": {true, true, true}, "app:shop": {false, true, false}, "app-prefix:shop-": {false, false, true}, "app-prefix:": {false, true, true}, "of a newer version": {},
	} {
		x := visitor{&apiv1.Principal{Bindings: []*apiv1.Binding{{Role: "viewer", Scope: scope}}}}
		if got := [3]bool{x.covers(""), x.covers("shop"), x.covers("shop-1")}; got != want {
			t.Errorf("%s covers %v, want %v", scope, got, want)
		}
	}
}

// TestUserSignsIn signs a user in with a password, which the first sign-in replaces.
func TestUserSignsIn(t *testing.T) {
	s := newSite(t, newFake().populate())
	for _, tt := range []struct {
		user, password, fresh string
		code                  int
		shows                 string
		replace               bool
	}{
		{"ada", "not this one", "", http.StatusUnauthorized, "the name or the password is wrong", false},
		{"ada", "the first password", "", http.StatusUnauthorized, "choose another one", true},
		{"ada", "the first password", "weak", http.StatusUnauthorized, "the least is 15", true},
		{"ada", "the first password", "a phrase of five words", http.StatusSeeOther, "", false},
		{" ada ", "a phrase of five words", "", http.StatusSeeOther, "", false},
		{"", goodToken, "", http.StatusSeeOther, "", false},
	} {
		resp, body := s.post(t, "/login", url.Values{"user": {tt.user}, "token": {tt.password}, "fresh": {tt.fresh}}.Encode())
		if resp.StatusCode != tt.code || !strings.Contains(body, tt.shows) || strings.Contains(body, `name="fresh"`) != tt.replace || strings.Contains(body, tt.password) && tt.code != http.StatusSeeOther {
			t.Errorf("%+v: %s\n%.900s", tt, resp.Status, body)
		}
		if tt.code != http.StatusSeeOther {
			checkPage(t, body)
		} else if len(resp.Cookies()) == 0 {
			t.Errorf("%+v: no session", tt)
		}
	}
}

// TestSignOutEndsSession signs out a user, whose session ends at the server too, and a visitor with a token,
// which stays.
func TestSignOutEndsSession(t *testing.T) {
	for session, want := range map[string]int{"ses-1": 1, "tok-1": 0, "": 0} {
		f := newFake().populate()
		f.session = session
		s := newSite(t, f).signIn(t)
		if resp, _ := s.post(t, "/logout", ""); resp.StatusCode != http.StatusSeeOther {
			t.Errorf("sign-out: %s", resp.Status)
		}
		if len(f.ended) != want {
			t.Errorf("the sessions %v were ended for %q", f.ended, session)
		}
	}
}
