package sdk

import (
	"context"
	"iter"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// ClusterScope is the scope of every app, and of what belongs to no app.
const ClusterScope = "cluster"

// AppScope returns the scope of one app.
func AppScope(app string) string { return "app:" + app }

// PrefixScope returns the scope of all apps whose names begin with prefix.
func PrefixScope(prefix string) string { return "app-prefix:" + prefix }

// Roles returns the roles of people and programs with their permissions: those of people, from
// the weakest to the strongest, then those of programs.
func (c *Client) Roles(ctx context.Context) ([]*Role, error) {
	r, err := c.principals.ListRoles(ctx, &apiv1.ListRolesRequest{})
	return r.GetRoles(), c.callError(ctx, "list roles", err)
}

// WhoAmI returns the caller as the server knows it.
func (c *Client) WhoAmI(ctx context.Context) (*Principal, error) {
	p, err := c.principals.WhoAmI(ctx, &apiv1.WhoAmIRequest{})
	return p, c.callError(ctx, "whoami", err)
}

// CreateToken makes a token for a service account, and the account if it does not exist. The
// answer has the text of the token; no later call returns it. ttl is how long the token is
// valid, as "90d" or "12h"; "": 90 days; "never": it does not expire.
func (c *Client) CreateToken(ctx context.Context, name, role, scope, ttl string) (*Token, error) {
	t, err := c.principals.CreateToken(ctx, &apiv1.CreateTokenRequest{Name: name, Role: role, Scope: scope, Ttl: ttl})
	return t, c.callError(ctx, "create a token for "+name, err)
}

// Tokens returns the tokens that the caller may see, without their texts. With an app only those
// that hold in it.
func (c *Client) Tokens(ctx context.Context, app string) ([]*Token, error) {
	r, err := c.principals.ListTokens(ctx, &apiv1.ListTokensRequest{App: app})
	return r.GetTokens(), c.callError(ctx, "list tokens", err)
}

// RotateToken gives a token a new text, which is in the answer. The former text stays valid for
// keep, as "24h"; "": 24 hours. ttl is how long the new text is valid; "": as long as the
// former one.
func (c *Client) RotateToken(ctx context.Context, id, keep, ttl string) (*Token, error) {
	t, err := c.principals.RotateToken(ctx, &apiv1.RotateTokenRequest{Id: id, Keep: keep, Ttl: ttl})
	return t, c.callError(ctx, "rotate the token "+id, err)
}

// RevokeToken removes a token.
func (c *Client) RevokeToken(ctx context.Context, id string) error {
	_, err := c.principals.RevokeToken(ctx, &apiv1.RevokeTokenRequest{Id: id})
	return c.callError(ctx, "revoke the token "+id, err)
}

// Principals returns the service accounts that the caller may see.
func (c *Client) Principals(ctx context.Context) ([]*Principal, error) {
	r, err := c.principals.ListPrincipals(ctx, &apiv1.ListPrincipalsRequest{})
	return r.GetPrincipals(), c.callError(ctx, "list principals", err)
}

// AddBinding gives a principal a role in a scope until a time; the zero time: forever.
func (c *Client) AddBinding(ctx context.Context, principal, role, scope string, expires time.Time) (*Binding, error) {
	req := &apiv1.AddBindingRequest{Principal: principal, Role: role, Scope: scope}
	if !expires.IsZero() {
		req.ExpiresAt = timestamppb.New(expires)
	}
	b, err := c.principals.AddBinding(ctx, req)
	return b, c.callError(ctx, "give "+principal+" a role", err)
}

// Bindings returns the bindings that the caller may see. With an app only those that hold in it.
func (c *Client) Bindings(ctx context.Context, app string) ([]*Binding, error) {
	r, err := c.principals.ListBindings(ctx, &apiv1.ListBindingsRequest{App: app})
	return r.GetBindings(), c.callError(ctx, "list bindings", err)
}

// RemoveBinding removes a binding.
func (c *Client) RemoveBinding(ctx context.Context, id string) error {
	_, err := c.principals.RemoveBinding(ctx, &apiv1.RemoveBindingRequest{Id: id})
	return c.callError(ctx, "remove the binding "+id, err)
}

// AuditQuery selects audit events. The zero value selects all that the caller may see.
type AuditQuery struct {
	App   string    // about this app
	Actor string    // by this principal
	Code  string    // with this code, or with one that begins with it if it ends in a dot: "job."
	Since time.Time // zero: from the beginning
	Until time.Time // zero: to the end
}

// AuditEvents yields audit events, the newest first. It fetches them in pages while the caller
// iterates.
func (c *Client) AuditEvents(ctx context.Context, q AuditQuery) iter.Seq2[*AuditEvent, error] {
	return func(yield func(*AuditEvent, error) bool) {
		req := q.request(1000)
		for {
			page, err := c.audit.ListAuditEvents(ctx, req)
			if err != nil {
				yield(nil, c.callError(ctx, "list audit events", err))
				return
			}
			for _, e := range page.Events {
				if !yield(e, nil) {
					return
				}
			}
			if req.PageToken = page.NextPageToken; req.PageToken == "" {
				return
			}
		}
	}
}

func (q *AuditQuery) request(size int) *apiv1.ListAuditEventsRequest {
	req := &apiv1.ListAuditEventsRequest{App: q.App, Actor: q.Actor, Code: q.Code, PageSize: int32(size)}
	if !q.Since.IsZero() {
		req.Since = timestamppb.New(q.Since)
	}
	if !q.Until.IsZero() {
		req.Until = timestamppb.New(q.Until)
	}
	return req
}

// AuditPage is a part of the audit log, the oldest events first.
type AuditPage struct {
	Events []*AuditEvent
	Gaps   []*AuditGap
	// After is the place behind the last event, for the next call of [Client.AuditEventsAfter]. It
	// remains valid when the server is started again, and at each server of a cluster.
	After string
	More  bool // there are further events now
}

// AuditEventsAfter returns at most size events behind a place, at most 1000. The events of a partition are in
// the order of their sequences. "" is the place before the oldest event. If there is no event yet, it
// returns at once, with a place. It fails with [ErrPrecondition] if the log ends before the place: the
// server was restored from an older backup.
func (c *Client) AuditEventsAfter(ctx context.Context, q AuditQuery, after string, size int) (*AuditPage, error) {
	req := q.request(size)
	req.OldestFirst, req.PageToken = true, after
	page, err := c.audit.ListAuditEvents(ctx, req)
	if err != nil {
		return nil, c.callError(ctx, "read the audit log", err)
	}
	last := map[string]uint64{}
	for _, e := range page.Events {
		if page.NextPageToken == "" || e.Sequence <= last[e.Partition] {
			page.NextPageToken = ""
			break
		}
		last[e.Partition] = e.Sequence
	}
	if page.NextPageToken == "" {
		return nil, &Error{Code: codes.FailedPrecondition, Message: "read the audit log: a server has an older version, which cannot return the oldest events first: upgrade all servers"}
	}
	return &AuditPage{Events: page.Events, Gaps: page.Gaps, After: page.NextPageToken, More: page.More}, nil
}

// VerifyAudit computes the chains of audit events again, and returns the result for each partition. The
// chains must contain the anchors: ends of logs that were noted before, as the Last and the Head of a
// result.
func (c *Client) VerifyAudit(ctx context.Context, anchors ...*AuditAnchor) ([]*AuditChain, error) {
	r, err := c.audit.VerifyAudit(ctx, &apiv1.VerifyAuditRequest{Anchors: anchors})
	return r.GetChains(), c.callError(ctx, "verify the audit log", err)
}

// AuditAnchors returns the ends of the logs of partitions that the first partition of the cluster has
// noted.
func (c *Client) AuditAnchors(ctx context.Context) ([]*AuditAnchor, error) {
	r, err := c.audit.ListAuditAnchors(ctx, &apiv1.ListAuditAnchorsRequest{})
	return r.GetAnchors(), c.callError(ctx, "list the anchors of the audit log", err)
}

// AcceptAudit accepts the present audit log of a partition in place of the noted end, which it may not
// contain after a restore from an older backup.
func (c *Client) AcceptAudit(ctx context.Context, partition string) error {
	_, err := c.audit.RemoveAuditAnchor(ctx, &apiv1.RemoveAuditAnchorRequest{Partition: partition})
	return c.callError(ctx, "accept the audit log of "+partition, err)
}
