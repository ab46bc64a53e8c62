package sdk

import (
	"context"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Hosts returns the hosts that the server knows.
func (c *Client) Hosts(ctx context.Context) ([]*Host, error) {
	r, err := c.cluster.ListHosts(ctx, &apiv1.ListHostsRequest{})
	return r.GetHosts(), c.callError(ctx, "list hosts", err)
}

// Overview returns the counters of an app.
func (c *Client) Overview(ctx context.Context, app string) (*Overview, error) {
	o, err := c.cluster.GetOverview(ctx, &apiv1.GetOverviewRequest{App: appOf(app)})
	return o, c.callError(ctx, "get overview of app "+appOf(app), err)
}

// Cluster returns which servers there are and which units they own.
func (c *Client) Cluster(ctx context.Context) (*Cluster, error) {
	r, err := c.members.GetCluster(ctx, &apiv1.GetClusterRequest{})
	return r, c.callError(ctx, "show the cluster", err)
}

// Drain has a server, named by its id or its address, give away what it owns. It
// returns when that is decided, not when it is done: [Client.Cluster] shows it.
func (c *Client) Drain(ctx context.Context, server string) (*Cluster, error) {
	r, err := c.members.DrainServer(ctx, &apiv1.DrainServerRequest{Server: server})
	return r, c.callError(ctx, "drain the server "+server, err)
}

// Undrain lets a server own something again.
func (c *Client) Undrain(ctx context.Context, server string) (*Cluster, error) {
	r, err := c.members.UndrainServer(ctx, &apiv1.UndrainServerRequest{Server: server})
	return r, c.callError(ctx, "undrain the server "+server, err)
}

// MoveUnit has a unit go to a server. The balancer may move it on later.
func (c *Client) MoveUnit(ctx context.Context, unit, server string) (*Cluster, error) {
	r, err := c.members.MoveUnit(ctx, &apiv1.MoveUnitRequest{Unit: unit, Server: server})
	return r, c.callError(ctx, "move the unit "+unit, err)
}
