package access_test

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/wheelworkhq/wheelwork/access"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

const (
	getJob   = apiv1.Jobs_GetJob_FullMethodName
	watchRun = apiv1.Runs_WatchRun_FullMethodName
)

func (i *issuer) by(token string) access.By {
	i.t.Helper()
	return access.By{Principal: i.principal(token), Now: time.Now(), Random: rand.Reader}
}

// TestTokenEnds checks that an expired, a revoked, a rotated and a foreign token are refused, each with
// its reason, and that their streams end.
func TestTokenEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t)
		admin := access.By{Principal: i.admin, Now: time.Now(), Random: rand.Reader}
		changes, made, err := i.state.CreateToken(admin, &apiv1.CreateTokenRequest{Name: "ci", Role: "viewer", Scope: "app:shop", Ttl: "1h"})
		if err != nil {
			t.Fatal(err)
		}
		i.apply(changes)
		refused := func(what, token, why string) {
			t.Helper()
			err := i.call(token, getJob, &apiv1.GetJobRequest{App: "shop"})
			if status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), why) {
				t.Errorf("%s: %v, want %q", what, err, why)
			}
		}
		accepted := func(what, token string) {
			t.Helper()
			if err := i.call(token, getJob, &apiv1.GetJobRequest{App: "shop"}); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		foreign, _ := access.NewToken(rand.Reader)
		refused("a token of another installation", foreign, "not one of this installation")
		refused("a token with a typing error", made.Token[:20]+"aa"+made.Token[22:], "checksum")
		refused("a token that was cut", made.Token[:30], "copied in part")
		accepted("a new token", made.Token)

		open := func(token string) context.Context {
			return i.guard.Bound(t.Context(), []string{"Bearer " + token})
		}
		ends := func(what string, ctx context.Context, want error) {
			t.Helper()
			synctest.Wait()
			if (ctx.Err() != nil) != (want != nil) {
				t.Errorf("the stream of %s: %v", what, context.Cause(ctx))
			}
			if want == nil {
				return
			}
			err := i.guard.Stream(nil, &fakeStream{ctx: ctx}, &grpc.StreamServerInfo{FullMethod: "/grpc.health.v1.Health/Watch"}, func(any, grpc.ServerStream) error { return ctx.Err() })
			if status.Code(err) != codes.Unauthenticated {
				t.Errorf("the caller of %s learns %v", what, err)
			}
		}
		streams := open(made.Token)
		changes, rotated, err := i.state.RotateToken(admin, &apiv1.RotateTokenRequest{Id: made.Id, Keep: "10m"})
		if err != nil || rotated.Id != made.Id || rotated.Token == made.Token {
			t.Fatal(rotated, err)
		}
		i.apply(changes)
		accepted("the new text", rotated.Token)
		accepted("the former text", made.Token)
		late := open(made.Token)
		ends("the former text within its time, opened before the rotation", streams, errors.New("its end changed"))
		ends("the former text within its time", late, nil)
		time.Sleep(10 * time.Minute)
		refused("the former text after its time", made.Token, "has expired")
		ends("the former text after its time", late, errors.New("expired"))
		last := open(rotated.Token)
		time.Sleep(50 * time.Minute)
		refused("an expired token", rotated.Token, "has expired")
		ends("an expired token", last, errors.New("expired"))

		admin.Now = time.Now()
		if _, _, err := i.state.RotateToken(admin, &apiv1.RotateTokenRequest{Id: made.Id}); status.Code(err) != codes.FailedPrecondition {
			t.Error("an expired token was rotated without a time: ", err)
		}
		changes, renewed, err := i.state.RotateToken(admin, &apiv1.RotateTokenRequest{Id: made.Id, Keep: "0s", Ttl: "never"})
		if err != nil {
			t.Fatal(err)
		}
		i.apply(changes)
		refused("the former text of a rotation that keeps nothing", rotated.Token, "not one of this installation")
		accepted("a renewed token", renewed.Token)
		last = open(renewed.Token)
		if changes, err = i.state.RevokeToken(admin, made.Id); err != nil {
			t.Fatal(err)
		}
		i.apply(changes)
		refused("a revoked token", renewed.Token, "it was revoked")
		ends("a revoked token", last, errors.New("revoked"))
	})
}

