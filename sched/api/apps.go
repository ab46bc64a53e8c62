package api

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/naming"
	"github.com/wheelworkhq/wheelwork/sched/core"
)

type appsAPI struct {
	apiv1.UnimplementedAppsServer
	s *Services
}

func (a *appsAPI) ListApps(ctx context.Context, _ *apiv1.ListAppsRequest) (*apiv1.ListAppsResponse, error) {
	return core.Ask(ctx, a.s.loop, func(l *core.Loop) (*apiv1.ListAppsResponse, error) {
		resp := &apiv1.ListAppsResponse{}
		for _, name := range l.AppNames() {
			resp.Apps = append(resp.Apps, l.AppMessage(name))
		}
		return resp, nil
	})
}

func (a *appsAPI) GetApp(ctx context.Context, req *apiv1.GetAppRequest) (*apiv1.App, error) {
	return core.Ask(ctx, a.s.loop, func(l *core.Loop) (*apiv1.App, error) {
		if m := l.AppMessage(core.AppOf(req.Name)); m != nil {
			return m, nil
		}
		return nil, status.Errorf(codes.NotFound, "there is nothing in app %q: `wheelwork app list` shows the apps that there are", req.Name)
	})
}

func (a *appsAPI) PutApp(ctx context.Context, req *apiv1.PutAppRequest) (*apiv1.App, error) {
	if req.App == nil {
		return nil, status.Error(codes.InvalidArgument, "the app is missing")
	}
	m := &apiv1.App{Name: req.App.Name, Description: req.App.Description, Rate: proto.CloneOf(req.App.Rate), KvBytes: req.App.KvBytes, EnqueueFrom: slices.Clone(req.App.EnqueueFrom), Weight: req.App.Weight, RequireSigned: req.App.RequireSigned, TrustedKeys: req.App.TrustedKeys, RetainRuns: req.App.RetainRuns, RetainLogs: req.App.RetainLogs}
	if err := naming.Check("name", m.Name); err != nil {
		return nil, core.Invalid(err)
	}
	if len(m.Description) > 4096 {
		return nil, status.Error(codes.InvalidArgument, "description is longer than 4096 bytes")
	}
	if err := cmp.Or(job.CheckRate(m.Rate), core.CheckTrust(m)); err != nil {
		return nil, core.Invalid(err)
	}
	if err := core.CheckAppLimits(m); err != nil {
		return nil, core.Invalid(err)
	}
	return core.Change(ctx, a.s.loop, func(l *core.Loop) (*apiv1.App, error) { return l.Commands.PutApp(m) })
}
