package core

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// deleteModule records that the bytes of a version are deleted. It accepts a version that was
// deleted before, because an earlier call may have ended before it deleted the file.
func (ca *Catalog) deleteModule(app, ref string, force bool) (*apiv1.Module, error) {
	a := ca.l.State.apps[app]
	if a == nil || a.version(ref) == nil {
		return nil, status.Errorf(codes.NotFound, "there is no module %s in app %s: `wheelwork module list` shows what there is", ref, app)
	}
	if err := a.errIfSplit(); err != nil {
		return nil, err
	}
	m := proto.CloneOf(a.version(ref))
	if !force {
		if err := referenced("module "+ref, ca.versionNamers(a, m)); err != nil {
			return nil, err
		}
	}
	if err := ca.l.commits.refuseChange(); err != nil {
		return nil, err
	}
	m.CollectedAt = timestamppb.New(ca.l.clock.now)
	ca.l.commits.record(a.slots[job.ModuleSlot], &apiv1.Record{Kind: &apiv1.Record_ModulePut{ModulePut: &apiv1.ModulePut{Module: m}}})
	return m, nil
}

// collect records that the bytes of an app's versions are deleted, if nothing refers to the
// versions and they have reached age. With DryRun it only returns them.
func (ca *Catalog) collect(app string, age time.Duration, dryRun bool) (*apiv1.CollectModulesResponse, error) {
	resp := &apiv1.CollectModulesResponse{}
	a := ca.l.State.apps[app]
	if a == nil {
		return resp, nil
	}
	if !dryRun {
		if err := ca.l.commits.refuseChange(); err != nil {
			return nil, err
		}
	}
	refs, goes := a.referred(), map[*apiv1.Module]bool{}
	for ref, m := range a.slots[job.ModuleSlot].Modules {
		goes[m] = m.CollectedAt == nil && !refs[ref] && ca.l.clock.now.Sub(m.CreatedAt.AsTime()) >= age
	}
	// The interpreter of a script is needed as long as the script is.
	needed := map[string]bool{}
	for _, other := range ca.l.State.apps {
		for _, m := range other.slots[job.ModuleSlot].Modules {
			if m.CollectedAt == nil && !goes[m] {
				needed[m.Interpreter] = true
			}
		}
	}
	for m := range goes {
		goes[m] = goes[m] && !needed[m.Digest]
	}
	// Versions, also of different apps, may have the same bytes. All of them must be
	// unused before the bytes can be deleted.
	stillNeeded := map[string]bool{}
	for _, other := range ca.l.State.apps {
		for _, m := range other.slots[job.ModuleSlot].Modules {
			if m.CollectedAt == nil && !goes[m] {
				stillNeeded[m.Digest] = true
			}
		}
	}
	for _, m := range ca.Modules(app) {
		switch {
		case m.CollectedAt != nil:
			continue
		case !goes[m] || stillNeeded[m.Digest]:
			resp.Kept++
			continue
		}
		m = proto.CloneOf(m)
		m.CollectedAt = timestamppb.New(ca.l.clock.now)
		resp.Collected = append(resp.Collected, m)
		if !dryRun {
			ca.l.commits.record(a.slots[job.ModuleSlot], &apiv1.Record{Kind: &apiv1.Record_ModulePut{ModulePut: &apiv1.ModulePut{Module: m}}})
		}
	}
	return resp, nil
}

// Collected is the result of a collection.
type Collected struct {
	Resp  *apiv1.CollectModulesResponse
	Named map[string]bool // the digests of all versions with bytes, of all apps
	At    time.Time
}

// CollectThen is collect with an answer when its records are durable. Then it also asks
// the hosts to drop the versions.
func (ca *Catalog) CollectThen(app string, age time.Duration, dryRun bool, answer func(*Collected, error)) {
	err := cmp.Or(ca.l.State.apps[app].errIfSplit(), ca.l.Holds.Free(app))
	var resp *apiv1.CollectModulesResponse
	if err == nil {
		resp, err = ca.collect(app, age, dryRun)
	}
	if err != nil {
		answer(nil, err)
		return
	}
	c := &Collected{resp, ca.named(resp.Collected), ca.l.clock.now}
	ca.l.commits.onDurable(func(err error) {
		if err == nil && !dryRun {
			ca.l.Sessions.unload(resp.Collected)
		}
		answer(c, err)
	})
}

// Deleted is the result of the deletion of a version.
type Deleted struct {
	Digest string
	Named  bool // another version has the same bytes
}

// DeleteThen is deleteModule with an answer when its record is durable. Then it also asks
// the hosts to drop the version.
func (ca *Catalog) DeleteThen(app, ref string, force bool, answer func(*Deleted, error)) {
	var m *apiv1.Module
	err := ca.l.Holds.Free(app)
	if err == nil {
		m, err = ca.deleteModule(app, ref, force)
	}
	if err != nil {
		answer(nil, err)
		return
	}
	d := &Deleted{m.Digest, ca.named(nil)[m.Digest]}
	ca.l.commits.onDurable(func(err error) {
		if err == nil && !d.Named {
			ca.l.Sessions.unload([]*apiv1.Module{m})
		}
		answer(d, err)
	})
}

// DeleteApp records that what an app has is deleted, and returns the digests of its modules
// that no other app has. It fails while the app has jobs or live runs. The caller must have waited until the store
// includes the ended runs of the app: the store hides blocks of runs as a whole, and later
// blocks are of the next app of that name.
func (ca *Catalog) DeleteApp(name string) (digests map[string]bool, err error) {
	if err := ca.l.Holds.Free(name); err != nil {
		return nil, err
	}
	a := ca.l.State.apps[name]
	if a == nil || a.gone() {
		return nil, NoApp(name)
	}
	if err := a.errIfSplit(); err != nil {
		return nil, err
	}
	if m := a.message(0); m.Jobs+m.Live > 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "app %s is not empty (jobs: %d, live runs: %d): cancel the runs and delete the jobs first, or use `wheelwork app delete %s --force`", name, m.Jobs, m.Live, name)
	}
	if err := ca.l.commits.refuseChange(); err != nil {
		return nil, err
	}
	digests = map[string]bool{}
	for _, m := range a.slots[job.ModuleSlot].Modules {
		digests[m.Digest] = true
	}
	ca.l.Sessions.unload(slices.Collect(maps.Values(a.slots[job.ModuleSlot].Modules)))
	for _, s := range a.slots {
		ca.l.commits.record(s, &apiv1.Record{Kind: &apiv1.Record_AppDelete{AppDelete: &apiv1.AppDelete{}}})
	}
	ca.l.Audit.called("app.deleted", name, name)
	for digest := range ca.named(nil) {
		delete(digests, digest)
	}
	return digests, nil
}
