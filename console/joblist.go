package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

const (
	// searchTime is how long one page looks for jobs that match before it offers to continue.
	searchTime = 50 * time.Millisecond
	// columnsCookie has the columns that the visitor chose for the list of jobs.
	columnsCookie = "wheelwork_job_columns"
)

// jobColumns returns the columns that a visitor may choose, in the order of the table. The name is
// always there.
func jobColumns() []string {
	return []string{"schedule", "next", "module", "owner", "labels", "last", "strip", "success", "p95", "live", "succeeded", "failed"}
}

// usualColumns returns the columns of a visitor that has chosen none.
func usualColumns() []string {
	return []string{"schedule", "next", "strip", "success", "p95", "live", "failed"}
}

// columnsOf returns the columns that the visitor chose.
func columnsOf(r *http.Request) []string {
	k, err := r.Cookie(columnsCookie)
	if err != nil {
		return usualColumns()
	}
	return knownColumns(strings.Split(k.Value, "."))
}

// knownColumns returns the columns of the table that are among names, in order.
func knownColumns(names []string) []string {
	return slices.DeleteFunc(jobColumns(), func(c string) bool { return !slices.Contains(names, c) })
}

// jobQuery is the choice of jobs that the address of the list has.
type jobQuery struct {
	Text, Prefix, Label, Paused, Failing, Owner, Module, Schedule, Sort string
}

func jobQueryOf(q url.Values) jobQuery {
	text := func(name string) string { return strings.TrimSpace(q.Get(name)) }
	return jobQuery{text("q"), text("prefix"), text("label"), text("paused"), text("failing"), text("owner"), text("module"), text("schedule"), text("sort")}
}

// Filtered reports whether the list may hide jobs.
func (q jobQuery) Filtered() bool {
	q.Sort = ""
	return q != jobQuery{}
}

// In returns the address of the list in an app, in an order.
func (q jobQuery) In(app, sort string) string { return q.page(app, sort, "") }

// Page returns the address of the page with a token.
func (q jobQuery) Page(app, token string) string { return q.page(app, q.Sort, token) }

// Bulk returns the address of the page that changes all jobs of the list.
func (q jobQuery) Bulk(app string) string { return q.at(href("apps", app, "bulk", "jobs"), "", "") }

func (q jobQuery) page(app, sort, token string) string {
	return q.at(href("apps", app, "jobs"), sort, token)
}

func (q jobQuery) at(address, sort, token string) string {
	return withQuery(address, "q", q.Text, "prefix", q.Prefix, "label", q.Label, "paused", q.Paused, "failing", q.Failing,
		"owner", q.Owner, "module", q.Module, "schedule", q.Schedule, "sort", sort, "page", token)
}

// request returns the request for a page of the list. why is the key of the text that says what is
// wrong with the query; "": nothing is.
func (q jobQuery) request(app, token string) (req *apiv1.ListJobsRequest, why string) {
	req = &apiv1.ListJobsRequest{
		App: app, Prefix: q.Prefix, Contains: q.Text, Owner: q.Owner, Module: q.Module, Schedule: q.Schedule, Failing: q.Failing != "", Order: q.Sort,
		PageToken: token, PageSize: pageSize,
	}
	if q.Paused != "" {
		req.Paused = proto.Bool(q.Paused == "yes")
	}
	for _, label := range strings.FieldsFunc(q.Label, func(r rune) bool { return r == ',' || r == ' ' }) {
		key, value, ok := strings.Cut(label, "=")
		if !ok || key == "" {
			return nil, "jobs.badlabel"
		}
		if req.Labels == nil {
			req.Labels = map[string]string{}
		}
		req.Labels[key] = value
	}
	return req, ""
}

// jobsView is the list of jobs.
type jobsView struct {
	jobQuery
	Rows     []jobRow
	Columns  []string
	Token    string // of this page; "": the first one
	Next     string // token of the next page
	Searched bool   // the page ended early, because it had looked long enough
	App      *apiv1.App
	Gone     string // name of the job that was just deleted
	Refused  string // why the server refused the query; "": it did not
	BadLabel bool
}

