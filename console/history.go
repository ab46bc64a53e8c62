package console

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/document"
	"github.com/wheelworkhq/wheelwork/job"
)

const (
	// historyPage is the number of revisions on a page. The page fetches the definition of
	// each, historyCalls of them at a time.
	historyPage  = 20
	historyCalls = 4
	// shownChanges bounds the fields of one revision on the page of the history, and
	// maxNote the bytes of a note, as the API does.
	shownChanges = 10
	maxNote      = 500
)

// historyView is the list of the revisions of a job, the newest first.
type historyView struct {
	Job       string
	Revisions []revisionView
	Restore   int64 // the revision before the deletion of the job; 0: it is not deleted, or none is left
	Deleted   bool
	Newest    int64  // number of the newest revision; 0: this page does not have it
	Next      string // token of the next page
	Paged     bool   // this is not the first page
	Done      rolledBack
}

// Latest returns the number of the newest revision for an address; "" if this page does not have
// it: a comparison then looks it up.
func (h historyView) Latest() string {
	if h.Newest == 0 {
		return ""
	}
	return strconv.FormatInt(h.Newest, 10)
}

// rolledBack is a notice: the number of the revision that a roll-back brought back.
type rolledBack int64

// revisionView is a revision with what it changed.
type revisionView struct {
	*apiv1.Revision
	Changes []document.Change // the first of them
	Hidden  int               // number of the other changes
	Unknown bool              // the revision or the one before it is no longer kept
}

// Before returns the number of the revision before.
func (r revisionView) Before() int64 { return r.Number - 1 }

func (c *console) historyPage(v *visit) error {
	token := v.r.URL.Query().Get("page")
	view := historyView{Job: v.r.PathValue("name"), Paged: token != ""}
	list, err := c.revisions.ListRevisions(v.ctx, &apiv1.ListRevisionsRequest{
		App: v.app, Kind: job.KindJob, Name: view.Job, PageSize: historyPage, PageToken: token,
	})
	if err != nil {
		return err
	}
	view.Next = list.NextPageToken
	view.Done, _ = noticeOf[rolledBack](v)
	if view.Revisions, err = c.changesOf(v, list.Revisions); err != nil {
		return err
	}
	if len(list.Revisions) > 0 && !view.Paged {
		first := list.Revisions[0]
		view.Newest, view.Deleted = first.Number, first.Deleted
		if first.Deleted && len(list.Revisions) > 1 {
			view.Restore = list.Revisions[1].Number
		}
	}
	return c.show(v, "history", "jobs", view)
}

