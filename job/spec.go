package job

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/wire/fields"
	"github.com/wheelworkhq/wheelwork/job/naming"
	"github.com/wheelworkhq/wheelwork/job/schedule"
	"github.com/wheelworkhq/wheelwork/job/trigger"
)

// spec is a definition in as little memory as possible. A million jobs have a million
// definitions that differ in name, input and phase of the schedule. The part that many
// definitions have in common is stored once, as their shape, and the rest as bytes. The
// name, the app, the revision and the etag are in the job. A job takes 0.17 of the memory
// of its decoded definition (BenchmarkSpec), and a run is sent without decoding (ADR 15).
//
// The own fields of an apiv1.Job are description, schedule, input, input_bytes,
// created_at and updated_at. All others are in the shape, including new ones, which then
// only cost memory.
type spec struct {
	shape *Shape
	own   string // bytes of an apiv1.Job with the own fields
}

// Shape is the part that definitions share if they differ only in their own fields. It is
// immutable.
type Shape struct {
	text       string         // bytes of an apiv1.Job without its own fields
	Handler    *apiv1.Handler // nil: a workflow
	Fanout     *apiv1.Fanout  // nil: no fan-out
	Digest     string         // of the module's version
	Misfire    schedule.Misfire
	Dependency *Dependency
	Event      *trigger.Trigger // nil: no event starts the jobs
	Alerts     []*apiv1.JobAlert
	Nodes      []string // the jobs of the nodes, each once; nil if it is not a workflow
	Labels     map[string]string
	Owner      string
	Paused     bool
	ResumesMs  int64  // when the server ends the pause; 0: it is not paused, or without an end
	Needs      string // what a host must announce, in the form of needsOf
	Memory     int64  // bytes of memory for an attempt; 0: the job sets no limit
	Fuel       int64  // fuel of an attempt, in units of about one instruction; 0: the job sets no limit

	// plain and given are the kinds of jobs whose schedule has no delay: plain without an
	// input, given with one.
	plain, given *kind
}

// maxShapes bounds the shapes that a slot can find by their text.
const maxShapes = 4096

// split splits a definition into its shape and its own bytes. It changes d while it works
// and restores it before it returns, so no other goroutine may use d meanwhile.
func (s *Slot) split(d *apiv1.Job) (shape *Shape, own []byte) {
	mine := &apiv1.Job{
		Description: d.Description, Schedule: d.Schedule, Input: d.Input, InputBytes: d.InputBytes, CreatedAt: d.CreatedAt, UpdatedAt: d.UpdatedAt,
	}
	if proto.Equal(mine.CreatedAt, mine.UpdatedAt) {
		mine.UpdatedAt = nil // decode sets it to CreatedAt
	}
	app, name, revision, etag, next, stats := d.App, d.Name, d.Revision, d.Etag, d.NextAt, d.Stats
	created, updated := d.CreatedAt, d.UpdatedAt
	d.App, d.Name, d.Revision, d.Etag, d.NextAt, d.Stats = "", "", 0, "", nil, nil
	d.Description, d.Schedule, d.Input, d.InputBytes, d.CreatedAt, d.UpdatedAt = "", nil, "", nil, nil, nil
	text := encode(d)
	d.App, d.Name, d.Revision, d.Etag, d.NextAt, d.Stats = app, name, revision, etag, next, stats
	d.Description, d.Schedule, d.Input, d.InputBytes, d.CreatedAt, d.UpdatedAt = mine.Description, mine.Schedule, mine.Input, mine.InputBytes, created, updated
	if shape = s.shapes[string(text)]; shape == nil {
		shape = s.addShape(text, d)
	}
	return shape, encode(mine)
}

// spec splits a definition for a run whose definition is not that of its job.
func (s *Slot) spec(d *apiv1.Job) spec {
	shape, own := s.split(d)
	return spec{shape, string(own)}
}

// define sets the name and the definition of a job.
func (s *Slot) define(j *Job, d *apiv1.Job) {
	shape, own := s.split(d)
	s.write(j, d.Name, own)
	j.kind = s.kindOf(spec{shape, j.text[j.nameLen:]})
}

