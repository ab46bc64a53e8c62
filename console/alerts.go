package console

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

const (
	// shownIncidents bounds the incidents that the page shows of each alert, and shownSubjects its subjects in trouble.
	shownIncidents = 3
	shownSubjects  = 5
	// firstKind is the least number of the fields of apiv1.AlertChannel that have the settings of one kind.
	firstKind = 30
)

// alertsView is the page of the alerts of an app. Each list has the first pageSize entries.
type alertsView struct {
	Firing      []*apiv1.Alert
	FiringTotal int
	Rules       []alertRule
	RulesTotal  int

	Channels      []alertChannel // empty if the visitor may not read channels
	ChannelsTotal int

	Silences      []*apiv1.AlertSilence
	SilencesTotal int

	Deliveries []*apiv1.AlertDelivery
	Filter     deliveryFilter
	Next       string // token of the next page of deliveries
	Paged      bool   // these are not the first deliveries

	Names   []string // of the channels that the filter offers
	Silence silenceForm
	Refused string // why the silence of the form was not made
	Sample  string // documents to begin with; "": the app has rules or channels
	Done    accessDone

	MayRules, MayChannels bool // the visitor may write them
}

// alertRule is a rule with what it does at present.
type alertRule struct {
	*apiv1.AlertRule
	Firing   int                    // its alerts
	Silenced *timestamppb.Timestamp // until when a silence of all its groups holds; nil: none does
}

// alertChannel is a channel without its addresses, which may have keys.
type alertChannel struct {
	Name, Description, Kind, Language string
}

// Looks returns the state of a run whose look the state of a delivery has.
func (alertsView) Looks(state string) string {
	switch state {
	case "delivered":
		return "succeeded"
	case "refused", "given_up":
		return "failed"
	case "dropped":
		return "lost"
	}
	return "waiting"
}

// States returns the states of deliveries, for the filter.
func (alertsView) States() []string {
	return []string{"waiting", "delivered", "refused", "given_up", "dropped"}
}

// Ended reports whether a delivery can be tried again.
func (alertsView) Ended(d *apiv1.AlertDelivery) bool {
	return slices.Contains([]string{"refused", "given_up", "dropped"}, d.State)
}

// Latest returns the latest incidents of an alert, the newest first.
func (alertsView) Latest(a *apiv1.Alert) []*apiv1.AlertIncident {
	last := slices.Clone(a.Incidents[max(0, len(a.Incidents)-shownIncidents):])
	slices.Reverse(last)
	return last
}

// Subjects returns the first subjects of an alert.
func (alertsView) Subjects(a *apiv1.Alert) []string {
	return a.Subjects[:min(len(a.Subjects), shownSubjects)]
}

// Begun reports whether a silence holds already.
func (alertsView) Begun(s *apiv1.AlertSilence) bool { return !stamp(s.From).After(time.Now()) }

// Pairs returns labels as a form takes them.
func (alertsView) Pairs(labels map[string]string) string { return strings.Join(pairsOf(labels), ", ") }

// deliveryFilter is the filter of the deliveries, as the address has it.
type deliveryFilter struct{ Channel, State, Alert string }

func readDeliveryFilter(q url.Values) deliveryFilter {
	return deliveryFilter{q.Get("channel"), q.Get("state"), q.Get("alert")}
}

// Set reports whether the list may hide deliveries.
func (f deliveryFilter) Set() bool { return f != deliveryFilter{} }

// Link returns an address with the filter, and with pairs of further parameters.
func (f deliveryFilter) Link(address string, pairs ...string) string {
	return withQuery(address, append([]string{"channel", f.Channel, "state", f.State, "alert", f.Alert}, pairs...)...)
}

// silenceForm is the form of a new silence.
type silenceForm struct{ Rule, Labels, Duration, Reason string }

func readSilenceForm(f url.Values) silenceForm {
	field := func(name string) string { return strings.TrimSpace(f.Get(name)) }
	return silenceForm{field("rule"), field("labels"), field("duration"), field("reason")}
}

// request returns the call that the form asks for.
func (f silenceForm) request(app string) (*apiv1.CreateSilenceRequest, error) {
	labels, err := readPairs(strings.Split(f.Labels, ","))
	return &apiv1.CreateSilenceRequest{App: app, Rule: f.Rule, Labels: labels, Duration: f.Duration, Reason: f.Reason}, err
}

func (c *console) alertsPage(v *visit) error {
	view := &alertsView{Silence: readSilenceForm(v.r.URL.Query())}
	if view.Silence.Duration == "" {
		view.Silence.Duration = "2h"
	}
	view.Done, _ = noticeOf[accessDone](v)
	return c.showAlerts(v, http.StatusOK, view)
}

