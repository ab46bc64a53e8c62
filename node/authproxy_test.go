package node_test

import (
	"context"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/transport"
	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// authProxy is a proxy that sets headers. The server sees the address from.
type authProxy struct {
	http.Transport
	headers http.Header
}

// RoundTrip implements [http.RoundTripper].
func (p *authProxy) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	maps.Copy(r.Header, p.headers)
	return p.Transport.RoundTrip(r)
}

const userHeader, groupsHeader = "X-Forwarded-User", "X-Forwarded-Groups"

// names makes the proxy name a user and its groups; "": it leaves the header out.
func (p *authProxy) names(user, groups string) {
	p.headers = http.Header{"X-Forwarded-For": {"203.0.113.9"}}
	if user != "" {
		p.headers[userHeader] = []string{user}
	}
	if groups != "" {
		p.headers[groupsHeader] = []string{groups}
	}
}

// throughProxy returns a browser whose requests come from an address.
func throughProxy(t *testing.T, address, from string) (*browser, *authProxy) {
	p := &authProxy{Transport: http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext}}
	t.Cleanup(p.CloseIdleConnections)
	b := newBrowser(t, address)
	b.Transport = p
	return b, p
}

// proxiedServer returns a server that trusts the proxy at 127.0.0.1, with its administrator.
func proxiedServer(t *testing.T) (*process, *sdk.Client) {
	t.Helper()
	p := launch(t, func(ctx context.Context, ready func(node.Ready)) error {
		return node.Server(ctx, node.RecordsRefusals(node.ServerConfig{
			Data: t.TempDir(), Listen: "127.0.0.1:0", Ready: ready,
			Limits: transport.Limits{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}},
			People: node.PeopleConfig{AuthProxy: node.AuthProxy{Header: userHeader, Groups: groupsHeader}},
		}, 50*time.Millisecond))
	})
	admin, err := sdk.Dial(t.Context(), p.URL, sdk.Options{Token: p.Token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { admin.Close() }) //nolint:errcheck // a test's
	return p, admin
}

func bind(t *testing.T, admin *sdk.Client, principal, role string) {
	t.Helper()
	if _, err := admin.AddBinding(t.Context(), principal, role, sdk.ClusterScope, time.Time{}); err != nil {
		t.Fatal(err)
	}
}

