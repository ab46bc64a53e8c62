package queue

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/wheelworkhq/wheelwork/mq"
)

const (
	snapshotName    = "state"
	snapshotVersion = 1
	snapshotHeader  = 12 // magic 8, version 4
)

var snapshotMagic = [8]byte{'W', 'W', 'Q', 'S', 'T', 'A', 'T', '\n'}

// image is a decoded state. Decoding goes through it, so that invalid bytes leave the
// queue unchanged.
type image struct {
	applied, alarmed     uint64
	lastTopic, lastGroup uint32
	topics               []topicImage
	groups               []groupImage
	letters              []letter
	keys                 []published
	past                 []stretch
}

type topicImage struct {
	id                    uint32
	name                  string
	seq, base, next, lost uint64
	tail                  []entry
}

type groupImage struct {
	id, topic         uint32
	name              string
	seq, cursor, lost uint64
	pending           []item
}

// encodeState returns the state after the records below applied, and applied. Messages
// with consumers count as not delivered. staging and mu must be held.
func (q *Queue) encodeState() ([]byte, uint64) {
	b := binary.AppendUvarint(nil, q.applied)
	b = binary.AppendUvarint(b, q.alarmed)
	b = binary.AppendUvarint(b, uint64(q.lastTopic))
	b = binary.AppendUvarint(b, uint64(q.lastGroup))
	b = binary.AppendUvarint(b, uint64(len(q.topics)))
	for _, id := range slices.Sorted(maps.Keys(q.topics)) {
		b = q.topics[id].append(b)
	}
	b = binary.AppendUvarint(b, uint64(len(q.groups)))
	for _, id := range slices.Sorted(maps.Keys(q.groups)) {
		b = q.groups[id].append(b)
	}
	b = binary.AppendUvarint(b, uint64(len(q.dead)))
	for _, id := range slices.Sorted(maps.Keys(q.dead)) {
		b = q.dead[id].append(b)
	}
	b = q.dedup.append(b, q.applied)
	b = binary.AppendUvarint(b, uint64(len(q.past)))
	for _, s := range q.past {
		b = binary.AppendUvarint(b, s.end)
		b = binary.AppendUvarint(b, uint64(s.bytes))
		b = putTime(b, s.last)
	}
	return b, q.applied
}

func (t *topic) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(t.id))
	b = putString(b, t.name)
	for _, v := range []uint64{t.seq, t.base, t.index.next, t.lost} {
		b = binary.AppendUvarint(b, v)
	}
	for _, e := range t.index.tail {
		b = e.append(b)
	}
	return b
}

func (g *group) append(b []byte) []byte {
	// The last messages before the cursor can be left out if they are untouched: the
	// group will admit them again.
	end := g.cursor
	for end > 0 {
		it := g.pending[end-1]
		if it == nil || it.fail != nil || it.copied {
			break
		}
		end--
	}
	positions := make([]uint64, 0, len(g.pending))
	for pos := range g.pending {
		if pos < end {
			positions = append(positions, pos)
		}
	}
	slices.Sort(positions)
	b = binary.AppendUvarint(b, uint64(g.id))
	b = binary.AppendUvarint(b, uint64(g.topic.id))
	b = putString(b, g.name)
	b = binary.AppendUvarint(b, g.seq)
	b = binary.AppendUvarint(b, end)
	b = binary.AppendUvarint(b, g.lost)
	b = binary.AppendUvarint(b, uint64(len(positions)))
	for _, pos := range positions {
		b = g.pending[pos].append(b)
	}
	return b
}

// Flags of a pending message.
const (
	itemFailed = 1 << iota
	itemCopied
)

func (it *item) append(b []byte) []byte {
	flags := byte(0)
	if it.fail != nil {
		flags |= itemFailed
	}
	if it.copied {
		flags |= itemCopied
	}
	b = append(b, flags)
	for _, v := range []uint64{it.pos, it.seq, uint64(it.due), uint64(it.size), uint64(it.hash)} {
		b = binary.AppendUvarint(b, v)
	}
	if it.fail != nil {
		b = it.fail.append(b)
	}
	return b
}