// TestBindingsOfTokens checks that a binding of the account holds for its tokens, until it expires or
// is removed, and that open streams end when it does.
func TestBindingsOfTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t)
		admin := access.By{Principal: i.admin, Now: time.Now(), Random: rand.Reader}
		token := i.token("viewer", "app:shop")
		may := func(app string) bool { return i.call(token, getJob, &apiv1.GetJobRequest{App: app}) == nil }
		if !may("shop") || may("bank") {
			t.Fatal("without a binding")
		}
		changes, b, err := i.state.AddBinding(admin, &apiv1.AddBindingRequest{Principal: "p-viewer", Role: "viewer", Scope: "app:bank", ExpiresAt: timestamppb.New(time.Now().Add(time.Hour))})
		if err != nil {
			t.Fatal(err)
		}
		i.apply(changes)
		open := i.guard.Bound(t.Context(), []string{"Bearer " + token})
		if !may("bank") {
			t.Error("the binding does not hold")
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if may("bank") || open.Err() == nil {
			t.Error("the binding holds after its time")
		}
		admin.Now = time.Now()
		changes, again, err := i.state.AddBinding(admin, &apiv1.AddBindingRequest{Principal: "p-viewer", Role: "viewer", Scope: "app:bank"})
		if err != nil || again.Id != b.Id {
			t.Fatalf("the same binding: %v, %v", again, err)
		}
		i.apply(changes)
		open = i.guard.Bound(t.Context(), []string{"Bearer " + token})
		if !may("bank") || len(i.state.Bindings(i.admin, "bank", time.Now())) != 1 || len(i.state.Bindings(i.admin, "shop", time.Now())) != 0 {
			t.Error("the binding without an expiry")
		}
		if changes, err = i.state.RemoveBinding(admin, b.Id); err != nil {
			t.Fatal(err)
		}
		i.apply(changes)
		synctest.Wait()
		if may("bank") || !may("shop") || open.Err() == nil {
			t.Error("the binding holds after its removal")
		}
	})
}

