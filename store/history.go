package store

import (
	"cmp"
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

// blockRuns is the largest number of runs in one block of the history. A look-up reads a
// whole block for one run, and a page of rare runs reads one for each row. Older files
// have blocks of up to 1000.
const blockRuns = 256

// lookup is the text of a key of a block. Its hash finds the rows.
type lookup struct {
	kind    byte
	a, b, c string
}

// The kinds of look-ups. They are stored in files, so a letter is never reused.
const (
	byRun      = 'r' // app, id; only in older files
	byApp      = 'a' // app
	byJob      = 'j' // app, job
	byState    = 's' // state
	byHost     = 'h' // host
	byAppState = 'S' // app, state
	byAppHost  = 'H' // app, host
	byJobState = 'J' // app, job, state; only in older files
)

// hash returns the key: the first 64 bits of a SHA-256. Names therefore cannot be chosen
// so that their runs appear on the pages of another app.
func (l lookup) hash() uint64 {
	key, _ := l.hashes()
	return key
}

// hashes returns the key and the next 64 bits of the hash.
func (l lookup) hashes() (key, next uint64) {
	le := binary.LittleEndian
	buf := append(make([]byte, 0, 128), l.kind)
	buf = append(le.AppendUint32(buf, uint32(len(l.a))), l.a...)
	buf = append(le.AppendUint32(buf, uint32(len(l.b))), l.b...)
	buf = append(le.AppendUint32(buf, uint32(len(l.c))), l.c...)
	sum := sha256.Sum256(buf)
	return le.Uint64(sum[:]), le.Uint64(sum[8:])
}

// Hashing is much of the cost of a run in the history, so two keys of a run are computed
// from its other keys. Older files have hashes of the names there, so a look-up searches
// for both.

// keyOfRun returns the key of a run, given the key of its app. Users cannot choose the
// last bytes of an id: they are random or a hash.
func keyOfRun(app uint64, id [16]byte) uint64 { return app ^ binary.LittleEndian.Uint64(id[8:]) }

// keyOfJobState returns the key of the runs of a job in a state, given the key of the
// state. next is the second result of [lookup.hashes] for the job.
func keyOfJobState(next, state uint64) uint64 { return next ^ state }

// columns are the keys in the row of a run. A page uses them to choose rows without
// reading values.
type columns struct{ app, job, state, host uint64 }

// keySet collects the keys of a block. A row often has the app, state and host of the
// previous one, and sometimes its job; equal names are not hashed again.
type keySet struct {
	last  *Finished // the previous row; nil: none
	of    columns   // the keys of last
	keys  []uint64  // may contain a key more than once
	other []uint64  // buffer for sorting
}

func (k *keySet) add(l lookup) uint64 {
	h := l.hash()
	k.keys = append(k.keys, h)
	return h
}

// run adds the keys of a run.
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

// sorted returns the keys in order, each once. It starts with a bucket sort by the first
// byte: keys are hashes, so most buckets have one key.
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
			slices.Sort(k.other[start:end]) // in O(n log n): a user can choose names whose keys all have the same first byte
		}
		start = end
	}
	return slices.Compact(k.other)
}

// encoder makes blocks of finished runs. It reuses its memory: blocks are valid until the
// next encode or forget.
type encoder struct {
	set    keySet
	cols   []columns // of the runs of one block
	shared shared    // of one block
	blocks []segment.Block
	keys   []uint64 // of all blocks
	heads  []byte
	values [][]byte
}

// shared holds the distinct values of [Finished.Shared] in a block.
type shared struct {
	texts [][]byte
	of    []uint16 // index into texts for each run
}

// add adds the shared beginning of the next run. Two are equal if they are the same slice
// of memory: a caller with many equal ones allocates them once.
func (s *shared) add(text []byte) {
	n := len(s.texts) - 1
	if len(s.of) > 0 && same(s.texts[s.of[len(s.of)-1]], text) { // the usual case
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

// keptRuns is the number of runs for which an encoder retains its memory.
const keptRuns = 100_000

// forget drops all references to runs.
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

// encode encodes finished runs without copying their values. Payload of a block, little
// endian:
//
//	number of runs n, plus 2³¹ (4)
//	ids (16 n)
//	app, job, state, host of each run as indices into the block's keys, and the
//	index of the shared beginning of its value (5 × 2 n)
//	end of each value, counted from the first value (4 n)
//	number of shared beginnings s (4), end of each, counted from the first (4 s)
//	shared beginnings
//	values, without their shared beginnings
//
// Older blocks have only n in the first number, and no shared beginnings.
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

// fetch reads the first byte of each name before the names are compared and hashed. They
// are far apart in memory, and the cache misses overlap this way. The result only keeps
// the compiler from removing the reads.
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
	rowHead    = 16 + 5*2 + 4 // bytes of a run without its value and its keys
	oldRowHead = rowHead - 2  // the same in a block without shared beginnings
)

// appendHead appends the part of the payload before the values.
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
		// Sealing the segment writes the postings of the block again.
		n += int64(len(b.Payload) + 24*len(b.Keys))
		for _, part := range b.Rest {
			n += int64(len(part))
		}
	}
	return n
}

