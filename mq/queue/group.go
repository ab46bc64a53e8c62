package queue

import (
	"slices"
	"time"
)

// topic is a sequence of messages. Its id and name never change; staged belongs to Queue.staging, the rest to Queue.mu.
type topic struct {
	id     uint32
	name   string
	seq    uint64 // of the record that made it
	staged uint64 // the position of the next message to be published

	base   uint64 // the first position that the log still has
	lost   uint64 // messages that retention took and that no group was there to consume
	index  index
	groups []*group
	// arrived is closed and replaced when a message arrives and somebody waits for one with Tail.
	arrived chan struct{}
	tails   int
}

// status is where a message is on its way through a group.
type status uint8

const (
	idle     status = iota // found by a replay of the log, which does not look at time or order
	delayed                // not due yet
	retrying               // failed and not due yet; holds back its key
	parked                 // behind another message of its key
	ready                  // to be delivered
	inFlight               // with a consumer
	leaving                // an acknowledgement, a retry or a dead letter is being written
	statuses
)

// item is a message that a group has looked at and is not done with. It takes about 150 bytes with its place in the map.
type item struct {
	pos  uint64
	seq  uint64 // of the record with the message: the published one or a copy
	due  int64  // Unix nanoseconds of the next delivery, 0 if at once
	fail *failure
	size uint32
	hash uint32
	// turn counts the deliveries. What is done to an older one has no effect.
	turn   uint32
	status status
	copied bool  // seq is that of a putRecord
	behind *item // the next of its key

	// Set while inFlight. Deliveries are linked in the order of their deadlines.
	owner        *Consumer
	deadline     time.Time
	older, newer *item
}

// group is what one group of consumers has done of a topic. The positions below cursor that are not in pending are
// done; those from cursor on were not looked at. Everything but id, name and topic is guarded by Queue.mu.
//
// Of the messages of one key with a hash other than 0, only the first can be ready, inFlight, leaving or retrying;
// the others are parked behind it, or delayed and not yet in the row.
type group struct {
	id    uint32
	name  string
	topic *topic
	seq   uint64 // of the record that made it
	limit int    // of pending

	cursor  uint64
	pending map[uint64]*item
	lost    uint64
	done    uint64 // acknowledged since Open
	retried uint64 // failed deliveries since Open

	live   bool             // the log was replayed: time and order count
	gone   bool             // removed
	row    map[uint32]*item // by hash: the last of the row
	timers timers           // of the delayed and retrying
	ready  timers           // of the ready, by position
	count  [statuses]int
	oldest *item // of the deliveries
	newest *item
	near   block

	wake    chan struct{} // closed and replaced when there is something for those who wait
	waiters int
}

func (q *Queue) newGroup(id uint32, name string, t *topic, seq, start uint64) *group {
	return &group{
		id: id, name: name, topic: t, seq: seq, cursor: start, limit: q.cfg.MaxPending,
		pending: map[uint64]*item{}, row: map[uint32]*item{}, wake: make(chan struct{}),
	}
}

// signal wakes those who wait in Fetch.
func (g *group) signal() {
	if g.waiters > 0 {
		close(g.wake)
		g.wake = make(chan struct{})
	}
}

func (g *group) set(it *item, s status) {
	g.count[it.status]--
	it.status = s
	g.count[s]++
}

// look steps over the message at the cursor. It returns nil when the log does not have it any more.
func (g *group) look() (*item, error) {
	e, err := g.topic.index.at(g.cursor, &g.near)
	if err != nil {
		return nil, err
	}
	pos := g.cursor
	g.cursor++
	if e.seq == 0 {
		return nil, nil
	}
	it := &item{pos: pos, seq: e.seq, due: e.due, size: e.size, hash: e.hash}
	g.add(it)
	return it, nil
}

func (g *group) add(it *item) {
	g.pending[it.pos] = it
	g.count[it.status]++
}

// reach looks at everything below end, as a replay does on the way to a record that speaks of it.
func (g *group) reach(end uint64) error {
	for g.cursor < min(end, g.topic.index.next) {
		if _, err := g.look(); err != nil {
			return err
		}
	}
	return nil
}

// start begins to deliver after a replay. A message that failed comes first of its key, as it was before.
func (g *group) start(now int64) {
	g.live = true
	all := make([]*item, 0, len(g.pending))
	for _, it := range g.pending {
		all = append(all, it)
	}
	slices.SortFunc(all, func(a, b *item) int {
		switch {
		case (a.fail != nil) != (b.fail != nil):
			if a.fail != nil {
				return -1
			}
			return 1
		case a.pos < b.pos:
			return -1
		}
		return 1
	})
	for _, it := range all {
		g.admit(it, now)
	}
}

