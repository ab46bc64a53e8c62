package store

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"

	"github.com/wheelworkhq/wheelwork/store/segment"
)

// blockRuns is how many runs stand in one block of the history at most. A look-up
// reads a whole block for one run, and a page of rare runs one for each row. Those
// of before had up to 1000.
const blockRuns = 256

// lookup is the text of a key of a block: what its rows are found by.
type lookup struct {
	kind    byte
	a, b, c string
}

// The kinds of look-ups. They stand in files: letters are never reused.
const (
	byRun      = 'r' // app, id: of before
	byApp      = 'a' // app
	byJob      = 'j' // app, job
	byState    = 's' // state
	byHost     = 'h' // host
	byAppState = 'S' // app, state
	byAppHost  = 'H' // app, host
	byJobState = 'J' // app, job, state: of before
)

// hash returns the key: the first 64 bits of a SHA-256, so that nobody can choose
// names whose runs show up on the pages of another app.
func (l lookup) hash() uint64 {
	key, _ := l.hashes()
	return key
}

// hashes returns the key, and the next 64 bits.
func (l lookup) hashes() (key, next uint64) {
	le := binary.LittleEndian
	buf := append(make([]byte, 0, 128), l.kind)
	buf = append(le.AppendUint32(buf, uint32(len(l.a))), l.a...)
	buf = append(le.AppendUint32(buf, uint32(len(l.b))), l.b...)
	buf = append(le.AppendUint32(buf, uint32(len(l.c))), l.c...)
	sum := sha256.Sum256(buf)
	return le.Uint64(sum[:]), le.Uint64(sum[8:])
}

// To hash is a good part of what a run takes in the history, so two of its keys are
// made of others. Whoever looks for one looks for what it was before, too.

// keyOfRun is the key of a run of the app with that key. The last bytes of an id are
// random, or a hash: nobody chooses them.
func keyOfRun(app uint64, id [16]byte) uint64 { return app ^ binary.LittleEndian.Uint64(id[8:]) }

// keyOfJobState is the key of the runs of a job in the state with that key; next is
// what [lookup.hashes] returns beside the key of the job.
func keyOfJobState(next, state uint64) uint64 { return next ^ state }

// columns are the keys of one run that its row names, so that a page can choose
// rows without reading values.
type columns struct{ app, job, state, host uint64 }

// keySet collects the keys of a block. A row often shares its app, state and host
// with the one before it, and sometimes its job: then nothing is hashed again.
type keySet struct {
	last  *Finished // the row before; nil: none
	of    columns   // its
	keys  []uint64  // some of them may be there more than once
	other []uint64  // for sorting
}

func (k *keySet) add(l lookup) uint64 {
	h := l.hash()
	k.keys = append(k.keys, h)
	return h
}

// run adds what a run is found by.
func (k *keySet) run(r *Finished) columns {
	c, last := k.of, k.last
	same := last != nil && r.App == last.App && r.State == last.State
	if !same || r.Host != last.Host {
		c.app = k.add(lookup{byApp, r.App, "", ""})
		c.state = k.add(lookup{byState, r.State, "", ""})
		c.host = k.add(lookup{byHost, r.Host, "", ""})
		k.add(lookup{byAppState, r.App, r.State, ""})
		k.add(lookup{byAppHost, r.App, r.Host, ""})
	}
	if !same || r.Job != last.Job {
		var next uint64
		c.job, next = lookup{byJob, r.App, r.Job, ""}.hashes()
		k.keys = append(k.keys, c.job, keyOfJobState(next, c.state))
	}
	k.keys = append(k.keys, keyOfRun(c.app, r.ID))
	k.last, k.of = r, c
	return c
}

