package queue

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/wheelworkhq/wheelwork/mq"
)

// Message is a message as the producer passes it.
type Message struct {
	// Topic is created if it does not exist: 1 to 255 bytes of UTF-8.
	Topic string
	// Key orders messages: a group gets messages of one key one after the other. Up to
	// 1024 bytes; empty for none.
	Key string
	// Dedup makes publishing idempotent: within Config.DedupWindow a second message of
	// the topic with the same Dedup is not published. Up to 1024 bytes; empty for none.
	Dedup string
	// Origin names the source of the message, for operators who read dead letters. Up to
	// 1024 bytes.
	Origin string
	Body   []byte
	// After or At delays the delivery, by a duration or to a wall-clock time. At most one
	// of them may be set. A time in the past is no delay. A delayed message joins the
	// order of its key when it is due.
	After time.Duration
	At    time.Time
}

// Receipt is the result of publishing a message.
type Receipt struct {
	// ID is the number of the message, ascending in the order of publishing.
	ID uint64
	// Duplicate means that the message was published earlier, with this ID.
	Duplicate bool
}

// due returns the time from which m may be delivered, 0 for at once.
func (m *Message) due(now time.Time) int64 {
	at := m.At
	if m.After > 0 {
		at = now.Add(m.After)
	}
	if !at.After(now) {
		return 0
	}
	return at.UnixNano()
}

func (m *Message) validate(largest int) error {
	switch {
	case m.Topic == "" || len(m.Topic) > maxName || !utf8.ValidString(m.Topic):
		return fmt.Errorf("%w: the topic %.40q must have 1 to %d bytes of UTF-8", ErrInvalid, m.Topic, maxName)
	case len(m.Key) > maxKey || len(m.Dedup) > maxKey || len(m.Origin) > maxKey:
		return fmt.Errorf("%w: key, deduplication key and origin may have up to %d bytes each", ErrInvalid, maxKey)
	case m.After != 0 && !m.At.IsZero():
		return fmt.Errorf("%w: After and At are both set, set one of them", ErrInvalid)
	case !m.At.IsZero() && m.At.Year() > 2250:
		return fmt.Errorf("%w: At is in the year %d, it must be before 2251", ErrInvalid, m.At.Year())
	case len(m.Body) > largest:
		return fmt.Errorf("%w: the body has %d bytes, the limit is %d", mq.ErrTooLarge, len(m.Body), largest)
	}
	return nil
}

// MaxBody returns the largest body that a message may have, in bytes.
func (q *Queue) MaxBody() int { return q.cfg.Log.MaxRecordBytes - overhead }

// Publish appends messages as one unit: after a crash all of them are there or none. It
// does not wait for the disk. It calls done exactly once: when they are durable, with a
// receipt for each, or with the error that made the log read-only. After that error the
// next Open may still find them. done runs on the log's goroutine; it must be quick and
// must not call the queue.
//
// An error from Publish itself means that nothing was published and that done is not
// called: ErrFull, ErrClosed, ErrInvalid, mq.ErrFull, mq.ErrTooLarge or mq.ErrReadOnly.
// Publish copies bodies before it returns.
func (q *Queue) Publish(msgs []Message, done func([]Receipt, error)) error {
	for i := range msgs {
		if err := msgs[i].validate(q.MaxBody()); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	if q.disk.level.Load() >= levelRefuse {
		return fmt.Errorf("%w (%d %% are in use, the limit is %d %%)", ErrFull, q.disk.used.Load(), q.cfg.Marks.Refuse)
	}
	q.staging.Lock()
	defer q.staging.Unlock()
	if q.closed {
		return ErrClosed
	}
	b := batch{q: q, now: time.Now(), next: q.log.Next(), receipts: make([]Receipt, len(msgs))}
	for i := range msgs {
		b.receipts[i] = b.add(&msgs[i])
	}
	// Without a new message this is a barrier: a duplicate is acknowledged when the first
	// message is durable.
	_, err := q.stageRaw(b.recs, b.raw, func(err error) {
		if err != nil {
			done(nil, err)
			return
		}
		done(b.receipts, nil)
	})
	if err != nil {
		b.undo()
		return err
	}
	q.dedup.expire(b.now.UnixNano())
	for _, t := range b.topics {
		q.names[t.name] = t
	}
	q.mu.Lock()
	q.counts.published += uint64(len(msgs)) - b.duplicates
	q.counts.duplicates += b.duplicates
	q.mu.Unlock()
	return nil
}

// PublishSync is a Publish that waits for the disk.
func (q *Queue) PublishSync(msgs ...Message) ([]Receipt, error) {
	type result struct {
		receipts []Receipt
		err      error
	}
	done := make(chan result, 1)
	if err := q.Publish(msgs, func(r []Receipt, err error) { done <- result{r, err} }); err != nil {
		return nil, err
	}
	r := <-done
	return r.receipts, r.err
}

// batch is a unit of messages that is assembled under Queue.staging.
type batch struct {
	q          *Queue
	now        time.Time
	next       uint64 // sequence of the next record
	recs       []record
	raw        []mq.Record
	receipts   []Receipt
	topics     []*topic // created by this batch
	placed     []*topic // topic of each new message
	keys       int      // number of keys added to dedup
	duplicates uint64
}

func (b *batch) add(m *Message) Receipt {
	t := b.topic(m.Topic)
	now := b.now.UnixNano()
	if m.Dedup != "" {
		if id, ok := b.q.dedup.find(t.id, m.Dedup, now); ok {
			b.duplicates++
			return Receipt{ID: id, Duplicate: true}
		}
		b.q.dedup.add(published{t.id, m.Dedup, b.next, now})
		b.keys++
	}
	r := &message{
		topic: t.id, pos: t.staged, time: now, due: m.due(b.now), key: m.Key, dedup: m.Dedup, origin: m.Origin, body: m.Body,
	}
	t.staged++
	b.placed = append(b.placed, t)
	id := b.put(r)
	r.size, r.body = len(b.raw[len(b.raw)-1].Body), nil // the caller owns the body
	return Receipt{ID: id}
}

// topic returns the topic with a name and creates it if necessary.
func (b *batch) topic(name string) *topic {
	if t := b.q.names[name]; t != nil {
		return t
	}
	for _, t := range b.topics {
		if t.name == name {
			return t
		}
	}
	b.q.mu.Lock()
	b.q.lastTopic++
	t := b.q.newTopic(b.q.lastTopic, name, b.next)
	b.q.mu.Unlock()
	b.topics = append(b.topics, t)
	b.put(&newTopicRecord{topicRecord{t.id, name}, t})
	return t
}

func (b *batch) put(r record) uint64 {
	b.recs = append(b.recs, r)
	b.raw = append(b.raw, encode(r))
	b.next++
	return b.next - 1
}

// undo reverts add. Queue.staging has been held since, so nothing else was added.
func (b *batch) undo() {
	for _, t := range b.placed {
		t.staged--
	}
	b.q.dedup.undo(b.keys)
}

// newTopicRecord is a topicRecord whose topic producers already use.
type newTopicRecord struct {
	topicRecord
	topic *topic
}

func (r *newTopicRecord) fold(q *Queue, _ uint64) error {
	q.topics[r.id] = r.topic
	return nil
}
