package console

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestEveryRouteWithoutSession walks the table of routes. A route that is not open must
// refuse a request before it calls the API.
func TestEveryRouteWithoutSession(t *testing.T) {
	s := newSite(t, newFake().populate())
	wildcard := regexp.MustCompile(`\{[^}]*\}`)
	for _, r := range s.c.routes() {
		if (r.page == nil) == (r.open == nil) {
			t.Errorf("%s: exactly one of page and open must be set", r.pattern)
		}
		if r.page == nil {
			continue
		}
		method, path, ok := strings.Cut(r.pattern, " ")
		if !ok {
			method, path = "GET", r.pattern
		}
		path = strings.ReplaceAll(path, "{$}", "")
		path = wildcard.ReplaceAllString(path, "x")
		for _, cookie := range []string{"", "wheelwork_session=made-up", "wheelwork_session=" + goodToken} {
			resp, _ := s.do(t, method, path, nil, "Cookie", cookie, "Authorization", "Bearer "+goodToken)
			toLogin := resp.StatusCode == http.StatusSeeOther && strings.HasPrefix(resp.Header.Get("Location"), "/login")
			if refused := resp.StatusCode == http.StatusUnauthorized; !toLogin && !refused {
				t.Errorf("%s with cookie %q: %s", r.pattern, cookie, resp.Status)
			}
		}
	}
	if n := len(s.fake.asked); n != 0 {
		t.Errorf("%d requests reached the API without a session", n)
	}
}

func TestOpenRoutes(t *testing.T) {
	s := newSite(t, newFake().populate())
	for path, want := range map[string]int{
		"/livez":                    200,
		"/readyz":                   200,
		"/login":                    200,
		"/favicon.ico":              200,
		"/static/console.css":       200,
		"/static/nothing":           404,
		"/static/../console.go":     307, // redirects to the clean path, which is a page
		"/api/v1/openapi.json":      200,
		"/schemas/document.json":    200,
		"/schemas/job.json":         200,
		"/schemas/Calendar.json":    200,
		"/schemas/nothing.json":     404,
		"/schemas/job":              404,
		"/api/v1/version":           200,
		"/api/v1/hosts":             401,
		"/api/v1/apps/x/jobs":       401,
		"/api/v1/nothing":           404,
		"/api/v1/apps/x/runs/1/log": 401,
	} {
		if resp, body := s.do(t, "GET", path, nil); resp.StatusCode != want {
			t.Errorf("%s: %s, want %d\n%.200s", path, resp.Status, want, body)
		}
	}
}

// TestSessionDoesNotOpenTheAPI checks that the API refuses a session cookie. Other sites
// can make a browser send a cookie, but not a bearer token.
func TestSessionDoesNotOpenTheAPI(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	if resp, _ := s.do(t, "GET", "/api/v1/hosts", nil); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("hosts: %s", resp.Status)
	}
	if resp, _ := s.do(t, "PUT", "/api/v1/apps/default/modules/m/versions/1", strings.NewReader("\x00asm")); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("upload: %s", resp.Status)
	}
}

func TestCrossOriginRequestsAreRefused(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	for _, headers := range [][]string{
		{"Sec-Fetch-Site", "cross-site"},
		{"Sec-Fetch-Site", "same-site"},
		{"Origin", "https://evil.example"},
	} {
		for _, path := range []string{"/apps/default/jobs/totals/run", "/apps/default/jobs/totals/delete", "/logout", "/preferences", "/login"} {
			if resp, _ := s.post(t, path, "", headers...); resp.StatusCode != http.StatusForbidden {
				t.Errorf("POST %s with %q: %s, want 403", path, headers, resp.Status)
			}
		}
	}
	if resp, _ := s.post(t, "/preferences", "theme=dark", "Origin", s.URL); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("a form of this origin, from a browser without Sec-Fetch-Site: %s", resp.Status)
	}
	if s.fake.job("totals") == nil || len(s.fake.runs) != len(newFake().populate().runs) {
		t.Error("a request from elsewhere changed something")
	}
}

func TestNothingChangesOnGet(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	for _, path := range []string{"/apps/default/jobs/totals/run", "/apps/default/jobs/totals/resume", "/logout"} {
		if resp, _ := s.do(t, "GET", path, nil); resp.StatusCode != http.StatusNotFound && resp.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("GET %s: %s", path, resp.Status)
		}
	}
	if resp, _ := s.do(t, "GET", "/hosts", nil); resp.StatusCode != http.StatusOK {
		t.Errorf("GET /logout ended the session: %s", resp.Status)
	}
}