// shape returns the shape of a definition without own fields.
func (s *Slot) shape(d *apiv1.Job) *Shape {
	text := encode(d)
	if sh := s.shapes[string(text)]; sh != nil {
		return sh
	}
	return s.addShape(text, d)
}

// addShape stores the shape with a text. d is a definition of that shape; addShape
// changes it while it works and restores it.
func (s *Slot) addShape(text []byte, d *apiv1.Job) *Shape {
	if len(s.shapes) >= maxShapes {
		clear(s.shapes) // jobs and runs still hold the shapes in use
	}
	sh := &Shape{
		text: string(text), Digest: d.Digest, Misfire: schedule.MisfireOf(d), Dependency: dependencyOf(d), Event: trigger.Of(d.Trigger), Nodes: NodeJobs(d), Labels: maps.Clone(d.Labels), Owner: d.Owner, Paused: d.GetPaused(), Needs: needsOf(d),
		ResumesMs: resumesMs(d), Memory: d.GetLimits().GetMemoryBytes(), Fuel: d.GetLimits().GetFuel(),
	}
	if d.Handler != nil {
		sh.Handler = proto.CloneOf(d.Handler)
	}
	for _, a := range d.Alerts {
		sh.Alerts = append(sh.Alerts, proto.CloneOf(a))
	}
	if d.Fanout != nil {
		sh.Fanout = proto.CloneOf(d.Fanout)
	}
	schedule, input, inputBytes := d.Schedule, d.Input, d.InputBytes
	d.Schedule, d.Input, d.InputBytes = nil, "", nil
	sh.plain = &kind{slot: s, shape: sh, policy: s.policy(d)}
	d.Input = "any"
	sh.given = &kind{slot: s, shape: sh, policy: s.policy(d)}
	d.Schedule, d.Input, d.InputBytes = schedule, input, inputBytes
	s.shapes[sh.text] = sh
	return sh
}

// resumesMs is [Job.ResumesMs] of a definition.
func resumesMs(d *apiv1.Job) int64 {
	if !d.GetPaused() || d.GetPause().GetUntil() == nil {
		return 0
	}
	return d.Pause.Until.AsTime().UnixMilli()
}

// loadDefinition restores the name and the definition of a job from its row. It decodes
// as little as possible, because a restart does this a million times.
func (s *Slot) loadDefinition(j *Job, name string, row *apiv1.JobRow) error {
	if len(name) > naming.MaxName {
		return fmt.Errorf("decode job: its name has %d bytes, the limit is %d", len(name), naming.MaxName)
	}
	if row.Definition != nil { // written by an older version
		d := &apiv1.Job{}
		if err := proto.Unmarshal(row.Definition, d); err != nil {
			return fmt.Errorf("decode job: %w", err)
		}
		e := parseEtag(d.Etag)
		row.Revision, row.Etag = d.Revision, e[:]
		d.Name = name
		s.define(j, d)
		return nil
	}
	shape := s.shapes[string(row.Shape)]
	if shape == nil {
		d := &apiv1.Job{}
		if err := proto.Unmarshal(row.Shape, d); err != nil {
			return fmt.Errorf("decode job: %w", err)
		}
		shape = s.addShape(row.Shape, d)
	}
	s.write(j, name, row.Own)
	j.kind = s.kindOf(spec{shape, j.text[j.nameLen:]})
	return nil
}

// kindOf returns the shared kind of jobs with this definition. It does not retain sp.
func (s *Slot) kindOf(sp spec) *kind {
	delay, _ := sp.timing()
	switch {
	case delay:
		k := kind{slot: s, shape: sp.shape, policy: s.policy(sp.decode("", ""))}
		shared := s.kinds[k]
		if shared == nil {
			if len(s.kinds) >= maxPolicies {
				clear(s.kinds) // jobs still hold the kinds in use
			}
			shared = &k
			s.kinds[k] = shared
		}
		return shared
	case sp.input() != "":
		return sp.shape.given
	}
	return sp.shape.plain
}