// sorted returns the keys in order, each once. They are hashes, so their first
// bytes put nearly each in a place of its own.
func (k *keySet) sorted() []uint64 {
	var ends [256]int32
	for _, key := range k.keys {
		ends[key>>56]++
	}
	sum := int32(0)
	for i, n := range ends {
		ends[i], sum = sum, sum+n
	}
	k.other = slices.Grow(k.other[:0], len(k.keys))[:len(k.keys)]
	for _, key := range k.keys {
		at := &ends[key>>56]
		k.other[*at] = key
		*at++
	}
	start := int32(0)
	for _, end := range ends {
		if end-start > 1 {
			slices.Sort(k.other[start:end]) // chosen names may all have the same first byte
		}
		start = end
	}
	return slices.Compact(k.other)
}

// encoder makes blocks of finished runs. Its memory is used again: what it made
// is valid until it makes more, or forgets it.
type encoder struct {
	set    keySet
	cols   []columns // of the runs of one block
	shared shared    // of one block
	blocks []segment.Block
	keys   []uint64 // of all blocks
	heads  []byte
	values [][]byte
}

// shared are the beginnings that the values of a block have in common.
type shared struct {
	texts [][]byte
	of    []uint16 // by run: which is its
}

// add notes the beginning of the next run. That it is one of before is seen by its
// place in memory: who writes down very many alike makes them once.
func (s *shared) add(text []byte) {
	n := len(s.texts) - 1
	if len(s.of) > 0 && same(s.texts[s.of[len(s.of)-1]], text) { // most often
		n = int(s.of[len(s.of)-1])
	} else {
		for n >= 0 && !same(s.texts[n], text) {
			n--
		}
	}
	if n < 0 {
		n = len(s.texts)
		s.texts = append(s.texts, text)
	}
	s.of = append(s.of, uint16(n))
}

func same(a, b []byte) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

func (s *shared) forget() {
	clear(s.texts[:cap(s.texts)])
	s.texts, s.of = s.texts[:0], s.of[:0]
}

// keptRuns is how many runs an encoder keeps room for.
const keptRuns = 100_000

// forget lets go of the runs.
func (e *encoder) forget() {
	if cap(e.values) > keptRuns {
		*e = encoder{}
		return
	}
	clear(e.values)
	clear(e.blocks)
	e.shared.forget()
	e.set.last = nil
}

// encode encodes finished runs, without copying their values. Payload of a block,
// little endian:
//
//	number of runs n, plus 2³¹ (4)
//	ids (16 n)
//	app, job, state, host of each run as places in the block's keys, and which of the
//	shared beginnings its value has (5 × 2 n)
//	end of each value, from the first value on (4 n)
//	number of shared beginnings s (4), end of each, from the first one on (4 s)
//	shared beginnings
//	values, without them
//
// Blocks of before say n alone, and have none.
func (e *encoder) encode(runs []Finished) ([]segment.Block, error) {
	e.blocks, e.keys, e.heads, e.values = e.blocks[:0], e.keys[:0], e.heads[:0], e.values[:0]
	e.heads = slices.Grow(e.heads, len(runs)*rowHead+(len(runs)/blockRuns+1)*(4+4+4+512))
	e.values = slices.Grow(e.values, len(runs))
	for part := range slices.Chunk(runs, blockRuns) {
		total := 0
		for i := range part {
			total += len(part[i].Shared) + len(part[i].Value)
		}
		if total > maxValue*4 {
			return nil, fmt.Errorf("the values of %d finished runs take %d bytes, over the limit of %d", len(part), total, maxValue*4)
		}
		e.blocks = append(e.blocks, e.block(part))
	}
	return e.blocks, nil
}

func (e *encoder) block(runs []Finished) segment.Block {
	b := segment.Block{Min: math.MaxInt64, Max: math.MinInt64}
	set := &e.set
	set.last, set.keys, e.cols = nil, set.keys[:0], e.cols[:0]
	e.shared.texts, e.shared.of = e.shared.texts[:0], e.shared.of[:0]
	keys, head, values := len(e.keys), len(e.heads), len(e.values)
	fetch(runs)
	for i := range runs {
		b.Min, b.Max = min(b.Min, runs[i].FinishedMs), max(b.Max, runs[i].FinishedMs)
		e.cols = append(e.cols, set.run(&runs[i]))
		e.shared.add(runs[i].Shared)
		e.values = append(e.values, runs[i].Value)
	}
	e.keys = append(e.keys, set.sorted()...)
	b.Keys = e.keys[keys:]
	e.heads = e.appendHead(e.heads, runs, b.Keys)
	b.Payload, b.Rest = e.heads[head:], e.values[values:]
	return b
}

