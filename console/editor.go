package console

import (
	"errors"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/document"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/schedule"
)

const (
	// maxEditor bounds the form of the editor, in bytes. The text area takes 400 000 characters,
	// each of which is at most 9 bytes in a form.
	maxEditor = 4 << 20
	// checkedTimes is the number of planned times that a check shows.
	checkedTimes = 5
	// ownerLabel is the label of definitions that `wheelwork apply --owner` manages.
	ownerLabel = "wheelwork/owner"
	// newJob is the name of a job whose address is that of the page that creates one.
	newJob = "new"
	// maxName bounds the name of a job, as the API does.
	maxName = 128
)

// editorView is the page that creates or changes a job.
type editorView struct {
	Job      string // the job that is changed; "": a new one is created
	From     string // the job that the text is a copy of
	Text     string // the document
	Etag     string // of the definition that the text was made from; "": a new job
	Revision int64  // of that definition; 0: a new job
	Owner    string // the set of documents that the job belongs to; "": none
	Gone     string // name of the job that was deleted while the visitor changed it
	Named    bool   // there is a job whose address this page has
	Failed   string // why a call failed, other than by the text
	Form     formView
	Check    checkView
}

// checkView is the result of a check: problems, or what the valid text means.
type checkView struct {
	Problems []problemView
	Job      *apiv1.Job  // nil while there are problems
	Times    []time.Time // planned times, in the zone of the visitor
}

// problemView is a mistake in the text.
type problemView struct {
	Line int // from 1; 0: it belongs to no line
	Text string
}

// reviewView shows what saving the text would change.
type reviewView struct {
	editorView
	Changes []document.Change
	Note    string
	TooLong int               // bytes of a note that is too long
	Moved   *apiv1.Job        // the job, if another caller has changed it since the text was made
	Others  []document.Change // what that caller changed; nil: the former definition is not known
}

// jobSaved is a notice: the number of the revision.
type jobSaved int64

// newJobPage shows the editor with a first text: a copy of the job from of the query, or a sample.
func (c *console) newJobPage(v *visit) error {
	q := v.r.URL.Query()
	if q.Has("job") || q.Has("format") {
		v.r.SetPathValue("name", newJob)
		return c.jobPage(v)
	}
	if err := c.mayEdit(v); err != nil {
		return err
	}
	view := &editorView{From: q.Get("from")}
	first := c.sampleJob(v)
	if view.From != "" {
		from, err := c.jobs.GetJob(v.ctx, &apiv1.GetJobRequest{App: v.app, Name: view.From})
		if err != nil {
			return err
		}
		first = copyOf(from)
	}
	_, err := c.jobs.GetJob(v.ctx, &apiv1.GetJobRequest{App: v.app, Name: newJob})
	view.Named = err == nil
	return c.openEditor(v, view, first, nil)
}

// mayEdit returns the error for a visitor without the permission to change a job.
func (c *console) mayEdit(v *visit) error {
	if c.visitor(v).May("jobs.write", v.app) {
		return nil
	}
	return status.Errorf(codes.PermissionDenied, "a change of the jobs of app %s takes the permission jobs.write", v.app)
}

func (c *console) editJobPage(v *visit) error {
	if err := c.mayEdit(v); err != nil {
		return err
	}
	stored, err := c.jobs.GetJob(v.ctx, &apiv1.GetJobRequest{App: v.app, Name: v.r.PathValue("name")})
	if err != nil {
		return err
	}
	view := &editorView{Job: stored.Name, Etag: stored.Etag, Revision: stored.Revision, Owner: stored.Labels[ownerLabel]}
	return c.openEditor(v, view, job.Definition(stored), stored)
}

// openEditor shows a definition in the editor.
func (c *console) openEditor(v *visit, view *editorView, first, stored *apiv1.Job) error {
	kind, err := document.Find(document.DefaultKind)
	if err != nil {
		return err
	}
	text, err := document.Marshal(document.Of(kind, first))
	if err != nil {
		return err
	}
	view.Text = string(text)
	if _, err := c.check(v, view, stored); err != nil {
		return err
	}
	return c.show(v, "editor", "jobs", view)
}

