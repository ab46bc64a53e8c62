package core

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/wheelworkhq/wheelwork/alert/rule"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// This file sets aliases, and rolls back canaries that fail. Every function runs on the
// loop.

// pin adds versions of modules to a record that makes runs. Each run of a job that names
// an alias executes the version that its record names (ADR 16).
func (ca *Catalog) pin(s *job.Slot, rec *apiv1.Record) {
	a := ca.l.State.apps[s.App]
	if a == nil || len(a.aliases()) == 0 {
		return
	}
	switch k := rec.Kind.(type) {
	case *apiv1.Record_Accepted: // of a node, a dependency or a handler; others share a record
		ca.pinAccepted(s, k.Accepted)
	case *apiv1.Record_Armed:
		for _, r := range k.Armed.Runs {
			if x := a.aliasOf(s, r.Job); x != nil {
				r.Pin = job.PinOf(x, job.OccurrenceID(s.App, r.Job, time.UnixMilli(r.PlannedMs), ""), a.version)
			}
		}
	case *apiv1.Record_JobPut:
		if j := s.Jobs.Get(k.JobPut.Job.Name); j != nil && j.Armed() {
			if x := a.aliases()[k.JobPut.Job.GetHandler().GetModule()]; x != nil {
				k.JobPut.Pin = job.StablePin(x, a.version)
			}
		}
	}
}

// pinAccepted is pin for one accepted run.
func (ca *Catalog) pinAccepted(s *job.Slot, acc *apiv1.Accepted) {
	a := ca.l.State.apps[s.App]
	if a == nil || len(a.aliases()) == 0 || len(acc.Run) != len(job.RunID{}) || acc.Pin != nil {
		return
	}
	if x := a.aliasOf(s, acc.Job); x != nil {
		acc.Pin = job.PinOf(x, job.RunID(acc.Run), a.version)
	}
}

// resolve checks the module that a definition names, and sets the digest and the needs of
// the definition if it names a version. If it names an alias, each run gets them when it
// is accepted.
func (ca *Catalog) resolve(def *apiv1.Job, with *Together) error {
	a, ref := ca.l.State.app(def.App), def.Handler.Module
	if x := with.alias(a, ref); x != nil {
		def.Digest, def.Needs = "", nil // each run gets those of its pinned version
		for _, version := range versionsOf(x) {
			m, err := a.usable(x.Module+"@"+version, with)
			if err == nil {
				err = hasHandlers(m, def)
			}
			if err != nil {
				return status.Errorf(codes.FailedPrecondition, "job %s: %s: %s", def.Name, ref, status.Convert(err).Message())
			}
		}
		return nil
	}
	if a.version(ref) == nil {
		return status.Errorf(codes.FailedPrecondition, "job %s: there is no module %s in app %s: push it first with `wheelwork module push %s FILE.wasm`", def.Name, ref, def.App, ref)
	}
	m, err := a.usable(ref, with)
	if err == nil {
		err = hasHandlers(m, def)
	}
	if err != nil {
		return status.Errorf(codes.FailedPrecondition, "job %s: %s", def.Name, status.Convert(err).Message())
	}
	def.Digest, def.Needs = m.Digest, m.Needs
	return nil
}

// hasHandlers fails if a version lacks the handler that a definition names, or the handler
// in its fanout.reduce.
func hasHandlers(m *apiv1.Module, def *apiv1.Job) error {
	if err := hasHandler(m, def.Handler.Name); err != nil {
		return err
	}
	if reduce := def.GetFanout().GetReduce(); reduce != "" {
		if err := hasHandler(m, reduce); err != nil {
			return status.Errorf(codes.FailedPrecondition, "fanout.reduce: %s", status.Convert(err).Message())
		}
	}
	return nil
}

func hasHandler(m *apiv1.Module, name string) error {
	if slices.Contains(m.Handlers, name) {
		return nil
	}
	return status.Errorf(codes.FailedPrecondition, "module %s@%s has no handler %q, it has %q", m.Name, m.Version, name, m.Handlers)
}

