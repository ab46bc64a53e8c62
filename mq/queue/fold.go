package queue

import (
	"fmt"
	"maps"
	"slices"
)

// letter is the part of a dead letter in memory, about 150 bytes; the rest is in the log.
type letter struct {
	id, seq uint64
	at      int64
	size    uint32
	hash    uint32
	group   uint32
	topic   string // shares memory with the topic's name
	name    string // name of the group
	reason  Reason
	// busy means that a record that ends or replaces the letter is being written.
	busy bool
}

// published is a remembered deduplication key.
type published struct {
	topic uint32
	key   string
	seq   uint64
	time  int64
}

// stretch is a part of the log, for retention by age and size.
type stretch struct {
	end   uint64 // the sequence behind it
	bytes int64
	last  int64 // when its last message was published
}

// state is the fold of the records below applied. Queue.mu guards all of it.
type state struct {
	applied   uint64
	lastTopic uint32
	lastGroup uint32
	alarmed   uint64 // the last dead letter that OnDead was called for
	topics    map[uint32]*topic
	groups    map[uint32]*group
	dead      map[uint64]*letter
	deadIDs   []uint64 // ascending; may contain removed ones
	past      []stretch
}

func newState() state {
	return state{topics: map[uint32]*topic{}, groups: map[uint32]*group{}, dead: map[uint64]*letter{}}
}

func (m *message) fold(q *Queue, seq uint64) error {
	t := q.topics[m.topic]
	if t == nil {
		return fmt.Errorf("message %d is of the unknown topic %d: %w", seq, m.topic, errShape)
	}
	if m.pos < t.index.next {
		return nil // a replay that started slightly too early
	}
	if err := t.index.add(m.pos, entry{seq, uint32(m.size), hashKey(m.key), m.due}); err != nil {
		return err
	}
	for _, g := range t.groups {
		g.signal()
	}
	if t.tails > 0 {
		close(t.arrived)
		t.arrived = make(chan struct{})
	}
	return nil
}

// apply folds a record at the sequence seq with a body of size bytes. mu must be held.
func (q *Queue) apply(r record, seq uint64, size int) error {
	if n := len(q.past); n == 0 || q.past[n-1].bytes >= q.cfg.Log.SegmentBytes/4 {
		q.past = append(q.past, stretch{})
	}
	s := &q.past[len(q.past)-1]
	s.end = max(s.end, seq+1)
	s.bytes += int64(size+frameBytes) &^ 7
	if m, ok := r.(*message); ok {
		s.last = max(s.last, m.time)
	}
	return r.fold(q, seq)
}

// frameBytes is the largest size of a record in the log without its body.
const frameBytes = 31

func (r *topicRecord) fold(q *Queue, seq uint64) error {
	if q.topics[r.id] == nil {
		q.addTopic(r.id, r.name, seq)
	}
	return nil
}

// addTopic adds an empty topic. mu must be held.
func (q *Queue) addTopic(id uint32, name string, seq uint64) *topic {
	t := q.newTopic(id, name, seq)
	q.topics[id] = t
	q.lastTopic = max(q.lastTopic, id)
	return t
}

func (q *Queue) newTopic(id uint32, name string, seq uint64) *topic {
	t := &topic{id: id, name: name, seq: seq, arrived: make(chan struct{})}
	t.index = index{dir: q.indexDir(), topic: id, log: q.log, warn: q.cfg.Logger.Warn}
	return t
}

func (r *groupRecord) fold(q *Queue, seq uint64) error {
	t := q.topics[r.topic]
	if t == nil {
		return fmt.Errorf("group %d is of the unknown topic %d: %w", r.id, r.topic, errShape)
	}
	if q.groups[r.id] != nil {
		return nil
	}
	g := q.newGroup(r.id, r.name, t, seq, max(r.start, t.base))
	g.live = q.live
	q.addGroup(g)
	return nil
}

func (q *Queue) addGroup(g *group) {
	q.groups[g.id] = g
	q.lastGroup = max(q.lastGroup, g.id)
	g.topic.groups = append(g.topic.groups, g)
}

func (r *ackRecord) fold(q *Queue, _ uint64) error {
	g := q.groups[r.group]
	if g == nil {
		return nil // the group was removed
	}
	for _, s := range r.spans {
		if err := g.reach(s.to + 1); err != nil {
			return err
		}
		for pos := s.from; pos <= min(s.to, g.cursor); pos++ {
			if it := g.pending[pos]; it != nil {
				g.remove(it)
				g.done++
			}
		}
	}
	return nil
}

