package console

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/netip"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Proxy signs in the visitors that an authenticating proxy names. It holds for the console alone: the API
// takes a token. Its functions return gRPC statuses.
type Proxy struct {
	// Visitor returns what the proxy says about the visitor of a request. through is false if the request
	// did not come through a proxy that is trusted; then nothing else is set. nil without an error: the
	// proxy has named no visitor.
	Visitor func(r *http.Request) (by *Proxied, through bool, err error)
	// SignIn returns the token of a new session of a visitor. Unavailable means that the API does not answer.
	SignIn func(ctx context.Context, by Proxied) (token string, err error)
	// Refused is called when a visitor was refused. name is "" if the proxy named none that can be read.
	Refused func(from netip.Addr, name string, err error)
}

// Proxied is the visitor of a request, as the proxy knows it.
type Proxied struct {
	Name   string
	Groups []string
}

// identity returns a text that is the same for requests of the same visitor with the same groups: the
// digest of the name, a slash, and that of the groups.
func (p Proxied) identity() string {
	groups, err := json.Marshal(slices.Compact(slices.Sorted(slices.Values(p.Groups))))
	if err != nil {
		panic(err) // texts have a JSON form
	}
	of := func(b []byte) string { sum := sha256.Sum256(b); return hex.EncodeToString(sum[:]) }
	return of([]byte("proxied "+p.Name)) + "/" + of(groups)
}

// visitorOf returns what the proxy says about a visitor, see [Proxy.Visitor].
func (c *console) visitorOf(r *http.Request) (by *Proxied, through bool, err error) {
	if c.proxy == nil {
		return nil, false, nil
	}
	return c.proxy.Visitor(r)
}

// sessionOf returns the session of a request, or nil. Through the proxy it is one of the visitor that the
// proxy names now, and otherwise one that began without the proxy: so a browser that several people share,
// or a sign-out at the proxy, leaves no visitor signed in.
func (c *console) sessionOf(r *http.Request) *session {
	s := c.sessions.get(r, c.cookieName())
	by, through, err := c.visitorOf(r)
	want := ""
	if by != nil {
		want = by.identity()
	}
	if s == nil || err != nil || through && by == nil || s.proxied != want {
		return nil
	}
	return s
}

// enter answers a request for a page, without a session, through the proxy: it signs the visitor in. It
// reports false if the request did not come through a proxy, or is not one that starts a session.
func (c *console) enter(w http.ResponseWriter, r *http.Request) (answered bool) {
	by, through, err := c.visitorOf(r)
	if !through {
		return false
	}
	other := c.sessions.get(r, c.cookieName())
	if by != nil && other != nil {
		c.end(r, other)
	}
	switch {
	case r.Method != http.MethodPost && !byPerson(r):
		return false // the page that refreshes itself is loaded again
	case by == nil:
		c.refuseProxied(w, r, "", err)
	case r.Method == http.MethodPost && r.URL.Path == "/logout":
		c.showLeft(w, r)
	case r.Method == http.MethodPost && other != nil: // the form is of another visitor
		http.Redirect(w, r, localPath(c.formPage(r)), http.StatusSeeOther)
	case r.Method == http.MethodPost: // it is shown again, and never sent by itself
		c.signInProxied(w, r, *by, loginView{Next: c.formPage(r), Form: c.keepForm(r)})
	case !arrives(r):
		http.Error(w, "this page signs a visitor in, which another site may not cause: open it in the browser itself", http.StatusForbidden)
	default:
		c.signInProxied(w, r, *by, loginView{Next: r.URL.RequestURI()})
	}
	return true
}

// arrives reports whether a browser loads a page because its visitor wants to see it, which may begin with
// a link on another site. An image or a frame of another site, or a prefetch, would begin session after
// session, because browsers send no cookie with it.
func arrives(r *http.Request) bool {
	from := r.Header.Get("Sec-Fetch-Site") // absent in requests that do not come from a browser
	return r.Method == http.MethodGet && r.Header.Get("Sec-Purpose") == "" && r.Header.Get("Purpose") == "" &&
		(from == "" || from == "none" || from == "same-origin" || r.Header.Get("Sec-Fetch-Dest") == "document")
}

// signInProxied starts a session of a visitor that the proxy names.
func (c *console) signInProxied(w http.ResponseWriter, r *http.Request, by Proxied, view loginView) {
	// The sign-ins of a name are limited, and not only failed ones: a client without cookies makes one with each request.
	if wait := c.named.take(by.Name); wait > 0 {
		c.tooManyLogins(w, r, wait, loginView{Error: "login.repeated"})
		return
	}
	token, err := c.proxy.SignIn(c.forClient(r), by)
	switch status.Code(err) {
	case codes.OK:
		c.signIn(w, r, token, view)
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Internal:
		c.log.WarnContext(r.Context(), "a visitor of the proxy cannot be signed in", "error", err)
		c.renderLogin(w, r, http.StatusServiceUnavailable, loginView{Error: "login.refused", Cause: status.Convert(err).Message()})
	default:
		c.refuseProxied(w, r, by.Name, err)
	}
}

// refuseProxied refuses a visitor. Without an error the proxy has named none.
func (c *console) refuseProxied(w http.ResponseWriter, r *http.Request, name string, err error) {
	if err == nil {
		c.renderLogin(w, r, http.StatusUnauthorized, loginView{Error: "login.unnamed"})
		return
	}
	from := c.address(r)
	c.proxy.Refused(from, name, err)
	c.log.WarnContext(r.Context(), "a visitor of the proxy was refused", "address", from, "error", err)
	c.renderLogin(w, r, http.StatusForbidden, loginView{Error: "login.refused", Cause: status.Convert(err).Message()})
}

// direct serves a way to sign in that is for visitors without the proxy. Those of the proxy are sent to
// the page that they want, where the proxy's name for them counts.
func (c *console) direct(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		by, through, err := c.visitorOf(r)
		switch {
		case !through:
			next(w, r)
		case by == nil:
			c.refuseProxied(w, r, "", err)
		case r.URL.Query().Has("left"):
			c.showLeft(w, r)
		case r.Method == http.MethodGet && !arrives(r): // a redirect to the page would come back
			c.renderLogin(w, r, http.StatusForbidden, loginView{Error: "login.elsewhere"})
		default:
			http.Redirect(w, r, localPath(r.URL.Query().Get("next")), http.StatusSeeOther)
		}
	}
}

// showLeft tells a visitor of the proxy that its session here has ended.
func (c *console) showLeft(w http.ResponseWriter, r *http.Request) {
	c.renderLogin(w, r, http.StatusOK, loginView{Left: true})
}

// end ends a session of another visitor than the one that the proxy names, here and in the API.
func (c *console) end(r *http.Request, s *session) {
	ctx := c.withToken(r, s.token)
	who, err := c.access.WhoAmI(ctx, &apiv1.WhoAmIRequest{})
	if id := (visitor{who}).session(); id != "" && err == nil {
		_, err = c.access.EndSession(ctx, &apiv1.EndSessionRequest{Id: id})
	}
	if err != nil && status.Code(err) != codes.Unauthenticated {
		c.log.WarnContext(r.Context(), "the session of the former visitor of a browser has ended in the console alone", "error", err)
	}
	if err := c.sessions.remove(s.key); err != nil {
		c.log.ErrorContext(r.Context(), "an ended session cannot be removed from the storage", "error", err)
	}
}
