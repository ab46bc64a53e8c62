package core

import (
	"fmt"
	"slices"
	"strings"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// This file finds the references to jobs and to module versions. Every function runs on
// the loop.

// versionNamers returns the texts of all references to a module version: of jobs, of
// aliases, of scripts that it interprets, and of runs that have not ended.
func (ca *Catalog) versionNamers(a *app, m *apiv1.Module) []string {
	ref := m.Name + "@" + m.Version
	names := a.jobsNaming(ref)
	for _, x := range a.aliases() {
		if x.Module == m.Name && slices.Contains(versionsOf(x), m.Version) {
			names = append(names, "alias "+job.AliasRef(x))
		}
	}
	for _, other := range ca.l.State.apps {
		for _, s := range other.slots[job.ModuleSlot].Modules {
			if s.Interpreter == m.Digest && s.CollectedAt == nil {
				names = append(names, fmt.Sprintf("script %s@%s of app %s", s.Name, s.Version, other.name))
			}
		}
	}
	live := false
	for _, s := range a.slots {
		s.RunModules(func(module string) { live = live || module == ref })
	}
	if live {
		names = append(names, "runs that have not ended")
	}
	return names
}

// Selects reports whether a bulk request selects a job.
func Selects(req *apiv1.BulkJobsRequest, name string, labels map[string]string) bool {
	if len(req.Names) > 0 && !slices.Contains(req.Names, name) {
		return false
	}
	return job.HasLabels(labels, req.Labels) && strings.HasPrefix(name, req.Prefix)
}
