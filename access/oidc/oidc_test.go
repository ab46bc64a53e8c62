package oidc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/oauth2-proxy/mockoidc"

	"github.com/wheelworkhq/wheelwork/access/oidc"
)

// world is a provider that is not ours, and a client of it.
type world struct {
	*testing.T
	mock     *mockoidc.MockOIDC
	conf     oidc.Config
	provider *oidc.Provider
	// change changes answers of the provider on their way; nil: it does not.
	change func(path string, answer []byte) []byte
}

func newWorld(t *testing.T, set func(*oidc.Config)) *world {
	mock, err := mockoidc.Run()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mock.Shutdown() }) //nolint:errcheck // the test is over
	w := &world{T: t, mock: mock}
	w.conf = oidc.Config{
		Issuer: mock.Issuer(), ClientID: mock.ClientID, ClientSecret: mock.ClientSecret, Callback: "http://127.0.0.1:7700/login/callback",
		Scopes: []string{"profile", "email", "groups"}, Client: &http.Client{Transport: w},
	}
	if set != nil {
		set(&w.conf)
	}
	if w.provider, err = oidc.New(w.conf); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || w.change == nil {
		return resp, err
	}
	b, err := io.ReadAll(resp.Body)
	resp.Body.Close() //nolint:errcheck // it was read
	b = w.change(r.URL.Path, b)
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
	resp.Header.Del("Content-Length")
	return resp, err
}

// answer signs in at the provider as a browser does, and returns the query with which it comes back.
func (w *world) answer(address string) url.Values {
	w.Helper()
	browser := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := browser.Get(address)
	if err != nil {
		w.Fatal(err)
	}
	resp.Body.Close() //nolint:errcheck // it is not read
	to, err := url.Parse(resp.Header.Get("Location"))
	if err != nil || !strings.HasPrefix(to.String(), w.conf.Callback) {
		w.Fatalf("the provider answers %s and leads to %q: %v", resp.Status, to, err)
	}
	return to.Query()
}

func (w *world) begin() (*oidc.Pending, url.Values) {
	w.Helper()
	address, pending, err := w.provider.Begin(w.Context(), time.Now())
	if err != nil {
		w.Fatal(err)
	}
	return pending, w.answer(address)
}

func (w *world) finish(p *oidc.Pending, answer url.Values) (*oidc.Person, error) {
	return w.provider.Finish(w.Context(), p, answer, time.Now())
}

// TestSignIn signs people in: the name is that of the claim, an email only if it is verified.
func TestSignIn(t *testing.T) {
	for name, x := range map[string]struct {
		user  *mockoidc.MockUser
		claim string
		want  string
		why   string
	}{
		"a user name":                {user: &mockoidc.MockUser{Subject: "s-1", PreferredUsername: "ada", Email: "ada@x.example", Groups: []string{"b", "a", "b"}}, want: "ada"},
		"a verified email":           {user: &mockoidc.MockUser{Subject: "s-1", Email: "ada@x.example", EmailVerified: true, Groups: []string{"a", "b"}}, want: "ada@x.example"},
		"the email of another":       {user: &mockoidc.MockUser{Subject: "s-1", Email: "boss@x.example"}, why: "has not verified"},
		"a chosen claim, unverified": {user: &mockoidc.MockUser{Subject: "s-1", PreferredUsername: "ada", Email: "boss@x.example"}, claim: "email", why: "has not verified"},
		"a claim that is missing":    {user: &mockoidc.MockUser{Subject: "s-1", PreferredUsername: "ada"}, claim: "login", why: "--oidc-name-claim"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(c *oidc.Config) { c.NameClaim = x.claim })
			w.mock.QueueUser(x.user)
			person, err := w.finish(w.begin())
			if x.why != "" {
				if err == nil || !strings.Contains(err.Error(), x.why) {
					t.Errorf("%v, %v", person, err)
				}
				return
			}
			if err != nil || person.Name != x.want || person.Subject != "s-1" || person.Issuer != w.mock.Issuer() || !slices.Equal(person.Groups, []string{"a", "b"}) {
				t.Errorf("%+v, %v", person, err)
			}
		})
	}
}

