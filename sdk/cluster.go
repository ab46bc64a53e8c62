package sdk

import (
	"context"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Hosts returns the known hosts of the server.
func (c *Client) Hosts(ctx context.Context) ([]*Host, error) {
	r, err := c.cluster.ListHosts(ctx, &apiv1.ListHostsRequest{})
	return r.GetHosts(), c.callError(ctx, "list hosts", err)
}

// CordonHost keeps new tasks from a host until [Client.UncordonHost], also after a restart
// of the host. With drain the host also gives back the tasks that have not started. The
// host is named by its id, or by its name if no other host has it. It fails with
// [ErrNotFound] if no such host is connected.
func (c *Client) CordonHost(ctx context.Context, host string, drain bool) (*Host, error) {
	h, err := c.cluster.CordonHost(ctx, &apiv1.CordonHostRequest{Host: host, Drain: drain})
	return h, c.callError(ctx, "cordon host "+host, err)
}

// UncordonHost lets a host have tasks again.
func (c *Client) UncordonHost(ctx context.Context, host string) (*Host, error) {
	h, err := c.cluster.UncordonHost(ctx, &apiv1.UncordonHostRequest{Host: host})
	return h, c.callError(ctx, "uncordon host "+host, err)
}

// Overview returns the counters of an app.
func (c *Client) Overview(ctx context.Context, app string) (*Overview, error) {
	o, err := c.cluster.GetOverview(ctx, &apiv1.GetOverviewRequest{App: appOf(app)})
	return o, c.callError(ctx, "get overview of app "+appOf(app), err)
}

// Cluster returns the servers of the cluster and the partitions that each of them owns.
func (c *Client) Cluster(ctx context.Context) (*Cluster, error) {
	r, err := c.members.GetCluster(ctx, &apiv1.GetClusterRequest{})
	return r, c.callError(ctx, "show the cluster", err)
}

// Drain makes a server, named by its id or its address, give up its partitions. Drain
// returns when that is decided; [Client.Cluster] shows the progress.
func (c *Client) Drain(ctx context.Context, server string) (*Cluster, error) {
	r, err := c.members.DrainServer(ctx, &apiv1.DrainServerRequest{Server: server})
	return r, c.callError(ctx, "drain the server "+server, err)
}

// Undrain allows a server to own partitions again.
func (c *Client) Undrain(ctx context.Context, server string) (*Cluster, error) {
	r, err := c.members.UndrainServer(ctx, &apiv1.UndrainServerRequest{Server: server})
	return r, c.callError(ctx, "undrain the server "+server, err)
}

// MoveUnit moves a partition to a server. The balancer may move it again later.
func (c *Client) MoveUnit(ctx context.Context, unit, server string) (*Cluster, error) {
	r, err := c.members.MoveUnit(ctx, &apiv1.MoveUnitRequest{Unit: unit, Server: server})
	return r, c.callError(ctx, "move the partition "+unit, err)
}

// SplitApp spreads the jobs of an app over the given number of partitions; 0: over all.
// It returns when that is decided; [Client.Cluster] shows the progress. The balancer
// leaves the app alone afterwards.
func (c *Client) SplitApp(ctx context.Context, app string, units int) (*Cluster, error) {
	r, err := c.members.SplitApp(ctx, &apiv1.SplitAppRequest{App: appOf(app), Units: int32(units)})
	return r, c.callError(ctx, "split the app "+appOf(app), err)
}

// BalanceApp lets the balancer decide again whether an app is split.
func (c *Client) BalanceApp(ctx context.Context, app string) (*Cluster, error) {
	r, err := c.members.SplitApp(ctx, &apiv1.SplitAppRequest{App: appOf(app), Auto: true})
	return r, c.callError(ctx, "balance the app "+appOf(app), err)
}

// MergeApp moves the jobs of an app back to its primary partition. The balancer leaves
// the app alone afterwards.
func (c *Client) MergeApp(ctx context.Context, app string) (*Cluster, error) {
	r, err := c.members.MergeApp(ctx, &apiv1.MergeAppRequest{App: appOf(app)})
	return r, c.callError(ctx, "merge the app "+appOf(app), err)
}
