package console

import (
	"context"
	"crypto/subtle"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Setup makes the first administrator for a visitor with a code.
type Setup struct {
	Code string // a random text, which the server has printed
	// Make makes the administrator. It fails with the code FailedPrecondition if there is one.
	Make func(ctx context.Context, name, password string) error
}

type setupView struct {
	Code, Name string
	Error      string // a key of the catalogue; "": none
	Cause      string // the API's message
	Closed     bool   // there is an administrator, or no code
}

// setupPage shows the form for the first administrator. The code is checked when the form is sent.
func (c *console) setupPage(w http.ResponseWriter, r *http.Request) {
	c.renderSetup(w, r, http.StatusOK, setupView{Code: r.URL.Query().Get("code")})
}

func (c *console) renderSetup(w http.ResponseWriter, r *http.Request, code int, v setupView) {
	if c.setup == nil {
		code, v = http.StatusNotFound, setupView{Error: "setup.none", Closed: true}
	}
	c.render(w, r, code, "setup", frame{Data: v})
}

// makeAdmin makes the first administrator and signs it in.
func (c *console) makeAdmin(w http.ResponseWriter, r *http.Request) {
	v := setupView{Code: r.PostFormValue("code"), Name: strings.TrimSpace(r.PostFormValue("user"))}
	if c.setup == nil {
		c.renderSetup(w, r, http.StatusNotFound, v)
		return
	}
	from, password := c.address(r), r.PostFormValue("fresh")
	if wait := c.attempts.take(from); wait > 0 {
		c.tooManyLogins(w, r, wait, loginView{})
		return
	}
	if subtle.ConstantTimeCompare([]byte(v.Code), []byte(c.setup.Code)) != 1 {
		v.Error = "setup.code"
		c.renderSetup(w, r, http.StatusForbidden, v)
		return
	}
	c.attempts.giveBack(from)
	if password != r.PostFormValue("again") {
		v.Error = "setup.differ"
		c.renderSetup(w, r, http.StatusBadRequest, v)
		return
	}
	err := c.setup.Make(c.forClient(r), v.Name, password)
	switch status.Code(err) {
	case codes.OK:
	case codes.FailedPrecondition:
		v.Error, v.Closed = "setup.done", true
		c.renderSetup(w, r, http.StatusConflict, v)
		return
	case codes.InvalidArgument, codes.AlreadyExists:
		v.Error, v.Cause = "setup.refused", status.Convert(err).Message()
		c.renderSetup(w, r, http.StatusBadRequest, v)
		return
	default:
		v.Error, v.Cause = "setup.refused", status.Convert(err).Message()
		c.renderSetup(w, r, http.StatusServiceUnavailable, v)
		return
	}
	if _, through, _ := c.visitorOf(r); through { // the proxy names another user
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	resp, err := c.access.SignIn(c.forClient(r), &apiv1.SignInRequest{Name: v.Name, Password: password, Program: "console"})
	if err != nil { // the administrator is there, and can sign in again
		c.renderLogin(w, r, http.StatusServiceUnavailable, loginView{User: v.Name, Error: "login.refused", Cause: status.Convert(err).Message()})
		return
	}
	c.signIn(w, r, resp.Token, loginView{})
}