// jobRow is a job with its last runs.
type jobRow struct {
	*apiv1.Job
	Last strip
}

// Has reports whether the list has a column.
func (v jobsView) Has(column string) bool { return slices.Contains(v.Columns, column) }

// Number reports whether a column has numbers.
func (jobsView) Number(column string) bool {
	return slices.Contains([]string{"success", "p95", "live", "succeeded", "failed"}, column)
}

// Choices returns the columns that the visitor may choose.
func (jobsView) Choices() []string { return jobColumns() }

// Kinds returns the kinds of schedules.
func (jobsView) Kinds() []string { return job.ScheduleKinds() }

// Sums returns the counts of the jobs on the page.
func (v jobsView) Sums() *apiv1.JobStats {
	sum := &apiv1.JobStats{}
	for _, r := range v.Rows {
		sum.Live += r.GetStats().GetLive()
		sum.Succeeded += r.GetStats().GetSucceeded()
		sum.Failed += r.GetStats().GetFailed()
	}
	return sum
}

func (c *console) jobsPage(v *visit) error {
	q := v.r.URL.Query()
	view := jobsView{jobQuery: jobQueryOf(q), Columns: columnsOf(v.r), Token: q.Get("page")}
	gone, _ := noticeOf[jobDeleted](v)
	view.Gone = string(gone)
	req, why := view.request(v.app, view.Token)
	if why != "" {
		view.BadLabel = true
		return c.showStatus(v, http.StatusUnprocessableEntity, "jobs", "jobs", view)
	}
	var jobs []*apiv1.Job
	g, ctx := errgroup.WithContext(v.ctx)
	g.Go(func() (err error) {
		jobs, view.Next, err = c.findJobs(ctx, req, time.Now().Add(searchTime))
		return err
	})
	g.Go(func() error {
		view.App, _ = c.apps.GetApp(ctx, &apiv1.GetAppRequest{Name: v.app}) // without it the list has no total
		return nil
	})
	err := g.Wait()
	if refused, ok := mendable(err); ok && view.Sort != "" {
		view.Refused = refused
		return c.showStatus(v, http.StatusUnprocessableEntity, "jobs", "jobs", view)
	}
	if err != nil {
		return err
	}
	view.Searched = view.Next != "" && len(jobs) < pageSize && view.Filtered()
	for _, j := range jobs {
		view.Rows = append(view.Rows, jobRow{Job: j})
	}
	if (view.Has("strip") || view.Has("success") || view.Has("p95")) && c.visitor(v).May("runs.read", v.app) {
		for i, s := range c.strips(v.ctx, v.app, jobs, stripTime) {
			view.Rows[i].Last = s
		}
	}
	return c.show(v, "jobs", "jobs", view)
}

// findJobs returns a page of jobs and the token of the next one. Each call of the API examines a
// bounded number of jobs, so it repeats the call until the page is full, the list ends or the time
// is over.
func (c *console) findJobs(ctx context.Context, req *apiv1.ListJobsRequest, until time.Time) (jobs []*apiv1.Job, next string, err error) {
	for {
		answer, err := c.jobs.ListJobs(ctx, req)
		if err != nil {
			return nil, "", err
		}
		jobs, next = append(jobs, answer.Jobs...), answer.NextPageToken
		if next == "" || len(jobs) >= pageSize || !time.Now().Before(until) {
			return jobs, next, nil
		}
		req.PageToken, req.PageSize = next, int32(pageSize-len(jobs))
	}
}

// chooseColumns stores the columns that a visitor chose for the list of jobs.
func (c *console) chooseColumns(w http.ResponseWriter, chosen []string, life time.Duration) {
	c.setCookie(w, columnsCookie, strings.Join(knownColumns(chosen), "."), life)
}
