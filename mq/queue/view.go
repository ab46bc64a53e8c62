package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wheelworkhq/wheelwork/mq"
)

// View is a message as Peek and Tail return it.
type View struct {
	ID        uint64
	Position  uint64
	Topic     string
	Key       string
	Dedup     string
	Origin    string
	Body      []byte
	Published time.Time
	Due       time.Time // zero means at once
}

// Peek returns up to limit messages of a topic from a position on, whether or not they
// were consumed. It does not consume them, and skips positions that the log no longer
// has. It returns ErrNotFound if the topic does not exist.
func (q *Queue) Peek(topic string, from uint64, limit int) ([]View, error) {
	var out []View
	var near block
	size := 0
	for len(out) < limit && size < fetchBytes {
		q.mu.Lock()
		t := q.topicNamed(topic)
		if t == nil {
			q.mu.Unlock()
			return nil, fmt.Errorf("%w: topic %q", ErrNotFound, topic)
		}
		from = max(from, t.base)
		if from >= t.index.next {
			q.mu.Unlock()
			break
		}
		e, err := t.index.at(from, &near)
		r, hot := q.recent.get(e.seq)
		q.mu.Unlock()
		from++
		if err == nil && e.seq == 0 {
			continue
		}
		if err == nil && !hot {
			r, err = q.fetch(e.seq)
		}
		if errors.Is(err, mq.ErrTrimmed) {
			continue
		}
		if err != nil {
			return out, err
		}
		m, err := r.message()
		if err != nil {
			return out, err
		}
		v := View{
			ID: m.id, Position: m.pos, Topic: topic, Key: m.key, Dedup: m.dedup, Origin: m.origin,
			Body: slices.Clone(m.body), Published: time.Unix(0, m.time),
		}
		if m.due != 0 {
			v.Due = time.Unix(0, m.due)
		}
		size += len(v.Body)
		out = append(out, v)
	}
	return out, nil
}

func (q *Queue) topicNamed(name string) *topic {
	for _, t := range q.topics {
		if t.name == name {
			return t
		}
	}
	return nil
}

// Tail calls fn for every message of a topic from a position on as they are published,
// without consuming them. It ends when the context ends, when fn returns an error, which
// Tail returns, or when the queue is closed. The topic must exist.
func (q *Queue) Tail(ctx context.Context, topic string, from uint64, fn func(View) error) error {
	for {
		vs, err := q.Peek(topic, from, 100)
		if err != nil {
			return err
		}
		for _, v := range vs {
			if err := fn(v); err != nil {
				return err
			}
			from = v.Position + 1
		}
		if len(vs) > 0 {
			continue
		}
		q.mu.Lock()
		t := q.topicNamed(topic)
		behind := max(from, t.base) < t.index.next
		arrived := t.arrived
		t.tails++
		q.mu.Unlock()
		if !behind {
			select {
			case <-ctx.Done():
			case <-q.stopping:
			case <-arrived:
			}
		}
		q.mu.Lock()
		t.tails--
		q.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-q.stopping:
			return ErrClosed
		default:
		}
	}
}

// Stats describes the contents of a queue and its activity since Open.
type Stats struct {
	Topics     []TopicStats // by name
	Published  uint64       // messages since Open
	Duplicates uint64       // duplicate messages since Open
	Dead       int          // dead letters
	Lost       uint64       // messages that retention took from a group or a topic without groups, in all
	Repaired   uint64       // blocks of consume queues that were rebuilt from the log since Open
	DiskUsed   int          // used part of the file system, in percent; 0 if unknown
	DiskLevel  string       // "ok", "warn", "early" or "refuse"
	Log        mq.Stats
}

// TopicStats describes a topic.
type TopicStats struct {
	Name   string
	First  uint64 // position of the oldest message
	Next   uint64 // position of the next message, which is the number of messages ever published
	Lost   uint64 // messages that retention took while the topic had no group
	Groups []GroupStats
}

// GroupStats describes the remaining work of a group. Every message is counted in one of
// Ready, Delayed, Unacked and Retrying. Messages that the group has not looked at count
// as ready, even if they are delayed.
type GroupStats struct {
	Name     string
	Ready    uint64 // can be fetched, or waits behind another one of its key
	Delayed  uint64 // not due yet
	Unacked  uint64 // with a consumer
	Retrying uint64 // failed and waiting for the next attempt
	Dead     uint64 // dead letters
	Lag      uint64 // unfinished messages: the sum of the four
	Lost     uint64 // messages that retention took, in the life of the group
	Acked    uint64 // since Open
	Failed   uint64 // deliveries since Open after which another one followed
	// Oldest is the age of the oldest unfinished message; 0 if there is none or if it
	// cannot be read.
	Oldest time.Duration
}

// Stats returns the current statistics of the queue.
func (q *Queue) Stats() Stats {
	s := Stats{DiskUsed: int(q.disk.used.Load()), DiskLevel: levelNames[q.disk.level.Load()], Log: q.log.Stats()}
	type oldest struct{ topic, group int }
	ages := map[oldest]uint64{}
	q.mu.Lock()
	s.Published, s.Duplicates, s.Dead = q.counts.published, q.counts.duplicates, len(q.dead)
	dead := map[uint32]uint64{}
	for _, l := range q.dead {
		dead[l.group]++
	}
	all := make([]*topic, 0, len(q.topics))
	for _, t := range q.topics {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b *topic) int { return strings.Compare(a.name, b.name) })
	for i, t := range all {
		ts := TopicStats{Name: t.name, First: t.base, Next: t.index.next, Lost: t.lost}
		s.Lost += t.lost
		s.Repaired += t.index.repaired
		for j, g := range t.groups {
			gs, seq := g.stats()
			gs.Dead = dead[g.id]
			if seq != 0 {
				ages[oldest{i, j}] = seq
			}
			s.Lost += g.lost
			ts.Groups = append(ts.Groups, gs)
		}
		s.Topics = append(s.Topics, ts)
	}
	q.mu.Unlock()
	for at, seq := range ages {
		// A record that is gone or unreadable has no age; a Fetch of it returns the
		// error.
		if r, err := q.fetchMoving(func() (uint64, bool) { return seq, true }); err == nil {
			if m, err := r.message(); err == nil {
				s.Topics[at.topic].Groups[at.group].Oldest = max(0, time.Since(time.Unix(0, m.time)))
			}
		}
	}
	return s
}

// stats returns the statistics of the group and the sequence of its oldest message, 0 for
// none.
func (g *group) stats() (GroupStats, uint64) {
	ahead := g.topic.index.next - g.cursor
	s := GroupStats{
		Name: g.name, Ready: ahead + uint64(g.count[ready]+g.count[parked]+g.count[idle]), Delayed: uint64(g.count[delayed]),
		Unacked: uint64(g.count[inFlight] + g.count[leaving]), Retrying: uint64(g.count[retrying]),
		Lag: ahead + uint64(len(g.pending)), Lost: g.lost, Acked: g.done, Failed: g.retried,
	}
	first, seq := g.cursor, uint64(0)
	for pos, it := range g.pending {
		if pos < first {
			first, seq = pos, it.seq
		}
	}
	if seq == 0 && g.cursor < g.topic.index.next {
		if e, err := g.topic.index.at(g.cursor, &g.near); err == nil {
			seq = e.seq
		}
	}
	return s, seq
}
