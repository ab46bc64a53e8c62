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

// View is a message as Peek and Tail show it.
type View struct {
	ID        uint64
	Position  uint64
	Topic     string
	Key       string
	Dedup     string
	Origin    string
	Body      []byte
	Published time.Time
	Due       time.Time // zero if at once
}

// Peek returns up to limit messages of a topic from a position on, without consuming them, whether or not somebody
// has. Positions that are no longer there are left out. It returns ErrNotFound when there is no such topic.
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

// Tail calls fn for every message of a topic from a position on as they are published, without consuming them, until
// the context ends, fn returns an error, which it returns, or the queue is closed. The topic must exist.
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

// Stats is what a queue holds, and what it did since Open.
type Stats struct {
	Topics     []TopicStats // by name
	Published  uint64       // messages since Open
	Duplicates uint64       // messages since Open that were published before
	Dead       int          // dead letters
	Lost       uint64       // messages that retention took from a group or a topic without groups, since the beginning
	Repaired   uint64       // blocks of consume queues that were read from the log again since Open
	DiskUsed   int          // of the file system, in percent; 0 if unknown
	DiskLevel  string       // "ok", "warn", "early" or "refuse"
	Log        mq.Stats
}

// TopicStats is what a topic holds.
type TopicStats struct {
	Name   string
	First  uint64 // position of the oldest message
	Next   uint64 // position of the next message: all that were ever published
	Lost   uint64 // messages that retention took when there was no group
	Groups []GroupStats
}

// GroupStats is what a group has to do. Every message is counted in one of Ready, Delayed, Unacked and Retrying. Messages
// that the group did not look at yet count as ready, also if they are delayed.
type GroupStats struct {
	Name     string
	Ready    uint64 // could be fetched, or waits behind another one of its key
	Delayed  uint64 // not due yet
	Unacked  uint64 // with a consumer
	Retrying uint64 // failed and waits for the next attempt
	Dead     uint64 // dead letters
	Lag      uint64 // messages that are not done: the sum of the four
	Lost     uint64 // messages that retention took, since the beginning
	Acked    uint64 // since Open
	Failed   uint64 // deliveries since Open that were followed by another one
	// Oldest is the age of the oldest message that is not done; 0 if there is none or if it cannot be read.
	Oldest time.Duration
}

// Stats returns what the queue holds.
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
		// A record that is gone or unreadable by now has no age; whoever fetches it gets the error.
		if r, err := q.fetchMoving(func() (uint64, bool) { return seq, true }); err == nil {
			if m, err := r.message(); err == nil {
				s.Topics[at.topic].Groups[at.group].Oldest = max(0, time.Since(time.Unix(0, m.time)))
			}
		}
	}
	return s
}

// stats returns what the group has to do and the sequence of its oldest message, 0 if there is none.
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
