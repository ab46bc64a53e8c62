package console

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	alerts "github.com/wheelworkhq/wheelwork/alert/definition"
	"github.com/wheelworkhq/wheelwork/alert/notification"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

const (
	// channelKey is in the address of a channel, which no page of the list may show.
	channelKey = "key-of-the-robot"
	firstAlert = "alert-first"
	otherAlert = "alert-other"
)

// fakeAlerts are the alerts of the app default.
type fakeAlerts struct {
	apiv1.UnimplementedAlertsServer
	apiv1.UnimplementedChangeSetsServer

	firing     []*apiv1.Alert
	rules      []*apiv1.AlertRule
	channels   []*apiv1.AlertChannel
	silences   []*apiv1.AlertSilence
	deliveries []*apiv1.AlertDelivery // the newest first
	tested     []*apiv1.TestAlertChannelRequest
	errorMarks []*apiv1.ErrorMark
}

func (f *fakeAPI) populateAlerts(ts func(time.Duration) *timestamppb.Timestamp) {
	f.errorMarks = []*apiv1.ErrorMark{{App: "default", Fingerprint: "fedcba9876543210", State: "ignored", Note: "the partner repairs it " + evil, Job: "report", MarkedBy: "bob", MarkedAt: ts(time.Hour)}}
	f.firing = []*apiv1.Alert{
		{
			Id: firstAlert, App: "default", Rule: "failures", Severity: "critical", Event: "failed", Labels: map[string]string{"job": "totals"}, Count: 1234,
			Incidents: []*apiv1.AlertIncident{
				{Event: "failed", Job: "totals", Run: "01OLD", At: ts(time.Hour)},
				{Event: "failed", Job: "totals", Run: doneRun, At: ts(30 * time.Minute)},
				{Event: "timed_out", Job: "totals", Run: liveRun, At: ts(20 * time.Minute)},
				{Event: "failed", Job: "totals", Run: failedRun, Error: "line 17 " + evil, At: ts(5 * time.Minute)},
			},
			Subjects: []string{"a", "b", "c", "d", "e", "totals"}, SubjectCount: 6, Since: ts(time.Hour), Notifications: 2, NotifiedAt: ts(10 * time.Minute), NextAt: ts(-3 * time.Hour),
		},
		{
			Id: otherAlert, App: "default", Rule: "hosts" + evil, Event: "host_lost", Count: 1, Incidents: []*apiv1.AlertIncident{{Event: "host_lost", At: ts(time.Minute)}},
			Since: ts(time.Minute), AcknowledgedBy: "bob" + evil, AcknowledgedAt: ts(time.Second), SilencedUntil: ts(-time.Hour),
		},
	}
	f.rules = []*apiv1.AlertRule{
		{
			App: "default", Name: "failures", Description: "call the team " + evil, Events: []string{"failed", "timed_out", "recovered"}, Select: &apiv1.AlertSelection{Jobs: []string{"tot*"}, Labels: map[string]string{"team": "billing"}},
			Severity: "critical", Threshold: 3, Window: "10m", GroupBy: []string{"job", "label:team"}, Wait: "0s", Repeat: "1h", Escalate: &apiv1.AlertEscalation{After: "30m", Channels: []string{"pager"}}, Channels: []string{"ops"}, Revision: 7,
		},
		{App: "default", Name: "hosts", Events: []string{"host_lost", "of_a_newer_server"}, Channels: []string{"ops", "pager"}, Mute: []string{"holidays"}, Revision: 1},
		{
			App: "default", Name: "late", Events: []string{"late_start", "not_finished_by", "no_success_since", "running_longer_than"}, Select: &apiv1.AlertSelection{Owners: []string{"ann"}},
			When: &apiv1.AlertTimes{LateStart: "5m", NotFinishedBy: "06:30", NoSuccessSince: "26h", RunningLongerThan: "1h"}, Zone: "Asia/Shanghai", Repeat: "0s", Silence: "15m", Channels: []string{"ops"}, Revision: 2,
		},
	}
	f.channels = []*apiv1.AlertChannel{
		{App: "default", Name: "ops", Description: "the team on duty", Language: "zh", Wecom: &apiv1.AlertRobot{Url: "https://example.com/send?key=" + channelKey}, Revision: 3},
		{App: "default", Name: "pager", Pagerduty: &apiv1.AlertPagerDuty{Key: &apiv1.AlertText{Secret: "pager-key"}}, Templates: &apiv1.AlertTexts{En: &apiv1.AlertTemplates{Title: "{{.Title}}"}}, UpdatedAt: ts(time.Hour), Revision: 4},
	}
	f.silences = []*apiv1.AlertSilence{
		{App: "default", Id: "silence-1", Rule: "hosts", From: ts(time.Hour), Until: ts(-time.Hour), Reason: "new racks " + evil, CreatedBy: "bob"},
		{App: "default", Id: "silence-2", Labels: map[string]string{"job": "sweep"}, From: ts(-time.Hour), Until: ts(-2 * time.Hour), CreatedBy: "ada"},
	}
	f.deliveries = []*apiv1.AlertDelivery{
		{App: "default", Id: "n-5.ops", Alert: firstAlert, Rule: "failures", Channel: "ops", Event: "failed", AlertState: "firing", State: "waiting", CreatedAt: ts(time.Minute), NextAttemptAt: ts(-time.Minute), Attempts: 2, Status: 503, RequestId: "req-503", Title: "[FIRING] totals: failed"},
		{App: "default", Id: "n-4.pager", Alert: firstAlert, Rule: "failures", Channel: "pager", Event: "failed", AlertState: "firing", State: "refused", CreatedAt: ts(time.Hour), EndedAt: ts(time.Hour), Attempts: 1, Status: 200, Code: "310000", Reason: "sign not match " + evil},
		{App: "default", Id: "n-3.ops", Alert: otherAlert, Rule: "hosts", Channel: "ops", Event: "host_lost", AlertState: "resolved", State: "delivered", CreatedAt: ts(2 * time.Hour), EndedAt: ts(2 * time.Hour), Attempts: 1, Status: 200},
		{App: "default", Id: "n-2.gone", Alert: otherAlert, Channel: "gone", Event: "host_lost", AlertState: "firing", State: "dropped", Reason: "the channel gone does not exist"},
	}
	for i := range pageSize {
		f.deliveries = append(f.deliveries, &apiv1.AlertDelivery{App: "default", Id: fmt.Sprintf("old-%02d.ops", i), Rule: "failures", Channel: "ops", Event: "failed", AlertState: "firing", State: "given_up", Attempts: 9, CreatedAt: ts(24 * time.Hour)})
	}
}