// admit finds the place of a message that is with nobody: on the timer, in its row, or ready.
func (g *group) admit(it *item, now int64) {
	if it.due > now && it.fail == nil {
		g.set(it, delayed)
		g.timers.push(timer{it.due, it.pos})
		return
	}
	if !g.line(it) {
		return
	}
	if it.due > now {
		g.set(it, retrying)
		g.timers.push(timer{it.due, it.pos})
		return
	}
	g.offer(it)
}

// line puts a message into the row of its key and reports whether it is the first.
func (g *group) line(it *item) bool {
	if it.hash == 0 {
		return true
	}
	last := g.row[it.hash]
	g.row[it.hash] = it
	if last == nil {
		return true
	}
	last.behind = it
	g.set(it, parked)
	return false
}

func (g *group) offer(it *item) {
	g.set(it, ready)
	g.ready.push(timer{pos: it.pos})
}

// fire makes ready what is due.
func (g *group) fire(now int64) {
	for len(g.timers) > 0 && g.timers[0].due <= now {
		it := g.pending[g.timers.pop().pos]
		if it.status == retrying || g.line(it) {
			g.offer(it)
		}
	}
}

// take picks up to most messages with up to bytes of them for a consumer. The first one is always within bytes.
func (g *group) take(c *Consumer, now time.Time, most, bytes int) ([]*item, error) {
	g.fire(now.UnixNano())
	var out []*item
	for len(out) < most && len(g.ready) > 0 {
		it := g.pending[g.ready[0].pos]
		if bytes -= int(it.size); bytes < 0 && len(out) > 0 {
			return out, nil
		}
		g.ready.pop()
		out = append(out, it)
		g.hand(it, c, now)
	}
	for len(out) < most && bytes > 0 && g.cursor < g.topic.index.next && len(g.pending) < g.limit {
		it, err := g.look()
		if err != nil {
			return out, err
		}
		switch {
		case it == nil:
		case it.due > now.UnixNano():
			g.admit(it, now.UnixNano())
		case g.line(it):
			bytes -= int(it.size)
			out = append(out, it)
			g.hand(it, c, now)
		}
	}
	return out, nil
}

// hand gives a message to a consumer.
func (g *group) hand(it *item, c *Consumer, now time.Time) {
	g.set(it, inFlight)
	it.turn++
	it.owner = c
	it.deadline = now.Add(c.q.cfg.Visibility)
	it.older, it.newer = g.newest, nil
	if g.newest == nil {
		g.oldest = it
	} else {
		g.newest.newer = it
	}
	g.newest = it
}

// takeBack ends a delivery. The message has the given status then.
func (g *group) takeBack(it *item, s status) {
	if it.older == nil {
		g.oldest = it.newer
	} else {
		it.older.newer = it.newer
	}
	if it.newer == nil {
		g.newest = it.older
	} else {
		it.newer.older = it.older
	}
	it.older, it.newer, it.owner = nil, nil, nil
	g.set(it, s)
}

// current reports whether a delivery is the latest one of its message and still with a consumer.
func (g *group) current(d *Delivery) bool {
	it := d.item
	return !g.gone && it.status == inFlight && it.turn == d.turn
}

// release makes a message that was with a consumer ready again, as if that delivery had not been.
func (g *group) release(it *item) {
	g.takeBack(it, leaving)
	g.offer(it)
	g.signal()
}

// remove is done with a message and lets the next one of its key go on.
func (g *group) remove(it *item) {
	if it.status == inFlight {
		g.takeBack(it, leaving)
	}
	if delete(g.pending, it.pos); len(g.pending) == g.limit-1 {
		g.signal() // there is room to look further
	}
	g.count[it.status]--
	if !g.live || it.hash == 0 {
		return
	}
	next := it.behind
	if next == nil {
		delete(g.row, it.hash)
		return
	}
	it.behind = nil
	g.offer(next)
	g.signal()
}

// low returns the sequence of the first message that the group has not looked at, or end if it has looked at all.
func (g *group) low(end uint64) (uint64, error) {
	for g.cursor < g.topic.index.next {
		e, err := g.topic.index.at(g.cursor, &g.near)
		if err != nil || e.seq != 0 {
			return e.seq, err
		}
		g.cursor++
	}
	return end, nil
}

// waitUntil returns when something will be due or overdue by itself.
func (g *group) waitUntil(visibility time.Duration) (time.Time, bool) {
	var at time.Time
	if len(g.timers) > 0 {
		at = time.Unix(0, g.timers[0].due)
	}
	if visibility > 0 && g.oldest != nil && (at.IsZero() || g.oldest.deadline.Before(at)) {
		at = g.oldest.deadline
	}
	return at, !at.IsZero()
}