func (c *cursor) item() item {
	if len(c.b) == 0 || c.b[0] > itemFailed|itemCopied {
		c.fail()
		return item{}
	}
	flags := c.b[0]
	c.b = c.b[1:]
	it := item{pos: c.position(), seq: c.uvarint(), due: c.due(), size: c.uint32(), hash: c.uint32(), copied: flags&itemCopied != 0}
	if flags&itemFailed != 0 {
		f := c.failure()
		it.fail = &f
	}
	return it
}

func (l *letter) append(b []byte) []byte {
	b = binary.AppendUvarint(b, l.id)
	b = binary.AppendUvarint(b, l.seq)
	b = putTime(b, l.at)
	b = binary.AppendUvarint(b, uint64(l.size))
	b = binary.AppendUvarint(b, uint64(l.hash))
	b = binary.AppendUvarint(b, uint64(l.group))
	b = putString(b, l.topic)
	b = putString(b, l.name)
	return append(b, byte(l.reason))
}

// append appends the keys of messages below a sequence.
func (d *dedup) append(b []byte, below uint64) []byte {
	keys := make([]published, 0, len(d.known))
	for _, p := range d.order[d.head:] {
		if p.seq < below && d.known[dedupKey{p.topic, p.key}].seq == p.seq {
			keys = append(keys, p)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(keys)))
	for _, p := range keys {
		b = binary.AppendUvarint(b, uint64(p.topic))
		b = putString(b, p.key)
		b = binary.AppendUvarint(b, p.seq)
		b = putTime(b, p.time)
	}
	return b
}

// decodeState decodes the result of encodeState.
func decodeState(b []byte) (*image, error) {
	c := &cursor{b: b}
	m := &image{applied: c.uvarint(), alarmed: c.uvarint(), lastTopic: c.uint32(), lastGroup: c.uint32()}
	for range c.count(6) {
		t := topicImage{
			id: c.uint32(), name: c.text(maxName), seq: c.uvarint(), base: c.position(), next: c.position(), lost: c.uvarint(),
		}
		for range t.next % blockEntries {
			if len(c.b) < entrySize {
				c.fail()
				break
			}
			t.tail = append(t.tail, takeEntry(c.b))
			c.b = c.b[entrySize:]
		}
		m.topics = append(m.topics, t)
	}
	for range c.count(7) {
		g := groupImage{
			id: c.uint32(), topic: c.uint32(), name: c.text(maxName), seq: c.uvarint(), cursor: c.position(), lost: c.uvarint(),
		}
		for range c.count(6) {
			g.pending = append(g.pending, c.item())
		}
		m.groups = append(m.groups, g)
	}
	for range c.count(16) {
		m.letters = append(m.letters, letter{
			id: c.uvarint(), seq: c.uvarint(), at: c.time(), size: c.uint32(), hash: c.uint32(), group: c.uint32(),
			topic: c.text(maxName), name: c.text(maxName), reason: c.reason(),
		})
	}
	for range c.count(11) {
		m.keys = append(m.keys, published{topic: c.uint32(), key: c.text(maxKey), seq: c.uvarint(), time: c.time()})
	}
	for range c.count(10) {
		m.past = append(m.past, stretch{end: c.uvarint(), bytes: int64(c.uvarint()), last: c.time()})
	}
	if err := c.end(); err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	return m, m.check()
}

// check reports whether the parts of a state are consistent, so that using it cannot
// fail.
func (m *image) check() error {
	topics := map[uint32]*topicImage{}
	for i := range m.topics {
		t := &m.topics[i]
		if topics[t.id] != nil || t.base > t.next {
			return fmt.Errorf("state: topic %d: %w", t.id, errShape)
		}
		topics[t.id] = t
	}
	groups := map[uint32]bool{}
	for _, g := range m.groups {
		t := topics[g.topic]
		if groups[g.id] || t == nil || g.cursor > t.next {
			return fmt.Errorf("state: group %d: %w", g.id, errShape)
		}
		groups[g.id] = true
		for i := range g.pending {
			if g.pending[i].pos >= g.cursor || i > 0 && g.pending[i].pos <= g.pending[i-1].pos {
				return fmt.Errorf("state: message %d of group %d: %w", g.pending[i].pos, g.id, errShape)
			}
		}
	}
	for _, s := range m.past {
		if s.bytes < 0 {
			return fmt.Errorf("state: %w", errShape)
		}
	}
	return nil
}

