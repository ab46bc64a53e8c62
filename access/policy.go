package access

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wheelworkhq/wheelwork/job/naming"
)

// This file says which principal may do what in which app. It is pure: it knows no request and
// no storage.

// roles are the roles of people and programs by name, with their permissions. The table of
// docs/access.md is made from it.
var roles = rolesOf()

// The roles of people and programs.
const (
	RoleViewer     = "viewer"     // reads jobs and runs, without inputs, outputs and logs
	RoleOperator   = "operator"   // also triggers, cancels, retries and pauses, and reads payloads and logs
	RoleDeveloper  = "developer"  // also changes jobs and calendars, and uploads modules
	RoleMaintainer = "maintainer" // also grants, aliases, secrets and settings, and the access to its apps
	RoleAdmin      = "admin"      // everything
	RoleAuditor    = "auditor"    // reads what a viewer reads, and the audit log
	RoleDeployer   = "deployer"   // a program that applies documents and uploads modules
	RoleProducer   = "producer"   // a program that creates, changes, deletes and triggers jobs
	RoleScraper    = "scraper"    // a program that reads metrics
)

func rolesOf() map[string][]string {
	viewer := []string{"jobs.read", "runs.read", "modules.read", "revisions.read", "cluster.read", "queues.read", "secrets.read", "alerts.read"}
	operator := append(slices.Clone(viewer), "payload.read", "logs.read", "kv.read", "jobs.trigger", "jobs.operate", "queues.operate", "alerts.operate")
	developer := append(slices.Clone(operator), "jobs.write", "definitions.write", "modules.write", "kv.write", "alerts.write", "channels.read")
	maintainer := append(slices.Clone(developer), "aliases.write", "grants.write", "secrets.write", "channels.write", "apps.write", "access.read", "access.write", "audit.read")
	return map[string][]string{
		RoleViewer:     viewer,
		RoleOperator:   operator,
		RoleDeveloper:  developer,
		RoleMaintainer: maintainer,
		RoleAdmin:      append(slices.Clone(maintainer), "cluster.operate", "cluster.backup", "metrics.read"),
		RoleAuditor:    append(slices.Clone(viewer), "access.read", "audit.read"),
		RoleDeployer:   append(slices.Clone(viewer), "jobs.write", "definitions.write", "modules.write", "alerts.write", "channels.read"),
		RoleProducer:   {"jobs.read", "runs.read", "jobs.write", "jobs.trigger"},
		RoleScraper:    {"metrics.read"},
	}
}

// roleOrder has the roles in the order in which lists show them: those of people, from the weakest to the
// strongest, an auditor, and those of programs.
var roleOrder = []string{RoleViewer, RoleOperator, RoleDeveloper, RoleMaintainer, RoleAdmin, RoleAuditor, RoleDeployer, RoleProducer, RoleScraper}

