package console

import (
	"slices"
	"strings"
	"sync"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/naming"
)

// visitorLife is how long a session uses the roles of its visitor that it fetched. The API checks
// each call by itself: the roles only decide what a page offers.
const visitorLife = 2 * time.Second

// visitors is the visitor of a session, as the API knew it last.
type visitors struct {
	mu    sync.Mutex
	who   *apiv1.Principal
	until time.Time
}

// visitor returns the visitor's name and roles. If the API does not tell, nothing is known, and a
// page offers everything.
func (c *console) visitor(v *visit) visitor {
	s := &v.session.visitors
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().After(s.until) {
		s.until = time.Now().Add(visitorLife)
		if who, err := c.access.WhoAmI(v.ctx, &apiv1.WhoAmIRequest{}); err == nil {
			s.who = who
		}
	}
	return visitor{s.who}
}

// visitor is a person, or a program, that uses the console.
type visitor struct{ who *apiv1.Principal }

// Name returns the name of the visitor; "": not known.
func (x visitor) Name() string { return x.who.GetPrincipal() }

// session returns the id of the session of a user that has signed in with a password; "": the visitor
// has a token.
func (x visitor) session() string {
	if id := x.who.GetToken(); strings.HasPrefix(id, "ses-") {
		return id
	}
	return ""
}

// Roles returns the roles with their scopes, as one text.
func (x visitor) Roles() string {
	var all []string
	for _, b := range x.who.GetBindings() {
		all = append(all, b.Role+" · "+b.Scope)
	}
	return strings.Join(all, ", ")
}

// covers reports whether the visitor has a role in an app; "" is the cluster.
func (x visitor) covers(app string) bool {
	return x.who == nil || slices.ContainsFunc(x.who.Bindings, func(b *apiv1.Binding) bool { return scopeHas(b.Scope, scopeOf(app)) })
}

// May reports whether a page offers what takes a permission in an app; an app of "" is what belongs to
// no app.
func (x visitor) May(permission, app string) bool { return x.MayIn(permission, scopeOf(app)) }

// MayIn reports whether a page offers what takes a permission in a whole scope.
func (x visitor) MayIn(permission, scope string) bool {
	return x.has(permission, func(own string) bool { return scopeHas(own, scope) })
}

// Somewhere reports whether a page offers what takes a permission in some scope.
func (x visitor) Somewhere(permission string) bool {
	return x.has(permission, func(string) bool { return true })
}

// has reports whether a binding with a certain scope gives a permission. A binding whose permissions the
// API does not tell gives each, and the API decides.
func (x visitor) has(permission string, in func(scope string) bool) bool {
	return x.who == nil || slices.ContainsFunc(x.who.Bindings, func(b *apiv1.Binding) bool {
		return in(b.Scope) && (len(b.Permissions) == 0 || slices.Contains(b.Permissions, permission))
	})
}

// scopeOf returns the scope of an app; "" is the cluster.
func scopeOf(app string) string {
	if app == "" {
		return "cluster"
	}
	return "app:" + app
}

// scopeHas reports whether a scope contains all of another one.
func scopeHas(own, other string) bool {
	if own == "cluster" {
		return true
	}
	prefix, prefixed := strings.CutPrefix(own, "app-prefix:")
	if !prefixed {
		return strings.HasPrefix(own, "app:") && own == other
	}
	for _, kind := range []string{"app:", "app-prefix:"} {
		if name, ok := strings.CutPrefix(other, kind); ok {
			return strings.HasPrefix(name, prefix)
		}
	}
	return false
}

// home returns the app that the visitor sees first: the default one, or the first of those in which it
// has a role.
func (c *console) home(v *visit) string {
	x := c.visitor(v)
	if x.covers(naming.DefaultApp) {
		return naming.DefaultApp
	}
	if answer, err := c.apps.ListApps(v.ctx, &apiv1.ListAppsRequest{}); err == nil && len(answer.Apps) > 0 {
		return answer.Apps[0].Name
	}
	for _, b := range x.who.GetBindings() {
		if app, ok := strings.CutPrefix(b.Scope, "app:"); ok {
			return app // nothing is in it yet
		}
	}
	return naming.DefaultApp
}
