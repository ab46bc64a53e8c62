package job

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/wire"
)

// Limits of runs that map.
const (
	MaxMapped       = 1_000_000 // parts of one run
	MaxMapDepth     = 64
	DefaultMapDepth = 8
	MaxMapWaiting   = 64 << 20 // bytes of the inputs of parts that wait
	MaxMapBatch     = 10_000   // inputs of one call
	MaxMapBytes     = 1 << 20  // bytes of one call's inputs
	MaxReduce       = 2 << 20  // bytes of what the part that reduces gets

	// MapWindow is how many parts of a run are runs at once: enough for a fleet,
	// and few enough that a million parts do not fill the memory.
	MapWindow = 8192

	// outputChunk is the size at which a row of outputs is left alone.
	outputChunk = 64 << 10
)

// Mapping is what a run that maps knows of its parts beside their counts. Parts
// are numbered in the order in which they were mapped. They become runs in that
// order: Invariant: those below Released are or were runs, the others wait in
// chunks, as bytes.
type Mapping struct {
	Released int32
	Reduced  bool // the part that reduces was made
	Overflow bool // the outputs are more than it may get

	window   int32
	chunks   []*mapChunk // that are waited in, oldest first
	waiting  int64       // bytes of their inputs
	chunkN   uint32      // how many there have been
	outputs  []*outputChunkOf
	outBytes int
}

// mapChunk is a chunk of which the inputs before next and data[at:] were released.
type mapChunk struct {
	*apiv1.MapChunk
	number uint32
	next   int // into sizes
	at     int // into data
}

type outputChunkOf struct {
	*apiv1.MapOutputs
	bytes int
}

// The roles of the parts of a run that maps. The texts are part of the API.
const (
	RoleRoot   = "root"
	RolePart   = "part"
	RoleReduce = "reduce"
)

// Role says what a part of a run that maps is for; "" for any other run.
func (r *Run) Role() string {
	switch {
	case !r.IsPart() || !r.Policy.Map:
		return ""
	case r.Fan.Reduce:
		return RoleReduce
	case r.Fan.Part == 0:
		return RoleRoot
	}
	return RolePart
}

// HandlerName is the entry of the module that the run calls.
func (r *Run) HandlerName() string {
	if r.Role() == RoleReduce {
		return cmp.Or(r.shape.Fanout.GetReduce(), r.shape.Handler.GetName())
	}
	return r.shape.Handler.GetName()
}

// MapParent returns the run of which r is a part that may map; nil: r is none.
func (s *Slot) MapParent(r *Run) *Run {
	if !r.IsPart() || r.Fan.Reduce {
		return nil
	}
	parent := s.Runs[r.Fan.Parent]
	if parent == nil || parent.Fan == nil || parent.Fan.Map == nil {
		return nil
	}
	return parent
}

// Waiting returns how many parts wait to become runs, and the bytes of their inputs.
func (r *Run) Waiting() (parts int32, bytes int64) {
	if r.Fan == nil || r.Fan.Map == nil {
		return 0, 0
	}
	return r.Fan.Made - r.Fan.Map.Released, r.Fan.Map.waiting
}

// NextChunk is the number of the next chunk of inputs of a run that maps.
func (m *Mapping) NextChunk() uint32 { return m.chunkN }

// mapParts adds parts to a run.
func (s *Slot) mapParts(m *apiv1.Mapped, atMs int64, fx []Effect) []Effect {
	part, in := s.Runs[runID(m.Part)], m.Inputs
	if part == nil || in == nil || len(in.Sizes) == 0 || !whole(in) {
		return fx
	}
	r := s.MapParent(part)
	if r == nil || r.CancelRequested {
		return fx
	}
	f := r.Fan
	if m.Chunk < f.Map.chunkN {
		// The row of the run is younger than this record, and that of the chunk may
		// not be there: a crash fell between the two.
		f.Map.attach(m.Chunk, in)
		return s.changed(fx, rowMapInputs, mapRow(r.ID, m.Chunk), in)
	}
	if m.First != part.Fan.Mapped || in.First != f.Made {
		return fx // it was mapped before
	}
	n := int32(len(in.Sizes))
	f.Map.attach(m.Chunk, in)
	f.Map.chunkN = m.Chunk + 1
	part.Fan.Mapped += n
	f.Made += n
	f.Parts = f.Made
	fx = s.changed(fx, rowMapInputs, mapRow(r.ID, m.Chunk), in)
	fx = append(fx, Effect{Change: RunChanged, Run: part, Job: part.owner}, Effect{Change: RunChanged, Run: r, Job: r.owner})
	return s.releaseParts(r, atMs, fx)
}