// fetch reads the beginnings of the names that are about to be compared and hashed:
// each is somewhere else in memory, and a processor waits for several places as
// long as for one. What it returns means nothing.
//
//go:noinline
func fetch(runs []Finished) (sum int) {
	for i := range runs {
		if job := runs[i].Job; job != "" {
			sum += int(job[0])
		}
	}
	return sum
}

const (
	hasShared  = 1 << 31      // the block has shared beginnings
	rowHead    = 16 + 5*2 + 4 // what it has of a run besides its value and its keys
	oldRowHead = rowHead - 2  // of one without
)

// appendHead writes what comes before the values.
func (e *encoder) appendHead(dst []byte, runs []Finished, keys []uint64) []byte {
	le := binary.LittleEndian
	dst = le.AppendUint32(dst, uint32(len(runs))|hasShared)
	for i := range runs {
		dst = append(dst, runs[i].ID[:]...)
	}
	var last columns
	var app, job, state, host uint16
	place := func(key uint64) uint16 { // at most 8 keys a run: 16 bits are enough
		n, _ := slices.BinarySearch(keys, key)
		return uint16(n)
	}
	for i, c := range e.cols {
		if i == 0 || c.app != last.app || c.state != last.state || c.host != last.host {
			app, state, host = place(c.app), place(c.state), place(c.host)
		}
		if i == 0 || c.job != last.job {
			job = place(c.job)
		}
		last = c
		for _, place := range [...]uint16{app, job, state, host, e.shared.of[i]} {
			dst = le.AppendUint16(dst, place)
		}
	}
	end := 0
	for i := range runs {
		end += len(runs[i].Value)
		dst = le.AppendUint32(dst, uint32(end))
	}
	dst = le.AppendUint32(dst, uint32(len(e.shared.texts)))
	end = 0
	for _, text := range e.shared.texts {
		end += len(text)
		dst = le.AppendUint32(dst, uint32(end))
	}
	for _, text := range e.shared.texts {
		dst = append(dst, text...)
	}
	return dst
}

func blocksSize(blocks []segment.Block) (n int64) {
	for i := range blocks {
		b := &blocks[i]
		// The postings of the block are written again when its segment is sealed.
		n += int64(len(b.Payload) + 24*len(b.Keys))
		for _, part := range b.Rest {
			n += int64(len(part))
		}
	}
	return n
}

// runBlock reads the payload of a block of the history.
type runBlock struct {
	n         int
	keys      []uint64
	ids, cols []byte
	col       int // bytes of cols for a run
	own       texts
	shared    texts // without any: of a block of before
}

// texts are byte strings one after the other.
type texts struct{ ends, bytes []byte }

// at returns the text of that number, which must be there.
func (t *texts) at(i int) []byte {
	start := uint32(0)
	if i > 0 {
		start = binary.LittleEndian.Uint32(t.ends[4*(i-1):])
	}
	return t.bytes[start:binary.LittleEndian.Uint32(t.ends[4*i:])]
}

// sound reports whether the texts lie one after the other, in the bytes. Their
// length is that of all of them.
func (t *texts) sound() (length int, ok bool) {
	last := uint32(0)
	for i := 0; i < len(t.ends); i += 4 {
		end := binary.LittleEndian.Uint32(t.ends[i:])
		if end < last || uint64(end) > uint64(len(t.bytes)) {
			return 0, false
		}
		last = end
	}
	return int(last), true
}

