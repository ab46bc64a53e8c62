package console

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/schedule/cron"
)

// maxForm bounds the bodies of routes without a limit of their own: forms with texts.
const maxForm = 256 << 10

// forClient returns a context whose calls name the client of a request.
func (c *console) forClient(r *http.Request) context.Context {
	return metadata.AppendToOutgoingContext(r.Context(), clientHeader, c.address(r).String())
}

// withToken returns a context whose calls carry the token, and the address of the client.
func (c *console) withToken(r *http.Request, token string) context.Context {
	return metadata.AppendToOutgoingContext(r.Context(), "authorization", "Bearer "+token, "wheelwork-cause", "console", clientHeader, c.address(r).String())
}

// clientHeader is [access.ClientHeader].
const clientHeader = "wheelwork-client"

type loginView struct {
	Error string // a key of the catalogue, "" for none
	Cause string // the API's message when it could not respond
	Next  string
	Form  string // a form to be sent after the login, as JSON; "": none
	// User is the name of the user that has tried to sign in, and Replace says that its password must
	// be replaced.
	User    string
	Replace bool
	Left    bool // the visitor has signed out, and may still be signed in at the provider or the proxy
}

// loginPage shows the form, or accepts the code of a link that `wheelwork dev` printed.
// The redirect afterwards removes the code from the address bar.
func (c *console) loginPage(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if code := q.Get("code"); code != "" {
		c.signInWithCode(w, r, code, q.Get("next"))
		return
	}
	if c.sessionOf(r) != nil {
		http.Redirect(w, r, localPath(q.Get("next")), http.StatusSeeOther)
		return
	}
	c.renderLogin(w, r, http.StatusOK, loginView{Next: q.Get("next"), Left: c.provider != nil && q.Has("left")})
}

func (c *console) signInWithCode(w http.ResponseWriter, r *http.Request, code, next string) {
	if !chosen(r) {
		c.renderLogin(w, r, http.StatusForbidden, loginView{Error: "login.elsewhere", Next: next})
		return
	}
	from := c.address(r)
	if wait := c.attempts.take(from); wait > 0 {
		c.tooManyLogins(w, r, wait, loginView{Next: next})
		return
	}
	token, ok := c.codes.take(code)
	if ok || c.sessionOf(r) != nil {
		c.attempts.giveBack(from)
	}
	switch {
	case ok:
		c.signIn(w, r, token, loginView{Next: next})
	case c.sessionOf(r) != nil: // a signed-in visitor opened a used link again
		http.Redirect(w, r, localPath(next), http.StatusSeeOther)
	default:
		c.renderLogin(w, r, http.StatusUnauthorized, loginView{Error: "login.code", Next: next})
	}
}

func (c *console) login(w http.ResponseWriter, r *http.Request) {
	view := loginView{Next: r.PostFormValue("next"), Form: r.PostFormValue("form"), User: strings.TrimSpace(r.PostFormValue("user"))}
	if view.User == "" {
		c.signIn(w, r, r.PostFormValue("token"), view)
		return
	}
	if token, ok := c.passwordSignIn(w, r, view); ok {
		c.signIn(w, r, token, view)
	}
}

// passwordSignIn signs a user in, and returns the token of its session. Otherwise it shows the form
// again.
func (c *console) passwordSignIn(w http.ResponseWriter, r *http.Request, view loginView) (token string, ok bool) {
	from := c.address(r)
	if wait := c.attempts.take(from); wait > 0 {
		c.tooManyLogins(w, r, wait, view)
		return "", false
	}
	resp, err := c.access.SignIn(c.forClient(r), &apiv1.SignInRequest{Name: view.User, Password: r.PostFormValue("token"), NewPassword: r.PostFormValue("fresh"), Program: "console"})
	if status.Code(err) != codes.Unauthenticated {
		c.attempts.giveBack(from)
	}
	code := http.StatusUnauthorized
	switch status.Code(err) {
	case codes.OK:
		return resp.Token, true
	case codes.FailedPrecondition:
		view.Error, view.Replace = "login.replace", true
	case codes.Unavailable:
		code, view.Error, view.Cause = http.StatusServiceUnavailable, "login.unavailable", status.Convert(err).Message()
	default:
		view.Error, view.Cause = "login.refused", status.Convert(err).Message()
		view.Replace = r.PostFormValue("fresh") != ""
	}
	c.renderLogin(w, r, code, view)
	return "", false
}

