package access_test

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/access"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// visitor signs in at a provider.
type visitor struct {
	*issuer
	subject, name string
	groups        []string
}

func (v *visitor) signIn() (token string, err error) {
	v.t.Helper()
	changes, _, token, err := v.state.SignInFederated(access.Federated{
		Issuer: "https://id.example", Subject: v.subject, Name: v.name, Groups: v.groups, Program: "console", Address: "10.0.0.1",
		By: access.By{Now: time.Now(), Random: rand.Reader},
	})
	v.apply(changes)
	return token, err
}

func (i *issuer) bind(principal, role, scope string) (*apiv1.Binding, error) {
	i.t.Helper()
	changes, b, err := i.state.AddBinding(access.By{Principal: i.admin, Now: time.Now(), Random: rand.Reader}, &apiv1.AddBindingRequest{Principal: principal, Role: role, Scope: scope})
	i.apply(changes)
	return b, err
}

// TestFederated signs people in at a provider: the person is its subject, whatever the name, and has the
// bindings of its groups until they end, the session ends, or the user is disabled.
func TestFederated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t)
		admin := access.By{Principal: i.admin, Now: time.Now(), Random: rand.Reader}
		ada := &visitor{i, "s-1", "ada@x.example", []string{"platform", "no binding"}}
		may := func(token string) error { return i.call(token, getJob, &apiv1.GetJobRequest{App: "shop"}) }
		token, err := ada.signIn()
		if err != nil {
			t.Fatal(err)
		}
		if err := may(token); status.Code(err) != codes.PermissionDenied {
			t.Errorf("without a binding: %v", err)
		}
		b, err := i.bind("group:platform", access.RoleViewer, "app:shop")
		if err != nil {
			t.Fatal(err)
		}
		if err := may(token); err != nil {
			t.Errorf("with the binding of a group: %v", err)
		}
		// The name of the person has changed at the provider, and another person has taken it.
		ada.name = "countess@x.example"
		if token, err = ada.signIn(); err != nil || i.principal(token).Name != "ada@x.example" {
			t.Errorf("with another name: %v", err)
		}
		thief := &visitor{i, "s-2", "ada@x.example", nil}
		if _, err := thief.signIn(); status.Code(err) != codes.AlreadyExists {
			t.Errorf("another person with the name: %v", err)
		}
		changes, err := i.state.CreateUser(admin, "bob", "hash")
		if err != nil {
			t.Fatal(err)
		}
		i.apply(changes)
		for _, name := range []string{"bob", "p-viewer"} {
			i.token("viewer", "cluster") // of the service account p-viewer
			if _, err := (&visitor{i, "s-3", name, nil}).signIn(); status.Code(err) != codes.AlreadyExists {
				t.Errorf("a person with the name of %s: %v", name, err)
			}
		}
		for _, name := range []string{"", "legacy-admin", "group:platform", "a b", access.Recovery} {
			if _, err := (&visitor{i, "s-4", name, nil}).signIn(); status.Code(err) != codes.InvalidArgument {
				t.Errorf("the name %q: %v", name, err)
			}
		}
		if _, err := i.state.ResetPassword(admin, "ada@x.example", "hash"); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("a password for a user of the provider: %v", err)
		}

		if changes, err = i.state.RemoveBinding(admin, b.Id); err != nil {
			t.Fatal(err)
		}
		i.apply(changes)
		if err := may(token); status.Code(err) != codes.PermissionDenied {
			t.Errorf("after the binding of the group was removed: %v", err)
		}
		if all := i.state.Principals(i.admin, time.Now()); slices.ContainsFunc(all, func(p *apiv1.Principal) bool { return p.Kind == access.KindGroup }) {
			t.Errorf("a group without a binding is still there: %v", all)
		}
		if _, err = i.bind("group:platform", access.RoleViewer, "app:shop"); err != nil {
			t.Fatal(err)
		}
		if changes, _, err = i.state.DisableUser(admin, "group:platform", true); err != nil {
			t.Fatal(err)
		}
		i.apply(changes)
		if err := may(token); status.Code(err) != codes.PermissionDenied {
			t.Errorf("of a disabled group: %v", err)
		}
		if changes, _, err = i.state.DisableUser(admin, "group:platform", false); err != nil {
			t.Fatal(err)
		}
		i.apply(changes)

		// The session does not outlast a day, however much it is used: its groups are those of the
		// sign-in.
		for range 30 {
			time.Sleep(time.Hour)
			i.apply(i.state.Used(i.principalID(token), time.Now()))
			if may(token) != nil {
				break
			}
		}
		if age := time.Since(admin.Now); may(token) == nil || age != 24*time.Hour {
			t.Errorf("after %v the session is accepted: %v", age, may(token))
		}
		if changes, _, err = i.state.DisableUser(admin, "ada@x.example", true); err != nil {
			t.Fatal(err)
		}
		i.apply(changes)
		if _, err := ada.signIn(); status.Code(err) != codes.PermissionDenied {
			t.Errorf("a disabled user: %v", err)
		}
	})
}