func parseRuns(b segment.Block) (runBlock, error) {
	bad := fmt.Errorf("history block at %d: its rows do not fit it: %w", b.Pos, segment.ErrCorrupt)
	p := b.Payload
	if len(p) < 4 {
		return runBlock{}, bad
	}
	first := binary.LittleEndian.Uint32(p)
	n, head := int(first&^hasShared), rowHead
	if first&hasShared == 0 {
		head = oldRowHead
	}
	p = p[4:]
	if n > len(p)/head {
		return runBlock{}, bad
	}
	r := runBlock{n: n, keys: b.Keys, col: head - 16 - 4}
	r.ids, p = p[:16*n], p[16*n:]
	r.cols, p = p[:r.col*n], p[r.col*n:]
	r.own.ends, p = p[:4*n], p[4*n:]
	if first&hasShared != 0 {
		var ok bool
		if r.shared, p, ok = parseShared(p); !ok {
			return runBlock{}, bad
		}
	}
	r.own.bytes = p
	if _, ok := r.own.sound(); !ok {
		return runBlock{}, bad
	}
	for i := range n {
		for place := range 4 {
			if int(r.place(i, place)) >= len(r.keys) {
				return runBlock{}, bad
			}
		}
		if r.col > 8 && 4*int(r.place(i, 4)) >= len(r.shared.ends) {
			return runBlock{}, bad
		}
	}
	return r, nil
}

// parseShared takes the shared beginnings from the front of p.
func parseShared(p []byte) (t texts, rest []byte, ok bool) {
	if len(p) < 4 {
		return t, nil, false
	}
	n := int(binary.LittleEndian.Uint32(p))
	if p = p[4:]; n > len(p)/4 {
		return t, nil, false
	}
	t = texts{p[:4*n], p[4*n:]}
	length, ok := t.sound()
	if !ok {
		return t, nil, false
	}
	t.bytes, rest = t.bytes[:length], t.bytes[length:]
	return t, rest, true
}

func (r *runBlock) place(i, col int) uint16 {
	return binary.LittleEndian.Uint16(r.cols[r.col*i+2*col:])
}

// appendValue appends the value of row i.
func (r *runBlock) appendValue(dst []byte, i int) []byte {
	if r.col > 8 {
		dst = append(dst, r.shared.at(int(r.place(i, 4)))...)
	}
	return append(dst, r.own.at(i)...)
}

// copyValue returns the value of row i, for the caller to keep.
func (r *runBlock) copyValue(i int) []byte {
	size := len(r.own.at(i))
	if r.col > 8 {
		size += len(r.shared.at(int(r.place(i, 4))))
	}
	return r.appendValue(make([]byte, 0, size), i)
}

func (r *runBlock) id(i int) [16]byte { return [16]byte(r.ids[16*i:]) }

// columns returns the keys that row i names.
func (r *runBlock) columns(i int) columns {
	key := func(col int) uint64 { return r.keys[r.place(i, col)] }
	return columns{key(0), key(1), key(2), key(3)}
}

// bornMs is when a run was planned, by its id: it ended then or later, and most of
// them soon after. Only how long a look-up takes depends on that.
func bornMs(id [16]byte) int64 { return int64(binary.BigEndian.Uint64(id[:]) >> 16) }

// Run returns a finished run.
func (s *Store) Run(app string, id [16]byte) (value []byte, ok bool, err error) {
	_, value, err = s.locate(app, id)
	if err != nil {
		return nil, false, fmt.Errorf("store: run: %w", err)
	}
	return value, value != nil, nil
}

// locate returns where a finished run stands and its value; nil: it is not there.
func (s *Store) locate(app string, id [16]byte) (at cursor, value []byte, err error) {
	hash := lookup{byApp, app, "", ""}.hash()
	find := [][]uint64{{keyOfRun(hash, id), lookup{byRun, app, string(id[:]), ""}.hash()}}
	var damaged error
	for b, err := range s.history.FindSince(find, bornMs(id)) {
		runs, err := readRuns(b, err)
		if isDamage(err) {
			damaged = errors.Join(damaged, err)
			continue // it may stand elsewhere
		}
		if err != nil {
			return at, nil, err
		}
		for i := runs.n - 1; i >= 0; i-- {
			if runs.id(i) == id && runs.columns(i).app == hash {
				return cursor{b.Pos, uint32(i)}, runs.copyValue(i), nil
			}
		}
	}
	return at, nil, damaged
}

