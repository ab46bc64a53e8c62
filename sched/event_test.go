package sched_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/event"
	"github.com/wheelworkhq/wheelwork/internal/webhook"
)

const (
	shopKey = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	oldKey  = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
)

// eventClient is a client that sends events.
type eventClient struct {
	*client
	events apiv1.EventsClient
}

// receiving runs a test with the event source "shop", whose secret "shop-key" has shopKey.
func receiving(t *testing.T, f func(t *testing.T, w *world, c *eventClient)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		w.addHost("h1", 4)
		c := &eventClient{client: w.client()}
		c.events = apiv1.NewEventsClient(c.conn)
		c.push()
		c.secret("shop-key", shopKey)
		c.source(&apiv1.EventSource{Name: "shop"})
		f(t, w, c)
		c.close()
		w.close()
	})
}

func (c *eventClient) secret(name, value string) {
	c.t.Helper()
	if _, err := apiv1.NewSecretsClient(c.conn).SetSecret(c.t.Context(), &apiv1.SetSecretRequest{Name: name, Value: value}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *eventClient) source(m *apiv1.EventSource) {
	c.t.Helper()
	if m.Secret == nil {
		m.Secret = &apiv1.EventKey{Secret: "shop-key"}
	}
	if _, err := c.applySet(&apiv1.Change{Kind: &apiv1.Change_EventSource{EventSource: m}}); err != nil {
		c.t.Fatal(err)
	}
}

// on applies a job that an event starts.
func (c *eventClient) on(name string, t *apiv1.EventTrigger) {
	c.t.Helper()
	c.apply(&apiv1.Job{Name: name, Trigger: t})
}

// paid is an event of the type order.paid.
func paid(id, data string) string {
	return fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"/orders","type":"order.paid","data":%s}`, id, data)
}

// message returns a signed request with an event.
func message(body, key string, at time.Time) *apiv1.PublishEventRequest {
	keys, err := webhook.Keys(key)
	if err != nil {
		panic(err)
	}
	h := webhook.Sign("m-1", at, []byte(body), keys...)
	return &apiv1.PublishEventRequest{Source: "shop", Body: []byte(body), Headers: map[string]string{
		"content-type": "application/cloudevents+json", webhook.IDHeader: h.ID, webhook.TimestampHeader: h.Timestamp, webhook.SignatureHeader: h.Signature,
	}}
}

func (c *eventClient) send(req *apiv1.PublishEventRequest) ([]string, error) {
	r, err := c.events.PublishEvent(c.t.Context(), req)
	return r.GetRuns(), err
}

// sends sends an event and returns the jobs that it has started.
func (c *eventClient) sends(body string) (jobs []string, runs []string) {
	c.t.Helper()
	runs, err := c.send(message(body, shopKey, time.Now()))
	if err != nil {
		c.t.Fatal(err)
	}
	for _, id := range runs {
		jobs = append(jobs, c.run(id).Job)
	}
	return jobs, runs
}

// TestEventStartsJobs checks that an event starts exactly the jobs whose trigger fits, with the event as
// input, and that their runs say what started them.
func TestEventStartsJobs(t *testing.T) {
	receiving(t, func(t *testing.T, w *world, c *eventClient) {
		c.on("all", &apiv1.EventTrigger{Event: "order.paid"})
		c.on("german", &apiv1.EventTrigger{Event: "order.paid", Source: "shop", Match: map[string]string{"data.country": "DE"}})
		c.on("french", &apiv1.EventTrigger{Event: "order.paid", Match: map[string]string{"data.country": "FR"}})
		c.on("other", &apiv1.EventTrigger{Event: "order.sent"})
		c.apply(&apiv1.Job{Name: "plain"})
		jobs, runs := c.sends(paid("1", `{"country":"DE"}`))
		if !slices.Equal(jobs, []string{"all", "german"}) {
			t.Fatalf("the event started %v", jobs)
		}
		r := c.run(runs[0])
		var input map[string]any
		if err := json.Unmarshal([]byte(r.Input), &input); err != nil || input["id"] != "1" || input["type"] != "order.paid" {
			t.Errorf("the input is %s", r.Input)
		}
		if r.Trigger != "event" || r.TriggeredBy != "event source shop" {
			t.Errorf("trigger %q by %q", r.Trigger, r.TriggeredBy)
		}
		c.wait(runs[0])
	})
}

// TestEventFollowsDefinitions checks that changed, paused and deleted jobs are not started by their former
// trigger, also after a restart.
func TestEventFollowsDefinitions(t *testing.T) {
	receiving(t, func(t *testing.T, w *world, c *eventClient) {
		for _, name := range []string{"changed", "paused", "deleted", "stays", "cleared"} {
			c.on(name, &apiv1.EventTrigger{Event: "order.paid"})
		}
		c.on("changed", &apiv1.EventTrigger{Event: "order.sent"})
		c.apply(&apiv1.Job{Name: "cleared"})
		if _, err := c.jobs.PauseJob(t.Context(), &apiv1.PauseJobRequest{Name: "paused"}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.jobs.DeleteJob(t.Context(), &apiv1.DeleteJobRequest{Name: "deleted"}); err != nil {
			t.Fatal(err)
		}
		if jobs, _ := c.sends(paid("1", `{}`)); !slices.Equal(jobs, []string{"stays"}) {
			t.Errorf("the event started %v", jobs)
		}
		w.stopServer()
		w.start()
		c.reconnect(w)
		c.events = apiv1.NewEventsClient(c.conn)
		if jobs, _ := c.sends(paid("2", `{}`)); !slices.Equal(jobs, []string{"stays"}) {
			t.Errorf("after a restart the event started %v", jobs)
		}
	})
}

// TestEventIsSentAgain checks that an event which is sent again starts nothing, also with other data,
// also after a restart, and also in a batch with itself.
func TestEventIsSentAgain(t *testing.T) {
	receiving(t, func(t *testing.T, w *world, c *eventClient) {
		c.on("pay", &apiv1.EventTrigger{Event: "order.paid"})
		_, first := c.sends(paid("1", `{}`))
		again := func(what, body string) {
			t.Helper()
			if _, runs := c.sends(body); !slices.Equal(runs, first) {
				t.Errorf("%s: runs %v, the first time %v", what, runs, first)
			}
		}
		again("at once", paid("1", `{}`))
		again("with other data", paid("1", `{"a":1}`))
		w.stopServer()
		w.start()
		c.reconnect(w)
		c.events = apiv1.NewEventsClient(c.conn)
		again("after a restart", paid("1", `{}`))
		time.Sleep(9 * time.Minute)
		again("minutes later", paid("1", `{}`))
		req := message("["+paid("2", `{}`)+","+paid("2", `{}`)+","+paid("3", `{}`)+"]", shopKey, time.Now())
		req.Headers["content-type"] = "application/cloudevents-batch+json"
		req.Headers[webhook.IDHeader] = "m-1"
		runs, err := c.send(req)
		if err != nil || len(runs) != 3 || runs[0] != runs[1] || runs[1] == runs[2] {
			t.Errorf("batch: %v, %v", runs, err)
		}
	})
}

// TestEventIsRefused checks what is refused, and that nothing of it starts a job.
func TestEventIsRefused(t *testing.T) {
	receiving(t, func(t *testing.T, w *world, c *eventClient) {
		c.on("pay", &apiv1.EventTrigger{Event: "order.paid"})
		c.source(&apiv1.EventSource{Name: "still", Paused: true})
		c.source(&apiv1.EventSource{Name: "few", Types: []string{"order.sent"}})
		c.source(&apiv1.EventSource{Name: "keyless", Secret: &apiv1.EventKey{Secret: "missing"}})
		c.secret("bad-key", "no key")
		c.source(&apiv1.EventSource{Name: "wrong-key", Secret: &apiv1.EventKey{Secret: "bad-key"}})
		body := paid("1", `{}`)
		good := func() *apiv1.PublishEventRequest { return message(body, shopKey, time.Now()) }
		change := func(f func(*apiv1.PublishEventRequest)) *apiv1.PublishEventRequest {
			req := good()
			f(req)
			return req
		}
		by := func(source string) *apiv1.PublishEventRequest {
			return change(func(r *apiv1.PublishEventRequest) { r.Source = source })
		}
		decoy := "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
		for _, tt := range []struct {
			name string
			req  *apiv1.PublishEventRequest
			code codes.Code
			want string
		}{
			{"unknown source", by("nosuch"), codes.Unauthenticated, "has no event source"},
			{"the decoy of an unknown source", change(func(r *apiv1.PublishEventRequest) { *r = *message(body, decoy, time.Now()); r.Source = "nosuch" }), codes.Unauthenticated, "has no event source"},
			{"unknown app", change(func(r *apiv1.PublishEventRequest) { r.App = "nosuch" }), codes.Unauthenticated, "has no event source"},
			{"no source", by(""), codes.Unauthenticated, "has no event source"},
			{"source without its secret", by("keyless"), codes.Unauthenticated, "has no event source"},
			{"the decoy of a source without its secret", change(func(r *apiv1.PublishEventRequest) { *r = *message(body, decoy, time.Now()); r.Source = "keyless" }), codes.Unauthenticated, "has no event source"},
			{"source with a malformed key", by("wrong-key"), codes.Unauthenticated, "has no event source"},
			{"another key", message(body, oldKey, time.Now()), codes.Unauthenticated, "has no event source"},
			{"another body", change(func(r *apiv1.PublishEventRequest) { r.Body = []byte(paid("2", `{}`)) }), codes.Unauthenticated, "has no event source"},
			{"no signature", change(func(r *apiv1.PublishEventRequest) { r.Headers = nil }), codes.Unauthenticated, "has no event source"},
			{"old", message(body, shopKey, time.Now().Add(-6*time.Minute)), codes.Unauthenticated, "set the clock"},
			{"of the future", message(body, shopKey, time.Now().Add(6*time.Minute)), codes.Unauthenticated, "set the clock"},
			{"paused", by("still"), codes.PermissionDenied, "is paused"},
			{"another type", by("few"), codes.PermissionDenied, "does not admit"},
			{"no JSON", message(`{`, shopKey, time.Now()), codes.InvalidArgument, "ends too early"},
			{"wrong content type", change(func(r *apiv1.PublishEventRequest) { r.Headers["content-type"] = "application/json" }), codes.InvalidArgument, "has no event"},
			{"large body", message(strings.Repeat(" ", event.MaxBody+1), shopKey, time.Now()), codes.InvalidArgument, "the limit is 262144"},
			{"large event", message(paid("1", `"`+strings.Repeat("x", 65<<10)+`"`), shopKey, time.Now()), codes.InvalidArgument, "the limit is 65536"},
		} {
			if _, err := c.send(tt.req); status.Code(err) != tt.code || !strings.Contains(status.Convert(err).Message(), tt.want) {
				t.Errorf("%s: %v, want %s and %q", tt.name, err, tt.code, tt.want)
			}
		}
		if runs := c.all("pay", ""); len(runs) != 0 {
			t.Errorf("%d runs were started", len(runs))
		}
		if _, err := c.send(good()); err != nil {
			t.Error(err)
		}
	})
}

// TestEventKeysRotate checks that the previous key holds while the source names it.
func TestEventKeysRotate(t *testing.T) {
	receiving(t, func(t *testing.T, w *world, c *eventClient) {
		c.secret("old-key", oldKey)
		c.source(&apiv1.EventSource{Name: "shop", Previous: &apiv1.EventKey{Secret: "old-key"}})
		for _, key := range []string{shopKey, oldKey, oldKey + " " + shopKey} {
			if _, err := c.send(message(paid("1", `{}`), key, time.Now())); err != nil {
				t.Errorf("%s: %v", key, err)
			}
		}
		c.source(&apiv1.EventSource{Name: "shop"})
		if _, err := c.send(message(paid("1", `{}`), oldKey, time.Now())); status.Code(err) != codes.Unauthenticated {
			t.Errorf("the former key: %v", err)
		}
	})
}

// TestEventRate checks that a source which sends too fast is told when to come again.
func TestEventRate(t *testing.T) {
	receiving(t, func(t *testing.T, w *world, c *eventClient) {
		c.on("pay", &apiv1.EventTrigger{Event: "order.paid"})
		c.source(&apiv1.EventSource{Name: "shop", Rate: 2})
		sent := func(id string) error {
			_, err := c.send(message(paid(id, `{}`), shopKey, time.Now()))
			return err
		}
		if sent("1") != nil || sent("2") != nil {
			t.Fatal("the first events are refused")
		}
		err := sent("3")
		if status.Code(err) != codes.ResourceExhausted {
			t.Fatalf("the third event of a second: %v", err)
		}
		refusal, _ := status.Convert(err).Details()[0].(*apiv1.Refusal)
		if refusal.GetRetryAfterS() != 1 {
			t.Errorf("refusal %v", refusal)
		}
		time.Sleep(time.Second)
		if err := sent("3"); err != nil {
			t.Errorf("a second later: %v", err)
		}
	})
}

// TestTriggerOfAJobIsChecked checks that a trigger without its source is refused, and that one change set
// brings both.
func TestTriggerOfAJobIsChecked(t *testing.T) {
	receiving(t, func(t *testing.T, w *world, c *eventClient) {
		def := func(name, source string) *apiv1.Job {
			return &apiv1.Job{Name: name, Handler: &apiv1.Handler{Module: "m@1"}, Trigger: &apiv1.EventTrigger{Event: "order.paid", Source: source}}
		}
		if _, err := c.jobs.ApplyJob(t.Context(), &apiv1.ApplyJobRequest{Job: def("a", "bank")}); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), `event source "bank", which does not exist`) {
			t.Errorf("without its source: %v", err)
		}
		_, err := c.applySet(
			&apiv1.Change{Kind: &apiv1.Change_Job{Job: def("a", "bank")}},
			&apiv1.Change{Kind: &apiv1.Change_EventSource{EventSource: &apiv1.EventSource{Name: "bank", Secret: &apiv1.EventKey{Secret: "shop-key"}}}})
		if err != nil {
			t.Errorf("with its source: %v", err)
		}
		list, err := c.events.ListEventSources(t.Context(), &apiv1.ListEventSourcesRequest{})
		if err != nil || len(list.Sources) != 2 || list.Sources[0].Name != "bank" || list.Sources[0].Revision != 1 {
			t.Errorf("sources %v, %v", list, err)
		}
	})
}

// TestJobsOfAnEventAreBounded checks the bound in one change set, and that replacing its jobs is none more.
func TestJobsOfAnEventAreBounded(t *testing.T) {
	receiving(t, func(t *testing.T, w *world, c *eventClient) {
		var changes []*apiv1.Change
		for i := range 1000 {
			changes = append(changes, &apiv1.Change{Kind: &apiv1.Change_Job{Job: &apiv1.Job{
				Name: fmt.Sprint("j", i), Handler: &apiv1.Handler{Module: "m@1"}, Trigger: &apiv1.EventTrigger{Event: "order.paid"},
			}}})
		}
		for range 2 {
			if _, err := c.applySet(changes...); err != nil {
				t.Fatal(err)
			}
		}
		more := &apiv1.Job{Name: "more", Handler: &apiv1.Handler{Module: "m@1"}, Trigger: &apiv1.EventTrigger{Event: "order.paid"}}
		if _, err := c.jobs.ApplyJob(t.Context(), &apiv1.ApplyJobRequest{Job: more}); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("one more: %v", err)
		}
		req := message("["+paid("1", `{}`)+","+paid("2", `{}`)+"]", shopKey, time.Now())
		req.Headers["content-type"] = "application/cloudevents-batch+json"
		runs, err := c.send(req)
		slices.Sort(runs)
		if err != nil || len(slices.Compact(runs)) != 2000 {
			t.Errorf("%d runs, %v", len(runs), err)
		}
	})
}
