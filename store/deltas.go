package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strings"

	"github.com/klauspost/compress/s2"

	"github.com/wheelworkhq/wheelwork/store/segment"
)

// delta leads from a content to the one before it.
type delta struct {
	created   bool   // there was no object before; the other fields are not used
	sum       uint32 // checksum of the content after
	own       change
	sameShape bool
	shape     change // unless sameShape
}

// change makes a text from another one: the first prefix bytes of it, then middle, then
// its last suffix bytes.
type change struct {
	prefix, suffix int
	middle         string
}

// changeTo returns the change from one text to another.
func changeTo(from, to string) change {
	most := min(len(from), len(to))
	prefix := commonPrefix(from, to)
	suffix := commonSuffix(from, to, most-prefix)
	return change{prefix, suffix, to[prefix : len(to)-suffix]}
}

// step is the number of bytes that are compared at once.
const step = 32

func commonPrefix(a, b string) (n int) {
	most := min(len(a), len(b))
	for n+step <= most && a[n:n+step] == b[n:n+step] {
		n += step
	}
	for n < most && a[n] == b[n] {
		n++
	}
	return n
}

// commonSuffix returns the length of the common end of two texts, at most the given one.
func commonSuffix(a, b string, most int) (n int) {
	for n+step <= most && a[len(a)-n-step:len(a)-n] == b[len(b)-n-step:len(b)-n] {
		n += step
	}
	for n < most && a[len(a)-n-1] == b[len(b)-n-1] {
		n++
	}
	return n
}

var errOtherContent = fmt.Errorf("the content after it is not the one that it was stored for: %w", ErrCorrupt)

func (c change) apply(from string) (string, error) {
	if c.prefix > len(from) || c.suffix > len(from)-c.prefix {
		return "", errOtherContent
	}
	if c.middle == "" && c.prefix+c.suffix == len(from) {
		return from, nil
	}
	return from[:c.prefix] + c.middle + from[len(from)-c.suffix:], nil
}

func (d *delta) apply(after Content) (before Content, err error) {
	if d.created {
		return Content{}, nil
	}
	if sum, _ := after.sum(nil); sum != d.sum {
		return Content{}, errOtherContent
	}
	before.Shape = after.Shape
	if !d.sameShape {
		if before.Shape, err = d.shape.apply(after.Shape); err != nil {
			return Content{}, err
		}
	}
	before.Own, err = d.own.apply(after.Own)
	return before, err
}

// sum returns the checksum of a content. It covers the length of the shape, so that the
// two parts are not confused. The buffer, which may be nil, is returned for reuse.
func (c Content) sum(buf []byte) (sum uint32, _ []byte) {
	buf = appendString(buf[:0], c.Shape)
	buf = append(buf, c.Own...)
	return crc32.Checksum(buf, castagnoli), buf
}

const (
	// blockRevisions is the largest number of revisions in a block. It is a part of the
	// format.
	blockRevisions = 256

	// textsPerRevision is the largest number of texts that a revision can add to its
	// block: kind, cause, middle of the shape.
	textsPerRevision = 3

	// blockRaw is the number of bytes before compression at which a block is complete.
	blockRaw = 1 << 20

	// maxRaw is the largest number of bytes of a block before compression: a complete
	// block and one revision.
	maxRaw = blockRaw + maxValue + maxKey + 1<<10

	// compressFrom is the number of bytes from which a block is compressed.
	compressFrom = 128
)

// The encodings of the rows of a block. They are stored in files, so a number is never
// reused.
const (
	codePlain = 0
	codeS2    = 1
)

// The forms of a delta in a row.
const (
	formCreated = 0 // there was no object
	formOwn     = 1 // the shape is the same
	formBoth    = 2
)

// revisionEncoder makes blocks of revisions. It reuses its memory: blocks are valid until
// the next encode.
type revisionEncoder struct {
	order  []int32 // places of the revisions in the batch, those of one app together
	texts  dictionary
	rows   []byte // of one block
	sum    []byte // buffer for a checksum
	raw    []byte // the block before compression
	packed []byte // and after it
	out    []byte // payloads of all blocks
	keys   []uint64
	blocks []segment.Block
	apps   []string // of the blocks
}

