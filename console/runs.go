package console

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

type runsView struct {
	runFilter
	scanned
	Runs    []*apiv1.Run
	Paged   bool         // this is not the first page
	Jobs    []*apiv1.Job // some that the visitor may run, when there is no run
	Refused string       // why the filter cannot be used
}

// offeredJobs bounds the jobs that an empty list of runs offers to run.
const offeredJobs = 5

// Scanned reports whether the page is a slice of a search.
func (v runsView) Scanned() bool { return v.reads() || v.searches() }

func (c *console) runsPage(v *visit) error {
	page := v.r.URL.Query().Get("page")
	f, err := readRunFilter(v, "", time.Now())
	view := runsView{runFilter: f, Paged: page != ""}
	if err == nil {
		err = c.findRuns(v, page, &view)
	}
	if view.Refused = status.Convert(err).Message(); status.Code(err) == codes.InvalidArgument {
		return c.showStatus(v, http.StatusBadRequest, "runs", "runs", view)
	}
	if err != nil {
		return err
	}
	if len(view.Runs) == 0 && !view.Set() && !view.Paged && c.visitor(v).May("jobs.trigger", v.app) {
		if jobs, err := c.jobs.ListJobs(v.ctx, &apiv1.ListJobsRequest{App: v.app, PageSize: offeredJobs}); err == nil { // the list is complete without
			view.Jobs = jobs.Jobs
		}
	}
	return c.show(v, "runs", "runs", view)
}

// findRuns fetches a page of the runs that match.
func (c *console) findRuns(v *visit, page string, view *runsView) (err error) {
	req := view.request(v.app)
	if view.Scanned() {
		scan := c.slice()
		if view.searches() {
			scan.page = pageSize // the API examines no run that the page has no room for
		}
		view.scanned, err = scan.each(v.ctx, req, page, func(r *apiv1.Run) bool {
			if view.keeps(r) {
				view.Runs = append(view.Runs, r)
			}
			return len(view.Runs) < pageSize
		})
		return err
	}
	req.PageToken, req.PageSize = page, pageSize
	answer, err := c.runs.ListRuns(v.ctx, req)
	view.Runs, view.Next, view.Unreadable = answer.GetRuns(), answer.GetNextPageToken(), answer.GetUnreadableBlocks()
	return err
}

type runView struct {
	*apiv1.Run
	Input, Output payload
	Lanes         []lane
	Live          bool                      // not terminal: the page follows the run
	Why           *apiv1.ExplainRunResponse // explanation for a waiting run; nil: it does not wait
	Shown         []*apiv1.Run              // some of its parts, in order
	NextPart      int32                     // the first part after those shown; 0: none
	Commands      commandView               // that start the job again with this input
	Graph         *graph                    // of a workflow; nil: it is not drawn
	Grid          *partGrid                 // nil: it has no parts, or too many
}

// Bars returns the kinds of bars of the timeline.
func (v runView) Bars() []string { return barKinds(v.Lanes) }

// Failed reports whether the run has ended without success.
func (v runView) Failed() bool { return !v.Live && job.State(v.State) != job.Succeeded }

// Leads reports whether the run has parts.
func (v runView) Leads() bool { return v.Parts > 0 && v.Parent == "" }

// Led reports whether other runs execute this one.
func (v runView) Led() bool { return leads(v.Run) }

// LiveParts returns the number of parts that have not ended.
func (v runView) LiveParts() int32 { return v.Parts - v.PartsSucceeded - v.PartsFailed }

// Percent returns the progress of a run with a known total, otherwise -1.
func (v runView) Percent() int64 {
	p := v.GetProgress()
	if p.GetTotal() <= 0 {
		return -1
	}
	return max(0, min(100, 100*p.Done/p.Total))
}

// Unhappy reports whether the page shows a failure first. This includes the failure of an
// earlier attempt while the run waits for a retry.
func (v runView) Unhappy() bool {
	return v.Error != "" && job.State(v.State) != job.Succeeded
}

