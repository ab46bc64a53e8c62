package sdk

import (
	"context"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Apps returns the apps of the server by name.
func (c *Client) Apps(ctx context.Context) ([]*App, error) {
	r, err := c.apps.ListApps(ctx, &apiv1.ListAppsRequest{})
	return r.GetApps(), c.callError(ctx, "list apps", err)
}

// App returns an app. It fails with [ErrNotFound] when nothing is in it.
func (c *Client) App(ctx context.Context, name string) (*App, error) {
	app, err := c.apps.GetApp(forApp(ctx, name), &apiv1.GetAppRequest{Name: name})
	return app, c.callError(ctx, "get app "+name, err)
}

// PutApp replaces what bounds and describes an app.
func (c *Client) PutApp(ctx context.Context, app *App) (*App, error) {
	kept, err := c.apps.PutApp(forApp(ctx, app.GetName()), &apiv1.PutAppRequest{App: app})
	return kept, c.callError(ctx, "put app "+app.GetName(), err)
}