// TestAuthProxy signs in people that a proxy names: with the roles of their groups, and never as
// the person before them in the same browser.
func TestAuthProxy(t *testing.T) {
	t.Parallel()
	p, admin := proxiedServer(t)
	b, proxy := throughProxy(t, p.URL, "127.0.0.1")
	proxy.names("jane", "unknown, engineering")
	if resp, text := b.open("/hosts"); resp.StatusCode != http.StatusForbidden || !strings.Contains(text, "You have no role yet") || !strings.Contains(text, "jane") {
		t.Fatalf("without a role: %d\n%s", resp.StatusCode, text)
	}
	bind(t, admin, "group:engineering", "viewer")
	if resp, text := b.open("/hosts"); resp.StatusCode != http.StatusOK || resp.Request.URL.Path != "/hosts" || !strings.Contains(text, "jane") {
		t.Fatalf("with the role of a group: %s, %d\n%s", resp.Request.URL, resp.StatusCode, text)
	}
	sessions := func(principal string) (n int) {
		all, err := admin.Sessions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			if s.GetPrincipal() == principal {
				n++
			}
		}
		return n
	}
	b.open("/hosts")
	proxy.names("jane", "engineering, unknown") // in another order
	b.open("/login?next=/hosts")
	if n := sessions("jane"); n != 1 {
		t.Errorf("jane has %d sessions", n)
	}
	events := auditOf(t, admin, sdk.AuditQuery{Code: "session.started", Actor: "jane"})
	if !slices.ContainsFunc(events, func(e *sdk.AuditEvent) bool {
		return e.GetAddress() == "203.0.113.9" && e.GetMessage() == "console, signed in by auth-proxy" && strings.HasPrefix(e.GetToken(), "ses-")
	}) {
		t.Errorf("the events of the sign-in: %v", events)
	}

	// The session is of no use without the header, and in a browser that goes around the proxy.
	proxy.names("", "engineering")
	if resp, text := b.open("/hosts"); resp.StatusCode != http.StatusUnauthorized || !strings.Contains(text, "has named no user") || strings.Contains(text, "<form action=\"/login\"") {
		t.Errorf("without the header: %d\n%s", resp.StatusCode, text)
	}
	if resp, _ := b.send("/login", url.Values{"token": {p.Token}}); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a token signs in without the header: %d", resp.StatusCode)
	}
	proxy.names("jane", "engineering")
	if resp, _ := b.open("/hosts"); resp.StatusCode != http.StatusOK || sessions("jane") != 1 {
		t.Errorf("with other groups: %d, %d sessions", resp.StatusCode, sessions("jane"))
	}

	// Another person in the same browser.
	proxy.names("kim", "engineering")
	if resp, text := b.open("/hosts"); resp.StatusCode != http.StatusOK || !strings.Contains(text, "kim") || strings.Contains(text, "jane") {
		t.Errorf("another name: %d\n%s", resp.StatusCode, text)
	}
	proxy.names("jane", "engineering")
	resp, text := b.send("/apps/default/calendars", url.Values{"name": {"made-by-kim"}})
	if resp.Request.Method != http.MethodGet || strings.Contains(text, "made-by-kim") || sessions("kim") != 0 {
		t.Errorf("a form of the person before: %s %s, %d sessions of kim", resp.Request.Method, resp.Request.URL, sessions("kim"))
	}

	// A form without a session starts one, and is shown again.
	fresh, other := throughProxy(t, p.URL, "127.0.0.1")
	other.names("jane", "engineering")
	if resp, text := fresh.send("/apps/default/calendars", url.Values{"name": {"kept"}}); resp.StatusCode != http.StatusOK || !strings.Contains(text, "kept") || !strings.Contains(text, "POST /apps/default/calendars") {
		t.Errorf("a form without a session: %d\n%s", resp.StatusCode, text)
	}
	if calendars, err := admin.Calendars(t.Context(), "default"); err != nil || len(calendars) != 0 {
		t.Errorf("it was carried out: %v, %v", calendars, err)
	}
	if resp, text := fresh.send("/logout", nil); resp.Request.URL.RequestURI() != "/login?left=1" || !strings.Contains(text, "sign out there too") {
		t.Errorf("after signing out: %s\n%s", resp.Request.URL, text)
	}

	// The header is no credential of the API, and of no use to another site.
	for path, headers := range map[string][2]string{
		"/api/v1/apps": {"Accept", "application/json"},
		"/apps":        {"Sec-Fetch-Site", "cross-site"},
		"/login":       {"Sec-Fetch-Site", "cross-site"},
	} {
		again, proxy := throughProxy(t, p.URL, "127.0.0.1")
		proxy.names("jane", "engineering")
		proxy.headers.Set(headers[0], headers[1])
		before := sessions("jane")
		if resp, _ := again.open(path); resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden || sessions("jane") != before {
			t.Errorf("%s with %v: %d", path, headers, resp.StatusCode)
		}
	}
	// A link on another site leads to a page.
	again, linked := throughProxy(t, p.URL, "127.0.0.1")
	linked.names("jane", "engineering")
	linked.headers.Set("Sec-Fetch-Site", "cross-site")
	linked.headers.Set("Sec-Fetch-Dest", "document")
	if resp, _ := again.open("/hosts"); resp.StatusCode != http.StatusOK || resp.Request.URL.Path != "/hosts" {
		t.Errorf("a link on another site: %d at %s", resp.StatusCode, resp.Request.URL)
	}
}

