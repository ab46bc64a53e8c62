package queue

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/wheelworkhq/wheelwork/mq"
)

// The kinds of records, which are the types of mq records. A number never changes its
// meaning, and the encoding of a kind never changes: a new encoding is a new kind.
const (
	kindMessage    = 1
	kindTopic      = 2
	kindGroup      = 3
	kindAck        = 4
	kindRetry      = 5
	kindDead       = 6
	kindPut        = 7
	kindDrop       = 8
	kindAlarmed    = 9
	kindLost       = 10
	kindForget     = 11
	kindCheckpoint = 12
)

// Limits of texts from producers and operators, in bytes.
const (
	maxName   = 255  // of a topic or group
	maxKey    = 1024 // of a key, a deduplication key or an origin
	maxReason = 512  // of the text of an error; longer texts are cut
)

// record is one change of the state of a queue. The state is the fold of the records.
type record interface {
	kind() uint8
	// queue returns the topic or group of the record, 0 for neither. The frame of the mq
	// record holds it.
	queue() uint32
	append(b []byte) []byte
	// fold applies the record at the sequence seq. mu must be held.
	fold(q *Queue, seq uint64) error
}

// message is a published message.
type message struct {
	topic uint32 // the record's queue; in a copy the group determines it
	// id is the sequence of the record that published the message. In that record itself
	// it is 0, because the sequence is not known when it is encoded.
	id     uint64
	pos    uint64 // position in the topic, dense from 0
	time   int64  // time of publishing
	due    int64  // earliest delivery; 0 means at once
	key    string
	dedup  string
	origin string
	body   []byte
	size   int // bytes of the record, 0 in a copy; not encoded
}

func (m *message) kind() uint8   { return kindMessage }
func (m *message) queue() uint32 { return m.topic }

func (m *message) append(b []byte) []byte {
	b = slices.Grow(b, 48+len(m.key)+len(m.dedup)+len(m.origin)+len(m.body))
	b = binary.AppendUvarint(b, m.id)
	b = binary.AppendUvarint(b, m.pos)
	b = putTime(b, m.time)
	b = binary.AppendUvarint(b, uint64(m.due))
	b = putString(b, m.key)
	b = putString(b, m.dedup)
	b = putString(b, m.origin)
	return putString(b, m.body)
}

// message decodes a message. Its body aliases the input.
func (c *cursor) message() message {
	m := message{
		id: c.uvarint(), pos: c.uvarint(), time: c.time(), due: c.due(),
		key: c.text(maxKey), dedup: c.text(maxKey), origin: c.text(maxKey), body: c.bytes(),
	}
	if m.pos > maxPos {
		c.fail()
	}
	return m
}

// maxPos bounds positions, so that arithmetic on them cannot overflow.
const maxPos = 1 << 56

func (c *cursor) due() int64 {
	v := c.uvarint()
	if v > 1<<63-1 {
		c.fail()
		return 0
	}
	return int64(v)
}

// topicRecord creates a topic.
type topicRecord struct {
	id   uint32
	name string
}

func (r *topicRecord) kind() uint8            { return kindTopic }
func (r *topicRecord) queue() uint32          { return r.id }
func (r *topicRecord) append(b []byte) []byte { return putString(b, r.name) }

// groupRecord creates a group that starts at a position.
type groupRecord struct {
	id    uint32
	topic uint32
	name  string
	start uint64
}

func (r *groupRecord) kind() uint8   { return kindGroup }
func (r *groupRecord) queue() uint32 { return r.id }

func (r *groupRecord) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(r.topic))
	b = putString(b, r.name)
	return binary.AppendUvarint(b, r.start)
}

// span is a range of positions, both ends included.
type span struct{ from, to uint64 }

// ackRecord says that a group is done with the messages at some positions, in ascending
// order.
type ackRecord struct {
	group uint32
	spans []span
}

func (r *ackRecord) kind() uint8   { return kindAck }
func (r *ackRecord) queue() uint32 { return r.group }

func (r *ackRecord) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(r.spans)))
	at := uint64(0)
	for _, s := range r.spans {
		b = binary.AppendUvarint(b, s.from-at)
		b = binary.AppendUvarint(b, s.to-s.from)
		at = s.to + 1
	}
	return b
}