// TestEscalation tries the ways by which a principal could get more than it has.
func TestEscalation(t *testing.T) {
	i := newIssuer(t)
	admin := access.By{Principal: i.admin, Now: time.Now(), Random: rand.Reader}
	maintainer := i.by(i.token("maintainer", "app:shop"))
	for _, tt := range []struct{ role, scope, ttl string }{
		{"admin", "app:shop", ""},
		{"scraper", "app:shop", ""},
		{"viewer", "app:bank", ""},
		{"viewer", "app-prefix:shop", ""},
		{"viewer", "cluster", ""},
		{"viewer", "app:shop", "never"},
		{"viewer", "app:shop", "180d"},
	} {
		if _, err := i.tryToken(maintainer.Principal, tt.role, tt.scope, tt.ttl); status.Code(err) != codes.PermissionDenied {
			t.Errorf("a maintainer of shop creates a token for %v: %v", tt, err)
		}
	}
	if _, err := i.tryToken(maintainer.Principal, "maintainer", "app:shop", ""); err != nil {
		t.Errorf("a token as long as the maintainer's own: %v", err)
	}
	for _, role := range []string{"viewer", "operator", "developer", "auditor", "deployer", "producer", "scraper"} {
		if _, err := i.tryToken(i.by(i.token(role, "cluster")).Principal, "viewer", "app:shop", ""); status.Code(err) != codes.PermissionDenied {
			t.Errorf("a %s creates a token: %v", role, err)
		}
	}

	// An account with a role elsewhere: a token of it would have that role.
	changes, strong, err := i.state.CreateToken(admin, &apiv1.CreateTokenRequest{Name: "strong", Role: "viewer", Scope: "app:shop"})
	if err != nil {
		t.Fatal(err)
	}
	i.apply(changes)
	changes, _, err = i.state.AddBinding(admin, &apiv1.AddBindingRequest{Principal: "strong", Role: "admin", Scope: "cluster"})
	if err != nil {
		t.Fatal(err)
	}
	i.apply(changes)
	if _, _, err := i.state.CreateToken(maintainer, &apiv1.CreateTokenRequest{Name: "strong", Role: "viewer", Scope: "app:shop"}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a maintainer creates a token of an account with more rights: %v", err)
	}
	if _, _, err := i.state.RotateToken(maintainer, &apiv1.RotateTokenRequest{Id: strong.Id}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a maintainer rotates a token of an account with more rights: %v", err)
	}
	if _, err := i.state.RevokeToken(maintainer, strong.Id); err != nil {
		t.Errorf("a maintainer revokes a token in its app: %v", err)
	}

	// What belongs to others is not there for a caller that may not see it.
	changes, other, err := i.state.CreateToken(admin, &apiv1.CreateTokenRequest{Name: "other", Role: "viewer", Scope: "app:bank"})
	if err != nil {
		t.Fatal(err)
	}
	i.apply(changes)
	if _, err := i.state.RevokeToken(maintainer, other.Id); status.Code(err) != codes.NotFound {
		t.Errorf("a maintainer of shop revokes a token of bank: %v", err)
	}
	if _, _, err := i.state.RotateToken(maintainer, &apiv1.RotateTokenRequest{Id: other.Id}); status.Code(err) != codes.NotFound {
		t.Errorf("a maintainer of shop rotates a token of bank: %v", err)
	}
	for _, x := range i.state.Tokens(maintainer.Principal, "", time.Now()) {
		if x.Scope != "app:shop" || x.Token != "" {
			t.Errorf("a maintainer of shop sees %v", x)
		}
	}
	if all := i.state.Principals(maintainer.Principal, time.Now()); slices.ContainsFunc(all, func(p *apiv1.Principal) bool { return p.Principal == "other" }) {
		t.Errorf("a maintainer of shop sees %v", all)
	}
	changes, ours, err := i.state.AddBinding(admin, &apiv1.AddBindingRequest{Principal: "other", Role: "admin", Scope: "app:shop"})
	if err != nil {
		t.Fatal(err)
	}
	i.apply(changes)
	if _, err := i.state.RemoveBinding(maintainer, ours.Id); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a maintainer removes an admin of its app: %v", err)
	}

	for what, q := range map[string]*apiv1.CreateTokenRequest{
		"a role that does not exist": {Name: "x", Role: "root", Scope: "cluster"},
		"no scope":                   {Name: "x", Role: "viewer"},
		"a pattern as an app":        {Name: "x", Role: "viewer", Scope: "app:*"},
		"an empty name":              {Role: "viewer", Scope: "cluster"},
		"a built-in name":            {Name: "legacy-admin", Role: "viewer", Scope: "cluster"},
		"a name with a slash":        {Name: "a/b", Role: "viewer", Scope: "cluster"},
		"a time that has passed":     {Name: "x", Role: "viewer", Scope: "cluster", Ttl: "-1h"},
		"a time that is too long":    {Name: "x", Role: "viewer", Scope: "cluster", Ttl: "99999999d"},
		"no time":                    {Name: "x", Role: "viewer", Scope: "cluster", Ttl: "soon"},
	} {
		if _, _, err := i.state.CreateToken(admin, q); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestPayload checks which callers see inputs and outputs, in answers and on streams, and that the
// message that the server holds is not changed.
func TestPayload(t *testing.T) {
	i := newIssuer(t)
	run := &apiv1.Run{Id: "r", Input: "in", InputBytes: []byte("in"), Output: "out", OutputBytes: []byte("out"), Error: "why"}
	job := &apiv1.Job{Name: "j", Input: "in", Handler: &apiv1.Handler{Env: map[string]string{"A": "B"}, Args: []string{"x"}}, Workflow: &apiv1.Workflow{Nodes: []*apiv1.Node{{Name: "n", Input: "in"}}}}
	for _, tt := range []struct {
		role            string
		runs, documents bool
	}{
		{"viewer", false, false},
		{"auditor", false, false},
		{"producer", false, true},
		{"deployer", false, true},
		{"operator", true, true},
		{"developer", true, true},
		{"admin", true, true},
	} {
		token := i.token(tt.role, "app:shop")
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer "+token))
		unary := func(method string, req, resp proto.Message) proto.Message {
			before := proto.Clone(resp)
			got, err := i.guard.Unary(ctx, req, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) { return resp, nil })
			if err != nil {
				t.Fatal(tt.role, err)
			}
			if !proto.Equal(before, resp) {
				t.Errorf("%s: the server's own message was changed", tt.role)
			}
			return got.(proto.Message)
		}
		r := unary(apiv1.Runs_GetRun_FullMethodName, &apiv1.GetRunRequest{App: "shop"}, run).(*apiv1.Run)
		if shown := r.Input+string(r.InputBytes)+r.Output+string(r.OutputBytes) == "inin"+"outout"; shown != tt.runs || !tt.runs && r.Input+r.Output != "" || r.Error != "why" || r.Id != "r" {
			t.Errorf("%s sees the run %v", tt.role, r)
		}
		j := unary(getJob, &apiv1.GetJobRequest{App: "shop"}, job).(*apiv1.Job)
		if shown := j.Input == "in" && j.Handler.Env["A"] == "B" && len(j.Handler.Args) == 1 && j.Workflow.Nodes[0].Input == "in"; shown != tt.documents || !tt.documents && j.Input+j.Workflow.Nodes[0].Input != "" || j.Name != "j" {
			t.Errorf("%s sees the job %v", tt.role, j)
		}
		list := unary(apiv1.Jobs_ListJobs_FullMethodName, &apiv1.ListJobsRequest{App: "shop"}, &apiv1.ListJobsResponse{Jobs: []*apiv1.Job{job}}).(*apiv1.ListJobsResponse)
		if (list.Jobs[0].Input == "in") != tt.documents {
			t.Errorf("%s sees the list %v", tt.role, list)
		}
		s := &fakeStream{ctx: ctx, messages: []proto.Message{&apiv1.WatchRunRequest{App: "shop"}}}
		err := i.guard.Stream(nil, s, &grpc.StreamServerInfo{FullMethod: watchRun}, func(_ any, s grpc.ServerStream) error {
			if err := s.RecvMsg(&apiv1.WatchRunRequest{}); err != nil {
				return err
			}
			return s.SendMsg(run)
		})
		if err != nil || (s.sent[0].(*apiv1.Run).Output == "out") != tt.runs {
			t.Errorf("%s watches %v, %v", tt.role, s.sent, err)
		}
	}
}

