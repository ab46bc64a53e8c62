package sched_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/alert/definition"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/sched/core"
)

// receiver is the server behind a webhook. It notes what it is told.
type receiver struct {
	mu     sync.Mutex
	told   []told
	answer func(n int) int // the status of the nth request; nil: 200
	wait   chan struct{}   // requests wait for it; nil: they do not
}

// told is one request.
type told struct {
	id, kind, title string
	app             string
	events          int
	at              time.Time
}

// RoundTrip implements [http.RoundTripper].
func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	var m struct {
		Type string `json:"type"`
		Data struct {
			Title         string `json:"title"`
			Notifications []struct {
				App   string `json:"app"`
				Count int    `json:"count"`
			} `json:"notifications"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if wait := r.wait; wait != nil {
		r.mu.Unlock()
		select {
		case <-wait:
		case <-req.Context().Done():
		}
		r.mu.Lock()
		if err := req.Context().Err(); err != nil {
			return nil, err
		}
	}
	r.told = append(r.told, told{
		req.Header.Get("Webhook-Id"), strings.TrimSuffix(strings.TrimPrefix(m.Type, "alert."), ".v1"), m.Data.Title, m.Data.Notifications[0].App, m.Data.Notifications[0].Count, time.Now(),
	})
	status := http.StatusOK
	if r.answer != nil {
		status = r.answer(len(r.told))
	}
	return &http.Response{StatusCode: status, Header: http.Header{"X-Request-Id": {fmt.Sprint("request-", len(r.told))}}, Body: io.NopCloser(bytes.NewReader(nil))}, nil
}

// took returns the messages since the last call, as "firing bad: failed".
func (r *receiver) took() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, x := range r.told {
		all = append(all, x.kind+" "+x.title[strings.Index(x.title, "]")+2:])
	}
	r.told = nil
	return strings.Join(all, "; ")
}

// alerting runs a test with a receiver, a channel "ops" and a job "bad" that fails unless its
// input is "good".
func alerting(t *testing.T, f func(t *testing.T, w *world, c *alertClient, to *receiver)) {
	synctest.Test(t, func(t *testing.T) {
		to := &receiver{}
		w := newWorld(t)
		w.alerts = &definition.Edges{Client: &http.Client{Transport: to}}
		w.start()
		w.addHost("h1", 4)
		c := &alertClient{client: w.client()}
		c.alerts = apiv1.NewAlertsClient(c.conn)
		c.push()
		if _, err := apiv1.NewSecretsClient(c.conn).SetSecret(t.Context(), &apiv1.SetSecretRequest{Name: "key", Value: "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}); err != nil {
			t.Fatal(err)
		}
		w.handlers.byJob["bad"] = func(_ context.Context, t runtime.Task, _ runtime.Sink) runtime.Result {
			if string(t.Input) == "good" {
				return runtime.Result{Outcome: runtime.Succeeded}
			}
			return runtime.Result{Outcome: runtime.Permanent, Error: "it is bad", Code: "bad"}
		}
		c.apply(&apiv1.Job{Name: "bad"})
		c.define(&apiv1.AlertChannel{Name: "ops", Webhook: &apiv1.AlertWebhook{Url: "https://example.com/hook", Secret: &apiv1.AlertText{Secret: "key"}}})
		f(t, w, c, to)
		c.close()
		w.close()
	})
}

// alertClient is a client with the calls of alerts.
type alertClient struct {
	*client
	alerts apiv1.AlertsClient
}

// define applies rules and channels.
func (c *alertClient) define(all ...any) {
	c.t.Helper()
	var changes []*apiv1.Change
	for _, d := range all {
		switch d := d.(type) {
		case *apiv1.AlertRule:
			changes = append(changes, &apiv1.Change{Kind: &apiv1.Change_AlertRule{AlertRule: d}})
		case *apiv1.AlertChannel:
			changes = append(changes, &apiv1.Change{Kind: &apiv1.Change_AlertChannel{AlertChannel: d}})
		}
	}
	if _, err := c.applySet(changes...); err != nil {
		c.t.Fatal(err)
	}
}

// restart stops the server and starts another one with its data.
func (c *alertClient) restart(w *world) {
	w.stopServer()
	w.start()
	c.reconnect(w)
	c.alerts = apiv1.NewAlertsClient(c.conn)
}

// runs triggers a job with an input and waits for its end.
func (c *alertClient) runs(name, input string) {
	c.t.Helper()
	r, err := c.jobs.TriggerJob(c.t.Context(), &apiv1.TriggerJobRequest{Name: name, Input: &input})
	if err != nil {
		c.t.Fatal(err)
	}
	c.wait(r.Id)
	synctest.Wait()
}

func (c *alertClient) firing() []*apiv1.Alert {
	c.t.Helper()
	r, err := c.alerts.ListAlerts(c.t.Context(), &apiv1.ListAlertsRequest{})
	if err != nil {
		c.t.Fatal(err)
	}
	return r.Alerts
}

func (c *alertClient) deliveries(state string) []*apiv1.AlertDelivery {
	c.t.Helper()
	r, err := c.alerts.ListAlertDeliveries(c.t.Context(), &apiv1.ListAlertDeliveriesRequest{State: state, PageSize: 1000})
	if err != nil {
		c.t.Fatal(err)
	}
	return r.Deliveries
}

// TestAlertsOfAJob: a job that fails is told once, again after each repeat until a person
// acknowledges the alert, and once when it has succeeded. The server is stopped in between.
func TestAlertsOfAJob(t *testing.T) {
	alerting(t, func(t *testing.T, w *world, c *alertClient, to *receiver) {
		c.define(&apiv1.AlertRule{Name: "failures", Events: []string{"failed", "recovered"}, Channels: []string{"ops"}, Wait: "10s", Repeat: "1h"})
		c.runs("bad", "")
		if s := to.took(); s != "" {
			t.Errorf("before the wait is over it was told: %s", s)
		}
		c.restart(w)
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if s := to.took(); s != "firing bad: failed" {
			t.Errorf("after the wait: %q", s)
		}
		c.runs("bad", "")
		if s := to.took(); s != "" {
			t.Errorf("the alert was told: %s", s)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if s := to.took(); s != "firing bad: failed (2 times)" {
			t.Errorf("after the repeat: %q", s)
		}
		all := c.firing()
		if len(all) != 1 || all[0].Count != 2 || all[0].Notifications != 2 || all[0].Incidents[1].Error != "it is bad" || all[0].Subjects[0] != "bad" {
			t.Fatalf("the alerts are %v", all)
		}
		a, err := c.alerts.AcknowledgeAlert(t.Context(), &apiv1.AcknowledgeAlertRequest{Id: all[0].Id})
		if err != nil || a.AcknowledgedBy == "" || a.NextAt != nil {
			t.Errorf("acknowledged: %v, %v", a, err)
		}
		c.restart(w)
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		if s := to.took(); s != "" {
			t.Errorf("the acknowledged alert was told: %s", s)
		}
		c.runs("bad", "good")
		if s := to.took(); s != "resolved bad: failed" || len(c.firing()) != 0 {
			t.Errorf("at the end: %q, and %v fire", s, c.firing())
		}
		if _, err := c.alerts.AcknowledgeAlert(t.Context(), &apiv1.AcknowledgeAlertRequest{Id: all[0].Id}); status.Code(err) != codes.NotFound {
			t.Errorf("acknowledge an alert that is over: %v", err)
		}
		for _, d := range c.deliveries("") {
			if d.State != "delivered" || d.Attempts != 1 || d.Status != 200 || d.RequestId == "" {
				t.Errorf("delivery %v", d)
			}
		}
		if n := len(c.deliveries("delivered")); n != 3 {
			t.Errorf("%d deliveries, want 3", n)
		}
	})
}

// TestAlertDeliveries: a message that the receiver does not take is sent again with the same id,
// also by the next server. One that it refuses is not, until a person wants it.
func TestAlertDeliveries(t *testing.T) {
	alerting(t, func(t *testing.T, w *world, c *alertClient, to *receiver) {
		c.define(&apiv1.AlertRule{Name: "failures", Events: []string{"failed"}, Channels: []string{"ops"}, Wait: "0s"})
		to.answer = func(int) int { return http.StatusBadGateway }
		c.runs("bad", "")
		c.restart(w)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		to.mu.Lock()
		if len(to.told) != 2 || to.told[0].id != to.told[1].id || to.told[0].id == "" {
			t.Errorf("told %v, want the same message twice", to.told)
		}
		to.answer = func(int) int { return http.StatusForbidden }
		to.mu.Unlock()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		refused := c.deliveries("refused")
		if len(refused) != 1 || refused[0].Status != http.StatusForbidden || refused[0].Attempts != 3 {
			t.Fatalf("deliveries %v", refused)
		}
		time.Sleep(2 * time.Hour)
		to.took()
		to.answer = nil
		if _, err := c.alerts.RetryAlertDelivery(t.Context(), &apiv1.RetryAlertDeliveryRequest{Id: refused[0].Id}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if s := to.took(); s != "firing bad: failed" {
			t.Errorf("tried again: %q", s)
		}
		if _, err := c.alerts.RetryAlertDelivery(t.Context(), &apiv1.RetryAlertDeliveryRequest{Id: refused[0].Id}); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("try a delivered one again: %v", err)
		}
		d, err := c.alerts.TestAlertChannel(t.Context(), &apiv1.TestAlertChannelRequest{Channel: "ops", Language: "zh"})
		synctest.Wait()
		if err != nil || to.took() == "" {
			t.Errorf("a test: %v", err)
		}
		if all := c.deliveries("delivered"); len(all) != 2 || all[0].Id != d.Id {
			t.Errorf("after a test: %v", all)
		}
		p, err := c.alerts.PreviewAlert(t.Context(), &apiv1.PreviewAlertRequest{Channel: "ops", Event: "missed", Language: "zh"})
		if err != nil || p.Kind != "webhook" || p.Url != "https://example.com/hook" || p.Headers["Webhook-Id"] == "" || !strings.Contains(p.Title, "错过计划时间") || !strings.Contains(p.Body, p.Title) {
			t.Errorf("preview %v, %v", p, err)
		}
		if _, err := c.alerts.PreviewAlert(t.Context(), &apiv1.PreviewAlertRequest{Channel: "other"}); status.Code(err) != codes.NotFound {
			t.Errorf("preview of no channel: %v", err)
		}
		if _, err := c.alerts.PreviewAlert(t.Context(), &apiv1.PreviewAlertRequest{Channel: "ops", Event: "fails"}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("preview of no event: %v", err)
		}
		if _, err := c.alerts.TestAlertChannel(t.Context(), &apiv1.TestAlertChannelRequest{Channel: "other"}); status.Code(err) != codes.NotFound {
			t.Errorf("test a channel that does not exist: %v", err)
		}
	})
}

// TestAlertInFlight: the server ends while a message is on its way. The next one sends it with the
// same id.
func TestAlertInFlight(t *testing.T) {
	alerting(t, func(t *testing.T, w *world, c *alertClient, to *receiver) {
		c.define(&apiv1.AlertRule{Name: "failures", Events: []string{"failed"}, Channels: []string{"ops"}, Wait: "0s"})
		to.wait = make(chan struct{})
		c.runs("bad", "")
		waiting := c.deliveries("waiting")
		if len(waiting) != 1 {
			t.Fatalf("deliveries %v", waiting)
		}
		w.stopServer()
		to.mu.Lock()
		to.wait = nil
		to.mu.Unlock()
		w.start()
		c.reconnect(w)
		c.alerts = apiv1.NewAlertsClient(c.conn)
		synctest.Wait()
		to.mu.Lock()
		if len(to.told) != 1 || to.told[0].id != waiting[0].Notification {
			t.Errorf("told %v, want %s once", to.told, waiting[0].Notification)
		}
		to.mu.Unlock()
	})
}

// TestSilences: a silence keeps an alert from being told, and the end of the silence tells it.
func TestSilences(t *testing.T) {
	alerting(t, func(t *testing.T, w *world, c *alertClient, to *receiver) {
		c.define(&apiv1.AlertRule{Name: "failures", Events: []string{"failed", "recovered"}, Channels: []string{"ops"}, Wait: "0s", GroupBy: []string{"job"}})
		s, err := c.alerts.CreateSilence(t.Context(), &apiv1.CreateSilenceRequest{Rule: "failures", Labels: map[string]string{"job": "bad"}, Duration: "1h", Reason: "a test"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.alerts.CreateSilence(t.Context(), &apiv1.CreateSilenceRequest{Rule: "other", Duration: "1h"}); status.Code(err) != codes.NotFound {
			t.Errorf("silence a rule that does not exist: %v", err)
		}
		c.runs("bad", "")
		c.restart(w)
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		if told := to.took(); told != "" || c.firing()[0].SilencedUntil == nil {
			t.Errorf("silenced, and told %q", told)
		}
		if all, err := c.alerts.ListSilences(t.Context(), &apiv1.ListSilencesRequest{}); err != nil || len(all.Silences) != 1 || all.Silences[0].Reason != "a test" {
			t.Errorf("silences %v, %v", all, err)
		}
		if _, err := c.alerts.EndSilence(t.Context(), &apiv1.EndSilenceRequest{Id: s.Id}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if told := to.took(); told != "firing bad: failed" {
			t.Errorf("after the silence: %q", told)
		}
		if _, err := c.alerts.CreateSilence(t.Context(), &apiv1.CreateSilenceRequest{Duration: "1h"}); err != nil {
			t.Fatal(err)
		}
		c.runs("bad", "good")
		if told := to.took(); told != "resolved bad: failed" {
			t.Errorf("a resolve message waits for a silence: %q", told)
		}
		time.Sleep(2 * time.Hour)
		if all, err := c.alerts.ListSilences(t.Context(), &apiv1.ListSilencesRequest{}); err != nil || len(all.Silences) != 0 {
			t.Errorf("silences that have ended: %v, %v", all, err)
		}
	})
}

// TestAlertDefinitions: rules and channels refer to each other as other definitions do.
func TestAlertDefinitions(t *testing.T) {
	alerting(t, func(t *testing.T, w *world, c *alertClient, to *receiver) {
		rule := &apiv1.AlertRule{Name: "r", Events: []string{"failed", "recovered"}, Channels: []string{"ops"}, Wait: "0s"}
		refused := func(want string, changes ...*apiv1.Change) {
			t.Helper()
			if _, err := c.applySet(changes...); err == nil || !strings.Contains(fmt.Sprint(problemsOf(err), err), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
		drop := func(kind, name string) *apiv1.Change {
			return &apiv1.Change{Kind: &apiv1.Change_Delete{Delete: &apiv1.Deletion{Kind: kind, Name: name}}}
		}
		refused("does not exist", &apiv1.Change{Kind: &apiv1.Change_AlertRule{AlertRule: &apiv1.AlertRule{Name: "r", Events: []string{"failed"}, Channels: []string{"none"}}}})
		refused("events", &apiv1.Change{Kind: &apiv1.Change_AlertRule{AlertRule: &apiv1.AlertRule{Name: "r", Channels: []string{"ops"}}}})
		refused("url", &apiv1.Change{Kind: &apiv1.Change_AlertChannel{AlertChannel: &apiv1.AlertChannel{Name: "c", Slack: &apiv1.AlertRobot{Url: "nowhere"}}}})
		c.define(rule)
		refused("alert rule r", drop("alertchannel", "ops"))
		if _, err := w.srv.Leave(t.Context(), "default", 3, "other", time.Second); err == nil || !strings.Contains(err.Error(), "alert rule r") {
			t.Errorf("a part of an app with alert rules left: %v", err)
		}
		c.runs("bad", "")
		if s := to.took(); s != "firing bad: failed" {
			t.Fatalf("told %q", s)
		}
		// The alert of a rule that is deleted ends, and its receiver is told.
		if got, err := c.applySet(drop("alertrule", "r"), drop("alertchannel", "ops")); err != nil || got != "deleted deleted" {
			t.Errorf("%s, %v", got, err)
		}
		synctest.Wait()
		if all := c.firing(); len(all) != 0 {
			t.Errorf("alerts of a deleted rule: %v", all)
		}
		r, err := apiv1.NewRevisionsClient(c.conn).ListRevisions(t.Context(), &apiv1.ListRevisionsRequest{App: "default", Kind: "alertrule", Name: "r"})
		if err != nil || len(r.Revisions) != 2 || !r.Revisions[0].Deleted {
			t.Errorf("revisions %v, %v", r, err)
		}
	})
}

// TestTimesOfAlerts: what does not happen in time is told at its time, whether or not the server
// was restarted before.
func TestTimesOfAlerts(t *testing.T) {
	alerting(t, func(t *testing.T, w *world, c *alertClient, to *receiver) { // it begins at midnight
		w.handlers.byJob["slow"] = sleeping(time.Hour)
		rule := func(name string, when *apiv1.AlertTimes, jobs ...string) *apiv1.AlertRule {
			return &apiv1.AlertRule{Name: name, Events: []string{name, "recovered"}, When: when, Select: &apiv1.AlertSelection{Jobs: jobs}, Channels: []string{"ops"}, Wait: "0s", Repeat: "0s", GroupBy: []string{"job"}}
		}
		c.apply(&apiv1.Job{Name: "slow"})
		c.apply(&apiv1.Job{Name: "daily", Schedule: &apiv1.Schedule{Cron: "0 5 * * *"}})
		c.apply(&apiv1.Job{Name: "noon", Schedule: &apiv1.Schedule{Cron: "0 12 * * *"}})
		fails := true
		w.handlers.byJob["daily"] = func(context.Context, runtime.Task, runtime.Sink) runtime.Result {
			if fails {
				return runtime.Result{Outcome: runtime.Permanent, Error: "no"}
			}
			return runtime.Result{Outcome: runtime.Succeeded}
		}
		c.define(rule("no_success_since", &apiv1.AlertTimes{NoSuccessSince: "7h"}, "daily"), rule("not_finished_by", &apiv1.AlertTimes{NotFinishedBy: "06:30"}, "daily", "noon"),
			rule("running_longer_than", &apiv1.AlertTimes{RunningLongerThan: "10m"}, "slow"), rule("late_start", &apiv1.AlertTimes{LateStart: "1m"}, "slow"), rule("schedule_paused", nil, "noon"))
		begin := time.Now()
		at := func(d time.Duration, want string) {
			t.Helper()
			time.Sleep(time.Until(begin.Add(d)))
			synctest.Wait()
			var all []string
			to.mu.Lock()
			for _, x := range to.told {
				if late := time.Since(x.at); late > time.Second {
					t.Errorf("%s was told %s before it was looked for", x.title, late)
				}
				all = append(all, x.kind+" "+x.title[strings.Index(x.title, "]")+2:])
			}
			to.told = nil
			to.mu.Unlock()
			slices.Sort(all)
			if got := strings.Join(all, "; "); got != want {
				t.Errorf("after %s it was told %q, want %q", d, got, want)
			}
		}
		for range 5 {
			c.trigger("slow", "") // the host has four slots
		}
		at(time.Minute+500*time.Millisecond, "firing slow: started late")
		c.restart(w)
		at(10*time.Minute+time.Second, "firing slow: runs for too long")
		at(time.Hour+time.Second, "resolved slow: runs for too long; resolved slow: started late")
		at(time.Hour+10*time.Minute+500*time.Millisecond, "firing slow: runs for too long")
		at(2*time.Hour+500*time.Millisecond, "resolved slow: runs for too long")
		time.Sleep(time.Until(begin.Add(6*time.Hour + 29*time.Minute)))
		w.stopServer() // it is off at the time
		time.Sleep(5 * time.Minute)
		w.start()
		c.reconnect(w)
		c.alerts = apiv1.NewAlertsClient(c.conn)
		at(6*time.Hour+34*time.Minute+100*time.Millisecond, "firing daily: has not finished in time")
		if _, err := c.jobs.PauseJob(t.Context(), &apiv1.PauseJobRequest{Name: "noon"}); err != nil {
			t.Fatal(err)
		}
		at(6*time.Hour+34*time.Minute+200*time.Millisecond, "firing noon: schedule paused")
		if _, err := c.jobs.ResumeJob(t.Context(), &apiv1.ResumeJobRequest{Name: "noon"}); err != nil {
			t.Fatal(err)
		}
		at(6*time.Hour+34*time.Minute+300*time.Millisecond, "resolved noon: schedule paused")
		at(7*time.Hour+500*time.Millisecond, "firing daily: has had no success for too long")
		fails = false
		c.trigger("daily", "")
		at(7*time.Hour+time.Second, "resolved daily: has had no success for too long; resolved daily: has not finished in time")
	})
}

// TestEventsOfOthers: the loss of a host, a limit and failures of several kinds.
func TestEventsOfOthers(t *testing.T) {
	alerting(t, func(t *testing.T, w *world, c *alertClient, to *receiver) {
		c.define(
			&apiv1.AlertRule{Name: "hosts", Events: []string{"host_lost", "recovered"}, Channels: []string{"ops"}, Wait: "0s"},
			&apiv1.AlertRule{Name: "limits", Events: []string{"limit_reached"}, Channels: []string{"ops"}, Wait: "0s"},
			&apiv1.AlertRule{Name: "row", Events: []string{"failed_in_row", "recovered"}, Threshold: 3, Channels: []string{"ops"}, Wait: "0s"},
			&apiv1.AlertRule{Name: "exact", Events: []string{"failed", "retry_exhausted"}, Channels: []string{"ops"}, Wait: "0s", GroupBy: []string{"event"}, Select: &apiv1.AlertSelection{Labels: map[string]string{"team": "money"}}},
		)
		c.runs("bad", "")
		c.runs("bad", "")
		if s := to.took(); s != "" {
			t.Errorf("after two failures: %q", s)
		}
		c.restart(w)
		c.runs("bad", "")
		if s := to.took(); s != "firing bad: failed several times in a row" {
			t.Errorf("after three failures: %q", s)
		}
		c.runs("bad", "good")
		if s := to.took(); s != "resolved bad: failed several times in a row" {
			t.Errorf("after a success: %q", s)
		}
		w.handlers.byJob["flaky"] = func(context.Context, runtime.Task, runtime.Sink) runtime.Result {
			return runtime.Result{Outcome: runtime.Retryable, Error: "again"}
		}
		c.apply(&apiv1.Job{Name: "flaky", Labels: map[string]string{"team": "money"}, Retry: &apiv1.Retry{Max: 2, Backoff: "fixed", First: "1s"}})
		c.runs("flaky", "")
		if s := to.took(); s != "firing flaky: failed after the last retry" {
			t.Errorf("after the last retry: %q", s)
		}
		c.limited("default", &apiv1.AppLimits{Jobs: 2})
		for range 3 {
			if _, err := c.jobs.ApplyJob(t.Context(), &apiv1.ApplyJobRequest{Job: on("m@1", "third")}); err == nil {
				t.Fatal("a job beyond the limit was accepted")
			}
		}
		synctest.Wait()
		if s := to.took(); !strings.Contains(s, "limit reached") || strings.Contains(s, ";") {
			t.Errorf("beyond the limit: %q", s)
		}
		w.removeHost("h1")
		time.Sleep(time.Minute)
		synctest.Wait()
		lost := to.took()
		w.addHost("h1", 4)
		time.Sleep(time.Second)
		synctest.Wait()
		if back := to.took(); !strings.HasPrefix(lost, "firing ") || !strings.HasPrefix(back, "resolved ") {
			t.Errorf("a host: %q and %q", lost, back)
		}
	})
}

// TestAppIsGone: nothing of the alerts of an app outlasts it, and a call about them makes no app.
func TestAppIsGone(t *testing.T) {
	alerting(t, func(t *testing.T, w *world, c *alertClient, to *receiver) {
		if _, err := c.alerts.CreateSilence(t.Context(), &apiv1.CreateSilenceRequest{App: "other", Duration: "1h"}); status.Code(err) != codes.NotFound {
			t.Errorf("a silence of an app that does not exist: %v", err)
		}
		c.define(&apiv1.AlertRule{Name: "failures", Events: []string{"failed", "recovered"}, Channels: []string{"ops"}, Wait: "0s"})
		to.answer = func(int) int { return http.StatusBadGateway }
		c.runs("bad", "")
		if _, err := c.jobs.DeleteJob(t.Context(), &apiv1.DeleteJobRequest{Name: "bad"}); err != nil {
			t.Fatal(err)
		}
		if _, err := apiv1.NewAppsClient(c.conn).DeleteApp(t.Context(), &apiv1.DeleteAppRequest{Name: "default"}); err != nil {
			t.Fatal(err)
		}
		c.restart(w)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(c.deliveries("")) + len(c.firing()); n != 0 {
			t.Errorf("%d alerts and deliveries are left", n)
		}
		for _, kind := range []string{"alert/", "definition/"} {
			if n := w.countRows(kind); n != 0 {
				t.Errorf("%d rows of %s are left", n, kind)
			}
		}
		c.reconnect(w)
	})
}

// TestConditions: what the server finds of its disk and its queues is told once, and its end too.
func TestConditions(t *testing.T) {
	alerting(t, func(t *testing.T, w *world, c *alertClient, to *receiver) {
		now := core.Conditions{DiskUsed: 50, DeadLetters: 7}
		var mu sync.Mutex
		w.conditions = func() core.Conditions {
			mu.Lock()
			defer mu.Unlock()
			return now
		}
		c.define(&apiv1.AlertRule{Name: "server", Events: []string{"disk", "queue_age", "dead_letter", "certificate_expiry", "recovered"}, When: &apiv1.AlertTimes{DiskFreePercent: 15}, Channels: []string{"ops"}, Wait: "0s", Repeat: "0s", GroupBy: []string{"event"}})
		c.restart(w)
		is := func(next core.Conditions, want string) {
			t.Helper()
			mu.Lock()
			now = next
			mu.Unlock()
			time.Sleep(25 * time.Second)
			synctest.Wait()
			if s := to.took(); s != want {
				t.Errorf("with %+v it was told %q, want %q", next, s, want)
			}
		}
		is(core.Conditions{DiskUsed: 84, DeadLetters: 7}, "")
		is(core.Conditions{DiskUsed: 86, DeadLetters: 7}, "firing server: disk almost full")
		c.restart(w)
		synctest.Wait()
		is(core.Conditions{DiskUsed: 90, DeadLetters: 9}, "firing server: dead letter")
		is(core.Conditions{DiskUsed: 85, DeadLetters: 9, QueueAge: 6 * time.Minute}, "resolved server: disk almost full; firing server: queue too old")
		is(core.Conditions{DiskUsed: 85, DeadLetters: 8}, "resolved server: queue too old")
	})
}

// TestManyFailures: 300 jobs fail 10 000 times within a minute, in 30 groups, while the server is
// replaced every 5 s. Each group is told exactly once, and so is its end.
func TestManyFailures(t *testing.T) {
	alerting(t, func(t *testing.T, w *world, c *alertClient, to *receiver) {
		const jobs, groups, failures = 300, 30, 10_000
		w.standsBy = true
		good := false
		for i := range jobs {
			name := fmt.Sprintf("j%03d", i)
			w.handlers.byJob[name] = func(context.Context, runtime.Task, runtime.Sink) runtime.Result {
				if good {
					return runtime.Result{Outcome: runtime.Succeeded}
				}
				return runtime.Result{Outcome: runtime.Permanent, Error: "no"}
			}
			c.apply(&apiv1.Job{Name: name, Labels: map[string]string{"group": fmt.Sprint(i % groups)}})
		}
		c.define(&apiv1.AlertRule{Name: "failures", Events: []string{"failed", "recovered"}, Channels: []string{"ops"}, Wait: "1s", GroupBy: []string{"label:group"}, Select: &apiv1.AlertSelection{Jobs: []string{"j*"}}})
		begin, n := time.Now(), 0
		for turn := range 12 {
			for ; n < failures*(turn+1)/12; n++ {
				if _, err := c.jobs.TriggerJob(t.Context(), &apiv1.TriggerJobRequest{Name: fmt.Sprintf("j%03d", n%jobs)}); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Until(begin.Add(time.Duration(turn+1) * 5 * time.Second)))
			c.restart(w)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		ids := map[string]bool{}
		to.mu.Lock()
		for _, x := range to.told {
			if x.kind != "firing" {
				t.Errorf("told %s", x.kind)
			}
			ids[x.id] = true
		}
		requests := len(to.told)
		to.told = nil
		to.mu.Unlock()
		if len(ids) != groups || requests > groups+12 {
			t.Errorf("%d requests with %d ids, want %d: %v", requests, len(ids), groups, slices.Sorted(maps.Keys(ids)))
		}
		total := int64(0)
		for _, a := range c.firing() {
			total += a.Count
		}
		if total != failures {
			t.Errorf("the alerts count %d failures, want %d", total, failures)
		}
		good = true
		for i := range jobs {
			c.trigger(fmt.Sprintf("j%03d", i), "")
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		to.mu.Lock()
		defer to.mu.Unlock()
		ends := map[string]bool{}
		for _, x := range to.told {
			ends[x.id] = x.kind == "resolved"
		}
		if len(ends) != groups || len(to.told) != groups {
			t.Errorf("%d requests with %d ids at the end, want %d", len(to.told), len(ends), groups)
		}
	})
}
