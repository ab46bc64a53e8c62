package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/wheelworkhq/wheelwork/alert/definition"
	"github.com/wheelworkhq/wheelwork/alert/notification"
	"github.com/wheelworkhq/wheelwork/alert/rule"
	"github.com/wheelworkhq/wheelwork/alert/state"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched/core"
)

type alertsAPI struct {
	apiv1.UnimplementedAlertsServer
	s *Services
}

// maxSubjects bounds the subjects that an alert shows.
const maxSubjects = 100

func (a *alertsAPI) ListAlerts(ctx context.Context, req *apiv1.ListAlertsRequest) (*apiv1.ListAlertsResponse, error) {
	app, most := core.AppOf(req.App), wholePage(req.PageSize)
	since, id, err := readAlertToken(req.PageToken)
	if err != nil {
		return nil, err
	}
	return core.Ask(ctx, a.s.loop, func(l *core.Loop) (*apiv1.ListAlertsResponse, error) {
		resp, page := &apiv1.ListAlertsResponse{}, Page{}
		last := ""
		st := l.Alerts.Read(app)
		if st == nil {
			return resp, nil
		}
		for _, x := range st.Alerts(l.Alerts.TurnTime().UnixMilli()) {
			if at := x.Group.SinceMs; req.PageToken != "" && (at > since || at == since && x.ID <= id) {
				continue
			}
			m := alertMessage(app, &x)
			if len(resp.Alerts) >= most || !page.Fits(m) {
				resp.NextPageToken = last
				break
			}
			resp.Alerts, last = append(resp.Alerts, m), alertToken(x.Group.SinceMs, x.ID)
		}
		return resp, nil
	})
}

// wholePage is pageSize for lists that had no pages at first: without a size a page has the most.
func wholePage(n int32) int {
	if n <= 0 {
		return maxPage
	}
	return pageSize(n)
}

// alertToken names the last alert of a page by what the list is ordered by.
func alertToken(sinceMs int64, id string) string { return strconv.FormatInt(sinceMs, 10) + "." + id }

func readAlertToken(token string) (sinceMs int64, id string, err error) {
	if token == "" {
		return 0, "", nil
	}
	since, id, ok := strings.Cut(token, ".")
	if sinceMs, err = strconv.ParseInt(since, 10, 64); err != nil || !ok || id == "" {
		return 0, "", badToken()
	}
	return sinceMs, id, nil
}

// definitionsPage returns definitions behind a name, in the order of their names, and the token of the next page.
func definitionsPage[D interface {
	job.AppDefinition
	proto.Message
}](all []job.AppDefinition, size int32, after string) (part []D, next string) {
	page, last := Page{}, ""
	for _, d := range all {
		if d.GetName() <= after {
			continue
		}
		m := d.(D)
		if len(part) >= wholePage(size) || !page.Fits(m) {
			return part, last
		}
		part, last = append(part, m), m.GetName()
	}
	return part, ""
}

func alertMessage(app string, x *state.Alert) *apiv1.Alert {
	g := x.Group
	m := &apiv1.Alert{
		Id: x.ID, App: app, Rule: x.Rule.Name, Severity: string(x.Rule.Severity), Event: g.Event, Labels: g.Labels, Count: int64(g.Count),
		SubjectCount: int64(len(g.Subjects)), Subjects: slices.Clone(g.Subjects[:min(len(g.Subjects), maxSubjects)]),
		Since: instant(g.SinceMs), Notifications: g.Told, NotifiedAt: instant(g.ToldMs), NextAt: instant(x.Next),
		AcknowledgedBy: g.AckedBy, AcknowledgedAt: instant(g.AckedMs), SilencedUntil: instant(x.Quiet),
	}
	if m.Severity == "" {
		m.Severity = string(notification.Error)
	}
	for _, i := range g.Recent {
		m.Incidents = append(m.Incidents, &apiv1.AlertIncident{Event: i.Event, Job: i.Job, Run: i.Run, Error: i.Error, At: timestamppb.New(i.At)})
	}
	return m
}

// instant returns the time of Unix milliseconds; nil: 0, there is none.
func instant(ms int64) *timestamppb.Timestamp {
	if ms == 0 {
		return nil
	}
	return timestamppb.New(time.UnixMilli(ms))
}

