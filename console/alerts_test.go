package console

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	alerts "github.com/wheelworkhq/wheelwork/alert/definition"
	"github.com/wheelworkhq/wheelwork/alert/rule"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/document"
)

// alertPages returns the addresses of the pages of alerts, with texts that each must contain.
func alertPages() map[string][]string {
	return map[string][]string{
		"/apps/default/alerts": {
			"Firing: 2", "Critical", "Events: 1\u202f234", "job=totals", "Timed out", "line 17 &lt;script&gt;", `href="/apps/default/runs/` + failedRun, "In trouble, 6: a, b, c, d, e, …", "acknowledged by bob",
			"/alerts/firing/" + firstAlert + "/acknowledge", "rule=failures#h-silence", "Host lost",
			"from 3 events in 10m on, an alert for each job, team, told at once, repeated every 1h, with a resolve message, without an acknowledgement after 30m also to pager", "Jobs: tot*, Labels: team=billing",
			"of_a_newer_server", "muted on the dates of holidays", "told after 30s, repeated every 4h",
			"Started more than 5m late, Not finished by 06:30 Asia/Shanghai, No success for 26h, Runs for more than 1h", "Owners: ann", "told once, then quiet for 15m",
			"WeCom", "PagerDuty", "/alerts/channels/ops/test", "new racks", "/alerts/silences/silence-1/end",
			"req-503", "310000", "sign not match", "/alerts/deliveries/n-4.pager/retry", "Given up", "page=old-45.ops",
		},
		"/apps/default/alerts?channel=pager":                {`value="pager"`, "n-4.pager"},
		"/apps/default/alerts?state=dropped":                {`value="dropped" selected`, "the channel gone does not exist", "/alerts/deliveries/n-2.gone/retry?state=dropped"},
		"/apps/default/alerts?alert=" + otherAlert:          {"Only those of the alert", "n-3.ops"},
		"/apps/default/alerts/rules":                        {"New rule", "kind: AlertRule", `name="revision" value="0"`},
		"/apps/default/alerts/channels":                     {"New channel", "kind: AlertChannel", "name a secret of the app"},
		"/apps/default/alerts/rules/failures":               {"name: failures", "escalate:", `name="revision" value="7"`, "/alerts/rules/failures/delete"},
		"/apps/default/alerts/channels/ops":                 {"name: ops", "wecom:", channelKey},
		"/apps/default/alerts/rules/failures/delete":        {"Delete the rule failures?"},
		"/apps/default/alerts/channels/ops/delete":          {"Delete the channel ops?"},
		"/apps/default/alerts?channel=none":                 {"No delivery matches."},
		"/apps/default/alerts?page=old-45.ops":              {"old-49.ops", "First page"},
		"/apps/default/alerts?rule=failures&labels=job%3Dx": {`value="failures"`, `value="job=x"`},
	}
}

// TestAlertsOfAnApp: the short address shows the alerts of an app without a redirect.
func TestAlertsOfAnApp(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	for path, want := range map[string]bool{"/alerts": true, "/alerts?app=default": true, "/alerts?app=billing": false, "/apps/billing/alerts": false} {
		resp, body := s.do(t, "GET", path, nil)
		if resp.StatusCode != http.StatusOK || strings.Contains(body, "alert-"+firstAlert) != want || strings.Contains(body, "old-45.ops") != want {
			t.Errorf("%s: %s, alerts of the app default: %t", path, resp.Status, !want)
		}
		checkPage(t, body)
	}
	_, body := s.do(t, "GET", "/apps/default/alerts", nil)
	if strings.Contains(body, channelKey) {
		t.Error("the page has the address of a channel")
	}
	if strings.Contains(body, "01OLD") || strings.Contains(body, "n-3.ops/retry") || strings.Contains(body, "n-5.ops/retry") {
		t.Error("the page shows more incidents than the latest three, or tries again what was delivered or waits")
	}
	if strings.Contains(body, otherAlert+"/acknowledge") {
		t.Error("an acknowledged alert can be acknowledged")
	}
}