// sampleJob returns a definition that a visitor can start from: of a module of the app, or of a
// request if the app has no module.
func (c *console) sampleJob(v *visit) *apiv1.Job {
	first := &apiv1.Job{
		App: v.app, Name: "my-job", Schedule: &apiv1.Schedule{Cron: "30 2 * * *", Zone: zoneOf(v.r).String()},
		Handler: &apiv1.Handler{Name: "builtin:http", Http: &apiv1.HTTPCall{Url: "https://example.com/"}},
	}
	if v.app == "default" {
		first.App = ""
	}
	answer, err := c.modules.ListModules(v.ctx, &apiv1.ListModulesRequest{App: v.app})
	if err == nil && len(answer.Modules) > 0 {
		m := answer.Modules[0]
		first.Handler = &apiv1.Handler{Module: m.Name + "@" + m.Version}
		if len(m.Handlers) > 0 {
			first.Handler.Name = m.Handlers[0]
		}
	}
	return first
}

// copyOf returns the definition of a job under another name. The copy does not belong to the set
// of documents of the job, because the next apply of that set would delete it.
func copyOf(from *apiv1.Job) *apiv1.Job {
	const suffix = "-copy"
	to := job.Definition(from)
	to.Name = to.Name[:min(len(to.Name), maxName-len(suffix))] + suffix
	maps.DeleteFunc(to.Labels, func(key, _ string) bool { return key == ownerLabel })
	return to
}

// check reads the text and asks the API whether it would accept the definition. It returns the
// document, nil if there are problems, which it puts into the view. stored is the job that the
// text changes; nil: it creates one.
func (c *console) check(v *visit, view *editorView, stored *apiv1.Job) (*document.Document, error) {
	view.Check, view.Form = checkView{}, jobFormOf(view.Text, view.Job != "")
	d, problems := readDocument(view.Text, v.app, stored)
	if len(problems) > 0 {
		view.Check.Problems = problems
		return nil, nil
	}
	spec := d.Spec.(*apiv1.Job)
	answer, err := c.jobs.ApplyJob(v.ctx, &apiv1.ApplyJobRequest{Job: proto.CloneOf(spec), DryRun: true})
	switch {
	case status.Code(err) == codes.PermissionDenied:
		return nil, err
	case refusal(err) || status.Code(err) == codes.Aborted:
		view.Check.Problems = []problemView{refusedAt(d, err)}
		return nil, nil
	case err != nil:
		return nil, err
	case stored == nil && answer.Result != "created":
		view.Check.Problems = []problemView{{Line: d.FieldAt("name").Line, Text: "name: job " + d.Name + " exists: choose another name, or change that job"}}
		return nil, nil
	}
	view.Check.Job = spec
	view.Check.Times, err = c.plannedTimes(v, spec, stored)
	return d, err
}

// readDocument reads the one job of a text, which must be the stored one unless that is nil.
func readDocument(text, app string, stored *apiv1.Job) (*document.Document, []problemView) {
	kind, err := document.Find(document.DefaultKind)
	if err != nil {
		return nil, []problemView{{Text: err.Error()}}
	}
	d, problems := oneDocument(kind, text, app)
	if len(problems) > 0 {
		return nil, problems
	}
	if stored == nil {
		return d, nil
	}
	if d.Name != stored.Name {
		return nil, []problemView{{d.FieldAt("name").Line, "name: the name of job " + stored.Name + " cannot change: clone the job to rename it"}}
	}
	if spec := d.Spec.(*apiv1.Job); spec.Paused == nil && stored.GetPaused() {
		spec.Paused = new(false) // without the field the job would stay paused, and the text would not say so
	}
	return d, nil
}

// oneDocument reads the one document of a text. It is of a kind and of an app.
func oneDocument(kind *document.Kind, text, app string) (*document.Document, []problemView) {
	all, err := document.Parse(strings.NewReader(text), document.Options{Kind: kind, Only: true, NoFiles: true})
	var problems document.Problems
	switch {
	case errors.As(err, &problems):
		views := make([]problemView, len(problems))
		for i, p := range problems {
			views[i] = problemView{p.At.Line, p.Text}
		}
		return nil, views
	case err != nil:
		return nil, []problemView{{Text: err.Error()}}
	case len(all) == 0:
		return nil, []problemView{{Text: "the text is empty: want one document"}}
	case len(all) > 1:
		return nil, []problemView{{all[1].At.Line, "want one document, found " + strconv.Itoa(len(all))}}
	}
	d := all[0]
	if d.App == "" {
		d.SetApp(app)
	}
	if d.App != app {
		return nil, []problemView{{d.FieldAt("app").Line, "app: this page is about app " + app + ": go to the other app first"}}
	}
	return d, nil
}

