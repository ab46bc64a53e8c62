package core

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/naming"
	"github.com/wheelworkhq/wheelwork/job/schedule"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/store"
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

// CheckAppLimits validates kv_bytes, weight and enqueue_from of an app.
func CheckAppLimits(m *apiv1.App) error {
	if m.KvBytes < 0 || m.KvBytes > 16<<30 {
		return errors.New("kv_bytes must be 0 to 16 GiB")
	}
	if m.RevisionBytes != 0 && (m.RevisionBytes < store.LeastRevisionBytes || m.RevisionBytes > 1<<40) {
		return errors.New("revision_bytes must be 64 KiB to 1 TiB, or 0 for 256 MiB")
	}
	if m.Weight < 0 || m.Weight > 1000 {
		return errors.New("weight must be 1 to 1000, or 0 for 1")
	}
	if _, err := job.RetentionOf(m); err != nil {
		return err
	}
	if len(m.EnqueueFrom) > 100 {
		return errors.New("enqueue_from has more than 100 apps")
	}
	for _, app := range m.EnqueueFrom {
		if err := naming.Check("enqueue_from: app", app); err != nil {
			return err
		}
	}
	return nil
}

// CheckTrust fails if an app has too many trusted keys or a malformed one, or requires
// signatures without a trusted key.
func CheckTrust(m *apiv1.App) error {
	if len(m.TrustedKeys) > modules.MaxKeys {
		return fmt.Errorf("trusted_keys: %d keys, the limit is %d", len(m.TrustedKeys), modules.MaxKeys)
	}
	for _, key := range m.TrustedKeys {
		if _, err := modules.ParseKey(key); err != nil {
			return fmt.Errorf("trusted_keys: %w", err)
		}
	}
	if m.RequireSigned && len(m.TrustedKeys) == 0 {
		return errors.New("require_signed without trusted_keys would refuse every module: trust a key first")
	}
	return nil
}