// attach puts a chunk in its place, unless it is there or was used up.
func (m *Mapping) attach(number uint32, in *apiv1.MapChunk) {
	last := in.First + int32(len(in.Sizes))
	if last <= m.Released {
		return
	}
	i, found := slices.BinarySearchFunc(m.chunks, number, func(c *mapChunk, n uint32) int { return cmp.Compare(c.number, n) })
	if found {
		return
	}
	c := &mapChunk{MapChunk: in, number: number}
	for in.First+int32(c.next) < m.Released {
		c.at += int(in.Sizes[c.next])
		c.next++
	}
	m.waiting += int64(len(in.Data) - c.at)
	m.chunks = slices.Insert(m.chunks, i, c)
}

// releaseParts makes runs of parts that wait, as far as the window allows.
func (s *Slot) releaseParts(r *Run, atMs int64, fx []Effect) []Effect {
	f := r.Fan
	m := f.Map
	if r.CancelRequested {
		return fx
	}
	for len(f.parts) < int(m.window) && len(m.chunks) > 0 {
		c := m.chunks[0]
		number := c.First + int32(c.next)
		if number != m.Released {
			return fx // of a record that is still to be replayed
		}
		size := int(c.Sizes[c.next])
		input := c.Data[c.at : c.at+size : c.at+size]
		c.next, c.at = c.next+1, c.at+size
		m.waiting -= int64(size)
		m.Released++
		if c.next == len(c.Sizes) {
			m.chunks[0] = nil
			m.chunks = m.chunks[1:]
		}
		// A copy: the input of one part must not keep those of its whole chunk.
		fx = s.addPart(r, &Fan{Part: number, Depth: c.Depth}, bytes.Clone(input), true, atMs, fx)
	}
	return fx
}

// addPart makes a part of a run into a run of its own.
func (s *Slot) addPart(r *Run, f *Fan, input []byte, hasInput bool, atMs int64, fx []Effect) []Effect {
	f.Parent, f.Parts = r.ID, r.Fan.Parts
	part := &Run{
		ID: PartID(r.App, r.Job, time.UnixMilli(r.PlannedMs), r.ID, f.Part), App: r.App, Job: r.Job, State: Queued, Trigger: ByFanout, Policy: r.Policy,
		PlannedMs: r.PlannedMs, AcceptedMs: atMs, HasInput: hasInput, Input: input,
		TraceParent: r.TraceParent, Revision: r.Revision, Covers: r.Covers, Pin: r.Pin,
		Fan: f, owner: r.owner, slot: s, spec: r.spec,
	}
	s.add(part)
	r.Fan.join(part)
	return append(fx, Effect{Change: RunAccepted, Run: part, Job: r.owner})
}

// join and leave keep the live parts of a run. A part knows its place, so that a
// run of a million parts does not look for each that ends.
func (f *Fan) join(part *Run) {
	part.Fan.place = int32(len(f.parts))
	f.parts = append(f.parts, part)
}

func (f *Fan) leave(part *Run) {
	i, last := part.Fan.place, len(f.parts)-1
	if int(i) > last || f.parts[i] != part {
		return
	}
	f.parts[i] = f.parts[last]
	f.parts[i].Fan.place = i
	f.parts[last] = nil
	f.parts = f.parts[:last]
}

// inOrder returns the live parts by their number.
func (f *Fan) inOrder() []*Run {
	parts := slices.Clone(f.parts)
	slices.SortFunc(parts, func(a, b *Run) int { return cmp.Compare(a.Fan.Part, b.Fan.Part) })
	return parts
}

