package state

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/wheelworkhq/wheelwork/alert/channel"
	"github.com/wheelworkhq/wheelwork/alert/notification"
	"github.com/wheelworkhq/wheelwork/alert/rule"
)

// The states of a delivery.
const (
	Waiting   = "waiting"
	Delivered = "delivered"
	Refused   = "refused"  // the platform will never take it
	GivenUp   = "given_up" // after all attempts
	Dropped   = "dropped"  // its channel is gone, or has too many that wait
)

// Delivery is a notification on its way to one channel.
type Delivery struct {
	ID           string                    `json:"id"` // unique in the app
	Channel      string                    `json:"channel"`
	Notification notification.Notification `json:"notification"`
	State        string                    `json:"state"`
	Number       uint64                    `json:"number"` // the order in which they were made
	CreatedMs    int64                     `json:"created_ms"`
	FirstMs      int64                     `json:"first_ms,omitempty"` // of its first attempt
	NextMs       int64                     `json:"next_ms,omitempty"`  // not before this time
	EndedMs      int64                     `json:"ended_ms,omitempty"`
	Attempts     int                       `json:"attempts,omitempty"`
	Failed       int                       `json:"failed,omitempty"` // attempts that count against the number of tries
	// Message is the id of the message that has it, after the first attempt: it is sent again with the same ones.
	Message string         `json:"message,omitempty"`
	Last    channel.Result `json:"last,omitzero"`
	// Rest are the recipients that have not got it, if others have; empty: all.
	Rest []string `json:"rest,omitempty"`
}

// Receiver is what the outbox knows of a channel.
type Receiver struct {
	Kind     channel.Kind
	Language notification.Language
}

// Work is one message for one channel.
type Work struct {
	App, Channel string
	Message      notification.Message
	Rest         []string // the recipients that are left; empty: all
	ids          []string // of the deliveries in it
}

// outbox has the deliveries of an app.
type outbox struct {
	all       map[string]*Delivery
	waiting   map[string][]*Delivery // by channel, in the order of their numbers
	ended     []*Delivery            // the oldest end first
	usage     map[string]channel.Usage
	receivers map[string]Receiver
	sending   map[string]bool // channels that have a message
	number    uint64          // of the last delivery
}

func newOutbox() outbox {
	return outbox{all: map[string]*Delivery{}, waiting: map[string][]*Delivery{}, usage: map[string]channel.Usage{}, receivers: map[string]Receiver{}, sending: map[string]bool{}}
}

func (b *outbox) load(kind, rest string, value []byte) error {
	if kind == kindUsage {
		var u channel.Usage
		if err := json.Unmarshal(value, &u); err != nil {
			return fmt.Errorf("use of the alert channel %q: %w", rest, err)
		}
		b.usage[rest] = u
		return nil
	}
	d := &Delivery{}
	if err := json.Unmarshal(value, d); err != nil {
		return fmt.Errorf("alert delivery %q: %w", rest, err)
	}
	b.all[d.ID] = d
	b.number = max(b.number, d.Number)
	if d.State == Waiting {
		b.waiting[d.Channel] = insert(b.waiting[d.Channel], d, byNumber)
	} else {
		b.ended = insert(b.ended, d, byEnd)
	}
	return nil
}

func byNumber(a, b *Delivery) int { return cmp.Compare(a.Number, b.Number) }

func byEnd(a, b *Delivery) int { return cmp.Or(cmp.Compare(a.EndedMs, b.EndedMs), byNumber(a, b)) }

func insert(list []*Delivery, d *Delivery, compare func(a, b *Delivery) int) []*Delivery {
	at, _ := slices.BinarySearchFunc(list, d, compare)
	return slices.Insert(list, at, d)
}

func (b *outbox) part(kind, rest string) any {
	switch kind {
	case kindUsage:
		if u, ok := b.usage[rest]; ok {
			return u
		}
	case kindDelivery:
		if d := b.all[rest]; d != nil {
			return d
		}
	}
	return nil
}

// SetReceivers replaces the channels. What waits for a channel that is gone is dropped.
func (st *State) SetReceivers(receivers map[string]Receiver, nowMs int64) {
	st.box.receivers = receivers
	for _, name := range slices.Sorted(maps.Keys(st.box.waiting)) {
		if _, ok := receivers[name]; !ok && !st.box.sending[name] {
			for _, d := range slices.Clone(st.box.waiting[name]) {
				st.finish(d, Dropped, "the channel "+name+" does not exist", nowMs)
			}
		}
	}
	for name := range st.box.usage {
		if _, ok := receivers[name]; !ok {
			delete(st.box.usage, name)
			st.changed[kindUsage+"/"+name] = true
		}
	}
}