// alertsAtOnce is the number of alerts, rules or channels of one call. A page counts them, and finds those that belong together.
const alertsAtOnce = 1000

// showAlerts makes at most five calls at once. Each answer is bounded by the API.
func (c *console) showAlerts(v *visit, code int, view *alertsView) error {
	q := v.r.URL.Query()
	view.MayRules, view.MayChannels = c.mayWrite(v, alertRules), c.mayWrite(v, alertChannels)
	view.Filter, view.Paged = readDeliveryFilter(q), q.Get("page") != ""
	var firing []*apiv1.Alert
	var rules []*apiv1.AlertRule
	var channels []*apiv1.AlertChannel
	var silences []*apiv1.AlertSilence
	g, ctx := errgroup.WithContext(v.ctx)
	g.Go(func() error {
		answer, err := c.alerts.ListAlerts(ctx, &apiv1.ListAlertsRequest{App: v.app, PageSize: alertsAtOnce})
		firing = answer.GetAlerts()
		return err
	})
	g.Go(func() error {
		var err error
		rules, err = c.rules(ctx, v.app)
		return err
	})
	g.Go(func() error {
		answer, err := c.alerts.ListSilences(ctx, &apiv1.ListSilencesRequest{App: v.app})
		silences = answer.GetSilences()
		return err
	})
	g.Go(func() error {
		answer, err := c.alerts.ListAlertDeliveries(ctx, &apiv1.ListAlertDeliveriesRequest{
			App: v.app, Channel: view.Filter.Channel, State: view.Filter.State, Alert: view.Filter.Alert, PageSize: pageSize, PageToken: q.Get("page"),
		})
		view.Deliveries, view.Next = answer.GetDeliveries(), answer.GetNextPageToken()
		return err
	})
	if c.visitor(v).May("channels.read", v.app) {
		g.Go(func() error {
			var err error
			channels, err = c.channels(ctx, v.app)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	view.Firing, view.FiringTotal = firstPage(firing), len(firing)
	view.Silences, view.SilencesTotal = firstPage(silences), len(silences)
	view.RulesTotal, view.ChannelsTotal = len(rules), len(channels)
	view.Rules = ruleRows(firstPage(rules), firing, silences, time.Now())
	for _, m := range firstPage(channels) {
		view.Channels = append(view.Channels, alertChannel{m.Name, m.Description, kindOf(m), m.Language})
	}
	view.Names = channelNames(rules, channels)
	if len(rules)+len(channels) == 0 {
		var err error
		if view.Sample, err = sampleAlerts(v.app); err != nil {
			return err
		}
	}
	return c.showStatus(v, code, "alerts", "alerts", view)
}

// rules returns all rules of an app. A limit bounds them.
func (c *console) rules(ctx context.Context, app string) (all []*apiv1.AlertRule, err error) {
	for req := (&apiv1.ListAlertRulesRequest{App: app, PageSize: alertsAtOnce}); ; {
		answer, err := c.alerts.ListAlertRules(ctx, req)
		if all = append(all, answer.GetRules()...); err != nil || answer.NextPageToken == "" {
			return all, err
		}
		req.PageToken = answer.NextPageToken
	}
}

// channels returns all channels of an app. A limit bounds them.
func (c *console) channels(ctx context.Context, app string) (all []*apiv1.AlertChannel, err error) {
	for req := (&apiv1.ListAlertChannelsRequest{App: app, PageSize: alertsAtOnce}); ; {
		answer, err := c.alerts.ListAlertChannels(ctx, req)
		if all = append(all, answer.GetChannels()...); err != nil || answer.NextPageToken == "" {
			return all, err
		}
		req.PageToken = answer.NextPageToken
	}
}

// firstPage returns the first pageSize entries of a list.
func firstPage[T any](all []T) []T { return all[:min(len(all), pageSize)] }

// ruleRows adds to each rule its alerts that fire and its silences at a time.
func ruleRows(rules []*apiv1.AlertRule, firing []*apiv1.Alert, silences []*apiv1.AlertSilence, now time.Time) []alertRule {
	count := map[string]int{}
	for _, a := range firing {
		count[a.Rule]++
	}
	rows := make([]alertRule, len(rules))
	for i, r := range rules {
		rows[i] = alertRule{AlertRule: r, Firing: count[r.Name]}
		for _, s := range silences {
			all := len(s.Labels) == 0 && (s.Rule == "" || s.Rule == r.Name) && !stamp(s.From).After(now)
			if all && stamp(s.Until).After(stamp(rows[i].Silenced)) {
				rows[i].Silenced = s.Until
			}
		}
	}
	return rows
}

// kindOf returns the name of the kind of a channel; "": this version does not know it.
func kindOf(m *apiv1.AlertChannel) (kind string) {
	m.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if f.Number() >= firstKind {
			kind = string(f.Name())
		}
		return kind == ""
	})
	return kind
}

// channelNames returns the names of the channels that exist, as far as the visitor sees them, or that rules
// name: at most pageSize.
func channelNames(rules []*apiv1.AlertRule, channels []*apiv1.AlertChannel) []string {
	names := map[string]bool{}
	for _, m := range channels {
		names[m.Name] = true
	}
	for _, r := range rules {
		for _, name := range slices.Concat(r.Channels, r.GetEscalate().GetChannels()) {
			names[name] = true
		}
	}
	return firstPage(slices.Sorted(maps.Keys(names)))
}

// sampleDefinitions returns a channel and a rule that a visitor can start from.
func sampleDefinitions(app string) (*apiv1.AlertChannel, *apiv1.AlertRule) {
	channel := &apiv1.AlertChannel{App: app, Name: "ops", Webhook: &apiv1.AlertWebhook{Url: "https://example.com/hook", Secret: &apiv1.AlertText{Secret: "hook-key"}}}
	return channel, &apiv1.AlertRule{App: app, Name: "failures", Events: []string{"failed", "recovered"}, GroupBy: []string{"job"}, Channels: []string{channel.Name}}
}

// sampleAlerts returns the documents of a channel and of a rule.
func sampleAlerts(app string) (string, error) {
	channel, rule := sampleDefinitions(app)
	first, err := alertText(alertChannels, channel)
	if err != nil {
		return "", err
	}
	second, err := alertText(alertRules, rule)
	return first + "---\n" + second, err
}

// alertsAddress returns the address of the page of alerts, with the filter that the form was sent with.
func alertsAddress(v *visit, part string) string {
	return readDeliveryFilter(v.r.URL.Query()).Link(href("apps", v.app, "alerts")) + part
}

func (c *console) acknowledgeAlert(v *visit) error {
	a, err := c.alerts.AcknowledgeAlert(v.ctx, &apiv1.AcknowledgeAlertRequest{App: v.app, Id: v.r.PathValue("id")})
	if err != nil {
		return err
	}
	v.redirectWith(alertsAddress(v, ""), accessDone{"alerts.done.acknowledged", a.Rule})
	return nil
}

func (c *console) createSilence(v *visit) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	form := readSilenceForm(v.r.PostForm)
	req, err := form.request(v.app)
	var made *apiv1.AlertSilence
	if err == nil {
		made, err = c.alerts.CreateSilence(v.ctx, req)
	}
	if why, ok := mendable(err); ok {
		return c.showAlerts(v, http.StatusUnprocessableEntity, &alertsView{Silence: form, Refused: why})
	}
	if err != nil {
		return err
	}
	v.redirectWith(alertsAddress(v, ""), accessDone{"alerts.done.silenced", stamp(made.Until).In(zoneOf(v.r).Location).Format("2006-01-02 15:04 MST")})
	return nil
}