// TestAuthProxyRefuses tries names that the proxy must not give, and headers of clients.
func TestAuthProxyRefuses(t *testing.T) {
	t.Parallel()
	p, admin := proxiedServer(t)
	bind(t, admin, "group:engineering", "viewer")
	if _, err := admin.CreateUser(t.Context(), "local"); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CreateToken(t.Context(), "ci", "admin", sdk.ClusterScope, ""); err != nil {
		t.Fatal(err)
	}
	b, proxy := throughProxy(t, p.URL, "127.0.0.1")
	proxy.names("gone", "engineering")
	if resp, _ := b.open("/hosts"); resp.StatusCode != http.StatusOK {
		t.Fatalf("a user: %d", resp.StatusCode)
	}
	if _, err := admin.DisableUser(t.Context(), "gone", true); err != nil {
		t.Fatal(err)
	}
	const groups = "engineering"
	long := strings.Repeat("g", 16<<10)
	for name, tt := range map[string]struct {
		users, groups []string
		want          string
	}{
		"a local user":       {[]string{"local"}, []string{groups}, "already a user"},
		"a service account":  {[]string{"ci"}, []string{groups}, "already a service"},
		"a disabled user":    {[]string{"gone"}, []string{groups}, "is disabled"},
		"a built-in name":    {[]string{"legacy-admin"}, []string{groups}, "reserved"},
		"a group":            {[]string{"group:engineering"}, []string{groups}, "is not a name"},
		"two names":          {[]string{"mallory", "jane"}, []string{groups}, "several times"},
		"the same twice":     {[]string{"jane", "jane"}, []string{groups}, "several times"},
		"a list":             {[]string{"mallory, jane"}, []string{groups}, "is not a name"},
		"no name":            {[]string{""}, []string{groups}, "is empty"},
		"a long name":        {[]string{strings.Repeat("j", 65)}, []string{groups}, "has 65 bytes"},
		"a control":          {[]string{"ja\tne"}, []string{groups}, "control characters"},
		"no UTF-8":           {[]string{"jane\xff"}, []string{groups}, "not UTF-8"},
		"a text":             {[]string{"Jane <b>Doe"}, []string{groups}, "is not a name"},
		"two lists":          {[]string{"jane"}, []string{groups, "other"}, "several times"},
		"a long list":        {[]string{"jane"}, []string{groups + "," + long}, "has 16396 bytes"},
		"groups not UTF-8":   {[]string{"jane"}, []string{groups + ",\xff"}, "not UTF-8"},
		"groups of controls": {[]string{"jane"}, []string{groups + "\t,x"}, "control characters"},
	} {
		b, proxy := throughProxy(t, p.URL, "127.0.0.1")
		proxy.names("", "")
		proxy.headers[userHeader], proxy.headers[groupsHeader] = tt.users, tt.groups
		resp, text := b.open("/hosts")
		if resp.StatusCode != http.StatusForbidden || !strings.Contains(text, tt.want) {
			t.Errorf("%s: %d, want %q\n%s", name, resp.StatusCode, tt.want, text)
		}
		if u, _ := url.Parse(p.URL); len(b.Jar.Cookies(u)) != 0 {
			t.Errorf("%s: a session", name)
		}
	}
	var refused []*sdk.AuditEvent
	reaches(t, spread, "the refusals are in the audit log", func() bool {
		refused = auditOf(t, admin, sdk.AuditQuery{Code: "session.refused"})
		n := int64(0)
		for _, e := range refused {
			n += e.GetCount()
		}
		return n == 17
	})
	if e := refused[0]; e.GetAddress() != "203.0.113.9" || e.GetActor() != "" || e.GetOutcome() != "denied" || e.GetMessage() == "" {
		t.Errorf("the event of a refusal: %v", e)
	}

	// Another spelling is another header.
	b, proxy = throughProxy(t, p.URL, "127.0.0.1")
	proxy.names("", groups)
	proxy.headers["X_Forwarded_User"] = []string{"jane"}
	if resp, _ := b.open("/hosts"); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("with underscores: %d", resp.StatusCode)
	}

	// A client without cookies signs in with each request, up to a limit.
	limited := false
	for range 30 {
		b, proxy := throughProxy(t, p.URL, "127.0.0.1")
		proxy.names("robot", groups)
		b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		resp, _ := b.open("/hosts")
		limited = limited || resp.StatusCode == http.StatusTooManyRequests
	}
	if !limited {
		t.Error("a client signs in without a limit")
	}
	b, proxy = throughProxy(t, p.URL, "127.0.0.1")
	proxy.names("jane", groups)
	if resp, _ := b.open("/hosts"); resp.StatusCode != http.StatusOK {
		t.Errorf("another user at the same address: %d", resp.StatusCode)
	}
}