func (a *alertsAPI) AcknowledgeAlert(ctx context.Context, req *apiv1.AcknowledgeAlertRequest) (*apiv1.Alert, error) {
	app, by := core.AppOf(req.App), core.AttributionOf(ctx).GetAuthor()
	return core.Change(ctx, a.s.loop, func(l *core.Loop) (m *apiv1.Alert, err error) {
		err = l.Alerts.Edit(app, "alert.acknowledged", req.Id, func(st *state.State, now time.Time) error {
			if err := st.Acknowledge(req.Id, author(by), now.UnixMilli()); err != nil {
				return err
			}
			for _, x := range st.Alerts(now.UnixMilli()) {
				if x.ID == req.Id {
					m = alertMessage(app, &x)
				}
			}
			return nil
		})
		return m, alertError(err, app, req.Id)
	})
}

// author is the name of a caller; that of the server's own calls is not empty.
func author(by string) string {
	if by == "" {
		return "server"
	}
	return by
}

// alertError gives errors of the state a code and the id of the object in the request.
func alertError(err error, app, id string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, state.ErrNoAlert), errors.Is(err, state.ErrNoSilence), errors.Is(err, state.ErrNoChannel), errors.Is(err, state.ErrNoDelivery),
		errors.Is(err, state.ErrNoMark):
		return status.Errorf(codes.NotFound, "%.100q in app %s: %v", id, app, err)
	case errors.Is(err, state.ErrNotEnded):
		return status.Errorf(codes.FailedPrecondition, "%.100q in app %s: %v", id, app, err)
	case errors.Is(err, state.ErrTooMany), errors.Is(err, state.ErrTooManyMarks):
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	return err
}

// maxReason bounds the reason of a silence and the note of a mark, in bytes.
const maxReason = 500

func (a *alertsAPI) CreateSilence(ctx context.Context, req *apiv1.CreateSilenceRequest) (*apiv1.AlertSilence, error) {
	app, by := core.AppOf(req.App), core.AttributionOf(ctx).GetAuthor()
	if err := checkSilence(req); err != nil {
		return nil, core.Invalid(err)
	}
	return core.Change(ctx, a.s.loop, func(l *core.Loop) (m *apiv1.AlertSilence, err error) {
		now := l.Alerts.TurnTime()
		s := state.Silence{Reason: req.Reason, By: author(by), Silence: rule.Silence{ID: newID("silence"), Rule: req.Rule, Labels: req.Labels, FromMs: now.UnixMilli()}}
		if req.From != nil {
			s.FromMs = req.From.AsTime().UnixMilli()
		}
		if req.Until != nil {
			s.UntilMs = req.Until.AsTime().UnixMilli()
		} else if d, err := time.ParseDuration(req.Duration); err == nil { // it was checked
			s.UntilMs = s.FromMs + d.Milliseconds()
		}
		switch {
		case s.UntilMs <= s.FromMs || s.UntilMs <= now.UnixMilli():
			return nil, status.Error(codes.InvalidArgument, "the silence ends before it begins, or before now")
		case s.UntilMs-s.FromMs > maxSilence.Milliseconds():
			return nil, status.Errorf(codes.InvalidArgument, "the silence takes longer than %d days", maxSilence/(24*time.Hour))
		}
		err = l.Alerts.Edit(app, "silence.created", s.ID, func(st *state.State, now time.Time) error {
			if req.Rule != "" && st.Rule(req.Rule) == nil {
				return status.Errorf(codes.NotFound, "there is no alert rule %.100q in app %s", req.Rule, app)
			}
			return st.AddSilence(s, now.UnixMilli())
		})
		return silenceMessage(app, &s), alertError(err, app, s.ID)
	})
}

// maxSilence bounds a silence: a longer one is a rule that should be deleted.
const maxSilence = 366 * 24 * time.Hour