func (f *fakeAPI) ListAlerts(_ context.Context, r *apiv1.ListAlertsRequest) (*apiv1.ListAlertsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.App != "default" {
		return &apiv1.ListAlertsResponse{}, nil
	}
	return &apiv1.ListAlertsResponse{Alerts: slices.Clone(f.firing)}, nil
}

func (f *fakeAPI) ListAlertRules(_ context.Context, r *apiv1.ListAlertRulesRequest) (*apiv1.ListAlertRulesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.App != "default" {
		return &apiv1.ListAlertRulesResponse{}, nil
	}
	return &apiv1.ListAlertRulesResponse{Rules: slices.Clone(f.rules)}, nil
}

func (f *fakeAPI) ListAlertChannels(_ context.Context, r *apiv1.ListAlertChannelsRequest) (*apiv1.ListAlertChannelsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.App != "default" {
		return &apiv1.ListAlertChannelsResponse{}, nil
	}
	return &apiv1.ListAlertChannelsResponse{Channels: slices.Clone(f.channels)}, nil
}

func (f *fakeAPI) ListSilences(_ context.Context, r *apiv1.ListSilencesRequest) (*apiv1.ListSilencesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.App != "default" {
		return &apiv1.ListSilencesResponse{}, nil
	}
	return &apiv1.ListSilencesResponse{Silences: slices.Clone(f.silences)}, nil
}

