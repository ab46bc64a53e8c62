package console

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Provider signs visitors in at an OpenID provider. Its functions return gRPC statuses; Unavailable
// means that the provider or the API does not answer.
type Provider struct {
	Title string // of the provider, for visitors
	// Begin returns the address at the provider, and a text that the visitor's browser keeps until it
	// comes back. next is the page after the sign-in.
	Begin func(ctx context.Context, next string) (address, pending string, err error)
	// Finish verifies the answer of the provider, the query of the address, and returns the token of
	// the visitor's session.
	Finish func(ctx context.Context, pending string, answer url.Values) (token, next string, err error)
	// SignOut returns the address at which the visitor ends the session at the provider; "": it has
	// none.
	SignOut func(ctx context.Context) string
}

// pendingLife is the life of the cookie of a sign-in that has begun. The provider may set a shorter one.
const pendingLife = 15 * time.Minute

// pendingName returns the name of that cookie, see [console.cookieName].
func (c *console) pendingName() string {
	if c.secure {
		return "__Host-wheelwork_signin"
	}
	return "wheelwork_signin"
}

// toProvider sends the browser to the provider. It is a link and no form, because a form may lead to
// this origin alone.
func (c *console) toProvider(w http.ResponseWriter, r *http.Request) {
	view := loginView{Next: r.URL.Query().Get("next")}
	switch {
	case c.provider == nil:
		c.renderLogin(w, r, http.StatusNotFound, view)
		return
	case !chosen(r):
		view.Error = "login.elsewhere"
		c.renderLogin(w, r, http.StatusForbidden, view)
		return
	}
	address, pending, err := c.provider.Begin(r.Context(), localPath(view.Next))
	if err != nil {
		c.log.WarnContext(r.Context(), "a sign-in at the provider cannot begin", "error", err)
		view.Error, view.Cause = "login.provider", status.Convert(err).Message()
		c.renderLogin(w, r, http.StatusServiceUnavailable, view)
		return
	}
	c.setCookie(w, c.pendingName(), pending, pendingLife)
	http.Redirect(w, r, address, http.StatusSeeOther)
}

// fromProvider finishes a sign-in when the provider sends the browser back.
func (c *console) fromProvider(w http.ResponseWriter, r *http.Request) {
	var view loginView
	cookie, err := r.Cookie(c.pendingName())
	if c.provider == nil || err != nil {
		view.Error = "login.begin"
		c.renderLogin(w, r, http.StatusBadRequest, view)
		return
	}
	from := c.address(r)
	if wait := c.attempts.take(from); wait > 0 {
		c.tooManyLogins(w, r, wait, view)
		return
	}
	c.setCookie(w, c.pendingName(), "", -time.Second)
	token, next, err := c.provider.Finish(c.forClient(r), cookie.Value, r.URL.Query())
	code := http.StatusForbidden
	switch status.Code(err) {
	case codes.OK:
		c.attempts.giveBack(from)
		c.signIn(w, r, token, loginView{Next: next})
		return
	case codes.Unavailable:
		c.attempts.giveBack(from)
		code = http.StatusServiceUnavailable
	}
	c.log.WarnContext(r.Context(), "a sign-in at the provider was refused", "address", from, "error", err)
	view.Error, view.Cause = "login.provider", status.Convert(err).Message()
	c.renderLogin(w, r, code, view)
}

// leaveProvider sends the browser to where its session at the provider ends.
func (c *console) leaveProvider(w http.ResponseWriter, r *http.Request) {
	to := ""
	if c.provider != nil && chosen(r) {
		to = c.provider.SignOut(r.Context())
	}
	if to == "" {
		to = "/login"
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

type approveView struct {
	Code string // of the command line, as the address has it
	Done bool
}

// approvePage asks whether a command line may act for the visitor.
func (c *console) approvePage(v *visit) error {
	return c.show(v, "approve", "", approveView{Code: v.r.URL.Query().Get("code")})
}

// approve lets a command line act for the visitor.
func (c *console) approve(v *visit) error {
	view := approveView{Code: v.r.PostFormValue("code"), Done: true}
	if _, err := c.access.ApproveLogin(v.ctx, &apiv1.ApproveLoginRequest{Code: view.Code}); err != nil {
		return err
	}
	return c.show(v, "approve", "", view)
}
