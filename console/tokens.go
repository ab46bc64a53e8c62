package console

import (
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

type tokensView struct {
	Tokens  []*apiv1.Token
	Done    accessDone
	Refused string
	Form    tokenForm
}

type tokenForm struct {
	scopeForm
	Name, TTL string
}

// Ended reports whether a token has expired.
func (tokensView) Ended(t *apiv1.Token) bool { return past(t.ExpiresAt) }

// Rotating reports whether the text before the last rotation is still valid.
func (tokensView) Rotating(t *apiv1.Token) bool { return t.FormerUntil != nil && !past(t.FormerUntil) }

func past(t *timestamppb.Timestamp) bool { return t != nil && t.AsTime().Before(time.Now()) }

func (c *console) tokensPage(v *visit) error {
	return c.showTokens(v, http.StatusOK, tokensView{Form: tokenForm{scopeForm: scopeForm{Kind: "app", Scoped: v.app}}})
}

func (c *console) showTokens(v *visit, code int, view tokensView) error {
	answer, err := c.access.ListTokens(v.ctx, &apiv1.ListTokensRequest{})
	if err != nil {
		return err
	}
	view.Tokens = answer.Tokens
	view.Done, _ = noticeOf[accessDone](v)
	if view.Form.Roles, err = c.roles(v); err != nil {
		return err
	}
	return c.showStatus(v, code, "tokens", "access", view)
}

func (c *console) createToken(v *visit) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	f := v.r.PostForm
	form := tokenForm{readScope(f), strings.TrimSpace(f.Get("name")), strings.TrimSpace(f.Get("ttl"))}
	made, err := c.access.CreateToken(v.ctx, &apiv1.CreateTokenRequest{Name: form.Name, Role: form.Role, Scope: form.scope(), Ttl: form.TTL})
	if why, ok := mendable(err); ok {
		return c.showTokens(v, http.StatusUnprocessableEntity, tokensView{Form: form, Refused: why})
	}
	if err != nil {
		return err
	}
	return c.showSecret(v, tokenSecret("token.created", made))
}

func tokenSecret(title string, t *apiv1.Token) secretView {
	return secretView{
		Tab: "tokens", Title: title, Hint: "token.hint", Subject: t.Principal, Secret: t.Token, Token: true,
		Role: t.Role, Scope: t.Scope, Expires: t.ExpiresAt, Former: t.FormerUntil,
	}
}

// token returns a token that the visitor sees.
func (c *console) token(v *visit, id string) (*apiv1.Token, error) {
	answer, err := c.access.ListTokens(v.ctx, &apiv1.ListTokensRequest{})
	if err != nil {
		return nil, err
	}
	for _, t := range answer.Tokens {
		if t.Id == id {
			return t, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "there is no token %.40q", id)
}

type rotateView struct {
	*apiv1.Token
	Keep, TTL, Refused string
}

func (c *console) rotateTokenPage(v *visit) error {
	return c.showRotate(v, http.StatusOK, rotateView{Keep: "24h"})
}

func (c *console) showRotate(v *visit, code int, view rotateView) (err error) {
	if view.Token, err = c.token(v, v.r.PathValue("id")); err != nil {
		return err
	}
	return c.showStatus(v, code, "rotate", "access", view)
}

func (c *console) rotateToken(v *visit) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	view := rotateView{Keep: strings.TrimSpace(v.r.PostForm.Get("keep")), TTL: strings.TrimSpace(v.r.PostForm.Get("ttl"))}
	made, err := c.access.RotateToken(v.ctx, &apiv1.RotateTokenRequest{Id: v.r.PathValue("id"), Keep: view.Keep, Ttl: view.TTL})
	if why, ok := mendable(err); ok && status.Code(err) != codes.NotFound {
		view.Refused = why
		return c.showRotate(v, http.StatusUnprocessableEntity, view)
	}
	if err != nil {
		return err
	}
	return c.showSecret(v, tokenSecret("token.rotated", made))
}

func (c *console) revokeTokenPage(v *visit) error {
	t, err := c.token(v, v.r.PathValue("id"))
	if err != nil {
		return err
	}
	return c.show(v, "confirm", "access", confirmView{
		Question: "token.revoke.question", Effect: "token.revoke.effect", Button: "token.revoke.button",
		Subject: bindingText(t.Id, t.Principal, t.Scope), Back: inApp("/access/tokens", v.app),
	})
}

func (c *console) revokeToken(v *visit) error {
	id := v.r.PathValue("id")
	if _, err := c.access.RevokeToken(v.ctx, &apiv1.RevokeTokenRequest{Id: id}); err != nil {
		return err
	}
	v.redirectWith(inApp("/access/tokens", v.app), accessDone{"token.revoked", id})
	return nil
}

type sessionsView struct {
	Sessions []*apiv1.Session
	Own      string // the id of the visitor's session; "": the visitor has a token
	Done     accessDone
}

func (c *console) sessionsPage(v *visit) error {
	answer, err := c.access.ListSessions(v.ctx, &apiv1.ListSessionsRequest{})
	if err != nil {
		return err
	}
	view := sessionsView{Sessions: answer.Sessions, Own: c.visitor(v).session()}
	view.Done, _ = noticeOf[accessDone](v)
	return c.show(v, "sessions", "access", view)
}

func (c *console) endSession(v *visit) error {
	if _, err := c.access.EndSession(v.ctx, &apiv1.EndSessionRequest{Id: v.r.PathValue("id")}); err != nil {
		return err
	}
	v.redirectWith(inApp("/access/sessions", v.app), accessDone{Key: "session.ended"})
	return nil
}