// ListAlertDeliveries has tokens that are the id of the last delivery of a page.
func (f *fakeAPI) ListAlertDeliveries(_ context.Context, r *apiv1.ListAlertDeliveriesRequest) (*apiv1.ListAlertDeliveriesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &apiv1.ListAlertDeliveriesResponse{}
	after := r.PageToken == ""
	for _, d := range f.deliveries {
		switch {
		case d.App != r.App, !after, r.Channel != "" && d.Channel != r.Channel, r.State != "" && d.State != r.State, r.Alert != "" && d.Alert != r.Alert:
			after = after || d.Id == r.PageToken
			continue
		case len(out.Deliveries) == int(r.PageSize):
			out.NextPageToken = out.Deliveries[len(out.Deliveries)-1].Id
			return out, nil
		}
		out.Deliveries = append(out.Deliveries, proto.CloneOf(d))
	}
	return out, nil
}

func (f *fakeAPI) AcknowledgeAlert(_ context.Context, r *apiv1.AcknowledgeAlertRequest) (*apiv1.Alert, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, a := range f.firing {
		if a.Id == r.Id && a.App == r.App {
			a = proto.CloneOf(a)
			a.AcknowledgedBy, a.AcknowledgedAt = "ada", timestamppb.Now()
			f.firing[i] = a
			return a, nil
		}
	}
	return nil, status.Error(codes.NotFound, "there is no such alert")
}

func (f *fakeAPI) CreateSilence(_ context.Context, r *apiv1.CreateSilenceRequest) (*apiv1.AlertSilence, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, err := time.ParseDuration(r.Duration)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "duration: %.40q is not a duration: write it as 30m or 2h", r.Duration)
	}
	s := &apiv1.AlertSilence{App: r.App, Id: "silence-new", Rule: r.Rule, Labels: r.Labels, From: timestamppb.Now(), Until: timestamppb.New(time.Now().Add(d)), Reason: r.Reason, CreatedBy: "ada"}
	f.silences = append(slices.Clone(f.silences), s)
	return s, nil
}

func (f *fakeAPI) EndSilence(_ context.Context, r *apiv1.EndSilenceRequest) (*apiv1.EndSilenceResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(f.silences), func(s *apiv1.AlertSilence) bool { return s.Id == r.Id })
	if len(left) == len(f.silences) {
		return nil, status.Error(codes.NotFound, "there is no such silence")
	}
	f.silences = left
	return &apiv1.EndSilenceResponse{}, nil
}

func (f *fakeAPI) TestAlertChannel(_ context.Context, r *apiv1.TestAlertChannelRequest) (*apiv1.AlertDelivery, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.ContainsFunc(f.channels, func(m *apiv1.AlertChannel) bool { return m.Name == r.Channel }) {
		return nil, status.Error(codes.NotFound, "there is no such channel")
	}
	f.tested = append(f.tested, proto.CloneOf(r))
	d := &apiv1.AlertDelivery{App: r.App, Id: "test." + r.Channel, Channel: r.Channel, Event: "failed", AlertState: "firing", State: "waiting", CreatedAt: timestamppb.Now(), Title: "an example"}
	f.deliveries = append([]*apiv1.AlertDelivery{d}, f.deliveries...)
	return d, nil
}

func (f *fakeAPI) PreviewAlert(_ context.Context, r *apiv1.PreviewAlertRequest) (*apiv1.AlertPreview, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.channels, func(m *apiv1.AlertChannel) bool { return m.Name == r.Channel })
	if i < 0 {
		return nil, status.Error(codes.NotFound, "there is no such channel")
	}
	language := alerts.LanguageOf(f.channels[i])
	p, err := alerts.Preview(f.channels[i], r.Event, cmp.Or(notification.Language(r.Language), language), time.Unix(0, 0))
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return &apiv1.AlertPreview{App: r.App, Channel: r.Channel, Kind: string(alerts.KindOf(f.channels[i])), Language: string(language), Event: r.Event, Title: p.Title, Method: p.Method, Url: p.URL, Headers: p.Headers, Body: p.Body, Html: p.HTML, Note: p.Note}, nil
}

