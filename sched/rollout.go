package sched

import (
	"cmp"
	"slices"
	"strings"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// This file makes hosts load modules before their first task, and records which hosts
// have done so. This state is in memory only: a host reports its modules when it
// connects.

const (
	// maxPrefetch bounds the modules that a host is asked to load when it connects.
	maxPrefetch = 256
	// maxNoted bounds the module states that the server stores for one host, because it
	// does not trust a host to send few.
	maxNoted = 4096
	// maxWhy bounds the error text of a module state, in bytes.
	maxWhy = 1024
)

// prefetch asks the connected hosts that serve an app to load a module version.
func (l *loop) prefetch(a *app, m *apiv1.Module) {
	if m == nil || m.CollectedAt != nil {
		return
	}
	for _, h := range l.hosts {
		if h.connected && !h.draining && h.serves(a.name) && h.runsModules() {
			h.out.prefetch(&apiv1.Prefetch{App: a.name, Digest: m.Digest, Trust: a.trustID()})
		}
	}
}

// prefetchAliases asks a host that has connected to load the versions at which aliases
// point, because these are the versions that jobs will run.
func (l *loop) prefetchAliases(h *host) {
	if !h.runsModules() {
		return
	}
	asked := 0
	for _, name := range slices.Sorted(keysOf(l.apps)) {
		a := l.apps[name]
		if !h.serves(name) {
			continue
		}
		for _, ref := range slices.Sorted(keysOf(a.aliases())) {
			x := a.aliases()[ref]
			for _, version := range versionsOf(x) {
				if m := a.version(x.Module + "@" + version); m != nil && asked < maxPrefetch {
					h.out.prefetch(&apiv1.Prefetch{App: name, Digest: m.Digest, Trust: a.trustID()})
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

// runsModules reports whether the host executes modules. It may also be a worker, a
// program with handlers of its own.
func (h *host) runsModules() bool { return h.abilities.Has("") }

func (o *outbox) prefetch(p *apiv1.Prefetch) {
	o.change(func() {
		o.unload = slices.DeleteFunc(o.unload, func(d string) bool { return d == p.Digest }) // the version was pushed again
		o.fetch = append(o.fetch, p)
	})
}

func (o *outbox) drop(digest string) {
	o.change(func() {
		o.fetch = slices.DeleteFunc(o.fetch, func(p *apiv1.Prefetch) bool { return p.Digest == digest })
		o.unload = append(o.unload, digest)
	})
}

// unload asks every connected host to drop versions whose bytes were collected.
// noteModules asks the other hosts when they connect again.
func (l *loop) unload(collected []*apiv1.Module) {
	for _, h := range l.hosts {
		if !h.connected || !h.runsModules() {
			continue
		}
		for _, m := range collected {
			delete(h.modules, m.Digest)
			h.out.drop(m.Digest) // a host that never had it has nothing to do
		}
	}
}

// noteModules records the module states that a host reports. After the first report of a
// stream it asks the host to drop the modules whose bytes were collected while the host
// was not connected.
func (l *loop) noteModules(h *host, states []*apiv1.ModuleState) {
	if len(states) == 0 {
		return
	}
	joined := h.modules == nil
	h.note(states)
	if !joined {
		return
	}
	gone := map[string]bool{}
	for _, a := range l.apps {
		for _, m := range a.slots[job.ModuleSlot].Modules {
			if m.CollectedAt != nil {
				gone[m.Digest] = true
			}
		}
	}
	if len(gone) == 0 {
		return
	}
	named := l.named(nil)
	for _, digest := range slices.Sorted(keysOf(h.modules)) {
		if gone[digest] && !named[digest] {
			delete(h.modules, digest)
			h.out.drop(digest)
		}
	}
}

func (h *host) note(states []*apiv1.ModuleState) {
	for _, m := range states {
		if h.modules == nil {
			h.modules = map[string]*apiv1.ModuleState{}
		}
		if h.modules[m.Digest] == nil && len(h.modules) >= maxNoted {
			continue
		}
		if len(m.Error) > maxWhy {
			m.Error = strings.ToValidUTF8(m.Error[:maxWhy], "")
		}
		h.modules[m.Digest] = m
	}
}

// The states of a module on a host that this package names. The other states are texts of
// the host. A module of which the host has reported no state is pending.
const (
	modulePending = "pending"
	moduleReady   = "ready"
)

// rollout returns, for each host that serves an app, whether it has loaded a version.
func (l *loop) rollout(a *app, m *apiv1.Module) *apiv1.Rollout {
	r := &apiv1.Rollout{App: m.App, Name: m.Name, Version: m.Version, Digest: m.Digest}
	for _, h := range l.hosts {
		if !h.connected || h.draining || !h.serves(a.name) || !h.runsModules() {
			continue
		}
		state := h.modules[m.Digest]
		on := &apiv1.HostRollout{
			Host: h.hello.Host, Name: h.hello.Name, State: cmp.Or(state.GetState(), modulePending), Error: state.GetError(), TookMs: state.GetTookMs(),
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

// referred returns the module versions of an app, as name@version, to which a job, a live
// run or an alias refers, and those to which an alias can be set back.
func (a *app) referred() map[string]bool {
	refs := map[string]bool{}
	for _, s := range a.slots {
		s.Uses(func(module, _ string, _ int) { refs[module] = true })
		s.RunModules(func(module string) { refs[module] = true })
	}
	for _, x := range a.aliases() {
		for _, version := range versionsOf(x) {
			refs[x.Module+"@"+version] = true
		}
		for _, e := range x.Events { // an operator may set the alias back to it
			if e.What == job.AliasSet && e.From != "" {
				refs[x.Module+"@"+e.From] = true
				break
			}
		}
	}
	return refs
}