// usable returns a version that runs may execute. It fails if there is no such version, if
// its bytes were deleted, or if it lacks a signature that the app requires.
func (a *app) usable(ref string, with *Together) (*apiv1.Module, error) {
	m := a.version(ref)
	switch {
	case m == nil:
		return nil, status.Errorf(codes.FailedPrecondition, "there is no module %s in app %s: `wheelwork module list` shows what there is", ref, a.name)
	case m.CollectedAt != nil:
		return nil, status.Errorf(codes.FailedPrecondition, "the bytes of module %s were deleted, or collected because nothing referred to it: push the same bytes again", ref)
	}
	if err := a.signed(m, with); err != nil {
		return nil, err
	}
	return m, nil
}

func noAlias(app, ref string) error {
	return status.Errorf(codes.NotFound, "there is no alias %s in app %s: `wheelwork module alias` shows what there is", ref, app)
}

// SetAlias creates or moves an alias. The caller has checked the names and the canary of
// the request.
func (ca *Catalog) SetAlias(req *apiv1.SetAliasRequest) (*apiv1.Alias, error) {
	if err := cmp.Or(ca.l.Holds.Free(req.App), ca.l.commits.refuse()); err != nil {
		return nil, err
	}
	a, ref := ca.l.State.app(req.App), req.Module+"@"+req.Name
	old := a.aliases()[ref]
	next := &apiv1.Alias{App: req.App, Module: req.Module, Name: req.Name, Version: cmp.Or(req.Version, old.GetVersion()), Labels: req.Labels}
	if len(next.Labels) == 0 {
		next.Labels = old.GetLabels()
	}
	next.Events = slices.Clone(old.GetEvents())
	switch {
	case next.Version == "":
		return nil, noAlias(req.App, ref)
	case a.version(ref) != nil:
		return nil, status.Errorf(codes.AlreadyExists, "%s is a version of the module: give the alias another name", ref)
	case old == nil && len(a.aliases()) >= job.MaxAliases:
		return nil, status.Errorf(codes.ResourceExhausted, "app %s has %d aliases, which is the limit", req.App, job.MaxAliases)
	}
	next.Canary = proto.CloneOf(req.Canary)
	if ca.continues(old, next) {
		return ca.aliasMessage(a, old), nil
	}
	if err := ca.checkAlias(a, next, req.WhenReady, nil); err != nil {
		return nil, err
	}
	ca.moveAlias(a, old, next)
	return ca.aliasMessage(a, next), nil
}

// continues sets the start of the canary of an alias, and reports whether the alias is as
// before. old is nil if there was none.
func (ca *Catalog) continues(old, next *apiv1.Alias) (same bool) {
	if c := next.Canary; c != nil {
		c.StartedAt, c.Succeeded, c.Failed = timestamppb.New(ca.l.clock.now), 0, 0
		if before := old.GetCanary(); before.GetVersion() == c.Version {
			c.StartedAt = before.StartedAt // the same canary keeps its counts
		}
	}
	return old != nil && old.Version == next.Version && proto.Equal(old.Canary, next.Canary) && maps.Equal(old.Labels, next.Labels)
}

// moveAlias records a new or changed alias, with the event that it makes. old is nil if there
// was none.
func (ca *Catalog) moveAlias(a *app, old, next *apiv1.Alias) {
	now := timestamppb.New(ca.l.clock.now)
	moved, tried := old.GetVersion() != next.Version, !proto.Equal(old.GetCanary(), next.Canary)
	switch {
	case moved:
		job.NoteAlias(next, &apiv1.AliasEvent{At: now, What: job.AliasSet, From: old.GetVersion(), To: next.Version})
	case tried && next.Canary == nil:
		job.NoteAlias(next, &apiv1.AliasEvent{At: now, What: job.AliasCanaryEnded, From: old.GetCanary().GetVersion(), To: next.Version, Why: "by request"})
	}
	if next.Canary != nil && (moved || tried) {
		job.NoteAlias(next, &apiv1.AliasEvent{At: now, What: job.AliasCanary, From: next.Version, To: next.Canary.Version, Why: fmt.Sprintf("%v %% of the runs", next.Canary.Percent)})
	}
	ca.putAlias(next)
	ca.l.commits.onDurable(func(err error) {
		if err == nil {
			for _, version := range versionsOf(next) {
				ca.l.Sessions.prefetch(a, a.version(next.Module+"@"+version))
			}
		}
	})
}

