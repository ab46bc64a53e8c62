package console

import (
	"context"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/schedule/cron"
)

// pauseView shows the pause of an app, and the form that begins or replaces it.
type pauseView struct {
	Pause   *apiv1.AppPause // nil: the app is not paused
	Until   string          // as a browser sends it, in the zone; "": no end
	Reason  string
	Zone    string
	Refused string
}

func (c *console) pausePage(v *visit) error {
	return c.showPause(v, http.StatusOK, pauseView{Zone: zoneOf(v.r).String()})
}

func (c *console) showPause(v *visit, code int, view pauseView) error {
	a, err := c.apps.GetApp(v.ctx, &apiv1.GetAppRequest{Name: v.app})
	if err != nil {
		return err
	}
	if view.Pause = a.Pause; view.Pause != nil && view.Refused == "" { // to change it
		view.Reason = a.Pause.Reason
		if until := a.Pause.Until; until != nil {
			view.Until = until.AsTime().In(zoneOf(v.r).Location).Truncate(time.Minute).Format(inputTime)
		}
	}
	return c.showStatus(v, code, "pause", "overview", view)
}

// pauseApp pauses the app until the time of the form, in the zone of the form.
func (c *console) pauseApp(v *visit) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	f := v.r.PostForm
	view := pauseView{Until: f.Get("until"), Reason: strings.TrimSpace(f.Get("reason")), Zone: f.Get("zone")}
	zone, err := cron.LoadZone(view.Zone) // even if the visitor has chosen another one since
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	view.Zone = zone.String()
	until, err := optionalTime(view.Until, zone)
	if err == nil {
		_, err = c.apps.PauseApp(v.ctx, &apiv1.PauseAppRequest{Name: v.app, Reason: view.Reason, Until: until})
	}
	if why, ok := mendable(err); ok && status.Code(err) != codes.NotFound {
		view.Refused = why
		return c.showPause(v, http.StatusUnprocessableEntity, view)
	}
	if err != nil {
		return err
	}
	v.redirect(href("apps", v.app))
	return nil
}

func (c *console) resumeApp(v *visit) error {
	if _, err := c.apps.ResumeApp(v.ctx, &apiv1.ResumeAppRequest{Name: v.app}); err != nil {
		return err
	}
	v.redirect(href("apps", v.app))
	return nil
}

// pauseOf returns the pause of an app; nil: it is not paused.
func (c *console) pauseOf(ctx context.Context, app string) (*apiv1.AppPause, error) {
	a, err := c.apps.GetApp(ctx, &apiv1.GetAppRequest{Name: app})
	if status.Code(err) == codes.NotFound { // nothing is in it yet
		return nil, nil
	}
	return a.GetPause(), err
}