// dictionary collects the texts of a block. A text that is the same as the last one in
// its role is not stored again.
type dictionary struct {
	bytes []byte
	n     uint64
	kind  entry[string]
	shape entry[string]
	cause entry[[]byte]
}

// entry is the last text of a role and its place; no text: the zero value.
type entry[T string | []byte] struct {
	text T
	at   uint64 // place + 1
}

// add returns the place of the text in the dictionary. last is the last text of the same
// role, and equal reports whether that is the same text.
func add[T string | []byte](d *dictionary, last *entry[T], text T, equal func(a, b T) bool) uint64 {
	if last.at > 0 && equal(last.text, text) {
		return last.at - 1
	}
	d.bytes = append(binary.AppendUvarint(d.bytes, uint64(len(text))), text...)
	d.n++
	*last = entry[T]{text, d.n}
	return d.n - 1
}

func equalTexts(a, b string) bool { return a == b } // quick for texts at one address

func appendString(dst []byte, text string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(text))), text...)
}

// keptRevisions is the number of bytes of payloads for which an encoder retains its
// memory.
const keptRevisions = 8 << 20

// forget drops all references to the batch.
func (e *revisionEncoder) forget() {
	if cap(e.out) > keptRevisions || cap(e.raw) > keptRevisions {
		*e = revisionEncoder{}
		return
	}
	clear(e.blocks)
	clear(e.apps)
	e.texts = dictionary{bytes: e.texts.bytes}
}

// encode encodes revisions. Payload of a block:
//
//	0, or 1 if the rows are compressed with S2 (1)
//	name of the app
//	rows
//
// A text has its length in front. Numbers are varints, and those with a sign zigzag.
// Rows, before compression:
//
//	number of rows n, number of texts, texts
//	n times: place of the kind in the texts, name, number of the revision, time less that
//	of the row before (with a sign), place of the cause, form of the delta, delta
//
// The delta of form 0 is empty. That of form 1 is the checksum of the content after (4,
// little endian) and the change of the own part; that of form 2 the same, and then the
// change of the shape, whose middle is a place in the texts. A change is the lengths of
// prefix and suffix, and the middle.
func (e *revisionEncoder) encode(revs []Revision) ([]segment.Block, error) {
	e.blocks, e.apps, e.keys, e.out = e.blocks[:0], e.apps[:0], e.keys[:0], e.out[:0]
	if len(revs) == 0 {
		return nil, nil
	}
	e.sort(revs)
	for from := 0; from < len(revs); {
		n, err := e.block(revs, e.order[from:])
		if err != nil {
			return nil, err
		}
		from += n
	}
	return e.blocks, nil
}

// sort orders the revisions by app. Those of an app stay in their order.
func (e *revisionEncoder) sort(revs []Revision) {
	e.order = slices.Grow(e.order[:0], len(revs))
	sorted := true
	for i := range revs {
		e.order = append(e.order, int32(i))
		sorted = sorted && (i == 0 || revs[i-1].App <= revs[i].App)
	}
	if !sorted {
		slices.SortStableFunc(e.order, func(a, b int32) int { return strings.Compare(revs[a].App, revs[b].App) })
	}
}

// block adds a block with the first revisions in the order, and returns their number.
func (e *revisionEncoder) block(revs []Revision, order []int32) (n int, err error) {
	app := revs[order[0]].App
	b := segment.Block{Min: math.MaxInt64, Max: math.MinInt64}
	keys := len(e.keys)
	e.rows, e.texts = e.rows[:0], dictionary{bytes: e.texts.bytes[:0]}
	var last int64
	for ; n < min(len(order), blockRevisions) && len(e.rows)+len(e.texts.bytes) < blockRaw; n++ {
		r := &revs[order[n]]
		if r.App != app {
			break
		}
		if err := r.check(); err != nil {
			return 0, err
		}
		e.row(r, last)
		last = r.AtMs
		b.Min, b.Max = min(b.Min, r.AtMs), max(b.Max, r.AtMs)
		e.keys = append(e.keys, object{r.App, r.Kind, r.Name}.key())
	}
	slices.Sort(e.keys[keys:])
	e.keys = append(e.keys[:keys], slices.Compact(e.keys[keys:])...)
	b.Keys = e.keys[keys:len(e.keys):len(e.keys)]
	e.raw = binary.AppendUvarint(e.raw[:0], uint64(n))
	e.raw = binary.AppendUvarint(e.raw, e.texts.n)
	e.raw = append(append(e.raw, e.texts.bytes...), e.rows...)
	start := len(e.out)
	e.appendPayload(app)
	b.Payload = e.out[start:len(e.out):len(e.out)]
	e.blocks, e.apps = append(e.blocks, b), append(e.apps, app)
	return n, nil
}

