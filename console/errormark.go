package console

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/errorkind"
)

// showIgnored is the value of the parameter show of a page with the ignored kinds.
const showIgnored = "ignored"

// markView is the page on which a visitor marks a kind of error.
type markView struct {
	runFilter
	Fingerprint string
	Run         string           // an example; "": none
	Group       string           // the name of the job
	Text        string           // of the error, without what differs; "": unknown
	Mark        *apiv1.ErrorMark // that the kind has; nil: none
	State       string           // of the form
	Note        string
	Until       string // as a form sends times in Zone
	Show        string
	Refused     string
}

// errorMarks returns the marks of the app by fingerprint, the newest first in the list.
func (c *console) errorMarks(v *visit) (list []*apiv1.ErrorMark, by map[string]*apiv1.ErrorMark, err error) {
	if !c.visitor(v).May("alerts.read", v.app) {
		return nil, nil, nil
	}
	answer, err := c.alerts.ListErrorMarks(v.ctx, &apiv1.ListErrorMarksRequest{App: v.app})
	if err != nil {
		return nil, nil, err
	}
	by = make(map[string]*apiv1.ErrorMark, len(answer.Marks))
	for _, m := range answer.Marks {
		by[m.Fingerprint] = m
	}
	return answer.Marks, by, nil
}

// markOf reads what the page of a mark shows before its form.
func (c *console) markOf(v *visit) (*markView, error) {
	id, q := v.r.PathValue("fingerprint"), v.r.URL.Query()
	if !errorkind.Valid(id) {
		return nil, status.Errorf(codes.NotFound, "%.40q is not the fingerprint of an error", id)
	}
	f, err := readRunFilter(v, lastDay, time.Now())
	if err != nil {
		return nil, err
	}
	view := &markView{runFilter: f, Fingerprint: id, State: "acknowledged", Show: q.Get("show")}
	_, marks, err := c.errorMarks(v)
	if err != nil {
		return nil, err
	}
	if m := marks[id]; m != nil {
		view.Mark, view.Group, view.State, view.Note = m, m.Job, m.State, m.Note
		if m.Until != nil {
			view.Until = stamp(m.Until).In(f.zone).Format("2006-01-02T15:04:05")
		}
	}
	run := q.Get("run")
	if run == "" {
		return view, nil
	}
	r, err := c.runs.GetRun(v.ctx, &apiv1.GetRunRequest{App: v.app, Id: run})
	switch {
	case status.Code(err) == codes.NotFound, status.Code(err) == codes.InvalidArgument:
	case err != nil:
		return nil, err
	case fingerprint(r) == id:
		view.Run, view.Group, view.Text = r.Id, r.Job, errorkind.Of(r.Error)
	}
	return view, nil
}

// List returns the address of the list from which the page was opened.
func (m *markView) List(address string) string { return m.Link(address, "show", m.Show) }

func (c *console) markErrorPage(v *visit) error {
	view, err := c.markOf(v)
	if err != nil {
		return err
	}
	return c.show(v, "errormark", "errors", view)
}

func (c *console) markError(v *visit) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	view, err := c.markOf(v)
	if err != nil {
		return err
	}
	form := v.r.PostForm
	list := view.List(href("apps", v.app, "errors"))
	if form.Get("do") == "clear" {
		_, err := c.alerts.ClearErrorMark(v.ctx, &apiv1.ClearErrorMarkRequest{App: v.app, Fingerprint: view.Fingerprint})
		if err != nil && status.Code(err) != codes.NotFound { // another visitor has cleared it, or its time has passed
			return err
		}
		v.redirectWith(list, accessDone{Key: "errors.done.cleared", Subject: cmp.Or(view.Group, view.Fingerprint)})
		return nil
	}
	view.State, view.Note, view.Until = form.Get("state"), strings.TrimSpace(form.Get("note")), strings.TrimSpace(form.Get("until"))
	req := &apiv1.MarkErrorRequest{App: v.app, Fingerprint: view.Fingerprint, State: view.State, Note: view.Note, Job: view.Group}
	if view.Until != "" && view.State == "ignored" {
		at, failed := readInputTime(view.Until, view.zone)
		err, req.Until = failed, timestamppb.New(at)
	}
	if err == nil {
		_, err = c.alerts.MarkError(v.ctx, req)
	}
	if why, ok := mendable(err); ok {
		view.Refused = why
		return c.showStatus(v, http.StatusUnprocessableEntity, "errormark", "errors", view)
	}
	if err != nil {
		return err
	}
	v.redirectWith(list, accessDone{Key: "errors.done." + view.State, Subject: cmp.Or(view.Group, view.Fingerprint)})
	return nil
}
