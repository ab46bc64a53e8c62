package queue

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// fetchBytes bounds the bytes of one Fetch. One message is always delivered, whatever its
// size.
const fetchBytes = 8 << 20

// tick bounds every sleep until a message is due, so that a jump of the wall clock is
// noticed.
const tick = time.Second

// Delivery is one attempt to have a message consumed.
type Delivery struct {
	ID       uint64 // as in the Receipt
	Position uint64 // in the topic, from 0
	Topic    string
	Group    string
	Key      string
	Origin   string
	Body     []byte // not to be changed
	// Published is when the message was published, by the wall clock.
	Published time.Time
	// Attempt is the number of earlier failed deliveries plus 1. Deliveries that ended
	// with their process or consumer do not count.
	Attempt int

	item  *item
	group *group
	turn  uint32
}

// Consumer fetches messages for a group. The consumers of one group share its messages.
// Its methods may be called concurrently.
type Consumer struct {
	q      *Queue
	group  *group
	closed chan struct{}
	ended  bool // guarded by Queue.mu
}

// Consumer returns a new consumer of a group of a topic. It creates topic and group if
// they do not exist, and waits until that is durable. A new group starts with the oldest
// message in the topic.
func (q *Queue) Consumer(topic, group string) (*Consumer, error) {
	if group == "" || len(group) > maxName || !utf8.ValidString(group) {
		return nil, fmt.Errorf("%w: the group %.40q must have 1 to %d bytes of UTF-8", ErrInvalid, group, maxName)
	}
	m := Message{Topic: topic}
	if err := m.validate(0); err != nil {
		return nil, err
	}
	g, err := q.join(topic, group)
	if err != nil {
		return nil, err
	}
	return &Consumer{q: q, group: g, closed: make(chan struct{})}, nil
}

// join returns a group and creates it if necessary. Nothing else is staged until the
// creation is durable, so a group is created once.
func (q *Queue) join(topic, name string) (*group, error) {
	q.staging.Lock()
	defer q.staging.Unlock()
	t := q.names[topic]
	q.mu.Lock()
	g := t.find(name)
	q.mu.Unlock()
	if g != nil {
		return g, nil
	}
	if q.disk.level.Load() >= levelRefuse {
		return nil, ErrFull
	}
	b := batch{q: q, next: q.log.Next()}
	t = b.topic(topic)
	q.mu.Lock()
	q.lastGroup++
	id, start := q.lastGroup, t.base
	q.mu.Unlock()
	done := make(chan error, 1)
	if _, err := q.stage(append(b.recs, &groupRecord{id, t.id, name, start}), func(err error) { done <- err }); err != nil {
		return nil, err
	}
	q.names[topic] = t
	if err := <-done; err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.groups[id], nil
}

// find returns the group with a name, or nil.
func (t *topic) find(name string) *group {
	if t == nil {
		return nil
	}
	for _, g := range t.groups {
		if g.name == name {
			return g
		}
	}
	return nil
}

// RemoveGroup removes a group with its unfinished messages. Its dead letters stay.
// RemoveGroup waits until that is durable.
func (q *Queue) RemoveGroup(topic, group string) error {
	q.mu.Lock()
	g := q.groupNamed(topic, group)
	q.mu.Unlock()
	if g == nil {
		return fmt.Errorf("%w: group %q of topic %q", ErrNotFound, group, topic)
	}
	_, err := q.write(&forgetRecord{g.id})
	return err
}

// groupNamed returns a group or nil. mu must be held.
func (q *Queue) groupNamed(topic, group string) *group {
	for _, t := range q.topics {
		if t.name == topic {
			return t.find(group)
		}
	}
	return nil
}

// Fetch returns up to most messages that are due, in the order of publishing as far as
// keys, delays and retries allow. It waits until there is one, and returns at most about
// 8 MiB. It ends with the context's error, with ErrClosed if consumer or queue is closed,
// and with ErrNotFound if the group was removed.
func (c *Consumer) Fetch(ctx context.Context, most int) ([]Delivery, error) {
	if most < 1 {
		return nil, fmt.Errorf("%w: Fetch of %d messages, it must be at least 1", ErrInvalid, most)
	}
	for {
		if err := c.check(ctx); err != nil {
			return nil, err
		}
		if err := c.expire(); err != nil {
			return nil, err
		}
		ds, wait, err := c.take(most)
		if len(ds) > 0 {
			return ds, nil // the next call returns the error
		}
		if err != nil {
			return nil, err
		}
		if wait != nil {
			wait(ctx)
		}
	}
}

