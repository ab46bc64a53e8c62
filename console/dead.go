package console

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// deadFilter is the filter of the list, as the address contains it.
type deadFilter struct {
	Key, Reason, Error string
	App                string // of the navigation; no part of the filter
}

func readDeadFilter(q url.Values) deadFilter {
	return deadFilter{Key: q.Get("key"), Reason: q.Get("reason"), Error: q.Get("error"), App: q.Get("app")}
}

// Set reports whether the list may hide dead letters.
func (f deadFilter) Set() bool { return f != deadFilter{App: f.App} }

// Link returns an address with the filter, and with pairs of further parameters.
func (f deadFilter) Link(address string, pairs ...string) string {
	return withQuery(address, append([]string{"app", f.App, "key", f.Key, "reason", f.Reason, "error", f.Error}, pairs...)...)
}

func (f deadFilter) request() *apiv1.DeadLetterFilter {
	if !f.Set() {
		return nil
	}
	return &apiv1.DeadLetterFilter{Key: f.Key, Reason: f.Reason, Error: f.Error}
}

type deadListView struct {
	deadFilter
	Letters []*apiv1.DeadLetter
	Next    string // token of the next page
	Paged   bool   // this is not the first page
	deadNotice
}

// Reasons returns the choices of the filter.
func (deadListView) Reasons() []string { return []string{"permanent", "attempts"} }

// deadNotice reports an action and the number of dead letters that it changed.
type deadNotice struct {
	Done  string // replayed or dropped; "": none
	Count int64
}

// deadEdited reports that the body of a dead letter was replaced.
type deadEdited struct{}

func (c *console) deadPage(v *visit) error {
	q := v.r.URL.Query()
	view := deadListView{deadFilter: readDeadFilter(q), Paged: q.Get("page") != ""}
	view.deadNotice, _ = noticeOf[deadNotice](v)
	answer, err := c.queues.ListDeadLetters(v.ctx, &apiv1.ListDeadLettersRequest{
		Filter: view.request(), PageToken: q.Get("page"), PageSize: pageSize,
	})
	if err != nil {
		return err
	}
	view.Letters, view.Next = answer.Letters, answer.NextPageToken
	return c.show(v, "deadletters", "deadletters", view)
}

type deadView struct {
	*apiv1.DeadLetter
	Shown    payload
	Form     string // the body to edit, or the visitor's input; "": it cannot be edited here
	Error    string // reason for refusing an edit
	Replaced bool
}

// maxEdited is the longest body that a page offers for editing. Its form is smaller than
// maxForm, whichever characters it contains.
const maxEdited = maxForm / 4

func (c *console) deadLetterPage(v *visit) error {
	_, edited := noticeOf[deadEdited](v)
	return c.showDead(v, http.StatusOK, "", "", edited)
}

// showDead shows a dead letter. After a refused edit it shows the visitor's input.
func (c *console) showDead(v *visit, code int, typed, refused string, replaced bool) error {
	d, err := c.queues.GetDeadLetter(v.ctx, &apiv1.GetDeadLetterRequest{Id: v.r.PathValue("id")})
	if err != nil {
		return err
	}
	view := deadView{DeadLetter: d, Shown: newPayload("", d.Body), Form: typed, Error: refused, Replaced: replaced}
	if d.Text != "" {
		view.Shown = newPayload(d.Text, nil)
		var b bytes.Buffer
		if typed == "" && json.Indent(&b, []byte(d.Text), "", "  ") == nil && b.Len() <= maxEdited {
			view.Form = b.String()
		}
	}
	return c.showStatus(v, code, "deadletter", "deadletters", view)
}

// editDead replaces the body. A refused edit is shown again with the reason.
func (c *console) editDead(v *visit) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	id, text := v.r.PathValue("id"), v.r.PostForm.Get("text")
	_, err := c.queues.EditDeadLetter(v.ctx, &apiv1.EditDeadLetterRequest{Id: id, Text: text})
	if status.Code(err) == codes.InvalidArgument {
		return c.showDead(v, http.StatusUnprocessableEntity, text, status.Convert(err).Message(), false)
	}
	if err != nil {
		return err
	}
	v.redirectWith(inApp(href("dead-letters", id), v.app), deadEdited{})
	return nil
}

// chosenDead returns the dead letters that an address selects: one, those that match the
// filter, or all.
func chosenDead(v *visit) (ids []string, f deadFilter, all bool) {
	if id := v.r.PathValue("id"); id != "" {
		return []string{id}, deadFilter{App: v.r.URL.Query().Get("app")}, false
	}
	f = readDeadFilter(v.r.URL.Query())
	return nil, f, !f.Set()
}

func (c *console) replayDead(v *visit) error {
	ids, f, all := chosenDead(v)
	answer, err := c.queues.ReplayDeadLetters(v.ctx, &apiv1.ReplayDeadLettersRequest{Ids: ids, Filter: f.request(), All: all})
	if err != nil {
		return err
	}
	v.redirectWith(f.Link("/dead-letters"), deadNotice{"replayed", answer.Count})
	return nil
}

func (c *console) dropDeadPage(v *visit) error {
	ids, f, all := chosenDead(v)
	view := confirmView{Question: "drop.question.filter", Effect: "drop.effect", Button: "drop.button", Back: f.Link("/dead-letters")}
	switch {
	case len(ids) > 0:
		d, err := c.queues.GetDeadLetter(v.ctx, &apiv1.GetDeadLetterRequest{Id: ids[0]})
		if err != nil {
			return err
		}
		view.Question, view.Subject, view.Back = "drop.question.one", d.Id, inApp(href("dead-letters", d.Id), v.app)
	case all:
		answer, err := c.queues.GetQueues(v.ctx, &apiv1.GetQueuesRequest{})
		if err != nil {
			return err
		}
		view.Question, view.Subject = "drop.question.all", count(answer.DeadLetters)
	default:
		f.App = ""
		view.Subject = f.Link("")[1:] // encoded as in the address
		if text, err := url.QueryUnescape(view.Subject); err == nil {
			view.Subject = text
		}
	}
	return c.show(v, "confirm", "deadletters", view)
}

func (c *console) dropDead(v *visit) error {
	ids, f, all := chosenDead(v)
	answer, err := c.queues.DropDeadLetters(v.ctx, &apiv1.DropDeadLettersRequest{Ids: ids, Filter: f.request(), All: all})
	if err != nil {
		return err
	}
	v.redirectWith(f.Link("/dead-letters"), deadNotice{"dropped", answer.Count})
	return nil
}
