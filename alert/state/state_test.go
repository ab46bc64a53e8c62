package state

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/wheelworkhq/wheelwork/alert/channel"
	"github.com/wheelworkhq/wheelwork/alert/definition"
	"github.com/wheelworkhq/wheelwork/alert/notification"
	"github.com/wheelworkhq/wheelwork/alert/rule"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// harness is a state whose rows a caller stores, as the owner of a partition does.
type harness struct {
	st    *State
	rows  map[string][]byte
	rules []*definition.Rule
	to    map[string]Receiver
}

func newHarness(t testing.TB, kind channel.Kind, rules ...*apiv1.AlertRule) *harness {
	t.Helper()
	h := &harness{rows: map[string][]byte{}, to: map[string]Receiver{"ops": {Kind: kind, Language: notification.English}}}
	for _, m := range rules {
		_, r, err := definition.ReadRule(m)
		if err != nil {
			t.Fatal(err)
		}
		h.rules = append(h.rules, r)
	}
	h.load(t, 1)
	return h
}

// load replaces the state by one that is read from the rows.
func (h *harness) load(t testing.TB, nowMs int64) {
	t.Helper()
	h.st = New("default", nil)
	for key, value := range h.rows {
		if err := h.st.Load(key, value); err != nil {
			t.Fatal(err)
		}
	}
	h.st.SetReceivers(h.to, nowMs)
	h.st.SetRules(h.rules, nowMs)
	h.store(t)
}

func (h *harness) store(t testing.TB) {
	t.Helper()
	rows, err := h.st.Changes()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.Value == nil {
			delete(h.rows, r.Key)
		} else {
			h.rows[r.Key] = r.Value
		}
	}
}

func failure(job string, atMs int64) *rule.Event {
	return &rule.Event{Name: rule.Failed, Subject: rule.Subject{App: "default", Job: job}, Run: fmt.Sprintf("run-%s-%d", job, atMs), About: job, AtMs: atMs}
}

// TestLoadedStateGoesOn lets the same things happen to a state that lives on and to one that is
// loaded again and again. Both make the same notifications, and have the same rows.
func TestLoadedStateGoesOn(t *testing.T) {
	rules := []*apiv1.AlertRule{
		{Name: "each", Events: []string{"failed", "recovered"}, GroupBy: []string{"job"}, Channels: []string{"ops"}, Wait: "5s", Repeat: "1m", Silence: "30s"},
		{Name: "all", Events: []string{"failed", "recovered"}, Channels: []string{"ops"}, Threshold: 3, Window: "20s", Escalate: &apiv1.AlertEscalation{After: "40s", Channels: []string{"ops"}}},
	}
	rapid.Check(t, func(r *rapid.T) {
		a, b := newHarness(t, channel.KindWebhook, rules...), newHarness(t, channel.KindWebhook, rules...)
		nowMs := int64(1_000_000)
		for i := range 60 {
			nowMs += rapid.Int64Range(0, 15_000).Draw(r, "pause")
			job := fmt.Sprint("job", rapid.IntRange(0, 3).Draw(r, "job"))
			what := rapid.IntRange(0, 9).Draw(r, "what")
			for _, h := range []*harness{a, b} {
				h.st.Tick(nowMs)
				switch {
				case what < 5:
					for _, rl := range h.st.Rules() {
						h.st.Observe(rl, failure(job, nowMs))
					}
				case what < 7:
					for _, rl := range h.st.Rules() {
						h.st.End(rl, job, nowMs)
					}
				case what == 7:
					if all := h.st.Alerts(nowMs); len(all) > 0 {
						if err := h.st.Acknowledge(all[0].ID, "ann", nowMs); err != nil {
							t.Fatal(err)
						}
					}
				case what == 8:
					s := Silence{Silence: rule.Silence{ID: fmt.Sprint("s", i), Rule: "each", FromMs: nowMs, UntilMs: nowMs + 25_000}}
					if err := h.st.AddSilence(s, nowMs); err != nil {
						t.Fatal(err)
					}
				default:
					work, _ := h.st.Take(time.UnixMilli(nowMs))
					for _, w := range work {
						h.st.Done(w, time.UnixMilli(nowMs), channel.Result{Verdict: channel.Delivered, Status: 200})
					}
				}
				h.store(t)
			}
			b.load(t, nowMs)
		}
		if same := maps.EqualFunc(a.rows, b.rows, slices.Equal[[]byte]); !same {
			for key := range a.rows {
				if string(a.rows[key]) != string(b.rows[key]) {
					r.Errorf("%s\n%s\n%s", key, a.rows[key], b.rows[key])
				}
			}
			r.Fatalf("%d and %d rows", len(a.rows), len(b.rows))
		}
	})
}