// principalID returns the id of the token of a caller; "": it is refused.
func (i *issuer) principalID(token string) string {
	p, err := i.guard.Identify(token)
	if err != nil {
		return ""
	}
	return p.Token
}

// TestGroups checks the names of groups, and that a session with very many keeps those that count.
func TestGroups(t *testing.T) {
	i := newIssuer(t)
	for _, bad := range []string{"group:", "group: x", "group:x ", "group:a\nb", "group:" + strings.Repeat("x", 129), "group:\xff"} {
		if _, err := i.bind(bad, access.RoleViewer, "app:shop"); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%q: %v", bad, err)
		}
	}
	many := make([]string, 0, 1001)
	for n := range 1000 {
		many = append(many, fmt.Sprintf("g%04d", n))
	}
	last := "/组织/z last"
	if _, err := i.bind("group:"+last, access.RoleViewer, "app:shop"); err != nil {
		t.Fatal(err)
	}
	token, err := (&visitor{i, "s", "ada", append(many, last, "bad\x00name")}).signIn()
	if err != nil {
		t.Fatal(err)
	}
	if err := i.call(token, getJob, &apiv1.GetJobRequest{App: "shop"}); err != nil {
		t.Error(err)
	}
}

// TestHasAdmin counts users of the provider and groups as administrators.
func TestHasAdmin(t *testing.T) {
	i := newIssuer(t)
	if _, err := (&visitor{i, "s", "ada", nil}).signIn(); err != nil {
		t.Fatal(err)
	}
	i.token("admin", "cluster") // of a service account, which signs in nowhere
	if i.state.HasAdmin(time.Now()) {
		t.Error("a user without a binding is an administrator")
	}
	b, err := i.bind("group:ops", access.RoleAdmin, "cluster")
	if err != nil || !i.state.HasAdmin(time.Now()) {
		t.Errorf("a group is no administrator: %v", err)
	}
	changes, err := i.state.RemoveBinding(access.By{Principal: i.admin, Now: time.Now()}, b.Id)
	i.apply(changes)
	if _, again := i.bind("ada", access.RoleAdmin, "cluster"); err != nil || again != nil || !i.state.HasAdmin(time.Now()) {
		t.Errorf("a user of the provider is no administrator: %v, %v", err, again)
	}
}

