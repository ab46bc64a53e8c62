package console

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// maxKinds bounds the groups of one page of errors. A slice with more of them ends earlier.
const maxKinds = 200

// errorsView is a slice of the failures of a time range, by the kind of their error.
type errorsView struct {
	runFilter
	scanned
	Groups   []*errorGroup // the largest first
	Failures int           // in the slice
	Paged    bool          // newer failures are on other pages
	Refused  string        // why the filter cannot be used
}

// errorGroup are the failed runs with one fingerprint.
type errorGroup struct {
	ID          string
	Job, Code   string
	State       string // of its runs; unsuccessful: they have several
	Text        string // of the error, without what differs
	Count       int
	Example     *apiv1.Run // the newest
	First, Last *timestamppb.Timestamp
}

// errorTally groups failures.
type errorTally struct {
	groups map[string]*errorGroup
	total  int
}

// add counts a run if it has failed. It reports whether a further group has room.
func (t *errorTally) add(r *apiv1.Run) bool {
	if !failure(r) {
		return true
	}
	kind := errorKind(r.Error)
	id := fingerprintOf(r, kind)
	g := t.groups[id]
	if g == nil {
		g = &errorGroup{ID: id, Job: r.Job, Code: r.Code, State: r.State, Text: kind, Example: r, First: r.FinishedAt, Last: r.FinishedAt}
		t.groups[id] = g
	}
	t.total++
	g.Count++
	if g.State != r.State {
		g.State = "unsuccessful"
	}
	if at := stamp(r.FinishedAt); at.Before(stamp(g.First)) {
		g.First = r.FinishedAt
	} else if at.After(stamp(g.Last)) {
		g.Last, g.Example = r.FinishedAt, r
	}
	return len(t.groups) < maxKinds
}

// sorted returns the groups, the largest first and among equal ones the latest.
func (t *errorTally) sorted() []*errorGroup {
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

// errorsPage groups the failures of a time range. It reads one slice of them at a time, from the
// newest on.
func (c *console) errorsPage(v *visit) error {
	page := v.r.URL.Query().Get("page")
	f, err := readRunFilter(v, lastDay, time.Now())
	view := errorsView{runFilter: f, Paged: page != ""}
	if err == nil {
		req := f.request(v.app)
		req.State = cmp.Or(f.State, "unsuccessful")
		tally := errorTally{groups: map[string]*errorGroup{}}
		view.scanned, err = c.slice().each(v.ctx, req, page, func(r *apiv1.Run) bool {
			return !f.keeps(r) || tally.add(r)
		})
		view.Groups, view.Failures = tally.sorted(), tally.total
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
	f.Job, f.State, f.Error = g.Job, g.State, ""
	return f.Fixed(address)
}
