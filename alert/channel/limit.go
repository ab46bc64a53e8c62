package channel

import (
	"slices"
	"time"
)

// Window is how many requests a platform takes in a time.
type Window struct {
	Count int
	Per   time.Duration
}

// Limit is what a channel may send.
type Limit struct {
	Windows []Window // all hold; none: no limit
	// Fold is how many notifications a digest has at most, so that each has a line in it; 0:
	// the platform takes no digest.
	Fold int
	// Patience is how long the last of the waiting notifications may wait for a message of its
	// own. Beyond it they are folded.
	Patience time.Duration
}

// usualPatience is the time that a notification waits without need for a digest.
const usualPatience = 10 * time.Second

// LimitOf returns the limit of a kind: the documented one of the platform, or for kinds
// without one a bound that protects the receiver.
func LimitOf(k Kind) Limit {
	l := Limit{Patience: usualPatience}
	switch k {
	case KindWeCom: // 群机器人配置说明: 20 messages a minute for each robot
		l.Windows, l.Fold = []Window{{20, time.Minute}}, 10
	case KindDingTalk: // 自定义机器人接入: 20 messages a minute for each robot, or it is blocked for 10 minutes
		l.Windows, l.Fold = []Window{{20, time.Minute}}, 40
	case KindFeishu, KindLark: // 自定义机器人使用指南: 100 a minute and 5 a second for each bot
		l.Windows, l.Fold = []Window{{5, time.Second}, {100, time.Minute}}, 30
	case KindSlack: // Rate limits: incoming webhooks, 1 a second
		l.Windows, l.Fold = []Window{{1, time.Second}}, 30
	case KindTeams: // Create incoming webhooks: throttled beyond 4 a second; the connector: 100 in 30 seconds for each connection
		l.Windows, l.Fold = []Window{{4, time.Second}, {100, 30 * time.Second}}, 40
	case KindDiscord: // measured and answered in headers, not promised in documents: 5 in 2 seconds and 30 a minute for each webhook
		l.Windows, l.Fold = []Window{{5, 2 * time.Second}, {30, time.Minute}}, 12
	case KindTelegram: // Bots FAQ: 1 a second in a chat, 20 a minute in a group
		l.Windows, l.Fold = []Window{{1, time.Second}, {20, time.Minute}}, 12
	case KindPagerDuty: // Events API v2: adjusted to the traffic; 120 a minute was the documented number
		l.Windows = []Window{{100, time.Minute}}
	case KindAlertmanager: // no limit: a request carries many alerts
		l.Windows, l.Fold, l.Patience = []Window{{20, time.Second}}, 100, time.Second
	case KindMail:
		l.Windows, l.Fold, l.Patience = []Window{{30, time.Minute}}, 100, time.Minute
	case KindCommand:
		l.Windows, l.Fold = []Window{{5, time.Second}}, 100
	case KindCloudEvents: // each event is a request of its own: few receivers take batches
		l.Windows = []Window{{100, time.Second}}
	default: // a webhook
		l.Windows, l.Fold = []Window{{20, time.Second}}, 100
	}
	return l
}

// Usage is what a channel has sent lately, and whether its platform has blocked it. The
// zero Usage is that of a new channel. A caller stores it, so that a restart does not send
// more than the platform takes. It has at most as many times as the largest window counts.
type Usage struct {
	Sent    []int64 `json:"sent,omitempty"`    // times of the last requests, in milliseconds since 1970, the oldest first
	Blocked int64   `json:"blocked,omitempty"` // no request before this time, in milliseconds since 1970
}

// Action is what to do with the notifications that wait.
type Action string

// Actions.
const (
	SendOne Action = "send" // the first of them, in a message of its own
	Wait    Action = "wait" // until the time of the decision
	Fold    Action = "fold" // the first of them, as many as the decision says, into a digest
)

// Decision says what to do now.
type Decision struct {
	Action Action
	Until  time.Time // of Wait; zero: until there is a notification
	Fold   int       // of Fold: notifications in the digest, at least 2
}

// Decide decides about a number of notifications that wait, the oldest first. If all of
// them can be sent one by one within the patience of the limit, they are. If not, the first
// are, up to half of the window, and the rest goes into digests. So a flood arrives at once,
// the platform has no reason to block the channel, and an alert that comes next finds room.
func (l Limit) Decide(u Usage, now time.Time, waiting int) Decision {
	if waiting <= 0 {
		return Decision{Action: Wait}
	}
	at := l.next(u, now)
	if at.After(now) {
		return Decision{Action: Wait, Until: at}
	}
	if waiting == 1 || l.Fold < 2 || l.inTime(u, now, waiting) || l.roomy(u, now) {
		return Decision{Action: SendOne}
	}
	return Decision{Action: Fold, Fold: min(waiting, l.Fold)}
}

// Note returns the usage after a request at a time and its result. It notes the request
// whatever became of it: platforms count refused ones too.
func (l Limit) Note(u Usage, now time.Time, r Result) Usage {
	out := Usage{Sent: append(slices.Clone(u.Sent), now.UnixMilli()), Blocked: u.Blocked}
	most := 0
	for _, w := range l.Windows {
		most = max(most, w.Count)
	}
	out.Sent = out.Sent[max(0, len(out.Sent)-most):]
	if r.Verdict == RateLimited {
		out.Blocked = max(out.Blocked, r.Until.UnixMilli())
	}
	return out
}

// next returns the earliest time of the next request.
func (l Limit) next(u Usage, now time.Time) time.Time {
	ms := now.UnixMilli()
	// A clock that was set back must not keep the channel silent: no block is longer than
	// maxBlock.
	if u.Blocked <= ms+maxBlock.Milliseconds() {
		ms = max(ms, u.Blocked)
	}
	for _, w := range l.Windows {
		if i := len(u.Sent) - w.Count; i >= 0 {
			// With a clock that was set back a time may be ahead: it counts as of now.
			ms = max(ms, min(u.Sent[i], now.UnixMilli())+w.Per.Milliseconds())
		}
	}
	if ms <= now.UnixMilli() {
		return now
	}
	return time.UnixMilli(ms)
}

// roomy reports whether more than half of the longest window is free, and more than one
// request. A window of a second says nothing of a flood.
func (l Limit) roomy(u Usage, now time.Time) bool {
	var longest Window
	for _, w := range l.Windows {
		if w.Per > longest.Per {
			longest = w
		}
	}
	if longest.Count == 0 {
		return true
	}
	in := 0
	for _, ms := range u.Sent {
		if ms > now.UnixMilli()-longest.Per.Milliseconds() {
			in++
		}
	}
	return longest.Count-in > max(1, longest.Count/2)
}

// inTime reports whether the last of the waiting notifications can be sent in its own
// message within the patience. It plans the requests, at most those that fit.
func (l Limit) inTime(u Usage, now time.Time, waiting int) bool {
	end := now.Add(l.Patience)
	for range waiting {
		at := l.next(u, now)
		if at.After(end) {
			return false
		}
		u, now = l.Note(u, at, Result{}), at
	}
	return true
}