// readRuns is parseRuns for what a walk over the history yields.
func readRuns(b segment.Block, err error) (runBlock, error) {
	if err != nil {
		return runBlock{}, err
	}
	return parseRuns(b)
}

// isDamage reports whether an error is about one block, so that a walk goes on.
func isDamage(err error) bool { return errors.As(err, new(*segment.DamagedError)) }

// HistoryLength returns how long the history is, in bytes since it began. What
// is finished later stands behind it.
func (s *Store) HistoryLength() int64 { return s.history.Length() }

// Since calls fn for the finished runs that stand in the history from that
// length on, in the order in which they ended. The value is valid until fn
// returns; an error ends the walk and is returned. What retention has removed is
// passed over, and what is damaged with a warning.
func (s *Store) Since(length int64, fn func(value []byte) error) error {
	var value []byte
	for b, err := range s.history.From(length) {
		runs, err := readRuns(b, err)
		if isDamage(err) {
			s.cfg.Logger.Warn("store: finished runs are not counted: they cannot be read", "error", err)
			continue
		}
		if err != nil {
			return fmt.Errorf("store: since: %w", err)
		}
		for i := range runs.n {
			value = runs.appendValue(value[:0], i)
			if err := fn(value); err != nil {
				return err
			}
		}
	}
	return nil
}

// RunQuery chooses finished runs; an empty field chooses any.
type RunQuery struct {
	App    string
	Job    string // needs App
	State  string
	States []string // any of them, and of State
	Host   string
	Cursor string // of the page before; "" is the first page
	// After is the last run of the page before, of an app: instead of the cursor, which is
	// of one store alone. Stores that are written from one journal have the same order.
	After [16]byte
	Limit int // rows on a page: default 50, at most 1000
	// Damaged, which may be nil, is called for each block that cannot be read and may
	// have rows of the page. They are passed over.
	Damaged func(error)
}

// ErrCursor says that a cursor is not one that [Store.Runs] returned.
var ErrCursor = errors.New("bad cursor: leave it out to start at the newest run")

// pageBlocks is how many blocks a page reads at most: a page of rows that are
// rare in their blocks ends early, with a cursor, instead of taking long.
const pageBlocks = 256

// Runs returns a page of finished runs, those that ended last first. next is the
// cursor of the page after; "" means that there is none. A page may have fewer
// rows than the limit, even none, and still a next one, when many blocks had to
// be looked through. Runs that end meanwhile do not move what later pages hold.
func (s *Store) Runs(q RunQuery) (values [][]byte, next string, err error) {
	values, next, err = s.runs(q)
	if err != nil {
		return nil, "", fmt.Errorf("store: runs: %w", err)
	}
	return values, next, nil
}

func (s *Store) runs(q RunQuery) (values [][]byte, next string, err error) {
	if q.Job != "" && q.App == "" {
		return nil, "", errors.New("a job needs its app")
	}
	limit := min(q.Limit, 1000)
	if limit <= 0 {
		limit = 50
	}
	from, err := parseCursor(q.Cursor)
	if err != nil {
		return nil, "", err
	}
	if q.After != ([16]byte{}) {
		at, found, err := s.locate(q.App, q.After)
		if err == nil && found == nil {
			err = ErrCursor
		}
		if err != nil {
			return nil, "", err
		}
		from = at
	}
	wanted := q.match()
	read := 0
	for b, err := range s.history.Find(q.keys(), from.before()) {
		if read++; read > pageBlocks && err == nil {
			return values, cursor{b.Pos, math.MaxUint32}.String(), nil
		}
		runs, err := readRuns(b, err)
		if isDamage(err) {
			s.cfg.Logger.Warn("store: a page of runs lacks some that cannot be read; `wheelwork store repair` says what is lost", "error", err)
			if q.Damaged != nil {
				q.Damaged(err)
			}
			continue
		}
		if err != nil {
			return nil, "", err
		}
		for i := from.rowsOf(b.Pos, runs.n) - 1; i >= 0; i-- {
			if !wanted(runs.columns(i)) {
				continue
			}
			if len(values) == limit {
				return values, cursor{b.Pos, uint32(i + 1)}.String(), nil
			}
			values = append(values, runs.copyValue(i))
		}
	}
	return values, "", nil
}