// runBlock is the decoded payload of a block of the history.
type runBlock struct {
	n         int
	keys      []uint64
	ids, cols []byte
	col       int // bytes of cols for one run
	own       texts
	shared    texts // empty for a block of the older format
}

// texts are byte strings stored one after the other.
type texts struct{ ends, bytes []byte }

// at returns text i, which must exist.
func (t *texts) at(i int) []byte {
	start := uint32(0)
	if i > 0 {
		start = binary.LittleEndian.Uint32(t.ends[4*(i-1):])
	}
	return t.bytes[start:binary.LittleEndian.Uint32(t.ends[4*i:])]
}

// sound reports whether the ends are in order and within the bytes. length is the sum of
// the lengths.
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

// parseShared parses the shared beginnings at the front of p.
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

// appendValue appends the value of row i to dst.
func (r *runBlock) appendValue(dst []byte, i int) []byte {
	if r.col > 8 {
		dst = append(dst, r.shared.at(int(r.place(i, 4)))...)
	}
	return append(dst, r.own.at(i)...)
}

// copyValue returns a copy of the value of row i.
func (r *runBlock) copyValue(i int) []byte {
	size := len(r.own.at(i))
	if r.col > 8 {
		size += len(r.shared.at(int(r.place(i, 4))))
	}
	return r.appendValue(make([]byte, 0, size), i)
}

func (r *runBlock) id(i int) [16]byte { return [16]byte(r.ids[16*i:]) }

// columns returns the keys in row i.
func (r *runBlock) columns(i int) columns {
	key := func(col int) uint64 { return r.keys[r.place(i, col)] }
	return columns{key(0), key(1), key(2), key(3)}
}

// bornMs returns the planned time of a run, which is in its id. Runs end at that time or
// later, most of them soon after. Only the speed of a look-up depends on that.
func bornMs(id [16]byte) int64 { return int64(binary.BigEndian.Uint64(id[:]) >> 16) }

// Run returns the value of a finished run. A removed run is not there.
func (s *Store) Run(app string, id [16]byte) (value []byte, ok bool, err error) {
	_, value, _, err = s.locate(app, id)
	if err != nil {
		return nil, false, fmt.Errorf("store: run: %w", err)
	}
	return value, value != nil, nil
}

// findRun returns the keys that find a run. hash is the key of its app.
func findRun(hash uint64, app string, id [16]byte) [][]uint64 {
	return [][]uint64{{keyOfRun(hash, id), lookup{byRun, app, string(id[:]), ""}.hash()}}
}

// Has reports whether there is or was a finished run with an id. The id of a removed run stays in use for as
// long as the rows of its block.
func (s *Store) Has(app string, id [16]byte) (bool, error) {
	_, _, found, err := s.locate(app, id)
	if err != nil {
		return false, fmt.Errorf("store: run: %w", err)
	}
	return found, nil
}

// locate returns the position and the value of a finished run; found is false if the run is not
// there. A removed run is there and has no value.
func (s *Store) locate(app string, id [16]byte) (at cursor, value []byte, found bool, err error) {
	hash := lookup{byApp, app, "", ""}.hash()
	var damaged error
	gone := s.retention.of(app).runsFrom()
	for b, err := range s.history.FindSince(findRun(hash, app, id), bornMs(id)) {
		if err == nil && b.Max < gone {
			continue
		}
		runs, err := readRuns(b, err)
		if isDamage(err) {
			damaged = errors.Join(damaged, err)
			continue // it may be in another block
		}
		if err != nil {
			return at, nil, false, err
		}
		for i := runs.n - 1; i >= 0; i-- {
			if runs.id(i) == id && runs.columns(i).app == hash {
				value, err := s.shown(&runs, i, hash)
				return cursor{b.Pos, uint32(i)}, value, true, err
			}
		}
	}
	return at, nil, false, damaged
}

