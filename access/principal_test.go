package access

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// TestMessageHasPermissionsOfBindings compares the permissions of each binding with the policy. A call
// that a server passes on does not carry them, because every server knows them.
func TestMessageHasPermissionsOfBindings(t *testing.T) {
	p := &Principal{Name: "ada", Kind: KindUser, Token: "tok-1", Bindings: Bindings{{Role: RoleViewer, Scope: Scope{Cluster: true}}, {Role: RoleOperator, Scope: Scope{App: "shop"}}}}
	m := p.Message()
	if len(m.Bindings) != 2 {
		t.Fatalf("%d bindings", len(m.Bindings))
	}
	for _, b := range m.Bindings {
		want := slices.Sorted(slices.Values(roles[b.Role]))
		if len(want) == 0 || !slices.Equal(b.Permissions, want) {
			t.Errorf("%s has %v, want %v", b.Role, b.Permissions, want)
		}
	}
	host := builtIn(Host).Message()
	if len(host.Bindings) != 1 || !slices.Equal(host.Bindings[0].Permissions, host.Permissions) {
		t.Errorf("a host has %v", host)
	}
	md, err := p.Passed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var acting apiv1.ActingPrincipal
	if err := proto.Unmarshal([]byte(md.Get(principalHeader)[0]), &acting); err != nil {
		t.Fatal(err)
	}
	for _, b := range acting.Bindings {
		if len(b.Permissions) > 0 {
			t.Errorf("a passed call carries %v", b.Permissions)
		}
	}
}