// TestForeignAnswers refuses answers that belong to another sign-in or browser, or that the provider
// did not sign.
func TestForeignAnswers(t *testing.T) {
	w := newWorld(t, nil)
	refused := func(what string, p *oidc.Pending, answer url.Values, why string) {
		t.Helper()
		person, err := w.finish(p, answer)
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %+v, %v, want %q", what, person, err, why)
		}
	}
	pending, answer := w.begin()
	other, otherAnswer := w.begin()
	refused("the answer to another browser", pending, otherAnswer, "another sign-in")
	refused("an answer without a state", pending, url.Values{"code": answer["code"]}, "another sign-in")
	refused("an error without a state", pending, url.Values{"error": {"access_denied"}}, "another sign-in")
	refused("a refusal", pending, url.Values{"error": {"access_denied"}, "error_description": {"not you"}, "state": {pending.State}}, "access_denied: not you")
	// A code that was stolen from another browser is bound to its verifier.
	stolen := url.Values{"state": answer["state"], "code": otherAnswer["code"]}
	refused("a stolen code", pending, stolen, "refused the code")
	if _, err := w.finish(other, otherAnswer); err == nil {
		t.Error("the provider accepts a code after a wrong verifier: the test does not show what it should")
	}
	pending, answer = w.begin()
	if _, err := w.provider.Finish(t.Context(), pending, answer, pending.Until); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("too late: %v", err)
	}
	if _, err := w.finish(pending, answer); err != nil {
		t.Fatal(err)
	}
	refused("a code twice", pending, answer, "refused the code")

	pending, answer = w.begin()
	again := *pending
	again.Nonce = "of another sign-in"
	refused("an ID token of another sign-in", &again, answer, "another sign-in")

	for what, forge := range map[string]func(token string) string{
		"a changed signature": func(token string) string {
			b := []byte(token)
			b[len(b)-5] ^= 1
			return string(b)
		},
		"no signature": func(token string) string {
			parts := strings.Split(token, ".")
			claims := jwt.MapClaims{}
			if _, _, err := jwt.NewParser().ParseUnverified(token, claims); err != nil {
				t.Fatal(err)
			}
			unsigned, err := jwt.NewWithClaims(jwt.SigningMethodNone, claims).SignedString(jwt.UnsafeAllowNoneSignatureType)
			if err != nil || len(parts) != 3 {
				t.Fatal(err)
			}
			return unsigned
		},
		"the secret of the client as the key": func(token string) string {
			claims := jwt.MapClaims{}
			if _, _, err := jwt.NewParser().ParseUnverified(token, claims); err != nil {
				t.Fatal(err)
			}
			signed, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(w.conf.ClientSecret))
			if err != nil {
				t.Fatal(err)
			}
			return signed
		},
	} {
		w.change = func(path string, b []byte) []byte {
			if !strings.HasSuffix(path, "/token") {
				return b
			}
			answer := map[string]any{}
			if err := json.Unmarshal(b, &answer); err != nil {
				t.Fatal(err)
			}
			token, ok := answer["id_token"].(string)
			if !ok {
				return b // the first attempt, with the secret of the client in a header, which this provider refuses
			}
			answer["id_token"] = forge(token)
			b, _ = json.Marshal(answer) //nolint:errcheck // texts
			return b
		}
		pending, answer := w.begin()
		refused(what, pending, answer, "not valid")
	}
	w.change = nil

	// The provider signs for another client.
	pending, answer = w.begin()
	foreign := w.conf
	foreign.ClientID = "another-client"
	p, err := oidc.New(foreign)
	if err != nil {
		t.Fatal(err)
	}
	if person, err := p.Finish(t.Context(), pending, answer, time.Now()); err == nil {
		t.Errorf("for another client: %+v", person)
	}
	pending, answer = w.begin()
	if person, err := w.provider.Finish(t.Context(), pending, answer, time.Now().Add(12*time.Minute)); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("an ID token that has expired: %+v, %v", person, err)
	}
}

// inUserInfo is a person whose groups are in the answer of the userinfo endpoint alone.
type inUserInfo struct {
	*mockoidc.MockUser
	subject string
}

func (u inUserInfo) Claims(_ []string, claims *mockoidc.IDTokenClaims) (jwt.Claims, error) {
	return claims, nil
}

func (u inUserInfo) Userinfo([]string) ([]byte, error) {
	return json.Marshal(map[string]any{"sub": u.subject, "preferred_username": "ada", "groups": "ops"})
}

