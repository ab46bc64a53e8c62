package access_test

import (
	"crypto/rand"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/access"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// TestPassword hashes a password, and reads no hash that costs too much.
func TestPassword(t *testing.T) {
	const text = "correct horse battery"
	hash, err := access.HashPassword(text, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if !access.VerifyPassword(text, hash) || access.VerifyPassword(text+"x", hash) || access.VerifyPassword("", hash) {
		t.Error("the hash does not tell passwords apart")
	}
	if again, _ := access.HashPassword(text, rand.Reader); again == hash {
		t.Error("two hashes of one password are equal")
	}
	for _, bad := range []string{
		"", "x", strings.Replace(hash, "argon2id", "argon2i", 1), strings.Replace(hash, "m=65536", "m=9999999", 1), strings.Replace(hash, "t=3", "t=9999", 1),
		strings.Replace(hash, "p=1", "p=0", 1), hash[:len(hash)-1], hash + "$", strings.Replace(hash, "v=19", "v=18", 1),
	} {
		if access.VerifyPassword(text, bad) {
			t.Errorf("the hash %q fits", bad)
		}
	}
	for bad, why := range map[string]string{"short": "characters", "aaaaaaaaaaaaaaaaaaaa": "again", "xx Ada Lovelace xx": "name", strings.Repeat("long ", 300): "limit", "ab\xffcdefghijklmnopqrs": "UTF-8"} {
		if err := access.CheckPassword("ada", bad); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if err := access.CheckPassword("ada", text); err != nil {
		t.Error(err)
	}
}

// person signs in with hashes that stand for passwords.
type person struct {
	*issuer
	name string
	now  time.Time
}

func (p *person) signIn(fits bool, newHash string) (token string, err error) {
	p.t.Helper()
	hash, err := p.state.Password(p.name, p.now)
	if err != nil {
		return "", err
	}
	changes, _, token, err := p.state.SignIn(access.SignIn{Name: p.name, Hash: hash, Fits: fits, NewHash: newHash, Address: "10.0.0.1", Program: "cli", By: access.By{Now: p.now, Random: rand.Reader}})
	p.apply(changes)
	return token, err
}

func newPerson(t *testing.T) *person {
	p := &person{newIssuer(t), "ada", time.Now()}
	changes, err := p.state.CreateUser(access.By{Principal: p.admin, Now: p.now, Random: rand.Reader}, p.name, "first")
	if err != nil {
		t.Fatal(err)
	}
	p.apply(changes)
	return p
}

// TestSignIn checks the life of a user: the first sign-in replaces the password, sessions have the
// bindings of the user, and end with the password, the user or by themselves.
func TestSignIn(t *testing.T) {
	p := newPerson(t)
	admin := access.By{Principal: p.admin, Now: p.now, Random: rand.Reader}
	if _, err := p.signIn(true, ""); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("the first password stays: %v", err)
	}
	token, err := p.signIn(true, "second")
	if err != nil {
		t.Fatal(err)
	}
	if who := p.principal(token); who.Name != "ada" || who.Kind != access.KindUser || !strings.HasPrefix(who.Token, "ses-") || who.MayAnywhere("jobs.read") {
		t.Errorf("%+v", who)
	}
	changes, _, err := p.state.AddBinding(admin, &apiv1.AddBindingRequest{Principal: "ada", Role: "operator", Scope: "app:shop"})
	if err != nil {
		t.Fatal(err)
	}
	p.apply(changes)
	if who := p.principal(token); !who.May("jobs.operate", "shop") || who.May("jobs.operate", "bank") {
		t.Errorf("%+v", who)
	}
	second, err := p.signIn(true, "")
	if err != nil || second == token {
		t.Fatal(err)
	}
	who := p.principal(second)
	changes, err = p.state.EndSession(access.By{Principal: who, Now: p.now}, who.Token)
	if err != nil {
		t.Fatal(err)
	}
	p.apply(changes)
	if _, err := p.guard.Identify(second); err == nil {
		t.Error("an ended session is accepted")
	}
	if changes, _, err = p.state.DisableUser(admin, "ada", true); err != nil {
		t.Fatal(err)
	}
	p.apply(changes)
	if _, err := p.guard.Identify(token); err == nil {
		t.Error("a session of a disabled user is accepted")
	}
	if _, err := p.signIn(true, ""); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a disabled user signs in: %v", err)
	}
	if changes, _, err = p.state.DisableUser(admin, "ada", false); err != nil {
		t.Fatal(err)
	}
	p.apply(changes)
	if token, err = p.signIn(true, ""); err != nil {
		t.Fatal(err)
	}
	if changes, err = p.state.ResetPassword(admin, "ada", "third"); err != nil {
		t.Fatal(err)
	}
	p.apply(changes)
	if _, err := p.guard.Identify(token); err == nil {
		t.Error("a session is accepted after another password was set")
	}
}

// TestLockOut checks that wrong passwords keep a user out for a time that grows, and that a right one
// ends it.
func TestLockOut(t *testing.T) {
	p := newPerson(t)
	if _, err := p.signIn(true, "second"); err != nil {
		t.Fatal(err)
	}
	locked := time.Duration(0)
	for range 12 {
		for {
			_, err := p.signIn(false, "")
			if status.Code(err) == codes.ResourceExhausted {
				break
			}
			if status.Code(err) != codes.Unauthenticated {
				t.Fatal(err)
			}
		}
		if _, err := p.signIn(true, ""); status.Code(err) != codes.ResourceExhausted {
			t.Fatalf("the right password of a locked user: %v", err)
		}
		before := p.now
		for {
			p.now = p.now.Add(time.Second)
			if _, err := p.state.Password("ada", p.now); err == nil {
				break
			}
		}
		if d := p.now.Sub(before); d < locked || d > time.Hour+time.Second {
			t.Errorf("locked for %v after %v", d, locked)
		} else {
			locked = d
		}
	}
	if locked < time.Hour-time.Second {
		t.Errorf("the longest lock is %v", locked)
	}
	if _, err := p.signIn(true, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := p.signIn(false, ""); status.Code(err) != codes.Unauthenticated {
		t.Error(err)
	}
	if _, err := p.signIn(true, ""); err != nil {
		t.Errorf("after one wrong password: %v", err)
	}
	p.name = "unknown"
	if _, err := p.signIn(true, ""); status.Code(err) != codes.Unauthenticated {
		t.Error(err)
	}
}

// TestSessionsSlide checks that a used session lasts longer, up to its limit, with few changes, and that a
// user has a bounded number of them.
func TestSessionsSlide(t *testing.T) {
	p := newPerson(t)
	token, err := p.signIn(true, "second")
	if err != nil {
		t.Fatal(err)
	}
	id := p.principal(token).Token
	moves, minutes := 0, 0
	for begin := p.now; ; minutes++ {
		p.now = p.now.Add(time.Minute)
		changes := p.state.Used(id, p.now)
		if moves += len(changes); len(changes) > 0 {
			p.apply(changes)
		}
		if p.now.Sub(begin) > 31*24*time.Hour {
			break
		}
	}
	if moves < 24*29 || moves > 24*31 {
		t.Errorf("%d moves in %d minutes", moves, minutes)
	}
	var tokens []string
	for range 20 {
		token, err := p.signIn(true, "")
		if err != nil {
			t.Fatal(err)
		}
		tokens, p.now = append(tokens, token), p.now.Add(time.Second)
	}
	open := 0
	for _, token := range tokens {
		if _, err := p.guard.Identify(token); err == nil {
			open++
		}
	}
	if _, err := p.guard.Identify(tokens[19]); err != nil || open != 16 {
		t.Errorf("%d sessions, the last one: %v", open, err)
	}
}

// TestSessionUsed checks that the guard reports the use of a session once until its end has moved, and
// that its streams go on then.
func TestSessionUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPerson(t)
		p.now = time.Now()
		token, err := p.signIn(true, "second")
		if err != nil {
			t.Fatal(err)
		}
		var used []string
		p.guard.Used = func(id string) { used = append(used, id) }
		id := p.principal(token).Token
		open := p.guard.Bound(t.Context(), []string{"Bearer " + token})
		use := func() {
			t.Helper()
			if err := p.call(token, apiv1.Access_WhoAmI_FullMethodName, &apiv1.WhoAmIRequest{}); err != nil {
				t.Fatal(err)
			}
		}
		use()
		if len(used) > 0 {
			t.Error("the use of a new session is reported")
		}
		for hour := range 20 {
			time.Sleep(2 * time.Hour)
			use()
			use()
			if len(used) != hour+1 || used[hour] != id {
				t.Fatalf("after %d hours %v is reported", 2*hour, used)
			}
			p.apply(p.state.Used(id, time.Now()))
			synctest.Wait()
			if open.Err() != nil {
				t.Errorf("after %d hours the stream has ended", 2*hour+2)
			}
		}
		time.Sleep(13 * time.Hour)
		synctest.Wait()
		if open.Err() == nil {
			t.Error("the stream of a session that has ended goes on")
		}
		if _, err := p.guard.Identify(token); status.Code(err) != codes.Unauthenticated {
			t.Errorf("an unused session: %v", err)
		}
	})
}

