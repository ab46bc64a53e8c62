package api

import (
	"context"
	"crypto/rand"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/access"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/sched/core"
)

// principalsAPI manages principals and tokens. The package access decides.
type principalsAPI struct {
	apiv1.UnimplementedAccessServer
	s *Services
}

func (a *principalsAPI) ListRoles(context.Context, *apiv1.ListRolesRequest) (*apiv1.ListRolesResponse, error) {
	return access.Roles(), nil
}

func (a *principalsAPI) WhoAmI(ctx context.Context, _ *apiv1.WhoAmIRequest) (*apiv1.Principal, error) {
	return access.WhoAmI(ctx)
}

// changed makes a change of the access state as the caller of the context.
func changed[T any](ctx context.Context, s *Services, decide func(*access.State, access.By) ([]access.Change, T, error)) (result T, err error) {
	by := access.By{Principal: access.Caller(ctx), Now: time.Now(), Random: rand.Reader}
	if by.Principal == nil {
		return result, status.Error(codes.PermissionDenied, "the call has no principal")
	}
	return core.Change(ctx, s.loop, func(l *core.Loop) (result T, err error) {
		err = l.ChangeAccess(func(st *access.State) (changes []access.Change, err error) {
			changes, result, err = decide(st, by)
			return changes, err
		})
		return result, err
	})
}

// seen reads the access state as the caller of the context.
func seen[T any](ctx context.Context, s *Services, read func(*access.State, *access.Principal, time.Time) T) (result T, err error) {
	p := access.Caller(ctx)
	if p == nil {
		return result, status.Error(codes.PermissionDenied, "the call has no principal")
	}
	return core.Ask(ctx, s.loop, func(l *core.Loop) (T, error) { return read(l.Access.State, p, time.Now()), nil })
}

func (a *principalsAPI) CreateToken(ctx context.Context, req *apiv1.CreateTokenRequest) (*apiv1.Token, error) {
	return changed(ctx, a.s, func(st *access.State, by access.By) ([]access.Change, *apiv1.Token, error) {
		return st.CreateToken(by, req)
	})
}

func (a *principalsAPI) RotateToken(ctx context.Context, req *apiv1.RotateTokenRequest) (*apiv1.Token, error) {
	return changed(ctx, a.s, func(st *access.State, by access.By) ([]access.Change, *apiv1.Token, error) {
		return st.RotateToken(by, req)
	})
}

func (a *principalsAPI) RevokeToken(ctx context.Context, req *apiv1.RevokeTokenRequest) (*apiv1.RevokeTokenResponse, error) {
	return changed(ctx, a.s, func(st *access.State, by access.By) ([]access.Change, *apiv1.RevokeTokenResponse, error) {
		changes, err := st.RevokeToken(by, req.Id)
		return changes, &apiv1.RevokeTokenResponse{}, err
	})
}

func (a *principalsAPI) AddBinding(ctx context.Context, req *apiv1.AddBindingRequest) (*apiv1.Binding, error) {
	return changed(ctx, a.s, func(st *access.State, by access.By) ([]access.Change, *apiv1.Binding, error) {
		return st.AddBinding(by, req)
	})
}

func (a *principalsAPI) RemoveBinding(ctx context.Context, req *apiv1.RemoveBindingRequest) (*apiv1.RemoveBindingResponse, error) {
	return changed(ctx, a.s, func(st *access.State, by access.By) ([]access.Change, *apiv1.RemoveBindingResponse, error) {
		changes, err := st.RemoveBinding(by, req.Id)
		return changes, &apiv1.RemoveBindingResponse{}, err
	})
}

func (a *principalsAPI) ListTokens(ctx context.Context, req *apiv1.ListTokensRequest) (*apiv1.ListTokensResponse, error) {
	return seen(ctx, a.s, func(st *access.State, p *access.Principal, now time.Time) *apiv1.ListTokensResponse {
		return &apiv1.ListTokensResponse{Tokens: st.Tokens(p, req.App, now)}
	})
}

func (a *principalsAPI) ListBindings(ctx context.Context, req *apiv1.ListBindingsRequest) (*apiv1.ListBindingsResponse, error) {
	return seen(ctx, a.s, func(st *access.State, p *access.Principal, now time.Time) *apiv1.ListBindingsResponse {
		return &apiv1.ListBindingsResponse{Bindings: st.Bindings(p, req.App, now)}
	})
}

func (a *principalsAPI) ListPrincipals(ctx context.Context, _ *apiv1.ListPrincipalsRequest) (*apiv1.ListPrincipalsResponse, error) {
	return seen(ctx, a.s, func(st *access.State, p *access.Principal, now time.Time) *apiv1.ListPrincipalsResponse {
		return &apiv1.ListPrincipalsResponse{Principals: st.Principals(p, now)}
	})
}
