package console

import (
	"cmp"
	"net/http"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/errorkind"
)

// maxKinds bounds the groups of one page of errors. A slice with more of them ends earlier.
const maxKinds = 200

// errorsView is a slice of the failures of a time range, by the kind of their error.
type errorsView struct {
	runFilter
	scanned
	Groups    []*errorGroup      // the largest first; either the ignored kinds or the others
	Ignored   int                // kinds among those that were counted
	Kinds     int                // that were counted
	Others    []*apiv1.ErrorMark // marks of kinds without a counted run, on the page of ignored kinds
	Show      string             // showIgnored, or "": the other kinds
	Done      accessDone
	Failures  int    // of all groups
	Continued bool   // newer runs were read before
	Paged     bool   // and their failures are not in the groups
	Refused   string // why the filter cannot be used
}

// fingerprint identifies the kind of a run's error.
func fingerprint(r *apiv1.Run) string {
	return errorkind.Fingerprint(r.Job, r.Code, errorkind.Of(r.Error))
}

// errorGroup are the failed runs with one fingerprint.
type errorGroup struct {
	ID          string
	Job, Code   string
	State       string // of its runs; unsuccessful: they have several
	Text        string // of the error, without what differs
	Count       int
	Example     string // id of the newest
	Message     string // of its error, shortened
	First, Last *timestamppb.Timestamp
	Mark        *apiv1.ErrorMark // nil: none
}

// Again reports whether the error has occurred after its acknowledgement.
func (g *errorGroup) Again() bool {
	return g.Mark.GetState() == "acknowledged" && stamp(g.Last).After(stamp(g.Mark.GetMarkedAt()))
}

// errorCount groups failures.
type errorCount struct {
	scanned
	groups map[string]*errorGroup
	total  int
}

func newErrorCount() *errorCount { return &errorCount{groups: map[string]*errorGroup{}} }

// clone returns a copy to which further runs can be added.
func (t *errorCount) clone() *errorCount {
	c := *t
	c.groups = make(map[string]*errorGroup, len(t.groups))
	for id, g := range t.groups {
		copied := *g
		c.groups[id] = &copied
	}
	return &c
}

// full reports whether no further group has room.
func (t *errorCount) full() bool { return len(t.groups) >= maxKinds }

// add counts a run if it has failed. It reports whether a further group has room.
func (t *errorCount) add(r *apiv1.Run) bool {
	if !failure(r) {
		return true
	}
	kind := errorkind.Of(r.Error)
	id := errorkind.Fingerprint(r.Job, r.Code, kind)
	g := t.groups[id]
	if g == nil {
		g = &errorGroup{ID: id, Job: r.Job, Code: r.Code, State: r.State, Text: kind, First: r.FinishedAt}
		t.groups[id] = g
	}
	t.total++
	g.Count++
	if g.State != r.State {
		g.State = "unsuccessful"
	}
	at := stamp(r.FinishedAt)
	if at.Before(stamp(g.First)) {
		g.First = r.FinishedAt
	}
	if g.Last == nil || at.After(stamp(g.Last)) {
		g.Last, g.Example, g.Message = r.FinishedAt, r.Id, shorten(errorkind.MaxBytes, r.Error)
	}
	return !t.full()
}

// sorted returns the groups, the largest first and among equal ones the latest.
func (t *errorCount) sorted() []*errorGroup {
	groups := make([]*errorGroup, 0, len(t.groups))
	for _, g := range t.groups {
		groups = append(groups, g)
	}
	slices.SortFunc(groups, func(a, b *errorGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), stamp(b.Last).Compare(stamp(a.Last)), cmp.Compare(a.ID, b.ID))
	})
	return groups
}

// failure reports whether a run did not succeed although no caller ended it.
func failure(r *apiv1.Run) bool {
	switch job.State(r.State) {
	case job.Failed, job.TimedOut, job.Missed:
		return true
	}
	return false
}

// maxErrorCounts bounds the counts that a session holds for the next pages.
const maxErrorCounts = 4

// errorCounts hold what the pages of errors have counted, so that the next one adds to it. They are
// lost with the server: a page then has its own slice alone.
type errorCounts struct {
	mu  sync.Mutex
	all []keptCount // the oldest first; at most maxErrorCounts
}

type keptCount struct {
	next    string // address of the page that continues
	counted *errorCount
}

// get returns a copy of the counts before a page; nil: there are none.
func (t *errorCounts) get(page string) *errorCount {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range t.all {
		if k.next == page {
			return k.counted.clone()
		}
	}
	return nil
}

