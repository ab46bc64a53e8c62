package queue

import "time"

// dedupKey is a deduplication key of a topic.
type dedupKey struct {
	topic uint32
	key   string
}

// dedup holds the most recently published keys. Guarded by Queue.staging.
type dedup struct {
	window time.Duration
	limit  int
	known  map[dedupKey]published
	order  []published // ascending, from head on
	head   int
}

func newDedup(window time.Duration, limit int) dedup {
	return dedup{window: window, limit: limit, known: map[dedupKey]published{}}
}

// find returns the sequence of the message that was published with the key within the
// window.
func (d *dedup) find(topic uint32, key string, now int64) (uint64, bool) {
	p, ok := d.known[dedupKey{topic, key}]
	return p.seq, ok && now-p.time < int64(d.window)
}

func (d *dedup) add(p published) {
	if d.known[dedupKey{p.topic, p.key}].seq >= p.seq {
		return // a replay that started slightly too early
	}
	d.known[dedupKey{p.topic, p.key}] = p
	d.order = append(d.order, p)
}

// undo removes the last n keys added, none of which was known within the window.
func (d *dedup) undo(n int) {
	for range n {
		p := d.order[len(d.order)-1]
		d.order = d.order[:len(d.order)-1]
		delete(d.known, dedupKey{p.topic, p.key})
	}
}

// expire removes keys outside the window and above the limit.
func (d *dedup) expire(now int64) {
	for d.head < len(d.order) {
		p := d.order[d.head]
		if len(d.order)-d.head <= d.limit && now-p.time < int64(d.window) {
			break
		}
		if k := (dedupKey{p.topic, p.key}); d.known[k].seq == p.seq {
			delete(d.known, k)
		}
		d.order[d.head] = published{}
		d.head++
	}
	if d.head > len(d.order)/2 {
		d.order = append(d.order[:0], d.order[d.head:]...)
		d.head = 0
	}
}