// TestAuthProxyOfOthers sends the header from an address that is no trusted proxy: it counts for nothing,
// and a session of the proxy is of no use there.
func TestAuthProxyOfOthers(t *testing.T) {
	t.Parallel()
	p, admin := proxiedServer(t)
	bind(t, admin, "group:engineering", "admin")
	b, outside := throughProxy(t, p.URL, "127.0.0.2")
	outside.names("mallory", "engineering")
	resp, err := b.Get(p.URL + "/hosts")
	if err != nil {
		t.Skipf("this machine has no second loopback address: %v", err)
	}
	if resp, text := b.read(resp, nil); resp.Request.URL.Path != "/login" || !strings.Contains(text, `<form action="/login"`) {
		t.Errorf("from outside: %s\n%s", resp.Request.URL, text)
	}
	if all, err := admin.Principals(t.Context()); err != nil || slices.ContainsFunc(all, func(x *sdk.Principal) bool { return x.GetPrincipal() == "mallory" }) {
		t.Errorf("from outside a user was created: %v, %v", all, err)
	}
	// A token signs in there, and the header does not change that.
	if resp, text := b.send("/login", url.Values{"token": {p.Token}, "next": {"/hosts"}}); resp.StatusCode != http.StatusOK || resp.Request.URL.Path != "/hosts" || strings.Contains(text, "mallory") {
		t.Errorf("a token from outside: %d at %s", resp.StatusCode, resp.Request.URL)
	}

	inside, proxy := throughProxy(t, p.URL, "127.0.0.1")
	proxy.names("jane", "engineering")
	if resp, _ := inside.open("/hosts"); resp.StatusCode != http.StatusOK {
		t.Fatalf("through the proxy: %d", resp.StatusCode)
	}
	thief, around := throughProxy(t, p.URL, "127.0.0.2")
	around.names("jane", "engineering")
	thief.Jar = inside.Jar
	if resp, _ := thief.open("/hosts"); resp.Request.URL.Path != "/login" {
		t.Errorf("a session of the proxy is accepted at %s", resp.Request.URL)
	}

	// The session of the token is of another person than the one that the proxy names.
	inside.Jar = b.Jar
	proxy.names("", "")
	if resp, _ := inside.open("/hosts"); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("with the session of a token, and without the header: %d", resp.StatusCode)
	}
	if resp, _ := b.open("/hosts"); resp.StatusCode != http.StatusOK || resp.Request.URL.Path != "/hosts" {
		t.Errorf("this has ended the session of the token: %d at %s", resp.StatusCode, resp.Request.URL)
	}
	proxy.names("jane", "engineering")
	if resp, text := inside.open("/hosts"); resp.StatusCode != http.StatusOK || !strings.Contains(text, "jane") {
		t.Errorf("with the session of a token: %d\n%s", resp.StatusCode, text)
	}
	if resp, _ := b.open("/hosts"); resp.Request.URL.Path != "/login" {
		t.Errorf("the session of the token goes on at %s", resp.Request.URL)
	}
}

func TestAuthProxyConfig(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.2/32")}
	for _, good := range []node.AuthProxy{{}, {Header: "x-forwarded-user"}, {Header: "Remote-User", Groups: "Remote-Groups"}} {
		if err := good.Check(trusted); err != nil {
			t.Errorf("%v: %v", good, err)
		}
	}
	for want, bad := range map[string]node.AuthProxy{
		"needs --auth-proxy-header": {Groups: "X-Groups"},
		"Authorization":             {Header: "authorization"},
		"Cookie":                    {Header: "Cookie"},
		"Host":                      {Header: "host"},
		"X-Forwarded-For":           {Header: "X-Forwarded-For"},
		"Connection":                {Header: "connection"},
		"Sec-Fetch-Site":            {Header: "Sec-Fetch-Site"},
		"Content-Type":              {Header: "X-User", Groups: "content-type"},
		"Proxy-Authorization":       {Header: "Proxy-Authorization"},
		"Wheelwork-Cause":           {Header: "Wheelwork-Cause"},
		"letters, digits":           {Header: "X User"},
		"X_User":                    {Header: "X_User"},
		"the same header":           {Header: "X-User", Groups: "x-user"},
	} {
		if err := bad.Check(trusted); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", bad, err, want)
		}
	}
	if err := (node.AuthProxy{Header: "X-User"}).Check(nil); err == nil || !strings.Contains(err.Error(), "--trusted-proxy") {
		t.Errorf("without a trusted proxy: %v", err)
	}
	if err := node.Server(t.Context(), node.ServerConfig{Data: t.TempDir(), Listen: "127.0.0.1:0", People: node.PeopleConfig{AuthProxy: node.AuthProxy{Header: "X-User"}}}); err == nil || !strings.Contains(err.Error(), "--trusted-proxy") {
		t.Errorf("a server without a trusted proxy: %v", err)
	}
}

// TestAuthProxyInCluster signs a person in at either server, and so also at one that does not own the
// access state.
func TestAuthProxyInCluster(t *testing.T) {
	t.Parallel()
	w := newSeveral(t, 2)
	w.proxied = true
	for _, name := range []string{"a", "b"} {
		w.start(name)
	}
	c := w.client("a", "b")
	w.untilBothOwn(c)
	bind(t, c, "group:engineering", "viewer")
	for _, at := range []string{"a", "b"} {
		b, proxy := throughProxy(t, "http://"+w.at[at], "127.0.0.1")
		proxy.names("jane", "engineering")
		if resp, text := b.open("/hosts"); resp.StatusCode != http.StatusOK || !strings.Contains(text, "jane") {
			t.Errorf("at %s: %d\n%s", at, resp.StatusCode, text)
		}
		if events := auditOf(t, c, sdk.AuditQuery{Code: "session.started", Actor: "jane"}); !slices.ContainsFunc(events, func(e *sdk.AuditEvent) bool {
			return e.GetAddress() == "203.0.113.9" && strings.Contains(e.GetMessage(), "auth-proxy")
		}) {
			t.Errorf("at %s: %v", at, events)
		}
	}
}