func (c *Consumer) check(ctx context.Context) error {
	select {
	case <-c.q.stopping:
		return ErrClosed
	case <-c.closed:
		return ErrClosed
	default:
		return ctx.Err()
	}
}

// take returns the messages to deliver now, or a function that waits for more.
func (c *Consumer) take(most int) ([]Delivery, func(context.Context), error) {
	q, g := c.q, c.group
	q.mu.Lock()
	switch {
	case c.ended:
		q.mu.Unlock()
		return nil, nil, ErrClosed
	case g.gone:
		q.mu.Unlock()
		return nil, nil, fmt.Errorf("%w: group %q of topic %q was removed", ErrNotFound, g.name, g.topic.name)
	case q.err != nil:
		defer q.mu.Unlock()
		return nil, nil, q.err
	}
	items, err := g.take(c, time.Now(), most, fetchBytes)
	if len(items) == 0 {
		var wait func(context.Context)
		if err == nil {
			wait = c.waiter()
		}
		q.mu.Unlock()
		return nil, wait, err
	}
	ds := make([]Delivery, len(items))
	hot := make([]raw, len(items))
	for i, it := range items {
		hot[i], _ = q.recent.get(it.seq)
		ds[i] = Delivery{Attempt: 1, item: it, group: g, turn: it.turn}
		if it.fail != nil {
			ds[i].Attempt += int(it.fail.count)
		}
	}
	q.mu.Unlock()
	for i := range ds {
		if fillErr := c.fill(&ds[i], hot[i]); fillErr != nil {
			// The rest is returned to the group. The unreadable message stays with the
			// consumer, because its delivery would fail again at once.
			c.giveBack(ds[i+1:])
			return ds[:i], nil, c.unreadable(&ds[i], fillErr)
		}
	}
	return ds, nil, err
}

// fill reads the message of a delivery.
func (c *Consumer) fill(d *Delivery, hot raw) error {
	if hot.body == nil {
		var err error
		hot, err = c.q.fetchMoving(func() (uint64, bool) { return d.item.seq, true })
		if err != nil {
			return err
		}
	}
	m, err := hot.message()
	if err != nil {
		return err
	}
	d.ID, d.Position, d.Topic, d.Group = m.id, m.pos, c.group.topic.name, c.group.name
	d.Key, d.Origin, d.Body, d.Published = m.key, m.origin, m.body, time.Unix(0, m.time)
	return nil
}

func (c *Consumer) giveBack(ds []Delivery) {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	for i := range ds {
		if c.group.current(&ds[i]) {
			c.group.release(ds[i].item)
		}
	}
}

// unreadable returns an error about an unreadable message, or ErrClosed if the queue is
// closing.
func (c *Consumer) unreadable(d *Delivery, err error) error {
	select {
	case <-c.q.stopping:
		return ErrClosed
	default:
	}
	c.q.cfg.Logger.Error("a message cannot be read; its key waits until the consumer is closed",
		"topic", c.group.topic.name, "position", d.item.pos, "error", err)
	return err
}

// waiter registers a waiter of the group. mu must be held. The caller calls the returned
// function, which waits, without mu.
func (c *Consumer) waiter() func(context.Context) {
	g := c.group
	g.waiters++
	woken := g.wake
	at, timed := g.waitUntil(c.q.cfg.Visibility)
	return func(ctx context.Context) {
		var due <-chan time.Time
		if timed {
			// A sleep of zero would spin while the wall clock and the timer disagree.
			t := time.NewTimer(max(min(time.Until(at), tick), time.Microsecond))
			defer t.Stop()
			due = t.C
		}
		select {
		case <-ctx.Done():
		case <-c.q.stopping:
		case <-c.closed:
		case <-woken:
		case <-due:
		}
		c.q.mu.Lock()
		g.waiters--
		c.q.mu.Unlock()
	}
}

// expire fails the deliveries of the group that consumers have held too long.
func (c *Consumer) expire() error {
	q, g := c.q, c.group
	if q.cfg.Visibility == 0 {
		return nil
	}
	for {
		q.mu.Lock()
		it := g.oldest
		if it == nil || g.gone || it.deadline.After(time.Now()) {
			q.mu.Unlock()
			return nil
		}
		d := Delivery{item: it, group: g, turn: it.turn}
		q.mu.Unlock()
		if err := c.fill(&d, raw{}); err != nil {
			return err
		}
		err := c.Nack(d, fmt.Errorf("not acknowledged within %v", q.cfg.Visibility), false)
		if err != nil && !errors.Is(err, ErrStale) {
			return err
		}
	}
}

