package console

import (
	"net/http"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/schedule/cron"
)

// skipNext skips the next planned time of a job.
func (c *console) skipNext(v *visit) error {
	name := v.r.PathValue("name")
	if _, err := c.jobs.SkipNext(v.ctx, &apiv1.SkipNextRequest{App: v.app, Name: name}); err != nil {
		return err
	}
	v.redirect(href("apps", v.app, "jobs", name))
	return nil
}

// backfillView is the form of a backfill with the result of a dry run or of the backfill.
type backfillView struct {
	Job         string
	From, Until string // as a browser sends them, in the zone
	Zone        string
	Found       *apiv1.BackfillJobResponse // of a dry run; nil: none was made
	Done        *backfilled                // nil: no backfill was made yet
	Error       string                     // reason for a refusal
}

// backfilled is the notice of a backfill.
type backfilled struct {
	Accepted, Existing int64
	More               bool   // more times are left
	From, Until, Zone  string // of the next call, if there are more
}

// inputTime is the format in which a browser sends a datetime-local input.
const inputTime = "2006-01-02T15:04:05.999"

func (c *console) backfillPage(v *visit) error {
	zone := zoneOf(v.r)
	now := time.Now().In(zone.Location).Truncate(time.Minute)
	view := backfillView{Job: v.r.PathValue("name"), Zone: zone.String(), From: now.Add(-24 * time.Hour).Format(inputTime), Until: now.Format(inputTime)}
	if done, ok := noticeOf[backfilled](v); ok {
		view.Done = &done
		if done.More {
			view.From, view.Until, view.Zone = done.From, done.Until, done.Zone
		}
	}
	return c.show(v, "backfill", "jobs", view)
}

// backfill shows the result of a dry run directly. After a real backfill it redirects to
// a page with the result, so that a reload does not repeat the backfill.
func (c *console) backfill(v *visit) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	f := v.r.PostForm
	view := backfillView{Job: v.r.PathValue("name"), From: f.Get("from"), Until: f.Get("until"), Zone: f.Get("zone")}
	zone, err := cron.LoadZone(view.Zone) // of the form, even if the visitor has chosen another one since
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	view.Zone = zone.String()
	from, err := readInputTime(view.From, zone)
	if err != nil {
		return c.refuseBackfill(v, view, err)
	}
	until, err := readInputTime(view.Until, zone)
	if err != nil {
		return c.refuseBackfill(v, view, err)
	}
	dry := f.Get("do") != "run"
	answer, err := c.jobs.BackfillJob(v.ctx, &apiv1.BackfillJobRequest{
		App: v.app, Name: view.Job, From: timestamppb.New(from), Until: timestamppb.New(until), DryRun: dry,
	})
	switch {
	case status.Code(err) == codes.InvalidArgument:
		return c.refuseBackfill(v, view, err)
	case err != nil:
		return err
	case dry:
		view.Found = answer
		return c.show(v, "backfill", "jobs", view)
	}
	done := backfilled{Accepted: int64(answer.Accepted), Existing: int64(answer.Existing)}
	if answer.NextFrom != nil {
		done.More, done.From, done.Until, done.Zone = true, answer.NextFrom.AsTime().In(zone).Format(inputTime), view.Until, view.Zone
	}
	v.redirectWith(href("apps", v.app, "jobs", view.Job, "backfill"), done)
	return nil
}

// refuseBackfill shows the form again with the visitor's input.
func (c *console) refuseBackfill(v *visit, view backfillView, err error) error {
	view.Error = status.Convert(err).Message()
	return c.showStatus(v, http.StatusBadRequest, "backfill", "jobs", view)
}

// readInputTime parses the value of a datetime-local input in a zone.
func readInputTime(s string, zone *time.Location) (time.Time, error) {
	for _, form := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if t, err := time.ParseInLocation(form, s, zone); err == nil {
			return t, nil
		}
	}
	return time.Time{}, status.Errorf(codes.InvalidArgument, "%q is not a time: write it as 2026-03-08T12:00", s)
}