// checkAlias fails if an alias cannot point at its versions: they must be usable and have
// the handlers that jobs name. With whenReady it also fails until all hosts have loaded
// them, and asks the hosts to load them.
func (ca *Catalog) checkAlias(a *app, x *apiv1.Alias, whenReady bool, with *Together) error {
	ref := job.AliasRef(x)
	if x.Canary.GetVersion() == x.Version {
		return status.Errorf(codes.InvalidArgument, "the canary is version %s, which the alias points at already", x.Version)
	}
	for _, version := range versionsOf(x) {
		target := x.Module + "@" + version
		if with.alias(a, target) != nil {
			return status.Errorf(codes.InvalidArgument, "%s is an alias: an alias points at a version", target)
		}
		m, err := a.usable(target, with)
		if err != nil {
			return err
		}
		for _, s := range a.slots {
			s.Uses(func(module, handler string, jobs int) {
				if err != nil || module != ref {
					return
				}
				if lacks := hasHandler(m, handler); lacks != nil && jobs > with.changing(s, module, handler) {
					err = lacks
				}
			})
		}
		if err != nil {
			return status.Errorf(codes.FailedPrecondition, "jobs name %s: %s", ref, status.Convert(err).Message())
		}
		if r := ca.l.Sessions.rollout(a, m); whenReady && !r.Complete {
			ca.l.Sessions.prefetch(a, m)
			return status.Errorf(codes.FailedPrecondition, "%s is ready on %d of %d hosts: `wheelwork module rollout %s` shows what the others wait for", target, r.Ready, r.Hosts, target)
		}
	}
	return nil
}

func (ca *Catalog) putAlias(x *apiv1.Alias) {
	x.UpdatedAt = timestamppb.New(ca.l.clock.now)
	ca.l.commits.record(ca.l.State.app(x.App).slots[job.ModuleSlot], &apiv1.Record{Kind: &apiv1.Record_AliasPut{AliasPut: &apiv1.AliasPut{Alias: x}}})
}

// DeleteAlias records that an alias is deleted. Without force it fails if jobs name it.
func (ca *Catalog) DeleteAlias(app, module, name string, force bool) error {
	if err := ca.l.Holds.Free(app); err != nil {
		return err
	}
	a, ref := ca.l.State.apps[app], module+"@"+name
	if a == nil || a.aliases()[ref] == nil {
		return noAlias(app, ref)
	}
	if err := a.errIfSplit(); err != nil {
		return err
	}
	if !force {
		if err := referenced("alias "+ref, a.jobsNaming(ref)); err != nil {
			return err
		}
	}
	if err := ca.l.commits.refuseChange(); err != nil {
		return err
	}
	ca.dropAlias(a, module, name)
	return nil
}

// dropAlias records that an alias is deleted.
func (ca *Catalog) dropAlias(a *app, module, name string) {
	ca.l.commits.record(a.slots[job.ModuleSlot], &apiv1.Record{Kind: &apiv1.Record_AliasDelete{AliasDelete: &apiv1.AliasDelete{Module: module, Name: name}}})
}

// aliasMessage returns an alias as the API shows it, with the number of its jobs and the
// counts of its canary.
func (ca *Catalog) aliasMessage(a *app, x *apiv1.Alias) *apiv1.Alias {
	m := proto.CloneOf(x)
	m.Jobs = a.jobsOf(job.AliasRef(x))
	if t := a.canaries[job.AliasRef(x)]; t != nil && m.Canary != nil {
		m.Canary.Succeeded, m.Canary.Failed = t.Sum(ca.l.clock.nowMs, job.CanaryWindow(m.Canary))
	}
	return m
}

// ListAliases returns the aliases of an app by module and name; module "" is any.
func (ca *Catalog) ListAliases(app, module string) []*apiv1.Alias {
	a := ca.l.State.apps[app]
	if a == nil {
		return nil
	}
	var all []*apiv1.Alias
	for _, x := range a.aliases() {
		if module == "" || x.Module == module {
			all = append(all, ca.aliasMessage(a, x))
		}
	}
	slices.SortFunc(all, func(x, y *apiv1.Alias) int {
		return cmp.Or(strings.Compare(x.Module, y.Module), strings.Compare(x.Name, y.Name))
	})
	return all
}