// TestActing passes callers from one server to another. A caller that is no server must not name
// another one, and a principal has there exactly what it has here.
func TestActing(t *testing.T) {
	i := newIssuer(t)
	i.guard.Replace(access.Token{Text: "admin", Role: access.Admin}, access.Token{Text: "host", Role: access.Host}, access.Token{Text: "member", Role: access.Member}, access.Token{Text: "server", Role: access.Server})
	token := i.token("operator", "app:shop")
	passed, err := i.principal(token).Passed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	as := func(sender string, headers metadata.MD, app string) error {
		md := metadata.Join(metadata.Pairs("authorization", "Bearer "+sender), headers)
		_, err := i.guard.Unary(metadata.NewIncomingContext(t.Context(), md), &apiv1.TriggerJobRequest{App: app}, &grpc.UnaryServerInfo{FullMethod: apiv1.Jobs_TriggerJob_FullMethodName}, func(ctx context.Context, _ any) (any, error) {
			if p := access.Caller(ctx); p.Name != "p-operator" && p.Name != "legacy-admin" {
				t.Errorf("the call is made by %v", p)
			}
			return nil, nil
		})
		return err
	}
	if err := as("server", passed, "shop"); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{
		"another app":                as("server", passed, "bank"),
		"an admin for another":       as("admin", passed, "shop"),
		"a host for another":         as("host", passed, "shop"),
		"a member for another":       as("member", passed, "shop"),
		"the token itself":           as(token, metadata.Pairs(access.ActingHeader, "admin"), "bank"),
		"two callers":                as("server", metadata.Join(passed, passed), "shop"),
		"no caller":                  as("server", metadata.Pairs(access.ActingHeader, "principal"), "shop"),
		"an unknown role":            as("server", metadata.Pairs(access.ActingHeader, "root"), "shop"),
		"a caller that is no record": as("server", metadata.Pairs(access.ActingHeader, "principal", "wheelwork-principal-bin", "\xff\xff"), "shop"),
	} {
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v", what, err)
		}
	}
	own, err := i.admin.Passed(t.Context())
	if err != nil || as("server", own, "bank") != nil {
		t.Error("the administrator of a file is not passed on", err)
	}
}