func (c *console) runPage(v *visit) error {
	run, err := c.runs.GetRun(v.ctx, &apiv1.GetRunRequest{App: v.app, Id: v.r.PathValue("id")})
	if err != nil {
		return err
	}
	view := runView{
		Run:      run,
		Input:    newPayload(run.Input, run.InputBytes),
		Output:   newPayload(run.Output, run.OutputBytes),
		Lanes:    timeline(run, time.Now()),
		Live:     !job.State(run.State).Terminal(),
		Commands: commands(run, c.origin(v.r), c.visitor(v).May("payload.read", v.app)),
	}
	if view.Live && job.State(run.State) != job.Running { // says more than the states dispatched and sleeping
		if view.Why, err = c.runs.ExplainRun(v.ctx, &apiv1.ExplainRunRequest{App: v.app, Id: run.Id}); err != nil {
			return err
		}
	}
	if len(run.Nodes) > 0 {
		view.Graph = drawGraph(c.definitionOf(v, run), run.Nodes)
	}
	if view.Leads() {
		if view.Grid, err = c.gridOf(v, run, v.r.URL.Query().Get("cells"), time.Now().Add(gridTime)); err != nil {
			return err
		}
		if err := c.parts(v, &view); err != nil {
			return err
		}
	}
	return c.show(v, "run", "runs", view)
}

// parts fetches some parts of a run, whose ids derive from the run's id. A retried run
// has only the parts that had not succeeded before.
func (c *console) parts(v *visit, view *runView) error {
	id, err := job.ParseRunID(view.Id)
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	first, _ := strconv.ParseInt(v.r.URL.Query().Get("part"), 10, 32) // 0 if it is not a number
	from := int32(max(0, min(first, int64(view.Parts))))
	end := min(from+pageSize, view.Parts)
	if end < view.Parts {
		view.NextPart = end
	}
	found := make([]*apiv1.Run, end-from)
	g, ctx := errgroup.WithContext(v.ctx)
	g.SetLimit(8)
	for i := range found {
		part := job.PartID(v.app, view.Job, stamp(view.PlannedAt), id, from+int32(i))
		g.Go(func() error {
			run, err := c.runs.GetRun(ctx, &apiv1.GetRunRequest{App: v.app, Id: part.String()})
			if status.Code(err) == codes.NotFound {
				return nil
			}
			found[i] = run
			return err
		})
	}
	err = g.Wait()
	view.Shown = slices.DeleteFunc(found, func(r *apiv1.Run) bool { return r == nil })
	return err
}

// payload is an input or output in a form for display.
type payload struct {
	Size   int64
	Text   string // at most the first shownPayload bytes
	Binary bool   // Text is a hex dump
	Cut    bool   // the payload is longer than Text
}

// shownPayload is the number of payload bytes on a page; the whole payload can be
// downloaded.
const shownPayload = 64 << 10

func newPayload(text string, raw []byte) payload {
	if len(raw) > 0 {
		const shownBinary = 1 << 10
		return payload{
			Size: int64(len(raw)), Text: hex.Dump(raw[:min(len(raw), shownBinary)]),
			Binary: true, Cut: len(raw) > shownBinary,
		}
	}
	p := payload{Size: int64(len(text)), Text: text}
	if len(text) > shownPayload {
		p.Cut = true
		end := shownPayload
		for !utf8.RuneStart(text[end]) {
			end--
		}
		p.Text = showNUL(text[:end])
		return p
	}
	// Indent does not parse numbers, so large ones stay exact.
	var b bytes.Buffer
	if len(text) > 0 && (text[0] == '{' || text[0] == '[') && json.Indent(&b, []byte(text), "", "  ") == nil {
		p.Text = b.String()
	}
	p.Text = showNUL(p.Text)
	return p
}

func (c *console) runInput(v *visit) error {
	return c.download(v, "input", func(r *apiv1.Run) (string, []byte) { return r.Input, r.InputBytes })
}

func (c *console) runOutput(v *visit) error {
	return c.download(v, "output", func(r *apiv1.Run) (string, []byte) { return r.Output, r.OutputBytes })
}

func (c *console) download(v *visit, what string, part func(*apiv1.Run) (string, []byte)) error {
	run, err := c.runs.GetRun(v.ctx, &apiv1.GetRunRequest{App: v.app, Id: v.r.PathValue("id")})
	if err != nil {
		return err
	}
	text, raw := part(run)
	if len(raw) > 0 {
		attachment(v.w, run.Id+"-"+what+".bin", "application/octet-stream")
		_, _ = v.w.Write(raw)
		return nil
	}
	attachment(v.w, run.Id+"-"+what+".txt", "text/plain; charset=utf-8")
	_, _ = io.WriteString(v.w, text)
	return nil
}

