package core

import (
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// aliases returns the aliases of an app by name@alias.
func (a *app) aliases() map[string]*apiv1.Alias { return a.slots[job.ModuleSlot].Aliases }

// version returns a version of a module, or nil. ref is name@version.
func (a *app) version(ref string) *apiv1.Module { return a.slots[job.ModuleSlot].Modules[ref] }

// aliasOf returns the alias that a job names, or nil.
func (a *app) aliasOf(s *job.Slot, name string) *apiv1.Alias {
	if j := s.Jobs.Get(name); j != nil {
		return a.aliases()[j.Alias()]
	}
	return nil
}

// versionsOf returns the versions that an alias may give a run.
func versionsOf(x *apiv1.Alias) []string {
	if x.Canary != nil {
		return []string{x.Version, x.Canary.Version}
	}
	return []string{x.Version}
}

// jobsOf counts the jobs that name a version or an alias.
func (a *app) jobsOf(ref string) (n int64) {
	for _, s := range a.slots {
		s.Uses(func(module, _ string, jobs int) {
			if module == ref {
				n += int64(jobs)
			}
		})
	}
	return n
}

// jobsNaming returns the jobs that name a module version or an alias, as texts "job
// NAME".
func (a *app) jobsNaming(ref string) (names []string) {
	if a.jobsOf(ref) == 0 {
		return nil
	}
	for _, s := range a.slots {
		for j := range s.Jobs.All() {
			if j.Module() == ref {
				names = append(names, "job "+j.Name())
			}
		}
	}
	return names
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

// named returns the digests of all versions whose bytes exist, except the digests of the
// versions in without.
func (ca *Catalog) named(without []*apiv1.Module) map[string]bool {
	digests := map[string]bool{}
	for _, a := range ca.l.State.apps {
		for _, m := range a.slots[job.ModuleSlot].Modules {
			if m.CollectedAt == nil {
				digests[m.Digest] = true
			}
		}
	}
	for _, m := range without {
		delete(digests, m.Digest)
	}
	return digests
}