// TestDigest queues more than a platform takes. All arrive, in few requests, and a digest that
// fails is sent again as the same one.
func TestDigest(t *testing.T) {
	h := newHarness(t, channel.KindDingTalk, &apiv1.AlertRule{Name: "r", Events: []string{"failed"}, GroupBy: []string{"job"}, Channels: []string{"ops"}, Wait: "0s"})
	nowMs := int64(1_000_000)
	want := map[string]bool{}
	for i := range 100 {
		h.st.Observe(h.st.Rule("r"), failure(fmt.Sprint("j", i), nowMs))
	}
	for _, d := range h.st.Deliveries() {
		want[d.Notification.ID] = true
	}
	if len(want) != 100 {
		t.Fatalf("%d notifications", len(want))
	}
	requests, failed := 0, ""
	var last time.Time
	for h.st.Waiting() > 0 {
		now := time.UnixMilli(nowMs)
		work, next := h.st.Take(now)
		if len(work) == 0 {
			if next.IsZero() || !next.After(now) {
				t.Fatalf("nothing to do, and the next time is %s", next)
			}
			nowMs = next.UnixMilli()
			continue
		}
		if again, _ := h.st.Take(now); len(again) > 0 {
			t.Fatal("a channel got two messages at once")
		}
		w := work[0]
		requests++
		last = now
		r := channel.Result{Verdict: channel.Delivered}
		switch {
		case failed == "" && w.Message.IsDigest():
			failed, r = w.Message.ID, channel.Result{Verdict: channel.Retry, Status: 500}
		case failed == w.Message.ID:
			failed = "done"
		}
		if r.Verdict == channel.Delivered {
			for _, n := range w.Message.Notifications {
				if !want[n.ID] {
					t.Errorf("%s was sent twice, or never made", n.ID)
				}
				delete(want, n.ID)
			}
		}
		h.st.Done(w, now, r)
		h.store(t)
		h.load(t, nowMs)
	}
	if len(want) > 0 || failed != "done" || requests > 25 || last.UnixMilli()-1_000_000 > 3*60_000 {
		t.Errorf("%d are missing, the digest that failed is %s, after %d requests and %d s", len(want), failed, requests, (last.UnixMilli()-1_000_000)/1000)
	}
}

// TestChannelIsGone: what waits for a channel that is deleted is dropped, with the reason, and a
// message on its way does not come back.
func TestChannelIsGone(t *testing.T) {
	h := newHarness(t, channel.KindWebhook, &apiv1.AlertRule{Name: "r", Events: []string{"failed"}, GroupBy: []string{"job"}, Channels: []string{"ops"}, Wait: "0s"})
	h.st.Observe(h.st.Rule("r"), failure("a", 1000))
	h.st.Observe(h.st.Rule("r"), failure("b", 1001))
	work, _ := h.st.Take(time.UnixMilli(1002))
	h.st.SetReceivers(nil, 1003)
	h.st.Done(work[0], time.UnixMilli(1004), channel.Result{Verdict: channel.Retry})
	for _, d := range h.st.Deliveries() {
		if d.State != Dropped || d.Last.Reason == "" {
			t.Errorf("%+v", d)
		}
	}
	if h.st.Waiting() != 0 {
		t.Errorf("%d wait", h.st.Waiting())
	}
}

// TestBounds: the log of deliveries and the groups are bounded, and nothing is uncounted.
func TestBounds(t *testing.T) {
	h := newHarness(t, channel.KindWebhook, &apiv1.AlertRule{Name: "r", Events: []string{"failed"}, GroupBy: []string{"job"}, Channels: []string{"ops"}, Wait: "0s", Silence: "1h"})
	r := h.st.Rule("r")
	for i := range MaxGroups + 500 {
		h.st.Observe(r, failure(fmt.Sprint("j", i), 1000))
	}
	count := 0
	for _, a := range h.st.Alerts(1000) {
		count += a.Group.Count
	}
	if n := len(h.st.Alerts(1000)); n != MaxGroups+1 || count != MaxGroups+500 {
		t.Errorf("%d alerts with %d events", n, count)
	}
	if n := h.st.Waiting(); n > MaxWaiting {
		t.Errorf("%d wait", n)
	}
	if n := len(h.st.Deliveries()) - h.st.Waiting(); n != MaxEnded {
		t.Errorf("%d that have ended stay, want %d", n, MaxEnded)
	}
}

// TestSelecting compares the index with the selection of each rule.
func TestSelecting(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		patterns := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "ab", "a*", "*b", "?b", "[ab]*", `\*`, "", "b", "*"}), 0, 3)
		h := &harness{rows: map[string][]byte{}}
		var want []string
		job := rapid.SampledFrom([]string{"a", "ab", "b", "bb", "*", "abc"}).Draw(r, "job")
		x := &rule.Subject{App: "default", Job: job, Labels: map[string]string{"team": "x"}}
		for i := range 12 {
			m := &apiv1.AlertRule{Name: fmt.Sprint("r", i), Events: []string{"failed"}, Channels: []string{"ops"}, Select: &apiv1.AlertSelection{Jobs: patterns.Draw(r, "patterns")}}
			if rapid.Bool().Draw(r, "labelled") {
				m.Select.Labels = map[string]string{"team": rapid.SampledFrom([]string{"x", "y", "*"}).Draw(r, "team")}
			}
			_, c, err := definition.ReadRule(m)
			if err != nil {
				t.Fatal(err)
			}
			h.rules = append(h.rules, c)
			if c.Selects(x) {
				want = append(want, c.Name)
			}
		}
		h.load(t, 1)
		var got []string
		for _, s := range h.st.Selecting(x) {
			got = append(got, s.Name)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			r.Errorf("%s is selected by %v, want %v", job, got, want)
		}
	})
}

// TestFiring counts the alerts of each severity.
func TestFiring(t *testing.T) {
	h := newHarness(t, channel.KindWebhook,
		&apiv1.AlertRule{Name: "each", Events: []string{"failed"}, GroupBy: []string{"job"}, Channels: []string{"ops"}, Severity: "critical"},
		&apiv1.AlertRule{Name: "three", Events: []string{"failed"}, Channels: []string{"ops"}, Threshold: 3})
	for i, name := range []string{"a", "b", "a"} {
		for _, r := range h.st.Rules() {
			h.st.Observe(r, failure(name, int64(i+1)))
		}
		if got, want := h.st.Firing(), map[notification.Severity]int{"critical": min(i+1, 2), "error": i / 2, "warning": 0, "info": 0}; !maps.Equal(got, want) {
			t.Errorf("after %d events: %v, want %v", i+1, got, want)
		}
	}
}