// TestUserInfo reads the claims that are not in the ID token, and refuses those of another person.
func TestUserInfo(t *testing.T) {
	w := newWorld(t, nil)
	w.mock.QueueUser(inUserInfo{mockoidc.DefaultUser(), mockoidc.DefaultUser().Subject})
	person, err := w.finish(w.begin())
	if err != nil || person.Name != "ada" || !slices.Equal(person.Groups, []string{"ops"}) {
		t.Errorf("%+v, %v", person, err)
	}
	w.mock.QueueUser(inUserInfo{mockoidc.DefaultUser(), "another"})
	if person, err := w.finish(w.begin()); err == nil || !strings.Contains(err.Error(), "another person") {
		t.Errorf("the claims of another person: %+v, %v", person, err)
	}
}

// TestUnavailable begins no sign-in while the provider does not answer, and goes on when it does.
func TestUnavailable(t *testing.T) {
	w := newWorld(t, nil)
	w.change = func(string, []byte) []byte { return []byte("<html>502 Bad Gateway</html>") }
	unavailable := (*oidc.UnavailableError)(nil)
	if _, _, err := w.provider.Begin(t.Context(), time.Now()); !errors.As(err, &unavailable) {
		t.Errorf("a provider that is down: %v", err)
	}
	w.change = nil
	pending, answer := w.begin()
	for range 2 { // the client tries both places for its secret
		w.mock.QueueError(&mockoidc.ServerError{Code: http.StatusBadGateway, Error: "down"})
	}
	if _, err := w.finish(pending, answer); !errors.As(err, &unavailable) {
		t.Errorf("at the second step: %v", err)
	}
	if _, err := w.finish(pending, answer); err != nil {
		t.Errorf("the same answer again: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	fresh, err := oidc.New(w.conf)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := fresh.Begin(gone, time.Now()); err != nil {
		t.Errorf("the description is read for later callers too: %v", err)
	}
}

// TestSignOut has the address at which the provider ends its session, if it has one.
func TestSignOut(t *testing.T) {
	w := newWorld(t, nil)
	if to := w.provider.SignOut(t.Context(), "https://w.example/login"); to != "" {
		t.Errorf("a provider without the address: %q", to)
	}
	for end, want := range map[string]string{
		"https://id.example/out?x=1": "https://id.example/out?client_id=" + w.mock.ClientID + "&post_logout_redirect_uri=https%3A%2F%2Fw.example%2Flogin&x=1",
		"http://id.example/out":      "", // it would send the visitor over plain HTTP
		"javascript:alert(1)":        "",
	} {
		w := newWorld(t, func(c *oidc.Config) { c.ClientID = w.mock.ClientID })
		w.change = func(path string, b []byte) []byte {
			if !strings.HasSuffix(path, "openid-configuration") {
				return b
			}
			d := map[string]any{}
			if err := json.Unmarshal(b, &d); err != nil {
				t.Fatal(err)
			}
			d["end_session_endpoint"] = end
			b, _ = json.Marshal(d) //nolint:errcheck // texts
			return b
		}
		if to := w.provider.SignOut(t.Context(), "https://w.example/login"); to != want {
			t.Errorf("%s: %q, want %q", end, to, want)
		}
	}
}

// TestConfig refuses addresses over which a sign-in could be read, and a client without an id.
func TestConfig(t *testing.T) {
	good := oidc.Config{Issuer: "https://id.example", ClientID: "w", Callback: "https://w.example/login/callback"}
	if p, err := oidc.New(good); err != nil || p.Title() != "id.example" {
		t.Error(err)
	}
	for why, set := range map[string]func(*oidc.Config){
		"the issuer is":      func(c *oidc.Config) { c.Issuer = "http://id.example" },
		"the issuer is \"\"": func(c *oidc.Config) { c.Issuer = "" },
		"public URL is":      func(c *oidc.Config) { c.Callback = "http://w.example/login/callback" },
		"public URL is \"h":  func(c *oidc.Config) { c.Callback = "https://ada:secret@w.example" },
		"id of the client":   func(c *oidc.Config) { c.ClientID = "" },
	} {
		c := good
		set(&c)
		if _, err := oidc.New(c); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", why, err)
		}
	}
}
