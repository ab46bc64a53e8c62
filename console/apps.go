package console

import (
	"net/http"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/naming"
)

// maxApps bounds the apps that a page lists from which the visitor chooses one.
const maxApps = 500

// sections are the pages among which a switch of the app stays. The sections of global have
// addresses without an app, because their contents belong to all apps.
var (
	sections = []string{"overview", "jobs", "runs", "errors", "alerts", "schedules", "calendars", "modules", "secrets", "values"}
	global   = map[string]string{"apps": "/apps", "operations": "/operations", "hosts": "/hosts", "cluster": "/cluster", "health": "/health", "queues": "/queues", "deadletters": "/dead-letters", "access": "/access/users", "audit": "/audit"}
)

// sectionAddress returns the page of a section for an app.
func sectionAddress(app, section string) string {
	if path, ok := global[section]; ok {
		return inApp(path, app)
	}
	if section == "overview" || !slices.Contains(sections, section) {
		return href("apps", app)
	}
	return href("apps", app, section)
}

// inApp adds the app to an address that does not contain it, so that the navigation keeps
// it. The default app needs no parameter.
func inApp(address, app string, pairs ...string) string {
	if app == naming.DefaultApp {
		app = ""
	}
	return withQuery(address, append([]string{"app", app}, pairs...)...)
}

// switchApp redirects /apps?app=APP&section=SECTION, an address that changes the app.
func (c *console) switchApp(v *visit) error {
	v.redirect(sectionAddress(v.app, v.r.URL.Query().Get("section")))
	return nil
}

// appNames returns the names of the apps that the visitor sees, and whether the app of the visit is
// one of them. The default app is one of them if the visitor has a role in it. When the API does
// not list apps, for example because it refuses the token, every app counts as known, and the API
// decides.
func (c *console) appNames(v *visit) (names []string, known bool) {
	if v.r.Header.Get("HX-Request") != "" {
		return []string{v.app}, true // a refresh shows no navigation
	}
	answer, err := c.apps.ListApps(v.ctx, &apiv1.ListAppsRequest{})
	known = err != nil || v.app == naming.DefaultApp
	for _, a := range answer.GetApps() {
		names = append(names, a.Name)
		known = known || a.Name == v.app
	}
	names = names[:min(len(names), maxApps)]
	if !slices.Contains(names, naming.DefaultApp) && c.visitor(v).covers(naming.DefaultApp) {
		names = append([]string{naming.DefaultApp}, names...)
	}
	if known && !slices.Contains(names, v.app) {
		names = append(names, v.app)
	}
	return names, known
}

// unknownApp is the error of a page of an app that does not exist.
func unknownApp(app string) error {
	return status.Errorf(codes.NotFound, "there is no app %q: an app exists when a job, a calendar or a module is in it, or after wheelwork app set", app)
}

// frameOf returns the layout's data of a page.
func (c *console) frameOf(v *visit, section string, data any) frame {
	names, known := c.appNames(v)
	return frame{App: v.app, Apps: names, unknown: !known, hosts: sync.OnceValue(func() map[string]string { return c.hostNames(v) }), Session: true, Visitor: c.visitor(v), Section: section, Data: data}
}

// showUnknown shows the failure page of an app that does not exist, in a frame of the
// default app.
func (c *console) showUnknown(v *visit, f frame) {
	err := status.Convert(unknownApp(v.app))
	f.App = naming.DefaultApp
	f.Data = failureView{Code: http.StatusNotFound, Message: err.Message(), Apps: f.Apps, Section: f.Section}
	c.render(v.w, v.r, http.StatusNotFound, "failure", f)
}