// TestCommandLineLogin lets a user approve a command line. Only the token with the approved code gets a
// session, once and within ten minutes, and it has no more than the session of the user.
func TestCommandLineLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t)
		if _, err := i.bind("group:platform", access.RoleViewer, "app:shop"); err != nil {
			t.Fatal(err)
		}
		browser, err := (&visitor{i, "s-1", "ada", []string{"platform"}}).signIn()
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		approve := func(token, code string) error {
			changes, err := i.state.ApproveLogin(i.by(token), code)
			i.apply(changes)
			return err
		}
		token := "" // of the last session that was claimed
		claim := func(secret string) error {
			changes, _, text, err := i.state.ClaimLogin(access.By{Now: time.Now(), Random: rand.Reader}, secret, "10.0.0.2", "cli")
			i.apply(changes)
			if err == nil {
				token = text
			}
			return err
		}
		code := func(secret string) string {
			digest := sha256.Sum256([]byte(secret))
			return base32.StdEncoding.EncodeToString(digest[:10])
		}
		secret, other := rand.Text(), rand.Text()
		if err := claim(secret); status.Code(err) != codes.NotFound {
			t.Errorf("before the approval: %v", err)
		}
		for _, bad := range []string{"", "ABCD", "ABCD-EFGH-JKLM-NPQ1", "ABCD-EFGH-JKLM-NPQR-STUV", strings.Repeat("-", 1000) + code(secret)} {
			if err := approve(browser, bad); status.Code(err) != codes.InvalidArgument {
				t.Errorf("the code %.40q: %v", bad, err)
			}
		}
		if err := approve(i.token("admin", "cluster"), code(secret)); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("a service account approves: %v", err)
		}
		time.Sleep(time.Hour)
		if err := approve(browser, strings.ToLower(code(secret)[:8]+"-"+code(secret)[8:])); err != nil {
			t.Fatal(err)
		}
		if err := claim(other); status.Code(err) != codes.NotFound {
			t.Errorf("another token: %v", err)
		}
		for _, bad := range []string{"", "short", strings.Repeat("x", 129)} {
			if err := claim(bad); status.Code(err) != codes.InvalidArgument {
				t.Errorf("a secret of %d characters: %v", len(bad), err)
			}
		}
		if err := claim(secret); err != nil {
			t.Fatal(err)
		}
		cli := token
		if p := i.principal(cli); p.Name != "ada" || i.call(cli, getJob, &apiv1.GetJobRequest{App: "shop"}) != nil {
			t.Errorf("the command line is %v", p)
		}
		if err := claim(secret); status.Code(err) != codes.NotFound {
			t.Errorf("a second claim: %v", err)
		}

		// An approval ends after ten minutes, and with the next one.
		if err := approve(browser, code(other)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if err := claim(other); status.Code(err) != codes.NotFound {
			t.Errorf("a late claim: %v", err)
		}
		third := rand.Text()
		if err := approve(browser, code(other)); err != nil {
			t.Fatal(err)
		}
		if err := approve(browser, code(third)); err != nil {
			t.Fatal(err)
		}
		if err := claim(other); status.Code(err) != codes.NotFound {
			t.Errorf("a claim of a replaced approval: %v", err)
		}
		if err := claim(third); err != nil {
			t.Error(err)
		}

		// The session of the command line ends with the one that approved it.
		time.Sleep(time.Until(begin.Add(24*time.Hour)) - time.Minute)
		i.apply(i.state.Used(i.principalID(cli), time.Now()))
		time.Sleep(time.Minute)
		if err := i.call(cli, getJob, &apiv1.GetJobRequest{App: "shop"}); status.Code(err) != codes.Unauthenticated {
			t.Errorf("after a day: %v", err)
		}

		// A disabled user has no command line.
		if browser, err = (&visitor{i, "s-1", "ada", nil}).signIn(); err != nil {
			t.Fatal(err)
		}
		late := rand.Text()
		if err := approve(browser, code(late)); err != nil {
			t.Fatal(err)
		}
		changes, _, err := i.state.DisableUser(access.By{Principal: i.admin, Now: time.Now()}, "ada", true)
		if err != nil {
			t.Fatal(err)
		}
		i.apply(changes)
		if err := claim(late); status.Code(err) != codes.PermissionDenied {
			t.Errorf("of a disabled user: %v", err)
		}
	})
}