// fieldPath matches what may be the path of a field in a sentence of the API.
var fieldPath = regexp.MustCompile(`[a-z_]+(?:\.[a-z_]+|\[\d+\])+|[a-z_]+:`)

// indexes matches the indexes in the path of a field.
var indexes = regexp.MustCompile(`\[\d+\]`)

// refusedAt returns the refusal of a document, with the line of the field that it names.
func refusedAt(d *document.Document, err error) problemView {
	p := problemView{Text: status.Convert(err).Message()}
	for _, path := range fieldPath.FindAllString(p.Text, -1) {
		path = strings.TrimSuffix(path, ":")
		if d.Kind.Field(indexes.ReplaceAllString(path, "")) != nil {
			p.Line = d.FieldAt(path).Line
			break
		}
	}
	return p
}

// plannedTimes returns the next planned times of a job as it would be saved, in the zone of the
// visitor. A schedule that stays as it is retains the next time that the server has planned.
func (c *console) plannedTimes(v *visit, next, stored *apiv1.Job) ([]time.Time, error) {
	if next.GetPaused() || next.Schedule == nil {
		return nil, nil
	}
	calendars, err := c.calendars(v, next.Schedule)
	if err != nil {
		return nil, err
	}
	var times []time.Time
	if stored.GetNextAt() != nil && proto.Equal(stored.Schedule, next.Schedule) {
		times = upcoming(stored, calendars, time.Now(), checkedTimes)
	} else {
		plan, err := schedule.NewPlan(next, calendars)
		if err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		most := int64(checkedTimes)
		if n := next.Schedule.MaxRuns; n > 0 {
			most = min(most, n)
		}
		for t, ok := plan.First(time.Now()); ok && int64(len(times)) < most; t, ok = plan.After(t) {
			times = append(times, t)
		}
	}
	for i := range times {
		times[i] = times[i].In(zoneOf(v.r).Location)
	}
	return times, nil
}

// editJob handles the forms of the editor and of its review. It shows the text again after every
// error.
func (c *console) editJob(v *visit) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	form := v.r.PostForm
	revision, _ := strconv.ParseInt(form.Get("revision"), 10, 64)
	view := &editorView{
		Job: v.r.PathValue("name"), Text: takeOver(strings.ReplaceAll(form.Get("text"), "\r\n", "\n"), form), // browsers send CRLF
		Etag: form.Get("etag"), Revision: revision,
	}
	if err := c.editStep(v, view, form.Get("do")); err != nil {
		return c.showAgain(v, err, &view.Failed, func(code int) error { return c.showStatus(v, code, "editor", "jobs", view) })
	}
	return nil
}

// showAgain handles the error of an editor: it puts the sentence of the error into the view, and shows the view. If the
// session has ended, the page to sign in keeps the form.
func (c *console) showAgain(v *visit, err error, failed *string, show func(code int) error) error {
	if status.Code(err) == codes.Unauthenticated {
		if err := c.sessions.remove(v.session.key); err != nil {
			c.log.ErrorContext(v.ctx, "an ended session cannot be removed from the storage", "error", err)
		}
		c.keepForLogin(v.w, v.r)
		return nil
	}
	code := httpStatus(status.Convert(err))
	if code >= http.StatusInternalServerError {
		c.log.ErrorContext(v.ctx, "console page failed", "path", v.r.URL.Path, "error", err)
	}
	*failed = status.Convert(err).Message()
	return show(code)
}

