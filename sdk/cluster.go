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

// SplitApp spreads the jobs of an app over so many units; 0: over all. It returns when
// that is decided: [Client.Cluster] shows how far it is. The balancer leaves the app
// alone then.
func (c *Client) SplitApp(ctx context.Context, app string, units int) (*Cluster, error) {
	r, err := c.members.SplitApp(ctx, &apiv1.SplitAppRequest{App: appOf(app), Units: int32(units)})
	return r, c.callError(ctx, "split the app "+appOf(app), err)
}

// BalanceApp leaves it to the balancer again whether an app is split.
func (c *Client) BalanceApp(ctx context.Context, app string) (*Cluster, error) {
	r, err := c.members.SplitApp(ctx, &apiv1.SplitAppRequest{App: appOf(app), Auto: true})
	return r, c.callError(ctx, "balance the app "+appOf(app), err)
}

// MergeApp brings the jobs of an app back into the unit where it began. The balancer
// leaves the app alone then.
func (c *Client) MergeApp(ctx context.Context, app string) (*Cluster, error) {
	r, err := c.members.MergeApp(ctx, &apiv1.MergeAppRequest{App: appOf(app)})
	return r, c.callError(ctx, "merge the app "+appOf(app), err)
}
