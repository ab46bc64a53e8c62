package sdk

import (
	"cmp"
	"context"
	"strconv"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// NewJoinToken says which machines join with a token, and what their certificates say. What is empty is not
// limited.
type NewJoinToken struct {
	Kind      string            // host, the default, or server, which has no apps, labels and executors
	Apps      []string          // that the hosts serve
	Labels    map[string]string // by which jobs select the hosts
	Executors []string          // that the hosts may have: modules, native:NAME, plugin:NAME, builtin:NAME, or a beginning with "*"
	TTL       time.Duration     // how long machines can join; default 1 hour, at most 7 days
	Uses      int               // by how many machines; default 1
}

// CreateJoinToken makes a token with which machines join. One for servers gives all that the cluster has. Its text is in the result alone.
func (c *Client) CreateJoinToken(ctx context.Context, n NewJoinToken) (*JoinToken, error) {
	req := &apiv1.CreateJoinTokenRequest{Kind: cmp.Or(n.Kind, "host"), Apps: n.Apps, Labels: n.Labels, Executors: n.Executors, Uses: int32(n.Uses)}
	if n.TTL != 0 {
		req.Ttl = strconv.FormatFloat(n.TTL.Seconds(), 'f', -1, 64) + "s"
	}
	t, err := c.machines.CreateJoinToken(ctx, req)
	return t, c.callError(ctx, "create a join token", err)
}

// JoinTokens returns the join tokens that can still be used, without their texts.
func (c *Client) JoinTokens(ctx context.Context) ([]*JoinToken, error) {
	r, err := c.machines.ListJoinTokens(ctx, &apiv1.ListJoinTokensRequest{})
	return r.GetTokens(), c.callError(ctx, "list the join tokens", err)
}

// RevokeJoinToken removes a join token. Machines that have joined with it stay.
func (c *Client) RevokeJoinToken(ctx context.Context, id string) error {
	_, err := c.machines.RevokeJoinToken(ctx, &apiv1.RevokeJoinTokenRequest{Id: id})
	return c.callError(ctx, "revoke the join token "+id, err)
}

// Certificates returns the machines that have joined, by id.
func (c *Client) Certificates(ctx context.Context) ([]*Certificate, error) {
	r, err := c.machines.ListCertificates(ctx, &apiv1.ListCertificatesRequest{})
	return r.GetCertificates(), c.callError(ctx, "list the certificates", err)
}

// RevokeHost revokes the certificate of a host, by its id or by a name that no other machine has. Its streams end,
// and the runs that it has are repeated elsewhere as if it were lost.
func (c *Client) RevokeHost(ctx context.Context, id string) error {
	_, err := c.machines.RevokeCertificate(ctx, &apiv1.RevokeCertificateRequest{Id: id, Kind: "host"})
	return c.callError(ctx, "revoke the certificate of "+id, err)
}

// RevokeServer revokes a server of a cluster, by its id or by a name that no other machine has. Its process ends, and the
// other servers refuse its certificate.
func (c *Client) RevokeServer(ctx context.Context, id string) error {
	_, err := c.machines.RevokeCertificate(ctx, &apiv1.RevokeCertificateRequest{Id: id, Kind: "server"})
	return c.callError(ctx, "revoke the certificate of "+id, err)
}

// RenameMachine gives a machine another name for people. Servers show it from the next connection of the machine
// on.
func (c *Client) RenameMachine(ctx context.Context, id, name string) (*Certificate, error) {
	m, err := c.machines.RenameMachine(ctx, &apiv1.RenameMachineRequest{Id: id, Name: name})
	return m, c.callError(ctx, "rename "+id, err)
}
