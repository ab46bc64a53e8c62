package node_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// as returns a client of a server with a token.
func (w *several) as(token, server string) *sdk.Client {
	w.t.Helper()
	c, err := sdk.Dial(w.t.Context(), w.url(server), sdk.Options{Token: token, RetryFor: -1, TLS: w.verify(server)})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() }) //nolint:errcheck // a test's
	return c
}

// reaches waits until is reports true, and fails after a limit.
func reaches(t *testing.T, limit time.Duration, what string, is func() bool) {
	t.Helper()
	begin := time.Now()
	for !is() {
		if time.Since(begin) > limit {
			t.Fatalf("not within %v: %s", limit, what)
		}
		time.Sleep(20 * time.Millisecond) // real processes
	}
	t.Logf("%s after %v", what, time.Since(begin).Round(time.Millisecond))
}

// spread is how long a change of access takes to reach all servers, with room for a busy machine.
const spread = 10 * time.Second

// settled repeats a call while the servers answer that they cannot be reached, and returns its last
// error. A partition may move to the server that came back after untilBothOwn has returned, and calls
// about its apps are unavailable for that moment.
func settled(call func() error) error {
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) { // real processes
		if err := call(); !errors.Is(err, sdk.ErrUnavailable) || time.Since(begin) > spread {
			return err
		}
	}
}

// TestAccessInCluster creates a token at one server and uses it at both, for apps of both, and after
// each server has ended and come back.
func TestAccessInCluster(t *testing.T) {
	t.Parallel()
	w := newSeveral(t, 2, "a", "b")
	c := w.client("a", "b")
	w.untilBothOwn(c)
	apps := w.place(c, "a")
	own, other := apps["main"], ""
	for partition, app := range apps {
		if partition != "main" {
			other = app
		}
	}
	job := func(app string) *sdk.Job {
		return &sdk.Job{App: app, Name: "j", Input: "secret", Handler: &sdk.Handler{Name: "native:none"}}
	}
	for _, app := range []string{own, other} {
		if _, err := c.Apply(t.Context(), job(app)); err != nil {
			t.Fatal(err)
		}
	}
	// Whichever server has the access state, one of the two is another one.
	tokens := map[string]*sdk.Token{}
	for _, at := range []string{"a", "b"} {
		made, err := w.as(adminToken, at).CreateToken(t.Context(), "made-at-"+at, "producer", sdk.AppScope(other), "")
		if err != nil {
			t.Fatal(err)
		}
		tokens[at] = made
	}
	works := func(token, at string) bool {
		_, err := w.as(token, at).Job(t.Context(), other, "j")
		return err == nil
	}
	check := func() {
		t.Helper()
		for _, at := range []string{"a", "b"} {
			for _, made := range tokens {
				reaches(t, spread, "a token works at "+at, func() bool { return works(made.Token, at) })
				p := w.as(made.Token, at)
				// The server that is called passes one of these on.
				for app, want := range map[string]bool{own: false, other: true} {
					for what, call := range map[string]func() error{
						"reads":    func() error { _, err := p.Job(t.Context(), app, "j"); return err },
						"applies":  func() error { _, err := p.Apply(t.Context(), job(app)); return err },
						"triggers": func() error { _, err := p.Trigger(t.Context(), sdk.Trigger{App: app, Job: "j"}); return err },
					} {
						if err := settled(call); (err == nil) != want || err != nil && !errors.Is(err, sdk.ErrDenied) {
							t.Errorf("a producer of %s %s in %s at %s: %v", other, what, app, at, err)
						}
					}
				}
				var all []*sdk.App
				if err := settled(func() (err error) { all, err = p.Apps(t.Context()); return err }); err != nil || len(all) != 1 || all[0].GetName() != other {
					t.Errorf("a producer of %s lists %v, %v", other, all, err)
				}
				var who *sdk.Principal
				if err := settled(func() (err error) { who, err = p.WhoAmI(t.Context()); return err }); err != nil || who.GetPrincipal() != made.GetPrincipal() || who.GetToken() != made.GetId() {
					t.Errorf("%s is %v, %v", made.GetPrincipal(), who, err)
				}
				if err := settled(func() error { _, err := p.Tokens(t.Context(), ""); return err }); !errors.Is(err, sdk.ErrDenied) {
					t.Errorf("a producer lists tokens: %v", err)
				}
			}
			admin := w.as(adminToken, at)
			var all []*sdk.Token
			if err := settled(func() (err error) { all, err = admin.Tokens(t.Context(), other); return err }); err != nil || len(all) != 3 || all[0].GetToken() != "" {
				t.Errorf("the administrator lists %v at %s, %v", all, at, err)
			}
		}
	}
	viewer, err := c.CreateToken(t.Context(), "looks", "viewer", sdk.AppScope(other), "")
	if err != nil {
		t.Fatal(err)
	}
	check()
	for _, at := range []string{"a", "b"} {
		reaches(t, spread, "a viewer's token works", func() bool { return works(viewer.Token, at) })
		if j, err := w.as(viewer.Token, at).Job(t.Context(), other, "j"); err != nil || j.GetInput() != "" {
			t.Errorf("a viewer sees %v at %s, %v", j, at, err)
		}
	}
	// Each server ends and starts again: first it reads the state, then it answers.
	for _, at := range []string{"a", "b"} {
		w.all[at].stop()
		w.start(at)
		w.untilBothOwn(c)
		check()
	}
	if err := w.as(adminToken, "b").RevokeToken(t.Context(), tokens["a"].GetId()); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"a", "b"} {
		reaches(t, spread, "a revoked token is refused at "+at, func() bool {
			_, err := w.as(tokens["a"].Token, at).Job(t.Context(), other, "j")
			return errors.Is(err, sdk.ErrUnauthenticated)
		})
	}
}

