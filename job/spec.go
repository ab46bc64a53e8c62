package job

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// A spec is a definition in the least memory. A million jobs are a million
// definitions that differ in their name, their input and the phase of their
// schedule: what many have in common is kept once, as their shape, and the rest
// as bytes. The name, the app, the revision and the etag are with the job.
type spec struct {
	shape *Shape
	own   string // bytes of an apiv1.Job: see ownFields
}

// Shape is what definitions have in common that differ only in their own
// fields. It is shared and never written to.
type Shape struct {
	text    string         // bytes of an apiv1.Job without its own fields
	Handler *apiv1.Handler // nil: it is a workflow
	Fanout  *apiv1.Fanout  // nil: there is none
	Digest  string         // of the module's version
	Misfire Misfire
	// Dependency is nil for a job that depends on no others.
	Dependency *Dependency
	Nodes      []string // the jobs of its nodes, each once; nil when it is no workflow
	Labels     map[string]string
	Needs      string // what a host must have said that it runs, as [NeedsOf] says it
	Memory     int64  // bytes that an attempt may have of it; 0: the job sets no limit
	Fuel       int64  // units of work that an attempt may do; 0: likewise

	// plain is the kind of jobs whose schedule has no delay and that have no
	// input, given that of those which have one.
	plain, given *kind
}

// The fields of apiv1.Job that a definition does not share. Every other one is
// of the shape, also one that is added some day: it costs memory then, no more.
const (
	fieldDescription = 3
	fieldSchedule    = 5
	fieldInput       = 6
	fieldInputBytes  = 7
	fieldCreatedAt   = 22
	fieldUpdatedAt   = 23

	scheduleDelay   = 4
	scheduleInclude = 12
	scheduleExclude = 13
)

// maxShapes bounds the shapes that a slot finds again.
const maxShapes = 4096

// split splits a definition. It is d's owner's while it works, and d is as it was
// when it returns.
func (s *Slot) split(d *apiv1.Job) (shape *Shape, own []byte) {
	mine := &apiv1.Job{
		Description: d.Description, Schedule: d.Schedule, Input: d.Input, InputBytes: d.InputBytes, CreatedAt: d.CreatedAt, UpdatedAt: d.UpdatedAt,
	}
	if proto.Equal(mine.CreatedAt, mine.UpdatedAt) {
		mine.UpdatedAt = nil // decoded as CreatedAt
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

// spec is split for a run, which keeps a definition that is no job's.
func (s *Slot) spec(d *apiv1.Job) spec {
	shape, own := s.split(d)
	return spec{shape, string(own)}
}

// define gives a job its name and its definition.
func (s *Slot) define(j *Job, d *apiv1.Job) {
	shape, own := s.split(d)
	s.write(j, d.Name, own)
	j.kind = s.kindOf(spec{shape, j.text[j.nameLen:]})
}

// shape returns the shape of a definition that has none of its own fields.
func (s *Slot) shape(d *apiv1.Job) *Shape {
	text := encode(d)
	if sh := s.shapes[string(text)]; sh != nil {
		return sh
	}
	return s.addShape(text, d)
}

// addShape keeps a shape of which d is one.
func (s *Slot) addShape(text []byte, d *apiv1.Job) *Shape {
	if len(s.shapes) >= maxShapes {
		clear(s.shapes) // those in use live on
	}
	sh := &Shape{
		text: string(text), Digest: d.Digest, Misfire: MisfireOf(d), Dependency: dependencyOf(d), Nodes: NodeJobs(d), Labels: maps.Clone(d.Labels), Needs: NeedsOf(d),
		Memory: d.GetLimits().GetMemoryBytes(), Fuel: d.GetLimits().GetFuel(),
	}
	if d.Handler != nil {
		sh.Handler = proto.CloneOf(d.Handler)
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

// loadDefinition gives a job the name and the definition that it has in the store. It looks
// into no more of it than it has to: this is what a restart does a million times.
func (s *Slot) loadDefinition(j *Job, name string, row *apiv1.JobRow) error {
	if len(name) > maxName {
		return fmt.Errorf("decode job: its name has %d bytes, the limit is %d", len(name), maxName)
	}
	if row.Definition != nil { // of an older store
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

// kindOf returns the shared kind of jobs with this definition. It does not keep it.
func (s *Slot) kindOf(sp spec) *kind {
	delay, _ := sp.timing()
	switch {
	case delay:
		k := kind{slot: s, shape: sp.shape, policy: s.policy(sp.decode("", ""))}
		shared := s.kinds[k]
		if shared == nil {
			if len(s.kinds) >= maxPolicies {
				clear(s.kinds) // those in use live on
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

// timing says of the schedule whether it is a delay, and whether it names calendars.
func (sp spec) timing() (delay, calendars bool) {
	for b := sp.schedule(); b != ""; {
		var n uint64
		n, _, b = cut(b)
		delay = delay || n == scheduleDelay
		calendars = calendars || n == scheduleInclude || n == scheduleExclude
	}
	return delay, calendars
}

// schedule returns the bytes of the apiv1.Schedule; empty when there is none.
func (sp spec) schedule() string { return field(sp.own, fieldSchedule) }

// input returns the input of the definition.
func (sp spec) input() string {
	if b := field(sp.own, fieldInputBytes); b != "" {
		return b
	}
	return field(sp.own, fieldInput)
}

// born is when the job was created, in Unix ns.
func (sp spec) born() int64 {
	t := &timestamppb.Timestamp{}
	if err := proto.Unmarshal([]byte(field(sp.own, fieldCreatedAt)), t); err != nil {
		panic("job: a time that this process encoded does not decode: " + err.Error())
	}
	return t.AsTime().UnixNano()
}

// cut cuts the first field off a message. v is its value if it has a length. What
// is behind something malformed is nothing; our own bytes are not malformed.
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

// cutVarint is protowire.ConsumeVarint for a string.
func cutVarint(b string) (v uint64, rest string) {
	for i := range min(len(b), binary.MaxVarintLen64) {
		v |= uint64(b[i]&0x7f) << (7 * i)
		if b[i] < 0x80 {
			return v, b[i+1:]
		}
	}
	return 0, ""
}

// field returns the value of a field that has a length: the last one counts.
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

// bytes returns the definition as bytes of an apiv1.Job, without name, revision and etag.
func (sp spec) bytes() []byte {
	return append(append(make([]byte, 0, len(sp.shape.text)+len(sp.own)), sp.shape.text...), sp.own...)
}

// An etag in the least memory: see [Etag].
type etag [8]byte

func parseEtag(s string) (e etag) {
	hex.Decode(e[:], []byte(s)) //nolint:errcheck // Etag wrote it; what it did not write is equal to none
	return e
}

func (e etag) String() string { return hex.EncodeToString(e[:]) }