func (q *RunQuery) states() []string {
	if q.State == "" {
		return q.States
	}
	return append([]string{q.State}, q.States...)
}

// keys returns what a block must list to hold rows of the query: of each group
// one key.
func (q *RunQuery) keys() [][]uint64 {
	var all [][]uint64
	group := func(hashes ...uint64) { all = append(all, hashes) }
	var states []uint64
	for _, state := range q.states() {
		of := lookup{byState, state, "", ""}
		switch {
		case q.Job != "":
			_, next := lookup{byJob, q.App, q.Job, ""}.hashes()
			states = append(states, keyOfJobState(next, of.hash()))
			of = lookup{byJobState, q.App, q.Job, state}
		case q.App != "":
			of = lookup{byAppState, q.App, state, ""}
		}
		states = append(states, of.hash())
	}
	switch {
	case len(states) > 0:
		group(states...)
	case q.Job != "":
		group(lookup{byJob, q.App, q.Job, ""}.hash())
	case q.App != "" && q.Host == "":
		group(lookup{byApp, q.App, "", ""}.hash())
	}
	switch {
	case q.Host != "" && q.App != "":
		group(lookup{byAppHost, q.App, q.Host, ""}.hash())
	case q.Host != "":
		group(lookup{byHost, q.Host, "", ""}.hash())
	}
	return all
}

// match returns which rows of such a block the query chooses.
func (q *RunQuery) match() func(columns) bool {
	app := lookup{byApp, q.App, "", ""}.hash()
	job := lookup{byJob, q.App, q.Job, ""}.hash()
	host := lookup{byHost, q.Host, "", ""}.hash()
	var states []uint64
	for _, state := range q.states() {
		states = append(states, lookup{byState, state, "", ""}.hash())
	}
	return func(c columns) bool {
		return (q.App == "" || c.app == app) &&
			(q.Job == "" || c.job == job) &&
			(q.Host == "" || c.host == host) &&
			(len(states) == 0 || slices.Contains(states, c.state))
	}
}

// cursor is where a page goes on: with the rows before row, from behind, of the
// block at pos, then with the blocks before it.
type cursor struct {
	pos int64
	row uint32
}

var newest = cursor{segment.End - 1, math.MaxUint32}

// before is the position before which blocks are of interest.
func (c cursor) before() int64 { return c.pos + 1 }

// rowsOf returns how many of the n rows of the block at pos are before c.
func (c cursor) rowsOf(pos int64, n int) int {
	if pos == c.pos && int64(c.row) < int64(n) {
		return int(c.row)
	}
	return n
}

func (c cursor) String() string {
	b := binary.BigEndian.AppendUint64(nil, uint64(c.pos))
	b = binary.BigEndian.AppendUint32(b, c.row)
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return base64.RawURLEncoding.EncodeToString(b)
}

func parseCursor(s string) (cursor, error) {
	if s == "" {
		return newest, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != 16 || crc32.ChecksumIEEE(b[:12]) != binary.BigEndian.Uint32(b[12:]) {
		return cursor{}, ErrCursor
	}
	c := cursor{int64(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint32(b[8:])}
	if c.pos < 0 || c.pos > newest.pos {
		return cursor{}, ErrCursor
	}
	return c, nil
}
