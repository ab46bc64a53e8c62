package access

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestCurrent follows the permissions of a principal after its call.
func TestCurrent(t *testing.T) {
	g := New()
	with := func(role string, until time.Time) []Credential {
		return []Credential{{Digest: Digest("text"), Until: until, Of: &Principal{Name: "ann", Kind: KindUser, Token: "tok-1", Bindings: Bindings{{Role: role, Scope: Scope{App: "shop"}}}}}}
	}
	g.Issue(with(RoleOperator, time.Time{}))
	then, err := g.Identify("text")
	if err != nil {
		t.Fatal(err)
	}
	at := *then
	at.Address = "192.0.2.1"
	for _, tt := range []struct {
		what  string
		known []Credential
		code  codes.Code
		may   bool
	}{
		{"the same", with(RoleOperator, time.Time{}), codes.OK, true},
		{"fewer permissions", with(RoleViewer, time.Time{}), codes.OK, false},
		{"expired", with(RoleOperator, time.Now().Add(-time.Second)), codes.Unauthenticated, false},
		{"revoked", nil, codes.Unauthenticated, false},
	} {
		g.Issue(tt.known)
		p, err := g.Current(&at)
		if status.Code(err) != tt.code || err == nil && (p.May("jobs.operate", "shop") != tt.may || p.Address != at.Address) {
			t.Errorf("%s: %+v, %v", tt.what, p, err)
		}
	}
	g.Allow("of a file", Admin)
	file, err := g.Identify("of a file")
	if err != nil {
		t.Fatal(err)
	}
	if p, err := g.Current(file); p != file || err != nil {
		t.Errorf("a token of a file: %v, %v", p, err)
	}
}
