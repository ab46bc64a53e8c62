package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/job/naming"
)

// visit is one request of a signed-in browser.
type visit struct {
	w       http.ResponseWriter
	r       *http.Request
	ctx     context.Context // the request's context, with the session's token for the API
	session *session
	app     string // from the path, or from the parameter app on pages without one; otherwise the default app
}

// signedIn serves a page only to browsers with a session.
func (c *console) signedIn(page func(*visit) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s := c.sessionOf(r)
		if s == nil && c.enter(w, r) {
			return
		}
		if s == nil && r.Method == http.MethodPost {
			c.keepForLogin(w, r)
			return
		}
		if s == nil {
			c.toLogin(w, r)
			return
		}
		if byPerson(r) {
			if end, renewed := c.sessions.renew(s); renewed {
				c.setCookie(w, c.cookieName(), s.id, time.Until(end))
			}
		}
		v := &visit{w: w, r: r, ctx: c.withToken(r, s.token), session: s, app: r.PathValue("app")}
		if app := r.URL.Query().Get("app"); v.app == "" && naming.Valid(app) {
			v.app = app // a page of all apps, or a short address
		}
		v.app = cmp.Or(v.app, naming.DefaultApp)
		if err := page(v); err != nil {
			c.fail(v, err)
		}
	}
}

// byPerson reports whether a person made a request, and not a page that refreshes itself.
func byPerson(r *http.Request) bool {
	return r.Header.Get("HX-Request") == "" && !strings.HasSuffix(r.URL.Path, "/events")
}

// toLogin redirects a browser to the login page, and back afterwards. For a fragment that
// htmx fetched, the whole page is redirected; otherwise the fragment would show the login
// page.
func (c *console) toLogin(w http.ResponseWriter, r *http.Request) {
	to := "/login"
	if r.Method == http.MethodGet && r.URL.Path != "/" && !strings.HasSuffix(r.URL.Path, "/events") {
		to += "?next=" + url.QueryEscape(r.URL.RequestURI())
	}
	switch {
	case r.Header.Get("HX-Request") != "":
		w.Header().Set("HX-Redirect", to)
		w.WriteHeader(http.StatusUnauthorized)
	case strings.HasSuffix(r.URL.Path, "/events"): // an EventSource stops on 401 and would follow a redirect
		http.Error(w, "sign in first", http.StatusUnauthorized)
	default:
		http.Redirect(w, r, to, http.StatusSeeOther)
	}
}

// keepForLogin answers a form without a session with the login page, which holds it.
func (c *console) keepForLogin(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/logout" {
		http.Redirect(w, r, "/login", http.StatusSeeOther)
		return
	}
	next, form, why := c.formPage(r), "", "login.secret"
	if !hasSecret(r) {
		form, why = c.keepForm(r), "login.expired"
		if form == "" {
			why = "login.lost"
		}
	}
	c.renderLogin(w, r, http.StatusUnauthorized, loginView{Error: why, Next: next, Form: form})
}

func (v *visit) redirect(to string) { http.Redirect(v.w, v.r, to, http.StatusSeeOther) }

// href joins segments to an address and escapes each of them.
func href(segments ...string) string {
	var b strings.Builder
	for _, s := range segments {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(s))
	}
	return b.String()
}

// toApp redirects a short address: /jobs/x?app=y goes to /apps/y/jobs/x.
func (c *console) toApp(section string, wildcards ...string) func(*visit) error {
	return func(v *visit) error {
		q := v.r.URL.Query()
		q.Del("app")
		app := v.app
		if v.r.URL.Path == "/" && v.r.URL.Query().Get("app") == "" {
			app = c.home(v)
		}
		segments := []string{"apps", app}
		if section != "" {
			segments = append(segments, section)
		}
		for _, w := range wildcards {
			segments = append(segments, v.r.PathValue(w))
		}
		to := href(segments...)
		if len(q) > 0 {
			to += "?" + q.Encode()
		}
		v.redirect(to)
		return nil
	}
}

func (c *console) nothingHere(*visit) error {
	return status.Error(codes.NotFound, "there is no such page")
}

type failureView struct {
	Code    int
	Message string   // the API's sentence
	Apps    []string // the apps that exist; empty: the page has no list of them
	Section string   // of the links to these apps
	List    string   // the app's list to which the page belongs: jobs, runs, …; empty: none
	Job     string   // name of a deleted job, whose history stays; empty: none
}

// listOf returns the app's list to which a page belongs, from the page's path: "jobs" for
// /apps/default/jobs/totals. It is empty for a list itself and for other pages.
func listOf(path string) string {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if len(parts) > 3 && parts[0] == "apps" && slices.Contains([]string{"jobs", "runs", "alerts", "calendars", "modules", "secrets", "values"}, parts[2]) {
		return parts[2]
	}
	return ""
}

// fail shows the error of a page as a page. If the API no longer accepts the token, it
// ends the session.
func (c *console) fail(v *visit, err error) {
	if errors.Is(err, context.Canceled) && v.r.Context().Err() != nil {
		return // the browser has disconnected
	}
	s := status.Convert(err)
	if s.Code() == codes.Unauthenticated {
		if err := c.sessions.remove(v.session.key); err != nil {
			c.log.ErrorContext(v.ctx, "an ended session cannot be removed from the storage", "error", err)
		}
		c.toLogin(v.w, v.r)
		return
	}
	code := httpStatus(s)
	if code >= http.StatusInternalServerError {
		c.log.ErrorContext(v.ctx, "console page failed", "path", v.r.URL.Path, "error", err)
	}
	view := failureView{Code: code, Message: s.Message(), List: listOf(v.r.URL.Path)}
	if v.r.Pattern == jobPattern && code == http.StatusNotFound {
		if _, err := c.newestRevision(v); err == nil {
			view.Job = v.r.PathValue("name")
		}
	}
	f := c.frameOf(v, "", view)
	if f.unknown && code == http.StatusNotFound {
		c.showUnknown(v, f)
		return
	}
	c.render(v.w, v.r, code, "failure", f)
}

// show renders a page for a visit.
func (c *console) show(v *visit, name, section string, data any) error {
	return c.showStatus(v, http.StatusOK, name, section, data)
}

func (c *console) showStatus(v *visit, code int, name, section string, data any) error {
	f := c.frameOf(v, section, data)
	if f.unknown && v.r.Method == http.MethodGet {
		c.showUnknown(v, f)
		return nil
	}
	c.render(v.w, v.r, code, name, f)
	return nil
}
