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

// Everywhere reports whether the visitor has a role in the cluster.
func (x visitor) Everywhere() bool { return x.covers("") }

// covers reports whether the visitor has a role in an app; "" is the cluster.
func (x visitor) covers(app string) bool {
	return x.who == nil || slices.ContainsFunc(x.who.Bindings, func(b *apiv1.Binding) bool {
		prefix, prefixed := strings.CutPrefix(b.Scope, "app-prefix:")
		return b.Scope == "cluster" || app != "" && (b.Scope == "app:"+app || prefixed && strings.HasPrefix(app, prefix))
	})
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