// Receives reports whether there is a channel with a name.
func (st *State) Receives(name string) bool {
	_, ok := st.box.receivers[name]
	return ok
}

// queue queues what the group of a rule has made.
func (st *State) queue(r *Rule, out []rule.Output) {
	for _, o := range out {
		for _, name := range o.Channels {
			n := o.Notification.Trim()
			n.Language = cmp.Or(r.Language, st.box.receivers[name].Language, notification.English)
			st.add(name, n, n.At.UnixMilli())
		}
	}
}

// add queues a notification for a channel. One with the same id is not queued twice.
func (st *State) add(name string, n notification.Notification, nowMs int64) *Delivery {
	id := n.ID + "." + name
	if d := st.box.all[id]; d != nil {
		return d
	}
	st.box.number++
	d := &Delivery{ID: id, Channel: name, Notification: n, State: Waiting, Number: st.box.number, CreatedMs: nowMs}
	st.box.all[id] = d
	st.box.waiting[name] = append(st.box.waiting[name], d)
	st.changed[kindDelivery+"/"+id] = true
	if !st.Receives(name) {
		st.finish(d, Dropped, "the channel "+name+" does not exist", nowMs)
		return d
	}
	if list := st.box.waiting[name]; len(list) > MaxWaiting && !st.box.sending[name] {
		st.finish(list[0], Dropped, fmt.Sprintf("more than %d notifications wait for the channel", MaxWaiting), nowMs)
	}
	return d
}

// finish ends a delivery.
func (st *State) finish(d *Delivery, state, reason string, nowMs int64) {
	d.State, d.EndedMs, d.NextMs, d.Rest = state, nowMs, 0, nil
	if reason != "" {
		d.Last.Reason = reason
	}
	st.changed[kindDelivery+"/"+d.ID] = true
	b := &st.box
	b.waiting[d.Channel] = slices.DeleteFunc(b.waiting[d.Channel], func(x *Delivery) bool { return x == d })
	if len(b.waiting[d.Channel]) == 0 {
		delete(b.waiting, d.Channel)
	}
	b.ended = insert(b.ended, d, byEnd)
	for len(b.ended) > MaxEnded {
		old := b.ended[0]
		b.ended = b.ended[1:]
		delete(b.all, old.ID)
		st.changed[kindDelivery+"/"+old.ID] = true
	}
}

// Take hands out the messages that may be sent now, at most one for each channel, and returns the time at which
// to ask again; zero: after the next change. A channel gets no further message until Done.
func (st *State) Take(now time.Time) (work []Work, next time.Time) {
	earlier := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	for _, name := range slices.Sorted(maps.Keys(st.box.waiting)) {
		if st.box.sending[name] {
			continue
		}
		ready, at := st.box.ready(name, now)
		if len(ready) == 0 {
			earlier(at)
			continue
		}
		d := channel.LimitOf(st.box.receivers[name].Kind).Decide(st.box.usage[name], now, len(ready))
		if d.Action == channel.Wait {
			earlier(d.Until)
			continue
		}
		work = append(work, st.message(name, ready, d))
	}
	return work, next
}

// ready returns the deliveries of a channel that may be sent now, or the time at which the first may.
func (b *outbox) ready(name string, now time.Time) (ready []*Delivery, at time.Time) {
	next := int64(0)
	for _, d := range b.waiting[name] {
		if d.NextMs <= now.UnixMilli() {
			ready = append(ready, d)
		} else if next == 0 || d.NextMs < next {
			next = d.NextMs
		}
	}
	return ready, time.UnixMilli(next)
}

// message makes the message of the first delivery of a channel: the former one if it was sent before.
func (st *State) message(name string, ready []*Delivery, d channel.Decision) Work {
	first := ready[0]
	var in []*Delivery
	for _, x := range ready {
		same := x == first
		if first.Message != "" {
			same = x.Message == first.Message
		} else if d.Action == channel.Fold {
			same = x.Message == "" && len(in) < d.Fold
		}
		if same {
			in = append(in, x)
		}
	}
	w := Work{App: st.app, Channel: name, Rest: first.Rest}
	list := make([]notification.Notification, len(in))
	for i, x := range in {
		list[i] = x.Notification
		w.ids = append(w.ids, x.ID)
	}
	if w.Message = notification.Single(list[0]); len(list) > 1 {
		w.Message = notification.Digest(list)
	}
	st.box.sending[name] = true
	return w
}

