package queue

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/wheelworkhq/wheelwork/mq"
)

// raw is the encoded body of a record that contains a message.
type raw struct {
	seq  uint64
	kind uint8
	body []byte // immutable
}

func findRaw(rs []raw, seq uint64) (raw, bool) {
	i, ok := slices.BinarySearchFunc(rs, seq, func(r raw, seq uint64) int {
		switch {
		case r.seq < seq:
			return -1
		case r.seq > seq:
			return 1
		}
		return 0
	})
	if !ok {
		return raw{}, false
	}
	return rs[i], true
}

// recent caches the most recently published messages. Guarded by Queue.mu.
type recent struct {
	limit, bytes int
	all          []raw // ascending, from head on
	head         int
}

func (r *recent) add(seq uint64, body []byte) {
	r.all = append(r.all, raw{seq, kindMessage, body})
	r.bytes += len(body)
	for r.bytes > r.limit {
		r.bytes -= len(r.all[r.head].body)
		r.all[r.head].body = nil
		r.head++
	}
	if r.head > 1024 && r.head > len(r.all)/2 {
		n := copy(r.all, r.all[r.head:])
		clear(r.all[n:])
		r.all, r.head = r.all[:n], 0
	}
}

func (r *recent) get(seq uint64) (raw, bool) { return findRaw(r.all[r.head:], seq) }

// Limits of one read from the log for a message. It also reads the following messages.
const (
	coldBytes  = 1 << 20
	coldRuns   = 8
	coldRecord = 8192
)

// run is a part of the log that was read: all records with messages from one sequence to
// another.
type run struct {
	from, to uint64
	all      []raw
}

// cold caches the most recently read parts of the log, up to 8 of about 1 MiB.
type cold struct {
	mu   sync.Mutex
	runs []run // most recently used last
}

func (c *cold) get(seq uint64) (raw, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.runs) - 1; i >= 0; i-- {
		if r := c.runs[i]; r.from <= seq && seq <= r.to {
			c.runs = append(slices.Delete(c.runs, i, i+1), r)
			return findRaw(r.all, seq)
		}
	}
	return raw{}, false
}

func (c *cold) add(r run) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.runs) == coldRuns {
		c.runs = slices.Delete(c.runs, 0, 1)
	}
	c.runs = append(c.runs, r)
}

// fetch returns the record with a message at seq.
func (q *Queue) fetch(seq uint64) (raw, error) {
	if r, ok := q.cold.get(seq); ok {
		return r, nil
	}
	next := run{from: seq, to: seq}
	bytes := 0
	err := q.read(seq, func(e mq.Entry) error {
		next.to = e.Seq
		switch e.Type {
		case kindMessage, kindDead, kindPut:
			next.all = append(next.all, raw{e.Seq, e.Type, slices.Clone(e.Body)})
			bytes += len(e.Body)
		}
		if bytes >= coldBytes || len(next.all) >= coldRecord {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return raw{}, fmt.Errorf("queue: read message %d: %w", seq, err)
	}
	q.cold.add(next)
	r, ok := findRaw(next.all, seq)
	if !ok {
		return raw{}, fmt.Errorf("queue: read message %d: the record is not a message: %w", seq, errShape)
	}
	return r, nil
}

// fetchMoving reads a record that retention may copy forward meanwhile. where returns its
// present sequence, and false when it is gone.
func (q *Queue) fetchMoving(where func() (uint64, bool)) (raw, error) {
	var tried uint64
	for {
		q.mu.Lock()
		seq, ok := where()
		var r raw
		hot := false
		if ok {
			r, hot = q.recent.get(seq)
		}
		q.mu.Unlock()
		if !ok {
			return raw{}, ErrNotFound
		}
		if hot {
			return r, nil
		}
		r, err := q.fetch(seq)
		if !errors.Is(err, mq.ErrTrimmed) || seq == tried {
			return r, err
		}
		tried = seq
	}
}

// message decodes the message in r, which is an original or a copy.
func (r raw) message() (message, error) {
	c := &cursor{b: r.body}
	switch r.kind {
	case kindMessage:
	case kindPut:
		c.uvarint() // id of the dead letter
	default:
		c.fail()
	}
	m := c.message()
	if err := c.end(); err != nil {
		return message{}, fmt.Errorf("queue: message %d: %w", r.seq, err)
	}
	if r.kind == kindMessage {
		m.id = r.seq
	}
	return m, nil
}
