package console

import (
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// shownAccess bounds the rows of the tab; the list of all bindings has the others.
const shownAccess = 200

// jobAccess has the bindings that permit something with a job. A binding holds in apps, so it is the
// same for all jobs of an app.
type jobAccess struct {
	Rows  []jobAccessRow // by principal, at most shownAccess
	Total int
	Wider bool     // bindings that the visitor may not see may hold in the app too
	Own   []string // what the visitor may do, as keys of texts
}

// jobAccessRow is a binding with what it permits.
type jobAccessRow struct {
	*apiv1.Binding
	May []string // as keys of texts
}

// deeds are what a caller can do with a job, each with its permission.
var deeds = []struct{ permission, key string }{
	{"jobs.read", "deed.read"},
	{"payload.read", "deed.payloads"},
	{"logs.read", "deed.logs"},
	{"jobs.trigger", "deed.run"},
	{"jobs.operate", "deed.operate"},
	{"jobs.write", "deed.change"},
}

// accessTab returns the bindings that permit something with the jobs of an app.
func (c *console) accessTab(v *visit) (*jobAccess, error) {
	if !c.visitor(v).May("access.read", v.app) {
		return nil, status.Errorf(codes.PermissionDenied, "the bindings of app %s take the permission access.read", v.app)
	}
	answer, err := c.access.ListBindings(v.ctx, &apiv1.ListBindingsRequest{App: v.app})
	if err != nil {
		return nil, err
	}
	roles, err := c.roles(v)
	if err != nil {
		return nil, err
	}
	permits := make(map[string][]string, len(roles)) // by role
	for _, r := range roles {
		for _, d := range deeds {
			if slices.Contains(r.Permissions, d.permission) {
				permits[r.Name] = append(permits[r.Name], d.key)
			}
		}
	}
	view := &jobAccess{Wider: !c.visitor(v).May("access.read", "")}
	now := time.Now()
	for _, b := range answer.Bindings {
		ended := b.ExpiresAt != nil && !b.ExpiresAt.AsTime().After(now)
		if ended || len(permits[b.Role]) == 0 {
			continue
		}
		if view.Total++; len(view.Rows) < shownAccess {
			view.Rows = append(view.Rows, jobAccessRow{b, permits[b.Role]})
		}
	}
	for _, d := range deeds {
		if c.visitor(v).May(d.permission, v.app) {
			view.Own = append(view.Own, d.key)
		}
	}
	return view, nil
}
