package api

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched/core"
	"github.com/wheelworkhq/wheelwork/store"
)

type revisionsAPI struct {
	apiv1.UnimplementedRevisionsServer
	s *Services
}

// maxRevisions bounds a page of revisions, and is the number of revisions of an object that
// the store shows.
const maxRevisions = 100

func (a *revisionsAPI) ListRevisions(ctx context.Context, req *apiv1.ListRevisionsRequest) (*apiv1.ListRevisionsResponse, error) {
	o, err := objectOf(req)
	if err != nil {
		return nil, err
	}
	p, err := a.read(ctx, o, req.PageToken, min(pageSize(req.PageSize), maxRevisions))
	if err != nil {
		return nil, err
	}
	resp := &apiv1.ListRevisionsResponse{NextPageToken: p.next}
	for i := range p.rows {
		m, err := p.message(i)
		if err != nil {
			return nil, err
		}
		resp.Revisions = append(resp.Revisions, m)
	}
	if len(resp.Revisions) == 0 && req.PageToken == "" && !p.exists() {
		return nil, status.Errorf(codes.NotFound, "there is no %s %s in app %s, and no revision of one", o.kind, o.name, o.app)
	}
	return resp, nil
}

func (a *revisionsAPI) GetRevision(ctx context.Context, req *apiv1.GetRevisionRequest) (*apiv1.Revision, error) {
	o, err := objectOf(req)
	if err != nil {
		return nil, err
	}
	p, err := a.read(ctx, o, "", maxRevisions)
	if err != nil {
		return nil, err
	}
	content := p.now.Content // the deltas lead back from the current definition
	for i := range p.rows {
		r := &p.rows[i]
		if r.Number == req.Number {
			return p.whole(i, content)
		}
		before, err := r.Before(store.Content(content))
		if err != nil {
			return nil, o.damaged(r, err)
		}
		content = job.Content(before)
	}
	return nil, status.Errorf(codes.NotFound, "%s %s of app %s has no revision %d: `wheelwork history %s %s` shows what there is", o.kind, o.name, o.app, req.Number, o.kind, o.name)
}

// page has revisions of one object, the newest first, and the definition at the time when
// they were read.
type page struct {
	object
	now   core.Current
	first bool // the first of the rows is the newest revision
	rows  []store.StoredRevision
	next  string // the cursor of the next page; "": there is none
}

// read returns a page of revisions. It reads again if the definition changes meanwhile.
func (a *revisionsAPI) read(ctx context.Context, o object, cursor string, size int) (*page, error) {
	current := func() (core.Current, error) {
		return core.Ask(ctx, a.s.loop, func(l *core.Loop) (core.Current, error) { return l.DefinitionNow(o.app, o.kind, o.name), nil })
	}
	now, err := current()
	const tries = 10
	for range tries {
		if err != nil {
			return nil, err
		}
		if err := a.s.loop.CaughtUp(ctx); err != nil {
			return nil, err
		}
		rows, next, err := a.s.cfg.Store.Revisions(o.app, o.kind, o.name, cursor, size)
		if err != nil {
			return nil, err
		}
		before := now
		if now, err = current(); err == nil && now == before {
			p := &page{o, now, cursor == "", rows, next}
			if p.stale() {
				p.rows, p.next = nil, ""
			}
			return p, nil
		}
	}
	return nil, status.Errorf(codes.Unavailable, "%s %s changes all the time: try again", o.kind, o.name)
}

// stale reports whether the rows do not lead to the current definition: it was changed in
// another partition, while the slot of the job was there.
func (p *page) stale() bool {
	if !p.first || len(p.rows) == 0 {
		return false
	}
	if p.exists() {
		return p.rows[0].Number != p.now.Number
	}
	_, err := p.rows[0].Before(store.Content{})
	return err != nil
}

// exists reports whether there is such a definition now.
func (p *page) exists() bool { return p.now.Content != (job.Content{}) }

// deleted reports whether a row is the deletion of the object. The store returns no older
// revisions of an object that was created again.
func (p *page) deleted(row int) bool { return p.first && row == 0 && !p.exists() }

// object is a definition that has revisions.
type object struct{ app, kind, name string }

// objectOf returns the object of a request.
func objectOf(req interface {
	GetApp() string
	GetKind() string
	GetName() string
},
) (object, error) {
	o := object{core.AppOf(req.GetApp()), req.GetKind(), req.GetName()}
	switch o.kind {
	case job.KindJob, job.KindCalendar, job.KindAlias, job.KindGrants, job.KindApp, job.KindAlertRule, job.KindAlertChannel, job.KindEventSource:
	default:
		return o, status.Errorf(codes.InvalidArgument, "kind: %.40q is none of job, calendar, alias, grants, app, alertrule, alertchannel and eventsource", o.kind)
	}
	if o.name == "" {
		return o, status.Error(codes.InvalidArgument, "name: it is missing")
	}
	if o.kind == job.KindApp && o.name != o.app {
		return o, status.Errorf(codes.InvalidArgument, "name: the settings of app %s have its name, not %.40q", o.app, o.name)
	}
	return o, nil
}

// damaged returns the error for a revision that cannot be read.
func (o object) damaged(r *store.StoredRevision, err error) error {
	return status.Errorf(codes.DataLoss, "revision %d of %s %s: %v", r.Number, o.kind, o.name, err)
}

// message returns a revision without its definition.
func (p *page) message(row int) (*apiv1.Revision, error) {
	r, by := &p.rows[row], &apiv1.Attribution{}
	if err := proto.Unmarshal(r.Cause, by); err != nil {
		return nil, p.damaged(r, err)
	}
	return &apiv1.Revision{
		App: p.app, Kind: p.kind, Name: p.name, Number: r.Number, At: timestamppb.New(time.UnixMilli(r.AtMs)), Deleted: p.deleted(row),
		Author: by.Author, Cause: by.Cause, Note: by.Note, Rollback: by.Rollback,
	}, nil
}

// whole returns a revision with the definition after it.
func (p *page) whole(row int, c job.Content) (*apiv1.Revision, error) {
	m, err := p.message(row)
	if err != nil || m.Deleted {
		return m, err
	}
	to := proto.Message(nil)
	switch p.kind {
	case job.KindJob:
		m.Job, err = c.Message(p.app, p.name)
		if err == nil {
			m.Job.Revision = m.Number
		}
	case job.KindCalendar:
		m.Calendar = &apiv1.Calendar{}
		to = m.Calendar
	case job.KindAlias:
		m.Alias = &apiv1.Alias{}
		to = m.Alias
	case job.KindGrants:
		m.Grants = &apiv1.ModuleGrants{}
		to = m.Grants
	case job.KindApp:
		m.Settings = &apiv1.App{}
		to = m.Settings
	case job.KindAlertRule:
		m.AlertRule = &apiv1.AlertRule{}
		to = m.AlertRule
	case job.KindAlertChannel:
		m.AlertChannel = &apiv1.AlertChannel{}
		to = m.AlertChannel
	case job.KindEventSource:
		m.EventSource = &apiv1.EventSource{}
		to = m.EventSource
	}
	if to != nil {
		err = proto.Unmarshal([]byte(c.Own), to)
	}
	if err != nil {
		return nil, p.damaged(&p.rows[row], err)
	}
	return m, nil
}
