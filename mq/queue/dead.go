package queue

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wheelworkhq/wheelwork/mq"
)

// Reason says why a message became a dead letter.
type Reason uint8

const (
	// Permanent: the consumer reported a permanent failure.
	Permanent Reason = 1
	// Attempts: it failed Config.MaxAttempts times.
	Attempts Reason = 2
)

func (r Reason) String() string {
	switch r {
	case Permanent:
		return "permanent"
	case Attempts:
		return "attempts"
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

// Dead is a dead letter: a message that its group gave up.
type Dead struct {
	ID        uint64 // id of the dead letter, ascending in the order of creation
	MessageID uint64 // as in the Receipt
	Topic     string
	Group     string
	Key       string
	Origin    string // set by the producer
	Body      []byte
	Reason    Reason
	Attempts  int // failed deliveries
	Published time.Time
	Died      time.Time
	// The first and the last failure; texts are cut to 512 bytes.
	FirstError, LastError   string
	FirstFailed, LastFailed time.Time
}

// Filter selects dead letters. A zero field matches all; all other fields must match.
type Filter struct {
	IDs    []uint64
	Topic  string
	Group  string
	Key    string
	Reason Reason
	// From and To bound the time at which a letter became dead, From included.
	From, To time.Time
	// Error is a substring of the first or last error.
	Error string
}

// choosesLetter reports whether l passes the conditions that memory can decide.
func (f *Filter) choosesLetter(l *letter) bool {
	return (f.IDs == nil || slices.Contains(f.IDs, l.id)) &&
		(f.Topic == "" || f.Topic == l.topic) &&
		(f.Group == "" || f.Group == l.name) &&
		(f.Key == "" || hashKey(f.Key) == l.hash) &&
		(f.Reason == 0 || f.Reason == l.reason) &&
		(f.From.IsZero() || l.at >= f.From.UnixNano()) &&
		(f.To.IsZero() || l.at < f.To.UnixNano())
}

// choosesDead decides the other conditions, which need the record.
func (f *Filter) choosesDead(d *Dead) bool {
	return (f.Key == "" || f.Key == d.Key) &&
		(f.Error == "" || strings.Contains(d.FirstError, f.Error) || strings.Contains(d.LastError, f.Error))
}

// lookLimit bounds the number of dead letters that one call of Dead reads.
const lookLimit = 4096

// Dead returns up to limit dead letters that match the filter, oldest first, and the
// token of the next page, which is empty at the end. A page before the end may be shorter
// than limit, and even empty.
func (q *Queue) Dead(f Filter, token string, limit int) ([]Dead, string, error) {
	after := uint64(0)
	if token != "" {
		var err error
		if after, err = strconv.ParseUint(token, 10, 64); err != nil {
			return nil, "", fmt.Errorf("%w: the page token %.40q is not from an earlier page", ErrInvalid, token)
		}
	}
	if limit < 1 {
		return nil, "", fmt.Errorf("%w: the limit is %d, it must be at least 1", ErrInvalid, limit)
	}
	ids, more := q.letters(&f, after, lookLimit)
	var out []Dead
	for i, id := range ids {
		d, err := q.GetDead(id)
		switch {
		case isGone(err):
			continue
		case err != nil:
			return nil, "", err
		}
		if !f.choosesDead(&d) {
			continue
		}
		out = append(out, d)
		if len(out) == limit && (more || i+1 < len(ids)) {
			return out, strconv.FormatUint(id, 10), nil
		}
	}
	if more {
		return out, strconv.FormatUint(ids[len(ids)-1], 10), nil
	}
	return out, "", nil
}

// letters returns up to limit ids above after that f may match, and whether there are
// more.
func (q *Queue) letters(f *Filter, after uint64, limit int) (ids []uint64, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i, _ := slices.BinarySearch(q.deadIDs, after+1)
	for _, id := range q.deadIDs[i:] {
		if l := q.dead[id]; l != nil && f.choosesLetter(l) {
			if len(ids) == limit {
				return ids, true
			}
			ids = append(ids, id)
		}
	}
	return ids, false
}

// GetDead returns a dead letter, or ErrNotFound.
func (q *Queue) GetDead(id uint64) (Dead, error) {
	r, err := q.deadRecord(id)
	if err != nil {
		return Dead{}, err
	}
	return Dead{
		ID: id, MessageID: r.message.id, Topic: r.topicName, Group: r.groupName, Key: r.message.key,
		Origin: r.message.origin, Body: r.message.body, Reason: r.reason, Attempts: int(r.failure.count),
		Published: time.Unix(0, r.message.time), Died: time.Unix(0, r.at),
		FirstError: r.failure.firstErr, LastError: r.failure.lastErr,
		FirstFailed: time.Unix(0, r.failure.firstAt), LastFailed: time.Unix(0, r.failure.lastAt),
	}, nil
}

// deadRecord reads a dead letter. Its body may be shared and must not be changed.
func (q *Queue) deadRecord(id uint64) (*deadRecord, error) {
	group := uint32(0)
	rec, err := q.fetchMoving(func() (uint64, bool) {
		l := q.dead[id]
		if l == nil {
			return 0, false
		}
		group = l.group
		return l.seq, true
	})
	if err != nil {
		return nil, fmt.Errorf("%w: dead letter %d", err, id)
	}
	r, err := decode(rec.kind, group, rec.body)
	if err != nil {
		return nil, fmt.Errorf("queue: dead letter %d: %w", id, err)
	}
	d, ok := r.(*deadRecord)
	if !ok {
		return nil, fmt.Errorf("queue: dead letter %d: %w", id, errShape)
	}
	return d, nil
}

// claim marks a dead letter as being changed. It returns ErrNotFound or ErrBusy if it
// cannot.
func (q *Queue) claim(id uint64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.dead[id]
	switch {
	case l == nil:
		return fmt.Errorf("%w: dead letter %d", ErrNotFound, id)
	case l.busy:
		return fmt.Errorf("%w: %d", ErrBusy, id)
	}
	l.busy = true
	return nil
}

func (q *Queue) unclaim(ids ...uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, id := range ids {
		if l := q.dead[id]; l != nil {
			l.busy = false
		}
	}
}

// Edit replaces the body of a dead letter and waits until that is durable.
func (q *Queue) Edit(id uint64, body []byte) error {
	if len(body) > q.MaxBody() {
		return fmt.Errorf("%w: the body has %d bytes, the limit is %d", mq.ErrTooLarge, len(body), q.MaxBody())
	}
	if err := q.claim(id); err != nil {
		return err
	}
	defer q.unclaim(id)
	r, err := q.deadRecord(id)
	if err != nil {
		return err
	}
	r.id, r.message.body = id, body
	_, err = q.write(r)
	return err
}

// Replay returns the dead letters that match the filter to their groups, and returns
// their number. One record ends a letter and returns its message, so a crash neither
// loses nor doubles it. Only the letter's group gets the message, with attempts counted
// from 0, behind messages of its key that are already due. The letter of a removed group
// stays, and the error then wraps ErrNotFound. Replay waits until all is durable. The
// counted letters are replayed even if there is an error.
func (q *Queue) Replay(f Filter) (int, error) {
	var orphans int
	n, err := q.change(&f, func(r *deadRecord) record {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.groups[r.group] == nil {
			orphans++
			return nil
		}
		return &putRecord{r.group, r.id, r.message}
	})
	if err == nil && orphans > 0 {
		err = fmt.Errorf("%w: the group of %d dead letters was removed; drop them, or publish them again", ErrNotFound, orphans)
	}
	return n, err
}

// Drop permanently removes the dead letters that match the filter, and returns their
// number. It waits until that is durable. The counted letters are removed even if there
// is an error.
func (q *Queue) Drop(f Filter) (int, error) {
	return q.change(&f, func(r *deadRecord) record { return &dropRecord{[]uint64{r.id}} })
}

// changeRecords bounds the number of dead letters that change in one unit.
const changeRecords = 256

// unitBytes bounds a unit of several records that the queue itself writes.
func (q *Queue) unitBytes() int { return int(min(1<<20, q.cfg.Log.SegmentBytes/4)) }

// change ends dead letters, each with the record that end returns. It skips a letter if
// end returns nil, or if another call is changing it.
func (q *Queue) change(f *Filter, end func(*deadRecord) record) (int, error) {
	total, after := 0, uint64(0)
	for {
		ids, more := q.letters(f, after, changeRecords)
		n, err := q.changeSome(f, ids, end)
		total += n
		if err != nil || !more {
			return total, err
		}
		after = ids[len(ids)-1]
	}
}

func (q *Queue) changeSome(f *Filter, ids []uint64, end func(*deadRecord) record) (int, error) {
	total, bytes := 0, 0
	var unit []record
	var claimed []uint64
	flush := func() error {
		defer func() { unit, claimed, bytes = nil, nil, 0 }()
		defer q.unclaim(claimed...)
		if len(unit) == 0 {
			return nil
		}
		_, err := q.write(unit...)
		if err == nil {
			total += len(unit)
		}
		return err
	}
	for _, id := range ids {
		if q.claim(id) != nil {
			continue
		}
		claimed = append(claimed, id)
		r, err := q.deadRecord(id)
		if err != nil {
			q.unclaim(claimed...)
			return total, err
		}
		r.id = id
		d := Dead{Key: r.message.key, FirstError: r.failure.firstErr, LastError: r.failure.lastErr}
		if !f.choosesDead(&d) {
			continue
		}
		rec := end(r)
		if rec == nil {
			continue
		}
		size := len(rec.append(nil)) + frameBytes
		if bytes > 0 && bytes+size > q.unitBytes() {
			claimed = claimed[:len(claimed)-1]
			if err := flush(); err != nil {
				q.unclaim(id)
				return total, err
			}
			claimed = append(claimed, id)
		}
		unit = append(unit, rec)
		bytes += size
	}
	return total, flush()
}
