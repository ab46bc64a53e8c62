package crash

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// hook is the server behind a webhook. It notes each request before it answers.
type hook struct {
	*httptest.Server
	mu  sync.Mutex
	ids map[string]map[string]int // requests by type of the message and id
}

func newHook(t *testing.T, rnd *rand.Rand) *hook {
	h := &hook{ids: map[string]map[string]int{}}
	h.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var m struct {
			Type string `json:"type"`
		}
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			t.Errorf("a request of the webhook: %v", err)
			return
		}
		h.mu.Lock()
		of := h.ids[m.Type]
		if of == nil {
			of = map[string]int{}
			h.ids[m.Type] = of
		}
		of[r.Header.Get("webhook-id")]++
		slow := upTo(rnd, 50*time.Millisecond)
		h.mu.Unlock()
		wait(slow) // so that kills find deliveries on their way
	}))
	t.Cleanup(h.Close)
	return h
}

// told returns how many messages of a type have come, each counted once, and how many requests.
func (h *hook) told(kind string) (ids, requests int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range h.ids[kind] {
		requests += n
	}
	return len(h.ids[kind]), requests
}

// TestKilledAlerts kills `wheelwork dev` while jobs fail in groups of alerts. Each group is told
// exactly once that it fires, and once that it ends, but for requests that were on their way when a
// process was killed. Each failure is counted exactly once.
func TestKilledAlerts(t *testing.T) {
	const groups, each = 30, 2 // jobs of each group
	const sending = 16         // messages that the server sends at the same time
	rounds, seed := roundsOf(t), testkit.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	h := newHook(t, rand.New(rand.NewPCG(seed, 1)))
	p := buildProgram(t, testkit.FreeAddress(t))
	p.flags = []string{"--egress-allow", "127.0.0.0/8"}
	url := "http://" + p.listen

	r := p.start(t)
	token := r.await(t, p).Token
	prepareAlerts(t, url, token, h.URL, groups, each)
	c := dial(t, url, sdk.Options{Token: token, RetryFor: time.Minute})
	trigger := func(n int, status byte) {
		job := fmt.Sprintf("job-%02d", n%(groups*each))
		key := fmt.Sprintf("%d-%d", status, n)
		if _, err := c.Trigger(t.Context(), sdk.Trigger{Job: job, Key: key, Input: []byte{status, 0}}); err != nil {
			t.Errorf("trigger %s: %v", job, err)
		}
	}
	failures := 0
	for range rounds {
		ctx, cancel := context.WithTimeout(t.Context(), upTo(rnd, 500*time.Millisecond))
		for ctx.Err() == nil {
			trigger(failures, 2)
			failures++
		}
		cancel()
		r.kill(t)
		r = p.start(t)
		r.await(t, p)
		if t.Failed() {
			break
		}
	}
	for ; failures < groups*each; failures++ { // of the groups that had none
		trigger(failures, 2)
	}
	until(t, "all failures are counted", func() bool {
		total := int64(0)
		alerts, err := c.Alerts(t.Context(), "")
		for _, a := range alerts {
			total += a.GetCount()
		}
		return err == nil && total >= int64(failures)
	})
	until(t, "each group is told", func() bool { ids, _ := h.told("alert.firing.v1"); return ids >= groups })
	settleDeliveries(t, c)
	if ids, requests := h.told("alert.firing.v1"); ids != groups || requests > ids+rounds*sending {
		t.Errorf("%d failures, %d kills: %d requests with %d ids, want %d ids", failures, rounds, requests, ids, groups)
	} else {
		t.Logf("%d failures, %d kills: %d requests with %d ids", failures, rounds, requests, ids)
	}
	total := int64(0)
	alerts, err := c.Alerts(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range alerts {
		total += a.GetCount()
	}
	if len(alerts) != groups || total != int64(failures) {
		t.Errorf("%d alerts count %d failures, want %d and %d", len(alerts), total, groups, failures)
	}

	for i := range groups * each {
		trigger(i, 0)
	}
	r.kill(t)
	r = p.start(t)
	r.await(t, p)
	until(t, "each group is told its end", func() bool { ids, _ := h.told("alert.resolved.v1"); return ids >= groups })
	settleDeliveries(t, c)
	if ids, requests := h.told("alert.resolved.v1"); ids != groups || requests > ids+sending {
		t.Errorf("%d requests with %d ids tell the ends, want %d ids", requests, ids, groups)
	}
	if ids, _ := h.told("alert.firing.v1"); ids != groups {
		t.Errorf("%d ids after the end, want %d", ids, groups)
	}
	r.stop(t)
}

func prepareAlerts(t *testing.T, url, token, to string, groups, each int) {
	t.Helper()
	c := dial(t, url, sdk.Options{Token: token})
	if _, _, err := c.PushModule(t.Context(), sdk.Upload{Name: "work", Version: "1", Code: workModule}); err != nil {
		t.Fatal(err)
	}
	set := sdk.ChangeSet{Definitions: []proto.Message{
		&sdk.AlertChannel{Name: "ops", Webhook: &sdk.AlertWebhook{Url: to, Secret: &sdk.AlertText{Text: "whsec_" + base64.StdEncoding.EncodeToString([]byte("a key of the test, 32 bytes long."))}}},
		&sdk.AlertRule{Name: "failures", Events: []string{"failed", "recovered"}, Channels: []string{"ops"}, Wait: "0s", GroupBy: []string{"label:group"}},
	}}
	for i := range groups * each {
		set.Definitions = append(set.Definitions, &sdk.Job{Name: fmt.Sprintf("job-%02d", i), Labels: map[string]string{"group": fmt.Sprint(i % groups)}, Handler: &sdk.Handler{Module: "work@1"}})
	}
	if _, err := c.ApplyChangeSet(t.Context(), set); err != nil {
		t.Fatal(err)
	}
}

// settleDeliveries waits until the channel has answered all messages.
func settleDeliveries(t *testing.T, c *sdk.Client) {
	t.Helper()
	until(t, "no message waits", func() bool {
		for d, err := range c.AlertDeliveries(t.Context(), sdk.DeliveryQuery{}) {
			if err != nil || d.GetState() != "delivered" {
				return false
			}
		}
		return true
	})
}