func (c *console) endSilence(v *visit) error {
	if _, err := c.alerts.EndSilence(v.ctx, &apiv1.EndSilenceRequest{App: v.app, Id: v.r.PathValue("id")}); err != nil {
		return err
	}
	v.redirectWith(alertsAddress(v, ""), accessDone{Key: "alerts.done.ended"})
	return nil
}

// testChannel sends an example to a channel. The page then shows the deliveries of the channel.
func (c *console) testChannel(v *visit) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	name := v.r.PathValue("name")
	_, err := c.alerts.TestAlertChannel(v.ctx, &apiv1.TestAlertChannelRequest{App: v.app, Channel: name, Language: v.r.PostForm.Get("language")})
	if err != nil {
		return err
	}
	v.redirectWith(deliveryFilter{Channel: name}.Link(href("apps", v.app, "alerts"))+"#h-deliveries", accessDone{"alerts.done.tested", name})
	return nil
}

func (c *console) retryDelivery(v *visit) error {
	d, err := c.alerts.RetryAlertDelivery(v.ctx, &apiv1.RetryAlertDeliveryRequest{App: v.app, Id: v.r.PathValue("id")})
	if err != nil {
		return err
	}
	v.redirectWith(alertsAddress(v, "#h-deliveries"), accessDone{"alerts.done.retried", d.Channel})
	return nil
}
