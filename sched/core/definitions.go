package core

import (
	"cmp"
	"errors"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/naming"
	"github.com/wheelworkhq/wheelwork/job/schedule"
)

// This file checks definitions as far as that needs no state, like [Definition]. Each
// function returns a copy with only the fields that clients set, and errors with the code
// InvalidArgument.

// AppDefinition checks the settings of an app.
func AppDefinition(d *apiv1.App) (*apiv1.App, error) {
	if d == nil {
		return nil, status.Error(codes.InvalidArgument, "the app is missing")
	}
	m := &apiv1.App{
		Name: d.Name, Description: d.Description, Rate: proto.CloneOf(d.Rate), KvBytes: d.KvBytes, EnqueueFrom: slices.Clone(d.EnqueueFrom),
		Weight: d.Weight, RequireSigned: d.RequireSigned, TrustedKeys: slices.Clone(d.TrustedKeys),
		RetainRuns: d.RetainRuns, RetainLogs: d.RetainLogs, RevisionBytes: d.RevisionBytes,
	}
	if err := naming.Check("name", m.Name); err != nil {
		return nil, Invalid(err)
	}
	if len(m.Description) > 4096 {
		return nil, status.Error(codes.InvalidArgument, "description is longer than 4096 bytes")
	}
	if err := cmp.Or(job.CheckRate(m.Rate), CheckTrust(m), CheckAppLimits(m)); err != nil {
		return nil, Invalid(err)
	}
	return m, nil
}

// CalendarDefinition checks a calendar, and also returns its compiled form.
func CalendarDefinition(d *apiv1.Calendar) (*apiv1.Calendar, *schedule.Calendar, error) {
	if d == nil {
		return nil, nil, status.Error(codes.InvalidArgument, "the calendar is missing")
	}
	c := proto.CloneOf(d)
	c.App, c.UpdatedAt, c.Revision = AppOf(c.App), nil, 0
	if err := cmp.Or(naming.Check("app", c.App), naming.Check("name", c.Name), job.CheckLabels(c.Labels)); err != nil {
		return nil, nil, Invalid(err)
	}
	compiled, err := schedule.CompileCalendar(c)
	if err != nil {
		return nil, nil, Invalid(err)
	}
	return c, compiled, nil
}

// AliasDefinition checks an alias that a change set defines.
func AliasDefinition(d *apiv1.Alias) (*apiv1.Alias, error) {
	if d == nil {
		return nil, status.Error(codes.InvalidArgument, "the alias is missing")
	}
	m := &apiv1.Alias{App: AppOf(d.App), Module: d.Module, Name: d.Name, Version: d.Version, Canary: proto.CloneOf(d.Canary), Labels: d.Labels}
	if m.Canary != nil {
		m.Canary.StartedAt, m.Canary.Succeeded, m.Canary.Failed = nil, 0, 0
	}
	if err := checkAliasNames(m.App, m.Module, m.Name); err != nil {
		return nil, err
	}
	if err := cmp.Or(naming.Check("version", m.Version), checkCanary(m.Canary), job.CheckLabels(m.Labels)); err != nil {
		return nil, Invalid(err)
	}
	return m, nil
}

func checkAliasNames(app, module, name string) error {
	if err := cmp.Or(naming.Check("app", app), naming.Check("module", module), naming.Check("alias", name)); err != nil {
		return Invalid(err)
	}
	return nil
}

func checkCanary(c *apiv1.Canary) error {
	if c == nil {
		return nil
	}
	return job.CheckCanary(c)
}

// AliasRequest checks a request to create or move an alias, and returns a copy of it.
func AliasRequest(req *apiv1.SetAliasRequest) (*apiv1.SetAliasRequest, error) {
	req = proto.CloneOf(req)
	req.App = AppOf(req.App)
	if err := checkAliasNames(req.App, req.Module, req.Name); err != nil {
		return nil, err
	}
	switch {
	case req.Version == "" && req.Canary == nil && !req.EndCanary:
		return nil, status.Error(codes.InvalidArgument, "nothing to do: name a version, a canary, or the end of one")
	case req.Canary != nil && req.EndCanary:
		return nil, status.Error(codes.InvalidArgument, "the request both sets a canary and ends it: choose one")
	}
	if req.Version != "" {
		if err := naming.Check("version", req.Version); err != nil {
			return nil, Invalid(err)
		}
	}
	if err := cmp.Or(checkCanary(req.Canary), job.CheckLabels(req.Labels)); err != nil {
		return nil, Invalid(err)
	}
	return req, nil
}

// GrantsDefinition checks the grants of a module.
func GrantsDefinition(d *apiv1.ModuleGrants) (*apiv1.ModuleGrants, error) {
	m := &apiv1.ModuleGrants{App: AppOf(d.GetApp()), Module: d.GetModule(), Grants: proto.CloneOf(d.GetGrants()), Labels: d.GetLabels()}
	if err := errors.Join(naming.Check("app", m.App), job.CheckGranted(m.Module, m.Grants), job.CheckGrants(m.Grants), job.CheckLabels(m.Labels)); err != nil {
		return nil, Invalid(err)
	}
	return m, nil
}