// accountAlias adds the rows of a changed alias to the next projection batch. It is part
// of applying a record, also in a replay.
func (ca *Catalog) accountAlias(e *job.Effect) {
	x, ref := e.Alias, job.AliasRef(e.Alias)
	a := ca.l.State.app(x.App)
	if e.Change == job.AliasDeleted {
		ca.l.View.AliasDeleted(x)
	} else {
		ca.l.View.AliasChanged(x)
	}
	started := x.GetCanary().GetStartedAt().AsTime().UnixMilli()
	t := a.canaries[ref]
	switch {
	case e.Change == job.AliasDeleted || x.Canary == nil:
		if t != nil {
			delete(a.canaries, ref)
			ca.l.View.CanaryEnded(x.App, ref)
		}
	case t == nil || t.StartedMs != started:
		a.canaries[ref] = &job.Tally{StartedMs: started}
	}
}

// tally counts the end of an attempt for the canary whose version it ran. It is part of
// applying a record, also in a replay.
func (ca *Catalog) tally(a *app, e *job.Effect) {
	r := e.Run
	if r.Pin == nil || !r.Pin.Canary || r.HasParts() || (e.Change != job.RunWaiting && e.Change != job.RunEnded) {
		return
	}
	ref := r.Pin.Alias
	c, t := a.aliases()[ref].GetCanary(), a.canaries[ref]
	if c == nil || t == nil || !strings.HasSuffix(r.Pin.Module, "@"+c.Version) {
		return // the attempt ran the version of an earlier canary
	}
	ok, counts := job.Counts(r)
	if !counts {
		return
	}
	t.Add(e.AtMs, job.CanaryWindow(c), ok)
	ca.l.View.CanaryCounted(a.name, ref, func() *apiv1.TallyRow {
		if a.canaries[ref] != t {
			return nil
		}
		return t.Row()
	})
	if k := (jobKey{a.name, ref}); !ok && !slices.Contains(ca.suspects, k) {
		ca.suspects = append(ca.suspects, k)
	}
}

// judge rolls back the canaries that failed too often. Its records are appended in one
// batch with the ends of attempts that caused the rollback.
func (ca *Catalog) judge() {
	if len(ca.suspects) == 0 || ca.l.commits.cramped() {
		return
	}
	suspects := ca.suspects
	ca.suspects = nil
	for _, k := range suspects {
		a := ca.l.State.apps[k.app]
		x, t := a.aliases()[k.name], a.canaries[k.name]
		if x.GetCanary() == nil || t == nil || a.primary() != "" { // only the primary partition changes an alias
			continue
		}
		if ca.l.Holds.Free(k.app) != nil {
			ca.suspects = append(ca.suspects, k)
			continue
		}
		succeeded, failed := t.Sum(ca.l.clock.nowMs, job.CanaryWindow(x.Canary))
		why := job.JudgeCanary(x.Canary, succeeded, failed)
		if why == "" {
			continue
		}
		next := proto.CloneOf(x)
		next.Canary = nil
		job.NoteAlias(next, &apiv1.AliasEvent{At: timestamppb.New(ca.l.clock.now), What: job.AliasRolledBack, From: x.Canary.Version, To: x.Version, Why: why})
		ca.putAlias(next)
		ca.l.Alerts.report(a, rule.CanaryRolledBack, rule.Event{Error: "the canary " + x.Canary.Version + " of " + k.name + " was rolled back: " + why})
		ca.l.cfg.Logger.Warn("a canary was rolled back", "app", k.app, "alias", k.name, "canary", x.Canary.Version, "version", x.Version, "reason", why)
	}
}

// GetAlias returns an alias as the API shows it. ref is name@alias.
func (ca *Catalog) GetAlias(app, ref string) (*apiv1.Alias, error) {
	a := ca.l.State.apps[app]
	if a == nil || a.aliases()[ref] == nil {
		return nil, noAlias(app, ref)
	}
	return ca.aliasMessage(a, a.aliases()[ref]), nil
}
