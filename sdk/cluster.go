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