func (f *fakeAPI) RetryAlertDelivery(_ context.Context, r *apiv1.RetryAlertDeliveryRequest) (*apiv1.AlertDelivery, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, d := range f.deliveries {
		switch {
		case d.Id != r.Id:
			continue
		case d.State == "waiting", d.State == "delivered":
			return nil, status.Error(codes.FailedPrecondition, "the delivery waits for its next attempt, or was delivered")
		}
		d = proto.CloneOf(d)
		d.State = "waiting"
		f.deliveries[i] = d
		return d, nil
	}
	return nil, status.Error(codes.NotFound, "there is no such delivery")
}

// ApplyChangeSet changes one rule or one channel.
func (f *fakeAPI) ApplyChangeSet(_ context.Context, r *apiv1.ApplyChangeSetRequest) (*apiv1.ApplyChangeSetResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(r.Changes) != 1 {
		return nil, status.Error(codes.Unimplemented, "the fake takes one change")
	}
	switch k := r.Changes[0].Kind.(type) {
	case *apiv1.Change_AlertRule:
		if _, _, err := alerts.ReadRule(k.AlertRule); err != nil {
			s, _ := status.New(codes.InvalidArgument, "1 of 1 changes is refused").WithDetails(&apiv1.Refusal{Problems: []*apiv1.Refusal_Problem{{Code: int32(codes.InvalidArgument), Error: err.Error()}}})
			return nil, s.Err()
		}
		if !r.DryRun {
			spec := proto.CloneOf(k.AlertRule)
			spec.Revision = 100
			f.rules = append(slices.DeleteFunc(slices.Clone(f.rules), func(x *apiv1.AlertRule) bool { return x.Name == spec.Name }), spec)
		}
	case *apiv1.Change_AlertChannel:
		if _, err := alerts.ReadChannel(k.AlertChannel); err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		if !r.DryRun {
			spec := proto.CloneOf(k.AlertChannel)
			spec.Revision = 100
			f.channels = append(slices.DeleteFunc(slices.Clone(f.channels), func(x *apiv1.AlertChannel) bool { return x.Name == spec.Name }), spec)
		}
	case *apiv1.Change_Delete:
		switch k.Delete.Kind {
		case "alertrule":
			f.rules = slices.DeleteFunc(slices.Clone(f.rules), func(x *apiv1.AlertRule) bool { return x.Name == k.Delete.Name })
		case "alertchannel":
			f.channels = slices.DeleteFunc(slices.Clone(f.channels), func(x *apiv1.AlertChannel) bool { return x.Name == k.Delete.Name })
		default:
			return nil, status.Errorf(codes.InvalidArgument, "kind is %q", k.Delete.Kind)
		}
	}
	return &apiv1.ApplyChangeSetResponse{Results: []*apiv1.ChangeResult{{Result: "updated"}}}, nil
}

func (f *fakeAPI) MarkError(_ context.Context, r *apiv1.MarkErrorRequest) (*apiv1.ErrorMark, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Until != nil && !r.Until.AsTime().After(time.Now()) {
		return nil, status.Error(codes.InvalidArgument, "until has passed")
	}
	m := &apiv1.ErrorMark{App: r.App, Fingerprint: r.Fingerprint, State: r.State, Note: r.Note, Job: r.Job, Until: r.Until, MarkedBy: "ada", MarkedAt: timestamppb.Now()}
	f.errorMarks = append(slices.DeleteFunc(slices.Clone(f.errorMarks), func(x *apiv1.ErrorMark) bool { return x.Fingerprint == r.Fingerprint }), m)
	return m, nil
}

func (f *fakeAPI) ListErrorMarks(_ context.Context, r *apiv1.ListErrorMarksRequest) (*apiv1.ListErrorMarksResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &apiv1.ListErrorMarksResponse{}
	for _, m := range f.errorMarks {
		if m.App == r.App {
			out.Marks = append(out.Marks, m)
		}
	}
	return out, nil
}

func (f *fakeAPI) ClearErrorMark(_ context.Context, r *apiv1.ClearErrorMarkRequest) (*apiv1.ClearErrorMarkResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(f.errorMarks), func(x *apiv1.ErrorMark) bool { return x.Fingerprint == r.Fingerprint })
	if len(left) == len(f.errorMarks) {
		return nil, status.Error(codes.NotFound, "there is no such mark of an error")
	}
	f.errorMarks = left
	return &apiv1.ClearErrorMarkResponse{}, nil
}