func (c *cursor) spans() []span {
	out := make([]span, 0, c.count(2))
	at := uint64(0)
	for range cap(out) {
		gap, n := c.uvarint(), c.uvarint()
		if gap > maxPos || n > maxPos || at+gap+n > maxPos {
			c.fail()
			return nil
		}
		out = append(out, span{at + gap, at + gap + n})
		at += gap + n + 1
	}
	return out
}

// spansOf returns the positions as ranges. It sorts them.
func spansOf(positions []uint64) []span {
	slices.Sort(positions)
	var out []span
	for _, p := range positions {
		if n := len(out); n > 0 && out[n-1].to+1 == p {
			out[n-1].to = p
			continue
		}
		out = append(out, span{p, p})
	}
	return out
}

// retryRecord says that a delivery failed and when the message is due again. The position
// identifies the message.
type retryRecord struct {
	group    uint32
	pos      uint64
	failures uint32 // including this one
	time     int64  // of the failure
	due      int64
	err      string
}

func (r *retryRecord) kind() uint8   { return kindRetry }
func (r *retryRecord) queue() uint32 { return r.group }

func (r *retryRecord) append(b []byte) []byte {
	b = binary.AppendUvarint(b, r.pos)
	b = binary.AppendUvarint(b, uint64(r.failures))
	b = putTime(b, r.time)
	b = binary.AppendUvarint(b, uint64(r.due))
	return putString(b, r.err)
}

// failure summarises the failed attempts at a message.
type failure struct {
	count             uint32
	firstAt, lastAt   int64
	firstErr, lastErr string
}

func (f *failure) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(f.count))
	b = putTime(b, f.firstAt)
	b = putTime(b, f.lastAt)
	b = putString(b, f.firstErr)
	return putString(b, f.lastErr)
}

func (c *cursor) failure() failure {
	return failure{
		count: c.uint32(), firstAt: c.time(), lastAt: c.time(),
		firstErr: c.text(maxReason), lastErr: c.text(maxReason),
	}
}

// add returns f with one more failure. f may be nil; add does not change it.
func (f *failure) add(count uint32, at int64, err string) *failure {
	next := failure{count: count, firstAt: at, firstErr: err, lastAt: at, lastErr: err}
	if f != nil {
		next.firstAt, next.firstErr = f.firstAt, f.firstErr
	}
	return &next
}

// deadRecord is a complete dead letter with a copy of its message. It ends the message
// for its group. A later deadRecord with the same id replaces an earlier one.
type deadRecord struct {
	group     uint32
	id        uint64 // 0: the sequence of this record
	reason    Reason
	at        int64
	topicName string
	groupName string
	failure   failure
	message   message
}

func (r *deadRecord) kind() uint8   { return kindDead }
func (r *deadRecord) queue() uint32 { return r.group }

func (r *deadRecord) append(b []byte) []byte {
	b = binary.AppendUvarint(b, r.id)
	b = append(b, byte(r.reason))
	b = putTime(b, r.at)
	b = putString(b, r.topicName)
	b = putString(b, r.groupName)
	b = r.failure.append(b)
	return r.message.append(b)
}

func (c *cursor) reason() Reason {
	if len(c.b) == 0 || Reason(c.b[0]) < Permanent || Reason(c.b[0]) > Attempts {
		c.fail()
		return 0
	}
	r := Reason(c.b[0])
	c.b = c.b[1:]
	return r
}

// putRecord is a copy of a message for one group. Its segment is about to be trimmed, or
// it was a dead letter that is replayed.
type putRecord struct {
	group   uint32
	dead    uint64 // the dead letter that this record ends, 0 for none
	message message
}

func (r *putRecord) kind() uint8   { return kindPut }
func (r *putRecord) queue() uint32 { return r.group }

func (r *putRecord) append(b []byte) []byte {
	return r.message.append(binary.AppendUvarint(b, r.dead))
}

// dropRecord removes dead letters.
type dropRecord struct{ ids []uint64 }

func (r *dropRecord) kind() uint8   { return kindDrop }
func (r *dropRecord) queue() uint32 { return 0 }