// TestAlertActions sends each form of the page.
func TestAlertActions(t *testing.T) {
	const here = "/apps/default/alerts"
	s := newSite(t, newFake().populate()).signIn(t)
	post := func(path, form, to, says string) {
		t.Helper()
		resp, _ := s.post(t, here+path, form)
		got := resp.Header.Get("Location")
		if resp.StatusCode != http.StatusSeeOther || got != here+to {
			t.Fatalf("%s: %s to %q, want %q", path, resp.Status, got, here+to)
		}
		path, _, _ = strings.Cut(got, "#")
		if _, body := s.do(t, "GET", path, nil); !strings.Contains(body, says) {
			t.Errorf("%s: the page does not say %q", path, says)
		}
	}
	post("/firing/"+firstAlert+"/acknowledge?state=refused", "", "?state=refused", "acknowledged by ada")
	post("/silences", url.Values{"rule": {" failures "}, "labels": {"job=a b, team=x"}, "duration": {"2h"}, "reason": {"repair"}}.Encode(), "", "Silenced until ")
	if got := s.fake.silences[2]; got.Rule != "failures" || len(got.Labels) != 2 || got.Labels["job"] != "a b" || got.Labels["team"] != "x" || got.Reason != "repair" {
		t.Errorf("made the silence %v", got)
	}
	post("/silences/silence-1/end", "", "", "The silence has ended.")
	post("/channels/ops/test", "language=zh", "?channel=ops#h-deliveries", "A test is on its way to ops.")
	if len(s.fake.tested) != 1 || s.fake.tested[0].Channel != "ops" || s.fake.tested[0].Language != "zh" || s.fake.tested[0].App != "default" {
		t.Errorf("tested %v", s.fake.tested)
	}
	post("/deliveries/n-4.pager/retry?channel=pager", "", "?channel=pager#h-deliveries", "Queued again for pager")
	for path, want := range map[string]int{
		"/firing/none/acknowledge": http.StatusNotFound, "/silences/silence-1/end": http.StatusNotFound,
		"/channels/none/test": http.StatusNotFound, "/deliveries/n-3.ops/retry": http.StatusBadRequest,
	} {
		resp, body := s.post(t, here+path, "")
		if resp.StatusCode != want {
			t.Errorf("%s: %s, want %d", path, resp.Status, want)
		}
		checkPage(t, body)
	}
	for form, why := range map[string]string{"duration=soon&rule=failures": "is not a duration", "duration=1h&labels=job&rule=failures": "is not a label"} {
		resp, body := s.post(t, here+"/silences", form)
		if resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, why) || !strings.Contains(body, `name="rule" value="failures"`) {
			t.Errorf("%s: %s", form, resp.Status)
		}
		checkPage(t, body)
	}
	if n := len(s.fake.silences); n != 2 {
		t.Errorf("%d silences, want 2", n)
	}
}

// TestAlertsOfferWhatIsAllowed signs in visitors with fewer permissions.
func TestAlertsOfferWhatIsAllowed(t *testing.T) {
	f := newFake().populate()
	f.may = []string{"alerts.read"}
	s := newSite(t, f).signIn(t)
	f.denied = "channels.read" // the API refuses it, so the page must not ask
	resp, body := s.do(t, "GET", "/apps/default/alerts", nil)
	if resp.StatusCode != http.StatusOK {
		t.Errorf("with alerts.read alone: %s", resp.Status)
	}
	for _, hidden := range []string{"/acknowledge", "/silences", "/test", "/retry", "h-channels", "WeCom"} {
		if strings.Contains(body, hidden) {
			t.Errorf("a visitor with alerts.read alone sees %q", hidden)
		}
	}
	if !strings.Contains(body, "job=totals") || !strings.Contains(body, "310000") {
		t.Error("the visitor sees no alerts or no deliveries")
	}
	checkPage(t, body)
	f = newFake().populate()
	f.may, f.denied = []string{"jobs.read"}, "alerts.read"
	s = newSite(t, f).signIn(t)
	if resp, body := s.do(t, "GET", "/apps/default/alerts", nil); resp.StatusCode != http.StatusForbidden || strings.Contains(body, `href="/apps/default/alerts"`) {
		t.Errorf("without alerts.read: %s", resp.Status)
	}
}