func (r *retryRecord) fold(q *Queue, _ uint64) error {
	g := q.groups[r.group]
	if g == nil {
		return nil
	}
	if err := g.reach(r.pos + 1); err != nil {
		return err
	}
	it := g.pending[r.pos]
	if it == nil {
		return nil
	}
	it.fail = it.fail.add(r.failures, r.time, r.err)
	it.due = r.due
	g.retried++
	if g.live {
		g.set(it, retrying)
		g.timers.push(timer{it.due, it.pos})
		g.signal()
	}
	return nil
}

func (r *deadRecord) fold(q *Queue, seq uint64) error {
	id := r.id
	if id == 0 {
		id = seq
		if g := q.groups[r.group]; g != nil {
			if err := g.reach(r.message.pos + 1); err != nil {
				return err
			}
			if it := g.pending[r.message.pos]; it != nil {
				g.remove(it)
			}
		}
	} else if old := q.dead[id]; old != nil && old.seq >= seq {
		return nil
	}
	l := &letter{
		id: id, seq: seq, at: r.at, size: uint32(len(r.append(nil))), hash: hashKey(r.message.key),
		group: r.group, topic: r.topicName, name: r.groupName, reason: r.reason,
	}
	if g := q.groups[r.group]; g != nil {
		l.topic, l.name = g.topic.name, g.name // so that many letters share one string
	}
	q.bury(l)
	return nil
}

// bury adds or replaces a dead letter. mu must be held.
func (q *Queue) bury(l *letter) {
	if q.dead[l.id] == nil {
		if n := len(q.deadIDs); n == 0 || q.deadIDs[n-1] < l.id {
			q.deadIDs = append(q.deadIDs, l.id)
		} else if i, found := slices.BinarySearch(q.deadIDs, l.id); !found {
			q.deadIDs = slices.Insert(q.deadIDs, i, l.id)
		}
	}
	q.dead[l.id] = l
}

// exhume removes a dead letter. mu must be held.
func (q *Queue) exhume(id uint64) {
	delete(q.dead, id)
	if len(q.deadIDs) > 2*len(q.dead)+64 {
		q.deadIDs = slices.Sorted(maps.Keys(q.dead))
	}
}

func (r *putRecord) fold(q *Queue, seq uint64) error {
	g := q.groups[r.group]
	if g == nil {
		return nil // the group was removed a moment ago: the letter stays
	}
	if r.dead != 0 {
		if q.dead[r.dead] == nil {
			return nil
		}
		q.exhume(r.dead)
	}
	if err := g.reach(r.message.pos + 1); err != nil {
		return err
	}
	it := g.pending[r.message.pos]
	if r.dead == 0 {
		if it != nil {
			it.seq, it.size, it.copied = seq, uint32(r.message.size), true
		}
		return nil
	}
	if it != nil {
		return nil
	}
	it = &item{pos: r.message.pos, seq: seq, size: uint32(r.message.size), hash: hashKey(r.message.key), copied: true}
	g.add(it)
	if g.live {
		g.admit(it, 0)
		g.signal()
	}
	return nil
}

func (r *dropRecord) fold(q *Queue, _ uint64) error {
	for _, id := range r.ids {
		q.exhume(id)
	}
	return nil
}

func (r *alarmedRecord) fold(q *Queue, _ uint64) error {
	q.alarmed = max(q.alarmed, r.id)
	return nil
}

func (r *lostRecord) fold(q *Queue, _ uint64) error {
	t := q.topics[r.topic]
	if t == nil {
		return nil
	}
	if r.group == 0 {
		t.base = max(t.base, min(r.to, t.index.next))
		t.lost += r.count
		return nil
	}
	g := q.groups[r.group]
	if g == nil || r.to <= g.cursor {
		return nil
	}
	g.cursor = min(r.to, t.index.next)
	g.lost += r.count
	return nil
}

func (r *forgetRecord) fold(q *Queue, _ uint64) error {
	g := q.groups[r.group]
	if g == nil {
		return nil
	}
	delete(q.groups, r.group)
	g.topic.groups = slices.DeleteFunc(g.topic.groups, func(o *group) bool { return o == g })
	g.gone = true
	g.signal()
	return nil
}

func (r *checkpointRecord) fold(*Queue, uint64) error { return nil }
