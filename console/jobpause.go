package console

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/schedule/cron"
)

// jobPauseView is the form that pauses a job, or changes its pause.
type jobPauseView struct {
	Job     *apiv1.Job
	Until   string // as a browser sends it, in the zone; "": no end
	Reason  string
	Zone    string
	Refused string
}

func (c *console) pauseJobPage(v *visit) error {
	return c.showJobPause(v, http.StatusOK, jobPauseView{Zone: zoneOf(v.r).String()})
}

func (c *console) showJobPause(v *visit, code int, view jobPauseView) (err error) {
	if view.Job, err = c.jobs.GetJob(v.ctx, &apiv1.GetJobRequest{App: v.app, Name: v.r.PathValue("name")}); err != nil {
		return err
	}
	if p := view.Job.Pause; view.Job.GetPaused() && p != nil && view.Refused == "" { // to change it
		view.Reason = p.Reason
		if p.Until != nil {
			view.Until = p.Until.AsTime().In(zoneOf(v.r).Location).Truncate(time.Minute).Format(inputTime)
		}
	}
	return c.showStatus(v, code, "jobpause", "jobs", view)
}

// pauseJob pauses the job until the time of the form, in the zone of the form.
func (c *console) pauseJob(v *visit) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	f, name := v.r.PostForm, v.r.PathValue("name")
	view := jobPauseView{Until: f.Get("until"), Reason: strings.TrimSpace(f.Get("reason"))}
	zone, err := cron.LoadZone(cmp.Or(f.Get("zone"), zoneOf(v.r).String())) // even if the visitor has chosen another one since
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	view.Zone = zone.String()
	until, err := optionalTime(view.Until, zone)
	if err == nil {
		_, err = c.jobs.PauseJob(v.ctx, &apiv1.PauseJobRequest{App: v.app, Name: name, Reason: view.Reason, Until: until})
	}
	if why, ok := mendable(err); ok && status.Code(err) != codes.NotFound && status.Code(err) != codes.PermissionDenied {
		view.Refused = why
		return c.showJobPause(v, http.StatusUnprocessableEntity, view)
	}
	if err != nil {
		return err
	}
	v.redirect(href("apps", v.app, "jobs", name))
	return nil
}
