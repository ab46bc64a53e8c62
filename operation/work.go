package operation

import (
	"context"
	"errors"
	"iter"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/wheelworkhq/wheelwork/access"
	"github.com/wheelworkhq/wheelwork/access/audit"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

const (
	sliceTime   = 100 * time.Millisecond // of one slice of changes, at least
	perSlice    = 50                     // changes in one slice, so 500 in a second
	atOnce      = 16                     // changes that wait for their answers at the same time
	pageSize    = 500                    // of the lists
	countTime   = 2 * time.Second        // how long objects are counted
	callTime    = 30 * time.Second       // of one call
	tries       = 10                     // of a call while its partition moves
	pause       = time.Second            // before the next try
	maxDeferred = 10_000                 // jobs whose deletion waits for that of others
	maxLive     = 10_000                 // live runs that a search remembers

	noteHeader  = "wheelwork-note"
	causeHeader = "wheelwork-cause"
)

// Runner is what the operations of a server share.
type Runner struct {
	// Conn calls the API of this installation. A call with the headers of
	// [access.Principal.Passed] is one of that principal.
	Conn grpc.ClientConnInterface
	// Current returns a principal with the permissions that it has now, or an error if its
	// token is no longer accepted.
	Current func(*access.Principal) (*access.Principal, error)
	// Note makes an audit event of the caller whose context it is. nil: there are no events.
	Note   func(ctx context.Context, e audit.Row)
	Places Places
}

// object is a run or a job to change.
type object struct {
	name string // of the job, or the id of the run
	run  *apiv1.Run
	job  *apiv1.Job
}

// work is one operation, or the preview of one.
type work struct {
	runner *Runner
	caller *access.Principal
	kind   kind
	req    *apiv1.StartOperationRequest
	id     string // of the operation; "": it is a preview
	jobs   apiv1.JobsClient
	runs   apiv1.RunsClient

	read int64 // runs that the lists have read
}

func newWork(r *Runner, caller *access.Principal, k kind, req *apiv1.StartOperationRequest) *work {
	return &work{runner: r, caller: caller, kind: k, req: req, jobs: apiv1.NewJobsClient(r.Conn), runs: apiv1.NewRunsClient(r.Conn)}
}

// key returns what the idempotency keys of the changes are derived from.
func (w *work) key() string {
	if w.req.IdempotencyKey != "" {
		return w.req.IdempotencyKey
	}
	return w.id
}

// note returns the note of each change. It names the operation, so that an audit event tells to which
// one it belongs.
func (w *work) note() string {
	if w.req.Note == "" {
		return "operation " + w.id
	}
	return w.req.Note + " (operation " + w.id + ")"
}

// as returns a context for calls as the caller, with the permissions that it has now.
func (w *work) as(ctx context.Context) (context.Context, error) {
	p, err := w.runner.Current(w.caller)
	if err != nil {
		return nil, err
	}
	headers, err := p.Passed(ctx)
	if err != nil {
		return nil, err
	}
	if w.id != "" {
		headers.Set(causeHeader, "operation")
		headers.Set(noteHeader, url.PathEscape(w.note()))
	}
	return metadata.NewOutgoingContext(ctx, headers), nil
}

// do counts the objects, and then changes them, or it finds them.
func (w *work) do(ctx context.Context, p *Progress) error {
	if w.kind.finds {
		return w.find(ctx, p)
	}
	found, err := w.count(ctx, 0)
	if err != nil {
		return err
	}
	if !found.more {
		p.Counted(found.matched)
	}
	var waiting deferred
	for page, err := range w.pages(ctx) {
		if err != nil {
			return err
		}
		if err := w.change(ctx, page, &waiting, p); err != nil {
			return err
		}
	}
	for { // a job can be deleted when those that name it are gone
		last := waiting.take()
		if len(last) == 0 {
			return nil
		}
		if err := w.change(ctx, last, &waiting, p); err != nil {
			return err
		}
		if waiting.len() == len(last) {
			waiting.refuse(p)
			return nil
		}
	}
}

// find searches for the runs, the newest first. It does not count them before, which would be the same
// search. A run that ends while the search goes on is listed among the live ones and again among those
// that have ended: it is found once, if it is one of the first maxLive live ones.
func (w *work) find(ctx context.Context, p *Progress) error {
	live := map[string]bool{}
	for page, err := range w.pages(ctx) {
		if err != nil {
			return err
		}
		page = slices.DeleteFunc(page, func(o object) bool { return live[o.name] })
		for _, o := range page {
			if o.run.FinishedAt == nil && len(live) < maxLive {
				live[o.name] = true
			}
		}
		p.Found(page, w.read)
	}
	return nil
}

// counted is how many objects there are, and the first of them.
type counted struct {
	matched int64
	more    bool // the time was over before the end
	first   []object
}

// count counts the objects, for countTime at most, and keeps the first ones.
func (w *work) count(ctx context.Context, keep int) (c counted, err error) {
	end := time.Now().Add(countTime)
	for page, err := range w.pages(ctx) {
		if err != nil {
			return c, err
		}
		if c.more = time.Now().After(end); c.more {
			return c, nil
		}
		c.matched += int64(len(page))
		c.first = append(c.first, page[:min(len(page), keep-len(c.first))]...)
	}
	return c, nil
}

// pages returns the objects that the request selects, page by page.
func (w *work) pages(ctx context.Context) iter.Seq2[[]object, error] {
	return func(yield func([]object, error) bool) {
		for token := ""; ; {
			var page []object
			err := w.repeat(ctx, func(ctx context.Context) (err error) {
				page, token, err = w.kind.list(ctx, w, token)
				return err
			})
			if !yield(page, err) || err != nil || token == "" {
				return
			}
		}
	}
}

// repeat makes a call as the caller, again while what it is about moves between servers.
func (w *work) repeat(ctx context.Context, call func(context.Context) error) error {
	for n := 1; ; n++ {
		as, err := w.as(ctx)
		if err != nil {
			return err
		}
		as, cancel := context.WithTimeout(as, callTime)
		err = call(as)
		cancel()
		if status.Code(err) != codes.Unavailable || n == tries || !wait(ctx, pause) {
			return err
		}
	}
}

// wait waits for a time. It reports false when ctx has ended.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// change changes objects, slice by slice.
func (w *work) change(ctx context.Context, objects []object, waiting *deferred, p *Progress) error {
	for slice := range slices.Chunk(objects, perSlice) {
		next := time.Now().Add(sliceTime)
		var g errgroup.Group
		g.SetLimit(atOnce)
		for _, o := range slice {
			g.Go(func() error {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				return w.changeOne(ctx, o, waiting, p)
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		if !wait(ctx, time.Until(next)) {
			return ctx.Err()
		}
	}
	return nil
}

// changeOne changes an object. A call that has begun is not interrupted, so that its result is
// counted.
func (w *work) changeOne(ctx context.Context, o object, waiting *deferred, p *Progress) error {
	changed, err := false, error(nil)
	for n := 1; ; n++ {
		as, lost := w.as(context.WithoutCancel(ctx))
		if lost != nil {
			return lost
		}
		as, cancel := context.WithTimeout(as, callTime)
		changed, err = w.kind.change(as, w, o)
		cancel()
		again := status.Code(err) == codes.Unavailable || status.Code(err) == codes.Aborted
		if !again || n == tries || !wait(ctx, pause) {
			break
		}
	}
	switch {
	case errors.Is(err, errNothing), status.Code(err) == codes.NotFound:
		p.Skipped()
	case isReferenced(err) && waiting.add(o, err):
	case err != nil:
		p.Refused(o.name, err)
	case changed:
		p.Changed()
	default:
		p.Skipped()
	}
	return nil
}

// errNothing is the result of a change that an object does not need.
var errNothing = errors.New("nothing to change")

// isReferenced reports whether a deletion was refused because other jobs name the job.
func isReferenced(err error) bool {
	if err == nil {
		return false
	}
	return slices.ContainsFunc(status.Convert(err).Details(), func(d any) bool {
		r, ok := d.(*apiv1.Refusal)
		return ok && r.Reason == "referenced"
	})
}

// deferred has the jobs whose deletion waits for that of others. It is safe for concurrent use.
type deferred struct {
	mu  sync.Mutex
	all []object
	why []error
}

// add reports whether there is room for an object.
func (d *deferred) add(o object, why error) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.all) == maxDeferred {
		return false
	}
	d.all, d.why = append(d.all, o), append(d.why, why)
	return true
}

func (d *deferred) len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.all)
}