// Done notes the result of a message.
func (st *State) Done(w Work, now time.Time, r channel.Result) {
	delete(st.box.sending, w.Channel)
	if to, ok := st.box.receivers[w.Channel]; ok {
		st.box.usage[w.Channel] = channel.LimitOf(to.Kind).Note(st.box.usage[w.Channel], now, r)
		st.changed[kindUsage+"/"+w.Channel] = true
	}
	for _, id := range w.ids {
		d := st.box.all[id]
		if d == nil || d.State != Waiting {
			continue
		}
		st.changed[kindDelivery+"/"+id] = true
		d.Attempts++
		d.Message, d.Last, d.FirstMs = w.Message.ID, r, cmp.Or(d.FirstMs, now.UnixMilli())
		d.Last.Rest = nil
		if r.Verdict == channel.Delivered {
			st.finish(d, Delivered, "", now.UnixMilli())
			continue
		}
		if r.Verdict == channel.Retry {
			d.Failed++
		}
		if len(r.Rest) > 0 {
			d.Rest = r.Rest
		}
		at, over := channel.DefaultBackoff().Next(w.Message.ID, d.Failed, time.UnixMilli(d.FirstMs), now, r)
		switch {
		case !over:
			d.NextMs = at.UnixMilli()
		case r.Verdict == channel.Refused:
			st.finish(d, Refused, "", now.UnixMilli())
		default:
			st.finish(d, GivenUp, "", now.UnixMilli())
		}
	}
	if !st.Receives(w.Channel) {
		st.SetReceivers(st.box.receivers, now.UnixMilli())
	}
}

// Errors of calls about deliveries.
var (
	ErrNoChannel  = errors.New("there is no such channel")
	ErrNoDelivery = errors.New("there is no such delivery")
	ErrNotEnded   = errors.New("the delivery waits for its next attempt, or was delivered")
)

// Test queues an example for a channel. id makes its notification unique.
func (st *State) Test(name, id string, language notification.Language, nowMs int64) (*Delivery, error) {
	to, ok := st.box.receivers[name]
	if !ok {
		return nil, ErrNoChannel
	}
	n := notification.Samples(cmp.Or(language, to.Language, notification.English))[0].Notifications[0]
	now := time.UnixMilli(nowMs).UTC()
	n.ID, n.Alert, n.App, n.At, n.Since = id, id, st.app, now, now
	for i := range n.Incidents {
		n.Incidents[i].At = now
	}
	return st.add(name, n, nowMs), nil
}

// Retry queues a delivery again that was refused, given up or dropped.
func (st *State) Retry(id string, nowMs int64) (*Delivery, error) {
	d := st.box.all[id]
	switch {
	case d == nil:
		return nil, ErrNoDelivery
	case d.State == Waiting, d.State == Delivered:
		return nil, ErrNotEnded
	case !st.Receives(d.Channel):
		return nil, ErrNoChannel
	}
	b := &st.box
	b.ended = slices.DeleteFunc(b.ended, func(x *Delivery) bool { return x == d })
	d.State, d.EndedMs, d.FirstMs, d.NextMs, d.Failed, d.Message = Waiting, 0, 0, 0, 0, ""
	b.waiting[d.Channel] = insert(b.waiting[d.Channel], d, byNumber)
	st.changed[kindDelivery+"/"+id] = true
	return d, nil
}

// Deliveries returns the deliveries, the newest first.
func (st *State) Deliveries() []*Delivery {
	return slices.SortedFunc(maps.Values(st.box.all), func(a, b *Delivery) int { return -byNumber(a, b) })
}

// Delivery returns a delivery; nil: there is none.
func (st *State) Delivery(id string) *Delivery { return st.box.all[id] }

// Waiting returns the number of deliveries that wait.
func (st *State) Waiting() (n int) {
	for _, list := range st.box.waiting {
		n += len(list)
	}
	return n
}

// Empty reports whether nothing of the state is left.
func (st *State) Empty() bool {
	return len(st.rules)+len(st.groups)+len(st.silences)+len(st.box.all)+len(st.box.receivers)+len(st.box.usage) == 0
}