// RoleNames returns the names of the roles of people and programs, sorted.
func RoleNames() []string {
	var names []string
	for name := range roles {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Scope says for which apps a binding holds. Exactly one field is set.
type Scope struct {
	Cluster bool   // every app, and what belongs to no app
	App     string // one app
	Prefix  string // every app whose name begins with it
}

// Covers reports whether the scope has an app. "" is what belongs to no app.
func (s Scope) Covers(app string) bool {
	switch {
	case s.Cluster:
		return true
	case app == "":
		return false
	case s.App != "":
		return s.App == app
	}
	return s.Prefix != "" && strings.HasPrefix(app, s.Prefix)
}

// Has reports whether every app of another scope is in this one.
func (s Scope) Has(other Scope) bool {
	switch {
	case s.Cluster:
		return true
	case other.Cluster:
		return false
	case other.App != "":
		return s.Covers(other.App)
	}
	return other.Prefix != "" && s.Prefix != "" && strings.HasPrefix(other.Prefix, s.Prefix)
}

// The texts of scopes, see [ParseScope].
const (
	clusterScope = "cluster"
	appScope     = "app:"
	prefixScope  = "app-prefix:"
)

// String returns the text of the scope, which [ParseScope] reads.
func (s Scope) String() string {
	switch {
	case s.Cluster:
		return clusterScope
	case s.App != "":
		return appScope + s.App
	}
	return prefixScope + s.Prefix
}

// ParseScope reads "cluster", "app:NAME" or "app-prefix:PREFIX".
func ParseScope(text string) (Scope, error) {
	if text == clusterScope {
		return Scope{Cluster: true}, nil
	}
	if app, ok := strings.CutPrefix(text, appScope); ok {
		return Scope{App: app}, naming.Check("the app of the scope", app)
	}
	if prefix, ok := strings.CutPrefix(text, prefixScope); ok {
		return Scope{Prefix: prefix}, naming.Check("the prefix of the scope", prefix)
	}
	return Scope{}, fmt.Errorf("the scope is %.40q, want %s, %sNAME or %sPREFIX", text, clusterScope, appScope, prefixScope)
}

// Binding gives a principal a role in a scope.
type Binding struct {
	Role    string
	Scope   Scope
	Expires time.Time // zero: never
}

// May reports whether the binding gives a permission in an app now.
func (b Binding) May(permission, app string, now time.Time) bool {
	return b.holds(now) && b.Scope.Covers(app) && slices.Contains(roles[b.Role], permission)
}

func (b Binding) holds(now time.Time) bool { return b.Expires.IsZero() || now.Before(b.Expires) }

// Bindings are those of one principal.
type Bindings []Binding

// May reports whether a binding gives a permission in an app now. An app of "" is what belongs
// to no app.
func (all Bindings) May(permission, app string, now time.Time) bool {
	return slices.ContainsFunc(all, func(b Binding) bool { return b.May(permission, app, now) })
}

// MayAnywhere reports whether a binding gives a permission in any scope now.
func (all Bindings) MayAnywhere(permission string, now time.Time) bool {
	return slices.ContainsFunc(all, func(b Binding) bool { return b.holds(now) && slices.Contains(roles[b.Role], permission) })
}

// MaySee reports whether a binding gives a permission in a whole scope now.
func (all Bindings) MaySee(permission string, in Scope, now time.Time) bool {
	return slices.ContainsFunc(all, func(b Binding) bool {
		return b.holds(now) && b.Scope.Has(in) && slices.Contains(roles[b.Role], permission)
	})
}

// MayGive reports whether the principal may give another one a binding: it may change the access
// to the whole scope, and has each permission of the role in all of it. The new binding must
// not outlast the one by which it is given.
func (all Bindings) MayGive(b Binding, now time.Time) bool {
	return slices.ContainsFunc(all, func(own Binding) bool {
		lasts := own.Expires.IsZero() || !b.Expires.IsZero() && !b.Expires.After(own.Expires)
		return lasts && own.above(b, now)
	})
}

// upTo returns the expiry of a binding, or an earlier one until which the principal may give it.
func (all Bindings) upTo(b Binding, now time.Time) time.Time {
	var last time.Time
	for _, own := range all {
		if own.above(b, now) {
			if own.Expires.IsZero() || !own.Expires.Before(b.Expires) {
				return b.Expires
			}
			if own.Expires.After(last) {
				last = own.Expires
			}
		}
	}
	if last.IsZero() {
		return b.Expires // the principal may not give it at all
	}
	return last
}

// MayTake reports whether the principal may remove a binding of another one. Its expiry does
// not matter.
func (all Bindings) MayTake(b Binding, now time.Time) bool {
	return slices.ContainsFunc(all, func(own Binding) bool { return own.above(b, now) })
}

// above reports whether the binding gives the permission access.write in the whole scope of another
// one, and each permission of its role. A role that this version does not know has no permissions here and may
// have some elsewhere: only what the cluster's administrator has is above it.
func (b Binding) above(other Binding, now time.Time) bool {
	given, known := roles[other.Role]
	if !known {
		return b.holds(now) && b.Role == RoleAdmin && b.Scope.Cluster
	}
	return b.holds(now) && b.Scope.Has(other.Scope) && slices.Contains(roles[b.Role], "access.write") &&
		!slices.ContainsFunc(given, func(permission string) bool { return !slices.Contains(roles[b.Role], permission) })
}

// givers returns the roles that have a permission, the least first.
func givers(permission string) []string {
	var names []string
	for name, has := range roles {
		if slices.Contains(has, permission) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(len(roles[a])-len(roles[b]), cmp.Compare(a, b)) })
	return names
}
