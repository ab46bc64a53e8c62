package queue

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/wheelworkhq/wheelwork/mq"
)

// snapshotEvery is the largest age of the snapshot while the state changes.
const snapshotEvery = 5 * time.Second

// rest is the pause of retention after it could free nothing.
const rest = 10 * time.Second

// keep runs the periodic work: disk watermarks, retention, snapshots.
func (q *Queue) keep() {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-q.stopping:
			return
		case <-ticker.C:
			q.tend()
		}
	}
}

func (q *Queue) tend() {
	q.checkDisk()
	if err := q.retain(); err != nil && !errors.Is(err, mq.ErrReadOnly) {
		q.cfg.Logger.Error("old messages were not removed", "error", err)
	}
	q.dropOld()
	q.mu.Lock()
	changed := q.applied != q.keptAt && q.err == nil
	q.mu.Unlock()
	if !changed || time.Since(q.kept) < snapshotEvery {
		return
	}
	if err := q.snapshot(); err != nil {
		q.kept = time.Now() // not every second
		q.cfg.Logger.Warn("the next start will take longer", "error", err)
	}
}

// dropEvery is how often dead letters past their retention are removed.
const dropEvery = time.Minute

// dropOld removes dead letters past their retention.
func (q *Queue) dropOld() {
	if q.cfg.RetainDead == 0 || time.Since(q.dropped) < dropEvery {
		return
	}
	q.dropped = time.Now()
	n, err := q.Drop(Filter{To: q.dropped.Add(-q.cfg.RetainDead)})
	if err != nil && !errors.Is(err, mq.ErrReadOnly) {
		q.cfg.Logger.Error("old dead letters were not removed", "error", err)
	}
	if n > 0 {
		q.cfg.Logger.Info("dead letters past their retention were removed", "count", n, "retention", q.cfg.RetainDead)
	}
}

// checkDisk compares the use of the disk with the watermarks.
func (q *Queue) checkDisk() {
	free, total, err := q.cfg.Space(q.cfg.Dir)
	if err != nil && !q.spaceless {
		q.cfg.Logger.Warn("the free disk space is unknown; the watermarks have no effect", "error", err)
	}
	if q.spaceless = err != nil; q.spaceless || total <= 0 {
		return
	}
	used := int(float64(total-min(free, total)) / float64(total) * 100)
	level := levelOK
	switch m := q.cfg.Marks; {
	case used >= m.Refuse:
		level = levelRefuse
	case used >= m.Early:
		level = levelEarly
	case used >= m.Warn:
		level = levelWarn
	}
	q.disk.used.Store(int32(used))
	before := q.disk.level.Swap(level)
	if before == level {
		return
	}
	if level > before {
		q.cfg.Logger.Warn("the used disk space reached a watermark", "used_percent", used, "level", levelNames[level], "dir", q.cfg.Dir)
	} else {
		q.cfg.Logger.Info("the disk has more space again", "used_percent", used, "level", levelNames[level])
	}
	if q.cfg.OnMark != nil {
		q.cfg.OnMark(Mark{used, levelNames[level]})
	}
}

// retain removes segments that are no longer needed or are past retention, one after the
// other.
func (q *Queue) retain() error {
	for {
		more, err := q.retainSome()
		if err != nil || !more {
			return err
		}
	}
}

// retainSome reports whether there may be more to remove.
func (q *Queue) retainSome() (bool, error) {
	if !q.trimming.TryLock() {
		return false, nil // a copy of the log is under way: try the next time
	}
	defer q.trimming.Unlock()
	target, losses, err := q.aim(time.Now())
	if err != nil || target == 0 {
		return false, err
	}
	if len(losses) > 0 {
		if _, err := q.write(losses...); err != nil {
			return false, err
		}
		q.reportLosses(losses)
	}
	if err := q.moveOut(target); err != nil {
		return false, err
	}
	applied, err := q.checkpoint()
	if err != nil {
		return false, err
	}
	before := q.log.First()
	if err := q.log.Trim(min(target, applied)); err != nil {
		return false, err
	}
	if q.trimmed() == before {
		q.patience++ // the segment is larger than newer ones
		q.restUntil = time.Now().Add(rest)
		return false, nil
	}
	q.patience = 0
	return true, nil
}