func (r *Revision) check() error {
	if n := len(r.App) + len(r.Kind) + len(r.Name); n > maxKey {
		return fmt.Errorf("the name of an object with a revision has %d bytes, over the limit of %d", n, maxKey)
	}
	if n := len(r.Cause) + len(r.Before.Shape) + len(r.Before.Own); n > maxValue {
		return fmt.Errorf("the content before a revision of %s %q has %d bytes, over the limit of %d", r.Kind, r.Name, n, maxValue)
	}
	if r.Number < 1 {
		return fmt.Errorf("a revision of %s %q has the number %d: they begin with 1", r.Kind, r.Name, r.Number)
	}
	return nil
}

func (e *revisionEncoder) row(r *Revision, last int64) {
	b := binary.AppendUvarint(e.rows, add(&e.texts, &e.texts.kind, r.Kind, equalTexts))
	b = appendString(b, r.Name)
	b = binary.AppendUvarint(b, uint64(r.Number))
	b = binary.AppendVarint(b, r.AtMs-last)
	b = binary.AppendUvarint(b, add(&e.texts, &e.texts.cause, r.Cause, same))
	if (r.Before == Content{}) {
		e.rows = append(b, formCreated)
		return
	}
	form := byte(formOwn)
	if r.Before.Shape != r.After.Shape {
		form = formBoth
	}
	var sum uint32
	sum, e.sum = r.After.sum(e.sum)
	b = binary.LittleEndian.AppendUint32(append(b, form), sum)
	c := changeTo(r.After.Own, r.Before.Own)
	b = appendString(c.appendLengths(b), c.middle)
	if form == formBoth {
		c = changeTo(r.After.Shape, r.Before.Shape)
		b = binary.AppendUvarint(c.appendLengths(b), add(&e.texts, &e.texts.shape, c.middle, equalTexts))
	}
	e.rows = b
}

func (c *change) appendLengths(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(c.prefix))
	return binary.AppendUvarint(b, uint64(c.suffix))
}

// appendPayload appends the payload of the block in e.raw to e.out.
func (e *revisionEncoder) appendPayload(app string) {
	rows, code := e.raw, byte(codePlain)
	if len(rows) >= compressFrom {
		e.packed = slices.Grow(e.packed[:0], s2.MaxEncodedLen(len(rows)))
		e.packed = s2.Encode(e.packed[:cap(e.packed)], rows)
		if len(e.packed) < len(rows) {
			rows, code = e.packed, codeS2
		}
	}
	e.out = appendString(append(e.out, code), app)
	e.out = append(e.out, rows...)
}

// parser reads numbers and texts from the front of bytes. After the first error all
// results are zero.
type parser struct {
	rest []byte
	bad  bool
}

func (p *parser) fail() { p.rest, p.bad = nil, true }

func (p *parser) uvarint() uint64 {
	v, n := binary.Uvarint(p.rest)
	if n <= 0 {
		p.fail()
		return 0
	}
	p.rest = p.rest[n:]
	return v
}

func (p *parser) varint() int64 {
	v, n := binary.Varint(p.rest)
	if n <= 0 {
		p.fail()
		return 0
	}
	p.rest = p.rest[n:]
	return v
}

// take returns the next n bytes.
func (p *parser) take(n uint64) []byte {
	if n > uint64(len(p.rest)) {
		p.fail()
		return nil
	}
	b := p.rest[:n]
	p.rest = p.rest[n:]
	return b
}

func (p *parser) text() []byte { return p.take(p.uvarint()) }

