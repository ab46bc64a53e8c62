package sdk

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// CreateUser creates a person who signs in with a password, and returns the password for the first
// sign-in. No later call returns it.
func (c *Client) CreateUser(ctx context.Context, name string) (password string, err error) {
	r, err := c.principals.CreateUser(ctx, &apiv1.CreateUserRequest{Name: name})
	return r.GetPassword(), c.callError(ctx, "create the user "+name, err)
}

// ResetPassword gives a user another password, which the next sign-in replaces, and returns it. Its
// sessions end.
func (c *Client) ResetPassword(ctx context.Context, name string) (password string, err error) {
	r, err := c.principals.ResetPassword(ctx, &apiv1.ResetPasswordRequest{Name: name})
	return r.GetPassword(), c.callError(ctx, "reset the password of "+name, err)
}

// DisableUser keeps a principal out, with its tokens and sessions, or lets it in again.
func (c *Client) DisableUser(ctx context.Context, name string, disabled bool) (*Principal, error) {
	p, err := c.principals.DisableUser(ctx, &apiv1.DisableUserRequest{Name: name, Disabled: disabled})
	return p, c.callError(ctx, "disable the user "+name, err)
}

// SignIn starts a session of a user. Its token works wherever a token does, until the session was not
// used for 12 hours, and for 30 days at most. newPassword replaces the password; "": it stays. The
// error is [ErrPrecondition] if the password must be replaced.
func (c *Client) SignIn(ctx context.Context, name, password, newPassword string) (session *Session, token string, err error) {
	r, err := c.principals.SignIn(ctx, &apiv1.SignInRequest{Name: name, Password: password, NewPassword: newPassword, Program: c.servers.program})
	return r.GetSession(), r.GetToken(), c.callError(ctx, "sign in", err)
}

// Login is a sign-in that a user approves in a browser, on the page /login/command of the console.
type Login struct {
	Code   string // the user approves it: four groups of four characters
	secret string
}

// NewLogin returns a login with a secret that no other client knows.
func NewLogin() *Login {
	secret := rand.Text()
	digest := sha256.Sum256([]byte(secret))
	text := base32.StdEncoding.EncodeToString(digest[:10])
	return &Login{Code: text[:4] + "-" + text[4:8] + "-" + text[8:12] + "-" + text[12:], secret: secret}
}

// ClaimLogin starts a session of the user that has approved a login, which must be within ten minutes.
// The error is [ErrNotFound] as long as no user has.
func (c *Client) ClaimLogin(ctx context.Context, l *Login) (session *Session, token string, err error) {
	r, err := c.principals.ClaimLogin(ctx, &apiv1.ClaimLoginRequest{Secret: l.secret, Program: c.servers.program})
	return r.GetSession(), r.GetToken(), c.callError(ctx, "sign in", err)
}

// ApproveLogin lets the holder of a login act for the caller, a user that has signed in.
func (c *Client) ApproveLogin(ctx context.Context, code string) error {
	_, err := c.principals.ApproveLogin(ctx, &apiv1.ApproveLoginRequest{Code: code})
	return c.callError(ctx, "approve the code "+code, err)
}

// Sessions returns the sessions of the caller, or those of all users for a caller that manages the
// access to the cluster.
func (c *Client) Sessions(ctx context.Context) ([]*Session, error) {
	r, err := c.principals.ListSessions(ctx, &apiv1.ListSessionsRequest{})
	return r.GetSessions(), c.callError(ctx, "list sessions", err)
}

// EndSession ends a session.
func (c *Client) EndSession(ctx context.Context, id string) error {
	_, err := c.principals.EndSession(ctx, &apiv1.EndSessionRequest{Id: id})
	return c.callError(ctx, "end the session "+id, err)
}
