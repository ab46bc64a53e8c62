package api

import (
	"context"
	"errors"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/naming"
	"github.com/wheelworkhq/wheelwork/sched/core"
)

type accessAPI struct {
	apiv1.UnimplementedModuleAccessServer
	s *Services
}

func (a *accessAPI) PutGrants(ctx context.Context, req *apiv1.PutGrantsRequest) (*apiv1.ModuleGrants, error) {
	m, err := core.GrantsDefinition(req.Grants)
	if err != nil {
		return nil, err
	}
	return core.Change(ctx, a.s.loop, func(l *core.Loop) (*apiv1.ModuleGrants, error) { return l.Guests.PutGrants(m) })
}

func (a *accessAPI) GetGrants(ctx context.Context, req *apiv1.GetGrantsRequest) (*apiv1.ModuleGrants, error) {
	app := core.AppOf(req.App)
	if err := errors.Join(naming.Check("app", app), job.CheckGranted(req.Module, nil)); err != nil {
		return nil, core.Invalid(err)
	}
	return core.Ask(ctx, a.s.loop, func(l *core.Loop) (*apiv1.ModuleGrants, error) { return l.Guests.GrantsMessage(app, req.Module), nil })
}

func (a *accessAPI) ListGrants(ctx context.Context, req *apiv1.ListGrantsRequest) (*apiv1.ListGrantsResponse, error) {
	return core.Ask(ctx, a.s.loop, func(l *core.Loop) (*apiv1.ListGrantsResponse, error) {
		return &apiv1.ListGrantsResponse{Grants: l.Guests.ListGrants(core.AppOf(req.App))}, nil
	})
}