// readRuns is parseRuns for the values of an iterator over the history.
func readRuns(b segment.Block, err error) (runBlock, error) {
	if err != nil {
		return runBlock{}, err
	}
	return parseRuns(b)
}

// isDamage reports whether an error concerns one block only, so that a walk can continue.
func isDamage(err error) bool { return errors.As(err, new(*segment.DamagedError)) }

// EndCursor returns the cursor of the first page without the runs that end from now on.
func (s *Store) EndCursor() string {
	return cursor{max(s.history.Length()-1, 0), math.MaxUint32}.String()
}

// HistoryLength returns the length of the history in bytes since its beginning. Runs that
// end later are appended behind it.
func (s *Store) HistoryLength() int64 { return s.history.Length() }

// Since calls fn for the finished runs behind a length of the history, in the order in
// which they ended. The value is valid until fn returns. An error of fn ends the walk and
// is returned. Since skips runs that retention has removed, and damaged blocks with a
// warning. It has removed runs, until they are erased: see Batch.Settled.
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
			if runs.gone(i) {
				continue
			}
			value = runs.appendValue(value[:0], i)
			if err := fn(value); err != nil {
				return err
			}
		}
	}
	return nil
}

// RunQuery selects finished runs. An empty field matches any run.
type RunQuery struct {
	App    string
	Job    string // needs App
	State  string
	States []string // any of these, and State too if it is set
	Host   string
	Cursor string // the cursor that the previous page returned; "" is the first page
	// After is the last run of an app on the previous page, for use instead of Cursor. A
	// cursor is valid in one store only; stores written from one journal have the same
	// order of runs.
	After [16]byte
	// Since and Until leave out blocks whose runs all ended before Since or after Until,
	// in Unix ms; 0: no bound. The page may still have runs of other times.
	Since, Until int64
	Limit        int // rows on a page: default 50, at most 1000
	// Damaged, which may be nil, is called for each block that cannot be read and may
	// have rows of the page. The page omits those rows.
	Damaged func(error)
}

// ErrCursor means that [Store.Runs] did not return the cursor.
var ErrCursor = errors.New("bad cursor: leave it out to start at the newest run")

// pageBlocks is the largest number of blocks that a page reads. A page of rare rows ends
// early, with a cursor, instead of taking long.
const pageBlocks = 256

// Runs returns a page of finished runs, last ended first. next is the cursor of the next
// page, "" if there is none. A page may have fewer rows than the limit, even none, and
// still have a next page: then it has read as many blocks as it may. Runs that end
// meanwhile do not shift later pages.
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
		at, _, found, err := s.locate(q.App, q.After)
		if err == nil && !found {
			err = ErrCursor
		}
		if err != nil {
			return nil, "", err
		}
		from = at
	}
	wanted := q.match()
	read := 0
	since, until := cmp.Or(q.Since, math.MinInt64), cmp.Or(q.Until, math.MaxInt64)
	if q.App != "" {
		since = max(since, s.retention.of(q.App).runsFrom())
	}
	for b, err := range s.history.FindBetween(q.keys(), from.before(), since, until) {
		if read++; read > pageBlocks && err == nil {
			return values, cursor{b.Pos, math.MaxUint32}.String(), nil
		}
		if err == nil && (b.Max < since || b.Min > until) {
			continue
		}
		runs, err := readRuns(b, err)
		if isDamage(err) {
			s.cfg.Logger.Warn("store: a page of runs omits unreadable runs; `wheelwork store repair` lists them", "error", err)
			if q.Damaged != nil {
				q.Damaged(err)
			}
			continue
		}
		if err != nil {
			return nil, "", err
		}
		for i := from.rowsOf(b.Pos, runs.n) - 1; i >= 0; i-- {
			c := runs.columns(i)
			if !wanted(c) {
				continue
			}
			if len(values) == limit {
				return values, cursor{b.Pos, uint32(i + 1)}.String(), nil
			}
			value, err := s.shown(&runs, i, c.app)
			if err != nil {
				return nil, "", err
			}
			if value != nil {
				values = append(values, value)
			}
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

// keys returns groups of keys. A block can hold rows of the query only if it lists one
// key of each group.
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

// match returns a function that reports whether the query selects a row of such a block.
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

// cursor is the position where a page continues: backwards from row of the block at pos,
// then in the blocks before it.
type cursor struct {
	pos int64
	row uint32
}

var newest = cursor{segment.End - 1, math.MaxUint32}

// before returns the position before which blocks are of interest.
func (c cursor) before() int64 { return c.pos + 1 }

// rowsOf returns the number of rows, out of n of the block at pos, that are before c.
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
