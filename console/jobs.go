package console

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/schedule"
)

// jobDeleted is a notice: the name of the job.
type jobDeleted string

// The tabs of the page of a job, as its parameter tab; the first is the default.
const (
	tabRuns       = "runs"
	tabSchedule   = "schedule"
	tabCalendar   = "calendar"
	tabDuration   = "duration"
	tabDefinition = "definition"
	tabAccess     = "access"
)

type jobView struct {
	*apiv1.Job
	Tab        string
	Runs       []*apiv1.Run // the latest runs, newest first
	Unreadable int32        // damaged blocks of the history that the list skipped
	Times      []time.Time  // planned times of the next runs
	Alerts     jobAlerts
	Planned    *scheduleView
	Heat       *heatView
	Durations  *durationView
	Access     *jobAccess
	MayAccess  bool // the visitor may read the bindings of the app
	Definition string
	Format     string // yaml or json
	Saved      bool   // the definition was just saved
}

// Tabs returns the names of the tabs that the visitor may open, in order.
func (v jobView) Tabs() []string {
	all := []string{tabRuns, tabSchedule, tabCalendar, tabDuration, tabDefinition}
	if v.MayAccess {
		all = append(all, tabAccess)
	}
	return all
}

// Strip returns the latest runs in order of time, for the row of status marks.
func (v jobView) Strip() []*apiv1.Run { return oldestFirst(v.Runs) }

// tabOf returns the tab that an address names. An address with a format is of the definition.
func tabOf(q url.Values) string {
	switch tab := q.Get("tab"); {
	case slices.Contains(jobView{MayAccess: true}.Tabs(), tab):
		return tab
	case q.Get("format") != "":
		return tabDefinition
	}
	return tabRuns
}

func (c *console) jobPage(v *visit) error {
	view := jobView{Tab: tabOf(v.r.URL.Query()), MayAccess: c.visitor(v).May("access.read", v.app)}
	g, ctx := errgroup.WithContext(v.ctx)
	g.Go(func() (err error) {
		view.Job, err = c.jobs.GetJob(ctx, &apiv1.GetJobRequest{App: v.app, Name: v.r.PathValue("name")})
		return err
	})
	g.Go(func() error { return c.fillRuns(ctx, v, &view) })
	if err := g.Wait(); err != nil {
		return err
	}
	if view.Tab == tabRuns && c.visitor(v).May("alerts.read", v.app) {
		var err error
		if view.Alerts, err = c.alertsOfJob(v.ctx, v.app, view.Job); err != nil {
			return err
		}
	}
	if err := c.fillTimes(v, &view); err != nil {
		return err
	}
	_, view.Saved = noticeOf[jobSaved](v)
	return c.show(v, "job", "jobs", view)
}

// fillRuns puts into a view what its tab shows of the runs of the job.
func (c *console) fillRuns(ctx context.Context, v *visit, view *jobView) (err error) {
	name := v.r.PathValue("name")
	switch view.Tab {
	case tabRuns:
		answer, err := c.runs.ListRuns(ctx, &apiv1.ListRunsRequest{App: v.app, Job: name, PageSize: stripRuns})
		view.Runs, view.Unreadable = answer.GetRuns(), answer.GetUnreadableBlocks()
		return err
	case tabDuration:
		view.Durations, err = c.durationTab(ctx, v, name)
	case tabCalendar:
		view.Heat, err = c.heatTab(v, name, time.Now().In(zoneOf(v.r).Location))
	}
	return err
}

// fillTimes puts into a view what its tab shows of the definition of the job.
func (c *console) fillTimes(v *visit, view *jobView) (err error) {
	const shownTimes = 8
	switch view.Tab {
	case tabRuns, tabSchedule:
		calendars, err := c.calendars(v, view.Schedule)
		if err != nil {
			return err
		}
		if view.Tab == tabSchedule {
			view.Planned, err = c.scheduleTab(v, view.Job, calendars, time.Now())
			return err
		}
		view.Times = upcoming(view.Job, calendars, time.Now(), shownTimes)
	case tabAccess:
		view.Access, err = c.accessTab(v)
	case tabDefinition:
		view.Format = "yaml"
		if v.r.URL.Query().Get("format") == "json" {
			view.Format = "json"
		}
		view.Definition, err = definition(view.Job, view.Format)
	}
	return err
}

// calendars fetches the calendars that a schedule names.
func (c *console) calendars(v *visit, s *apiv1.Schedule) (schedule.Calendars, error) {
	found := map[string]*schedule.Calendar{}
	for _, name := range slices.Concat(s.GetInclude(), s.GetExclude()) {
		answer, err := c.dates.GetCalendar(v.ctx, &apiv1.GetCalendarRequest{App: v.app, Name: name})
		if err != nil {
			return nil, err
		}
		if found[name], err = schedule.CompileCalendar(answer); err != nil {
			return nil, err
		}
	}
	return func(name string) *schedule.Calendar { return found[name] }, nil
}

