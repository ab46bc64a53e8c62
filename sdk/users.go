package sdk

import (
	"context"

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
