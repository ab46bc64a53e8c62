package api

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/access"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
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
		resp.Apps = access.SeenApps(ctx, resp.Apps)
		return resp, nil
	})
}

func (a *appsAPI) GetApp(ctx context.Context, req *apiv1.GetAppRequest) (*apiv1.App, error) {
	return core.Ask(ctx, a.s.loop, func(l *core.Loop) (*apiv1.App, error) {
		if m := l.AppMessage(core.AppOf(req.Name)); m != nil {
			return m, nil
		}
		return nil, core.NoApp(core.AppOf(req.Name))
	})
}

func (a *appsAPI) PutApp(ctx context.Context, req *apiv1.PutAppRequest) (*apiv1.App, error) {
	m, err := core.AppDefinition(req.App)
	if err != nil {
		return nil, err
	}
	return core.Change(ctx, a.s.loop, func(l *core.Loop) (*apiv1.App, error) { return l.Commands.PutApp(m) })
}

func (a *appsAPI) SetAppLimits(ctx context.Context, req *apiv1.SetAppLimitsRequest) (*apiv1.App, error) {
	if err := naming.Check("name", req.Name); err != nil {
		return nil, core.Invalid(err)
	}
	m, err := core.AppLimits(req.Limits)
	if err != nil {
		return nil, err
	}
	return core.Change(ctx, a.s.loop, func(l *core.Loop) (*apiv1.App, error) { return l.Commands.SetLimits(req.Name, m) })
}

func (a *appsAPI) PauseApp(ctx context.Context, req *apiv1.PauseAppRequest) (*apiv1.App, error) {
	by := author(core.AttributionOf(ctx).GetAuthor())
	return core.Change(ctx, a.s.loop, func(l *core.Loop) (*apiv1.App, error) {
		return l.Commands.PauseApp(core.AppOf(req.Name), by, req.Reason, req.Until)
	})
}

func (a *appsAPI) ResumeApp(ctx context.Context, req *apiv1.ResumeAppRequest) (*apiv1.App, error) {
	return core.Change(ctx, a.s.loop, func(l *core.Loop) (*apiv1.App, error) { return l.Commands.ResumeApp(core.AppOf(req.Name)) })
}

// DeleteApp deletes what an app has, and the bytes of its modules that no other app has. It
// waits until the store has the ended runs of the app, because it hides them by their time.
// The record comes before the removal of the bytes: after a crash in between, a file belongs
// to no version, and the next collection deletes it.
func (a *appsAPI) DeleteApp(ctx context.Context, req *apiv1.DeleteAppRequest) (*apiv1.DeleteAppResponse, error) {
	if err := naming.Check("name", req.Name); err != nil {
		return nil, core.Invalid(err)
	}
	if err := a.s.loop.CaughtUp(ctx); err != nil {
		return nil, err
	}
	a.s.uploads.blobs.Lock()
	defer a.s.uploads.blobs.Unlock()
	files, err := a.s.cfg.Modules.List()
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	gone, err := core.Change(ctx, a.s.loop, func(l *core.Loop) (map[string]bool, error) { return l.Catalog.DeleteApp(req.Name) })
	if err != nil {
		return nil, err
	}
	resp := &apiv1.DeleteAppResponse{}
	for _, b := range files {
		if !gone[b.Digest] {
			continue
		}
		if err := b.Remove(); err != nil {
			return nil, status.Errorf(codes.Internal, "the app is deleted, and a file of its modules could not be removed: %v: `wheelwork module collect` in another app removes it", err)
		}
		resp.Bytes += b.Bytes
	}
	return resp, nil
}
