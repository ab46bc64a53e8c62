package console

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestLoginCode signs in with a link, which works once. The permanent token in an address
// does not sign in, because proxies and histories store addresses.
func TestLoginCode(t *testing.T) {
	s := newSite(t, newFake().populate())
	if resp, _ := s.do(t, "GET", "/login?token="+goodToken, nil); resp.StatusCode != http.StatusOK || len(resp.Cookies()) > 0 {
		t.Errorf("the token in an address: %s, %v", resp.Status, resp.Cookies())
	}
	code := s.c.codes.Issue(goodToken)
	if strings.Contains(code, goodToken) || len(code) < 32 {
		t.Errorf("the code is %q", code)
	}
	resp, _ := s.do(t, "GET", "/login?code="+code+"&next=%2Fhosts", nil)
	if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/hosts" || len(resp.Cookies()) != 1 {
		t.Fatalf("the code: %s to %q, %v", resp.Status, resp.Header.Get("Location"), resp.Cookies())
	}
	if resp, _ := s.do(t, "GET", "/hosts", nil); resp.StatusCode != http.StatusOK {
		t.Errorf("a page after that: %s", resp.Status)
	}
	// The used link still leads to the same page in the browser that it signed in.
	if resp, _ := s.do(t, "GET", "/login?code="+code+"&next=%2Fhosts", nil); resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/hosts" || len(resp.Cookies()) > 0 {
		t.Errorf("the used code with a session: %s to %q, %v", resp.Status, resp.Header.Get("Location"), resp.Cookies())
	}
	s.post(t, "/logout", "")
	for _, spent := range []string{code, "made-up", goodToken} {
		resp, body := s.do(t, "GET", "/login?code="+spent, nil)
		if resp.StatusCode != http.StatusUnauthorized || len(resp.Cookies()) > 0 || !strings.Contains(body, "used already") || strings.Contains(body, spent) {
			t.Errorf("the code %s: %s", spent, resp.Status)
		}
	}
	if resp, _ := s.do(t, "GET", "/login?code="+s.c.codes.Issue(goodToken)+"&next=%2F%2Fevil.example", nil); resp.Header.Get("Location") != "/" {
		t.Errorf("a link leads to %q", resp.Header.Get("Location"))
	}
}

// TestLoginCodeIsOpenedByAPerson checks a link that another site opens, so that the
// victim would use the attacker's session, and a link that a browser prefetches. Neither
// signs in, and neither invalidates the code.
func TestLoginCodeIsOpenedByAPerson(t *testing.T) {
	s := newSite(t, newFake().populate())
	code := s.c.codes.Issue(goodToken)
	for _, headers := range [][]string{
		{"Sec-Fetch-Site", "cross-site"},
		{"Sec-Fetch-Site", "same-site"}, // another port of this machine
		{"Sec-Purpose", "prefetch"},
		{"Sec-Purpose", "prefetch;prerender"},
		{"Purpose", "prefetch"},
	} {
		resp, _ := s.do(t, "GET", "/login?code="+code, nil, headers...)
		if resp.StatusCode != http.StatusForbidden || len(resp.Cookies()) > 0 {
			t.Errorf("with %q: %s, %v", headers, resp.Status, resp.Cookies())
		}
	}
	if resp, _ := s.do(t, "HEAD", "/login?code="+code, nil); len(resp.Cookies()) > 0 {
		t.Errorf("HEAD: %s, %v", resp.Status, resp.Cookies())
	}
	if resp, _ := s.do(t, "GET", "/login?code="+code, nil, "Sec-Fetch-Site", "none"); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("typed into the address bar: %s", resp.Status)
	}
}

// TestCodesEnd checks that codes expire.
func TestCodesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCodes()
		young, old := c.Issue("a"), c.Issue("b")
		time.Sleep(10*time.Minute - time.Nanosecond)
		if token, ok := c.take(young); !ok || token != "a" {
			t.Errorf("within ten minutes: %q, %v", token, ok)
		}
		if _, ok := c.take(young); ok {
			t.Error("a code works twice")
		}
		time.Sleep(time.Nanosecond)
		if _, ok := c.take(old); ok {
			t.Error("a code works after ten minutes")
		}
		forgotten := c.Issue("c")
		time.Sleep(10 * time.Minute)
		c.Issue("d")
		if _, ok := c.take(forgotten); ok || len(c.byKey) != 1 {
			t.Errorf("%d codes are kept", len(c.byKey))
		}
	})
}