// TestManagingUsers checks which principals manage users.
func TestManagingUsers(t *testing.T) {
	p := newPerson(t)
	admin := access.By{Principal: p.admin, Now: p.now, Random: rand.Reader}
	changes, _, err := p.state.AddBinding(admin, &apiv1.AddBindingRequest{Principal: "ada", Role: "admin", Scope: "cluster"})
	if err != nil {
		t.Fatal(err)
	}
	p.apply(changes)
	for _, tt := range []struct{ role, scope string }{{"maintainer", "app:shop"}, {"developer", "cluster"}, {"maintainer", "cluster"}} {
		by := p.by(p.token(tt.role, tt.scope))
		creates := tt.role == "maintainer" && tt.scope == "cluster"
		if _, err := p.state.CreateUser(by, "bob", "hash"); (err == nil) != creates {
			t.Errorf("a %s in %s creates a user: %v", tt.role, tt.scope, err)
		}
		for what, err := range map[string]error{
			"disables an admin":         third(p.state.DisableUser(by, "ada", true)),
			"sets the admin's password": second(p.state.ResetPassword(by, "ada", "hash")),
		} {
			if status.Code(err) != codes.PermissionDenied {
				t.Errorf("a %s in %s %s: %v", tt.role, tt.scope, what, err)
			}
		}
	}
	for what, err := range map[string]error{
		"a name that is taken":  second(p.state.CreateUser(admin, "ada", "hash")),
		"a name that is none":   second(p.state.CreateUser(admin, "a b", "hash")),
		"a name of the server":  second(p.state.CreateUser(admin, "legacy-admin", "hash")),
		"a user that is absent": third(p.state.DisableUser(admin, "nobody", true)),
	} {
		if err == nil {
			t.Error(what)
		}
	}
}