// giveUpParts drops the parts that wait: their run was cancelled.
func (r *Run) giveUpParts() {
	m := r.Fan.Map
	if m == nil {
		return
	}
	r.Fan.Failed += r.Fan.Made - m.Released
	m.Released, m.chunks, m.waiting = r.Fan.Made, nil, 0
}

// partEnded does what the end of a part means for a run that maps. over reports
// whether the run has ended with it.
func (s *Slot) partEnded(r, part *Run, atMs int64, fx []Effect) (_ []Effect, over bool) {
	f := r.Fan
	m := f.Map
	switch {
	case part.Fan.Reduce:
		r.Output = part.Output
	case part.State == Succeeded && r.Policy.Reduce:
		fx = s.keepOutput(r, part, fx)
	}
	fx = s.releaseParts(r, atMs, fx)
	if len(f.parts) > 0 || f.Made > m.Released {
		return fx, false
	}
	if !r.Policy.Reduce || m.Reduced || f.Failed > 0 || r.CancelRequested {
		return fx, true
	}
	input, ok := m.reduceInput()
	if !ok {
		r.Error = fmt.Sprintf("the outputs of %d parts are more than the %d MiB that one part may get to reduce: let the parts keep large results elsewhere and return where", f.Made, MaxReduce>>20)
		r.Code = "reduce_limit"
		return fx, true
	}
	m.Reduced = true
	number := f.Made
	f.Made++
	f.Parts = f.Made
	m.Released = f.Made
	return s.addPart(r, &Fan{Part: number, Reduce: true}, input, true, atMs, fx), false
}

// keepOutput keeps the output of a part for the one that reduces.
func (s *Slot) keepOutput(r, part *Run, fx []Effect) []Effect {
	m := r.Fan.Map
	m.outBytes += len(part.Output) + reduceOverhead
	if m.Overflow || m.outBytes > MaxReduce {
		m.Overflow = true // there will be nothing to reduce
		return fx
	}
	n := len(m.outputs)
	if n == 0 || m.outputs[n-1].bytes >= outputChunk {
		m.outputs = append(m.outputs, &outputChunkOf{MapOutputs: &apiv1.MapOutputs{}})
		n++
	}
	c := m.outputs[n-1]
	// The message may stand in a row that is being written: it is not changed.
	c.MapOutputs = &apiv1.MapOutputs{Outputs: append(c.Outputs, &apiv1.MapOutputs_Output{Part: part.Fan.Part, Output: part.Output})}
	c.bytes += len(part.Output) + reduceOverhead
	return s.changed(fx, rowMapOutputs, mapRow(r.ID, uint32(n-1)), c.MapOutputs)
}

// reduceOverhead is what a line of the input of the part that reduces has around
// an output, about.
const reduceOverhead = 32

// ReduceLine is a line of the input of the part that reduces.
type ReduceLine struct {
	Part   int32   `json:"part"`
	Output *string `json:"output,omitempty"`
	Base64 *string `json:"output_base64,omitempty"` // when the output is not valid UTF-8
}

// reduceInput is what the part that reduces gets: a line of JSON for each part,
// by number. It reports false when that is too much.
func (m *Mapping) reduceInput() ([]byte, bool) {
	if m.Overflow {
		return nil, false
	}
	var all []*apiv1.MapOutputs_Output
	for _, c := range m.outputs {
		all = append(all, c.Outputs...)
	}
	slices.SortStableFunc(all, func(a, b *apiv1.MapOutputs_Output) int { return cmp.Compare(a.Part, b.Part) })
	all = slices.CompactFunc(all, func(a, b *apiv1.MapOutputs_Output) bool { return a.Part == b.Part })
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for _, o := range all {
		line := ReduceLine{Part: o.Part}
		if text := string(o.Output); utf8.ValidString(text) {
			line.Output = &text
		} else {
			text = base64.StdEncoding.EncodeToString(o.Output)
			line.Base64 = &text
		}
		if err := enc.Encode(line); err != nil {
			panic("job: a number and a text do not encode: " + err.Error())
		}
		if b.Len() > MaxReduce {
			return nil, false
		}
	}
	return b.Bytes(), true
}

