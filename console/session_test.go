package console

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// memory is a storage that can fail.
type memory struct {
	saved []byte
	fails error
}

func (m *memory) Load() ([]byte, error) { return m.saved, nil }

func (m *memory) Save(b []byte) error {
	if m.fails == nil {
		m.saved = b
	}
	return m.fails
}

func withCookie(id string) *http.Request {
	r := httptest.NewRequest("GET", "/", nil) //nolint:noctx // never sent
	r.AddCookie(&http.Cookie{Name: "k", Value: id})
	return r
}

// TestSessionsSurviveARestart signs in, restarts, signs out and restarts.
func TestSessionsSurviveARestart(t *testing.T) {
	m := &memory{}
	first := newSessions(m, slog.Default())
	a, b := first.add(goodToken, ""), first.add("another-token", "")
	for _, secret := range []string{a.id, b.id, goodToken, "another-token"} {
		if bytes.Contains(m.saved, []byte(secret)) {
			t.Errorf("the storage contains %q", secret)
		}
	}
	second := newSessions(m, slog.Default())
	if got := second.get(withCookie(a.id), "k"); got == nil || got.token != goodToken || got.id != a.id {
		t.Fatalf("after a restart: %+v", got)
	}
	if second.get(withCookie("made-up"), "k") != nil {
		t.Error("any cookie is a session")
	}
	if err := second.remove(a.key); err != nil {
		t.Fatal(err)
	}
	third := newSessions(m, slog.Default())
	if third.get(withCookie(a.id), "k") != nil {
		t.Error("a restart brings back a session that was signed out")
	}
	if got := third.get(withCookie(b.id), "k"); got == nil || got.token != "another-token" {
		t.Errorf("the other session after a restart: %+v", got)
	}
}

// TestSessionsOfTheProxySurviveARestart as such: they stay bound to the visitor, and a visitor has a bounded number of
// them, although each has another token.
func TestSessionsOfTheProxySurviveARestart(t *testing.T) {
	m := &memory{}
	first := newSessions(m, slog.Default())
	jane, kim := Proxied{Name: "jane", Groups: []string{"b", "a", "b"}}, Proxied{Name: "kim"}
	other := first.add("the token of kim", kim.identity())
	var last *session
	for i := range maxPerToken + 3 {
		last = first.add(strings.Repeat("t", i+1), jane.identity())
	}
	if len(first.byKey) != maxPerToken+1 || first.byKey[other.key] == nil {
		t.Errorf("%d sessions of two visitors", len(first.byKey))
	}
	got := newSessions(m, slog.Default()).get(withCookie(last.id), "k")
	if got == nil || got.proxied != (Proxied{Name: "jane", Groups: []string{"a", "b"}}).identity() {
		t.Fatalf("after a restart: %+v", got)
	}
	for _, another := range []Proxied{{Name: "jane"}, {Name: "jane", Groups: []string{"a"}}, {Name: "kim", Groups: jane.Groups}, {Name: "jane", Groups: []string{"a,b"}}} {
		if another.identity() == got.proxied {
			t.Errorf("%v has a session of %v", another, jane)
		}
	}
	if bytes.Contains(m.saved, []byte("jane")) {
		t.Error("the storage has the name of the visitor")
	}
}

func TestDamagedSessions(t *testing.T) {
	m := &memory{}
	id := newSessions(m, slog.Default()).add(goodToken, "").id
	whole := m.saved
	for name, damaged := range map[string][]byte{
		"empty": {}, "cut": whole[:len(whole)/2], "another version": bytes.Replace(whole, []byte(`"version":1`), []byte(`"version":2`), 1),
		"another key": bytes.Replace(whole, []byte(`"key":"`), []byte(`"key":"0`), 1),
	} {
		var logged bytes.Buffer
		s := newSessions(&memory{saved: damaged}, slog.New(slog.NewTextHandler(&logged, nil)))
		if s.get(withCookie(id), "k") != nil || !strings.Contains(logged.String(), "has to sign in again") {
			t.Errorf("%s: %s", name, logged.String())
		}
	}
	i := bytes.Index(whole, []byte(`"sealed":"`)) + len(`"sealed":"`) + 4
	flipped := bytes.Clone(whole)
	flipped[i] = map[bool]byte{true: 'B', false: 'A'}[flipped[i] == 'A']
	if newSessions(&memory{saved: flipped}, slog.Default()).get(withCookie(id), "k") != nil {
		t.Error("a damaged token is used")
	}
}

// TestSessionsAreRenewed uses a session every hour: it lasts as long as it is used, and no
// longer than a week.
func TestSessionsAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		s := newSessions(m, slog.Default())
		x := s.add(goodToken, "")
		if _, renewed := s.renew(x); renewed {
			t.Error("each request renews the session")
		}
		hours := 0
		for ; s.get(withCookie(x.id), "k") != nil && hours < 1000; hours++ {
			s.renew(x)
			time.Sleep(time.Hour)
		}
		if hours != 169 {
			t.Errorf("the session lasts %d hours, want 168 and a last look", hours)
		}
	})
}

// TestRefreshesDoNotRenew checks that a page which refreshes itself does not keep a session
// for ever, and that a visit renews the cookie too.
func TestRefreshesDoNotRenew(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	for _, x := range s.c.sessions.byKey {
		x.expires = x.expires.Add(-time.Hour)
	}
	if resp, _ := s.do(t, "GET", "/hosts", nil, "HX-Request", "true"); len(resp.Cookies()) > 0 {
		t.Errorf("a refresh: %v", resp.Cookies())
	}
	resp, _ := s.do(t, "GET", "/hosts", nil)
	if len(resp.Cookies()) != 1 || resp.Cookies()[0].MaxAge < int(sessionLife/time.Second)-5 {
		t.Errorf("a visit: %v", resp.Cookies())
	}
}

// TestRevokedTokenEndsSessions revokes the token of a session that outlived a restart.
func TestRevokedTokenEndsSessions(t *testing.T) {
	m := &memory{}
	s := newSite(t, newFake().populate()).signIn(t)
	s.c.sessions.storage = m
	s.c.sessions.saveOrLog()
	s.c.sessions = newSessions(m, slog.Default())
	if resp, _ := s.do(t, "GET", "/hosts", nil); resp.StatusCode != http.StatusOK {
		t.Fatalf("after a restart: %s", resp.Status)
	}
	s.fake.change(func() { s.fake.revoked = true })
	if resp, _ := s.do(t, "GET", "/hosts", nil); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("with a revoked token: %s", resp.Status)
	}
	if len(newSessions(m, slog.Default()).byKey) != 0 {
		t.Error("the storage still has the session")
	}
}

// TestSignOutThatIsNotRecorded signs out while the disk is full.
func TestSignOutThatIsNotRecorded(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	s.c.sessions.storage = &memory{fails: errors.New("no space left on device")}
	resp, body := s.post(t, "/logout", "")
	if resp.StatusCode != http.StatusInternalServerError || !strings.Contains(body, "no space left on device") {
		t.Errorf("%s", resp.Status)
	}
	if resp, _ := s.do(t, "GET", "/hosts", nil); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("afterwards: %s", resp.Status)
	}
}
