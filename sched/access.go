package sched

import (
	"context"
	"errors"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/naming"
)

type accessAPI struct {
	apiv1.UnimplementedModuleAccessServer
	s *Server
}

func (a *accessAPI) PutGrants(ctx context.Context, req *apiv1.PutGrantsRequest) (*apiv1.ModuleGrants, error) {
	m := &apiv1.ModuleGrants{App: appOf(req.GetGrants().GetApp()), Module: req.GetGrants().GetModule(), Grants: proto.CloneOf(req.GetGrants().GetGrants())}
	if err := errors.Join(naming.Check("app", m.App), job.CheckGranted(m.Module, m.Grants), job.CheckGrants(m.Grants)); err != nil {
		return nil, invalid(err)
	}
	return askDurable(ctx, a.s.loop, func(l *loop, answer func(*apiv1.ModuleGrants, error)) {
		refuse := l.refuse
		if job.Nothing(m.Grants) {
			refuse = l.refuseChange // grants can be revoked even on a full disk
		}
		if err := refuse(); err != nil {
			answer(nil, err)
			return
		}
		m.UpdatedAt = timestamppb.New(l.now)
		s := l.app(m.App).slots[job.ModuleSlot]
		l.record(s, &apiv1.Record{Kind: &apiv1.Record_GrantsPut{GrantsPut: &apiv1.GrantsPut{Grants: m}}})
		shown := grantsMessage(s, m.Module)
		l.onDurable(func(err error) { answer(shown, err) })
	})
}

func (a *accessAPI) GetGrants(ctx context.Context, req *apiv1.GetGrantsRequest) (*apiv1.ModuleGrants, error) {
	app := appOf(req.App)
	if err := errors.Join(naming.Check("app", app), job.CheckGranted(req.Module, nil)); err != nil {
		return nil, invalid(err)
	}
	return ask(ctx, a.s.loop, func(l *loop) (*apiv1.ModuleGrants, error) {
		if a := l.apps[app]; a != nil {
			return grantsMessage(a.slots[job.ModuleSlot], req.Module), nil
		}
		return &apiv1.ModuleGrants{App: app, Module: req.Module}, nil
	})
}

func (a *accessAPI) ListGrants(ctx context.Context, req *apiv1.ListGrantsRequest) (*apiv1.ListGrantsResponse, error) {
	return ask(ctx, a.s.loop, func(l *loop) (*apiv1.ListGrantsResponse, error) {
		resp := &apiv1.ListGrantsResponse{}
		a := l.apps[appOf(req.App)]
		if a == nil {
			return resp, nil
		}
		s := a.slots[job.ModuleSlot]
		var names []string
		s.Granted(func(m *apiv1.ModuleGrants) { names = append(names, m.Module) })
		for _, m := range s.Modules {
			if !job.Nothing(m.Requests) {
				names = append(names, m.Name)
			}
		}
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			resp.Grants = append(resp.Grants, grantsMessage(s, name))
		}
		return resp, nil
	})
}

// grantsMessage returns the grants of a module as the API shows them, with the requested
// and the effective capabilities of each of its versions.
func grantsMessage(s *job.Slot, module string) *apiv1.ModuleGrants {
	m := proto.CloneOf(s.Grants(module))
	if m == nil {
		m = &apiv1.ModuleGrants{App: s.App, Module: module}
	}
	for _, v := range s.Modules {
		if v.Name == module {
			m.Versions = append(m.Versions, &apiv1.GrantedVersion{
				Version: v.Version, Requested: v.Requests, Effective: job.Effective(v.Requests, m.Grants),
			})
		}
	}
	slices.SortFunc(m.Versions, func(a, b *apiv1.GrantedVersion) int { return strings.Compare(a.Version, b.Version) })
	return m
}