// aim returns the sequence below which the log may be trimmed, 0 for none, and records of
// the resulting losses.
func (q *Queue) aim(now time.Time) (uint64, []record, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if now.Before(q.restUntil) {
		return 0, nil, nil
	}
	// The oldest stretches that contain a whole segment, wherever it begins, and are
	// worth a checkpoint.
	need := q.cfg.Log.SegmentBytes/2*3*(1+q.patience) + 2*q.checkpointBytes
	n, bytes := 0, int64(0)
	for n < len(q.past) && bytes < need {
		bytes += q.past[n].bytes
		n++
	}
	if bytes < need {
		return 0, nil, nil
	}
	low, err := q.lowWater()
	if err != nil {
		return 0, nil, err
	}
	if may, _ := q.mayGo(n, low, now); !may {
		return 0, nil, nil
	}
	// Data that is still needed is copied forward. If that is more than half, a trim
	// gains little.
	if n = q.worthwhile(n, bytes); n == 0 {
		q.restUntil = now.Add(rest)
		return 0, nil, nil
	}
	may, lossy := q.mayGo(n, low, now)
	if !may {
		return 0, nil, nil
	}
	target := q.past[n-1].end
	var losses []record
	if lossy {
		if losses, err = q.losses(target); err != nil {
			return 0, nil, err
		}
	}
	return target, losses, q.raise(target)
}

// mayGo reports whether the oldest n stretches may be removed, and whether a group loses
// messages thereby. low is the low-water mark. mu must be held.
func (q *Queue) mayGo(n int, low uint64, now time.Time) (may, lossy bool) {
	end, age := q.past[n-1].end, now.UnixNano()-q.past[n-1].last
	r := q.cfg.Retention
	if end >= q.applied {
		return false, false
	}
	if low >= end && (age >= int64(r.KeepConsumed) || q.disk.level.Load() >= levelEarly) {
		return true, false
	}
	if r.MaxAge > 0 && age >= int64(r.MaxAge) {
		return true, low < end
	}
	total := int64(0)
	for _, s := range q.past {
		total += s.bytes
	}
	return r.MaxBytes > 0 && total > r.MaxBytes, low < end
}

// worthwhile returns the smallest number of oldest stretches, from n on, of which at most
// one half is still needed, or 0. bytes is the size of the oldest n. mu must be held.
func (q *Queue) worthwhile(n int, bytes int64) int {
	type piece struct {
		seq   uint64
		bytes int64
	}
	var needed []piece
	for _, g := range q.groups {
		for _, it := range g.pending {
			needed = append(needed, piece{it.seq, int64(it.size)})
		}
	}
	for _, l := range q.dead {
		needed = append(needed, piece{l.seq, int64(l.size)})
	}
	slices.SortFunc(needed, func(a, b piece) int { return cmp.Compare(a.seq, b.seq) })
	for copied := int64(0); ; {
		for len(needed) > 0 && needed[0].seq < q.past[n-1].end {
			copied += needed[0].bytes + frameBytes
			needed = needed[1:]
		}
		if copied <= bytes/2 {
			return n
		}
		if n == len(q.past) {
			return 0
		}
		bytes += q.past[n].bytes
		n++
	}
}

// lowWater returns the sequence of the first message that some group has not looked at.
// In a topic without groups that is its first message. mu must be held.
func (q *Queue) lowWater() (uint64, error) {
	low := q.applied
	for _, t := range q.topics {
		if len(t.groups) == 0 && t.base < t.index.next {
			e, err := t.index.at(t.base, &block{})
			if err != nil {
				return 0, err
			}
			low = min(low, e.seq)
		}
		for _, g := range t.groups {
			seq, err := g.low(q.applied)
			if err != nil {
				return 0, err
			}
			low = min(low, seq)
		}
	}
	return low, nil
}

// raise moves the start of future groups behind the removed messages. mu must be held.
func (q *Queue) raise(target uint64) error {
	for _, t := range q.topics {
		base, err := t.index.find(t.base, target)
		if err != nil {
			return err
		}
		t.base = base
	}
	return nil
}

// losses returns records of the messages below target that are lost to groups, or to
// topics without groups. mu must be held.
func (q *Queue) losses(target uint64) ([]record, error) {
	var out []record
	for _, t := range q.topics {
		to, err := t.index.find(t.base, target)
		if err != nil {
			return nil, err
		}
		if len(t.groups) == 0 && to > t.base {
			out = append(out, &lostRecord{t.id, 0, to, to - t.base})
		}
		for _, g := range t.groups {
			if to > g.cursor {
				out = append(out, &lostRecord{t.id, g.id, to, to - max(g.cursor, t.base)})
			}
		}
	}
	return out, nil
}