// TestActingRoles passes on the calls of a server's own pages: the setup page and the sign-in with a
// provider work at any server of a cluster, and each may call nothing else.
func TestActingRoles(t *testing.T) {
	own := map[string]access.Role{apiv1.Access_Setup_FullMethodName: access.Setup, apiv1.Access_Federate_FullMethodName: access.Federation}
	i := newIssuer(t)
	tokens := []access.Token{{Text: "server", Role: access.Server}}
	for method, role := range own {
		tokens = append(tokens, access.Token{Text: method, Role: role})
	}
	i.guard.Replace(tokens...)
	for of := range own {
		headers, err := i.principal(of).Passed(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		md := metadata.Join(metadata.Pairs("authorization", "Bearer server"), headers)
		for method := range own {
			want := codes.PermissionDenied
			if method == of {
				want = codes.OK
			}
			if err := i.guard.Check(metadata.NewIncomingContext(t.Context(), md), method); status.Code(err) != want {
				t.Errorf("%s with the token for %s: %v", method, of, err)
			}
		}
	}
}

// TestStateIsTheFold checks that a state that is loaded from rows accepts the same tokens.
func TestStateIsTheFold(t *testing.T) {
	i := newIssuer(t)
	rows := map[[2]string][]byte{}
	keep := func(changes []access.Change) {
		for _, c := range changes {
			back, err := access.ChangeOf(c.Record())
			if err != nil {
				t.Fatal(err)
			}
			kind, id, row := back.Row()
			delete(rows, [2]string{kind, id})
			if row != nil {
				rows[[2]string{kind, id}], err = proto.Marshal(row)
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		i.apply(changes)
	}
	admin := access.By{Principal: i.admin, Now: time.Now(), Random: rand.Reader}
	var texts []string
	for _, name := range []string{"a", "b", "c"} {
		changes, made, err := i.state.CreateToken(admin, &apiv1.CreateTokenRequest{Name: name, Role: "viewer", Scope: "app:shop"})
		if err != nil {
			t.Fatal(err)
		}
		keep(changes)
		texts = append(texts, made.Token)
		if name == "a" {
			continue
		}
		if changes, made, err = i.state.RotateToken(admin, &apiv1.RotateTokenRequest{Id: made.Id}); err != nil {
			t.Fatal(err)
		}
		keep(changes)
		texts = append(texts, made.Token)
		if name == "c" {
			if changes, err = i.state.RevokeToken(admin, made.Id); err != nil {
				t.Fatal(err)
			}
			keep(changes)
		}
	}
	changes, _, err := i.state.AddBinding(admin, &apiv1.AddBindingRequest{Principal: "a", Role: "operator", Scope: "app:bank"})
	if err != nil {
		t.Fatal(err)
	}
	keep(changes)
	loaded := access.NewState()
	for k, value := range rows {
		if err := loaded.Load(k[0], k[1], value); err != nil {
			t.Fatal(err)
		}
	}
	second := access.New()
	second.Issue(loaded.Credentials())
	for n, text := range texts {
		p, err := i.guard.Identify(text)
		q, err2 := second.Identify(text)
		if (err == nil) != (err2 == nil) || (err == nil) != (n < 3) || err == nil && !proto.Equal(p.Message(), q.Message()) {
			t.Errorf("token %d: %v, %v; loaded %v, %v", n, p, err, q, err2)
		}
	}
	if err := loaded.Load("of a newer version", "x", nil); err == nil {
		t.Error("a row of an unknown kind was loaded")
	}
	if _, err := access.ChangeOf(&apiv1.Record{}); err == nil {
		t.Error("a record of another kind was read")
	}
}

// TestAwait checks that a server that has just started refuses an issued token only for a time.
func TestAwait(t *testing.T) {
	i := newIssuer(t)
	token, _ := access.NewToken(rand.Reader)
	g := access.New()
	g.Replace(access.Token{Text: "of a file", Role: access.Admin})
	g.Await()
	if _, err := g.Identify(token); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
	if _, err := g.Identify("of a file"); err != nil {
		t.Error(err)
	}
	g.Issue(i.state.Credentials())
	if _, err := g.Identify(token); status.Code(err) != codes.Unauthenticated {
		t.Error(err)
	}
}