// timing reports whether the schedule is a delay, and whether it names calendars.
func (sp spec) timing() (delay, calendars bool) {
	for b := sp.schedule(); b != ""; {
		var n uint64
		n, _, b = cut(b)
		delay = delay || n == fields.ScheduleDelay
		calendars = calendars || n == fields.ScheduleInclude || n == fields.ScheduleExclude
	}
	return delay, calendars
}

// schedule returns the bytes of the apiv1.Schedule; empty if there is none.
func (sp spec) schedule() string { return field(sp.own, fields.JobSchedule) }

// input returns the input of the definition; empty if there is none.
func (sp spec) input() string {
	if b := field(sp.own, fields.JobInputBytes); b != "" {
		return b
	}
	return field(sp.own, fields.JobInput)
}

// born returns when the job was created, in Unix nanoseconds.
func (sp spec) born() int64 {
	t := &timestamppb.Timestamp{}
	if err := proto.Unmarshal([]byte(field(sp.own, fields.JobCreatedAt)), t); err != nil {
		panic("job: a time that this process encoded does not decode: " + err.Error())
	}
	return t.AsTime().UnixNano()
}

// cut removes the first field from a message. v is its value if it is length-delimited.
// After a malformed field, number is 0 and rest is empty; the bytes of this process are
// not malformed.
func cut(b string) (number uint64, v, rest string) {
	tag, b := cutVarint(b)
	var size uint64
	switch protowire.Type(tag & 7) {
	case protowire.VarintType:
		_, b = cutVarint(b)
		return tag >> 3, "", b
	case protowire.Fixed64Type:
		size = 8
	case protowire.Fixed32Type:
		size = 4
	case protowire.BytesType:
		if size, b = cutVarint(b); size <= uint64(len(b)) {
			return tag >> 3, b[:size], b[size:]
		}
	}
	if size == 0 || size > uint64(len(b)) {
		return 0, "", ""
	}
	return tag >> 3, "", b[size:]
}

// cutVarint is protowire.ConsumeVarint for a string. It returns 0 and an empty rest for a
// malformed number.
func cutVarint(b string) (v uint64, rest string) {
	for i := range min(len(b), binary.MaxVarintLen64) {
		v |= uint64(b[i]&0x7f) << (7 * i)
		if b[i] < 0x80 {
			return v, b[i+1:]
		}
	}
	return 0, ""
}

// field returns the value of a length-delimited field. The last occurrence counts.
func field(b string, want uint64) (found string) {
	for b != "" {
		n, v, rest := cut(b)
		if n == want {
			found = v
		}
		b = rest
	}
	return found
}

// decode returns the definition without revision and etag. The caller owns it.
func (sp spec) decode(app, name string) *apiv1.Job {
	d := decode([]byte(sp.shape.text))
	if err := (proto.UnmarshalOptions{Merge: true}).Unmarshal([]byte(sp.own), d); err != nil {
		panic("job: a definition that this process encoded does not decode: " + err.Error())
	}
	if d.UpdatedAt == nil {
		d.UpdatedAt = proto.CloneOf(d.CreatedAt)
	}
	d.App, d.Name = app, name
	return d
}

// bytes returns the definition as bytes of an apiv1.Job, without app, name, revision and
// etag.
func (sp spec) bytes() []byte {
	return append(append(make([]byte, 0, len(sp.shape.text)+len(sp.own)), sp.shape.text...), sp.own...)
}

// content returns the definition as revisions have it. It shares memory with sp.
func (sp spec) content() Content { return Content{sp.shape.text, sp.own} }

// etag is an [Etag] in 8 bytes.
type etag [8]byte

func parseEtag(s string) (e etag) {
	hex.Decode(e[:], []byte(s)) //nolint:errcheck // Etag wrote it; what it did not write is equal to none
	return e
}

func (e etag) String() string { return hex.EncodeToString(e[:]) }
