package sched

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/naming"
)

type appsAPI struct {
	apiv1.UnimplementedAppsServer
	s *Server
}

func (a *appsAPI) ListApps(ctx context.Context, _ *apiv1.ListAppsRequest) (*apiv1.ListAppsResponse, error) {
	return ask(ctx, a.s.loop, func(l *loop) (*apiv1.ListAppsResponse, error) {
		resp := &apiv1.ListAppsResponse{}
		for _, a := range l.apps {
			resp.Apps = append(resp.Apps, a.message())
		}
		slices.SortFunc(resp.Apps, func(a, b *apiv1.App) int { return strings.Compare(a.Name, b.Name) })
		return resp, nil
	})
}

func (a *appsAPI) GetApp(ctx context.Context, req *apiv1.GetAppRequest) (*apiv1.App, error) {
	return ask(ctx, a.s.loop, func(l *loop) (*apiv1.App, error) {
		if a := l.apps[appOf(req.Name)]; a != nil {
			return a.message(), nil
		}
		return nil, status.Errorf(codes.NotFound, "there is nothing in app %q: `wheelwork app list` shows the apps that there are", req.Name)
	})
}

func (a *appsAPI) PutApp(ctx context.Context, req *apiv1.PutAppRequest) (*apiv1.App, error) {
	if req.App == nil {
		return nil, status.Error(codes.InvalidArgument, "the app is missing")
	}
	m := &apiv1.App{Name: req.App.Name, Description: req.App.Description, Rate: proto.CloneOf(req.App.Rate), KvBytes: req.App.KvBytes, EnqueueFrom: slices.Clone(req.App.EnqueueFrom), Weight: req.App.Weight, RequireSigned: req.App.RequireSigned, TrustedKeys: req.App.TrustedKeys}
	if err := naming.Check("name", m.Name); err != nil {
		return nil, invalid(err)
	}
	if len(m.Description) > 4096 {
		return nil, status.Error(codes.InvalidArgument, "description is longer than 4096 bytes")
	}
	if err := cmp.Or(job.CheckRate(m.Rate), checkTrust(m)); err != nil {
		return nil, invalid(err)
	}
	if err := checkAppLimits(m); err != nil {
		return nil, invalid(err)
	}
	return askDurable(ctx, a.s.loop, func(l *loop, answer func(*apiv1.App, error)) {
		if err := l.refuse(); err != nil {
			answer(nil, err)
			return
		}
		m.UpdatedAt = timestamppb.New(l.now)
		a := l.app(m.Name)
		l.record(a.slots[job.ModuleSlot], &apiv1.Record{Kind: &apiv1.Record_AppPut{AppPut: &apiv1.AppPut{App: m}}})
		shown := a.message()
		l.onDurable(func(err error) { answer(shown, err) })
	})
}

// message returns an app as the API shows it.
func (a *app) message() *apiv1.App {
	m := &apiv1.App{Name: a.name}
	if s := a.slots[job.ModuleSlot].Settings; s != nil {
		m = proto.CloneOf(s)
	}
	for _, s := range a.slots {
		m.Jobs += int64(s.Jobs.Len())
		m.Live += int64(s.Runs.Len())
	}
	return m
}