func (d *deferred) take() []object {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.all
	d.all, d.why = nil, nil
	return all
}

// refuse counts the objects as refused.
func (d *deferred) refuse(p *Progress) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, o := range d.all {
		p.Refused(o.name, d.why[i])
	}
}

// listRuns returns a page of the runs.
func listRuns(ctx context.Context, w *work, token string) ([]object, string, error) {
	q := &apiv1.ListRunsRequest{}
	if w.req.Runs != nil {
		q = proto.CloneOf(w.req.Runs)
	}
	q.App, q.PageSize, q.PageToken = w.req.App, pageSize, token
	if q.State == "" {
		q.State = w.kind.state
	}
	answer, err := w.runs.ListRuns(ctx, q)
	if err != nil {
		return nil, token, err
	}
	w.read += max(int64(answer.Examined), int64(len(answer.Runs)))
	var page []object
	for _, r := range answer.Runs {
		name, _, _ := strings.Cut(r.Module, "@")
		of := w.req.Module == "" || w.req.Module == r.Module || w.req.Module == name
		of = of && strings.Contains(strings.ToLower(r.Error), strings.ToLower(w.req.Error))
		if of && (w.kind.finds || q.Parent != "" || r.Parent == "" && r.Node == "") {
			page = append(page, object{name: r.Id, run: r})
		}
	}
	return page, answer.NextPageToken, nil
}

// listJobs returns a page of the jobs.
func listJobs(ctx context.Context, w *work, token string) ([]object, string, error) {
	q := &apiv1.ListJobsRequest{}
	if w.req.Jobs != nil {
		q = proto.CloneOf(w.req.Jobs)
	}
	q.App, q.PageSize, q.PageToken, q.WithInput, q.Order = w.req.App, pageSize, token, false, ""
	answer, err := w.jobs.ListJobs(ctx, q)
	if err != nil {
		return nil, token, err
	}
	var page []object
	for _, j := range answer.Jobs {
		page = append(page, object{name: j.Name, job: j})
	}
	return page, answer.NextPageToken, nil
}