// logQuery selects lines of a log.
type logQuery struct {
	search string // a part of the text, in any case
	least  int    // index of the lowest level
}

// logLevels are the levels of lines, the lowest first.
var logLevels = []string{"debug", "info", "warn", "error"}

func (q logQuery) keeps(l *apiv1.LogLine) bool {
	level := slices.Index(logLevels, l.Level)
	return (level < 0 || level >= q.least) && holds(withoutColours(l.Text), q.search)
}

// runLog sends the log: the whole as a file, or as a page the lines that the visitor selects.
func (c *console) runLog(v *visit) error {
	id, query := v.r.PathValue("id"), v.r.URL.Query()
	q := logQuery{search: query.Get("search")}
	if level := query.Get("level"); level != "" {
		if q.least = slices.Index(logLevels, level); q.least < 0 {
			return status.Errorf(codes.InvalidArgument, "there is no level %.40q: want one of %s", level, strings.Join(logLevels, ", "))
		}
	}
	stream, err := c.runs.ReadLog(v.ctx, &apiv1.ReadLogRequest{App: v.app, Id: id})
	if err != nil {
		return err
	}
	for first := true; ; first = false {
		line, err := stream.Recv()
		if err != nil && !errors.Is(err, io.EOF) && first {
			return err // nothing was sent yet, so the error page can still be sent
		}
		if first && query.Get("raw") != "" {
			v.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		} else if first {
			attachment(v.w, id+".log", "text/plain; charset=utf-8")
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			fmt.Fprintf(v.w, "\n-- the log ends here because reading it failed: %v\n", err)
			return nil
		case !q.keeps(line):
			continue
		}
		at := stamp(line.Time).Format("2006-01-02T15:04:05.000Z")
		if _, err := fmt.Fprintf(v.w, "%s %d %-5s %s\n", at, line.Attempt, line.Level, line.Text); err != nil {
			return nil // the browser has disconnected
		}
	}
}

func (c *console) cancelRunPage(v *visit) error {
	id := v.r.PathValue("id")
	run, err := c.runs.GetRun(v.ctx, &apiv1.GetRunRequest{App: v.app, Id: id})
	if err != nil {
		return err
	}
	back := href("apps", v.app, "runs", id)
	if job.State(run.State).Terminal() {
		v.redirect(back)
		return nil
	}
	return c.show(v, "confirm", "runs", confirmView{
		Question: "cancel.question", Effect: "cancel.effect", Button: "cancel.button", Subject: run.Job, Back: back,
	})
}

func (c *console) cancelRun(v *visit) error {
	id := v.r.PathValue("id")
	if _, err := c.runs.CancelRun(v.ctx, &apiv1.CancelRunRequest{App: v.app, Id: id}); err != nil {
		return err
	}
	v.redirect(href("apps", v.app, "runs", id))
	return nil
}

// deleteRunPage asks whether to delete an ended run, or its payload. texts begins the keys of the
// catalogue.
func (c *console) deleteRunPage(v *visit, texts string) error {
	id := v.r.PathValue("id")
	run, err := c.runs.GetRun(v.ctx, &apiv1.GetRunRequest{App: v.app, Id: id})
	if err != nil {
		return err
	}
	back := href("apps", v.app, "runs", id)
	if !job.State(run.State).Terminal() {
		v.redirect(back)
		return nil
	}
	return c.show(v, "confirm", "runs", confirmView{
		Question: texts + ".question", Effect: texts + ".effect", Button: texts + ".button", Subject: run.Job, Back: back,
	})
}

func (c *console) deleteRun(v *visit, payloadOnly bool) error {
	id := v.r.PathValue("id")
	if _, err := c.runs.DeleteRun(v.ctx, &apiv1.DeleteRunRequest{App: v.app, Id: id, PayloadOnly: payloadOnly}); err != nil {
		return err
	}
	if payloadOnly {
		v.redirect(href("apps", v.app, "runs", id))
	} else {
		v.redirect(href("apps", v.app, "runs"))
	}
	return nil
}
