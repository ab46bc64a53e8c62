package console

import (
	"net/http"
	"net/url"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
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
	From, Until string                     // as a browser sends them, in UTC
	Found       *apiv1.BackfillJobResponse // of a dry run; nil: none was made
	Done        *backfilled                // nil: no backfill was made yet
	Error       string                     // reason for a refusal
}

// backfilled is the result of a backfill, as the page's address contains it.
type backfilled struct {
	Accepted, Existing int64
	More               bool // From is the start of the next call
}

// inputTime is the format in which a browser sends a datetime-local input.
const inputTime = "2006-01-02T15:04:05.999"

func (c *console) backfillPage(v *visit) error {
	q := v.r.URL.Query()
	now := time.Now().UTC().Truncate(time.Minute)
	view := backfillView{Job: v.r.PathValue("name"), From: now.Add(-24 * time.Hour).Format(inputTime), Until: now.Format(inputTime)}
	accepted, err1 := strconv.ParseInt(q.Get("accepted"), 10, 64)
	existing, err2 := strconv.ParseInt(q.Get("existing"), 10, 64)
	if err1 == nil && err2 == nil { // written by a redirect of this console
		view.Done = &backfilled{Accepted: accepted, Existing: existing}
		if _, err := readInputTime(q.Get("from")); err == nil {
			view.From, view.Until, view.Done.More = q.Get("from"), q.Get("until"), true
		}
	}
	return c.show(v, "backfill", "jobs", view)
}

// backfill shows the result of a dry run directly. After a real backfill it redirects to
// an address with the result, so that a reload does not repeat the backfill.
func (c *console) backfill(v *visit) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	f := v.r.PostForm
	view := backfillView{Job: v.r.PathValue("name"), From: f.Get("from"), Until: f.Get("until")}
	from, err := readInputTime(view.From)
	if err != nil {
		return c.refuseBackfill(v, view, err)
	}
	until, err := readInputTime(view.Until)
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
	q := url.Values{"accepted": {strconv.Itoa(int(answer.Accepted))}, "existing": {strconv.Itoa(int(answer.Existing))}}
	if answer.NextFrom != nil {
		q.Set("from", answer.NextFrom.AsTime().Format(inputTime))
		q.Set("until", view.Until)
	}
	v.redirect(href("apps", v.app, "jobs", view.Job, "backfill") + "?" + q.Encode())
	return nil
}

// refuseBackfill shows the form again with the visitor's input.
func (c *console) refuseBackfill(v *visit, view backfillView, err error) error {
	view.Error = status.Convert(err).Message()
	return c.showStatus(v, http.StatusBadRequest, "backfill", "jobs", view)
}

// readInputTime parses the value of a datetime-local input as UTC.
func readInputTime(s string) (time.Time, error) {
	for _, form := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if t, err := time.Parse(form, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, status.Errorf(codes.InvalidArgument, "%q is not a time: write it as 2026-03-08T12:00", s)
}