// adopt sets the state from the image. built are the consume queues that a walk through
// the log has found; if it is nil the queues are read from their files.
func (q *Queue) adopt(m *image, built map[uint32]*index) {
	q.applied, q.alarmed, q.lastTopic, q.lastGroup = m.applied, m.alarmed, m.lastTopic, m.lastGroup
	for _, im := range m.topics {
		t := q.addTopic(im.id, im.name, im.seq)
		t.base, t.lost = im.base, im.lost
		switch x := built[im.id]; {
		case x != nil:
			t.index = *x
			t.base = max(t.base, x.start)
		case built != nil:
			t.index.begin(im.next)
			t.base = im.next
		default:
			t.index.next, t.index.tail = im.next, im.tail
		}
	}
	for _, im := range m.groups {
		g := q.newGroup(im.id, im.name, q.topics[im.topic], im.seq, im.cursor)
		g.lost = im.lost
		for i := range im.pending {
			g.add(&im.pending[i])
		}
		q.addGroup(g)
	}
	for i := range m.letters {
		q.bury(&m.letters[i])
	}
	for _, p := range m.keys {
		q.dedup.add(p)
	}
	q.past = m.past
}

// load restores the state from the snapshot, or from the log alone, and then folds the
// records behind it.
func (q *Queue) load() error {
	if err := q.prepareIndex(); err != nil {
		return err
	}
	m, err := q.readSnapshot()
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			q.cfg.Logger.Warn("the snapshot is not usable; the state is read from the log", "error", err)
		}
		return q.rebuild()
	}
	q.adopt(m, nil)
	return q.replay(m.applied)
}

// readSnapshot reads and checks the snapshot file.
func (q *Queue) readSnapshot() (*image, error) {
	b, err := os.ReadFile(filepath.Join(q.indexDir(), snapshotName))
	if err != nil {
		return nil, err
	}
	m, err := decodeSnapshot(b)
	if err != nil {
		return nil, err
	}
	if m.applied < q.log.First() || m.applied > q.log.Next() {
		return nil, fmt.Errorf("it is of the records below %d, the log has %d to %d", m.applied, q.log.First(), q.log.Next())
	}
	return m, nil
}

func decodeSnapshot(b []byte) (*image, error) {
	n := len(b) - 4
	switch {
	case n < snapshotHeader || !bytes.Equal(b[:8], snapshotMagic[:]):
		return nil, fmt.Errorf("snapshot: %w", errShape)
	case crc32.Checksum(b[:n], castagnoli) != binary.LittleEndian.Uint32(b[n:]):
		return nil, errors.New("snapshot: the checksum is wrong")
	case binary.LittleEndian.Uint32(b[8:]) != snapshotVersion:
		return nil, fmt.Errorf("snapshot: version %d is unknown", binary.LittleEndian.Uint32(b[8:]))
	}
	return decodeState(b[snapshotHeader:n])
}

