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
	"github.com/wheelworkhq/wheelwork/internal/wire/fields"
)

// Limits of runs with the fan-out map or map_reduce.
const (
	maxMapped       = 1_000_000 // parts of one run
	maxMapDepth     = 64
	defaultMapDepth = 8
	MaxMapWaiting   = 64 << 20 // bytes of the inputs of the waiting parts of a run
	MaxMapBatch     = 10_000   // inputs of one call
	MaxMapBytes     = 1 << 20  // bytes of the inputs of one call
	MaxReduce       = 2 << 20  // bytes of the input of the part that reduces

	// MapWindow is the number of parts of a run that are live at once: enough for many
	// hosts, and few enough that a million parts do not fill the memory.
	MapWindow = 8192

	// outputChunk is the size in bytes at which a row of outputs takes no further output.
	outputChunk = 64 << 10
)

// Mapping is the state of a run that maps, beyond the counts of its parts. Parts are
// numbered, and become runs, in the order in which they were mapped. Invariant: the parts
// below Released are or were runs; the others wait in chunks, as bytes.
type Mapping struct {
	Released int32
	Reduced  bool // the part that reduces exists
	Overflow bool // the outputs exceed MaxReduce

	// For a run that continues an earlier run: base is the number of parts of the earlier
	// run, again is the number of these parts that run again, in the order of retries,
	// and the first Retried of them are or were runs.
	base, again int32
	Retried     int32
	retries     []*mapChunk

	window   int32
	chunks   []*mapChunk // chunks with waiting parts, oldest first
	waiting  int64       // bytes of the inputs of waiting parts
	chunkN   uint32      // number of chunks so far
	outputs  []*outputChunkOf
	outBytes int
}

// mapChunk is a chunk whose inputs before sizes[next] and data[at] are released.
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

// Role returns the role of a part of a run that maps; "" for any other run.
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

// HandlerName returns the name of the handler that the run calls.
func (r *Run) HandlerName() string {
	if r.Role() == RoleReduce {
		return cmp.Or(r.shape.Fanout.GetReduce(), r.shape.Handler.GetName())
	}
	return r.shape.Handler.GetName()
}

// MapParent returns the parent of r if r is a part that may map, else nil.
func (s *Slot) MapParent(r *Run) *Run {
	if !r.IsPart() || r.Fan.Reduce {
		return nil
	}
	parent := s.Runs.Get(r.Fan.Parent)
	if parent == nil || parent.Fan == nil || parent.Fan.Map == nil {
		return nil
	}
	return parent
}

// Waiting returns the number of parts that wait to become runs, and the bytes of their
// inputs.
func (r *Run) Waiting() (parts int32, bytes int64) {
	if r.Fan == nil || r.Fan.Map == nil {
		return 0, 0
	}
	m := r.Fan.Map
	return r.Fan.Made - m.Released + m.again - m.Retried, m.waiting
}

// NextChunk returns the number of the next chunk of inputs of a run that maps.
func (m *Mapping) NextChunk() uint32 { return m.chunkN }