func TestHeaders(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	for _, path := range []string{"/login", "/apps/default", "/nowhere", "/api/v1/hosts", "/livez", "/static/console.js"} {
		resp, _ := s.do(t, "GET", path, nil)
		for header, want := range map[string]string{
			"Content-Security-Policy": csp,
			"X-Content-Type-Options":  "nosniff",
			"X-Frame-Options":         "DENY",
			"Referrer-Policy":         "same-origin",
		} {
			if got := resp.Header.Get(header); got != want {
				t.Errorf("%s: %s is %q", path, header, got)
			}
		}
		if cache := resp.Header.Get("Cache-Control"); (cache == "no-store") == strings.HasPrefix(path, "/static/") {
			t.Errorf("%s: Cache-Control is %q", path, cache)
		}
		if resp.Header.Get("Strict-Transport-Security") != "" {
			t.Errorf("%s: a plain site asks for TLS", path)
		}
	}
	if strings.Contains(csp, "unsafe") || strings.Contains(csp, "*") {
		t.Error("the policy is not strict")
	}
}

func TestStaticFilesAreCachedByContent(t *testing.T) {
	s := newSite(t, newFake())
	address, err := s.c.assets.address("console.css")
	if err != nil {
		t.Fatal(err)
	}
	if resp, _ := s.do(t, "GET", address, nil); !strings.Contains(resp.Header.Get("Cache-Control"), "immutable") {
		t.Errorf("%s: %q", address, resp.Header.Get("Cache-Control"))
	}
	if resp, _ := s.do(t, "GET", "/static/console.css?v=old", nil); resp.Header.Get("Cache-Control") != "no-cache" {
		t.Errorf("an old address: %q", resp.Header.Get("Cache-Control"))
	}
}

func TestLogin(t *testing.T) {
	for name, c := range map[string]struct {
		token string
		code  int
	}{
		"right":         {goodToken, http.StatusSeeOther},
		"spaces around": {" " + goodToken + "\n", http.StatusSeeOther},
		"wrong":         {"wwk_wrong", http.StatusUnauthorized},
		"empty":         {"", http.StatusUnauthorized},
		"not a header":  {"a\nb", http.StatusUnauthorized},
		"markup":        {evil, http.StatusUnauthorized},
	} {
		s := newSite(t, newFake().populate())
		resp, body := s.post(t, "/login", url.Values{"token": {c.token}, "next": {"/hosts"}}.Encode())
		if resp.StatusCode != c.code {
			t.Errorf("%s: %s, want %d", name, resp.Status, c.code)
		}
		signedIn := c.code == http.StatusSeeOther
		if hasCookie := len(resp.Cookies()) > 0; hasCookie != signedIn {
			t.Errorf("%s: a cookie was set: %t", name, hasCookie)
		}
		if !signedIn {
			checkPage(t, body)
			if !strings.Contains(body, "This token is not valid") || (c.token != "" && strings.Contains(body, c.token)) {
				t.Errorf("%s: the page does not say what is wrong, or repeats the token", name)
			}
		}
	}
}

func TestLoginCookie(t *testing.T) {
	f := newFake().populate()
	for secure, name := range map[bool]string{false: "wheelwork_session", true: "__Host-wheelwork_session"} {
		codes := NewCodes()
		h, err := New(Config{Conn: f.start(t), Secure: secure, Codes: codes})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/login?code="+codes.Issue(goodToken), nil))
		cookies := w.Result().Cookies()
		if len(cookies) != 1 {
			t.Fatalf("%d cookies", len(cookies))
		}
		c := cookies[0]
		if c.Name != name || !c.HttpOnly || c.Secure != secure || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Domain != "" {
			t.Errorf("secure=%t: %+v", secure, c)
		}
		if strings.Contains(c.Value, goodToken) || len(c.Value) < 26 {
			t.Errorf("the session's id is %q", c.Value)
		}
		if hsts := w.Header().Get("Strict-Transport-Security"); (hsts != "") != secure {
			t.Errorf("secure=%t: Strict-Transport-Security is %q", secure, hsts)
		}
	}
}

func TestLoginWhileTheAPIIsAway(t *testing.T) {
	conn := newFake().start(t)
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	codes := NewCodes()
	h, err := New(Config{Conn: conn, Codes: codes})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/login?code="+codes.Issue(goodToken), nil))
	if w.Code != http.StatusServiceUnavailable || len(w.Result().Cookies()) != 0 {
		t.Errorf("an unchecked token was let in: %d", w.Code)
	}
	w = httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/readyz", nil))
	if w.Code != http.StatusServiceUnavailable || !strings.HasPrefix(w.Body.String(), "not ready: ") {
		t.Errorf("readyz: %d %s", w.Code, w.Body)
	}
}

func TestLogout(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	before, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	kept := s.client.Jar.Cookies(before)
	s.post(t, "/logout", "")
	if len(s.client.Jar.Cookies(before)) != 0 {
		t.Error("the cookie stays in the browser")
	}
	if resp, _ := s.do(t, "GET", "/hosts", nil, "Cookie", kept[0].String()); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("the old cookie still opens pages: %s", resp.Status)
	}
}

