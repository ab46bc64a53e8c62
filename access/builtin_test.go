package access

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// TestBuiltInsAreListed lists principals with tokens of several roles: a caller that may see the access to
// the cluster also gets those whose tokens in files the server accepts, and no others.
func TestBuiltInsAreListed(t *testing.T) {
	g := New()
	of := func(name, text string, b ...Binding) Credential {
		return Credential{Digest: Digest(text), Of: &Principal{Name: name, Kind: KindService, Token: "tok-1", Bindings: b}}
	}
	g.Issue([]Credential{
		of("root", "root", Binding{Role: RoleAdmin, Scope: Scope{Cluster: true}}),
		of("watch", "watch", Binding{Role: "auditor", Scope: Scope{Cluster: true}}),
		of("lead", "lead", Binding{Role: "maintainer", Scope: Scope{App: "shop"}}),
	})
	// From a server of the cluster that has passed the list on.
	answer := &apiv1.ListPrincipalsResponse{Principals: []*apiv1.Principal{{Principal: "ada", Kind: KindUser}, {Principal: "legacy-admin", BuiltIn: true}, {Principal: "zoe", Kind: KindUser}}}
	list := func(token string) string {
		ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs("authorization", "Bearer "+token))
		resp, err := g.Unary(ctx, &apiv1.ListPrincipalsRequest{}, &grpc.UnaryServerInfo{FullMethod: apiv1.Access_ListPrincipals_FullMethodName}, func(context.Context, any) (any, error) { return answer, nil })
		if err != nil {
			t.Fatal(token, err)
		}
		var all []string
		for _, p := range resp.(*apiv1.ListPrincipalsResponse).Principals {
			text := p.Principal
			if p.BuiltIn {
				text += "/" + p.Kind
				for _, b := range p.Bindings {
					text += fmt.Sprintf(" %s in %s", b.Role, b.Scope)
				}
			}
			all = append(all, text)
		}
		return strings.Join(all, ", ")
	}
	own := []Token{{"in_0123456789abcdefghijklmnop", Member}, {"in_123456789abcdefghijklmnopq", Setup}, {"", Server}}
	for _, tt := range []struct {
		files []Token
		want  string // for callers that see the access to the cluster
	}{
		{nil, "ada, zoe"},
		{[]Token{{"a", Admin}, {"w", Worker}, {"h", Host}, {"s", Server}, {"other", Server}}, "ada, legacy-admin/user admin in cluster, legacy-host/host worker in cluster host in cluster, legacy-server/server server in cluster, zoe"},
		{[]Token{{"w", Worker}, {"m", Member}}, "ada, legacy-host/host worker in cluster, legacy-server/server member in cluster, zoe"}, // --legacy-tokens off
	} {
		g.Replace(append(own, tt.files...)...)
		for token, want := range map[string]string{"root": tt.want, "watch": tt.want, "lead": "ada, zoe"} {
			if got := list(token); got != want {
				t.Errorf("%s with the files %v sees %q, want %q", token, tt.files, got, want)
			}
		}
	}
	g.Replace(Token{"a", Admin})
	if got := list("a"); got != "ada, legacy-admin/user admin in cluster, zoe" {
		t.Errorf("the built-in administrator sees %q", got)
	}
	if len(answer.Principals) != 3 || answer.Principals[1].Kind != "" {
		t.Error("the answer of the server was changed")
	}
}

// TestRefuseBuiltIn checks that each built-in principal has a way to end its access.
func TestRefuseBuiltIn(t *testing.T) {
	for _, r := range []Role{Admin, Host, Member, Server, Worker} {
		name := builtIn(r).Name
		if err := RefuseBuiltIn(name); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "file") {
			t.Errorf("%s: %v", name, err)
		}
		if _, _, err := NewState().CreateToken(By{Principal: builtIn(Admin), Now: time.Now()}, &apiv1.CreateTokenRequest{Name: name, Role: "viewer", Scope: "cluster"}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("a service account with the name %s: %v", name, err)
		}
	}
	for _, name := range []string{"ada", "legacy-", "legacy-ada", ""} {
		if err := RefuseBuiltIn(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := RefuseBuiltIn(legacyAdmin); !strings.Contains(err.Error(), "--legacy-tokens off") {
		t.Error(err)
	}
}
