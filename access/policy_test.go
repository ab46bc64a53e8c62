package access

import (
	"testing"
	"time"
)

var now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// TestScopes compares scopes with apps and with each other.
func TestScopes(t *testing.T) {
	cluster, shop, prefix, empty := Scope{Cluster: true}, Scope{App: "shop"}, Scope{Prefix: "shop-"}, Scope{}
	for _, tt := range []struct {
		scope Scope
		app   string
		want  bool
	}{
		{cluster, "shop", true},
		{cluster, "", true},
		{shop, "shop", true},
		{shop, "shop-1", false},
		{shop, "", false},
		{prefix, "shop-1", true},
		{prefix, "shop", false},
		{prefix, "", false},
		{empty, "shop", false},
		{empty, "", false},
	} {
		if got := tt.scope.Covers(tt.app); got != tt.want {
			t.Errorf("%v covers %q: %t", tt.scope, tt.app, got)
		}
	}
	for _, tt := range []struct {
		scope, other Scope
		want         bool
	}{
		{cluster, shop, true},
		{cluster, cluster, true},
		{cluster, prefix, true},
		{shop, shop, true},
		{shop, cluster, false},
		{shop, Scope{App: "bank"}, false},
		{shop, prefix, false},
		{prefix, Scope{App: "shop-1"}, true},
		{prefix, shop, false},
		{prefix, Scope{Prefix: "shop-eu-"}, true},
		{prefix, Scope{Prefix: "sh"}, false},
		{prefix, cluster, false},
		{prefix, empty, false},
		{empty, empty, false},
		{empty, shop, false},
	} {
		if got := tt.scope.Has(tt.other); got != tt.want {
			t.Errorf("%v has %v: %t", tt.scope, tt.other, got)
		}
	}
}

// TestBindings checks that a permission holds in the scope of its binding alone and until it
// expires.
func TestBindings(t *testing.T) {
	all := Bindings{
		{Role: RoleViewer, Scope: Scope{Prefix: "shop-"}},
		{Role: RoleOperator, Scope: Scope{App: "shop-1"}, Expires: now.Add(time.Hour)},
		{Role: "no such role", Scope: Scope{Cluster: true}},
	}
	for _, tt := range []struct {
		permission, app string
		at              time.Time
		want            bool
	}{
		{"jobs.read", "shop-2", now, true},
		{"jobs.read", "bank", now, false},
		{"jobs.read", "", now, false},
		{"payload.read", "shop-2", now, false},
		{"payload.read", "shop-1", now, true},
		{"jobs.operate", "shop-1", now, true},
		{"jobs.operate", "shop-1", now.Add(time.Hour), false},
		{"jobs.read", "shop-1", now.Add(time.Hour), true},
		{"jobs.write", "shop-1", now, false},
		{"", "shop-1", now, false},
	} {
		if got := all.May(tt.permission, tt.app, tt.at); got != tt.want {
			t.Errorf("%q in %q at %v: %t", tt.permission, tt.app, tt.at, got)
		}
	}
	if !all.MayAnywhere("jobs.operate", now) || all.MayAnywhere("jobs.operate", now.Add(time.Hour)) || all.MayAnywhere("jobs.write", now) {
		t.Error("permissions in some app")
	}
	if !all.MaySee("jobs.read", Scope{App: "shop-3"}, now) || all.MaySee("jobs.read", Scope{Cluster: true}, now) || all.MaySee("jobs.read", Scope{Prefix: "shop"}, now) {
		t.Error("permissions in a whole scope")
	}
}