func (q *Queue) reportLosses(losses []record) {
	total := uint64(0)
	for _, r := range losses {
		total += r.(*lostRecord).count
	}
	q.cfg.Logger.Warn("retention removed messages that were not consumed", "messages", total)
}

// moveOut copies forward the pending messages and the dead letters below target.
func (q *Queue) moveOut(target uint64) error {
	q.mu.Lock()
	var items []Delivery
	for _, g := range q.groups {
		for _, it := range g.pending {
			if it.seq < target {
				items = append(items, Delivery{item: it, group: g})
			}
		}
	}
	var letters []uint64
	for id, l := range q.dead {
		if l.seq < target {
			letters = append(letters, id)
		}
	}
	q.mu.Unlock()
	m := mover{q: q}
	for _, d := range items {
		r, err := q.fetchMoving(func() (uint64, bool) { return d.item.seq, d.group.pending[d.item.pos] == d.item && !d.group.gone })
		if isGone(err) {
			continue // done meanwhile
		}
		if err != nil {
			return err
		}
		msg, err := r.message()
		if err != nil {
			return err
		}
		if err := m.move(&putRecord{group: d.group.id, message: msg}); err != nil {
			return err
		}
	}
	for _, id := range letters {
		if err := m.moveLetter(id); err != nil {
			return err
		}
	}
	return m.flush()
}

// mover writes copies in units.
type mover struct {
	q       *Queue
	unit    []record
	claimed []uint64
	bytes   int
}

func (m *mover) move(r record) error {
	size := len(r.append(nil)) + frameBytes
	if p, ok := r.(*putRecord); ok {
		p.message.size = size - frameBytes
	}
	if m.bytes > 0 && m.bytes+size > m.q.unitBytes() {
		if err := m.flush(); err != nil {
			return err
		}
	}
	m.unit = append(m.unit, r)
	m.bytes += size
	return nil
}

func (m *mover) moveLetter(id uint64) error {
	err := m.q.claim(id)
	switch {
	case isGone(err):
		return nil
	case err != nil:
		return errors.Join(fmt.Errorf("copy a dead letter: %w", err), m.flush()) // retry in the next second
	}
	r, err := m.q.deadRecord(id)
	if err != nil {
		m.q.unclaim(id)
		return errors.Join(err, m.flush())
	}
	r.id = id
	if err := m.move(r); err != nil {
		m.q.unclaim(id)
		return err
	}
	m.claimed = append(m.claimed, id)
	return nil
}

func (m *mover) flush() error {
	defer func() { m.unit, m.claimed, m.bytes = nil, nil, 0 }()
	defer m.q.unclaim(m.claimed...)
	if len(m.unit) == 0 {
		return nil
	}
	_, err := m.q.write(m.unit...)
	return err
}

// trimmed forgets the data that the log no longer has, and returns the log's first
// sequence.
func (q *Queue) trimmed() uint64 {
	first := q.log.First()
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.past) > 1 && q.past[0].end <= first {
		q.past = q.past[1:]
	}
	for _, t := range q.topics {
		t.index.forget(t.base)
	}
	return first
}

// alarm calls OnDead for every dead letter behind the last reported one.
func (q *Queue) alarm() {
	for {
		select {
		case <-q.stopping:
			return
		case <-q.buried:
		}
		for q.alarmNext() {
		}
	}
}

// alarmNext reports one dead letter and returns whether there may be another.
func (q *Queue) alarmNext() bool {
	select {
	case <-q.stopping:
		return false
	default:
	}
	q.mu.Lock()
	after := q.alarmed
	q.mu.Unlock()
	ids, _ := q.letters(&Filter{}, after, 1)
	if len(ids) == 0 {
		return false
	}
	d, err := q.GetDead(ids[0])
	switch {
	case err == nil:
		q.cfg.OnDead(d)
	case !isGone(err):
		q.cfg.Logger.Error("the alarm for a dead letter was not raised", "id", ids[0], "error", err)
		return false
	}
	q.staging.Lock()
	err = q.stageEarly(&alarmedRecord{ids[0]}, nil)
	q.staging.Unlock()
	if err != nil {
		q.cfg.Logger.Warn("the alarm for a dead letter may be raised again after a restart", "id", ids[0], "error", err)
		q.mu.Lock()
		q.alarmed = max(q.alarmed, ids[0])
		q.mu.Unlock()
	}
	return true
}