// rolesOfDocs reads the table of docs/access.md: permissions by role.
func rolesOfDocs(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", "access.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	var roles []string
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case cells[0] == "permission":
			roles = cells[1:]
		case roles != nil && strings.HasPrefix(cells[0], "`"):
			for i, mark := range cells[1:] {
				if mark == "●" {
					all[roles[i]] = append(all[roles[i]], strings.Trim(cells[0], "`"))
				}
			}
		case roles != nil && strings.TrimSpace(line) == "":
			roles = nil
		}
	}
	if len(all) != 9 || len(all["admin"]) < 20 {
		t.Fatalf("the table of roles in docs/access.md has %v", all)
	}
	return all
}

// operation is one operation of the OpenAPI document.
type operation struct {
	verb, path, permission string
}

// needs is the sentence of the document about the permission of an operation.
var needs = regexp.MustCompile("Needs the permission `([a-z.]+)`")

func operations(t *testing.T, url string) (all []operation) {
	t.Helper()
	resp, err := http.Get(url + "/api/v1/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	var document struct {
		Paths map[string]map[string]struct{ Description string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&document); err != nil {
		t.Fatal(err)
	}
	for path, verbs := range document.Paths {
		for verb, op := range verbs {
			permission := ""
			if found := needs.FindStringSubmatch(op.Description); found != nil {
				permission = found[1]
			}
			all = append(all, operation{strings.ToUpper(verb), path, permission})
		}
	}
	if len(all) < 80 {
		t.Fatalf("the OpenAPI document has %d operations", len(all))
	}
	return all
}

// TestRolesOverHTTP calls each operation of the OpenAPI document on a running server with a token of
// each role. What is allowed comes from the document and from the table in docs/access.md.
func TestRolesOverHTTP(t *testing.T) {
	t.Parallel()
	p := dev(t, node.DevConfig{Data: t.TempDir()})
	client, err := sdk.Dial(t.Context(), p.URL, sdk.Options{Token: p.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // a test's
	status := func(o operation, token, app string) int {
		path := strings.NewReplacer("{app}", app, "{kind}", "job", "{number}", "1", "{id}", "none", "{log}", "none").Replace(o.path)
		if strings.HasPrefix(path, "/api/v1/apps/{name}") {
			path = strings.Replace(path, "{name}", app, 1)
		}
		path = regexp.MustCompile(`\{[a-z]+\}`).ReplaceAllString(path, "none")
		var body io.Reader
		if o.verb != http.MethodGet {
			// The path decides, whatever app the body names.
			body = bytes.NewReader([]byte(`{}`))
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if strings.HasSuffix(path, ":tail") { // it answers when there is a message
			time.AfterFunc(300*time.Millisecond, cancel)
		}
		req, err := http.NewRequestWithContext(ctx, o.verb, p.URL+path, body)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := http.DefaultClient.Do(req)
		if ctx.Err() != nil {
			return http.StatusOK
		}
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close() //nolint:errcheck // not needed
		return resp.StatusCode
	}
	all := slices.DeleteFunc(operations(t, p.URL), func(o operation) bool {
		// A sign-in and an event without a signature answer with 401 themselves.
		return o.verb == http.MethodPost && (o.path == "/api/v1/sessions" || o.path == "/api/v1/apps/{app}/events")
	})
	for role, permissions := range rolesOfDocs(t) {
		tokens := map[string]string{}
		for _, scope := range []string{sdk.AppScope("shop"), sdk.ClusterScope} {
			made, err := client.CreateToken(t.Context(), "p-"+role, role, scope, "")
			if err != nil {
				t.Fatal(err)
			}
			tokens[scope] = made.Token
		}
		for _, o := range all {
			ofApp := strings.Contains(o.path, "/apps/") && !strings.HasSuffix(o.path, "/limits") // limits are the cluster's
			ofMany := o.path == "/api/v1/apps" || o.path == "/api/v1/hosts" || o.path == "/api/v1/whoami" || o.path == "/api/v1/audit/events" || o.path == "/api/v1/operations" || o.permission == "self" ||
				strings.HasPrefix(o.path, "/api/v1/tokens") || strings.HasPrefix(o.path, "/api/v1/bindings") || strings.HasPrefix(o.path, "/api/v1/principals")
			for scope, token := range tokens {
				for _, app := range []string{"shop", "bank"} {
					has := o.permission == "" || o.permission == "self" || slices.Contains(permissions, o.permission)
					if strings.HasSuffix(o.path, ":edit") || strings.HasSuffix(o.path, ":replay") {
						has = has && slices.Contains(permissions, "jobs.write") && slices.Contains(permissions, "jobs.trigger")
					}
					if strings.HasSuffix(o.path, ":try") {
						has = has && slices.Contains(permissions, "jobs.trigger")
					}
					want := has && (o.permission == "" || scope == sdk.ClusterScope || ofMany || ofApp && app == "shop")
					if got := status(o, token, app); got == http.StatusUnauthorized || (got != http.StatusForbidden) != want {
						t.Errorf("%s %s as %s in %s about %s: status %d, want allowed %t", o.verb, o.path, role, scope, app, got, want)
					}
				}
			}
		}
	}
	for _, o := range all {
		if got := status(o, "", "shop"); (got == http.StatusUnauthorized) != (o.permission != "") {
			t.Errorf("%s %s without a token: status %d", o.verb, o.path, got)
		}
		if got := status(o, "wwk_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "shop"); (got == http.StatusUnauthorized) != (o.permission != "") {
			t.Errorf("%s %s with an unknown token: status %d", o.verb, o.path, got)
		}
	}
}

// TestSignInInCluster signs a user in at either server, and uses the sessions at both.
func TestSignInInCluster(t *testing.T) {
	t.Parallel()
	w := newSeveral(t, 2, "a", "b")
	c := w.client("a", "b")
	w.untilBothOwn(c)
	first, err := c.CreateUser(t.Context(), "ada")
	if err != nil {
		t.Fatal(err)
	}
	const chosen = "five words make a phrase"
	if _, err := c.AddBinding(t.Context(), "ada", "viewer", sdk.ClusterScope, time.Time{}); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for i, at := range []string{"a", "b"} {
		password, fresh := chosen, ""
		if i == 0 {
			password, fresh = first, chosen
		}
		session, token, err := w.as("", at).SignIn(t.Context(), "ada", password, fresh)
		if err != nil {
			t.Fatal(at, err)
		}
		ids = append(ids, session.GetId())
		for _, other := range []string{"a", "b"} {
			reaches(t, spread, "the session works at "+other, func() bool {
				who, err := w.as(token, other).WhoAmI(t.Context())
				return err == nil && who.GetPrincipal() == "ada" && who.GetToken() == session.GetId()
			})
			if _, err := w.as(token, other).Cluster(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if _, _, err := w.as("", at).SignIn(t.Context(), "ada", "a wrong password", ""); !errors.Is(err, sdk.ErrUnauthenticated) {
			t.Errorf("a wrong password at %s: %v", at, err)
		}
	}
	all, err := c.Sessions(t.Context())
	if err != nil || len(all) != 2 || all[0].GetPrincipal() != "ada" || ids[0] == ids[1] {
		t.Errorf("%v, %v", all, err)
	}
}