// Ack ends deliveries: the group never gets these messages again. done, which may be nil,
// is called when that is durable. It runs on the log's goroutine, must be quick and must
// not call the queue. Without done the acknowledgement is written with the next flush, or
// after about 100 ms; a crash before that repeats the delivery.
//
// Ack skips deliveries that are no longer current. The error then wraps ErrStale,
// although all others were acknowledged; done is called if there was any. With any other
// error no delivery was acknowledged.
func (c *Consumer) Ack(ds []Delivery, done func(error)) error {
	q, g := c.q, c.group
	positions := make([]uint64, 0, len(ds))
	items := make([]*item, 0, len(ds))
	q.mu.Lock()
	for i := range ds {
		d := &ds[i]
		if d.group != g || !g.current(d) {
			continue
		}
		g.takeBack(d.item, leaving)
		positions = append(positions, d.item.pos)
		items = append(items, d.item)
	}
	q.mu.Unlock()
	if len(items) > 0 {
		q.staging.Lock()
		err := q.stageEarly(&ackRecord{g.id, spansOf(positions)}, done)
		q.staging.Unlock()
		if err != nil {
			c.restore(items...)
			return err
		}
	}
	if n := len(ds) - len(items); n > 0 {
		return fmt.Errorf("%w: %d of %d", ErrStale, n, len(ds))
	}
	return nil
}

// restore makes messages ready again after the record of their end could not be written.
func (c *Consumer) restore(items ...*item) {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	for _, it := range items {
		c.group.offer(it)
	}
	c.group.signal()
}

// Nack reports a failed delivery and its cause. The message is delivered again after the
// delay for its number of failures, and holds back its key until then. It becomes a dead
// letter after Config.MaxAttempts failures, or at once if the failure is permanent.
//
// Nack does not wait for the disk. A crash may lose the failure; the message is then
// delivered again at once.
func (c *Consumer) Nack(d Delivery, cause error, permanent bool) error {
	q, g := c.q, c.group
	now := time.Now()
	text := reasonText(cause)
	q.mu.Lock()
	if d.group != g || !g.current(&d) {
		q.mu.Unlock()
		return fmt.Errorf("%w: message %d", ErrStale, d.ID)
	}
	it := d.item
	g.takeBack(it, leaving)
	count := uint32(1)
	if it.fail != nil {
		count += it.fail.count
	}
	fail := it.fail.add(count, now.UnixNano(), text)
	dies := permanent || int(count) >= q.cfg.MaxAttempts
	if dies && len(q.dead) >= q.cfg.MaxDead {
		dies = false
		count = uint32(max(int(count), len(q.cfg.Levels))) // the last level
		if q.counts.refusedDead++; q.counts.refusedDead == 1 {
			q.cfg.Logger.Error("there are too many dead letters; failing messages are tried again; replay or drop some",
				"dead", len(q.dead))
		}
	}
	q.mu.Unlock()

	q.staging.Lock()
	var err error
	if dies {
		_, err = q.stage([]record{c.letter(d, fail, permanent)}, func(err error) {
			if err == nil {
				wake(q.buried)
			}
		})
	} else {
		due := now.Add(q.cfg.level(count)).UnixNano()
		err = q.stageEarly(&retryRecord{g.id, it.pos, fail.count, now.UnixNano(), due, text}, nil)
	}
	q.staging.Unlock()
	if err != nil {
		c.restore(it)
	}
	return err
}

func (c *Consumer) letter(d Delivery, fail *failure, permanent bool) *deadRecord {
	reason := Attempts
	if permanent {
		reason = Permanent
	}
	return &deadRecord{
		group: c.group.id, reason: reason, at: fail.lastAt, topicName: d.Topic, groupName: d.Group, failure: *fail,
		message: message{
			id: d.ID, pos: d.Position, time: d.Published.UnixNano(), key: d.Key, origin: d.Origin, body: d.Body,
		},
	}
}

// reasonText returns the text of an error, cut to the stored length.
func reasonText(err error) string {
	if err == nil {
		return ""
	}
	s := err.Error()
	if len(s) <= maxReason {
		return s
	}
	n := maxReason - len("…")
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// Close ends Fetches of the consumer and returns its deliveries to the group, which does
// not count as a failure. Closing twice is allowed.
func (c *Consumer) Close() {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	if c.ended {
		return
	}
	c.ended = true
	close(c.closed)
	for it := c.group.oldest; it != nil; {
		next := it.newer
		if it.owner == c {
			c.group.release(it)
		}
		it = next
	}
}
