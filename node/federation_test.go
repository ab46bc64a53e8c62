package node_test

import (
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oauth2-proxy/mockoidc"

	"github.com/wheelworkhq/wheelwork/access/oidc"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// browser is a browser of a person.
type browser struct {
	*testing.T
	http.Client
	url string
}

func newBrowser(t *testing.T, url string) *browser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &browser{t, http.Client{Jar: jar}, url}
}

// read returns the last response of a request, after its redirects, and its text.
func (b *browser) read(resp *http.Response, err error) (*http.Response, string) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.Fatal(err)
	}
	return resp, string(text)
}

func (b *browser) open(path string) (*http.Response, string) {
	b.Helper()
	return b.read(b.Get(b.url + path))
}

func (b *browser) send(path string, form url.Values) (*http.Response, string) {
	b.Helper()
	return b.read(b.PostForm(b.url+path, form))
}

// TestFederation signs a person in at an OpenID provider that is not ours: without a role first, then with
// that of a group, for the console and for a command line.
func TestFederation(t *testing.T) {
	t.Parallel()
	mock, err := mockoidc.Run()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mock.Shutdown() }) //nolint:errcheck // the test is over
	dir, at := t.TempDir(), testkit.FreeAddress(t)
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte(mock.ClientSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := launch(t, func(ctx context.Context, ready func(node.Ready)) error {
		return node.Server(ctx, node.ServerConfig{Data: filepath.Join(dir, "data"), Listen: at, Ready: ready, People: node.PeopleConfig{
			OIDCSecretFile: secret,
			OIDC:           oidc.Config{Issuer: mock.Issuer(), ClientID: mock.ClientID, Callback: "http://" + at + node.CallbackPath, Title: "Example Login", Scopes: []string{"profile", "email", "groups"}},
		}})
	})
	admin, err := sdk.Dial(t.Context(), p.URL, sdk.Options{Token: p.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close() //nolint:errcheck // a test's
	b := newBrowser(t, p.URL)
	if resp, text := b.open("/login?next=/hosts"); resp.StatusCode != http.StatusOK || !strings.Contains(text, "Example Login") || !strings.Contains(text, `href="/login/provider?next=%2fhosts"`) {
		t.Fatalf("the sign-in page: %d\n%s", resp.StatusCode, text)
	}
	if resp, text := b.open("/login/provider?next=/hosts"); resp.StatusCode != http.StatusForbidden || !strings.Contains(text, "You have no role yet") || !strings.Contains(text, "jane.doe") {
		t.Errorf("without a role: %d\n%s", resp.StatusCode, text)
	}
	if _, err := admin.AddBinding(t.Context(), "group:engineering", "viewer", sdk.ClusterScope, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if resp, text := b.open("/login/provider?next=/hosts"); resp.StatusCode != http.StatusOK || resp.Request.URL.Path != "/hosts" || !strings.Contains(text, "jane.doe") {
		t.Fatalf("with the role of a group: %s, %d\n%s", resp.Request.URL, resp.StatusCode, text)
	}

	// The answer of the provider to one browser is of no use in another one.
	var answer string
	victim := newBrowser(t, p.URL)
	victim.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if r.URL.Path == node.CallbackPath {
			answer = r.URL.RequestURI()
			return http.ErrUseLastResponse
		}
		return nil
	}
	victim.open("/login/provider")
	for what, thief := range map[string]*browser{"without a sign-in": newBrowser(t, p.URL), "with another one": newBrowser(t, p.URL)} {
		want := http.StatusBadRequest
		if what == "with another one" {
			thief.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			thief.open("/login/provider")
			thief.CheckRedirect, want = nil, http.StatusForbidden
		}
		if resp, _ := thief.open(answer); resp.StatusCode != want || resp.Request.URL.Path != node.CallbackPath {
			t.Errorf("a stolen answer in a browser %s: %d at %s", what, resp.StatusCode, resp.Request.URL)
		}
		if resp, _ := thief.open("/hosts"); resp.Request.URL.Path != "/login" {
			t.Errorf("a stolen answer in a browser %s has signed it in", what)
		}
	}
	foreign, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.URL+"/login/provider", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	foreign.Header.Set("Sec-Fetch-Site", "cross-site")
	if resp, _ := victim.read(victim.Do(foreign)); resp.StatusCode != http.StatusForbidden {
		t.Errorf("another site begins a sign-in: %d", resp.StatusCode)
	}

	// A command line acts for the person after the approval in the browser.
	login := sdk.NewLogin()
	anonymous, err := sdk.Dial(t.Context(), p.URL, sdk.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer anonymous.Close() //nolint:errcheck // a test's
	if resp, text := b.open("/login/command?code=" + login.Code); resp.StatusCode != http.StatusOK || !strings.Contains(text, login.Code) || !strings.Contains(text, "jane.doe") {
		t.Errorf("the page of the approval: %d\n%s", resp.StatusCode, text)
	}
	if resp, text := b.send("/login/command", url.Values{"code": {login.Code}}); resp.StatusCode != http.StatusOK || !strings.Contains(text, "signed in") {
		t.Errorf("the approval: %d\n%s", resp.StatusCode, text)
	}
	_, token, err := anonymous.ClaimLogin(t.Context(), login)
	if err != nil {
		t.Fatal(err)
	}
	c, err := sdk.Dial(t.Context(), p.URL, sdk.Options{Token: token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // a test's
	if who, err := c.WhoAmI(t.Context()); err != nil || who.GetPrincipal() != "jane.doe" || len(who.GetBindings()) != 1 || who.GetProvider() != mock.Issuer() {
		t.Errorf("the command line is %v: %v", who, err)
	}
	// The token of the server's own sign-ins is of no use to an administrator.
	if err := admin.ApproveLogin(t.Context(), sdk.NewLogin().Code); err == nil {
		t.Error("a token in a file approves a command line")
	}

	if resp, text := b.send("/logout", nil); resp.Request.URL.RequestURI() != "/login?left=1" || !strings.Contains(text, "/login/leave") {
		t.Errorf("after signing out: %s\n%s", resp.Request.URL, text)
	}
	if resp, _ := b.open("/hosts"); resp.Request.URL.Path != "/login" {
		t.Errorf("after signing out the browser sees %s", resp.Request.URL)
	}
	if resp, _ := b.open("/login/leave"); resp.Request.URL.Path != "/login" { // this provider ends no sessions
		t.Errorf("it leaves for %s", resp.Request.URL)
	}
}