// replay folds the records from a sequence on.
func (q *Queue) replay(from uint64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	err := q.log.Read(from, func(e mq.Entry) error {
		r, err := decode(e.Type, e.Queue, e.Body)
		if err != nil {
			return fmt.Errorf("record %d: %w", e.Seq, err)
		}
		if m, ok := r.(*message); ok {
			if m.dedup != "" {
				q.dedup.add(published{m.topic, m.dedup, e.Seq, m.time})
			}
		}
		if err := q.apply(r, e.Seq, len(e.Body)); err != nil {
			return fmt.Errorf("record %d: %w", e.Seq, err)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	q.applied = q.log.Next()
	q.dedup.expire(time.Now().UnixNano())
	return nil
}

// rebuild restores state and consume queues from the log alone. One walk finds the
// messages and the last complete checkpoint, and a second one starts at that checkpoint.
func (q *Queue) rebuild() error {
	if err := q.clearIndex(); err != nil {
		return err
	}
	built := map[uint32]*index{}
	var found pieces
	err := q.log.Read(q.log.First(), func(e mq.Entry) error {
		if e.Type != kindMessage && e.Type != kindCheckpoint {
			return nil
		}
		r, err := decode(e.Type, e.Queue, e.Body)
		if err != nil {
			return fmt.Errorf("record %d: %w", e.Seq, err)
		}
		switch r := r.(type) {
		case *checkpointRecord:
			found.add(r)
		case *message:
			x := built[r.topic]
			if x == nil {
				x = &q.newTopic(r.topic, "", 0).index
				x.begin(r.pos)
				built[r.topic] = x
			}
			return x.add(r.pos, entry{e.Seq, uint32(r.size), hashKey(r.key), r.due})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("rebuild: %w", err)
	}
	if found.whole == nil {
		if first := q.log.First(); first != 1 {
			return fmt.Errorf("rebuild: the log begins at record %d and has no complete checkpoint; "+
				"restore the directory from a copy", first)
		}
		return q.replay(1)
	}
	m, err := decodeState(found.whole)
	if err != nil {
		return fmt.Errorf("rebuild: checkpoint: %w", err)
	}
	q.adopt(m, built)
	return q.replay(m.applied)
}

// pieces assembles a checkpoint. A new id starts a new one; the pieces of one id come in
// order.
type pieces struct {
	id    uint64
	next  uint32
	part  []byte
	whole []byte // last complete one
}

func (p *pieces) add(r *checkpointRecord) {
	if r.index == 0 {
		p.id, p.next, p.part = r.id, 0, nil
	}
	if r.id != p.id || r.index != p.next {
		p.next = 0
		return
	}
	p.part = append(p.part, r.piece...)
	if p.next++; p.next == r.count {
		p.whole, p.part = p.part, nil
	}
}

// clearIndex removes all derived files.
func (q *Queue) clearIndex() error {
	if err := os.RemoveAll(q.indexDir()); err != nil {
		return err
	}
	return q.prepareIndex()
}

// snapshot writes the state to its file.
func (q *Queue) snapshot() error {
	b := append([]byte{}, snapshotMagic[:]...)
	b = binary.LittleEndian.AppendUint32(b, snapshotVersion)
	q.staging.Lock()
	q.mu.Lock()
	state, applied := q.encodeState()
	q.mu.Unlock()
	q.staging.Unlock()
	b = append(b, state...)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	if err := replaceFile(filepath.Join(q.indexDir(), snapshotName), b); err != nil {
		return fmt.Errorf("queue: write the snapshot: %w", err)
	}
	q.kept, q.keptAt = time.Now(), applied
	return nil
}

// replaceFile writes a file so that after a crash either the old or the new one is there.
func replaceFile(name string, b []byte) error {
	temp := name + ".tmp"
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(temp, name)
}

// checkpoint writes the state to the log, so that the log before it is not needed to
// restore the state. It returns the first sequence of the log that is still needed.
func (q *Queue) checkpoint() (uint64, error) {
	q.staging.Lock()
	q.mu.Lock()
	b, applied := q.encodeState()
	q.mu.Unlock()
	q.staging.Unlock()
	size := min(q.unitBytes(), q.cfg.Log.MaxRecordBytes-overhead)
	count := (len(b) + size - 1) / size
	q.checkpointBytes = int64(len(b))
	for i := range count {
		piece := b[i*size : min((i+1)*size, len(b))]
		if _, err := q.write(&checkpointRecord{applied, uint32(i), uint32(count), piece}); err != nil {
			return 0, fmt.Errorf("checkpoint: %w", err)
		}
	}
	return applied, nil
}
