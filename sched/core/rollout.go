package core

import (
	"cmp"
	"slices"
	"strings"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched/hosts"
)

// This file makes hosts load modules before their first task, and records which hosts
// have done so. This state is in memory only: a host reports its modules when it
// connects.

const (
	// maxPrefetch bounds the modules that a host is asked to load when it connects.
	maxPrefetch = 256
)

// prefetch asks the connected hosts that serve an app to load a module version.
func (se *Sessions) prefetch(a *app, m *apiv1.Module) {
	if m == nil || m.CollectedAt != nil {
		return
	}
	for _, h := range se.hosts {
		if h.Takes() && h.Serves(a.name) && h.RunsModules() {
			h.Out.Prefetch(&apiv1.Prefetch{App: a.name, Digest: m.Digest, Trust: a.trustID()})
		}
	}
}

// prefetchAliases asks a host that has connected to load the versions at which aliases
// point, because these are the versions that jobs will run.
func (se *Sessions) prefetchAliases(h *hosts.Host) {
	if !h.RunsModules() {
		return
	}
	asked := 0
	for _, name := range slices.Sorted(keysOf(se.l.State.apps)) {
		a := se.l.State.apps[name]
		if !h.Serves(name) {
			continue
		}
		for _, ref := range slices.Sorted(keysOf(a.aliases())) {
			x := a.aliases()[ref]
			for _, version := range versionsOf(x) {
				if m := a.version(x.Module + "@" + version); m != nil && asked < maxPrefetch {
					h.Out.Prefetch(&apiv1.Prefetch{App: name, Digest: m.Digest, Trust: a.trustID()})
					asked++
				}
			}
		}
	}
}

func keysOf[V any](m map[string]V) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// unload asks every connected host to drop versions whose bytes were collected.
// noteModules asks the other hosts when they connect again.
func (se *Sessions) unload(collected []*apiv1.Module) {
	for _, h := range se.hosts {
		if !h.Connected || !h.RunsModules() {
			continue
		}
		for _, m := range collected {
			delete(h.Modules, m.Digest)
			h.Out.Drop(m.Digest) // a host that never had it has nothing to do
		}
	}
}

// noteModules records the module states that a host reports. After the first report of a
// stream it asks the host to drop the modules whose bytes were collected while the host
// was not connected.
func (se *Sessions) noteModules(h *hosts.Host, states []*apiv1.ModuleState) {
	if len(states) == 0 {
		return
	}
	joined := h.Modules == nil
	h.RecordModules(states)
	if !joined {
		return
	}
	gone := map[string]bool{}
	for _, a := range se.l.State.apps {
		for _, m := range a.slots[job.ModuleSlot].Modules {
			if m.CollectedAt != nil {
				gone[m.Digest] = true
			}
		}
	}
	if len(gone) == 0 {
		return
	}
	named := se.l.Catalog.named(nil)
	for _, digest := range slices.Sorted(keysOf(h.Modules)) {
		if gone[digest] && !named[digest] {
			delete(h.Modules, digest)
			h.Out.Drop(digest)
		}
	}
}

// The states of a module on a host that this package names. The other states are texts of
// the host. A module of which the host has reported no state is pending.
const (
	modulePending = "pending"
	moduleReady   = "ready"
)

// rollout returns, for each host that serves an app, whether it has loaded a version.
func (se *Sessions) rollout(a *app, m *apiv1.Module) *apiv1.Rollout {
	r := &apiv1.Rollout{App: m.App, Name: m.Name, Version: m.Version, Digest: m.Digest}
	for _, h := range se.hosts {
		if !h.Takes() || !h.Serves(a.name) || !h.RunsModules() {
			continue
		}
		state := h.Modules[m.Digest]
		on := &apiv1.HostRollout{
			Host: h.Hello.Host, Name: h.Hello.Name, State: cmp.Or(state.GetState(), modulePending), Error: state.GetError(), TookMs: state.GetTookMs(),
		}
		if on.State == moduleReady {
			r.Ready++
		}
		r.ByHost = append(r.ByHost, on)
	}
	slices.SortFunc(r.ByHost, func(x, y *apiv1.HostRollout) int {
		return cmp.Or(strings.Compare(x.Name, y.Name), strings.Compare(x.Host, y.Host))
	})
	r.Hosts = int32(len(r.ByHost))
	r.Complete = r.Hosts > 0 && r.Ready == r.Hosts
	return r
}