func TestFragmentsWithoutSessionMoveTheWholePage(t *testing.T) {
	s := newSite(t, newFake().populate())
	resp, _ := s.do(t, "GET", "/hosts", nil, "HX-Request", "true")
	if resp.StatusCode != http.StatusUnauthorized || resp.Header.Get("HX-Redirect") != "/login?next=%2Fhosts" {
		t.Errorf("%s, HX-Redirect %q", resp.Status, resp.Header.Get("HX-Redirect"))
	}
}

func TestSessionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSessions(nil, slog.Default())
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		r.AddCookie(&http.Cookie{Name: "k", Value: s.add("token", "").id})
		time.Sleep(sessionLife)
		if s.get(r, "k") == nil {
			t.Error("the session ended early")
		}
		time.Sleep(time.Second)
		if s.get(r, "k") != nil || len(s.byKey) != 0 {
			t.Error("the session lives for ever")
		}
	})
}

func TestSessionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSessions(nil, slog.Default())
		other := s.add("other", "")
		own := s.add("own", "")
		time.Sleep(time.Second)
		for range 2 * maxSessions { // the same token each time
			s.add("own", "")
		}
		if len(s.byKey) != maxPerToken+1 || s.byKey[other.key] == nil || s.byKey[own.key] != nil {
			t.Errorf("%d sessions; the other token's is kept: %t, the first of its own: %t", len(s.byKey), s.byKey[other.key] != nil, s.byKey[own.key] != nil)
		}
		for i := range maxSessions { // a different token each time
			s.add(fmt.Sprint(i), "")
		}
		if len(s.byKey) != maxSessions || s.byKey[other.key] == nil || s.add("one more", "") != nil {
			t.Errorf("%d sessions; the first token's is kept: %t", len(s.byKey), s.byKey[other.key] != nil)
		}
		time.Sleep(sessionLife + time.Second)
		if s.add("later", "") == nil || len(s.byKey) != 1 {
			t.Errorf("%d sessions after all have ended, want 1", len(s.byKey))
		}
	})
}

// TestLoginNeedsAReader signs in with a token that may not read any page.
func TestLoginNeedsAReader(t *testing.T) {
	f := newFake().populate()
	f.denied = "jobs.read"
	s := newSite(t, f)
	resp, body := s.post(t, "/login", url.Values{"token": {goodToken}}.Encode())
	if resp.StatusCode != http.StatusForbidden || len(resp.Cookies()) != 0 || !strings.Contains(body, "may not read anything") {
		t.Errorf("a token without a read permission: %s, cookies %v", resp.Status, resp.Cookies())
	}
	checkPage(t, body)
}

// TestBodiesAreBounded sends too large a body to each kind of route, with and without its
// length.
func TestBodiesAreBounded(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	const job, module = "/api/v1/apps/default/jobs/x", "/api/v1/apps/default/modules/m/versions/1"
	begins := map[string]string{job: `{"input":"`, module: "\x00asm"}
	for path, limit := range map[string]int64{job: 4 << 20, module: maxModule} {
		for _, counted := range []bool{true, false} {
			sent := io.MultiReader(strings.NewReader(begins[path]), &counting{left: 2 * limit})
			if counted {
				sent = bytes.NewReader(make([]byte, 2*limit))
			}
			resp, body := s.do(t, "PUT", path, sent, "Authorization", "Bearer "+goodToken)
			if resp.StatusCode != http.StatusRequestEntityTooLarge && resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(body, "larger than") {
				t.Errorf("%s with %d bytes: %s %s", path, 2*limit, resp.Status, body)
			}
		}
	}
}

// counting is a body of spaces that counts the bytes read.
type counting struct{ left int64 }

func (c *counting) Read(p []byte) (int, error) {
	n := int(min(int64(len(p)), c.left))
	if n == 0 {
		return 0, io.EOF
	}
	for i := range p[:n] {
		p[i] = ' '
	}
	c.left -= int64(n)
	return n, nil
}

// TestAPIIsAdmittedByItsHeaders checks that a body is not read when the headers are
// refused.
func TestAPIIsAdmittedByItsHeaders(t *testing.T) {
	h, err := New(Config{Conn: newFake().populate().start(t), Admit: func(*http.Request) error { return status.Error(codes.Unauthenticated, "no") }})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/api/v1/apps/default/jobs/x", "/api/v1/apps/default/modules/m/versions/1"} {
		sent := &counting{left: 1 << 20}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "PUT", path, sent))
		if w.Code != http.StatusUnauthorized || sent.left != 1<<20 {
			t.Errorf("%s: %d, and %d bytes were read", path, w.Code, 1<<20-sent.left)
		}
	}
}