// dropMap deletes the rows of a run that maps and has ended.
func (s *Slot) dropMap(r *Run, fx []Effect) []Effect {
	if r.Fan == nil || r.Fan.Map == nil {
		return fx
	}
	for n := range r.Fan.Map.chunkN {
		fx = s.changed(fx, rowMapInputs, mapRow(r.ID, n), nil)
	}
	for n := range uint32(len(r.Fan.Map.outputs)) {
		fx = s.changed(fx, rowMapOutputs, mapRow(r.ID, n), nil)
	}
	r.Fan.Map.chunks, r.Fan.Map.outputs = nil, nil
	return fx
}

func mapRow(id RunID, n uint32) string { return fmt.Sprintf("%s/%08x", id, n) }

// loadMapRow puts a row of a run that maps back. Rows come by number.
func (s *Slot) loadMapRow(kind, rest string, value []byte) (orphan bool, err error) {
	text, number, _ := strings.Cut(rest, "/")
	id, err := ParseRunID(text)
	if err != nil {
		return false, err
	}
	n, err := strconv.ParseUint(number, 16, 32)
	if err != nil {
		return false, fmt.Errorf("%w: %w", errRow, err)
	}
	r := s.Runs[id]
	if r == nil || r.Fan == nil || r.Fan.Map == nil {
		return true, nil
	}
	m := r.Fan.Map
	if kind == rowMapOutputs {
		out := &apiv1.MapOutputs{}
		if err := proto.Unmarshal(value, out); err != nil {
			return false, err
		}
		c := &outputChunkOf{MapOutputs: out}
		for _, o := range out.Outputs {
			c.bytes += len(o.Output) + reduceOverhead
		}
		m.outputs = append(m.outputs, c)
		m.outBytes += c.bytes
		return false, nil
	}
	in := &apiv1.MapChunk{}
	if err := proto.Unmarshal(value, in); err != nil {
		return false, err
	}
	if !whole(in) {
		return false, errRow
	}
	if uint32(n) < m.chunkN { // else the record that adds it is still to be replayed
		m.attach(uint32(n), in)
	}
	return false, nil
}

// whole reports whether the inputs of a chunk are all there.
func whole(in *apiv1.MapChunk) bool {
	size := 0
	for _, n := range in.Sizes {
		if size += int(n); size > len(in.Data) {
			return false
		}
	}
	return size == len(in.Data) && in.First >= 0
}

// row is a mapping as the row of its run holds it.
func (m *Mapping) row() *apiv1.MapRow {
	if m == nil {
		return nil
	}
	return &apiv1.MapRow{Released: m.Released, Window: m.window, Chunks: int64(m.chunkN), Reduced: m.Reduced, Overflow: m.Overflow}
}

// appendMap appends what the row of a run says of mapping.
func (r *Run) appendMap(b []byte) ([]byte, error) {
	f := r.Fan
	if f == nil {
		return b, nil
	}
	if row := f.Map.row(); row != nil {
		var err error
		b = nested(b, 70, func(b []byte) []byte {
			b, err = proto.MarshalOptions{}.MarshalAppend(b, row)
			return b
		})
		if err != nil {
			return b, err
		}
	}
	b = wire.Int(b, 71, int64(f.Depth))
	b = wire.Int(b, 72, int64(f.Mapped))
	b = wire.Bool(b, 73, f.Reduce)
	if r.HasParts() {
		b = wire.Text(b, 74, r.Policy.fanout())
	}
	return wire.Text(b, 75, r.Role()), nil
}

func mappingOf(row *apiv1.MapRow) *Mapping {
	if row == nil {
		return nil
	}
	return &Mapping{Released: row.Released, window: row.Window, chunkN: uint32(row.Chunks), Reduced: row.Reduced, Overflow: row.Overflow}
}

// MapLimits returns how many parts a run that maps may have, and how deep they
// may map.
func (r *Run) MapLimits() (parts, depth int32) {
	f := r.shape.Fanout
	return cmp.Or(f.GetMaxParts(), MaxMapped), cmp.Or(f.GetMaxDepth(), DefaultMapDepth)
}