// signIn starts a session. view has where to go then; after a refusal it is shown again.
func (c *console) signIn(w http.ResponseWriter, r *http.Request, token string, view loginView) {
	refuse := func(code int, why, cause string) {
		view.Error, view.Cause = why, cause
		c.renderLogin(w, r, code, view)
	}
	token = strings.TrimSpace(token)
	from := c.address(r)
	if wait := c.attempts.take(from); wait > 0 {
		c.tooManyLogins(w, r, wait, view)
		return
	}
	who, err := c.access.WhoAmI(c.withToken(r, token), &apiv1.WhoAmIRequest{})
	if !wrong(token, err) {
		c.attempts.giveBack(from)
	}
	switch code := status.Code(err); {
	case wrong(token, err):
		refuse(http.StatusUnauthorized, "login.wrong", "")
	case code == codes.OK && len(who.Permissions) == 0 && who.Kind == "user":
		if who.Token != "" { // of the session that has just begun, and is of no use
			if _, err := c.access.EndSession(c.withToken(r, token), &apiv1.EndSessionRequest{Id: who.Token}); err != nil {
				c.log.WarnContext(r.Context(), "the session of a user without a role goes on until it expires", "session", who.Token, "error", err)
			}
		}
		refuse(http.StatusForbidden, "login.norole", who.Principal)
	case code == codes.OK && !slices.Contains(who.Permissions, "jobs.read"): // a worker's token, for example: it may not read any page
		refuse(http.StatusForbidden, "login.unreadable", "")
	case code == codes.OK: // the API checks the permissions of each page
		proxied := ""
		if by, _, err := c.visitorOf(r); by != nil && err == nil {
			proxied = by.identity()
		}
		s := c.sessions.add(token, proxied)
		if s == nil {
			refuse(http.StatusServiceUnavailable, "login.full", "")
			return
		}
		if c.signed != nil {
			c.signed(token, from)
		}
		c.setCookie(w, c.cookieName(), s.id, sessionLife)
		if form, ok := readKept(view.Form); ok {
			c.render(w, r, http.StatusOK, "resume", frame{Data: form})
			return
		}
		http.Redirect(w, r, localPath(view.Next), http.StatusSeeOther)
	default:
		refuse(http.StatusServiceUnavailable, "login.unavailable", status.Convert(err).Message())
	}
}

// wrong reports whether the API refused a token as such.
func wrong(token string, err error) bool {
	return !printable(token) || status.Code(err) == codes.Unauthenticated
}

// tooManyLogins refuses a sign-in before anything is checked.
func (c *console) tooManyLogins(w http.ResponseWriter, r *http.Request, wait time.Duration, view loginView) {
	seconds := int((wait + time.Second - 1) / time.Second)
	w.Header().Set("Retry-After", strconv.Itoa(seconds))
	view.Error = cmp.Or(view.Error, "login.often")
	c.renderLogin(w, r, http.StatusTooManyRequests, view)
}

// printable reports whether a token is valid gRPC metadata.
func printable(token string) bool {
	return token != "" && !strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' })
}

func (c *console) renderLogin(w http.ResponseWriter, r *http.Request, code int, v loginView) {
	data := struct {
		loginView
		Provider string // its title; "": there is none
		Proxied  bool   // the proxy signs the visitor in, and nothing else does
	}{loginView: v}
	_, data.Proxied, _ = c.visitorOf(r)
	if c.provider != nil && !data.Proxied {
		data.Provider = c.provider.Title
	}
	c.render(w, r, code, "login", frame{Data: data})
}

func (c *console) logout(v *visit) error {
	x := c.visitor(v)
	federated := c.provider != nil && x.who.GetProvider() != ""
	if id := x.session(); id != "" {
		if _, err := c.access.EndSession(v.ctx, &apiv1.EndSessionRequest{Id: id}); err != nil && status.Code(err) != codes.Unauthenticated {
			return err
		}
	}
	c.setCookie(v.w, c.cookieName(), "", -time.Second)
	if err := c.sessions.remove(v.session.key); err != nil {
		return status.Errorf(codes.Internal, "you are signed out, but the server could not record it, and a restart may bring the session back: change the token, or sign out again after the restart: %v", err)
	}
	_, proxied, _ := c.visitorOf(v.r)
	if federated || proxied {
		v.redirect("/login?left=1")
		return nil
	}
	v.redirect("/login")
	return nil
}

// preferences stores language, theme and zone. It needs no session, because the login page has
// the same switches.
func (c *console) preferences(w http.ResponseWriter, r *http.Request) {
	const year = 365 * 24 * time.Hour
	if lang := r.PostFormValue("lang"); c.views.knows(lang) {
		c.setCookie(w, "wheelwork_lang", lang, year)
	}
	if theme := r.PostFormValue("theme"); knownTheme(theme) {
		c.setCookie(w, "wheelwork_theme", theme, year)
	}
	if zone := r.PostFormValue("zone"); zone != "" {
		if _, err := cron.LoadZone(zone); err == nil {
			c.setCookie(w, zoneCookie, zone, year)
		}
	} else if r.PostForm.Has("zone") { // the browser's
		c.setCookie(w, zoneCookie, "", -time.Second)
	}
	if r.PostForm.Has("columns") {
		c.chooseColumns(w, r.PostForm["columns"], year)
	}
	http.Redirect(w, r, localPath(r.PostFormValue("next")), http.StatusSeeOther)
}

func knownTheme(s string) bool { return s == "light" || s == "dark" || s == "system" }

// localPath returns p when it is a path of this origin, otherwise "/". So a link to the
// login page cannot redirect a visitor to another site. Browsers interpret "//host" and
// "/\host" as other origins.
func localPath(p string) string {
	if !strings.HasPrefix(p, "/") || strings.HasPrefix(p, "//") || strings.ContainsAny(p, "\\\r\n\t") {
		return "/"
	}
	return p
}
