package sdk

import (
	"context"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Apps returns the apps of the server, sorted by name.
func (c *Client) Apps(ctx context.Context) ([]*App, error) {
	r, err := c.apps.ListApps(ctx, &apiv1.ListAppsRequest{})
	return r.GetApps(), c.callError(ctx, "list apps", err)
}

// App returns an app. It fails with [ErrNotFound] when the app is empty.
func (c *Client) App(ctx context.Context, name string) (*App, error) {
	app, err := c.apps.GetApp(forApp(ctx, name), &apiv1.GetAppRequest{Name: name})
	return app, c.callError(ctx, "get app "+name, err)
}

// PutApp replaces the limits and the description of an app.
func (c *Client) PutApp(ctx context.Context, app *App) (*App, error) {
	kept, err := c.apps.PutApp(forApp(ctx, app.GetName()), &apiv1.PutAppRequest{App: app})
	return kept, c.callError(ctx, "put app "+app.GetName(), err)
}
