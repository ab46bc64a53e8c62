package sdk

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

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

// SetAppLimits replaces the limits of an app; nil: the defaults. It needs the permission
// cluster.operate in the cluster.
func (c *Client) SetAppLimits(ctx context.Context, app string, limits *AppLimits) (*App, error) {
	kept, err := c.apps.SetAppLimits(forApp(ctx, app), &apiv1.SetAppLimitsRequest{Name: app, Limits: limits})
	return kept, c.callError(ctx, "set the limits of app "+app, err)
}

// Pause says why and until when [Client.PauseApp] pauses an app, [Client.PauseJob] a job, and a
// [Bulk] many jobs.
type Pause struct {
	Reason string    // at most 500 bytes
	Until  time.Time // in the future; zero: until [Client.ResumeApp] or [Client.Resume]
}

// end returns the end of the pause for a request; nil: it has none.
func (p Pause) end() *timestamppb.Timestamp {
	if p.Until.IsZero() {
		return nil
	}
	return timestamppb.New(p.Until)
}

// Set gives a request for the operation [PauseJobs] the reason of the pause, as its note, and the end.
func (p Pause) Set(req *OperationRequest) { req.Note, req.Until = p.Reason, p.end() }

// PauseApp pauses an app from now on, or replaces its pause. A paused app starts nothing: planned
// times are skipped, and triggered runs and retries wait. Attempts that hosts have go on. It needs
// the permission jobs.operate in the app.
func (c *Client) PauseApp(ctx context.Context, app string, p Pause) (*App, error) {
	m, err := c.apps.PauseApp(forApp(ctx, app), &apiv1.PauseAppRequest{Name: app, Reason: p.Reason, Until: p.end()})
	return m, c.callError(ctx, "pause app "+app, err)
}

// ResumeApp ends the pause of an app. It changes nothing in an app that is not paused.
func (c *Client) ResumeApp(ctx context.Context, app string) (*App, error) {
	m, err := c.apps.ResumeApp(forApp(ctx, app), &apiv1.ResumeAppRequest{Name: app})
	return m, c.callError(ctx, "resume app "+app, err)
}

// AppDeletion says how [Client.DeleteApp] deletes an app.
type AppDeletion struct {
	// Force also deletes the jobs of the app and cancels its live runs. Without it an app
	// that has jobs or live runs is refused with [ErrPrecondition].
	Force bool
	// Progress, with Force, is called with the number of jobs and live runs that are left.
	// Default: none.
	Progress func(jobs, live int64)
}

// DeleteApp deletes an app: its modules, aliases, calendars, secrets, grants, values and
// settings. Its ended runs and their lines are no longer shown. With Force it waits until the
// hosts have confirmed the end of all live runs, or ctx ends; repeating the call goes on from
// there. It fails with [ErrNotFound] when the app is empty.
func (c *Client) DeleteApp(ctx context.Context, name string, how AppDeletion) error {
	if how.Force {
		if err := c.emptyApp(ctx, name, how.Progress); err != nil {
			return err
		}
	}
	_, err := c.apps.DeleteApp(forApp(ctx, name), &apiv1.DeleteAppRequest{Name: name})
	return c.callError(ctx, "delete app "+name, err)
}

// emptyApp deletes the jobs of an app and cancels its live runs until there are none.
func (c *Client) emptyApp(ctx context.Context, name string, progress func(jobs, live int64)) error {
	const shortest, longest = 20 * time.Millisecond, time.Second
	for wait := shortest; ; wait = min(2*wait, longest) {
		app, err := c.App(ctx, name)
		if err != nil {
			return err
		}
		if progress != nil {
			progress(app.GetJobs(), app.GetLive())
		}
		if app.GetJobs()+app.GetLive() == 0 {
			return nil
		}
		if app.GetJobs() > 0 { // first, so that nothing starts new runs
			if _, err := c.Bulk(ctx, Bulk{App: name, Action: BulkDelete, All: true, Force: true}); err != nil {
				return err
			}
		}
		if _, err := c.BulkRuns(ctx, RunBulk{App: name, Action: BulkCancel, All: true}); err != nil {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return c.callError(ctx, "delete app "+name, ctx.Err())
		}
	}
}