// changesOf compares each of some successive revisions, the newest first, with the one before
// it.
func (c *console) changesOf(v *visit, list []*apiv1.Revision) ([]revisionView, error) {
	if len(list) == 0 {
		return nil, nil
	}
	numbers := make([]int64, 0, len(list)+1)
	for _, r := range list {
		numbers = append(numbers, r.Number)
	}
	if last := numbers[len(numbers)-1]; last > 1 {
		numbers = append(numbers, last-1)
	}
	whole := make([]*apiv1.Revision, len(numbers)) // nil: it is no longer kept
	g, ctx := errgroup.WithContext(v.ctx)
	g.SetLimit(historyCalls)
	for i, n := range numbers {
		g.Go(func() error {
			r, err := c.revisions.GetRevision(ctx, &apiv1.GetRevisionRequest{App: v.app, Kind: job.KindJob, Name: v.r.PathValue("name"), Number: n})
			if status.Code(err) == codes.NotFound {
				return nil
			}
			whole[i] = r
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	views := make([]revisionView, len(list))
	for i, r := range list {
		views[i] = revisionView{Revision: r}
		var before *apiv1.Revision
		if i+1 < len(whole) {
			before = whole[i+1]
		}
		// A job that was created again meanwhile has other revisions with the same numbers.
		if whole[i] == nil || before == nil && r.Number > 1 || !whole[i].At.AsTime().Equal(r.At.AsTime()) {
			views[i].Unknown = true
			continue
		}
		if r.Deleted {
			continue // every field is gone
		}
		changes := document.RevisionChanges(before, whole[i])
		shown := min(len(changes), shownChanges)
		views[i].Changes, views[i].Hidden = changes[:shown], len(changes)-shown
	}
	return views, nil
}

// compareView compares two revisions of a job.
type compareView struct {
	Job      string
	From, To *apiv1.Revision
	Changes  []document.Change
}

// comparePage compares the revisions from and to of the query. Without to it takes the newest
// one.
func (c *console) comparePage(v *visit) error {
	q := v.r.URL.Query()
	view := compareView{Job: v.r.PathValue("name")}
	from, err := revisionNumber(q.Get("from"))
	if err != nil {
		return err
	}
	to, err := c.newestRevision(v)
	if text := q.Get("to"); text != "" {
		to, err = revisionNumber(text)
	}
	if err != nil {
		return err
	}
	if view.From, err = c.revision(v, from); err != nil {
		return err
	}
	if view.To, err = c.revision(v, to); err != nil {
		return err
	}
	view.Changes = document.RevisionChanges(view.From, view.To)
	return c.show(v, "compare", "jobs", view)
}

func revisionNumber(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, status.Errorf(codes.InvalidArgument, "%.40q is not the number of a revision: the history of the job has them", text)
	}
	return n, nil
}

func (c *console) revision(v *visit, number int64) (*apiv1.Revision, error) {
	return c.revisions.GetRevision(v.ctx, &apiv1.GetRevisionRequest{App: v.app, Kind: job.KindJob, Name: v.r.PathValue("name"), Number: number})
}

func (c *console) newestRevision(v *visit) (int64, error) {
	name := v.r.PathValue("name")
	list, err := c.revisions.ListRevisions(v.ctx, &apiv1.ListRevisionsRequest{App: v.app, Kind: job.KindJob, Name: name, PageSize: 1})
	switch {
	case err != nil:
		return 0, err
	case len(list.Revisions) == 0:
		return 0, status.Errorf(codes.NotFound, "job %s has not changed since its changes are recorded", name)
	}
	return list.Revisions[0].Number, nil
}

// rollbackView asks for confirmation of a roll-back.
type rollbackView struct {
	Job     string
	To      *apiv1.Revision
	Restore bool              // the job is deleted
	Etag    string            // of the job that Changes start from; "" if it is deleted
	Changes []document.Change // what the roll-back would change
	Note    string
	Refused string // why the API would refuse the roll-back, or has refused it
	Moved   bool   // the job was changed after the visitor was asked
	TooLong int    // bytes of a note that is too long
}

// May reports whether the page offers the roll-back.
func (r rollbackView) May() bool { return r.Refused == "" && (r.Restore || len(r.Changes) > 0) }

func (c *console) rollbackPage(v *visit) error {
	return c.askRollback(v, http.StatusOK, rollbackView{})
}

// askRollback shows what a roll-back would change. It asks the API first whether it would
// refuse it, so that a visitor without the permission gets the reason instead of the button.
func (c *console) askRollback(v *visit, code int, view rollbackView) error {
	view.Job = v.r.PathValue("name")
	to, err := c.target(v)
	if err != nil {
		return err
	}
	view.To = to
	now, err := c.jobs.GetJob(v.ctx, &apiv1.GetJobRequest{App: v.app, Name: view.Job})
	switch status.Code(err) {
	case codes.OK:
		view.Etag = now.Etag
		view.Changes = document.Changes(now, to.Job)
	case codes.NotFound:
		view.Restore = true
		view.Changes = document.RevisionChanges(nil, to)
	default:
		return err
	}
	if view.Refused == "" {
		_, err := c.jobs.ApplyJob(v.ctx, &apiv1.ApplyJobRequest{Job: job.Definition(to.Job), DryRun: true})
		if err != nil && !refusal(err) {
			return err
		}
		view.Refused = status.Convert(err).Message()
	}
	return c.showStatus(v, code, "rollback", "jobs", view)
}

// target returns the revision of the address, which is none of a deletion.
func (c *console) target(v *visit) (*apiv1.Revision, error) {
	n, err := revisionNumber(v.r.PathValue("number"))
	if err != nil {
		return nil, err
	}
	to, err := c.revision(v, n)
	if err == nil && to.GetJob() == nil {
		err = status.Errorf(codes.FailedPrecondition, "revision %d is the deletion of job %s: choose another one", n, v.r.PathValue("name"))
	}
	return to, err
}

// refusal reports whether the API refuses a definition, so that repeating the call is of no use.
func refusal(err error) bool {
	return slices.Contains([]codes.Code{codes.InvalidArgument, codes.FailedPrecondition, codes.PermissionDenied, codes.ResourceExhausted, codes.NotFound}, status.Code(err))
}

// rollback makes a job what it was after a revision, unless the job has changed since the
// visitor was asked.
func (c *console) rollback(v *visit) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	view := rollbackView{Note: strings.ReplaceAll(v.r.PostForm.Get("note"), "\r\n", "\n")} // browsers send CRLF
	if n := len(view.Note); n > maxNote {
		view.TooLong = n
		return c.askRollback(v, http.StatusUnprocessableEntity, view)
	}
	to, err := c.target(v)
	if err != nil {
		return err
	}
	headers := []string{"wheelwork-rollback", strconv.FormatInt(to.Number, 10)}
	if view.Note != "" {
		headers = append(headers, "wheelwork-note", url.PathEscape(view.Note))
	}
	ctx := metadata.AppendToOutgoingContext(v.ctx, headers...)
	if etag := v.r.PostForm.Get("etag"); etag != "" {
		_, err = c.jobs.ApplyJob(ctx, &apiv1.ApplyJobRequest{Job: job.Definition(to.Job), IfMatch: etag})
	} else {
		_, err = c.jobs.CreateJob(ctx, &apiv1.CreateJobRequest{Job: job.Definition(to.Job)})
	}
	switch {
	case err == nil:
		v.redirectWith(href("apps", v.app, "jobs", v.r.PathValue("name"), "history"), rolledBack(to.Number))
		return nil
	case status.Code(err) == codes.Aborted || status.Code(err) == codes.AlreadyExists:
		view.Moved = true
		return c.askRollback(v, http.StatusConflict, view)
	case status.Code(err) != codes.PermissionDenied && refusal(err):
		view.Refused = status.Convert(err).Message()
		return c.askRollback(v, http.StatusUnprocessableEntity, view)
	}
	return err
}

// did says what a revision did.
func (w words) did(r *apiv1.Revision) (string, error) {
	switch {
	case r.GetDeleted():
		return w.texts.text("history.deleted")
	case r.GetRollback() > 0:
		return w.texts.text("history.rolledback", r.GetRollback())
	case r.GetNumber() == 1:
		return w.texts.text("history.created")
	}
	return w.texts.text("history.updated")
}

// program says what program made a revision. It shows one that the console does not know as
// the client has named it.
func (w words) program(cause string) string {
	if t, ok := w.texts["history.cause."+cause]; ok {
		return t
	}
	return cause
}