func checkSilence(req *apiv1.CreateSilenceRequest) error {
	switch {
	case (req.Until == nil) == (req.Duration == ""):
		return errors.New("name until, or a duration")
	case len(req.Reason) > maxReason:
		return fmt.Errorf("the reason has %d bytes, the limit is %d", len(req.Reason), maxReason)
	case req.From != nil && !req.From.IsValid(), req.Until != nil && !req.Until.IsValid():
		return errors.New("a time is not valid")
	}
	if req.Duration != "" {
		if _, err := time.ParseDuration(req.Duration); err != nil {
			return fmt.Errorf("duration: %.40q is not a duration: write it as 30m or 2h", req.Duration)
		}
	}
	return job.CheckLabels(req.Labels)
}

// newID returns a random id.
func newID(kind string) string {
	var b [10]byte
	rand.Read(b[:]) //nolint:errcheck // it never fails
	return kind + "-" + strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))
}

func silenceMessage(app string, s *state.Silence) *apiv1.AlertSilence {
	return &apiv1.AlertSilence{App: app, Id: s.ID, Rule: s.Rule, Labels: s.Labels, From: instant(s.FromMs), Until: instant(s.UntilMs), Reason: s.Reason, CreatedBy: s.By}
}

func (a *alertsAPI) ListSilences(ctx context.Context, req *apiv1.ListSilencesRequest) (*apiv1.ListSilencesResponse, error) {
	app := core.AppOf(req.App)
	return core.Ask(ctx, a.s.loop, func(l *core.Loop) (*apiv1.ListSilencesResponse, error) {
		resp := &apiv1.ListSilencesResponse{}
		if st := l.Alerts.Read(app); st != nil {
			for _, s := range st.Silences() {
				resp.Silences = append(resp.Silences, silenceMessage(app, &s))
			}
		}
		return resp, nil
	})
}

func (a *alertsAPI) EndSilence(ctx context.Context, req *apiv1.EndSilenceRequest) (*apiv1.EndSilenceResponse, error) {
	app := core.AppOf(req.App)
	return core.Change(ctx, a.s.loop, func(l *core.Loop) (*apiv1.EndSilenceResponse, error) {
		err := l.Alerts.Edit(app, "silence.ended", req.Id, func(st *state.State, now time.Time) error {
			return st.EndSilence(req.Id, now.UnixMilli())
		})
		return &apiv1.EndSilenceResponse{}, alertError(err, app, req.Id)
	})
}

func (a *alertsAPI) ListAlertRules(ctx context.Context, req *apiv1.ListAlertRulesRequest) (*apiv1.ListAlertRulesResponse, error) {
	return core.Ask(ctx, a.s.loop, func(l *core.Loop) (*apiv1.ListAlertRulesResponse, error) {
		resp := &apiv1.ListAlertRulesResponse{}
		all := l.Alerts.Definitions(core.AppOf(req.App), job.KindAlertRule)
		resp.Rules, resp.NextPageToken = definitionsPage[*apiv1.AlertRule](all, req.PageSize, req.PageToken)
		return resp, nil
	})
}

func (a *alertsAPI) ListAlertChannels(ctx context.Context, req *apiv1.ListAlertChannelsRequest) (*apiv1.ListAlertChannelsResponse, error) {
	return core.Ask(ctx, a.s.loop, func(l *core.Loop) (*apiv1.ListAlertChannelsResponse, error) {
		resp := &apiv1.ListAlertChannelsResponse{}
		all := l.Alerts.Definitions(core.AppOf(req.App), job.KindAlertChannel)
		resp.Channels, resp.NextPageToken = definitionsPage[*apiv1.AlertChannel](all, req.PageSize, req.PageToken)
		return resp, nil
	})
}

func (a *alertsAPI) TestAlertChannel(ctx context.Context, req *apiv1.TestAlertChannelRequest) (*apiv1.AlertDelivery, error) {
	app, language := core.AppOf(req.App), notification.Language(req.Language)
	switch language {
	case "", notification.English, notification.Chinese:
	default:
		return nil, status.Errorf(codes.InvalidArgument, "language is %.20q, want en or zh", req.Language)
	}
	return core.Change(ctx, a.s.loop, func(l *core.Loop) (m *apiv1.AlertDelivery, err error) {
		err = l.Alerts.Edit(app, "channel.tested", req.Channel, func(st *state.State, now time.Time) error {
			d, err := st.Test(req.Channel, newID("test"), language, now.UnixMilli())
			if err == nil {
				m = deliveryMessage(app, d)
			}
			return err
		})
		return m, alertError(err, app, req.Channel)
	})
}