// TestAlertsAreBounded shows the first entries of long lists, and says how many there are.
func TestAlertsAreBounded(t *testing.T) {
	f := newFake().populate()
	for range 100 {
		f.firing = append(f.firing, proto.CloneOf(f.firing[0]))
		f.silences = append(f.silences, proto.CloneOf(f.silences[0]))
		f.rules = append(f.rules, proto.CloneOf(f.rules[1]))
		f.channels = append(f.channels, proto.CloneOf(f.channels[0]))
	}
	s := newSite(t, f).signIn(t)
	_, body := s.do(t, "GET", "/apps/default/alerts", nil)
	for mark, want := range map[string]int{`id="alert-`: pageSize, `id="silence-`: pageSize, `id="rule-`: pageSize, `id="channel-`: pageSize, `id="delivery-`: pageSize} {
		if got := strings.Count(body, mark); got != want {
			t.Errorf("%d times %s, want %d", got, mark, want)
		}
	}
	for _, want := range []string{"Firing: 102", "The first 50 of 102.", "The first 50 of 103."} {
		if !strings.Contains(body, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

// TestSampleOfAlerts: the documents of the empty page are valid.
func TestSampleOfAlerts(t *testing.T) {
	text, err := sampleAlerts("shop")
	if err != nil {
		t.Fatal(err)
	}
	documents, err := document.Parse(strings.NewReader(text), document.Options{})
	if err != nil || len(documents) != 2 {
		t.Fatalf("%d documents, %v\n%s", len(documents), err, text)
	}
	if _, err := alerts.ReadChannel(documents[0].Spec.(*apiv1.AlertChannel)); err != nil {
		t.Error(err)
	}
	if _, _, err := alerts.ReadRule(documents[1].Spec.(*apiv1.AlertRule)); err != nil {
		t.Error(err)
	}
	for _, d := range documents {
		if d.App != "shop" {
			t.Errorf("%s is of the app %q", d, d.App)
		}
	}
}

// TestAlertWords: each event, kind and severity has a text, also those that come with later fields.
func TestAlertWords(t *testing.T) {
	keys := []string{}
	for _, e := range rule.Events() {
		keys = append(keys, "alerts.event."+e)
	}
	fields := (&apiv1.AlertChannel{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); f.Number() >= firstKind {
			keys = append(keys, "alerts.kind."+string(f.Name()))
			m := &apiv1.AlertChannel{Name: "x", Templates: &apiv1.AlertTexts{}, UpdatedAt: timestamppb.Now()}
			m.ProtoReflect().Set(f, protoreflect.ValueOfMessage(m.ProtoReflect().NewField(f).Message()))
			if got := kindOf(m); got != string(f.Name()) {
				t.Errorf("the kind of %v is %q", m, got)
			}
		}
	}
	if len(keys) < 30 {
		t.Fatalf("found only %d keys", len(keys))
	}
	for _, lang := range languages() {
		texts, err := loadCatalogue(lang)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range keys {
			if texts[key] == "" {
				t.Errorf("%s: no text for %q", lang, key)
			}
		}
	}
}

func TestSilencedRules(t *testing.T) {
	now := time.Now()
	at := func(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(now.Add(d)) }
	rules := []*apiv1.AlertRule{{Name: "a"}, {Name: "b"}}
	silences := []*apiv1.AlertSilence{
		{Rule: "a", From: at(-time.Hour), Until: at(time.Hour)},
		{From: at(-time.Hour), Until: at(time.Minute)},
		{Rule: "b", From: at(time.Hour), Until: at(9 * time.Hour)},                                         // has not begun
		{Rule: "b", Labels: map[string]string{"job": "x"}, From: at(-time.Hour), Until: at(9 * time.Hour)}, // of one group
	}
	rows := ruleRows(rules, []*apiv1.Alert{{Rule: "b"}, {Rule: "b"}, {Rule: "gone"}}, silences, now)
	got := []time.Duration{stamp(rows[0].Silenced).Sub(now).Round(time.Second), stamp(rows[1].Silenced).Sub(now).Round(time.Second)}
	if !slices.Equal(got, []time.Duration{time.Hour, time.Minute}) || rows[0].Firing != 0 || rows[1].Firing != 2 {
		t.Errorf("%v, %+v", got, rows)
	}
}

// TestAlertsElsewhere: the overview has the number of alerts, and the page of a job those that concern it.
func TestAlertsElsewhere(t *testing.T) {
	f := newFake().populate()
	s := newSite(t, f).signIn(t)
	const tile = `<a href="/apps/default/alerts"><b class="s-failed">2</b>`
	if _, body := s.do(t, "GET", "/apps/default", nil); !strings.Contains(body, tile) {
		t.Error("the overview has no number of alerts with a link")
	}
	for job, want := range map[string][2]bool{"totals": {true, true}, "sweep": {}} {
		_, body := s.do(t, "GET", "/apps/default/jobs/"+job, nil)
		alert, selected := strings.Contains(body, `id="alert-`+firstAlert), strings.Contains(body, `/alerts/rules/failures">failures</a></dt>`)
		if alert != want[0] || selected != want[1] || strings.Contains(body, `/alerts/rules/hosts"`) || strings.Contains(body, otherAlert) {
			t.Errorf("%s: alert %t, rule %t, want %v, and nothing about hosts", job, alert, selected, want)
		}
		checkPage(t, body)
	}
	f.change(func() { f.denied = "alerts.read" }) // the roles that the session knows still have it
	for _, path := range []string{"/apps/default", "/apps/default/jobs/totals"} {
		if resp, body := s.do(t, "GET", path, nil); resp.StatusCode != http.StatusOK || strings.Contains(body, firstAlert) {
			t.Errorf("%s without alerts.read: %s", path, resp.Status)
		}
	}
	f.change(func() { f.asked, f.may = nil, []string{"jobs.read", "runs.read", "cluster.read"} })
	s = newSite(t, f).signIn(t)
	for _, path := range []string{"/apps/default", "/apps/default/jobs/totals"} {
		if resp, body := s.do(t, "GET", path, nil); resp.StatusCode != http.StatusOK || strings.Contains(body, "/apps/default/alerts") {
			t.Errorf("%s for a visitor without alerts.read: %s", path, resp.Status)
		}
	}
	for _, m := range f.asked {
		if strings.Contains(string(proto.MessageName(m)), "Alert") {
			t.Errorf("a page asks for alerts that the visitor may not read: %T", m)
		}
	}
}

func TestRuleSelects(t *testing.T) {
	j := &apiv1.Job{App: "default", Name: "bill-nightly", Owner: "ann", Labels: map[string]string{"team": "money"}}
	for _, tt := range []struct {
		events []string
		s      *apiv1.AlertSelection
		want   bool
	}{
		{[]string{"failed"}, nil, true},
		{[]string{"host_lost", "disk", "recovered"}, nil, false},
		{[]string{"host_lost", "missed"}, nil, true},
		{[]string{"failed"}, &apiv1.AlertSelection{Jobs: []string{"ship", "bill-*"}}, true},
		{[]string{"failed"}, &apiv1.AlertSelection{Jobs: []string{"bill"}}, false},
		{[]string{"failed"}, &apiv1.AlertSelection{Jobs: []string{"bill-*"}, Labels: map[string]string{"team": "*"}, Owners: []string{"bob", "ann"}}, true},
		{[]string{"failed"}, &apiv1.AlertSelection{Labels: map[string]string{"team": "ops"}}, false},
		{[]string{"failed"}, &apiv1.AlertSelection{Jobs: []string{"*"}, Owners: []string{"bob"}}, false},
	} {
		if got := ruleSelects(&apiv1.AlertRule{Events: tt.events, Select: tt.s}, j); got != tt.want {
			t.Errorf("events %v of %v: %t", tt.events, tt.s, got)
		}
	}
	for _, e := range rule.Events() { // the documentation lists those of jobs first, then recovered
		if got, want := ofJobs(e), slices.Index(rule.Events(), e) < slices.Index(rule.Events(), rule.Recovered) || e == rule.SchedulePaused; got != want {
			t.Errorf("the event %s is of jobs: %t", e, got)
		}
	}
}

// testAlerts answers an alert, tests a channel and opens a rule with the keyboard alone, on a narrow screen.
func testAlerts(t *testing.T, b *browser) {
	b.do(chromedp.EmulateViewport(400, 800))
	defer b.do(chromedp.EmulateViewport(1440, 1000))
	press := pressing(t, b, 400)
	b.visit("/apps/default/alerts")
	press(`form[action*="acknowledge"] button`, "Acknowledged: failures")
	press(`form[action$="/channels/ops/test"] button`, "A test is on its way to ops.")
	press(`form[action$="/silences/silence-1/end?channel=ops"] button`, "The silence has ended.")
	press(`#rule-failures a`, "Definition as YAML")
	press(`button[value=check]`, "Valid")
	press(`.crumbs a`, "Latest events")
}

// TestAlertsInAJob: the page of a job describes the alerts of its document, without a link to a document of a rule.
func TestAlertsInAJob(t *testing.T) {
	f := newFake().populate()
	f.jobs[0].Alerts = []*apiv1.JobAlert{{Events: []string{"no_success_since"}, When: &apiv1.JobAlertTimes{NoSuccessSince: "26h"}, Channels: []string{"night-watch"}}}
	s := newSite(t, f).signIn(t)
	_, body := s.do(t, "GET", "/apps/default/jobs/"+f.jobs[0].Name, nil)
	checkPage(t, body)
	name := "job:" + f.jobs[0].Name + ":0"
	if !strings.Contains(body, "<dt>"+name+"</dt>") || !strings.Contains(body, "26h") || !strings.Contains(body, "night-watch") || strings.Contains(body, "rules/"+name) {
		t.Errorf("the page lacks %s\n%s", name, body)
	}
}
