package sched_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wheelworkhq/wheelwork/alert/definition"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/webhook"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// eventReceiver is a receiver of events. It keeps the requests whose signature is that of oldKey.
type eventReceiver struct {
	mu     sync.Mutex
	got    []*apiv1.PublishEventRequest
	status int
}

// RoundTrip implements [http.RoundTripper].
func (r *eventReceiver) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	keys, err := webhook.Keys(oldKey)
	if err != nil {
		return nil, err
	}
	h := webhook.Headers{ID: req.Header.Get(webhook.IDHeader), Timestamp: req.Header.Get(webhook.TimestampHeader), Signature: req.Header.Get(webhook.SignatureHeader)}
	if err := h.Verify(time.Now(), body, keys...); err != nil {
		return nil, err
	}
	m := &apiv1.PublishEventRequest{Body: body, Headers: map[string]string{}}
	for name, values := range req.Header {
		m.Headers[strings.ToLower(name)] = values[0]
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, m)
	return &http.Response{StatusCode: r.status, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(nil))}, nil
}

// ids returns the events since the last call, as "TYPE ID", sorted, and the last request.
func (r *eventReceiver) ids(t *testing.T) (all []string, last *apiv1.PublishEventRequest) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.got {
		var e struct{ ID, Type string }
		if err := json.Unmarshal(m.Body, &e); err != nil {
			t.Fatal(err)
		}
		all, last = append(all, strings.TrimPrefix(e.Type, "io.wheelwork.run.")+" "+e.ID), m
	}
	r.got = nil
	slices.Sort(all)
	return all, last
}

// TestRunEvents: each run of the selected job is an event, with an id that stays the same when the receiver
// fails and the server is restarted. The event starts a job of another app.
func TestRunEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &eventReceiver{status: http.StatusOK}
		w := newWorld(t)
		w.alerts = &definition.Edges{Client: &http.Client{Transport: to}}
		w.start()
		w.addHost("h1", 4)
		c := &alertClient{client: w.client()}
		c.push()
		secrets := func(app string) {
			if _, err := apiv1.NewSecretsClient(c.conn).SetSecret(t.Context(), &apiv1.SetSecretRequest{App: app, Name: "key", Value: oldKey}); err != nil {
				t.Fatal(err)
			}
		}
		secrets("")
		w.handlers.byJob["work"] = func(_ context.Context, t runtime.Task, _ runtime.Sink) runtime.Result {
			if string(t.Input) == "good" {
				return runtime.Result{Outcome: runtime.Succeeded}
			}
			return runtime.Result{Outcome: runtime.Permanent, Error: "it is bad"}
		}
		c.apply(&apiv1.Job{Name: "work"})
		c.apply(&apiv1.Job{Name: "unselected"})
		c.define(
			&apiv1.AlertChannel{Name: "out", Cloudevents: &apiv1.AlertCloudEvents{Url: "https://example.com/in", Secret: &apiv1.AlertText{Secret: "key"}}},
			&apiv1.AlertRule{
				Name: "out", Events: []string{"succeeded", "failed"}, Select: &apiv1.AlertSelection{Jobs: []string{"work"}}, GroupBy: []string{"run"},
				Wait: "0s", Repeat: "0s", Channels: []string{"out"},
			},
		)
		run := func(name, input string) string {
			r, err := c.jobs.TriggerJob(t.Context(), &apiv1.TriggerJobRequest{Name: name, Input: &input})
			if err != nil {
				t.Fatal(err)
			}
			c.wait(r.Id)
			synctest.Wait()
			return r.Id
		}
		var want []string
		for range 2 {
			want = append(want, "failed "+run("work", "bad")+".failed", "succeeded "+run("work", "good")+".succeeded")
		}
		run("unselected", "good")
		time.Sleep(time.Second)
		synctest.Wait()
		slices.Sort(want)
		if got, _ := to.ids(t); !slices.Equal(got, want) {
			t.Fatalf("events %v, want %v", got, want)
		}
		to.mu.Lock()
		to.status = http.StatusBadGateway
		to.mu.Unlock()
		want = []string{"succeeded " + run("work", "good") + ".succeeded"}
		if got, _ := to.ids(t); !slices.Equal(got, want) {
			t.Fatalf("the receiver fails: %v, want %v", got, want)
		}
		w.stopServer()
		to.mu.Lock()
		to.status = http.StatusOK
		to.mu.Unlock()
		w.start()
		c.reconnect(w)
		time.Sleep(time.Minute)
		synctest.Wait()
		got, m := to.ids(t)
		if !slices.Equal(got, want) {
			t.Fatalf("after the restart: %v, want %v", got, want)
		}
		r, err := apiv1.NewAlertsClient(c.conn).ListAlerts(t.Context(), &apiv1.ListAlertsRequest{})
		if err != nil || len(r.Alerts) != 0 {
			t.Errorf("alerts of runs that ended fire: %v, %v", r, err)
		}

		c.pushTo("other")
		secrets("other")
		if _, err := c.jobs.ApplyJob(t.Context(), &apiv1.ApplyJobRequest{Job: &apiv1.Job{App: "other", Name: "next", Handler: &apiv1.Handler{Module: "m@1"}, Trigger: &apiv1.EventTrigger{Event: "io.wheelwork.run.succeeded"}}}); err != nil {
			t.Fatal(err)
		}
		source := &apiv1.EventSource{App: "other", Name: "shop", Secret: &apiv1.EventKey{Secret: "key"}}
		if _, err := apiv1.NewChangeSetsClient(c.conn).ApplyChangeSet(t.Context(), &apiv1.ApplyChangeSetRequest{App: "other", Changes: []*apiv1.Change{{Kind: &apiv1.Change_EventSource{EventSource: source}}}}); err != nil {
			t.Fatal(err)
		}
		m.App, m.Source = "other", "shop"
		p, err := apiv1.NewEventsClient(c.conn).PublishEvent(t.Context(), m)
		if err != nil || len(p.Runs) != 1 {
			t.Fatalf("the event started %v, %v", p, err)
		}
		next, err := c.client.runs.GetRun(t.Context(), &apiv1.GetRunRequest{App: "other", Id: p.Runs[0]})
		if err != nil || next.Job != "next" || next.Trigger != "event" {
			t.Errorf("the event started %v, %v", next, err)
		}
		c.close()
		w.close()
	})
}