// definition writes a job in the format that `wheelwork job apply` reads. It omits the
// fields that the server sets.
func definition(j *apiv1.Job, format string) (string, error) {
	compact, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(job.Definition(j))
	if err != nil {
		return "", err
	}
	if format == "json" {
		var b bytes.Buffer
		err := json.Indent(&b, compact, "", "  ")
		return b.String(), err
	}
	return yamlOf(compact)
}

// yamlOf returns JSON as YAML.
func yamlOf(text []byte) (string, error) {
	var doc yaml.Node // JSON is YAML; the node preserves the order of the fields
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return "", err
	}
	blockStyle(&doc)
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	err := enc.Encode(&doc)
	return b.String(), err
}

// blockStyle gives a document that was parsed from JSON the style of handwritten YAML. A
// text keeps its quotes only where it would otherwise be parsed as another type. The
// encoder knows all such texts except the booleans of older YAML.
func blockStyle(n *yaml.Node) {
	n.Style = 0
	switch strings.ToLower(n.Value) {
	case "yes", "no", "on", "off", "y", "n":
		n.Style = yaml.DoubleQuotedStyle
	}
	for _, c := range n.Content {
		blockStyle(c)
	}
}

// runJob triggers a run. An empty field of the form means the job's own input.
func (c *console) runJob(v *visit) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	req := &apiv1.TriggerJobRequest{App: v.app, Name: v.r.PathValue("name")}
	if input := v.r.PostForm.Get("input"); input != "" {
		req.Input = proto.String(input)
	}
	run, err := c.jobs.TriggerJob(v.ctx, req)
	if err != nil {
		return err
	}
	v.redirect(href("apps", v.app, "runs", run.Id))
	return nil
}

func (v *visit) parseForm() error {
	if err := v.r.ParseForm(); err != nil {
		return status.Errorf(codes.InvalidArgument, "read the form: %v", err)
	}
	return nil
}

func (c *console) resumeJob(v *visit) error {
	name := v.r.PathValue("name")
	if _, err := c.jobs.ResumeJob(v.ctx, &apiv1.ResumeJobRequest{App: v.app, Name: name}); err != nil {
		return err
	}
	v.redirect(href("apps", v.app, "jobs", name))
	return nil
}

// confirmView asks for confirmation of an irreversible action.
type confirmView struct {
	Question string // key of the catalogue; its parameter is the subject
	Effect   string // key of the text about the consequences
	Button   string // key of the button's text
	Subject  string
	Back     string // target of the answer no
	Names    []nameView
	Force    bool // the button deletes although the listed things need the subject
}

// nameView is a job, an alias or another thing that needs the subject.
type nameView struct {
	Text string // as the API writes it: "job totals"
	Page string // address of its page; empty: it has none
}

// namesOf returns the things that need the subject of a refused deletion, from the API's
// error; nil for other errors.
func namesOf(err error, app string) []nameView {
	for _, d := range status.Convert(err).Details() {
		r, ok := d.(*apiv1.Refusal)
		if !ok || r.Reason != "referenced" {
			continue
		}
		names := make([]nameView, 0, len(r.Names))
		for _, text := range r.Names {
			view := nameView{Text: text}
			if name, ok := strings.CutPrefix(text, "job "); ok {
				view.Page = href("apps", app, "jobs", name)
			}
			names = append(names, view)
		}
		return names
	}
	return nil
}

func (c *console) deleteJobPage(v *visit) error {
	name := v.r.PathValue("name")
	if _, err := c.jobs.GetJob(v.ctx, &apiv1.GetJobRequest{App: v.app, Name: name}); err != nil {
		return err
	}
	return c.show(v, "confirm", "jobs", confirmView{
		Question: "delete.question", Effect: "delete.effect", Button: "delete.button",
		Subject: name, Back: href("apps", v.app, "jobs", name),
	})
}

// deleteJob deletes a job. When other jobs need it, the page lists them and asks again;
// the form of that page contains force.
func (c *console) deleteJob(v *visit) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	name := v.r.PathValue("name")
	_, err := c.jobs.DeleteJob(v.ctx, &apiv1.DeleteJobRequest{App: v.app, Name: name, Force: v.r.PostForm.Get("force") == "yes"})
	if names := namesOf(err, v.app); len(names) > 0 {
		return c.showStatus(v, http.StatusConflict, "confirm", "jobs", confirmView{
			Question: "delete.needed.question", Effect: "delete.needed.effect", Button: "delete.needed.button",
			Subject: name, Back: href("apps", v.app, "jobs", name), Names: names, Force: true,
		})
	}
	if err != nil {
		return err
	}
	v.redirectWith(href("apps", v.app, "jobs"), jobDeleted(name))
	return nil
}
