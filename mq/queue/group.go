package queue

import (
	"slices"
	"time"
)

// topic is a sequence of messages. Its id and name never change. Queue.staging guards
// staged, and Queue.mu the rest.
type topic struct {
	id     uint32
	name   string
	seq    uint64 // of the record that created it
	staged uint64 // position of the next message to be published

	base   uint64 // first position in the log
	lost   uint64 // messages that retention took while the topic had no group
	index  index
	groups []*group
	// arrived is closed and replaced when a message arrives and a Tail waits.
	arrived chan struct{}
	tails   int
}

// status is the state of a message in a group.
type status uint8

const (
	idle     status = iota // read by a replay of the log, which ignores time and order
	delayed                // not due yet
	retrying               // failed and not due yet; holds back its key
	parked                 // behind another message of its key
	ready                  // can be delivered
	inFlight               // with a consumer
	leaving                // a record with its acknowledgement, retry or dead letter is being written
	statuses
)

// item is a pending message of a group. It takes about 150 bytes including its entry in
// the map.
type item struct {
	pos  uint64
	seq  uint64 // of the record with the message: the original or a copy
	due  int64  // Unix nanoseconds of the next delivery, 0 means at once
	fail *failure
	size uint32
	hash uint32
	// turn counts deliveries. Calls about an earlier delivery have no effect.
	turn   uint32
	status status
	copied bool  // seq is the sequence of a putRecord
	behind *item // next item with the same key hash

	// Set while inFlight. The list of deliveries is in the order of deadlines.
	owner        *Consumer
	deadline     time.Time
	older, newer *item
}

// group is the progress of a group of consumers in a topic. Positions below cursor that
// are not in pending are done; the group has not looked at those from cursor on. Queue.mu
// guards all fields but id, name and topic.
//
// Of the messages with the same key hash other than 0, only the first can be ready,
// inFlight, leaving or retrying. The others are parked behind it, or are delayed and not
// in the row yet.
type group struct {
	id    uint32
	name  string
	topic *topic
	seq   uint64 // of the record that created it
	limit int    // bound of len(pending)

	cursor  uint64
	pending map[uint64]*item
	lost    uint64
	done    uint64 // acknowledged since Open
	retried uint64 // failed deliveries since Open

	live   bool             // the replay of the log is over: time and order count
	gone   bool             // removed
	row    map[uint32]*item // last item of each row, by key hash
	timers timers           // of delayed and retrying items
	ready  timers           // of ready items, by position
	count  [statuses]int
	oldest *item // delivery with the earliest deadline
	newest *item
	near   block

	wake    chan struct{} // closed and replaced when waiters may have work
	waiters int
}

func (q *Queue) newGroup(id uint32, name string, t *topic, seq, start uint64) *group {
	return &group{
		id: id, name: name, topic: t, seq: seq, cursor: start, limit: q.cfg.MaxPending,
		pending: map[uint64]*item{}, row: map[uint32]*item{}, wake: make(chan struct{}),
	}
}

// signal wakes the waiters in Fetch.
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

// look reads the entry of the message at the cursor and advances the cursor. It returns
// nil if the log no longer has the message.
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

// reach looks at all messages below end. A replay calls it before a record that refers to
// them.
func (g *group) reach(end uint64) error {
	for g.cursor < min(end, g.topic.index.next) {
		if _, err := g.look(); err != nil {
			return err
		}
	}
	return nil
}

// start begins delivery after a replay. A failed message stays the first of its key.
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

// admit assigns a place to a message without a consumer: on the timer, in its row, or
// ready.
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

// line appends a message to the row of its key and reports whether it is the first.
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

// fire makes due messages ready.
func (g *group) fire(now int64) {
	for len(g.timers) > 0 && g.timers[0].due <= now {
		it := g.pending[g.timers.pop().pos]
		if it.status == retrying || g.line(it) {
			g.offer(it)
		}
	}
}

// take picks up to most messages with up to bytes bytes for a consumer. The first one is
// always taken.
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

// takeBack ends a delivery and sets the status of the message.
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

// current reports whether a delivery is the latest one of its message and still with a
// consumer.
func (g *group) current(d *Delivery) bool {
	it := d.item
	return !g.gone && it.status == inFlight && it.turn == d.turn
}

// release makes a delivered message ready again, as if the delivery had not happened.
func (g *group) release(it *item) {
	g.takeBack(it, leaving)
	g.offer(it)
	g.signal()
}

// remove ends a message and releases the next one of its key.
func (g *group) remove(it *item) {
	if it.status == inFlight {
		g.takeBack(it, leaving)
	}
	if delete(g.pending, it.pos); len(g.pending) == g.limit-1 {
		g.signal() // there is room to look at further messages
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

// low returns the sequence of the first message that the group has not looked at, or end
// if there is none.
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

// waitUntil returns the time at which the next message becomes due or the next delivery
// expires.
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