// editStep checks the text, and goes on as the visitor wants: to the review, to the change, or back
// to the editor.
func (c *console) editStep(v *visit, view *editorView, do string) error {
	goesOn := do == "review" || do == "save"
	code := http.StatusOK // of a page with problems; a check that finds some has succeeded
	if goesOn {
		code = http.StatusUnprocessableEntity
	}
	var stored *apiv1.Job
	if view.Job != "" {
		var err error
		stored, err = c.jobs.GetJob(v.ctx, &apiv1.GetJobRequest{App: v.app, Name: view.Job})
		switch {
		case status.Code(err) == codes.NotFound:
			view.Gone, view.Job, view.Etag, view.Revision = view.Job, "", "", 0
			if goesOn {
				goesOn, code = false, http.StatusConflict
			}
		case err != nil:
			return err
		}
		view.Owner = stored.GetLabels()[ownerLabel]
	}
	d, err := c.check(v, view, stored)
	if err != nil {
		return err
	}
	if d == nil || !goesOn {
		return c.showStatus(v, code, "editor", "jobs", view)
	}
	review := &reviewView{editorView: *view, Note: strings.ReplaceAll(v.r.PostForm.Get("note"), "\r\n", "\n")}
	if do == "review" {
		return c.review(v, http.StatusOK, review, d, stored)
	}
	if n := len(review.Note); n > maxNote {
		review.TooLong = n
		return c.review(v, http.StatusUnprocessableEntity, review, d, stored)
	}
	return c.save(v, review, d, stored)
}

// review shows what saving a document would change. If the job is another one than that which the
// text was made from, it shows what has changed meanwhile as well.
func (c *console) review(v *visit, code int, view *reviewView, d *document.Document, stored *apiv1.Job) error {
	if stored == nil {
		view.Changes = document.Diff(nil, d)
		return c.showStatus(v, code, "review", "jobs", view)
	}
	now := document.Of(d.Kind, stored)
	view.Changes = document.Diff(now, d)
	if view.Etag != stored.Etag {
		view.Moved, code = stored, http.StatusConflict
		if view.Revision > 0 && view.Revision < stored.Revision {
			before, err := c.revision(v, view.Revision)
			if err == nil && before.GetJob() != nil {
				view.Others = document.Diff(document.Of(d.Kind, before.GetJob()), now)
			}
		}
	}
	view.Etag, view.Revision = stored.Etag, stored.Revision
	return c.showStatus(v, code, "review", "jobs", view)
}

// save applies a document, unless the job is another one than that which the visitor saw.
func (c *console) save(v *visit, view *reviewView, d *document.Document, stored *apiv1.Job) error {
	ctx := v.ctx
	if view.Note != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "wheelwork-note", url.PathEscape(view.Note))
	}
	spec := proto.CloneOf(d.Spec.(*apiv1.Job))
	var saved *apiv1.ApplyJobResponse
	var err error
	if stored == nil {
		saved, err = c.jobs.CreateJob(ctx, &apiv1.CreateJobRequest{Job: spec})
	} else {
		saved, err = c.jobs.ApplyJob(ctx, &apiv1.ApplyJobRequest{Job: spec, IfMatch: view.Etag})
	}
	switch {
	case err == nil:
		v.redirectWith(jobAddress(v.app, d.Name), jobSaved(saved.GetJob().GetRevision()))
		return nil
	case status.Code(err) == codes.Aborted && stored != nil:
		now, err := c.jobs.GetJob(v.ctx, &apiv1.GetJobRequest{App: v.app, Name: d.Name})
		if err != nil {
			return err
		}
		return c.review(v, http.StatusConflict, view, d, now)
	case status.Code(err) == codes.AlreadyExists:
		view.Check = checkView{Problems: []problemView{refusedAt(d, err)}}
		return c.showStatus(v, http.StatusConflict, "editor", "jobs", &view.editorView)
	case status.Code(err) != codes.PermissionDenied && refusal(err):
		view.Check = checkView{Problems: []problemView{refusedAt(d, err)}}
		return c.showStatus(v, http.StatusUnprocessableEntity, "editor", "jobs", &view.editorView)
	}
	return err
}

// jobAddress returns the address of the page of a job.
func jobAddress(app, name string) string {
	if name == newJob {
		return href("apps", app, "jobs", name) + "?job"
	}
	return href("apps", app, "jobs", name)
}