// put stores the counts before a page. The caller no longer changes them.
func (t *errorCounts) put(page string, counted *errorCount) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = slices.DeleteFunc(t.all, func(k keptCount) bool { return k.next == page })
	if len(t.all) == maxErrorCounts {
		t.all = slices.Delete(t.all, 0, 1)
	}
	t.all = append(t.all, keptCount{page, counted})
}

// errorsPage groups the failures of a time range. It reads one slice of them at a time, from the
// newest on, and adds it to the slices before.
func (c *console) errorsPage(v *visit) error {
	page := v.r.URL.Query().Get("page")
	f, err := readRunFilter(v, lastDay, time.Now())
	view := errorsView{runFilter: f, Continued: page != "", Show: v.r.URL.Query().Get("show")}
	view.Done, _ = noticeOf[accessDone](v)
	if view.Show != "" && view.Show != showIgnored && err == nil {
		err = status.Errorf(codes.InvalidArgument, "show is %.40q, want %s, or leave it out", view.Show, showIgnored)
	}
	if err == nil {
		req := f.request(v.app)
		req.State = cmp.Or(f.State, "unsuccessful")
		key := func(page string) string { return f.Link(v.r.URL.Path, "page", page) }
		counted := v.session.counts.get(key(page))
		if view.Paged = view.Continued && counted == nil; counted == nil {
			counted = newErrorCount()
		}
		var done scanned
		done, err = c.slice().each(v.ctx, req, page, func(r *apiv1.Run) bool { return !f.keeps(r) || counted.add(r) })
		counted.after(done)
		if done.Next != "" && !counted.full() {
			v.session.counts.put(key(done.Next), counted)
		}
		view.scanned, view.Groups, view.Failures = counted.scanned, counted.sorted(), counted.total
	}
	if err == nil {
		var marks []*apiv1.ErrorMark
		var by map[string]*apiv1.ErrorMark
		if marks, by, err = c.errorMarks(v); err == nil {
			view.mark(marks, by)
		}
	}
	if status.Code(err) == codes.InvalidArgument {
		view.Refused = status.Convert(err).Message()
		return c.showStatus(v, http.StatusBadRequest, "errors", "errors", view)
	}
	if err != nil {
		return err
	}
	return c.show(v, "errors", "errors", view)
}

// mark adds marks to the groups, and leaves those that the page shows.
func (e *errorsView) mark(marks []*apiv1.ErrorMark, by map[string]*apiv1.ErrorMark) {
	e.Kinds = len(e.Groups)
	found := map[string]bool{}
	e.Groups = slices.DeleteFunc(e.Groups, func(g *errorGroup) bool {
		g.Mark, found[g.ID] = by[g.ID], true
		ignored := g.Mark.GetState() == "ignored"
		if ignored {
			e.Ignored++
		}
		return ignored != (e.Show == showIgnored)
	})
	if e.Show != showIgnored {
		return
	}
	for _, m := range marks {
		if !found[m.Fingerprint] && (e.Job == "" || m.Job == e.Job) && len(e.Others) < maxKinds {
			e.Others = append(e.Others, m)
		}
	}
}

// Link returns an address with the filter and pairs of further parameters.
func (e errorsView) Link(address string, pairs ...string) string {
	return e.runFilter.Link(address, append([]string{"show", e.Show}, pairs...)...)
}

// During returns an address with another time range.
func (e errorsView) During(address, preset string) string {
	e.runFilter = e.during(preset)
	return e.Link(address)
}

// Showing returns an address with the ignored kinds, or with the others if show is empty.
func (e errorsView) Showing(address, show string) string {
	return e.runFilter.Link(address, "show", show)
}

// MarkOf returns the address of the page that marks a group.
func (e errorsView) MarkOf(address string, g *errorGroup) string {
	return e.Link(address, "run", g.Example)
}

// Narrowed reports whether the page may leave out failures of its time range.
func (e errorsView) Narrowed() bool {
	return e.Job != "" || e.Host != "" || e.Module != "" || e.Error != "" || e.State != "" || e.Trigger != "" || e.Label != ""
}

// Runs returns the list of the runs of a group.
func (e errorsView) Runs(address string, g *errorGroup) string {
	f := e.runFilter
	f.Job, f.State, f.Kind = g.Job, g.State, g.ID
	return f.Link(address)
}

// OfJob returns an address with the filter and the runs of the job of a group that have its state.
func (e errorsView) OfJob(address string, g *errorGroup) string {
	f := e.runFilter
	f.Job, f.State, f.Error, f.Kind = g.Job, g.State, "", ""
	return f.Fixed(address)
}