func (r *dropRecord) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(r.ids)))
	for _, id := range r.ids {
		b = binary.AppendUvarint(b, id)
	}
	return b
}

// alarmedRecord says up to which dead letter OnDead was called.
type alarmedRecord struct{ id uint64 }

func (r *alarmedRecord) kind() uint8            { return kindAlarmed }
func (r *alarmedRecord) queue() uint32          { return 0 }
func (r *alarmedRecord) append(b []byte) []byte { return binary.AppendUvarint(b, r.id) }

// lostRecord says that retention took unconsumed messages from a group, or with group 0
// from a topic without groups.
type lostRecord struct {
	topic uint32
	group uint32
	to    uint64 // position behind the last one
	count uint64
}

func (r *lostRecord) kind() uint8   { return kindLost }
func (r *lostRecord) queue() uint32 { return r.topic }

func (r *lostRecord) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(r.group))
	b = binary.AppendUvarint(b, r.to)
	return binary.AppendUvarint(b, r.count)
}

// forgetRecord removes a group. Its dead letters stay.
type forgetRecord struct{ group uint32 }

func (r *forgetRecord) kind() uint8            { return kindForget }
func (r *forgetRecord) queue() uint32          { return r.group }
func (r *forgetRecord) append(b []byte) []byte { return b }

// checkpointRecord is a piece of the encoded state. With all pieces of one id the state
// can be restored without the log before the state's sequence.
type checkpointRecord struct {
	id    uint64 // the sequence up to which the state includes all records
	index uint32
	count uint32
	piece []byte
}

func (r *checkpointRecord) kind() uint8   { return kindCheckpoint }
func (r *checkpointRecord) queue() uint32 { return 0 }

func (r *checkpointRecord) append(b []byte) []byte {
	b = binary.AppendUvarint(b, r.id)
	b = binary.AppendUvarint(b, uint64(r.index))
	b = binary.AppendUvarint(b, uint64(r.count))
	return putString(b, r.piece)
}

// decode decodes a record. The result aliases body.
func decode(kind uint8, queue uint32, body []byte) (record, error) {
	c := &cursor{b: body}
	var r record
	switch kind {
	case kindMessage:
		m := c.message()
		m.topic, m.size = queue, len(body)
		r = &m
	case kindTopic:
		r = &topicRecord{queue, c.text(maxName)}
	case kindGroup:
		r = &groupRecord{queue, c.uint32(), c.text(maxName), c.position()}
	case kindAck:
		r = &ackRecord{queue, c.spans()}
	case kindRetry:
		r = &retryRecord{queue, c.position(), c.uint32(), c.time(), c.due(), c.text(maxReason)}
	case kindDead:
		r = &deadRecord{
			group: queue, id: c.uvarint(), reason: c.reason(), at: c.time(), topicName: c.text(maxName), groupName: c.text(maxName),
			failure: c.failure(), message: c.message(),
		}
	case kindPut:
		r = &putRecord{queue, c.uvarint(), c.message()}
	case kindDrop:
		d := &dropRecord{ids: make([]uint64, c.count(1))}
		for i := range d.ids {
			d.ids[i] = c.uvarint()
		}
		r = d
	case kindAlarmed:
		r = &alarmedRecord{c.uvarint()}
	case kindLost:
		r = &lostRecord{queue, c.uint32(), c.position(), c.uvarint()}
	case kindForget:
		r = &forgetRecord{queue}
	case kindCheckpoint:
		r = &checkpointRecord{c.uvarint(), c.uint32(), c.uint32(), c.bytes()}
	default:
		return nil, fmt.Errorf("record of the unknown kind %d: the directory was written by a later version", kind)
	}
	if err := c.end(); err != nil {
		return nil, fmt.Errorf("record of kind %d: %w", kind, err)
	}
	return r, nil
}

func (c *cursor) position() uint64 {
	v := c.uvarint()
	if v > maxPos {
		c.fail()
		return 0
	}
	return v
}

// encode returns r in the form that the log takes.
func encode(r record) mq.Record {
	return mq.Record{Queue: r.queue(), Type: r.kind(), Body: r.append(nil)}
}
