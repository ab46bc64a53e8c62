package environment

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/document"
	"github.com/wheelworkhq/wheelwork/job/schedule"
)

// format is the version of the form of a plan.
const format = 1

// The results of a change.
const (
	Created = "created"
	Updated = "updated"
	Deleted = "deleted"
)

// Plan is what makes the definitions of a target those of a source. It is complete: to apply it
// takes nothing of the source but the bytes of the modules.
type Plan struct {
	Format  int       `json:"format"`
	From    string    `json:"from"` // the environment or the folder of the source
	To      string    `json:"to"`   // the environment of the target; "": the server that the command line names
	Server  string    `json:"server"`
	App     string    `json:"app"`
	MadeAt  time.Time `json:"made_at"`
	MadeBy  string    `json:"made_by"` // the principal, as the target knows it
	Note    string    `json:"note,omitempty"`
	Gates   Gates     `json:"gates"`
	Changes []Change  `json:"changes"`
	Modules []Module  `json:"modules"` // missing in the target
	// Kept are the objects that only the target has, and that the plan leaves there.
	Kept []Object `json:"kept"`
	// Problems are the reasons for which the target would refuse the plan now.
	Problems []string `json:"problems"`
	// Hash is the SHA-256 of the plan with an empty hash, in hexadecimal.
	Hash string `json:"hash"`
}

// Object names a definition.
type Object struct {
	Kind string `json:"kind"` // as in documents
	Name string `json:"name"`
}

// String names the object as job totals.
func (o Object) String() string { return lower(o.Kind) + " " + o.Name }

// Change is the change of one object.
type Change struct {
	Object
	Result string  `json:"result"` // created, updated or deleted
	Base   string  `json:"base"`   // the state of the object in the target that the change was made from
	Fields []Field `json:"fields"` // of an update, and those of a creation that an overlay sets
	Fires  *Fires  `json:"fires,omitempty"`
	Live   int64   `json:"live_runs,omitempty"` // runs of a job that have not ended: they end with the definition that they began with
	// Definition is the new definition as the API has it; none: the object is deleted.
	Definition json.RawMessage `json:"definition,omitempty"`
}

// Field is a field that changes.
type Field struct {
	document.Change
	Overlay bool `json:"by_overlay,omitempty"` // the value comes from the overlay of the target
}

// Module is a version that the target needs and does not have.
type Module struct {
	Ref    string   `json:"ref"` // name@version
	Digest string   `json:"digest"`
	Size   int64    `json:"size"`
	Needs  []string `json:"needs,omitempty"` // what a host must offer to run it
	// Capabilities are what it imports and requests, and no version of the module in the target does.
	Capabilities []string `json:"capabilities,omitempty"`
	// Script names the interpreter of a script, as a digest.
	Script string `json:"interpreter,omitempty"`
}

// Input has the two sides of a plan.
type Input struct {
	Target  []*document.Document // all definitions of the target
	Wanted  []*document.Document // the definitions that it should have, of the same app
	Prune   bool                 // delete what only the target has
	Prunes  func(*document.Document) bool
	Overlay *Overlay // of the target; nil: none
	Now     time.Time
	// Base returns the state of a definition of the target.
	Base func(proto.Message) string
}

// New returns the plan with the changes from the target to the wanted definitions. The caller
// sets the remaining fields, and ends with [Plan.Seal].
func New(in Input) (*Plan, error) {
	p := &Plan{Format: format, MadeAt: in.Now.UTC().Truncate(time.Second), Changes: []Change{}, Modules: []Module{}, Kept: []Object{}, Problems: []string{}}
	now := make(map[Object]*document.Document, len(in.Target))
	for _, d := range in.Target {
		now[objectOf(d)] = d
	}
	f := newFires(in)
	wanted := slices.Clone(in.Wanted)
	slices.SortStableFunc(wanted, document.Compare)
	for _, d := range wanted {
		o := objectOf(d)
		next, err := stored(d)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d, err)
		}
		overlaid := in.Overlay.Apply(next)
		old := now[o]
		delete(now, o)
		if old != nil && len(document.Diff(old, overlaid)) == 0 || old == nil && empty(overlaid) {
			continue
		}
		c := Change{Object: o, Result: Created, Base: noBase, Fields: fieldsOf(old, next, overlaid)}
		if old != nil {
			c.Result, c.Base = Updated, in.Base(old.Spec)
		}
		if c.Definition, err = encode(overlaid.Spec); err != nil {
			return nil, fmt.Errorf("%s: %w", d, err)
		}
		if job, ok := overlaid.Spec.(*apiv1.Job); ok {
			c.Fires = f.of(old, job)
		} else if d.Kind.Name == "Calendar" && old != nil {
			c.Fires = f.ofCalendar(d.Name, in.Target)
		}
		c.Live = live(old)
		p.Changes = append(p.Changes, c)
	}
	for _, d := range in.Target {
		if o := objectOf(d); now[o] == nil || d.Kind.Name == "App" {
			continue
		} else if !in.Prune || in.Prunes != nil && !in.Prunes(d) {
			p.Kept = append(p.Kept, o)
		} else {
			p.Changes = append(p.Changes, Change{Object: o, Result: Deleted, Base: in.Base(d.Spec), Fields: []Field{}, Live: live(d)})
		}
	}
	return p, nil
}