// mapParts adds the parts that a part of the run has mapped.
func (s *Slot) mapParts(m *apiv1.Mapped, atMs int64, fx []Effect) []Effect {
	part, in := s.Runs.Get(runID(m.Part)), m.Inputs
	if part == nil || in == nil || len(in.Sizes) == 0 || !whole(in) {
		return fx
	}
	r := s.MapParent(part)
	if r == nil || r.CancelRequested {
		return fx
	}
	f := r.Fan
	if m.Chunk < f.Map.chunkN {
		// The row of the run is newer than this record, and the row of the chunk may be
		// missing: a crash happened between the writes of the two rows.
		f.Map.attach(m.Chunk, in)
		return s.changed(fx, rowMapInputs, mapRow(r.ID, m.Chunk), in)
	}
	if m.First != part.Fan.Mapped || in.First != f.Made {
		return fx // the parts exist already
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

// attach inserts a chunk by its number, unless it is present or has no waiting part.
func (m *Mapping) attach(number uint32, in *apiv1.MapChunk) {
	released, chunks := m.Released, &m.chunks
	if len(in.Parts) > 0 {
		released, chunks = m.Retried, &m.retries
	}
	last := in.First + int32(len(in.Sizes))
	if last <= released {
		return
	}
	i, found := slices.BinarySearchFunc(*chunks, number, func(c *mapChunk, n uint32) int { return cmp.Compare(c.number, n) })
	if found {
		return
	}
	c := &mapChunk{MapChunk: in, number: number}
	for in.First+int32(c.next) < released {
		c.at += int(in.Sizes[c.next])
		c.next++
	}
	m.waiting += int64(len(in.Data) - c.at)
	*chunks = slices.Insert(*chunks, i, c)
}

// releaseParts makes runs of waiting parts, as far as the window allows.
func (s *Slot) releaseParts(r *Run, atMs int64, fx []Effect) []Effect {
	f := r.Fan
	m := f.Map
	if r.CancelRequested {
		return fx
	}
	for len(f.parts) < int(m.window) && len(m.retries) > 0 {
		c := m.retries[0]
		if c.First+int32(c.next) != m.Retried {
			return fx // that chunk is in a record which is not replayed yet
		}
		p := c.Parts[c.next]
		m.Retried++
		fx = s.addPart(r, &Fan{Part: p.Number, Depth: p.Depth, Mapped: p.Mapped}, m.take(&m.retries), true, atMs, fx)
	}
	for len(f.parts) < int(m.window) && len(m.chunks) > 0 {
		c := m.chunks[0]
		number := c.First + int32(c.next)
		if number != m.Released {
			return fx // that chunk is in a record which is not replayed yet
		}
		m.Released++
		fx = s.addPart(r, &Fan{Part: number, Depth: c.Depth}, m.take(&m.chunks), true, atMs, fx)
	}
	return fx
}

// take removes the next input from the first chunk. It returns a copy, so that the input
// of one part does not retain the inputs of its whole chunk.
func (m *Mapping) take(chunks *[]*mapChunk) []byte {
	c := (*chunks)[0]
	size := int(c.Sizes[c.next])
	input := bytes.Clone(c.Data[c.at : c.at+size])
	c.next, c.at = c.next+1, c.at+size
	m.waiting -= int64(size)
	if c.next == len(c.Sizes) {
		(*chunks)[0] = nil
		*chunks = (*chunks)[1:]
	}
	return input
}

// resume gives the state of an earlier run to a run that was just accepted and continues
// it. If the row of the run is newer than the record, the rows of its chunks may be
// missing: see mapParts.
func (s *Slot) resume(m *apiv1.Resumed, fx []Effect) []Effect {
	r, in := s.Runs.Get(runID(m.Run)), m.Inputs
	if r == nil || m.Parts <= 0 || !r.Policy.Fans() {
		return fx
	}
	if !r.Policy.Map {
		if r.HasParts() || r.Fan == nil || len(r.Fan.Only) == 0 {
			return fx
		}
		r.Fan.Parts, r.Fan.OnlyHosts = m.Parts, m.Hosts
		return append(fx, Effect{Change: RunChanged, Run: r, Job: r.owner})
	}
	again := int32(len(in.GetParts()))
	if again > m.Parts || int(again) != len(in.GetSizes()) || in != nil && !whole(in) {
		return fx
	}
	if r.Fan == nil {
		r.Fan = &Fan{Map: &Mapping{base: m.Parts, again: again, Overflow: m.Overflow}}
	}
	mp := r.Fan.Map
	if mp == nil || mp.base != m.Parts || mp.again != again || r.State.Terminal() {
		return fx // another record has started the run
	}
	if again > 0 {
		mp.attach(0, in)
		mp.chunkN = max(mp.chunkN, 1)
		fx = s.changed(fx, rowMapInputs, mapRow(r.ID, 0), in)
	}
	known := map[int32]bool{}
	for _, c := range mp.outputs {
		for _, o := range c.Outputs {
			known[o.Part] = true
		}
	}
	for _, c := range m.Outputs {
		if len(c.Outputs) == 0 || known[c.Outputs[0].Part] {
			continue
		}
		size := 0
		for _, o := range c.Outputs {
			size += len(o.Output) + reduceOverhead
		}
		mp.outputs = append(mp.outputs, &outputChunkOf{c, size})
		mp.outBytes += size
		fx = s.changed(fx, rowMapOutputs, mapRow(r.ID, uint32(len(mp.outputs)-1)), c)
	}
	return append(fx, Effect{Change: RunChanged, Run: r, Job: r.owner})
}

// goOn starts a run that continues an earlier run. Parts that succeeded in the earlier
// run count as succeeded; the other parts run again.
func (s *Slot) goOn(r *Run, window int32, atMs int64, fx []Effect) []Effect {
	f := r.Fan
	m := f.Map
	r.StartedMs = atMs
	f.Made, f.Parts, f.Succeeded = m.base, m.base, m.base-m.again
	m.Released, m.window = m.base, max(window, 1)
	fx = append(fx, Effect{Change: RunStarted, Run: r, Job: r.owner})
	fx = s.releaseParts(r, atMs, fx)
	if len(f.parts) > 0 || m.again > m.Retried {
		return fx
	}
	fx, over := s.reduce(r, atMs, fx) // all parts had succeeded
	if !over {
		return fx
	}
	to := Succeeded
	if r.Policy.Reduce {
		to = Failed
	}
	return s.end(r, to, 0, atMs, fx) // the run is a retry, so the delay of a schedule does not count from it
}

// addPart adds a part of a run as a run of its own.
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

// join adds a live part, and leave removes one in constant time. A part knows its index,
// because a search among a million parts would cost too much.
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

// LiveParts returns the live parts of a run, sorted by their number.
func (r *Run) LiveParts() []*Run {
	if r.Fan == nil {
		return nil
	}
	return r.Fan.inOrder()
}

// inOrder returns the live parts, sorted by their number.
func (f *Fan) inOrder() []*Run {
	parts := slices.Clone(f.parts)
	slices.SortFunc(parts, func(a, b *Run) int { return cmp.Compare(a.Fan.Part, b.Fan.Part) })
	return parts
}

// giveUpParts drops the waiting parts of a cancelled run and counts them as failed.
func (r *Run) giveUpParts() {
	m := r.Fan.Map
	if m == nil {
		return
	}
	left, _ := r.Waiting()
	r.Fan.Failed += left
	m.Released, m.chunks, m.waiting = r.Fan.Made, nil, 0
	m.Retried, m.retries = m.again, nil
}

// partEnded updates a run that maps after one of its parts has ended. over reports
// whether the run ends as well.
func (s *Slot) partEnded(r, part *Run, atMs int64, fx []Effect) (_ []Effect, over bool) {
	f := r.Fan
	switch {
	case part.Fan.Reduce:
		r.Output = part.Output
	case part.State == Succeeded && r.Policy.Reduce:
		fx = s.keepOutput(r, part, fx)
	}
	fx = s.releaseParts(r, atMs, fx)
	if left, _ := r.Waiting(); len(f.parts) > 0 || left > 0 {
		return fx, false
	}
	return s.reduce(r, atMs, fx)
}

// reduce adds the part that reduces, after all other parts have ended. over reports that
// there is no such part, so that the run ends.
func (s *Slot) reduce(r *Run, atMs int64, fx []Effect) (_ []Effect, over bool) {
	f := r.Fan
	m := f.Map
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

// keepOutput retains the output of a part for the part that reduces.
func (s *Slot) keepOutput(r, part *Run, fx []Effect) []Effect {
	m := r.Fan.Map
	m.outBytes += len(part.Output) + reduceOverhead
	if m.Overflow || m.outBytes > MaxReduce {
		m.Overflow = true // the part that reduces will not run
		return fx
	}
	n := len(m.outputs)
	if n == 0 || m.outputs[n-1].bytes >= outputChunk {
		m.outputs = append(m.outputs, &outputChunkOf{MapOutputs: &apiv1.MapOutputs{}})
		n++
	}
	c := m.outputs[n-1]
	// A writer may hold the message in a row, so the message is not modified.
	c.MapOutputs = &apiv1.MapOutputs{Outputs: append(c.Outputs, &apiv1.MapOutputs_Output{Part: part.Fan.Part, Output: part.Output})}
	c.bytes += len(part.Output) + reduceOverhead
	return s.changed(fx, rowMapOutputs, mapRow(r.ID, uint32(n-1)), c.MapOutputs)
}

// reduceOverhead is about the number of bytes that a line of the reduce input adds to an
// output.
const reduceOverhead = 32

// ReduceLine is a line of the input of the part that reduces.
type ReduceLine struct {
	Part   int32   `json:"part"`
	Output *string `json:"output,omitempty"`
	Base64 *string `json:"output_base64,omitempty"` // when the output is not valid UTF-8
}

// reduceInput returns the input of the part that reduces: one line of JSON for each part,
// sorted by number. It returns false if the input exceeds MaxReduce.
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

// dropMap deletes the rows of the mapping of a run that has ended.
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
	r.Fan.Map.chunks, r.Fan.Map.retries, r.Fan.Map.outputs = nil, nil, nil
	return fx
}

func mapRow(id RunID, n uint32) string { return fmt.Sprintf("%s/%08x", id, n) }

// loadMapRow restores a row of a run that maps. The caller loads the rows by ascending
// number.
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
	r := s.Runs.Get(id)
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
	if uint32(n) < m.chunkN { // else a record that is not replayed yet adds the chunk
		m.attach(uint32(n), in)
	}
	return false, nil
}

// whole reports whether the sizes of a chunk match its data.
func whole(in *apiv1.MapChunk) bool {
	size := 0
	for _, n := range in.Sizes {
		if size += int(n); size > len(in.Data) {
			return false
		}
	}
	return size == len(in.Data) && in.First >= 0
}

// row returns the mapping as part of the row of its run.
func (m *Mapping) row() *apiv1.MapRow {
	if m == nil {
		return nil
	}
	return &apiv1.MapRow{Released: m.Released, Window: m.window, Chunks: int64(m.chunkN), Reduced: m.Reduced, Overflow: m.Overflow, Base: m.base, Again: m.again, Retried: m.Retried}
}

// appendMap appends the fields of a run's row that concern mapping.
func (r *Run) appendMap(b []byte) ([]byte, error) {
	f := r.Fan
	if f == nil {
		return b, nil
	}
	if row := f.Map.row(); row != nil {
		var err error
		b = nested(b, fields.RunRowMap, func(b []byte) []byte {
			b, err = proto.MarshalOptions{}.MarshalAppend(b, row)
			return b
		})
		if err != nil {
			return b, err
		}
	}
	b = wire.Int(b, fields.RunRowDepth, int64(f.Depth))
	b = wire.Int(b, fields.RunRowMapped, int64(f.Mapped))
	b = wire.Bool(b, fields.RunRowReduce, f.Reduce)
	if r.HasParts() {
		b = wire.Text(b, fields.RunRowFanout, r.Policy.Fanout())
	}
	return wire.Text(b, fields.RunRowRole, r.Role()), nil
}

func mappingOf(row *apiv1.MapRow) *Mapping {
	if row == nil {
		return nil
	}
	return &Mapping{Released: row.Released, window: row.Window, chunkN: uint32(row.Chunks), Reduced: row.Reduced, Overflow: row.Overflow, base: row.Base, again: row.Again, Retried: row.Retried}
}

// MapLimits returns the limits of a run whose handler fans out: the number of its parts,
// and the depth to which parts may fan out again.
func (r *Run) MapLimits() (parts, depth int32) {
	f := r.shape.Fanout
	return cmp.Or(f.GetMaxParts(), maxMapped), cmp.Or(f.GetMaxDepth(), defaultMapDepth)
}

// fan divides a due run into parts. The parent runs until its last part has ended.
func (s *Slot) fan(f *apiv1.Fanned, atMs int64, fx []Effect) []Effect {
	r := s.Runs.Get(runID(f.Run))
	if r == nil || r.HasParts() || (r.State != Queued && r.State != Armed) || f.Parts <= 0 {
		return fx
	}
	s.move(r, Running)
	if r.Fan != nil && r.Fan.Map != nil {
		return s.goOn(r, f.Window, atMs, fx)
	}
	numbers := f.Only
	var before Fan // of a retried run
	if r.Fan != nil {
		before = *r.Fan
	}
	if before.Parts > 0 { // a part does the same share again, even if the job has changed
		f.Parts = before.Parts
	}
	if r.Policy.Map {
		f.Parts, numbers = 1, nil
	}
	if len(numbers) == 0 {
		numbers = make([]int32, f.Parts)
		for i := range numbers {
			numbers[i] = int32(i)
		}
	}
	r.StartedMs = atMs
	r.Fan = &Fan{Parts: f.Parts, Made: int32(len(numbers)), Succeeded: f.Parts - int32(len(numbers))}
	if r.Policy.Map {
		r.Fan.Map = &Mapping{Released: 1, window: max(f.Window, 1)}
	}
	fx = append(fx, Effect{Change: RunStarted, Run: r, Job: r.owner})
	for i, n := range numbers {
		part := &Fan{Part: n}
		switch {
		case before.Parts > 0 && i < len(before.OnlyHosts):
			part.Pinned = before.OnlyHosts[i]
		case before.Parts == 0 && int(n) < len(f.Hosts):
			part.Pinned = f.Hosts[n]
		}
		fx = s.addPart(r, part, r.Input, r.HasInput, atMs, fx)
	}
	return fx
}

// endPart counts a part that has ended, and ends the parent with its last part.
func (s *Slot) endPart(part *Run, jobNextMs, atMs int64, fx []Effect) []Effect {
	r := s.Runs.Get(part.Fan.Parent)
	if r == nil {
		return fx
	}
	r.Fan.leave(part)
	if part.State == Succeeded {
		r.Fan.Succeeded++
	} else {
		r.Fan.Failed++
		if r.Error == "" {
			r.Error, r.Code = fmt.Sprintf("part %d is %s: %s", part.Fan.Part, part.State, part.Error), part.Code
		}
	}
	over := len(r.Fan.parts) == 0
	failed := r.Fan.Failed > 0
	if r.Fan.Map != nil {
		fx, over = s.partEnded(r, part, atMs, fx)
		failed = failed || r.Policy.Reduce && !r.Fan.Map.Reduced
	}
	if !over {
		return append(fx, Effect{Change: RunChanged, Run: r, Job: r.owner})
	}
	to := Succeeded
	switch {
	case failed && r.CancelRequested:
		to = Stopped
	case failed:
		to = Failed
	}
	return s.end(r, to, jobNextMs, atMs, fx)
}