func second(_ []access.Change, err error) error { return err }

func third(_ []access.Change, _ *apiv1.Principal, err error) error { return err }

// TestTokenUsed checks that the guard reports the use of a token once an hour, by calls and by streams,
// that lists show it, and that the token and its streams go on.
func TestTokenUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t)
		token := i.token("operator", "cluster")
		id := i.principal(token).Token
		var used []string
		i.guard.Used = func(id string) { used = append(used, id) }
		open := i.guard.Bound(t.Context(), []string{"Bearer " + token})
		lastUse := func() time.Time {
			t.Helper()
			all := i.state.Tokens(i.admin, "", time.Now())
			if len(all) != 1 {
				t.Fatal(all)
			}
			if all[0].UsedAt == nil {
				return time.Time{}
			}
			return all[0].UsedAt.AsTime()
		}
		if !lastUse().IsZero() {
			t.Error("a new token was used")
		}
		for hour := range 3 {
			began := time.Now()
			for range 3 {
				var err error
				if hour == 1 {
					err = i.call(token, apiv1.Runs_WatchRun_FullMethodName, &apiv1.WatchRunRequest{App: "shop"})
				} else {
					err = i.call(token, apiv1.Access_WhoAmI_FullMethodName, &apiv1.WhoAmIRequest{})
				}
				if err != nil {
					t.Fatal(err)
				}
				if len(used) != hour+1 || used[hour] != id {
					t.Fatalf("in hour %d %v is reported", hour, used)
				}
				changes := i.state.Used(id, time.Now())
				if i.apply(changes); len(changes) > 1 {
					t.Errorf("%v", changes)
				}
				time.Sleep(10 * time.Minute)
			}
			if at := lastUse(); !at.Equal(began) {
				t.Errorf("used at %v, want %v", at, began)
			}
			time.Sleep(time.Hour)
		}
		if synctest.Wait(); open.Err() != nil {
			t.Error("the notes of its use have ended a stream")
		}
		i.revokeAll()
		if len(i.state.Used(id, time.Now())) > 0 {
			t.Error("a revoked token was used")
		}
	})
}

// TestSetup makes the first administrator, and no second one while it may sign in.
func TestSetup(t *testing.T) {
	i := newIssuer(t)
	hash, err := access.HashPassword("several words make one", rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	setup := func(name string) error {
		changes, err := i.state.Setup(access.By{Now: time.Now(), Random: rand.Reader}, name, hash)
		i.apply(changes)
		return err
	}
	if i.state.HasAdmin(time.Now()) {
		t.Error("a new state has an administrator")
	}
	for _, name := range []string{"", "legacy-admin", "a b"} {
		if err := setup(name); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%q: %v", name, err)
		}
	}
	i.token("viewer", "cluster") // of the service account p-viewer
	if err := setup("p-viewer"); status.Code(err) != codes.AlreadyExists {
		t.Errorf("the name of a service account: %v", err)
	}
	if err := setup("ada"); err != nil {
		t.Fatal(err)
	}
	if err := setup("eve"); status.Code(err) != codes.FailedPrecondition || !i.state.HasAdmin(time.Now()) {
		t.Errorf("a second administrator: %v", err)
	}
	changes, _, err := i.state.DisableUser(access.By{Principal: i.admin, Now: time.Now()}, "ada", true)
	if err != nil {
		t.Fatal(err)
	}
	i.apply(changes)
	if err := setup("bob"); err != nil || !i.state.HasAdmin(time.Now()) {
		t.Errorf("after the first one was disabled: %v", err)
	}
}
