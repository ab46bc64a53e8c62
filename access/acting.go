package access

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// This file carries the caller of a call from the server that it called to the one that answers.

const (
	// ActingHeader names the role of the original caller in a call that a server passes on, or is
	// "principal". Only a server may send it.
	ActingHeader = "wheelwork-acting"
	// principalHeader has the caller as an [apiv1.ActingPrincipal]. If ActingHeader is a role, only
	// the address in it counts. A server of a version without principals refuses "principal".
	principalHeader = "wheelwork-principal-bin"
	byPrincipal     = "principal"
)

// Passed returns the headers with which a server makes a call for a principal.
func (p *Principal) Passed(ctx context.Context) (metadata.MD, error) {
	m := &apiv1.ActingPrincipal{Principal: p.Name, Kind: p.Kind, Token: p.Token, Bindings: p.bindings(), Address: p.AddressOf(ctx)}
	if p.Token == "" {
		m.Bindings = nil // those of the role
	}
	b, err := proto.Marshal(m)
	role := byPrincipal
	if p.Token == "" {
		role = p.Role()
	}
	return metadata.Pairs(ActingHeader, role, principalHeader, string(b)), err
}

// acting returns the principal for which a call is made: the caller itself or, if a server passes
// the call on, the one that this server found.
func acting(ctx context.Context, own *Principal) (*Principal, error) {
	values := metadata.ValueFromIncomingContext(ctx, ActingHeader)
	if len(values) == 0 {
		return own, nil
	}
	if !own.Process.may(act) {
		return nil, status.Errorf(codes.PermissionDenied, "%s may not make calls for others: only servers do (%s)", own.Name, ActingHeader)
	}
	if len(values) == 1 && values[0] == byPrincipal {
		return passed(metadata.ValueFromIncomingContext(ctx, principalHeader))
	}
	for _, r := range []Role{Admin, Host, Member, Server, Setup, Federation, Worker} {
		if len(values) == 1 && r.Name == values[0] {
			p := builtIn(r)
			if said, err := passed(metadata.ValueFromIncomingContext(ctx, principalHeader)); err == nil {
				p.Address = said.Address
			}
			return p, nil
		}
	}
	return nil, status.Errorf(codes.PermissionDenied, "a server passed on a call of the role %.40q, which this version does not know: bring both servers to the same version", values[0])
}

func passed(headers []string) (*Principal, error) {
	if len(headers) != 1 {
		return nil, status.Errorf(codes.PermissionDenied, "a server passed on a call with %d callers, want one", len(headers))
	}
	m := &apiv1.ActingPrincipal{}
	if err := proto.Unmarshal([]byte(headers[0]), m); err != nil {
		return nil, status.Error(codes.PermissionDenied, "a server passed on a call whose caller cannot be read")
	}
	p := &Principal{Name: m.Principal, Kind: m.Kind, Token: m.Token, Address: m.Address}
	for _, b := range m.Bindings {
		scope, err := ParseScope(b.Scope)
		if err != nil {
			continue // of a newer version: it gives nothing here
		}
		expires := time.Time{}
		if b.ExpiresAt != nil {
			expires = b.ExpiresAt.AsTime()
		}
		p.Bindings = append(p.Bindings, Binding{b.Role, scope, expires})
	}
	return p, nil
}