// TestGiving checks that a principal gives at most its own permissions, in its own scope and
// for its own time.
func TestGiving(t *testing.T) {
	soon := now.Add(time.Hour)
	app, other := Scope{App: "shop"}, Scope{App: "bank"}
	maintainer := Bindings{{Role: RoleMaintainer, Scope: app}}
	for _, tt := range []struct {
		what string
		by   Bindings
		give Binding
		want bool
	}{
		{"its own role", maintainer, Binding{Role: RoleMaintainer, Scope: app}, true},
		{"a lower role", maintainer, Binding{Role: RoleProducer, Scope: app}, true},
		{"a higher role", maintainer, Binding{Role: RoleAdmin, Scope: app}, false},
		{"a role with another permission", maintainer, Binding{Role: RoleScraper, Scope: app}, false},
		{"another app", maintainer, Binding{Role: RoleViewer, Scope: other}, false},
		{"the cluster", maintainer, Binding{Role: RoleViewer, Scope: Scope{Cluster: true}}, false},
		{"an unknown role", maintainer, Binding{Role: "root", Scope: app}, false},
		{"a developer", Bindings{{Role: RoleDeveloper, Scope: app}}, Binding{Role: RoleViewer, Scope: app}, false},
		{"two bindings together", Bindings{{Role: RoleMaintainer, Scope: other}, {Role: RoleDeveloper, Scope: app}}, Binding{Role: RoleViewer, Scope: app}, false},
		{"an expired binding", Bindings{{Role: RoleMaintainer, Scope: app, Expires: now}}, Binding{Role: RoleViewer, Scope: app, Expires: now}, false},
		{"longer than its own", Bindings{{Role: RoleMaintainer, Scope: app, Expires: soon}}, Binding{Role: RoleViewer, Scope: app}, false},
		{"as long as its own", Bindings{{Role: RoleMaintainer, Scope: app, Expires: soon}}, Binding{Role: RoleViewer, Scope: app, Expires: soon}, true},
		{"an admin", Bindings{{Role: RoleAdmin, Scope: Scope{Cluster: true}}}, Binding{Role: RoleAdmin, Scope: Scope{Cluster: true}}, true},
	} {
		if got := tt.by.MayGive(tt.give, now); got != tt.want {
			t.Errorf("%s: %t", tt.what, got)
		}
	}
}

// TestTaking checks that the expiry of a binding does not keep it from being removed, and that
// only the administrator of the cluster removes a role that this version does not know.
func TestTaking(t *testing.T) {
	shop, cluster := Scope{App: "shop"}, Scope{Cluster: true}
	maintainer, admin := Bindings{{Role: RoleMaintainer, Scope: shop, Expires: now.Add(time.Hour)}}, Bindings{{Role: RoleAdmin, Scope: cluster}}
	for _, tt := range []struct {
		by   Bindings
		take Binding
		want bool
	}{
		{maintainer, Binding{Role: RoleViewer, Scope: shop}, true},
		{maintainer, Binding{Role: RoleAdmin, Scope: shop}, false},
		{maintainer, Binding{Role: "of a newer version", Scope: shop}, false},
		{Bindings{{Role: RoleAdmin, Scope: shop}}, Binding{Role: "of a newer version", Scope: shop}, false},
		{admin, Binding{Role: "of a newer version", Scope: shop}, true},
	} {
		if got := tt.by.MayTake(tt.take, now); got != tt.want {
			t.Errorf("%v takes %v: %t", tt.by, tt.take, got)
		}
	}
}

// TestScopeText reads the texts of scopes, and refuses others.
func TestScopeText(t *testing.T) {
	for _, s := range []Scope{{Cluster: true}, {App: "shop"}, {Prefix: "shop-"}} {
		if got, err := ParseScope(s.String()); err != nil || got != s {
			t.Errorf("%v: %v, %v", s, got, err)
		}
	}
	for _, text := range []string{"", "app:", "app-prefix:", "app:*", "app-prefix:shop-*", "Cluster", "shop", "app:a/b", "app:a b"} {
		if s, err := ParseScope(text); err == nil {
			t.Errorf("%q was read as %v", text, s)
		}
	}
}

// TestRolesNest checks that the roles of people contain each other, and that a role that reads
// cannot write.
func TestRolesNest(t *testing.T) {
	has := func(role, permission string) bool {
		return Binding{Role: role, Scope: Scope{Cluster: true}}.May(permission, "a", now)
	}
	ladder := []string{RoleViewer, RoleOperator, RoleDeveloper, RoleMaintainer, RoleAdmin}
	for i, role := range ladder[1:] {
		for _, permission := range roles[ladder[i]] {
			if !has(role, permission) {
				t.Errorf("%s lacks %s of %s", role, permission, ladder[i])
			}
		}
	}
	for _, role := range []string{RoleViewer, RoleAuditor, RoleScraper} {
		for _, permission := range roles[role] {
			if len(permission) < 5 || permission[len(permission)-5:] != ".read" {
				t.Errorf("%s has %s", role, permission)
			}
		}
	}
	for role, without := range map[string][]string{
		RoleViewer: {"payload.read", "logs.read", "audit.read"}, RoleProducer: {"secrets.write", "modules.write", "grants.write", "jobs.operate", "payload.read"},
		RoleDeployer: {"payload.read", "logs.read", "jobs.trigger", "grants.write", "secrets.write", "audit.read"}, RoleMaintainer: {"cluster.operate", "cluster.backup"},
		RoleAuditor: {"payload.read", "logs.read"}, RoleScraper: {"jobs.read"},
	} {
		for _, permission := range without {
			if has(role, permission) {
				t.Errorf("%s has %s", role, permission)
			}
		}
	}
}