// noBase is the base of an object that must not exist.
const noBase = "none"

func objectOf(d *document.Document) Object { return Object{d.Kind.Name, d.Name} }

func live(d *document.Document) int64 {
	if d == nil {
		return 0
	}
	job, _ := d.Spec.(*apiv1.Job)
	return job.GetStats().GetLive()
}

// fieldsOf returns the fields that change. Those that differ between the wanted definition and
// the one with the overlay come from the overlay.
func fieldsOf(old, wanted, overlaid *document.Document) []Field {
	fields, by := []Field{}, map[string]string{}
	for _, x := range document.Diff(wanted, overlaid) {
		by[x.Field] = x.New
		if old == nil {
			fields = append(fields, Field{x, true})
		}
	}
	if old == nil {
		return fields
	}
	for _, x := range document.Diff(old, overlaid) {
		value, overlay := by[x.Field]
		fields = append(fields, Field{x, overlay && value == x.New})
	}
	return fields
}

// stored returns a definition as a server stores it: a calendar with its dates sorted.
func stored(d *document.Document) (*document.Document, error) {
	calendar, ok := d.Spec.(*apiv1.Calendar)
	if !ok {
		return d, nil
	}
	calendar = proto.CloneOf(calendar)
	if _, err := schedule.CompileCalendar(calendar); err != nil {
		return nil, err
	}
	return document.Of(d.Kind, calendar), nil
}

// empty reports whether a definition says no more than that there is none: settings or grants
// without a field.
func empty(d *document.Document) bool {
	switch x := d.Spec.(type) {
	case *apiv1.App:
		return len(document.Diff(document.Of(d.Kind, &apiv1.App{Name: x.GetName()}), d)) == 0
	case *apiv1.ModuleGrants:
		return proto.Size(x.GetGrants()) == 0 && len(x.GetLabels()) == 0
	}
	return false
}

// encode returns a definition as JSON without what the server sets.
func encode(m proto.Message) (json.RawMessage, error) {
	m = proto.Clone(m)
	fields := m.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if document.SetByServer(fields.Get(i)) {
			m.ProtoReflect().Clear(fields.Get(i))
		}
	}
	if alias, ok := m.(*apiv1.Alias); ok {
		alias.Events, alias.UpdatedAt, alias.Revision, alias.Jobs = nil, nil, 0, 0
	}
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer // protojson writes spaces at random
	if err := json.Compact(&b, text); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// Decode returns the definition of a change; nil: the object is deleted.
func (c *Change) Decode() (proto.Message, error) {
	if len(c.Definition) == 0 {
		return nil, nil
	}
	k, err := document.Find(c.Kind)
	if err != nil {
		return nil, err
	}
	m := k.New()
	if err := protojson.Unmarshal(c.Definition, m); err != nil {
		return nil, fmt.Errorf("%s: %w", c, err)
	}
	return m, nil
}

// Count returns the number of changes with a result.
func (p *Plan) Count(result string) (n int) {
	for i := range p.Changes {
		if p.Changes[i].Result == result {
			n++
		}
	}
	return n
}

// Fingerprint is equal for plans that change the same objects in the same way and keep the same ones.
func (p *Plan) Fingerprint() string {
	same := Plan{Changes: slices.Clone(p.Changes), Kept: p.Kept, Problems: p.Problems}
	for i := range same.Changes {
		same.Changes[i].Live, same.Changes[i].Fires = 0, nil
	}
	sum, err := same.sum()
	if err != nil {
		return err.Error()
	}
	return sum
}

// Seal computes the hash.
func (p *Plan) Seal() error {
	sum, err := p.sum()
	p.Hash = sum
	return err
}

func (p *Plan) sum() (string, error) {
	unsealed := *p
	unsealed.Hash = ""
	text, err := json.Marshal(unsealed)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// maxPlan bounds the bytes of a plan: a change set has at most 32 MiB.
const maxPlan = 256 << 20

// Read reads a plan, and refuses one that was changed since [Plan.Seal].
func Read(r io.Reader) (*Plan, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxPlan+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxPlan {
		return nil, fmt.Errorf("it is larger than %d MiB", maxPlan>>20)
	}
	p := &Plan{}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(p); err != nil {
		var head struct{ Format int }
		if json.Unmarshal(text, &head) == nil && head.Format > format {
			return nil, fmt.Errorf("it has the form %d, and this program reads %d: use a newer one", head.Format, format)
		}
		return nil, fmt.Errorf("it is no plan: %w", err)
	}
	if p.Format != format {
		return nil, fmt.Errorf("it is no plan of the form %d: make it with \"wheelwork plan -o FILE\"", format)
	}
	sum, err := p.sum()
	if err != nil {
		return nil, err
	}
	if sum != p.Hash {
		return nil, errors.New("it was changed after it was made: its hash is another one; make the plan again")
	}
	return p, nil
}

// Write writes a plan so that people can read it.
func (p *Plan) Write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(p)
}

// ByKind orders changes as documents are ordered.
func ByKind(a, b Change) int {
	return cmp.Or(kindIndex(a.Kind)-kindIndex(b.Kind), cmp.Compare(a.Name, b.Name))
}

func kindIndex(name string) int {
	return slices.IndexFunc(document.Kinds(), func(k *document.Kind) bool { return k.Name == name })
}
