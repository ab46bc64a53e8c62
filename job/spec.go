package job

import (
	"encoding/hex"
	"fmt"
	"maps"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
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
	Digest  string         // of the module's version
	Misfire Misfire
	// Dependency is nil for a job that depends on no others.
	Dependency *Dependency
	Nodes      []string // the jobs of its nodes, each once; nil when it is no workflow
	Labels     map[string]string

	// plain is the policy of jobs whose schedule has no delay.
	plain *Policy
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

// spec splits a definition. It is d's owner's while it works, and d is as it was
// when it returns.
func (s *Slot) spec(d *apiv1.Job) spec {
	own := &apiv1.Job{
		Description: d.Description, Schedule: d.Schedule, Input: d.Input, InputBytes: d.InputBytes, CreatedAt: d.CreatedAt, UpdatedAt: d.UpdatedAt,
	}
	if proto.Equal(own.CreatedAt, own.UpdatedAt) {
		own.UpdatedAt = nil // decoded as CreatedAt
	}
	app, name, revision, etag, next, stats := d.App, d.Name, d.Revision, d.Etag, d.NextAt, d.Stats
	created, updated := d.CreatedAt, d.UpdatedAt
	d.App, d.Name, d.Revision, d.Etag, d.NextAt, d.Stats = "", "", 0, "", nil, nil
	d.Description, d.Schedule, d.Input, d.InputBytes, d.CreatedAt, d.UpdatedAt = "", nil, "", nil, nil, nil
	text := encode(d)
	d.App, d.Name, d.Revision, d.Etag, d.NextAt, d.Stats = app, name, revision, etag, next, stats
	d.Description, d.Schedule, d.Input, d.InputBytes, d.CreatedAt, d.UpdatedAt = own.Description, own.Schedule, own.Input, own.InputBytes, created, updated
	sp := spec{own: string(encode(own))}
	if sp.shape = s.shapes[string(text)]; sp.shape == nil {
		sp.shape = s.addShape(text, d)
	}
	return sp
}

// addShape keeps a shape of which d is one.
func (s *Slot) addShape(text []byte, d *apiv1.Job) *Shape {
	if len(s.shapes) >= maxShapes {
		clear(s.shapes) // those in use live on
	}
	sh := &Shape{
		text: string(text), Digest: d.Digest, Misfire: MisfireOf(d), Dependency: dependencyOf(d), Nodes: NodeJobs(d), Labels: maps.Clone(d.Labels),
	}
	if d.Handler != nil {
		sh.Handler = proto.CloneOf(d.Handler)
	}
	schedule := d.Schedule
	d.Schedule = nil
	sh.plain = s.policy(d)
	d.Schedule = schedule
	s.shapes[sh.text] = sh
	return sh
}

// loadSpec puts a spec of the store back. It looks into no more of it than it
// has to: this is what a restart does a million times.
func (s *Slot) loadSpec(row *apiv1.JobRow) (spec, error) {
	d := &apiv1.Job{}
	if row.Definition != nil { // of an older store
		if err := proto.Unmarshal(row.Definition, d); err != nil {
			return spec{}, fmt.Errorf("decode job: %w", err)
		}
		e := parseEtag(d.Etag)
		row.Revision, row.Etag = d.Revision, e[:]
		return s.spec(d), nil
	}
	sp := spec{shape: s.shapes[string(row.Shape)], own: string(row.Own)}
	if sp.shape != nil {
		return sp, nil
	}
	if err := proto.Unmarshal(row.Shape, d); err != nil {
		return sp, fmt.Errorf("decode job: %w", err)
	}
	sp.shape = s.addShape(row.Shape, d)
	return sp, nil
}

// policyOf returns the shared policy of a job with this definition.
func (s *Slot) policyOf(sp spec) *Policy {
	delay, _ := sp.timing()
	if !delay {
		return sp.shape.plain
	}
	return s.policy(sp.decode("", ""))
}

// timing says of the schedule whether it is a delay, and whether it names calendars.
func (sp spec) timing() (delay, calendars bool) {
	each(sp.schedule(), func(n protowire.Number, _ []byte) {
		delay = delay || n == scheduleDelay
		calendars = calendars || n == scheduleInclude || n == scheduleExclude
	})
	return delay, calendars
}

// schedule returns the bytes of the apiv1.Schedule; empty when there is none.
func (sp spec) schedule() []byte { return field([]byte(sp.own), fieldSchedule) }

// input returns the input of the definition.
func (sp spec) input() []byte {
	own := []byte(sp.own)
	if b := field(own, fieldInputBytes); len(b) > 0 {
		return b
	}
	return field(own, fieldInput)
}

// born is when the job was created, in Unix ns.
func (sp spec) born() int64 {
	var sec, ns uint64
	for b := field([]byte(sp.own), fieldCreatedAt); len(b) > 0; {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 || kind != protowire.VarintType {
			break
		}
		v, more := protowire.ConsumeVarint(b[size:])
		if more < 0 {
			break
		}
		switch b = b[size+more:]; n {
		case 1:
			sec = v
		case 2:
			ns = v
		}
	}
	return int64(sec)*1e9 + int64(ns)
}

// each calls f for the fields of a message that have a length. What is behind
// something malformed is not looked at; our own bytes are not malformed.
func each(b []byte, f func(n protowire.Number, v []byte)) {
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return
		}
		b = b[size:]
		if kind != protowire.BytesType {
			if size = protowire.ConsumeFieldValue(n, kind, b); size < 0 {
				return
			}
			b = b[size:]
			continue
		}
		v, size := protowire.ConsumeBytes(b)
		if size < 0 {
			return
		}
		f(n, v)
		b = b[size:]
	}
}

func field(b []byte, want protowire.Number) (found []byte) {
	each(b, func(n protowire.Number, v []byte) {
		if n == want {
			found = v
		}
	})
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