func (a *alertsAPI) PreviewAlert(ctx context.Context, req *apiv1.PreviewAlertRequest) (*apiv1.AlertPreview, error) {
	app := core.AppOf(req.App)
	d, err := core.Ask(ctx, a.s.loop, func(l *core.Loop) (*apiv1.AlertChannel, error) {
		if d := l.Alerts.Channel(app, req.Channel); d != nil {
			return d, nil
		}
		return nil, alertError(state.ErrNoChannel, app, req.Channel)
	})
	if err != nil {
		return nil, err
	}
	language := cmp.Or(notification.Language(req.Language), definition.LanguageOf(d))
	p, err := definition.Preview(d, req.Event, language, time.Now())
	if err != nil {
		return nil, core.Invalid(err)
	}
	return &apiv1.AlertPreview{
		App: app, Channel: d.Name, Kind: string(definition.KindOf(d)), Language: string(language), Event: cmp.Or(req.Event, rule.Failed),
		Title: p.Title, Method: p.Method, Url: p.URL, Headers: p.Headers, Body: p.Body, Html: p.HTML, Note: p.Note,
	}, nil
}

func (a *alertsAPI) RetryAlertDelivery(ctx context.Context, req *apiv1.RetryAlertDeliveryRequest) (*apiv1.AlertDelivery, error) {
	app := core.AppOf(req.App)
	return core.Change(ctx, a.s.loop, func(l *core.Loop) (m *apiv1.AlertDelivery, err error) {
		err = l.Alerts.Edit(app, "delivery.retried", req.Id, func(st *state.State, now time.Time) error {
			d, err := st.Retry(req.Id, now.UnixMilli())
			if err == nil {
				m = deliveryMessage(app, d)
			}
			return err
		})
		return m, alertError(err, app, req.Id)
	})
}

func (a *alertsAPI) ListAlertDeliveries(ctx context.Context, req *apiv1.ListAlertDeliveriesRequest) (*apiv1.ListAlertDeliveriesResponse, error) {
	app, before := core.AppOf(req.App), uint64(0)
	if req.PageToken != "" {
		var err error
		if before, err = strconv.ParseUint(req.PageToken, 10, 64); err != nil || before == 0 {
			return nil, badToken()
		}
	}
	return core.Ask(ctx, a.s.loop, func(l *core.Loop) (*apiv1.ListAlertDeliveriesResponse, error) {
		resp, page := &apiv1.ListAlertDeliveriesResponse{}, Page{}
		st := l.Alerts.Read(app)
		if st == nil {
			return resp, nil
		}
		last := uint64(0)
		for _, d := range st.Deliveries() {
			switch {
			case before > 0 && d.Number >= before,
				req.Channel != "" && d.Channel != req.Channel, req.State != "" && d.State != req.State, req.Alert != "" && d.Notification.Alert != req.Alert:
				continue
			}
			m := deliveryMessage(app, d)
			if len(resp.Deliveries) == pageSize(req.PageSize) || !page.Fits(m) {
				resp.NextPageToken = strconv.FormatUint(last, 10)
				break
			}
			resp.Deliveries, last = append(resp.Deliveries, m), d.Number
		}
		return resp, nil
	})
}

func deliveryMessage(app string, d *state.Delivery) *apiv1.AlertDelivery {
	n := &d.Notification
	m := &apiv1.AlertDelivery{
		App: app, Id: d.ID, Notification: n.ID, Alert: n.Alert, Rule: n.Rule, Channel: d.Channel, Event: n.Event, AlertState: string(n.State), State: d.State,
		Message: d.Message, CreatedAt: instant(d.CreatedMs), EndedAt: instant(d.EndedMs), Attempts: int32(d.Attempts), Title: notification.Title(notification.Single(*n)),
		Status: int32(d.Last.Status), Code: d.Last.Code, Reason: d.Last.Reason, RequestId: d.Last.RequestID,
	}
	if d.State == state.Waiting {
		m.NextAttemptAt = instant(max(d.NextMs, d.CreatedMs))
	}
	return m
}