// length reads a number of bytes in a text of any size that a content can have.
func (p *parser) length() int {
	n := p.uvarint()
	if n > math.MaxInt32 {
		p.fail()
		return 0
	}
	return int(n)
}

// parseRevisions returns the revisions of an object in a block, oldest first. They are
// copies.
func parseRevisions(b segment.Block, of object) ([]StoredRevision, error) {
	bad := func(why string) error {
		return fmt.Errorf("block of revisions at %d: %s: %w", b.Pos, why, segment.ErrCorrupt)
	}
	app, rows, err := openRevisionBlock(b.Payload)
	if err != nil {
		return nil, bad(err.Error())
	}
	if app != of.app {
		return nil, nil // another app has an object with the same key
	}
	found, err := findRevisions(rows, of)
	if err != nil {
		return nil, bad(err.Error())
	}
	return found, nil
}

// openRevisionBlock returns the app of a block and its rows, decompressed. The results
// may be parts of the payload.
func openRevisionBlock(payload []byte) (app string, rows []byte, err error) {
	code, app, packed, err := cutRevisionHead(payload)
	if err != nil {
		return "", nil, err
	}
	switch code {
	case codePlain:
		return app, packed, nil
	case codeS2:
		n, err := s2.DecodedLen(packed)
		if err == nil && n > maxRaw {
			err = fmt.Errorf("its rows have %d bytes, over the limit of %d", n, maxRaw)
		}
		if err == nil {
			rows, err = s2.Decode(nil, packed)
		}
		return app, rows, err
	}
	return "", nil, fmt.Errorf("its rows have the unknown encoding %d", code)
}

// cutRevisionHead returns the parts of a payload: the encoding of the rows, the app and the
// rows.
func cutRevisionHead(payload []byte) (code byte, app string, rows []byte, err error) {
	p := parser{rest: payload}
	first, name := p.take(1), p.text()
	if p.bad {
		return 0, "", nil, errors.New("it has no name of an app")
	}
	return first[0], string(name), p.rest, nil
}

var errRevisionRows = errors.New("its rows do not fit it")

// findRevisions returns copies of the rows of an object.
func findRevisions(rows []byte, of object) (found []StoredRevision, err error) {
	p := rowParser{parser: parser{rest: rows}}
	n, texts := p.uvarint(), p.uvarint()
	if n > blockRevisions || texts > n*textsPerRevision {
		return nil, errRevisionRows
	}
	for range texts {
		p.texts = append(p.texts, p.text())
	}
	var last int64
	for range n {
		kind, name := p.place(), p.text()
		wanted := string(kind) == of.kind && string(name) == of.name
		r := p.row(last, wanted)
		if p.bad {
			break
		}
		if last = r.AtMs; wanted {
			found = append(found, r)
		}
	}
	if p.bad || len(p.rest) > 0 {
		return nil, errRevisionRows
	}
	return found, nil
}

// rowParser reads the rows of a block.
type rowParser struct {
	parser
	texts [][]byte
}

// place reads the place of a text and returns the text.
func (p *rowParser) place() []byte {
	i := p.uvarint()
	if i >= uint64(len(p.texts)) {
		p.fail()
		return nil
	}
	return p.texts[i]
}

// row reads a row behind its kind and name. last is the time of the row before. The texts
// of the row are copied if it is wanted, and otherwise empty.
func (p *rowParser) row(last int64, wanted bool) (r StoredRevision) {
	text := func(b []byte) string {
		if !wanted {
			return ""
		}
		return string(b)
	}
	r.Number, r.AtMs = int64(p.uvarint()), last+p.varint()
	r.Cause = []byte(text(p.place()))
	form := p.uvarint()
	if r.Number < 1 || form > formBoth {
		p.fail()
	}
	if r.delta.created = form == formCreated; r.delta.created {
		return r
	}
	if sum := p.take(4); len(sum) == 4 {
		r.delta.sum = binary.LittleEndian.Uint32(sum)
	}
	r.delta.own = change{p.length(), p.length(), text(p.text())}
	if r.delta.sameShape = form == formOwn; !r.delta.sameShape {
		r.delta.shape = change{p.length(), p.length(), text(p.place())}
	}
	return r
}
