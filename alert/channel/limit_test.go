package channel_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/wheelworkhq/wheelwork/alert/channel"
	"github.com/wheelworkhq/wheelwork/alert/notification"
)

// stub is a platform with a limit, as DingTalk has: more than count requests in a minute
// block the robot, and requests during the block are refused.
type stub struct {
	t       *testing.T
	clock   *time.Time
	count   int
	block   time.Duration
	sent    []time.Time // accepted
	blocked time.Time
	refused int
	texts   []string
}

func (s *stub) RoundTrip(req *http.Request) (*http.Response, error) {
	q, err := url.ParseQuery(req.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	if ms, err := strconv.ParseInt(q.Get("timestamp"), 10, 64); err != nil || time.UnixMilli(ms).Sub(*s.clock).Abs() > time.Hour || q.Get("sign") == "" {
		return respond(200, `{"errcode":310000,"errmsg":"sign not match"}`), nil
	}
	in := 0
	for _, at := range s.sent {
		if s.clock.Sub(at) < time.Minute {
			in++
		}
	}
	if s.clock.Before(s.blocked) || in >= s.count {
		s.refused++
		if !s.clock.Before(s.blocked) {
			s.blocked = s.clock.Add(s.block)
		}
		return respond(200, `{"errcode":130101,"errmsg":"send too fast, exceed 20 times per minute"}`), nil
	}
	s.sent = append(s.sent, *s.clock)
	var x struct{ Markdown struct{ Title, Text string } }
	body, err := io.ReadAll(req.Body)
	if err == nil {
		err = json.Unmarshal(body, &x)
	}
	s.texts = append(s.texts, x.Markdown.Text)
	return respond(200, `{"errcode":0,"errmsg":"ok"}`), err
}

// sender is a caller with a queue and a clock of its own: it stores the usage as JSON
// between two decisions, as it would over a restart.
type sender struct {
	t       *testing.T
	channel channel.Channel
	limit   channel.Limit
	usage   []byte
	queue   []notification.Notification
	ids     []string
	digests int
}

// run works off the queue and moves the clock to each time that a decision names.
func (s *sender) run(clock *time.Time) {
	for turns := 0; len(s.queue) > 0; turns++ {
		if turns > 10_000 {
			s.t.Fatal("the queue does not end")
		}
		var u channel.Usage
		if s.usage != nil {
			if err := json.Unmarshal(s.usage, &u); err != nil {
				s.t.Fatal(err)
			}
		}
		d := s.limit.Decide(u, *clock, len(s.queue))
		n := 1
		switch d.Action {
		case channel.Wait:
			if !d.Until.After(*clock) {
				s.t.Fatalf("wait until %s at %s", d.Until, *clock)
			}
			*clock = d.Until
			continue
		case channel.Fold:
			n = d.Fold
			s.digests++
		}
		m := notification.Digest(s.queue[:n])
		r := s.channel.Send(context.Background(), *clock, m)
		u = s.limit.Note(u, *clock, r)
		text, err := json.Marshal(u)
		if err != nil {
			s.t.Fatal(err)
		}
		s.usage = text
		if r.Verdict == channel.Delivered {
			for _, x := range m.Notifications {
				s.ids = append(s.ids, x.ID)
			}
			s.queue = s.queue[n:]
		} else if r.Verdict != channel.RateLimited {
			s.t.Fatalf("%+v", r)
		}
	}
}

func flood(n int) []notification.Notification {
	var out []notification.Notification
	for i := range n {
		x := firing(notification.Chinese)
		x.ID, x.Alert, x.Labels = fmt.Sprintf("n-%03d", i), fmt.Sprintf("a-%03d", i), map[string]string{"job": fmt.Sprintf("job-%03d", i)}
		out = append(out, x)
	}
	return out
}

func dingtalk(t *testing.T, s *stub) *sender {
	e := channel.DingTalk{URL: "https://oapi.dingtalk.com/robot/send?access_token=x", Secret: "SECx"}
	return &sender{t: t, channel: over(t, e, s), limit: channel.LimitOf(channel.KindDingTalk), queue: flood(100)}
}

// TestFloodOfDingTalk checks that 100 notifications at once lose nothing, never meet the
// limit, and end in digests.
func TestFloodOfDingTalk(t *testing.T) {
	clock := now
	s := &stub{t: t, clock: &clock, count: 20, block: 10 * time.Minute}
	c := dingtalk(t, s)
	c.run(&clock)
	allArrived(t, s, c)
	if s.refused != 0 || c.digests != 3 || len(s.sent) != 13 {
		t.Errorf("%d requests refused, %d digests in %d requests; want 0, 3 in 13", s.refused, c.digests, len(s.sent))
	}
	if took := clock.Sub(now); took != 0 {
		t.Errorf("the last notification arrived after %s", took)
	}
}

// TestBlockedRobot checks that nothing is lost when another program has used up the robot:
// the channel waits for the end of the block, and asks once.
func TestBlockedRobot(t *testing.T) {
	clock := now
	s := &stub{t: t, clock: &clock, count: 20, block: 10 * time.Minute}
	for range 15 {
		s.sent = append(s.sent, now)
	}
	c := dingtalk(t, s)
	c.run(&clock)
	allArrived(t, s, c)
	if s.refused != 1 {
		t.Errorf("%d requests refused, want 1", s.refused)
	}
	if took := clock.Sub(now); took < 10*time.Minute || took > 13*time.Minute {
		t.Errorf("the last notification arrived after %s", took)
	}
}

func allArrived(t *testing.T, s *stub, c *sender) {
	t.Helper()
	text := strings.Join(s.texts, "\n")
	for i := range 100 {
		if i >= len(c.ids) || c.ids[i] != fmt.Sprintf("n-%03d", i) {
			t.Fatalf("the notifications that arrived are %v", c.ids)
		}
		if name := fmt.Sprintf("job-%03d", i); strings.Count(text, name) == 0 {
			t.Errorf("no message names %s", name)
		}
	}
	if len(c.ids) != 100 {
		t.Errorf("%d notifications arrived", len(c.ids))
	}
}

// TestDecide checks single decisions.
func TestDecide(t *testing.T) {
	slack := channel.LimitOf(channel.KindSlack)
	pager := channel.LimitOf(channel.KindPagerDuty)
	ding := channel.LimitOf(channel.KindDingTalk)
	sent := func(n int, at time.Time) channel.Usage {
		var u channel.Usage
		for range n {
			u = ding.Note(u, at, channel.Result{Verdict: channel.Delivered})
		}
		return u
	}
	blocked := ding.Note(channel.Usage{}, now, channel.Result{Verdict: channel.RateLimited, Until: now.Add(10 * time.Minute)})
	for name, tt := range map[string]struct {
		limit   channel.Limit
		usage   channel.Usage
		now     time.Time
		waiting int
		want    channel.Decision
	}{
		"nothing waits":               {slack, channel.Usage{}, now, 0, channel.Decision{Action: channel.Wait}},
		"one":                         {slack, channel.Usage{}, now, 1, channel.Decision{Action: channel.SendOne}},
		"a few wait for their second": {slack, channel.Usage{}, now, 5, channel.Decision{Action: channel.SendOne}},
		"the next second":             {slack, channel.Usage{Sent: []int64{now.UnixMilli()}}, now, 1, channel.Decision{Action: channel.Wait, Until: now.Add(time.Second)}},
		"many are folded":             {slack, channel.Usage{}, now, 100, channel.Decision{Action: channel.Fold, Fold: 30}},
		"no digest for a pager":       {pager, channel.Usage{}, now, 1000, channel.Decision{Action: channel.SendOne}},
		"room for all":                {ding, channel.Usage{}, now, 20, channel.Decision{Action: channel.SendOne}},
		"first of too many":           {ding, channel.Usage{}, now, 21, channel.Decision{Action: channel.SendOne}},
		"half of the window is full":  {ding, sent(10, now), now, 11, channel.Decision{Action: channel.Fold, Fold: 11}},
		"last of the window":          {ding, sent(19, now), now, 2, channel.Decision{Action: channel.Fold, Fold: 2}},
		"last of the window, alone":   {ding, sent(19, now), now, 1, channel.Decision{Action: channel.SendOne}},
		"full window":                 {ding, sent(20, now), now.Add(time.Second), 2, channel.Decision{Action: channel.Wait, Until: now.Add(time.Minute)}},
		"old window":                  {ding, sent(20, now), now.Add(time.Minute), 2, channel.Decision{Action: channel.SendOne}},
		"blocked":                     {ding, blocked, now.Add(time.Second), 2, channel.Decision{Action: channel.Wait, Until: now.Add(10 * time.Minute)}},
		"no longer blocked":           {ding, blocked, now.Add(10 * time.Minute), 2, channel.Decision{Action: channel.SendOne}},
		"the clock was set back":      {ding, sent(20, now.Add(24*time.Hour)), now, 1, channel.Decision{Action: channel.Wait, Until: now.Add(time.Minute)}},
		"a block far ahead":           {ding, channel.Usage{Blocked: now.Add(400 * 24 * time.Hour).UnixMilli()}, now, 1, channel.Decision{Action: channel.SendOne}},
		"no limit":                    {channel.Limit{}, channel.Usage{}, now, 1000, channel.Decision{Action: channel.SendOne}},
	} {
		got := tt.limit.Decide(tt.usage, tt.now, tt.waiting)
		if got.Action != tt.want.Action || got.Fold != tt.want.Fold || !got.Until.Equal(tt.want.Until) {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

// TestLimitsHold checks with any arrivals that no window of any kind has more requests than
// it may, that every notification is sent exactly once and in order, and that a usage stays
// small.
func TestLimitsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom(channel.Kinds()).Draw(t, "kind")
		limit := channel.LimitOf(kind)
		var u channel.Usage
		clock, queue, arrived := now, 0, 0
		var requests []time.Time
		sent := 0
		for range rapid.IntRange(1, 6).Draw(t, "bursts") {
			n := rapid.IntRange(0, 150).Draw(t, "arrivals")
			queue, arrived = queue+n, arrived+n
			end := clock.Add(time.Duration(rapid.IntRange(0, 90_000).Draw(t, "ms")) * time.Millisecond)
			for queue > 0 {
				d := limit.Decide(u, clock, queue)
				if d.Action == channel.Wait {
					if d.Until.After(end) {
						break
					}
					clock = d.Until
					continue
				}
				n := max(d.Fold, 1)
				if n > queue || n > max(limit.Fold, 1) {
					t.Fatalf("a digest of %d, %d wait", n, queue)
				}
				queue, sent = queue-n, sent+n
				requests = append(requests, clock)
				u = limit.Note(u, clock, channel.Result{Verdict: channel.Delivered})
			}
			clock = end
		}
		if sent+queue != arrived {
			t.Fatalf("%d arrived, %d sent, %d wait", arrived, sent, queue)
		}
		for _, w := range limit.Windows {
			for i := w.Count; i < len(requests); i++ {
				if gap := requests[i].Sub(requests[i-w.Count]); gap < w.Per {
					t.Fatalf("%s: %d requests in %s", kind, w.Count+1, gap)
				}
			}
		}
		if len(u.Sent) > 100 {
			t.Fatalf("a usage of %d times", len(u.Sent))
		}
	})
}

// TestBackoff checks the plan of attempts: it grows, it is the same for the same id, it
// differs for others, and it ends.
func TestBackoff(t *testing.T) {
	b := channel.DefaultBackoff()
	retry := channel.Result{Verdict: channel.Retry}
	at, failed := now, 0
	var waits []time.Duration
	for {
		failed++
		next, dead := b.Next("n-1", failed, now, at, retry)
		if dead {
			break
		}
		if again, _ := b.Next("n-1", failed, now, at, retry); again != next {
			t.Errorf("attempt %d is planned for %s and %s", failed, next, again)
		}
		waits = append(waits, next.Sub(at))
		at = next
	}
	if len(waits) != len(b.Delays) {
		t.Fatalf("%d waits, want %d: %v", len(waits), len(b.Delays), waits)
	}
	for i, d := range b.Delays {
		if waits[i] < d || waits[i] > d+d/5 {
			t.Errorf("wait %d is %s, want %s and at most a fifth more", i, waits[i], d)
		}
	}
	spread := map[time.Time]bool{}
	for i := range 100 {
		next, _ := b.Next(fmt.Sprintf("n-%d", i), 3, now, now, retry)
		spread[next] = true
	}
	if len(spread) < 90 {
		t.Errorf("100 messages are tried at %d times", len(spread))
	}
	if _, dead := b.Next("n-1", 1, now, now, channel.Result{Verdict: channel.Refused}); !dead {
		t.Error("a refused message is tried again")
	}
	limited := channel.Result{Verdict: channel.RateLimited, Until: now.Add(10 * time.Minute)}
	if next, dead := b.Next("n-1", 50, now, now, limited); dead || next.Before(limited.Until) || next.After(limited.Until.Add(time.Second)) {
		t.Errorf("a limited message is tried at %s, dead %v", next, dead)
	}
	if _, dead := b.Next("n-1", 0, now.Add(-25*time.Hour), now, limited); !dead {
		t.Error("a message of yesterday is no dead letter")
	}
}