func FuzzLocalPath(f *testing.F) {
	for _, seed := range []string{"/", "/hosts?x=1", "//evil.example", "/\\evil.example", "https://evil.example", "/a\nb", "", "/%2f/evil", "/\t/evil.example"} {
		f.Add(seed)
	}
	base, err := url.Parse("http://console.test/login")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, p string) {
		got := localPath(p)
		if got != p && got != "/" {
			t.Fatalf("localPath(%q) = %q", p, got)
		}
		if u, err := base.Parse(got); err == nil && u.Host != base.Host {
			t.Fatalf("localPath(%q) leads to %s", p, u)
		}
	})
}

// TestVendoredFiles checks that third-party files are unchanged.
func TestVendoredFiles(t *testing.T) {
	text, err := os.ReadFile("VENDOR.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([^|]+) \\| [^|]+ \\| `([0-9a-f]{64})` \\|$").FindAllStringSubmatch(string(text), -1)
	if len(rows) != 3 {
		t.Fatalf("VENDOR.md lists %d files, want 3", len(rows))
	}
	for _, row := range rows {
		b, err := os.ReadFile(row[1])
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != row[3] {
			t.Errorf("%s is not %s as published: sha256 %x", row[1], row[2], sum)
		}
	}
}

func TestScriptsAndTemplatesNeedNoEval(t *testing.T) {
	names := []string{"assets/static/combobox.js", "assets/static/console.js", "assets/static/keys.js", "assets/static/marks.js", "assets/static/palette.js", "assets/static/stream.js", "assets/static/upload.js"}
	entries, err := embedded.ReadDir("assets/templates")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, "assets/templates/"+e.Name())
	}
	forbidden := regexp.MustCompile(`innerHTML|outerHTML\s*=|insertAdjacentHTML|document\.write|\beval\(|new Function|hx-on|hx-vals|hx-vars|js:|javascript:| style="|hx-trigger="[^"]*\[`)
	for _, name := range names {
		b, err := embedded.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if m := forbidden.Find(b); m != nil {
			t.Errorf("%s uses %q", name, m)
		}
	}
}

// TestPublicURL reaches the console through a proxy that ends TLS and sends another host on: cookies are secure, and
// forms of its origin are accepted.
func TestPublicURL(t *testing.T) {
	const public = "https://wheel.example"
	codes := NewCodes()
	h, err := New(Config{Conn: newFake().populate().start(t), PublicURL: public, Codes: codes})
	if err != nil {
		t.Fatal(err)
	}
	send := func(method, target, form string, cookie *http.Cookie, headers ...string) *http.Response {
		r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(form))
		r.Host = "10.0.0.5:7700"
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		for i := 0; i+1 < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		if cookie != nil {
			r.AddCookie(cookie)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result()
	}
	resp := send("GET", "/login?code="+codes.Issue(goodToken), "", nil)
	if len(resp.Cookies()) != 1 || resp.Cookies()[0].Name != "__Host-wheelwork_session" || !resp.Cookies()[0].Secure || resp.Header.Get("Strict-Transport-Security") == "" {
		t.Fatalf("the login sets %v, %v", resp.Cookies(), resp.Header)
	}
	session := resp.Cookies()[0]
	for _, tt := range []struct {
		headers []string
		code    int
	}{
		{[]string{"Origin", public}, http.StatusSeeOther},
		{[]string{"Origin", public, "Sec-Fetch-Site", "same-origin"}, http.StatusSeeOther},
		{[]string{"Origin", "https://evil.example"}, http.StatusForbidden},
		{[]string{"Origin", "http://wheel.example"}, http.StatusForbidden},
		{[]string{"Origin", "https://wheel.example:8443"}, http.StatusForbidden},
		{[]string{"Origin", "null", "Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
	} {
		if resp := send("POST", "/apps/default/jobs/totals/run", "", session, tt.headers...); resp.StatusCode != tt.code {
			t.Errorf("a form with %v: %s", tt.headers, resp.Status)
		}
	}
	for referer, want := range map[string]bool{public + "/hosts": true, "https://evil.example/hosts": false, "http://wheel.example/hosts": false, "http://10.0.0.5:7700/hosts": true} {
		b, err := io.ReadAll(send("POST", "/apps/default/jobs/totals/run", "input=x", nil, "Referer", referer).Body)
		if err != nil || strings.Contains(string(b), `name="next" value="/hosts"`) != want {
			t.Errorf("a form from %s without a session leads back: %t, %v", referer, !want, err)
		}
	}
	if _, err := New(Config{Conn: newFake().start(t), PublicURL: "wheel.example/x"}); err == nil {
		t.Error("a console starts with a public URL that is no origin")
	}
}
