package node_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/backup/archive"
	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// TestSetup makes the first administrator on the page whose address a server prints, and no second
// one, also after a restart.
func TestSetup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	links, legacy := make(chan string, 1), node.LegacyAuto
	serve := func() *process {
		return launch(t, func(ctx context.Context, ready func(node.Ready)) error {
			return node.Server(ctx, node.ServerConfig{Data: dir, Listen: "127.0.0.1:0", Ready: ready, People: node.PeopleConfig{LegacyTokens: legacy, Setup: func(link string) { links <- link }}})
		})
	}
	p := serve()
	link := ""
	select {
	case link = <-links:
	case <-time.After(time.Minute):
		t.Fatal("no link was told")
	}
	code := ""
	if at, err := url.Parse(link); err != nil || at.Path != "/setup" || len(at.Query().Get("code")) < 26 || !strings.HasPrefix(link, p.URL) {
		t.Fatal(link, err)
	} else {
		code = at.Query().Get("code")
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	send := func(code, name, password, again string) (int, string) {
		t.Helper()
		resp, err := browser.PostForm(p.URL+"/setup", url.Values{"code": {code}, "user": {name}, "fresh": {password}, "again": {again}})
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close() //nolint:errcheck // it was read
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	const chosen = "several words make one"
	for _, tt := range []struct {
		what, code, name, password, again string
		status                            int
		text                              string
	}{
		{"a wrong code", strings.Repeat("a", 26), "ada", chosen, chosen, http.StatusForbidden, "not the one that the server has printed"},
		{"no code", "", "ada", chosen, chosen, http.StatusForbidden, "not the one that the server has printed"},
		{"two passwords", code, "ada", chosen, chosen + "!", http.StatusBadRequest, "differ"},
		{"a short password", code, "ada", "short", "short", http.StatusBadRequest, "the least is"},
		{"no name", code, "", chosen, chosen, http.StatusBadRequest, "is not a name"},
	} {
		if got, text := send(tt.code, tt.name, tt.password, tt.again); got != tt.status || !strings.Contains(text, tt.text) {
			t.Errorf("%s: status %d, want %d with %q", tt.what, got, tt.status, tt.text)
		}
	}
	conn, admin := dial(t, p, p.Token)
	if _, err := apiv1.NewAccessClient(conn).Setup(admin, &apiv1.SetupRequest{Name: "bob", Password: chosen}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("an administrator calls Setup: %v", err)
	}
	if got, text := send(code, "ada", chosen, chosen); got != http.StatusOK || !strings.Contains(text, "ada") {
		t.Fatalf("status %d\n%s", got, text) // it has followed the redirect to the first page
	}
	if got, text := send(code, "bob", chosen, chosen); got != http.StatusConflict || !strings.Contains(text, "There is an administrator") {
		t.Errorf("a second administrator: status %d", got)
	}
	c, err := sdk.Dial(t.Context(), p.URL, sdk.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // a test's
	_, token, err := c.SignIn(t.Context(), "ada", chosen, "")
	if err != nil {
		t.Fatal(err)
	}
	as, err := sdk.Dial(t.Context(), p.URL, sdk.Options{Token: token})
	if err != nil {
		t.Fatal(err)
	}
	defer as.Close() //nolint:errcheck // a test's
	if who, err := as.WhoAmI(t.Context()); err != nil || len(who.Bindings) != 1 || who.Bindings[0].Role != "admin" || who.Bindings[0].Scope != sdk.ClusterScope {
		t.Error(who, err)
	}
	if all := auditOf(t, as, sdk.AuditQuery{Actor: "setup"}); len(all) != 1 || all[0].Code != "access.principal" || all[0].Object != "ada" || all[0].Address != "127.0.0.1" {
		t.Errorf("%v", all)
	}
	p.stop()
	legacy = node.LegacyOff
	p = serve()
	if p.Token != "" || p.LoginURL != "" {
		t.Errorf("a server that refuses its token tells it: %+v", p.Ready)
	}
	kept, err := os.ReadFile(filepath.Join(dir, "token"))
	if err != nil {
		t.Fatal(err)
	}
	old, err := sdk.Dial(t.Context(), p.URL, sdk.Options{Token: strings.TrimSpace(string(kept))})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close() //nolint:errcheck // a test's
	if _, err := old.WhoAmI(t.Context()); !errors.Is(err, sdk.ErrUnauthenticated) {
		t.Errorf("the token of the directory: %v", err)
	}
	if got, text := send(code, "bob", chosen, chosen); got != http.StatusForbidden || !strings.Contains(text, "newest one") {
		t.Errorf("the code of an earlier process: status %d", got)
	}
	again, err := sdk.Dial(t.Context(), p.URL, sdk.Options{Token: token})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close() //nolint:errcheck // a test's
	var saved bytes.Buffer
	if err := backUp(t.Context(), again, &saved); err != nil {
		t.Fatal(err)
	}
	p.stop()
	dir, legacy = filepath.Join(t.TempDir(), "restored"), node.LegacyAuto
	if _, err := archive.Restore(t.Context(), &saved, dir, nil, nil); err != nil {
		t.Fatal(err)
	}
	if p = serve(); p.Token != "" {
		t.Error("a restored server accepts the token that was off")
	}
	select {
	case link := <-links:
		t.Errorf("with an administrator %s is told", link)
	default:
	}
}
